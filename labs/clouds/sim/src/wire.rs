//! The one wire all simulated clouds share. Pure: what would get through, given what the clouds were told to make.
//!
//! ```text
//!   host ── firewall out ── network ─┬─ local ─────────────── firewall in ── host
//!                                    ├─ peering ─ network ─┘
//!                                    └─ gateway ═ tunnel ═ gateway ─ network ─┘
//! ```
//!
//! A tunnel is up only if both ends name each other's address and agree on key and IKE version; its BGP session only if
//! both ends name each other's inside address and AS number. Routes are learnt from sessions that are up. A packet
//! needs a way there and a way back.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::Ipv4Addr,
};

use ipnet::Ipv4Net;
use model::Packet;

/// One line of a firewall. The lowest priority that matches decides, and deny wins among equals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub priority: u32,
    pub allow: bool,
    /// None: any.
    pub protocol: Option<u8>,
    /// Empty: any.
    pub ports: Vec<(u16, u16)>,
    /// Empty: any.
    pub src_ports: Vec<(u16, u16)>,
    /// The other side.
    pub peers: Vec<Ipv4Net>,
}

/// Nothing passes that no line allows.
#[derive(Clone, Debug, Default)]
pub struct Firewall(pub Vec<Line>);

impl Firewall {
    pub fn passes(&self, peer: Ipv4Addr, packet: &Packet) -> bool {
        let within = |ranges: &[(u16, u16)], port: u16| {
            ranges.is_empty() || ranges.iter().any(|(first, last)| (*first..=*last).contains(&port))
        };
        let matching = self.0.iter().filter(|line| {
            line.protocol.is_none_or(|protocol| protocol == packet.protocol)
                && within(&line.ports, packet.dst_port)
                && within(&line.src_ports, packet.src_port)
                && line.peers.iter().any(|net| net.contains(&peer))
        });
        matching.min_by_key(|line| (line.priority, line.allow)).is_some_and(|line| line.allow)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Host {
    pub address: Option<Ipv4Addr>,
    pub network: String,
    /// What its part of the network sends where, if that part has routes of its own.
    pub routes: Option<Vec<(Ipv4Net, Hop)>>,
    /// Gateways of its network that do not serve its zone.
    pub cut_off: Vec<String>,
    pub inbound: Firewall,
    pub outbound: Firewall,
    /// What comes before `outbound`, if anything does: a packet must pass both.
    pub guard: Option<Firewall>,
}

impl Host {
    fn lets_out(&self, to: Ipv4Addr, packet: &Packet) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.passes(to, packet)) && self.outbound.passes(to, packet)
    }
}

/// Where a network sends what is not its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hop {
    /// Another network, which delivers to its own hosts only.
    Peer(String),
    Gateway(String),
    Internet,
}

#[derive(Clone, Debug, Default)]
pub struct Network {
    pub spaces: Vec<Ipv4Net>,
    pub routes: Vec<(Ipv4Net, Hop)>,
    /// Gateways whose learnt routes it takes.
    pub learns_from: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayHop {
    Network(String),
    Gateway(String),
}

#[derive(Clone, Debug, Default)]
pub struct Gateway {
    pub routes: Vec<(Ipv4Net, GatewayHop)>,
    pub tunnels: Vec<Tunnel>,
}

/// One end of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    pub local: Ipv4Addr,
    pub remote: Ipv4Addr,
    pub key: String,
    pub ike: u8,
    pub bgp: Option<Bgp>,
    /// Static routes through it.
    pub routes: Vec<Ipv4Net>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bgp {
    pub local: Ipv4Addr,
    pub peer: Ipv4Addr,
    pub local_asn: u32,
    pub peer_asn: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Wire {
    pub hosts: Vec<Host>,
    pub networks: BTreeMap<String, Network>,
    pub gateways: BTreeMap<String, Gateway>,
}

/// What becomes of a packet that opens a connection, and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trip {
    /// The sender's firewall lets it out.
    pub leaves: bool,
    /// The receiver's firewall lets it in.
    pub enters: bool,
    pub there: bool,
    pub back: bool,
}

impl Trip {
    pub fn is_made(self) -> bool {
        self.leaves && self.enters && self.there && self.back
    }
}

impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let barriers = [
            (self.leaves, "not let out where it starts"),
            (self.there, "no way there"),
            (self.enters, "not let in where it ends"),
            (self.back, "no way back"),
        ];
        let met: Vec<_> = barriers.iter().filter(|(passes, _)| !passes).map(|(_, text)| *text).collect();
        match met.is_empty() {
            true => f.write_str("reached"),
            false => write!(f, "blocked: {}", met.join(", ")),
        }
    }
}

