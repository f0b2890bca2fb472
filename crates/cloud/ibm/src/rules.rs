//! Permit lists as rules of security groups, and the note that goes with them. Pure.
//!
//! There is one rule per direction, protocol, port range and prefix, whatever entries ask for it; two entries may ask
//! for the same. The rules say what is permitted; the note says which entries that stands for:
//!
//! ```text
//!   rules  inbound tcp 80 10.0.0.1     note  web: inbound tcp 80: 10.0.0.1, 10.0.0.2, by the tag "ops"
//!          inbound tcp 80 10.0.0.2           db:  inbound tcp 80: 10.0.0.2
//! ```
//!
//! An entry is read back with those of its targets that have a rule; a rule that no entry asks for is somebody else's.

use std::collections::{BTreeMap, BTreeSet};

use cloud_api::{CloudError, CloudErrorKind, list_after};
use cloud_http::letters;
use ipnet::IpNet;
use model::{Address, Direction, EntryName, PermitEntry, Ports, Protocol, Traffic};
use serde::{Deserialize, Serialize};

use crate::shapes::{GroupRule, Remote, RuleRequest, SecurityGroup};

/// Rules of one group, both directions together.
pub(crate) const MOST: usize = 250;
/// Groups of one interface.
pub(crate) const MOST_GROUPS: usize = 5;
const STRANGE: &str = "not-ours ";

/// What makes a rule this rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub(crate) direction: Direction,
    pub(crate) protocol: Protocol,
    /// Any for protocols without.
    pub(crate) ports: Ports,
    pub(crate) prefix: Address,
}

impl Rule {
    fn traffic(&self) -> Traffic {
        Traffic {
            direction: self.direction,
            protocol: self.protocol,
            src_ports: Ports::Any,
            dst_ports: self.ports,
        }
    }

    /// As IBM is asked for it.
    pub(crate) fn write(&self) -> RuleRequest {
        let protocol = match self.protocol {
            Protocol::TCP => "tcp",
            Protocol::UDP => "udp",
            Protocol::ICMP => "icmp",
            _ => "icmp_tcp_udp",
        };
        let net = self.prefix.net();
        let remote = match net.prefix_len() == net.max_prefix_len() {
            true => Remote { address: Some(net.addr().to_string()), cidr_block: None },
            false => Remote { address: None, cidr_block: Some(net.to_string()) },
        };
        let (port_min, port_max) = match self.ports {
            Ports::Any => (None, None),
            Ports::Range { first, last } => (Some(first), Some(last)),
        };
        let name = format!("p-{}", letters(&format!("{} {}", self.traffic(), self.prefix), 20));
        RuleRequest { name, direction: self.direction, protocol, port_min, port_max, remote }
    }

    /// As IBM shows it. None for what Trestle never makes: other groups as peers, and single types of ICMP.
    pub(crate) fn read(rule: &GroupRule) -> Option<Self> {
        Self::read_wide(rule).filter(|_| rule.r#type.is_none())
    }

    /// The same, but that a single type of ICMP is ICMP: what is open in part is open.
    pub(crate) fn read_wide(rule: &GroupRule) -> Option<Self> {
        let protocol = match rule.protocol.as_str() {
            "tcp" => Protocol::TCP,
            "udp" => Protocol::UDP,
            "icmp" => Protocol::ICMP,
            "icmp_tcp_udp" | "all" | "any" => Protocol::Any,
            _ => return None,
        };
        let ports = match (rule.port_min, rule.port_max) {
            (None | Some(1), None | Some(u16::MAX)) => Ports::Any,
            (first, last) => Ports::Range { first: first.unwrap_or(1), last: last.unwrap_or(u16::MAX) },
        };
        let remote = rule.remote.address.as_ref().or(rule.remote.cidr_block.as_ref())?;
        Some(Self { direction: rule.direction, protocol, ports, prefix: remote.parse().ok()? })
    }
}

/// Rules, each with its path below `security_groups/`.
pub(crate) type Rules = BTreeMap<Rule, String>;

/// What a group shows of its rules.
pub(crate) fn rules_in(group: &SecurityGroup) -> Rules {
    let path = |rule: &GroupRule| format!("{}/rules/{}", group.id, rule.id);
    group.rules.iter().filter_map(|rule| Some((Rule::read(rule)?, path(rule)))).collect()
}

/// The note of a resource: its own name, and its permit list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) list: Vec<Line>,
}

