//! The table that stays the same however many services there are: base chains, their rules, and empty sets.

use std::{fmt, net::IpAddr};

use node_nft::{
    Chain, ChainKind, CtKey, Direction, Element, Expr, Family, FieldType, Hook, Key, MetaKey, Policy, Ranges,
    Reg, Reject, Rule, Set, SetSchema, Table, Verdict,
};

use super::{Class, Config, Interfaces};
use crate::{Frontend, ServicePortInfo};

pub const TABLE: &str = "trestle-services";

pub const SERVICES: &str = "services";
pub const ENDPOINTS: &str = "endpoints";
pub const LOCAL_ENDPOINTS: &str = "local-endpoints";
pub const NO_ENDPOINTS: &str = "no-endpoints";
pub const CLUSTER_IPS: &str = "cluster-ips";
pub const HAIRPIN: &str = "hairpin";
pub const FIREWALL: &str = "firewall";
pub const ALLOWED_SOURCES: &str = "allowed-sources";
pub const AFFINITY: &str = "affinity";
pub const LOCAL_AFFINITY: &str = "local-affinity";
pub const AFFINITY_TIMEOUTS: &str = "affinity-timeouts";
pub const STICKY_ENDPOINTS: &str = "sticky-endpoints";
pub const LOCAL_STICKY_ENDPOINTS: &str = "local-sticky-endpoints";
pub const UNBOUND: &str = "unbound";
pub const PODS: &str = "pods";
pub const SERVICE_PREFIXES: &str = "service-prefixes";

pub const REJECT: &str = "reject";
const DISPATCH: &str = "dispatch";
const FIREWALL_CHECK: &str = "firewall-check";
const ENDPOINTS_CHECK: &str = "endpoints-check";
const CLUSTER_IPS_CHECK: &str = "cluster-ips-check";
const REMEMBER: &str = "remember";

/// Clients that are remembered at most; more of them are balanced anew each time.
const CLIENTS: u32 = 1 << 20;

/// Priorities of destination and source translation.
const DSTNAT: i32 = -100;
const SRCNAT: i32 = 100;

/// What differs between the families: lengths, and so the registers that values lie in.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub ipv6: bool,
}

/// A frontend in the form of keys.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub layout: Layout,
    pub protocol: u8,
    pub frontend: Frontend,
}

impl Place {
    pub fn key(self) -> Key {
        Key::new().address(self.frontend.address).proto(self.protocol).port(self.frontend.port)
    }

    /// The key of one of the endpoints.
    pub fn indexed(self, index: u32) -> Box<[u8]> {
        self.key().mark(index).into()
    }
}

/// What a client is bound to at a port of a service. It may have one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bond {
    /// One of all endpoints.
    Anywhere,
    /// One on this node, for what a local policy keeps there.
    Here,
}

impl Bond {
    pub const ALL: [Self; 2] = [Self::Anywhere, Self::Here];

    /// The map that remembers clients.
    pub fn map(self) -> &'static str {
        match self {
            Self::Anywhere => AFFINITY,
            Self::Here => LOCAL_AFFINITY,
        }
    }

    /// The set of endpoints that clients may be bound to.
    pub fn endpoints(self) -> &'static str {
        match self {
            Self::Anywhere => STICKY_ENDPOINTS,
            Self::Here => LOCAL_STICKY_ENDPOINTS,
        }
    }
}

/// The place under which clients of a service's port are remembered, whichever of its places they come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Anchor {
    pub address: IpAddr,
    pub protocol: u8,
    pub port: u16,
}

impl Anchor {
    /// The cluster address, if the port has it; else another of its places, always the same.
    pub fn of(info: &ServicePortInfo) -> Option<Self> {
        let first = info.frontends.iter().min_by_key(|one| (one.kind, one.address, one.port))?;
        Some(Self { address: first.address, protocol: info.protocol.number(), port: first.port })
    }

    pub fn key(self) -> Key {
        Key::new().address(self.address).proto(self.protocol).port(self.port)
    }
}

/// As part of the name of a chain, in which nftables reads no colon.
impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.address.to_string().replace(':', "_"), self.protocol, self.port)
    }
}

impl Layout {
    /// Registers that an address fills.
    fn wide(self) -> u8 {
        if self.ipv6 { 4 } else { 1 }
    }

    fn address(self) -> FieldType {
        if self.ipv6 { FieldType::Ipv6 } else { FieldType::Ipv4 }
    }

    /// Address, protocol and port, and the fields that follow.
    fn place_fields(self, more: &[FieldType]) -> Vec<FieldType> {
        [&[self.address(), FieldType::Proto, FieldType::Port], more].concat()
    }

