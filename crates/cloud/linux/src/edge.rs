//! A site's edge: the namespace between its networks and everything beyond, there while the site has a gateway or NAT.
//!
//! ```text
//!   network ─ gw ── n0a000000 ┐            ┌ t1501 ══ inside of a tunnel, BGP and BFD on it
//!   network ─ gw ── n0a010000 ┼── routes ──┼ o1501 ── its outside: a namespace with the IKE daemon
//!                             ┘            └ wan   ── the exchange
//! ```
//!
//! It lets through what goes between a network and a tunnel, what networks with NAT send to public addresses, and the
//! tunnels' outside. It is no way from network to network, which is what peerings are for, nor from tunnel to tunnel.

use cloud_api::Result;
use ipnet::Ipv4Net;
use model::{NetworkName, Site};
use node_nft::{
    Chain, ChainKind, Element, Family, FieldType, Hook, MetaKey, Policy, Ranges, Reg, Rule, Set, SetSchema,
    Table,
};

use crate::{
    cloud::Inner,
    names::lan,
    namespace,
    permit::TABLE,
    shell::{ip_in, veth},
    state::State,
    underlay::Block,
};

/// The edge's and the network's end of the line between them. Lines are apart, so all have the same.
const EDGE: &str = "169.254.2.1";
const NETWORK: &str = "169.254.2.2";

/// Addresses that are not public: NAT does not lead to the host's own networks.
const SPECIAL: [&str; 14] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
];

impl Inner {
    /// Makes a site's edge and joins the site's networks to it.
    pub(crate) async fn make_edge(&self, state: &State, site: &Site) -> Result<Block> {
        let edge = self.names.edge(site);
        namespace::ensure(&edge).await?;
        self.tables.reconcile(&edge, table(state, site)).await?;
        namespace::forward(&edge).await?;
        let outward = state.nats.iter().any(|nat| nat.site == *site);
        let block = self.underlay.join(&self.tables, site, &edge, outward).await?;
        for (name, space) in state.networks_of(site) {
            if namespace::exists(&self.names.network(name)) {
                self.join_edge(state, name, space).await?;
            }
        }
        Ok(block)
    }

    /// The line between a network and its site's edge.
    pub(crate) async fn join_edge(&self, state: &State, name: &NetworkName, space: Ipv4Net) -> Result {
        let (edge, network, port) = (self.names.edge(&name.site), self.names.network(name), lan(space));
        self.tables.reconcile(&edge, table(state, &name.site)).await?;
        veth((&network, "gw"), (&edge, &port)).await?;
        ip_in(
            &edge,
            &[
                format!("address replace {EDGE}/32 dev {port}"),
                format!("link set {port} up"),
                format!("route replace {space} via {NETWORK} dev {port} onlink"),
            ],
        )
        .await?;
        ip_in(
            &network,
            &[
                format!("address replace {NETWORK}/32 dev gw"),
                "link set gw up".to_owned(),
                format!("route replace default via {EDGE} dev gw onlink"),
            ],
        )
        .await
    }

    /// Takes the edge away if nothing needs it, and adapts it otherwise.
    pub(crate) async fn settle_edge(&self, state: &State, site: &Site) -> Result {
        if state.needs_edge(site) {
            return self.make_edge(state, site).await.map(drop);
        }
        let edge = self.names.edge(site);
        self.tables.forget(&edge);
        // The lines to the networks, and their routes, go with it.
        namespace::delete(&edge).await?;
        self.underlay.leave(&self.tables, site).await
    }
}

/// What an edge lets through.
fn table(state: &State, site: &Site) -> Table {
    let zero = Reg(0);
    let mut table = Table::new(Family::Inet, TABLE);
    let translated = state.nats.iter().filter(|nat| nat.site == *site);
    let spaces = translated.filter_map(|nat| state.networks.get(nat)).map(|space| (*space).into());
    table.set("nat", set_of(spaces));
    table.set("special", set_of(SPECIAL.iter().map(|block| block.parse().expect("a block"))));
    let from = |comment: &str, prefix: &[u8]| {
        Rule::new(comment).meta(MetaKey::InInterfaceName, zero).is(zero, prefix)
    };
    let to = |rule: Rule, prefix: &[u8]| rule.meta(MetaKey::OutInterfaceName, zero).is(zero, prefix);
    let forward = Chain::base(ChainKind::Filter, Hook::Forward, 0, Policy::Drop)
        .rule(Rule::new("IPv4 only").meta(MetaKey::Nfproto, zero).is_not(zero, &[2]).discard())
        .rule(to(from("network to tunnel", b"n"), b"t").accept())
        .rule(to(from("tunnel to network", b"t"), b"n").accept())
        .rule(to(from("IKE and ESP in", b"wan\0"), b"o").accept())
        .rule(to(from("IKE and ESP out", b"o"), b"wan\0").accept())
        .rule(to(from("answers from outside", b"wan\0"), b"n").ct_established_or_related().accept())
        .rule(
            to(from("to public addresses", b"n"), b"wan\0")
                .ip_saddr(false, zero)
                .in_set(zero, "nat")
                .ip_daddr(false, zero)
                .not_in_set(zero, "special")
                .accept(),
        );
    table.chain("forward", forward);
    let input = Chain::base(ChainKind::Filter, Hook::Input, 0, Policy::Drop)
        .rule(Rule::new("answers").ct_established_or_related().accept())
        .rule(from("itself", b"lo\0").accept())
        .rule(from("BGP and BFD", b"t").accept());
    table.chain("input", input);
    let postrouting = Chain::base(ChainKind::Nat, Hook::Postrouting, 100, Policy::Accept)
        .rule(to(Rule::new("NAT"), b"wan\0").ip_saddr(false, zero).in_set(zero, "nat").masquerade());
    table.chain("postrouting", postrouting);
    table
}

fn set_of(nets: impl Iterator<Item = ipnet::IpNet>) -> Set {
    let mut set = Set::new(SetSchema::set([FieldType::Ipv4]).interval());
    for (first, last) in Ranges::new(false, nets).iter() {
        if let (std::net::IpAddr::V4(first), std::net::IpAddr::V4(last)) = (first, last) {
            set.insert(first.octets(), Element::member().until(last.octets()));
        }
    }
    set
}