impl Note {
    /// What it is about, and its text.
    pub(crate) fn write(&self) -> (String, String) {
        (
            format!("the permit list of {}", self.name),
            serde_json::to_string(self).expect("texts, numbers and lists are JSON"),
        )
    }
}

/// One entry of a list: its name, its traffic, its targets and its tags.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Line(String, Short, Vec<Address>, #[serde(default)] Vec<String>);

/// Traffic in few letters: direction, protocol, ports.
type Short = (char, i16, u16, u16);

fn shorten(traffic: &Traffic) -> Short {
    let direction = if traffic.direction == Direction::Inbound { 'i' } else { 'o' };
    let protocol = match traffic.protocol {
        Protocol::Any => -1,
        Protocol::Number(number) => i16::from(number),
    };
    match traffic.dst_ports {
        Ports::Any => (direction, protocol, 0, u16::MAX),
        Ports::Range { first, last } => (direction, protocol, first, last),
    }
}

fn lengthen(short: &Short) -> Traffic {
    let (direction, protocol, first, last) = *short;
    Traffic {
        direction: if direction == 'i' { Direction::Inbound } else { Direction::Outbound },
        protocol: u8::try_from(protocol).map_or(Protocol::Any, Protocol::Number),
        src_ports: Ports::Any,
        dst_ports: if (first, last) == (0, u16::MAX) { Ports::Any } else { Ports::Range { first, last } },
    }
}

impl Line {
    fn of(entry: &PermitEntry) -> Self {
        let targets = entry.targets().iter().copied().collect();
        Self(entry.name.to_string(), shorten(&entry.traffic), targets, entry.tags.iter().cloned().collect())
    }

    fn rules(&self) -> Vec<Rule> {
        let Traffic { direction, protocol, dst_ports: ports, .. } = lengthen(&self.1);
        self.2.iter().map(|prefix| Rule { direction, protocol, ports, prefix: *prefix }).collect()
    }
}

/// The rules that entries need. Refused if IBM cannot express them or has no room for them.
pub(crate) fn rules_of(entries: &[PermitEntry]) -> Result<BTreeSet<Rule>, CloudError> {
    let mut rules = BTreeSet::new();
    for entry in entries {
        let traffic = &entry.traffic;
        let refuse = |why: &str| {
            CloudError::new(CloudErrorKind::Unsupported, format!("the entry {} {why}", entry.name))
        };
        if traffic.src_ports != Ports::Any {
            return Err(refuse(
                "names source ports, which IBM security groups do not look at; leave them out",
            ));
        }
        if !matches!(traffic.protocol, Protocol::Any | Protocol::TCP | Protocol::UDP | Protocol::ICMP) {
            return Err(refuse(
                "is neither for TCP, UDP, ICMP nor all three, which is what IBM security groups know",
            ));
        }
        if matches!(traffic.dst_ports, Ports::Range { first: 0, .. }) {
            return Err(refuse("names the port 0; in IBM security groups ports begin with 1"));
        }
        for target in entry.targets() {
            if matches!(target.net(), IpNet::V6(_)) {
                return Err(refuse("has an IPv6 target; networks in IBM Cloud are IPv4 only"));
            }
        }
        rules.extend(Line::of(entry).rules());
    }
    match rules.len() > MOST * MOST_GROUPS {
        true => Err(too_many(rules.len(), MOST_GROUPS)),
        false => Ok(rules),
    }
}

/// What is said of a list that does not fit.
pub(crate) fn too_many(rules: usize, groups: usize) -> CloudError {
    CloudError::conflict(format!(
        "the permit list needs {rules} rules; the {groups} security groups that IBM Cloud gives it hold {MOST} each. Permit \
         prefixes instead of single addresses"
    ))
}

/// The list that rules stand for, by their note. A rule that is not ours shows as an entry of its own, named after what
/// it permits.
pub(crate) fn entries_of(rules: &Rules, note: &Note) -> Vec<PermitEntry> {
    let mut found: BTreeMap<(String, Traffic), (BTreeSet<Address>, BTreeSet<String>)> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for line in &note.list {
        let there: Vec<Rule> = line.rules().into_iter().filter(|rule| rules.contains_key(rule)).collect();
        let (targets, tags) = found.entry((line.0.clone(), lengthen(&line.1))).or_default();
        targets.extend(there.iter().map(|rule| rule.prefix));
        tags.extend(line.3.iter().cloned());
        known.extend(there);
    }
    for rule in rules.keys().filter(|rule| !known.contains(*rule)) {
        let name = format!("{STRANGE}{} {}", rule.traffic(), rule.prefix);
        found.entry((name, rule.traffic())).or_default().0.insert(rule.prefix);
    }
    let entry = |((name, traffic), (targets, tags))| {
        PermitEntry::new(EntryName::reported(name), traffic, targets, tags)
    };
    found.into_iter().filter_map(entry).collect()
}