    /// Bytes of a frontend in keys.
    pub fn place_len(self) -> usize {
        SetSchema::set(self.place_fields(&[])).key_len()
    }

    pub fn schema(self, set: &str) -> SetSchema {
        let address = self.address();
        let socket = [address, FieldType::Port];
        match set {
            SERVICES | NO_ENDPOINTS | AFFINITY_TIMEOUTS | UNBOUND => {
                SetSchema::verdict_map(self.place_fields(&[]))
            }
            ENDPOINTS | LOCAL_ENDPOINTS => SetSchema::map(self.place_fields(&[FieldType::Mark]), socket),
            HAIRPIN => SetSchema::set([address, address, FieldType::Proto, FieldType::Port]),
            FIREWALL => SetSchema::set(self.place_fields(&[])),
            STICKY_ENDPOINTS | LOCAL_STICKY_ENDPOINTS => SetSchema::set(self.place_fields(&socket)),
            ALLOWED_SOURCES => SetSchema::set(self.place_fields(&[address])).interval(),
            AFFINITY | LOCAL_AFFINITY => {
                SetSchema::map([address, address, FieldType::Proto, FieldType::Port], socket).dynamic(CLIENTS)
            }
            PODS | SERVICE_PREFIXES => SetSchema::set([address]).interval(),
            _ => SetSchema::set([address]),
        }
    }

    /// An endpoint as a value of maps.
    pub fn value(self, socket: (IpAddr, u16)) -> Key {
        Key::new().address(socket.0).port(socket.1)
    }

    /// The reverse of [`Self::value`].
    pub fn socket(self, value: &[u8]) -> Option<(IpAddr, u16)> {
        if self.ipv6 {
            let (address, rest) = value.split_first_chunk::<16>()?;
            Some((IpAddr::from(*address), u16::from_be_bytes(*rest.first_chunk()?)))
        } else {
            let (address, rest) = value.split_first_chunk::<4>()?;
            Some((IpAddr::from(*address), u16::from_be_bytes(*rest.first_chunk()?)))
        }
    }

    /// Loads address, protocol and port of the packet's destination into registers from `first` on.
    pub fn destination(self, rule: Rule, first: u8) -> Rule {
        let next = first + self.wide();
        rule.ip_daddr(self.ipv6, Reg(first)).l4proto(Reg(next)).dport(Reg(next + 1))
    }

    /// Translates to one of so many endpoints in a map.
    pub fn pick(self, map: &str, count: u32) -> Rule {
        let index = self.wide() + 2;
        let rule = self.destination(Rule::new(format!("one of {count}")), 0).random(count, Reg(index));
        self.translate(rule, map)
    }

    /// Translates to the endpoint that the client is bound to.
    pub fn remembered(self, bond: Bond, anchor: Anchor) -> Rule {
        let rule = Rule::new("the endpoint it had before").ip_saddr(self.ipv6, Reg(0));
        self.translate(self.anchor(rule, anchor), bond.map())
    }

    /// As without affinity.
    pub fn unbound(self) -> Rule {
        self.destination(Rule::new("not bound yet"), 0).vmap(Reg(0), UNBOUND)
    }

    fn translate(self, rule: Rule, map: &str) -> Rule {
        // Behind the longest key: two addresses, protocol and port.
        let result = 2 * self.wide() + 2;
        rule.map(Reg(0), map, Reg(result)).dnat(self.ipv6, Reg(result), Some(Reg(result + self.wide())))
    }

    /// Binds a client to its endpoint, or leaves it bound, if that is one it may be bound to.
    pub fn remember(self, seconds: u32, bond: Bond, anchor: Anchor) -> Rule {
        let rule = Rule::new(format!("keep the endpoint for {seconds} s"));
        let (rule, endpoint) = self.binding(rule.ip_saddr(self.ipv6, Reg(0)), anchor);
        rule.in_set(Reg(self.wide()), bond.endpoints())
            .refresh(bond.map(), Reg(0), Some(endpoint), u64::from(seconds) * 1_000)
            .verdict(Verdict::Return)
    }

    /// Unbinds a client that was sent to an endpoint which is gone. The packet ends here: a rule of nftables cannot look
    /// up what it has looked up, so this is seen only now. It is sent again, and balanced anew.
    pub fn forget(self, bond: Bond, anchor: Anchor) -> Rule {
        let rule = Rule::new("the endpoint it had before is gone").ip_saddr(self.ipv6, Reg(0));
        // Whoever is not bound was sent there by somebody else's rules.
        let rule = self.anchor(rule, anchor).map(Reg(0), bond.map(), Reg(2 * self.wide() + 2));
        let (rule, endpoint) = self.binding(rule, anchor);
        rule.remove(bond.map(), Reg(0), Some(endpoint)).discard()
    }

