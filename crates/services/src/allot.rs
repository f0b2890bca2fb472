//! Addresses and node ports for Services that come without.
//!
//! In: what is taken and by whom, and Services as they are applied, with what they were before. Out: for each what it
//! gets, or which of them asks for what another has. Holds: nothing; the same input gives the same answer.
//! Not here: where what is taken is kept (the controller's store).
//!
//! Three rules, in this order: what a Service had and does not ask to change it keeps; what it asks for by name it gets,
//! or is refused if another has it, unless an API server gave it; the rest is found near a place that its name leads to, so that a Service that is
//! made anew mostly gets what it had. As with Kubernetes, the lower part of a range is used last: people who choose by
//! hand choose there.

mod range;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use model::{
    policy::service::{ServicePort, ServiceSpec},
    service::{ServiceName, parse_address},
};

pub use range::{NodePorts, ParseNodePortsError, Ranges, RangesError};

/// What only one Service may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    ClusterIp(IpAddr),
    /// Of whatever protocol, or a health check's.
    NodePort(u16),
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterIp(address) => write!(f, "cluster address {address}"),
            Self::NodePort(port) => write!(f, "node port {port}"),
        }
    }
}

pub type Taken = BTreeMap<Claim, ServiceName>;

/// A Service as it is applied.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    pub name: ServiceName,
    pub wanted: &'a ServiceSpec,
    pub before: Option<&'a ServiceSpec>,
    /// An API server gave it what it asks for: that is not questioned, even if another has it.
    pub as_said: bool,
}

/// What a Service has in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allotted {
    /// All of them, in their order.
    pub cluster_ips: Vec<IpAddr>,
    /// By the place of the port; 0 for none.
    pub node_ports: Vec<u16>,
    pub health_check_node_port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllotError {
    #[error(
        "Service {service}: {claim} is taken by Service {owner}; choose another, or leave it out to get a free one"
    )]
    Taken { service: ServiceName, claim: Claim, owner: ServiceName },
    #[error("Service {service}: no {what} is left of {range}; widen it in the controller's configuration")]
    Exhausted { service: ServiceName, what: &'static str, range: String },
    #[error(
        "Service {service} needs an {family} address, and `services.cluster_prefixes` has no {family} prefix"
    )]
    NoFamily { service: ServiceName, family: &'static str },
}

impl Allotted {
    pub fn claims(&self) -> BTreeSet<Claim> {
        let ports = self.node_ports.iter().copied().chain([self.health_check_node_port]);
        let ports = ports.filter(|port| *port != 0).map(Claim::NodePort);
        self.cluster_ips.iter().copied().map(Claim::ClusterIp).chain(ports).collect()
    }
}

/// What a Service asks for by name.
pub fn asked(spec: &ServiceSpec) -> Allotted {
    if spec.kind == "ExternalName" {
        return Allotted { node_ports: vec![0; spec.ports.len()], ..Allotted::default() };
    }
    let number = |port: i32| u16::try_from(port).unwrap_or(0);
    let has_ports = has_node_ports(spec);
    Allotted {
        cluster_ips: spec.cluster_addresses().filter_map(parse_address).collect(),
        node_ports: spec
            .ports
            .iter()
            .map(|port| if has_ports { number(port.node_port) } else { 0 })
            .collect(),
        health_check_node_port: if is_checked(spec) { number(spec.health_check_node_port) } else { 0 },
    }
}

