//! The node itself as something that is guarded. Pure.
//!
//! In: what is to stay open, where the controllers are, the links and addresses of the node. Out: what passes whatever
//! policies say ([`permits`]), and the addresses that others may call the node's ([`interfaces`]).
//! Not here: what policies say (`node-policy`), which of them apply.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use ipnet::IpNet;
use model::{policy::output::Direction, protocol};
use node_policy::Permit;
use serde::{Deserialize, Serialize};

/// What stays open for who comes to the node, if nothing else is said.
pub const FAIL_SAFE: &str = "tcp:22";
/// And for the node itself.
pub const FAIL_SAFE_OUT: [&str; 2] = ["udp:53", "tcp:53"];
/// A node with more addresses tells of so many.
const MAX_ADDRESSES: usize = 256;
/// Links of containers and virtual machines, whose addresses are the same on many nodes and lead nowhere from outside: Docker, Podman,
/// CNI plugins, libvirt, LXD, nerdctl, kube-proxy, and ours.
pub const INNER: [&str; 9] =
    ["docker", "br-", "podman", "cni", "virbr", "lxdbr", "nerdctl", "kube-", "trestle-"];
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];
const ANY_PORT: (u16, u16) = (0, u16::MAX);

/// What is kept of the node itself, so that it is known when nothing else is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostRecord {
    /// Policies restricted what comes in.
    pub input: bool,
    /// Policies restricted what goes out.
    pub output: bool,
    /// Where controllers were last found.
    pub controllers: BTreeSet<SocketAddr>,
}

impl HostRecord {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A port, or a range of ports, that stays open: `tcp:22`, `udp:5000-5010`, `tcp:22@192.0.2.0/24`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailSafe {
    protocol: u8,
    ports: (u16, u16),
    peers: Option<IpNet>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no port that can stay open: write tcp:22, udp:5000-5010 or tcp:22@192.0.2.0/24")]
pub struct ParseFailSafeError(String);

impl FromStr for FailSafe {
    type Err = ParseFailSafeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (service, peers) = match text.split_once('@') {
                Some((service, peers)) => (service, Some(network(peers)?)),
                None => (text, None),
            };
            let (name, ports) = service.split_once(':')?;
            let protocol = match name.to_ascii_lowercase().as_str() {
                "tcp" => protocol::TCP,
                "udp" => protocol::UDP,
                "sctp" => protocol::SCTP,
                _ => return None,
            };
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            let ports: (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
            (ports.0 > 0 && ports.0 <= ports.1).then_some(Self { protocol, ports, peers })
        };
        read().ok_or_else(|| ParseFailSafeError(text.to_owned()))
    }
}

fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from)).map(|net: IpNet| net.trunc())
}

impl fmt::Display for FailSafe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.protocol {
            protocol::TCP => "tcp",
            protocol::UDP => "udp",
            _ => "sctp",
        };
        write!(f, "{name}:{}", self.ports.0)?;
        if self.ports.1 != self.ports.0 {
            write!(f, "-{}", self.ports.1)?;
        }
        self.peers.map_or(Ok(()), |peers| write!(f, "@{peers}"))
    }
}

/// What stays open at the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailSafes {
    pub input: Vec<FailSafe>,
    pub output: Vec<FailSafe>,
}

impl FailSafes {
    /// For people: `in tcp:22`, `out udp:53`.
    pub fn told(&self) -> Vec<String> {
        let list = |way: &'static str, list: &[FailSafe]| -> Vec<String> {
            list.iter().map(|one| format!("{way} {one}")).collect()
        };
        [list("in", &self.input), list("out", &self.output)].concat()
    }
}

impl Default for FailSafes {
    fn default() -> Self {
        let read = |text: &str| text.parse().expect("the defaults are well formed");
        Self { input: vec![read(FAIL_SAFE)], output: FAIL_SAFE_OUT.map(read).into() }
    }
}

/// What passes whatever policies say, but those of the first tiers: these ports, the controllers, and without which a host
/// loses its addresses, or connections their way.
pub fn permits(safe: &FailSafes, controllers: &BTreeSet<SocketAddr>) -> Vec<Permit> {
    let mut permits = vital();
    for (direction, list) in [(Direction::In, &safe.input), (Direction::Out, &safe.output)] {
        permits.extend(list.iter().map(|one| Permit {
            prefixes: one.peers.map_or_else(everywhere, |peers| vec![peers]),
            ..permit(direction, one.protocol, None, Some(one.ports))
        }));
    }
    for controller in controllers {
        let (port, prefixes) = ((controller.port(), controller.port()), vec![controller.ip().into()]);
        // The second is a connection that the kernel's table has forgotten, seen first from its other end.
        let to = permit(Direction::Out, protocol::TCP, None, Some(port));
        let from = permit(Direction::In, protocol::TCP, Some(port), None);
        permits.extend([to, from].map(|permit| Permit { prefixes: prefixes.clone(), ..permit }));
    }
    permits
}