/// Longer ways than this are loops.
const MAX_HOPS: u32 = 8;

impl Wire {
    /// The other end of a tunnel that is up.
    pub fn other_end(&self, tunnel: &Tunnel) -> Option<(&str, &Tunnel)> {
        let ends = self
            .gateways
            .iter()
            .flat_map(|(name, gateway)| gateway.tunnels.iter().map(move |end| (name, end)));
        ends.filter(|(_, end)| {
            end.local == tunnel.remote
                && end.remote == tunnel.local
                && end.key == tunnel.key
                && end.ike == tunnel.ike
        })
        .map(|(name, end)| (name.as_str(), end))
        .next()
    }

    pub fn is_up(&self, tunnel: &Tunnel) -> bool {
        self.other_end(tunnel).is_some()
    }

    /// The gateway at the other end of a BGP session that is up.
    pub fn bgp_peer(&self, tunnel: &Tunnel) -> Option<&str> {
        let (name, end) = self.other_end(tunnel)?;
        let (ours, theirs) = (tunnel.bgp?, end.bgp?);
        let facing = ours.local == theirs.peer
            && ours.peer == theirs.local
            && ours.local_asn == theirs.peer_asn
            && ours.peer_asn == theirs.local_asn
            && ours.local_asn != ours.peer_asn;
        facing.then_some(name)
    }

    /// What a gateway learnt, and from which gateway.
    pub fn learnt(&self, gateway: &Gateway) -> Vec<(Ipv4Net, String)> {
        let mut learnt = BTreeSet::new();
        for tunnel in &gateway.tunnels {
            if let Some(peer) = self.bgp_peer(tunnel) {
                let advertised = self.gateways[peer].routes.iter().filter(|(net, _)| net.prefix_len() > 0);
                learnt.extend(advertised.map(|(net, _)| (*net, peer.to_owned())));
            }
            if let Some((peer, _)) = self.other_end(tunnel) {
                learnt.extend(tunnel.routes.iter().map(|net| (*net, peer.to_owned())));
            }
        }
        learnt.into_iter().collect()
    }

    fn host(&self, address: Ipv4Addr) -> Option<&Host> {
        self.hosts.iter().find(|host| host.address == Some(address))
    }

    /// Whether a packet that opens a connection gets from one host to another, and its answer back.
    pub fn reaches(&self, from: Ipv4Addr, to: Ipv4Addr, packet: &Packet) -> bool {
        self.trip(from, to, packet).is_some_and(|trip| trip.is_made())
    }

    /// What becomes of a packet and its answer; none if there is no such host.
    pub fn trip(&self, from: Ipv4Addr, to: Ipv4Addr, packet: &Packet) -> Option<Trip> {
        let (a, b) = (self.host(from)?, self.host(to)?);
        Some(Trip {
            leaves: a.lets_out(to, packet),
            enters: b.inbound.passes(from, packet),
            there: self.delivers(a, to, &b.network),
            back: self.delivers(b, from, &a.network),
        })
    }