    /// Loads what the client is remembered under, behind its address, and the endpoint that it was sent to.
    fn binding(self, rule: Rule, anchor: Anchor) -> (Rule, Reg) {
        let wide = self.wide();
        let endpoint = 2 * wide + 2;
        let rule = self.anchor(rule, anchor);
        (rule.ip_daddr(self.ipv6, Reg(endpoint)).dport(Reg(endpoint + wide)), Reg(endpoint))
    }

    fn anchor(self, rule: Rule, anchor: Anchor) -> Rule {
        let wide = self.wide();
        let address = match anchor.address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let constant = |rule: Rule, value, register| rule.expr(Expr::Immediate { value, to: Reg(register) });
        let rule = constant(rule, address, wide);
        let rule = constant(rule, vec![anchor.protocol], 2 * wide);
        constant(rule, anchor.port.to_be_bytes().to_vec(), 2 * wide + 1)
    }

    fn original_destination(self, rule: Rule, first: u8) -> Rule {
        let direction = Some(Direction::Original);
        let address = if self.ipv6 { CtKey::DstIp6 } else { CtKey::DstIp };
        let next = first + self.wide();
        rule.expr(Expr::Ct { key: address, direction, to: Reg(first) }).l4proto(Reg(next)).expr(Expr::Ct {
            key: CtKey::ProtoDst,
            direction,
            to: Reg(next + 1),
        })
    }

    /// Under a local policy: Pods and the node itself may still go to any endpoint.
    pub fn short_cut(self, chain: Chain, config: &Config, pods: Class, node: Class) -> Chain {
        let from_pod = Rule::new("from a Pod").ip_saddr(self.ipv6, Reg(0)).in_set(Reg(0), PODS);
        let mut chain = chain.rule(from_pod.goto(pods.name()));
        for interfaces in &config.pod_interfaces {
            let by = Rule::new(format!("from a Pod, by {interfaces}")).meta(MetaKey::InInterfaceName, Reg(0));
            chain = chain.rule(by.is(Reg(0), &interfaces.bytes()).goto(pods.name()));
        }
        chain.rule(Rule::new("from the node").saddr_local().goto(node.name()))
    }

    /// Of those whom the rule is about, only who is no Pod; none if nobody can tell.
    pub fn not_from_pods(self, config: &Config, rule: Rule) -> Option<Rule> {
        let by_prefix = config.pod_prefixes.iter().any(|prefix| prefix.addr().is_ipv6() == self.ipv6);
        if !by_prefix && config.pod_interfaces.is_empty() {
            return None;
        }
        let rule = rule.ip_saddr(self.ipv6, Reg(0)).not_in_set(Reg(0), PODS);
        let not_by = |rule: Rule, interfaces: &Interfaces| {
            rule.meta(MetaKey::InInterfaceName, Reg(0)).is_not(Reg(0), &interfaces.bytes())
        };
        Some(config.pod_interfaces.iter().fold(rule, not_by))
    }

    /// To a guarded frontend, and from somebody who may not use it.
    pub fn not_allowed(self) -> Rule {
        let guarded = self.destination(Rule::new("not from an allowed source"), 0).in_set(Reg(0), FIREWALL);
        guarded.ip_saddr(self.ipv6, Reg(self.wide() + 2)).not_in_set(Reg(0), ALLOWED_SOURCES)
    }

    /// From an endpoint to the endpoint itself.
    pub fn to_itself(self, rule: Rule) -> Rule {
        self.destination(rule.ip_saddr(self.ipv6, Reg(0)), self.wide()).in_set(Reg(0), HAIRPIN)
    }

    /// The table without services.
    pub fn scaffold(self, config: &Config) -> Table {
        let family = if self.ipv6 { Family::Ip6 } else { Family::Ip };
        let mut table = Table::new(family, TABLE);
        for name in [
            SERVICES,
            ENDPOINTS,
            LOCAL_ENDPOINTS,
            NO_ENDPOINTS,
            CLUSTER_IPS,
            HAIRPIN,
            FIREWALL,
            ALLOWED_SOURCES,
            AFFINITY,
            LOCAL_AFFINITY,
            AFFINITY_TIMEOUTS,
            STICKY_ENDPOINTS,
            LOCAL_STICKY_ENDPOINTS,
            UNBOUND,
        ] {
            table.set(name, Set::new(self.schema(name)));
        }
        for (name, prefixes) in [(PODS, &config.pod_prefixes), (SERVICE_PREFIXES, &config.service_prefixes)] {
            let mut set = Set::new(self.schema(name));
            for (first, last) in Ranges::new(self.ipv6, prefixes.iter().copied()).iter() {
                set.insert(Key::new().address(first), Element::member().until(Key::new().address(last)));
            }
            table.set(name, set);
        }
        self.translation(&mut table, config);
        self.filters(&mut table);
        self.memory(&mut table);
        table
    }

