//! Which ports are open from one end to another: explain, for all ports at once and without its reasons.
//!
//! In: two ends and a protocol. Out: a [`PortSet`]. Decisions change only where some rule's range of ports begins or
//! ends, so one port per such place is asked about and the answer is exact. Cost: O(places × rules of the two ends).
//!
//! Ends that policies cannot tell apart are of one [`Class`]: what is known of one pair is known of all pairs of the
//! same classes, so a matrix over thousands of workloads asks once per pair of classes.

use std::{collections::BTreeSet, fmt, net::IpAddr, sync::Arc};

use model::policy::output::{IpBlock, Member, NamedPort, PortRef, Protocol};

use super::{
    Endpoint, ExplainError, Query,
    ends::{Resolved, addresses_of, entities, resolve},
};
use crate::{
    engine::{
        Engine,
        policies::Record,
        tables::{Id, IdSet, PolicyId},
    },
    selection::SERVICE_ACCOUNT_LABEL,
};

/// Ports, as ascending ranges that do not touch. A protocol without ports has all or none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct PortSet(Vec<(u16, u16)>);

const FIRST: u16 = 1;
const LAST: u16 = u16::MAX;

impl PortSet {
    pub fn none() -> Self {
        Self::default()
    }

    pub fn all() -> Self {
        Self(vec![(FIRST, LAST)])
    }

    /// Ranges in any order, overlapping or not.
    pub fn new(ranges: impl IntoIterator<Item = (u16, u16)>) -> Self {
        let mut ranges: Vec<(u16, u16)> = ranges.into_iter().map(|(a, b)| (a.max(FIRST), b)).collect();
        ranges.retain(|(first, last)| first <= last);
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is_all(&self) -> bool {
        self.0 == [(FIRST, LAST)]
    }

    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&port))
    }

    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }

    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let pairs = self.0.iter().flat_map(|a| other.0.iter().map(move |b| (a, b)));
        Self::new(pairs.filter_map(|(a, b)| {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            (first <= last).then_some((first, last))
        }))
    }

    fn complement(&self) -> Self {
        let (mut ranges, mut next) = (Vec::new(), u32::from(FIRST));
        for (first, last) in &self.0 {
            if next < u32::from(*first) {
                ranges.push((u16::try_from(next).unwrap_or(LAST), first - 1));
            }
            next = u32::from(*last) + 1;
        }
        if let Ok(next) = u16::try_from(next) {
            ranges.push((next, LAST));
        }
        Self(ranges)
    }
}

/// `all`, `none`, `80, 8000-8010`, or `all but 22`.
impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all");
        }
        if self.is_empty() {
            return f.write_str("none");
        }
        let complement = self.complement();
        let (prefix, shown) =
            if complement.0.len() < self.0.len() { ("all but ", &complement) } else { ("", self) };
        f.write_str(prefix)?;
        for (at, (first, last)) in shown.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// All that policies can tell of an end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Class {
    applied_to: Vec<usize>,
    /// Of each address: its family, and the groups and blocks that contain it.
    addresses: Vec<(bool, Vec<usize>, Vec<usize>)>,
    ports: Box<[NamedPort]>,
}

/// A workload as a list shows it.
#[derive(Debug, Clone)]
pub struct Workload {
    pub member: Arc<Member>,
    pub labels: Vec<(Arc<str>, Arc<str>)>,
}

impl Engine {
    /// The destination ports that the source may connect to.
    pub fn open_ports(
        &self,
        source: &Endpoint,
        destination: &Endpoint,
        protocol: Protocol,
    ) -> Result<PortSet, ExplainError> {
        let mut query = Query {
            source: source.clone(),
            destination: destination.clone(),
            protocol,
            port: None,
            source_port: None,
            icmp: None,
            family: None,
        };
        let (source, destination) = resolve(self, &query)?;
        if protocol == Protocol::Icmp || protocol == Protocol::Igmp {
            let allowed = self.is_allowed(&query, &source, &destination);
            return Ok(if allowed { PortSet::all() } else { PortSet::none() });
        }
        let mut starts = BTreeSet::from([FIRST]);
        for end in [&source, &destination] {
            self.starts(end, &destination, protocol, &mut starts);
        }
        let mut ranges = Vec::new();
        let starts: Vec<u16> = starts.into_iter().collect();
        for (at, first) in starts.iter().enumerate() {
            query.port = Some(*first);
            if self.is_allowed(&query, &source, &destination) {
                ranges.push((*first, starts.get(at + 1).map_or(LAST, |next| next - 1)));
            }
        }
        Ok(PortSet::new(ranges))
    }