    /// Why a packet does or does not get through, for people.
    pub fn explain(&self, from: Ipv4Addr, to: Ipv4Addr, packet: &Packet) -> String {
        let (Some(a), Some(b)) = (self.host(from), self.host(to)) else { return "no such host".to_owned() };
        let up: Vec<String> = self
            .gateways
            .iter()
            .map(|(name, gateway)| {
                let sessions = gateway.tunnels.iter().map(|end| {
                    format!(
                        "{} to {}: up {}, bgp {:?}",
                        end.local,
                        end.remote,
                        self.is_up(end),
                        self.bgp_peer(end)
                    )
                });
                format!(
                    "{name} {:?} tunnels {:?} learnt {:?}",
                    gateway.routes,
                    sessions.collect::<Vec<_>>(),
                    self.learnt(gateway)
                )
            })
            .collect();
        format!(
            "{:?}\nfrom {:?}\nto {:?}\ngateways {up:#?}",
            self.trip(from, to, packet),
            self.networks.get(&a.network),
            self.networks.get(&b.network),
        )
    }

    /// Whether a host gets out to a public address.
    pub fn reaches_public(&self, from: Ipv4Addr, to: Ipv4Addr, packet: &Packet) -> bool {
        let Some(host) = self.host(from) else { return false };
        let route = self.networks.get(&host.network).and_then(|network| self.route(host, network, to));
        host.lets_out(to, packet) && matches!(route, Some(Way::Hop(Hop::Internet)))
    }

    /// Whether there is a way from a host to an address in a network, the firewalls aside.
    fn delivers(&self, from: &Host, to: Ipv4Addr, home: &str) -> bool {
        let Some(network) = self.networks.get(&from.network) else { return false };
        match self.route(from, network, to) {
            Some(Way::Local) => from.network == home,
            Some(Way::Hop(Hop::Peer(peer))) => {
                let has = self
                    .networks
                    .get(&peer)
                    .is_some_and(|peer| peer.spaces.iter().any(|net| net.contains(&to)));
                has && peer == home
            }
            // The way back begins at the other host, so its zone counts too.
            Some(Way::Hop(Hop::Gateway(gateway))) if from.cut_off.contains(&gateway) => false,
            Some(Way::Hop(Hop::Gateway(gateway))) => self.through(&gateway, to, home, 0),
            Some(Way::Hop(Hop::Internet)) | None => false,
        }
    }

    fn through(&self, gateway: &str, to: Ipv4Addr, home: &str, hops: u32) -> bool {
        let Some(here) = self.gateways.get(gateway).filter(|_| hops < MAX_HOPS) else { return false };
        let own =
            here.routes.iter().filter(|(net, _)| net.contains(&to)).max_by_key(|(net, _)| net.prefix_len());
        let learnt = self.learnt(here);
        let far = learnt.iter().filter(|(net, _)| net.contains(&to)).max_by_key(|(net, _)| net.prefix_len());
        match (own, far) {
            (Some((near, _)), Some((far, peer))) if far.prefix_len() > near.prefix_len() => {
                self.through(peer, to, home, hops + 1)
            }
            (Some((_, GatewayHop::Network(network))), _) => {
                let has = self
                    .networks
                    .get(network)
                    .is_some_and(|net| net.spaces.iter().any(|net| net.contains(&to)));
                has && network == home
            }
            (Some((_, GatewayHop::Gateway(peer))), _) => self.through(peer, to, home, hops + 1),
            (None, Some((_, peer))) => self.through(peer, to, home, hops + 1),
            (None, None) => false,
        }
    }

    fn route(&self, host: &Host, network: &Network, to: Ipv4Addr) -> Option<Way> {
        if network.spaces.iter().any(|net| net.contains(&to)) {
            return Some(Way::Local);
        }
        let fixed = host.routes.as_ref().unwrap_or(&network.routes).iter().cloned();
        let learnt = network.learns_from.iter().flat_map(|name| {
            let learnt = self.gateways.get(name).map(|gateway| self.learnt(gateway)).unwrap_or_default();
            learnt.into_iter().map(|(net, _)| (net, Hop::Gateway(name.clone())))
        });
        let matching = fixed.chain(learnt).filter(|(net, _)| net.contains(&to));
        matching.max_by_key(|(net, _)| net.prefix_len()).map(|(_, hop)| Way::Hop(hop))
    }
}

