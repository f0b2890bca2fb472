//! Permit lists as rules of clouds, and back: what is the same in all clouds. Pure.
//!
//! A cloud keeps rules, each for some traffic and some prefixes; which entry a rule is for, and the tags of that entry, a
//! plugin writes beside it, where the cloud has room. Read back, a rule for which nobody here asked shows as an entry of its
//! own, with a name that says so.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::{IpNet, Ipv4Net};
use model::{Address, Direction, EntryName, PermitEntry, Ports, Protocol, Traffic};

use crate::{CloudError, CloudErrorKind, Result};

/// What the names of entries begin with that nobody here asked for.
pub const STRANGE: &str = "not-ours ";

pub fn is_strange(entry: &PermitEntry) -> bool {
    entry.name.as_str().starts_with(STRANGE)
}

/// An entry that nobody here asked for; none if it has no targets.
pub fn strange(what: &str, traffic: Traffic, targets: BTreeSet<Address>) -> Option<PermitEntry> {
    let name = EntryName::reported(format!("{STRANGE}{what}"));
    PermitEntry::new(name, traffic, targets, BTreeSet::new())
}

/// The same: everything is let through in a direction.
pub fn open(what: &str, direction: Direction) -> Option<PermitEntry> {
    let traffic = Traffic::new(direction, Protocol::Any, Ports::Any, Ports::Any).ok()?;
    strange(what, traffic, [everywhere()].into())
}

/// All addresses.
pub fn everywhere() -> Address {
    IpNet::V4(Ipv4Net::default()).into()
}

/// A rule where each is for one prefix, whatever entries ask for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub direction: Direction,
    pub protocol: Protocol,
    /// Any for protocols without.
    pub ports: Ports,
    pub prefix: Address,
}

impl Rule {
    pub fn new(traffic: &Traffic, prefix: Address) -> Self {
        Self { direction: traffic.direction, protocol: traffic.protocol, ports: traffic.dst_ports, prefix }
    }

    pub fn traffic(&self) -> Traffic {
        let (direction, protocol, dst_ports) = (self.direction, self.protocol, self.ports);
        Traffic { direction, protocol, src_ports: Ports::Any, dst_ports }
    }

    /// What it is called as an entry, if nobody here asked for it.
    pub fn strange_name(&self) -> String {
        format!("{STRANGE}{} {}", self.traffic(), self.prefix)
    }
}

/// Entries while they are put together from rules, by their names and traffic.
#[derive(Default)]
pub struct Gathered(BTreeMap<(String, Traffic), (BTreeSet<Address>, BTreeSet<String>)>);

impl Gathered {
    pub fn add(
        &mut self,
        name: String,
        traffic: Traffic,
        targets: impl IntoIterator<Item = Address>,
        tags: impl IntoIterator<Item = String>,
    ) {
        let entry = self.0.entry((name, traffic)).or_default();
        entry.0.extend(targets);
        entry.1.extend(tags);
    }

    /// Those that have a target.
    pub fn entries(self) -> Vec<PermitEntry> {
        let entry = |((name, traffic), (targets, tags))| {
            PermitEntry::new(EntryName::reported(name), traffic, targets, tags)
        };
        self.0.into_iter().filter_map(entry).collect()
    }
}

/// What a cloud's rules cannot say of an entry. `why` goes on after its name.
pub fn unsupported(entry: &PermitEntry, why: impl std::fmt::Display) -> CloudError {
    CloudError::new(CloudErrorKind::Unsupported, format!("the entry {} {why}", entry.name))
}

pub fn no_source_ports(entry: &PermitEntry, rules: &str) -> Result {
    match entry.traffic.src_ports {
        Ports::Any => Ok(()),
        _ => {
            let why = format!("names source ports, which {rules} do not look at; leave them out");
            Err(unsupported(entry, why))
        }
    }
}

pub fn only_ipv4(entry: &PermitEntry, cloud: &str) -> Result {
    match entry.targets().iter().find(|target| matches!(target.net(), IpNet::V6(_))) {
        None => Ok(()),
        Some(v6) => {
            let why = format!("has the IPv6 target {v6}; networks of Trestle in {cloud} are IPv4 only");
            Err(unsupported(entry, why))
        }
    }
}

/// An entry's tags, those aside that are just its targets.
pub fn tags_of(entry: &PermitEntry) -> Vec<String> {
    let targets: BTreeSet<String> = entry.targets().iter().map(ToString::to_string).collect();
    entry.tags.iter().filter(|tag| !targets.contains(*tag)).cloned().collect()
}

/// Which of some targets are among an entry's tags, by their places; and whether all are.
pub fn literal_in(entry: &PermitEntry, targets: &[Address]) -> (Vec<usize>, bool) {
    let is_tag = |place: &usize| entry.tags.contains(&targets[*place].to_string());
    let literal: Vec<usize> = (0..targets.len()).filter(is_tag).collect();
    let all = literal.len() == targets.len();
    (literal, all)
}

/// Several ranges of ports, which Trestle never writes, show as all ports from the lowest to the highest. What is no range is
/// every port.
pub fn span<'t>(ranges: impl IntoIterator<Item = &'t str>) -> Ports {
    let read = |text: &str| match text.parse() {
        Ok(Ports::Range { first, last }) => Some((first, last)),
        _ => None,
    };
    let bounds: Option<Vec<(u16, u16)>> = ranges.into_iter().map(read).collect();
    let joined = bounds.into_iter().flatten().reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
    joined.map_or(Ports::Any, |(first, last)| Ports::Range { first, last })
}