/// What must change in a group, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// The note before any rule comes or goes: nothing that is there is ever without its name.
    pub(crate) first: Option<Note>,
    pub(crate) open: Vec<Rule>,
    /// Paths of rules.
    pub(crate) close: Vec<String>,
    pub(crate) last: Option<Note>,
}

/// So that the wanted entries are there, and those before them are not. What others put there stays until somebody asks
/// for it to go.
pub(crate) fn plan(
    current: &Rules,
    note: &Note,
    before: &[PermitEntry],
    wanted: &[PermitEntry],
) -> Result<Change, CloudError> {
    let (strange, ours): (Vec<_>, Vec<_>) =
        entries_of(current, note).into_iter().partition(|entry| entry.name.as_str().starts_with(STRANGE));
    let list = list_after(ours, before, wanted);
    let mut wanted = rules_of(&list)?;
    let gone: BTreeSet<Rule> = strange
        .iter()
        .filter(|entry| before.contains(entry))
        .flat_map(|entry| Line::of(entry).rules())
        .collect();
    let strange = strange.iter().flat_map(|entry| Line::of(entry).rules());
    wanted.extend(strange.filter(|rule| !gone.contains(rule)));
    let mut lines: Vec<Line> = list.iter().map(Line::of).collect();
    lines.sort();
    let open: Vec<Rule> = wanted.iter().filter(|rule| !current.contains_key(*rule)).cloned().collect();
    let close: Vec<String> =
        current.iter().filter(|(rule, _)| !wanted.contains(*rule)).map(|(_, id)| id.clone()).collect();
    let last = Note { name: note.name.clone(), list: lines };
    if last == *note {
        return Ok(Change { first: None, open, close, last: None });
    }
    // While rules come and go, the note knows those that were and those that will be.
    let both: BTreeSet<Line> = note.list.iter().chain(&last.list).cloned().collect();
    let both = Note { name: note.name.clone(), list: both.into_iter().collect() };
    Ok(match (open.is_empty(), close.is_empty()) {
        (false, false) => Change { first: Some(both), open, close, last: Some(last) },
        (false, true) => Change { first: Some(last), open, close, last: None },
        (true, _) => Change { first: None, open, close, last: Some(last) },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shapes::samples::{group, open, rule as shown};

    fn entry(name: &str, port: u16, targets: &[&str], tags: &[&str]) -> PermitEntry {
        let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(port)).unwrap();
        let targets = targets.iter().map(|text| text.parse().unwrap()).collect();
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        PermitEntry::new(EntryName::reported(name), traffic, targets, tags).unwrap()
    }

    /// What a group and its note are after a change, as IBM would show them.
    fn apply(rules: &mut Rules, note: &mut Note, change: &Change) {
        *note = change.first.clone().unwrap_or_else(|| note.clone());
        for rule in &change.open {
            let group = group("x", vec![shown(&format!("id {rule:?}"), &rule.write())]);
            assert_eq!(rules_in(&group).keys().collect::<Vec<_>>(), [rule]);
            rules.extend(rules_in(&group));
        }
        rules.retain(|_, id| !change.close.contains(id));
        *note = change.last.clone().unwrap_or_else(|| note.clone());
    }

    fn made(entries: &[PermitEntry]) -> (Rules, Note) {
        let (mut rules, mut note) = (Rules::new(), Note { name: "x".into(), list: vec![] });
        let change = plan(&rules, &note, &[], entries).unwrap();
        apply(&mut rules, &mut note, &change);
        (rules, note)
    }

    /// An entry has several targets and a destination port, and another asks for one of the same.
    #[test]
    fn two_entries_may_share_a_rule() {
        let entries = [
            entry("a", 80, &["10.0.0.1"], &["10.0.0.1"]),
            entry("b", 80, &["10.0.0.1", "10.0.2.0/24"], &["ops"]),
        ];
        let (mut rules, mut note) = made(&entries);
        assert_eq!(rules.len(), 2);
        assert_eq!(entries_of(&rules, &note), entries);
        let change = plan(&rules, &note, &entries[..1], &[]).unwrap();
        assert_eq!((change.open.len(), change.close.len(), change.first.is_none()), (0, 0, true));
        apply(&mut rules, &mut note, &change);
        assert_eq!(entries_of(&rules, &note), entries[1..]);
        let shown = rules.keys().next().unwrap().write();
        assert_eq!((shown.port_min, shown.port_max), (Some(80), Some(80)));
    }

    #[test]
    fn what_ibm_cannot_do_is_refused_before_the_first_call() {
        let many: Vec<String> = (0..1251).map(|n| format!("10.{}.{}.1", n / 250, n % 250)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(rules_of(&[entry("a", 80, &many, &[])]).unwrap_err().kind, CloudErrorKind::Conflict);
        assert!(rules_of(&[entry("a", 80, &many[..1250], &[])]).is_ok());
        assert!(rules_of(&[entry("a", 80, &["2001:db8::1"], &[])]).is_err());
        assert!(rules_of(&[entry("a", 0, &["10.0.0.1"], &[])]).is_err());
        let mut from = entry("a", 80, &["10.0.0.1"], &[]);
        from.traffic.src_ports = Ports::one(53);
        assert_eq!(rules_of(&[from]).unwrap_err().kind, CloudErrorKind::Unsupported);
        let mut sctp = entry("a", 80, &["10.0.0.1"], &[]);
        sctp.traffic.protocol = Protocol::SCTP;
        assert_eq!(rules_of(&[sctp]).unwrap_err().kind, CloudErrorKind::Unsupported);
    }

    #[test]
    fn strange_rules_stay_until_they_are_asked_to_go() {
        let (mut rules, note) = made(&[entry("a", 80, &["10.0.0.1"], &[])]);
        let by_hand = open("hand", Direction::Inbound, "any", Some("0.0.0.0/0"));
        let group_peer = open("g", Direction::Inbound, "tcp", None);
        rules.extend(rules_in(&group("x", vec![by_hand, group_peer])));
        assert_eq!(rules.len(), 2);
        assert_eq!(plan(&rules, &note, &[], &[]).unwrap(), Change::default());
        let change = plan(&rules, &note, &[], &[entry("b", 80, &["10.0.0.2"], &[])]).unwrap();
        assert_eq!((change.open.len(), change.close.len()), (1, 0));
        let seen = entries_of(&rules, &note);
        let seen: Vec<_> = seen.into_iter().filter(|one| one.name.as_str().starts_with(STRANGE)).collect();
        assert_eq!(plan(&rules, &note, &seen, &[]).unwrap().close, ["g/rules/hand"]);
    }

    type Lists = BTreeMap<String, (u16, BTreeSet<u8>, bool)>;

    fn list(map: &Lists) -> Vec<PermitEntry> {
        let one = |(name, (port, hosts, literal)): (&String, &(u16, BTreeSet<u8>, bool))| {
            let targets: Vec<String> = hosts.iter().map(|host| format!("10.0.0.{host}")).collect();
            let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
            entry(name, *port, &targets, if *literal { &targets[..1] } else { &["some.tag"] })
        };
        map.iter().map(one).collect()
    }

    fn lists() -> impl Strategy<Value = Lists> {
        let one = (80u16..83, proptest::collection::btree_set(1u8..6, 1..4), any::<bool>());
        proptest::collection::btree_map("[a-z]{1,2}", one, 0..5)
    }

    proptest! {
        /// Whatever the lists, the change gives the wanted one, also in two pieces, and is then no change.
        #[test]
        fn lists_survive_the_way_through_ibm(a in lists(), b in lists()) {
            let (mut rules, mut note) = made(&list(&a));
            prop_assert_eq!(entries_of(&rules, &note), list(&a));
            let unset: Vec<_> = list(&a).into_iter().filter(|entry| !b.contains_key(entry.name.as_str())).collect();
            let change = plan(&rules, &note, &unset, &list(&b)).unwrap();
            // Cut off before the last step: every rule still has an entry of ours.
            let (mut cut, mut cut_note) = (rules.clone(), note.clone());
            apply(&mut cut, &mut cut_note, &Change { close: vec![], last: None, ..change.clone() });
            prop_assert!(entries_of(&cut, &cut_note).iter().all(|one| !one.name.as_str().starts_with(STRANGE)));
            apply(&mut rules, &mut note, &change);
            prop_assert_eq!(entries_of(&rules, &note), list(&b));
            let text = serde_json::to_string(&note).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Note>(&text).unwrap(), &note);
            prop_assert_eq!(plan(&rules, &note, &unset, &list(&b)).unwrap(), Change::default());
        }
    }
}