enum Way {
    Local,
    Hop(Hop),
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Packet = Packet { protocol: 6, src_port: 4000, dst_port: 80 };

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    fn tunnel(side: u8) -> Tunnel {
        let other = 3 - side;
        Tunnel {
            local: [52, 0, 0, side].into(),
            remote: [52, 0, 0, other].into(),
            key: "k".into(),
            ike: 2,
            bgp: Some(Bgp {
                local: [169, 254, 0, side].into(),
                peer: [169, 254, 0, other].into(),
                local_asn: side.into(),
                peer_asn: other.into(),
            }),
            routes: Vec::new(),
        }
    }

    fn wire() -> Wire {
        let mut wire = Wire::default();
        for side in 1..=2u8 {
            let (name, space) = (format!("n{side}"), net(&format!("10.{side}.0.0/16")));
            let gateway = format!("g{side}");
            let network = Network { spaces: vec![space], routes: vec![], learns_from: vec![gateway.clone()] };
            wire.networks.insert(name.clone(), network);
            let routes = vec![(space, GatewayHop::Network(name.clone()))];
            wire.gateways.insert(gateway, Gateway { routes, tunnels: vec![tunnel(side)] });
            let any = Line {
                priority: 1,
                allow: true,
                protocol: None,
                ports: vec![],
                src_ports: vec![],
                peers: vec![net("0.0.0.0/0")],
            };
            wire.hosts.push(Host {
                address: Some([10, side, 0, 4].into()),
                network: name,
                routes: None,
                cut_off: Vec::new(),
                guard: None,
                inbound: Firewall(vec![any.clone()]),
                outbound: Firewall(vec![any]),
            });
        }
        wire
    }

    fn reaches(wire: &Wire) -> bool {
        wire.reaches([10, 1, 0, 4].into(), [10, 2, 0, 4].into(), &PACKET)
    }

    #[test]
    fn a_tunnel_is_up_only_if_both_ends_agree_on_everything() {
        assert!(reaches(&wire()));
        let breaks: [fn(&mut Tunnel); 7] = [
            |end| end.key.push('x'),
            |end| end.ike = 1,
            |end| end.remote = [52, 0, 0, 9].into(),
            |end| end.bgp.as_mut().unwrap().peer_asn = 9,
            |end| end.bgp.as_mut().unwrap().local = [169, 254, 0, 9].into(),
            |end| end.bgp.as_mut().unwrap().peer = [169, 254, 0, 9].into(),
            |end| end.bgp = None,
        ];
        for (number, change) in breaks.into_iter().enumerate() {
            let mut wire = wire();
            change(&mut wire.gateways.get_mut("g1").unwrap().tunnels[0]);
            assert!(!reaches(&wire), "change {number}");
        }
    }

    #[test]
    fn peering_is_no_transit_and_firewalls_close() {
        let mut wire = wire();
        wire.networks.insert("n3".into(), Network { spaces: vec![net("10.3.0.0/16")], ..Network::default() });
        for (a, b, space) in [("n3", "n1", "10.0.0.0/8"), ("n1", "n3", "10.3.0.0/16")] {
            wire.networks.get_mut(a).unwrap().routes.push((net(space), Hop::Peer(b.into())));
        }
        let host =
            Host { address: Some([10, 3, 0, 4].into()), network: "n3".into(), ..wire.hosts[0].clone() };
        wire.hosts.push(host);
        let ask = |wire: &Wire, to: [u8; 4]| wire.reaches([10, 3, 0, 4].into(), to.into(), &PACKET);
        assert!(ask(&wire, [10, 1, 0, 4]));
        assert!(!ask(&wire, [10, 2, 0, 4]), "through a peering into another's tunnel");
        let closed = Line { priority: 0, allow: false, ..wire.hosts[0].inbound.0[0].clone() };
        wire.hosts[0].inbound.0.push(closed);
        assert!(!ask(&wire, [10, 1, 0, 4]));
    }
}
