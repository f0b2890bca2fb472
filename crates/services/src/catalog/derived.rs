//! Slices made from the Pods that a service selects, for users who bring no slices.
//!
//! Pods whose ports have the same numbers share slices. A slice holds the Pods whose hashed names begin with certain
//! bits; it is split in two when it grows above [`MAX`], and its halves are joined when they fit again:
//!
//! ```text
//!   web#4.1f3c0a77.            up to MAX Pods
//!   web#4.1f3c0a77.0  .1       more than MAX: by the first bit of the hash
//!   web#4.1f3c0a77.0  .10 .11  the second half has outgrown MAX too
//! ```
//!
//! So the slices depend on the present Pods only, not on how they came to be, and a Pod that comes or goes rewrites at
//! most the slice that it belongs to.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use model::{
    policy::{kubernetes::IntOrString, service as written},
    service::{Protocol, Service, ServiceName, Slice, SliceEndpoint, SlicePort},
};

use super::pods::PodFacts;

/// Endpoints in a slice, as the Kubernetes controller has it. Few in tests, so that slices are split.
const MAX: usize = if cfg!(test) { 3 } else { 100 };

/// What of a service decides how a Pod becomes its endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    targets: Vec<Target>,
    families: BTreeSet<bool>,
    publish_not_ready: bool,
    prefer: Prefer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    name: String,
    protocol: Protocol,
    port: TargetPort,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TargetPort {
    Number(u16),
    Named(String),
}

/// `spec.trafficDistribution`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Prefer {
    #[default]
    None,
    SameZone,
    SameNode,
}

impl From<&written::Service> for Recipe {
    fn from(service: &written::Service) -> Self {
        let spec = &service.spec;
        let targets = spec.ports.iter().filter_map(|port| {
            let number = |number: i32| u16::try_from(number).ok().filter(|number| *number != 0);
            let target = match &port.target_port {
                Some(IntOrString::Name(name)) => TargetPort::Named(name.clone()),
                Some(IntOrString::Int(target)) if *target != 0 => TargetPort::Number(number(*target)?),
                Some(IntOrString::Int(_)) | None => TargetPort::Number(number(port.port)?),
            };
            Some(Target { name: port.name.clone(), protocol: port.protocol.parse().ok()?, port: target })
        });
        Self {
            targets: targets.collect(),
            families: Service::from(service).cluster_ips.iter().map(IpAddr::is_ipv6).collect(),
            publish_not_ready: spec.publish_not_ready_addresses,
            prefer: match spec.traffic_distribution.as_deref() {
                Some("PreferClose" | "PreferSameZone") => Prefer::SameZone,
                Some("PreferSameNode") => Prefer::SameNode,
                _ => Prefer::None,
            },
        }
    }
}

/// Endpoints with the same ports in the same family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    ipv6: bool,
    ports: Vec<SlicePort>,
}

impl Recipe {
    /// What a Pod is to the service: one endpoint per family. `zone` is that of its node.
    pub fn endpoints(&self, pod: &PodFacts, zone: Option<&str>) -> Vec<(Group, SliceEndpoint)> {
        let ports: Vec<_> = self.targets.iter().filter_map(|target| target.at(pod)).collect();
        if ports.is_empty() {
            return Vec::new();
        }
        let families = self.families.iter().filter_map(|ipv6| {
            let address = pod.addresses.iter().find(|address| address.is_ipv6() == *ipv6)?;
            Some((Group { ipv6: *ipv6, ports: ports.clone() }, self.endpoint(pod, *address, zone)))
        });
        families.collect()
    }

    fn endpoint(&self, pod: &PodFacts, address: IpAddr, zone: Option<&str>) -> SliceEndpoint {
        let zones = zone.map(str::to_owned).into_iter().filter(|_| self.prefer != Prefer::None);
        let nodes = Some(pod.node.clone()).filter(|node| self.prefer == Prefer::SameNode && !node.is_empty());
        SliceEndpoint {
            addresses: vec![address],
            ready: Some(self.publish_not_ready || pod.ready && !pod.terminating),
            serving: Some(pod.ready),
            terminating: Some(pod.terminating),
            node: Some(pod.node.clone()).filter(|node| !node.is_empty()),
            zone_hints: zones.collect(),
            node_hints: nodes.into_iter().collect(),
        }
    }
}

impl Target {
    /// `None` if the Pod has no port of that name.
    fn at(&self, pod: &PodFacts) -> Option<SlicePort> {
        let port = match &self.port {
            TargetPort::Number(number) => *number,
            TargetPort::Named(wanted) => {
                let mut ports = pod.ports.iter();
                ports.find(|(name, protocol, _)| name == wanted && *protocol == self.protocol)?.2
            }
        };
        Some(SlicePort { name: Some(self.name.clone()), protocol: self.protocol, port: Some(port) })
    }
}

/// By hash and name of the Pod.
type Members = BTreeMap<(u64, String), SliceEndpoint>;

/// The endpoints that Pods give one service.
#[derive(Debug, Default)]
pub struct Derived {
    groups: BTreeMap<Group, Members>,
    of_pod: HashMap<String, Vec<Group>>,
}