    /// Where the decision about a port may change.
    fn starts(&self, end: &Resolved, destination: &Resolved, protocol: Protocol, starts: &mut BTreeSet<u16>) {
        let groups = end.applied_to.iter().map(|group| &self.groups.rows[*group]);
        let policies: IdSet<PolicyId> =
            groups.flat_map(|group| group.links.ids()).map(|id| PolicyId::from_index(id as usize)).collect();
        let records = policies.iter().filter_map(|id| self.policies.rows[*id].record.as_ref());
        let services = records.flat_map(|record: &Arc<Record>| &record.rules);
        for service in services.flat_map(|rule| &rule.detail.services).filter(|s| s.protocol == protocol) {
            let mut range = |first: u16, last: u16| {
                starts.insert(first.max(FIRST));
                starts.extend(last.checked_add(1));
            };
            match &service.port {
                None => {}
                Some(PortRef::Number(first)) => range(*first, service.end_port.unwrap_or(*first)),
                Some(PortRef::Name(name)) => {
                    let ports = destination.members(self).flat_map(|member| member.ports.iter());
                    ports.filter(|port| port.name == *name).for_each(|port| range(port.port, port.port));
                }
            }
        }
    }

    /// The blocks of addresses that rules name, each once, for [`Engine::class`].
    pub fn ip_blocks(&self) -> Vec<IpBlock> {
        let records = self.policies.rows.iter().filter_map(|(_, policy)| policy.record.as_ref());
        let blocks = records.flat_map(|record| &record.rules).flat_map(|rule| &rule.detail.ip_blocks);
        blocks.collect::<BTreeSet<_>>().into_iter().cloned().collect()
    }

    /// What policies can tell of an end, given the blocks that rules name.
    pub fn class(&self, endpoint: &Endpoint, blocks: &[IpBlock]) -> Result<Class, ExplainError> {
        let found = entities(self, endpoint)?;
        let mut addresses = Vec::new();
        for address in addresses_of(self, endpoint, &found) {
            let groups = Resolved::new(self, Vec::new(), Some(address)).addresses;
            let inside = blocks.iter().enumerate().filter(|(_, block)| block.contains(address));
            let groups = groups.iter().map(|id| id.index()).collect();
            addresses.push((address.is_ipv4(), groups, inside.map(|(at, _)| at).collect()));
        }
        let end = Resolved::new(self, found, None::<IpAddr>);
        let ports = end.members(self).flat_map(|member| member.ports.iter().cloned()).collect();
        Ok(Class { applied_to: end.applied_to.iter().map(|id| id.index()).collect(), addresses, ports })
    }

    /// The addresses of an end, first the one that is preferred; none if it is not known.
    pub fn addresses(&self, endpoint: &Endpoint) -> Vec<IpAddr> {
        entities(self, endpoint).map_or_else(|_| Vec::new(), |found| addresses_of(self, endpoint, &found))
    }

    /// Every workload with its labels, in no order.
    pub fn workloads(&self) -> impl Iterator<Item = Workload> {
        self.entities.rows.iter().filter_map(|(_, entity)| {
            let labels = self.entities.profiles[entity.profile?].labels.iter();
            let labels = labels.map(|(key, value)| (self.label(*key), self.label(*value)));
            let labels = labels.filter(|(key, _)| **key != *SERVICE_ACCOUNT_LABEL).collect();
            Some(Workload { member: Arc::clone(&entity.member), labels })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        assert_eq!(PortSet::new([(80, 80), (81, 90), (1, 65535)]), PortSet::all());
        assert_eq!(PortSet::new([(8, 9), (80, 81), (79, 79)]).ranges(), [(8, 9), (79, 81)]);
        assert!(PortSet::new([]).is_empty() && PortSet::new([(0, 0)]).is_empty());
    }

    #[test]
    fn the_intersection_is_what_both_contain() {
        let (a, b) =
            (PortSet::new([(1, 10), (20, 30), (65535, 65535)]), PortSet::new([(5, 25), (60000, 65535)]));
        let both = a.intersect(&b);
        for port in FIRST..=LAST {
            assert_eq!(both.contains(port), a.contains(port) && b.contains(port), "{port}");
        }
    }

    #[test]
    fn the_shorter_of_two_ways_to_say_it_is_shown() {
        assert_eq!(PortSet::new([(80, 80), (8000, 8010)]).to_string(), "80, 8000-8010");
        assert_eq!(PortSet::new([(1, 21), (23, 65535)]).to_string(), "all but 22");
        assert_eq!((PortSet::all().to_string(), PortSet::none().to_string()), ("all".into(), "none".into()));
    }
}