/// All of them or none. Services that are not among the wishes keep what they have.
pub fn allot(ranges: &Ranges, taken: &Taken, wishes: &[Wish<'_>]) -> Result<Vec<Allotted>, AllotError> {
    let named: BTreeSet<_> = wishes.iter().map(|wish| &wish.name).collect();
    let others = taken.iter().filter(|(_, owner)| !named.contains(owner));
    let mut held: Taken = others.map(|(claim, owner)| (*claim, owner.clone())).collect();
    let mut all: Vec<Allotted> = wishes.iter().map(kept).collect();
    for (wish, mine) in wishes.iter().zip(&all) {
        // What it has already is not questioned, even if an earlier version let two have it.
        let had = wish.before.map(asked).map(|before| before.claims()).unwrap_or_default();
        for claim in mine.claims() {
            match held.get(&claim) {
                Some(owner) if *owner != wish.name && !had.contains(&claim) && !wish.as_said => {
                    let (service, owner) = (wish.name.clone(), owner.clone());
                    return Err(AllotError::Taken { service, claim, owner });
                }
                Some(_) => {}
                None => drop(held.insert(claim, wish.name.clone())),
            }
        }
    }
    for (wish, mine) in wishes.iter().zip(&mut all) {
        Search { ranges, held: &mut held, service: &wish.name }.complete(wish.wanted, mine)?;
    }
    Ok(all)
}

/// What the Service asks for, and what it had and leaves open now.
fn kept(wish: &Wish<'_>) -> Allotted {
    let mut mine = asked(wish.wanted);
    let Some(before) = wish.before else { return mine };
    let had = asked(before);
    if needs_address(wish.wanted) {
        let first = mine.cluster_ips.is_empty();
        for address in had.cluster_ips {
            let same_family = mine.cluster_ips.iter().any(|one| one.is_ipv6() == address.is_ipv6());
            let fits = first && mine.cluster_ips.is_empty() || is_dual(wish.wanted);
            if fits && !same_family && fits_first_family(wish.wanted, &mine, address) {
                mine.cluster_ips.push(address);
            }
        }
    }
    let key = |port: &ServicePort| (port.port, port.protocol.clone());
    for (place, port) in wish.wanted.ports.iter().enumerate() {
        if mine.node_ports[place] == 0 && gets_node_ports(wish.wanted) {
            let same = before.ports.iter().position(|one| key(one) == key(port));
            mine.node_ports[place] = same.map_or(0, |place| had.node_ports[place]);
        }
    }
    if mine.health_check_node_port == 0 && is_checked(wish.wanted) {
        mine.health_check_node_port = had.health_check_node_port;
    }
    mine
}

/// The first address decides the family that comes first.
fn fits_first_family(spec: &ServiceSpec, mine: &Allotted, address: IpAddr) -> bool {
    let first = spec.ip_families.first().filter(|_| mine.cluster_ips.is_empty());
    first.is_none_or(|family| (family == "IPv6") == address.is_ipv6())
}

struct Search<'a> {
    ranges: &'a Ranges,
    held: &'a mut Taken,
    service: &'a ServiceName,
}