fn permit(
    direction: Direction,
    protocol: u8,
    source_ports: Option<(u16, u16)>,
    ports: Option<(u16, u16)>,
) -> Permit {
    Permit { direction, prefixes: everywhere(), protocol: Some(protocol), source_ports, ports }
}

fn everywhere() -> Vec<IpNet> {
    EVERYWHERE.map(|text| text.parse().expect("a network")).into()
}

/// DHCP of both families, and errors of ICMP: neighbour discovery and what is established pass before any rule is asked.
fn vital() -> Vec<Permit> {
    let port = |number: u16| Some((number, number));
    let mut permits = vec![
        permit(Direction::Out, protocol::UDP, port(68), port(67)),
        permit(Direction::In, protocol::UDP, port(67), port(68)),
        permit(Direction::Out, protocol::UDP, port(546), port(547)),
        permit(Direction::In, protocol::UDP, Some(ANY_PORT), port(546)),
    ];
    // Unreachable (with the size that fits), too long on its way, a header that makes no sense.
    let errors = [(protocol::ICMP, [3, 11, 12].as_slice()), (protocol::ICMPV6, [1, 2, 3, 4].as_slice())];
    for (number, kinds) in errors {
        for kind in kinds {
            let codes = (kind << 8, kind << 8 | 0xff);
            permits.extend(
                [Direction::In, Direction::Out].map(|direction| permit(direction, number, Some(codes), None)),
            );
        }
    }
    permits
}

/// A link of the node with the addresses by which others may know the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    pub name: String,
    pub addresses: BTreeSet<IpAddr>,
}

/// By name. Left out are loopback, links of Pods and of containers (`prefixes`), and addresses that mean nothing beyond their
/// link.
pub fn interfaces(
    names: &BTreeMap<u32, String>,
    addresses: &BTreeSet<(u32, IpAddr)>,
    prefixes: &[String],
) -> Vec<Interface> {
    let is_inner =
        |name: &str| name == "lo" || prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()));
    let mut of: BTreeMap<&str, BTreeSet<IpAddr>> = BTreeMap::new();
    let known = addresses.iter().filter(|(_, address)| is_of_the_world(*address));
    for (index, address) in known.take(MAX_ADDRESSES) {
        if let Some(name) = names.get(index).filter(|name| !is_inner(name)) {
            of.entry(name).or_default().insert(*address);
        }
    }
    of.into_iter().map(|(name, addresses)| Interface { name: name.to_owned(), addresses }).collect()
}

fn is_of_the_world(address: IpAddr) -> bool {
    let local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_stay_open_are_written_as_they_are_read() {
        for text in ["tcp:22", "udp:5000-5010", "tcp:22@192.0.2.0/24", "sctp:1@fd00::/8"] {
            assert_eq!(text.parse::<FailSafe>().unwrap().to_string(), text);
        }
        assert_eq!("TCP:22@192.0.2.7".parse::<FailSafe>().unwrap().to_string(), "tcp:22@192.0.2.7/32");
        for bad in
            ["", "22", "tcp", "tcp:", "tcp:0", "tcp:9-8", "icmp:8", "tcp:22@", "tcp:65536", "tcp:22@x/8"]
        {
            assert!(bad.parse::<FailSafe>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn addresses_of_pods_of_containers_and_of_links_are_not_the_nodes() {
        let names = [(1, "lo"), (2, "eth0"), (3, "docker0"), (4, "veth7"), (5, "wg0")];
        let names = names.map(|(index, name)| (index, name.to_owned())).into();
        let addresses = [
            (1, "127.0.0.1"),
            (1, "192.0.2.99"),
            (2, "192.0.2.1"),
            (2, "fe80::1"),
            (2, "2001:db8::1"),
            (2, "2001:db8::7777"),
            (3, "172.17.0.1"),
            (4, "10.0.0.1"),
            (5, "10.9.0.1"),
            (9, "10.8.0.1"),
        ];
        let addresses = addresses.map(|(index, text)| (index, text.parse().unwrap())).into();
        let told = interfaces(&names, &addresses, &["veth".to_owned(), "docker".to_owned()]);
        let told: Vec<_> = told.iter().map(|one| (one.name.as_str(), one.addresses.len())).collect();
        assert_eq!(told, [("eth0", 3), ("wg0", 1)]);
    }

    #[test]
    fn controllers_are_reached_and_nobody_else() {
        let none = FailSafes { input: Vec::new(), output: Vec::new() };
        let vital = permits(&none, &BTreeSet::new());
        let all = permits(&none, &["192.0.2.1:8081".parse().unwrap()].into());
        let new: Vec<_> = all.iter().filter(|permit| !vital.contains(permit)).collect();
        assert_eq!(new.len(), 2);
        assert!(new.iter().all(|permit| permit.prefixes == ["192.0.2.1/32".parse::<IpNet>().unwrap()]));
    }
}