    fn translation(self, table: &mut Table, config: &Config) {
        let nat = |hook, priority| Chain::base(ChainKind::Nat, hook, priority, Policy::Accept);
        let to_dispatch = || Rule::new("services").jump(DISPATCH);
        let mark = config.masquerade_mark;
        let mut dispatch = Chain::regular();
        let to_cluster_ip =
            |comment: &str| Rule::new(comment).ip_daddr(self.ipv6, Reg(0)).in_set(Reg(0), CLUSTER_IPS);
        if config.masquerade_all {
            dispatch = dispatch.rule(to_cluster_ip("hide all sources").set_mark(!mark, mark));
        } else if let Some(from_outside) =
            self.not_from_pods(config, to_cluster_ip("hide sources that are not Pods"))
        {
            dispatch = dispatch.rule(from_outside.set_mark(!mark, mark));
        }
        dispatch = dispatch.rule(self.destination(Rule::new("by frontend"), 0).vmap(Reg(0), SERVICES));
        let to_itself = self.to_itself(Rule::new("to itself through a service").ct_dnated()).masquerade();
        let hidden = Rule::new("sources to hide").mark_has(mark).set_mark(!0, mark).masquerade();
        table
            .chain(DISPATCH, dispatch)
            .chain("nat-prerouting", nat(Hook::Prerouting, DSTNAT).rule(to_dispatch()))
            .chain("nat-output", nat(Hook::Output, DSTNAT).rule(to_dispatch()))
            .chain("nat-postrouting", nat(Hook::Postrouting, SRCNAT).rule(hidden).rule(to_itself));
    }

    fn filters(self, table: &mut Table) {
        let filter = |hook, priority| Chain::base(ChainKind::Filter, hook, priority, Policy::Accept);
        let on_new = |chain: &str| Rule::new(chain).ct_new().jump(chain);
        let to_prefix =
            |comment: &str, set| Rule::new(comment).ip_daddr(self.ipv6, Reg(0)).in_set(Reg(0), set);
        let checks = |hook| filter(hook, 0).rule(on_new(ENDPOINTS_CHECK)).rule(on_new(CLUSTER_IPS_CHECK));
        table
            .chain(FIREWALL_CHECK, Chain::regular().rule(self.not_allowed().discard()))
            .chain("filter-prerouting", filter(Hook::Prerouting, DSTNAT - 10).rule(on_new(FIREWALL_CHECK)))
            .chain("filter-output-early", filter(Hook::Output, DSTNAT - 10).rule(on_new(FIREWALL_CHECK)))
            .chain(REJECT, Chain::regular().rule(Rule::new("nobody answers").reject(Reject::PortUnreachable)))
            .chain(
                ENDPOINTS_CHECK,
                Chain::regular()
                    .rule(self.destination(Rule::new("without endpoints"), 0).vmap(Reg(0), NO_ENDPOINTS)),
            )
            .chain(
                CLUSTER_IPS_CHECK,
                Chain::regular()
                    .rule(to_prefix("not a port of the service", CLUSTER_IPS).goto(REJECT))
                    .rule(to_prefix("no such service", SERVICE_PREFIXES).discard()),
            )
            .chain("filter-input", filter(Hook::Input, 0).rule(on_new(ENDPOINTS_CHECK)))
            .chain("filter-forward", checks(Hook::Forward))
            .chain("filter-output", checks(Hook::Output));
    }

    fn memory(self, table: &mut Table) {
        let filter = |hook| Chain::base(ChainKind::Filter, hook, DSTNAT + 10, Policy::Accept);
        let translated = || Rule::new(REMEMBER).ct_new().ct_dnated().jump(REMEMBER);
        let remember = self.original_destination(Rule::new("by affinity"), 0).vmap(Reg(0), AFFINITY_TIMEOUTS);
        table
            .chain(REMEMBER, Chain::regular().rule(remember))
            .chain("remember-prerouting", filter(Hook::Prerouting).rule(translated()))
            .chain("remember-output", filter(Hook::Output).rule(translated()));
    }
}