impl Search<'_> {
    fn complete(&mut self, spec: &ServiceSpec, mine: &mut Allotted) -> Result<(), AllotError> {
        for ipv6 in self.missing_families(spec, mine)? {
            mine.cluster_ips.push(self.address(ipv6)?);
        }
        for place in 0..spec.ports.len() {
            if mine.node_ports[place] == 0 && gets_node_ports(spec) {
                mine.node_ports[place] = match shared_port(spec, mine, place) {
                    Some(port) => port,
                    None => {
                        self.port(&format!("{}/{}", spec.ports[place].port, spec.ports[place].protocol))?
                    }
                };
            }
        }
        if mine.health_check_node_port == 0 && is_checked(spec) {
            mine.health_check_node_port = self.port("health")?;
        }
        Ok(())
    }

    fn missing_families(&self, spec: &ServiceSpec, mine: &Allotted) -> Result<Vec<bool>, AllotError> {
        // Without any range nothing is allotted.
        let Some(default) = self.ranges.first_family() else { return Ok(Vec::new()) };
        if !needs_address(spec) {
            return Ok(Vec::new());
        }
        let first = mine.cluster_ips.first().map(IpAddr::is_ipv6);
        let first = first.unwrap_or_else(|| spec.ip_families.first().map_or(default, |one| one == "IPv6"));
        let both = is_dual(spec) || spec.ip_families.len() > 1;
        let wanted = [Some(first), both.then_some(!first)].into_iter().flatten();
        let missing = wanted.filter(|ipv6| !mine.cluster_ips.iter().any(|one| one.is_ipv6() == *ipv6));
        let mut families = Vec::new();
        for ipv6 in missing {
            if self.ranges.has_family(ipv6) {
                families.push(ipv6);
            } else if spec.ip_family_policy != "PreferDualStack" || ipv6 == first {
                let family = if ipv6 { "IPv6" } else { "IPv4" };
                return Err(AllotError::NoFamily { service: self.service.clone(), family });
            }
        }
        Ok(families)
    }

    fn address(&mut self, ipv6: bool) -> Result<IpAddr, AllotError> {
        let seed = seed(self.service, if ipv6 { "IPv6" } else { "IPv4" });
        let free = |address: IpAddr| !self.held.contains_key(&Claim::ClusterIp(address));
        let found = self.ranges.find_address(ipv6, seed, free).ok_or_else(|| AllotError::Exhausted {
            service: self.service.clone(),
            what: "address",
            range: self.ranges.describe(ipv6),
        })?;
        self.held.insert(Claim::ClusterIp(found), self.service.clone());
        Ok(found)
    }

    fn port(&mut self, what: &str) -> Result<u16, AllotError> {
        let free = |port: u16| !self.held.contains_key(&Claim::NodePort(port));
        let ports = self.ranges.node_ports();
        let found = ports.find(seed(self.service, what), free).ok_or_else(|| AllotError::Exhausted {
            service: self.service.clone(),
            what: "node port",
            range: ports.to_string(),
        })?;
        self.held.insert(Claim::NodePort(found), self.service.clone());
        Ok(found)
    }
}

/// A port of the same number and another protocol shares its node port, as DNS over TCP and UDP does.
fn shared_port(spec: &ServiceSpec, mine: &Allotted, place: usize) -> Option<u16> {
    let me = &spec.ports[place];
    let used_for = |port: u16, protocol: &str| {
        let mut others = spec.ports.iter().zip(&mine.node_ports);
        others.any(|(other, used)| *used == port && same_protocol(&other.protocol, protocol))
    };
    let twins = spec.ports.iter().zip(&mine.node_ports).filter(|(other, used)| {
        **used != 0 && other.port == me.port && !same_protocol(&other.protocol, &me.protocol)
    });
    twins.map(|(_, used)| *used).find(|port| !used_for(*port, &me.protocol))
}

fn same_protocol(one: &str, other: &str) -> bool {
    let or_tcp = |text: &str| if text.is_empty() { "TCP".to_owned() } else { text.to_owned() };
    or_tcp(one) == or_tcp(other)
}

fn needs_address(spec: &ServiceSpec) -> bool {
    let headless = spec.cluster_ip == "None" || spec.cluster_ips.iter().any(|one| one == "None");
    !headless && spec.kind != "ExternalName"
}

fn is_dual(spec: &ServiceSpec) -> bool {
    matches!(spec.ip_family_policy.as_str(), "PreferDualStack" | "RequireDualStack")
}

fn has_node_ports(spec: &ServiceSpec) -> bool {
    matches!(spec.kind.as_str(), "NodePort" | "LoadBalancer")
}

/// Without being asked.
fn gets_node_ports(spec: &ServiceSpec) -> bool {
    spec.kind == "NodePort"
        || spec.kind == "LoadBalancer" && spec.allocate_load_balancer_node_ports != Some(false)
}

fn is_checked(spec: &ServiceSpec) -> bool {
    spec.kind == "LoadBalancer" && spec.external_traffic_policy == "Local"
}

/// FNV-1a: the same in every run and on every machine.
fn seed(service: &ServiceName, what: &str) -> u64 {
    let text = format!("{service}/{what}");
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
