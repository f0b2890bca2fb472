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

pub(crate) use cloud_api::rules::Rule;
use cloud_api::{
    CloudError, list_after,
    rules::{Gathered, is_strange, no_source_ports, only_ipv4, unsupported},
};
use cloud_http::letters;
use model::{Address, Direction, PermitEntry, Ports, Protocol, Traffic};
use serde::{Deserialize, Serialize};

use crate::shapes::{GroupRule, Remote, RuleRequest, SecurityGroup};

/// Rules of one group, both directions together.
pub(crate) const MOST: usize = 250;
/// Groups of one interface.
pub(crate) const MOST_GROUPS: usize = 5;

/// A rule as IBM is asked for it.
pub(crate) fn request_of(rule: &Rule) -> RuleRequest {
    let protocol = match rule.protocol {
        Protocol::TCP => "tcp",
        Protocol::UDP => "udp",
        Protocol::ICMP => "icmp",
        _ => "icmp_tcp_udp",
    };
    let net = rule.prefix.net();
    let remote = match net.prefix_len() == net.max_prefix_len() {
        true => Remote { address: Some(net.addr().to_string()), cidr_block: None },
        false => Remote { address: None, cidr_block: Some(net.to_string()) },
    };
    let (port_min, port_max) = match rule.ports {
        Ports::Any => (None, None),
        Ports::Range { first, last } => (Some(first), Some(last)),
    };
    let name = format!("p-{}", letters(&format!("{} {}", rule.traffic(), rule.prefix), 20));
    RuleRequest { name, direction: rule.direction, protocol, port_min, port_max, remote }
}

/// A rule as IBM shows it. None for what Trestle never makes: other groups as peers, and single types of ICMP.
pub(crate) fn rule_in(rule: &GroupRule) -> Option<Rule> {
    rule_in_wide(rule).filter(|_| rule.r#type.is_none())
}

/// The same, but that a single type of ICMP is ICMP: what is open in part is open.
pub(crate) fn rule_in_wide(rule: &GroupRule) -> Option<Rule> {
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
    Some(Rule { direction: rule.direction, protocol, ports, prefix: remote.parse().ok()? })
}

/// Rules, each with its path below `security_groups/`.
pub(crate) type Rules = BTreeMap<Rule, String>;

/// What a group shows of its rules.
pub(crate) fn rules_in(group: &SecurityGroup) -> Rules {
    let path = |rule: &GroupRule| format!("{}/rules/{}", group.id, rule.id);
    group.rules.iter().filter_map(|rule| Some((rule_in(rule)?, path(rule)))).collect()
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
        let traffic = lengthen(&self.1);
        self.2.iter().map(|prefix| Rule::new(&traffic, *prefix)).collect()
    }
}

/// The rules that entries need. Refused if IBM cannot express them or has no room for them.
pub(crate) fn rules_of(entries: &[PermitEntry]) -> Result<BTreeSet<Rule>, CloudError> {
    let mut rules = BTreeSet::new();
    for entry in entries {
        no_source_ports(entry, "IBM security groups")?;
        only_ipv4(entry, "IBM Cloud")?;
        let traffic = &entry.traffic;
        if !matches!(traffic.protocol, Protocol::Any | Protocol::TCP | Protocol::UDP | Protocol::ICMP) {
            let why = "is neither for TCP, UDP, ICMP nor all three, which is what IBM security groups know";
            return Err(unsupported(entry, why));
        }
        if matches!(traffic.dst_ports, Ports::Range { first: 0, .. }) {
            return Err(unsupported(entry, "names the port 0; in IBM security groups ports begin with 1"));
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
    let mut found = Gathered::default();
    let mut known = BTreeSet::new();
    for line in &note.list {
        let there: Vec<Rule> = line.rules().into_iter().filter(|rule| rules.contains_key(rule)).collect();
        let targets = there.iter().map(|rule| rule.prefix);
        found.add(line.0.clone(), lengthen(&line.1), targets, line.3.iter().cloned());
        known.extend(there);
    }
    for rule in rules.keys().filter(|rule| !known.contains(*rule)) {
        found.add(rule.strange_name(), rule.traffic(), [rule.prefix], []);
    }
    found.entries()
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
    let (strange, ours): (Vec<_>, Vec<_>) = entries_of(current, note).into_iter().partition(is_strange);
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
    use cloud_api::CloudErrorKind;
    use proptest::prelude::*;
    use testkit::lists;

    use super::*;
    use crate::shapes::samples::{group, open, rule as shown};

    fn entry(name: &str, port: u16, targets: &[&str], tags: &[&str]) -> PermitEntry {
        lists::entry(name, Direction::Inbound, (Protocol::TCP, Ports::one(port)), targets, tags)
    }

    /// What a group and its note are after a change, as IBM would show them.
    fn apply(rules: &mut Rules, note: &mut Note, change: &Change) {
        *note = change.first.clone().unwrap_or_else(|| note.clone());
        for rule in &change.open {
            let group = group("x", vec![shown(&format!("id {rule:?}"), &request_of(rule))]);
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
        let shown = request_of(rules.keys().next().unwrap());
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
        let seen: Vec<_> = seen.into_iter().filter(is_strange).collect();
        assert_eq!(plan(&rules, &note, &seen, &[]).unwrap().close, ["g/rules/hand"]);
    }

    proptest! {
        /// Whatever the lists, the change gives the wanted one, also in two pieces, and is then no change.
        #[test]
        fn lists_survive_the_way_through_ibm(a in lists::any(), b in lists::any()) {
            let (mut rules, mut note) = made(&a);
            prop_assert_eq!(entries_of(&rules, &note), a.clone());
            let stays = |entry: &PermitEntry| b.iter().any(|other| other.name == entry.name);
            let unset: Vec<_> = a.into_iter().filter(|entry| !stays(entry)).collect();
            let change = plan(&rules, &note, &unset, &b).unwrap();
            // Cut off before the last step: every rule still has an entry of ours.
            let (mut cut, mut cut_note) = (rules.clone(), note.clone());
            apply(&mut cut, &mut cut_note, &Change { close: vec![], last: None, ..change.clone() });
            prop_assert!(entries_of(&cut, &cut_note).iter().all(|one| !is_strange(one)));
            apply(&mut rules, &mut note, &change);
            prop_assert_eq!(entries_of(&rules, &note), b.clone());
            let text = serde_json::to_string(&note).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Note>(&text).unwrap(), &note);
            prop_assert_eq!(plan(&rules, &note, &unset, &b).unwrap(), Change::default());
        }
    }
}