impl Derived {
    pub fn pods(&self) -> impl Iterator<Item = &str> {
        self.of_pod.keys().map(String::as_str)
    }

    /// Makes these the endpoints of a Pod. Returns beginnings of the keys of slices that differ now.
    pub fn put(
        &mut self,
        service: &ServiceName,
        pod: &str,
        endpoints: Vec<(Group, SliceEndpoint)>,
    ) -> BTreeSet<String> {
        let place = (hash(pod), pod.to_owned());
        let mut touched = BTreeSet::new();
        let new: Vec<_> = endpoints.iter().map(|(group, _)| group.clone()).collect();
        let old = match new.is_empty() {
            true => self.of_pod.remove(pod),
            false => self.of_pod.insert(pod.to_owned(), new.clone()),
        };
        let gone = old.into_iter().flatten().filter(|group| !new.contains(group));
        for group in gone {
            touched.extend(self.exchange(service, group, &place, None));
        }
        for (group, endpoint) in endpoints {
            touched.extend(self.exchange(service, group, &place, Some(endpoint)));
        }
        touched
    }

    /// The slices whose key begins like this.
    pub fn slices(&self, service: &ServiceName, prefix: &str) -> BTreeMap<String, Slice> {
        let mut slices = BTreeMap::new();
        for (group, members) in &self.groups {
            let key = key(service, group);
            if key.starts_with(prefix) || prefix.starts_with(&key) {
                let bits = prefix.get(key.len()..).unwrap_or_default();
                collect(service, group, members, &key, Bits::parse(bits), &mut slices);
            }
        }
        slices
    }

    fn exchange(
        &mut self,
        service: &ServiceName,
        group: Group,
        place: &(u64, String),
        endpoint: Option<SliceEndpoint>,
    ) -> Option<String> {
        let key = key(service, &group);
        let members = self.groups.entry(group.clone()).or_default();
        let before = Bits::leaf(members, place.0);
        let was = match endpoint.clone() {
            Some(endpoint) => members.insert(place.clone(), endpoint),
            None => members.remove(place),
        };
        let after = Bits::leaf(members, place.0);
        if members.is_empty() {
            self.groups.remove(&group);
        }
        // The shorter of both covers all that was split or joined.
        let covers = if before.len < after.len { before } else { after };
        (was != endpoint).then(|| format!("{key}{covers}"))
    }
}

/// The slices below a place in the tree.
fn collect(
    service: &ServiceName,
    group: &Group,
    members: &Members,
    key: &str,
    bits: Bits,
    slices: &mut BTreeMap<String, Slice>,
) {
    let count = bits.members(members).take(MAX + 1).count();
    if count == 0 {
        return;
    }
    if count > MAX && bits.len < 64 {
        for half in bits.halves() {
            collect(service, group, members, key, half, slices);
        }
        return;
    }
    let slice = Slice {
        service: service.clone(),
        ports: group.ports.clone(),
        endpoints: bits.members(members).map(|(_, endpoint)| endpoint.clone()).collect(),
        labels: BTreeMap::new(),
        triggered: None,
    };
    slices.insert(format!("{key}{bits}"), slice);
}

/// The first bits of a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bits {
    value: u64,
    len: u32,
}

impl Bits {
    fn of(hash: u64, len: u32) -> Self {
        let kept = if len == 0 { 0 } else { u64::MAX << (64 - len) };
        Self { value: hash & kept, len }
    }

    fn parse(text: &str) -> Self {
        let mut bits = Self::default();
        for bit in text.bytes().take(64) {
            bits.len += 1;
            bits.value |= u64::from(bit == b'1') << (64 - bits.len);
        }
        bits
    }

    /// Where a hash belongs now.
    fn leaf(members: &Members, hash: u64) -> Self {
        let fits = |bits: &Self| bits.members(members).take(MAX + 1).count() <= MAX;
        (0..64).map(|len| Self::of(hash, len)).find(fits).unwrap_or(Self::of(hash, 64))
    }

    fn halves(self) -> [Self; 2] {
        let len = self.len + 1;
        [Self { len, ..self }, Self { len, value: self.value | 1 << (64 - len) }]
    }

    fn members(self, members: &Members) -> impl Iterator<Item = (&(u64, String), &SliceEndpoint)> {
        members
            .range((self.value, String::new())..)
            .take_while(move |((hash, _), _)| Self::of(*hash, self.len) == self)
    }
}

impl std::fmt::Display for Bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (1..=self.len).try_for_each(|bit| write!(f, "{}", self.value >> (64 - bit) & 1))
    }
}

/// `#` is in no name that users can give, so these are never a slice of theirs.
fn key(service: &ServiceName, group: &Group) -> String {
    let family = if group.ipv6 { 6 } else { 4 };
    let mut ports = String::new();
    for port in &group.ports {
        ports.push_str(&format!("{:?}{}{:?};", port.name, port.protocol, port.port));
    }
    format!("{}/{}#{family}.{:08x}.", service.namespace, service.name, hash(&ports) >> 32)
}

/// 64-bit FNV-1a, with its bits mixed so that the first ones are as good as the last.
fn hash(text: &str) -> u64 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}
