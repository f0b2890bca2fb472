//! Permit lists as the rules of a network security group. Pure.
//!
//! An entry is one rule with all its targets. The rule's description holds the entry's own name and tags; where that is
//! longer than Azure keeps, the entry has more rules that permit the same and hold the rest. A rule keeps its priority
//! for as long as it lives. Below all others come rules that every list of a kind of resource has, and that are no entries
//! (`base`): they deny everything else.

use std::collections::{BTreeMap, BTreeSet};

pub use cloud_api::rules::open as open_entry;
use cloud_api::{
    CloudError,
    rules::{STRANGE, is_strange, literal_in, only_ipv4, strange, tags_of, unsupported},
};
use cloud_http::letters;
use model::{Address, Direction, EntryName, PermitEntry, Ports, Protocol};
use serde::{Deserialize, Serialize};

use crate::types::{Child, RuleProperties};

/// A rule of a network security group.
pub type Rule = Child<RuleProperties>;

/// Azure's bounds, per group: rules, and prefixes of all rules on one side.
const MOST_RULES: usize = 1000;
const MOST_PREFIXES: usize = 4000;
/// Azure's bound on a rule's description.
const LONGEST: usize = 140;
const FIRST_PRIORITY: u32 = 100;
/// The first that entries never have.
const BASE_PRIORITY: u32 = 4080;

/// Targets that the rule names itself: all, or some by their place in the ordered targets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Literal {
    All(bool),
    Some(Vec<usize>),
}

/// What an entry's descriptions hold together.
#[derive(Debug, Serialize, Deserialize)]
struct Note(String, Vec<String>, Literal);

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Inbound => "Inbound",
        Direction::Outbound => "Outbound",
    }
}

/// The rules that entries need, given the rules that are there and those that always are. What somebody else put there
/// stays, unless it is an entry to delete. Refused if Azure cannot express the entries or has no room for them.
pub fn rules_of(current: &[Rule], entries: &[PermitEntry], base: &[Rule]) -> Result<Vec<Rule>, CloudError> {
    let is_kept = |name: &str| entries.iter().any(|entry| entry.name.as_str() == format!("{STRANGE}{name}"));
    let place_of = |rule: &Rule| (rule.direction(), rule.properties.priority);
    let is_in_place = |rule: &Rule| base.iter().any(|own| place_of(own) == place_of(rule));
    let mut rules: Vec<Rule> = current
        .iter()
        .filter(|rule| !rule.is_ours() && !is_in_place(rule))
        .filter(|rule| rule.is("Deny") || is_kept(&rule.name))
        .cloned()
        .collect();
    let mut wanted = Vec::new();
    for entry in entries.iter().filter(|entry| !is_strange(entry)) {
        wanted.extend(rules_of_entry(entry)?);
    }
    place(&mut rules, current, wanted);
    rules.extend_from_slice(base);
    check_room(&rules)?;
    Ok(rules)
}

/// Gives each rule a priority that nobody else of its direction has: the one it had, or the first that is free.
fn place(rules: &mut Vec<Rule>, current: &[Rule], wanted: Vec<Rule>) {
    let key = |rule: &Rule| (rule.name.clone(), rule.direction());
    let had: BTreeMap<_, u32> = current.iter().map(|rule| (key(rule), rule.properties.priority)).collect();
    let old = |rule: &Rule| had.get(&key(rule)).copied();
    let mut taken: BTreeMap<Direction, BTreeSet<u32>> = BTreeMap::new();
    for rule in rules.iter() {
        taken.entry(rule.direction()).or_default().insert(rule.properties.priority);
    }
    for rule in &wanted {
        taken.entry(rule.direction()).or_default().extend(old(rule));
    }
    for mut rule in wanted {
        let taken = taken.entry(rule.direction()).or_default();
        let free = || (FIRST_PRIORITY..BASE_PRIORITY).find(|number| !taken.contains(number));
        // A thousand rules at most find room in four thousand priorities; more are refused below.
        rule.properties.priority = old(&rule).or_else(free).unwrap_or(BASE_PRIORITY - 1);
        taken.insert(rule.properties.priority);
        rules.push(rule);
    }
}

fn check_room(rules: &[Rule]) -> Result<(), CloudError> {
    if rules.len() > MOST_RULES {
        return Err(CloudError::conflict(format!(
            "the permit list takes {} rules of a network security group, and Azure has room for {MOST_RULES}; use fewer \
             rules, or fewer tags in one",
            rules.len()
        )));
    }
    let sources: usize = rules.iter().map(|rule| rule.properties.sources().len()).sum();
    let destinations: usize = rules.iter().map(|rule| rule.properties.destinations().len()).sum();
    for (side, count) in [("source", sources), ("destination", destinations)] {
        if count > MOST_PREFIXES {
            return Err(CloudError::conflict(format!(
                "the permit list has {count} {side} prefixes, and a network security group of Azure has room for \
                 {MOST_PREFIXES}; permit larger networks instead of single addresses"
            )));
        }
    }
    Ok(())
}

fn rules_of_entry(entry: &PermitEntry) -> Result<Vec<Rule>, CloudError> {
    only_ipv4(entry, "Azure")?;
    let Some(protocol) = protocol(entry.traffic.protocol) else {
        let number = entry.traffic.protocol;
        let why = format!(
            "permits the protocol {number}; Azure's rules know TCP, UDP, ICMP, ESP, AH, or all of them"
        );
        return Err(unsupported(entry, why));
    };
    let targets: Vec<String> = entry.targets().iter().map(|target| target.net().to_string()).collect();
    let mut properties = RuleProperties {
        direction: word(entry.traffic.direction).to_owned(),
        access: "Allow".to_owned(),
        protocol: protocol.to_owned(),
        source_port_range: Some(range(entry.traffic.src_ports)),
        destination_port_range: Some(range(entry.traffic.dst_ports)),
        ..RuleProperties::default()
    };
    let all = Some("*".to_owned());
    match entry.traffic.direction {
        Direction::Inbound => {
            (properties.source_address_prefixes, properties.destination_address_prefix) =
                (Some(targets), all);
        }
        Direction::Outbound => {
            (properties.destination_address_prefixes, properties.source_address_prefix) =
                (Some(targets), all);
        }
    }
    let note: Vec<char> = note(entry).chars().collect();
    let rule = |(number, part): (usize, &[char])| Rule {
        name: format!("t-{}-{number}", letters(entry.name.as_str(), 16)),
        properties: RuleProperties { description: Some(part.iter().collect()), ..properties.clone() },
    };
    Ok(note.chunks(LONGEST).enumerate().map(rule).collect())
}

fn note(entry: &PermitEntry) -> String {
    let targets: Vec<Address> = entry.targets().iter().copied().collect();
    let literal = match literal_in(entry, &targets) {
        (literal, _) if literal.is_empty() => Literal::All(false),
        (_, true) => Literal::All(true),
        (literal, false) => Literal::Some(literal),
    };
    serde_json::to_string(&Note(entry.name.to_string(), tags_of(entry), literal)).unwrap_or_default()
}

fn protocol(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Any => Some("*"),
        Protocol::TCP => Some("Tcp"),
        Protocol::UDP => Some("Udp"),
        Protocol::ICMP => Some("Icmp"),
        Protocol::Number(50) => Some("Esp"),
        Protocol::Number(51) => Some("Ah"),
        Protocol::Number(_) => None,
    }
}

fn range(ports: Ports) -> String {
    match ports {
        Ports::Any => "*".to_owned(),
        Ports::Range { first, last } if first == last => first.to_string(),
        Ports::Range { first, last } => format!("{first}-{last}"),
    }
}

/// The list that rules stand for, apart from those that always are. A rule of somebody else that lets something through
/// shows under its own name. So does one of ours that is missing: one that denies the rest, as what Azure then lets
/// through; another, as itself.
pub fn entries_of(rules: &[Rule], base: &[Rule]) -> Vec<PermitEntry> {
    let mut parts: BTreeMap<(&str, Shape<'_>), BTreeMap<usize, &Rule>> = BTreeMap::new();
    let mut entries = Vec::new();
    let [there, always] = [rules, base].map(whole);
    for rule in rules.iter().filter(|rule| rule.is("Allow") && !always.contains(&rule.whole())) {
        let numbered =
            rule.name.rsplit_once('-').and_then(|(base, number)| Some((base, number.parse().ok()?)));
        match numbered {
            Some((base, number)) if rule.is_ours() => {
                // What a rule lets through is part of the key: rules that differ are not one entry.
                parts.entry((base, rule.properties.shape())).or_default().insert(number, rule);
            }
            _ => entries.extend(strange_entry(&rule.name, rule)),
        }
    }
    for rules in parts.values() {
        let text: String = rules.values().filter_map(|rule| rule.properties.description.as_deref()).collect();
        let Some(rule) = rules.values().next() else { continue };
        match serde_json::from_str::<Note>(&text) {
            Ok(note) => entries.extend(entry(note, rule)),
            Err(_) => entries.extend(strange_entry(&rule.name, rule)),
        }
    }
    for own in base.iter().filter(|own| !there.contains(&own.whole())) {
        let name = format!("missing {}", own.name);
        entries.extend(match own.is("Deny") {
            true => open_entry(&name, own.direction()),
            false => strange_entry(&name, own),
        });
    }
    entries
}

fn entry(Note(name, tags, literal): Note, rule: &Rule) -> Option<PermitEntry> {
    let targets = rule.targets();
    let named = targets.iter().enumerate().filter(|(place, _)| match &literal {
        Literal::All(all) => *all,
        Literal::Some(places) => places.contains(place),
    });
    let tags = tags.into_iter().chain(named.map(|(_, target)| target.to_string())).collect();
    PermitEntry::new(EntryName::reported(name), rule.traffic(), targets.clone(), tags)
}

fn strange_entry(name: &str, rule: &Rule) -> Option<PermitEntry> {
    strange(name, rule.traffic(), rule.targets())
}

fn whole(rules: &[Rule]) -> BTreeSet<Whole<'_>> {
    rules.iter().map(Rule::whole).collect()
}

/// Whether rules are the wanted ones, in any order and any way of writing.
pub fn is_same(current: &[Rule], wanted: &[Rule]) -> bool {
    current.len() == wanted.len() && whole(current) == whole(wanted)
}

mod base;
mod rule;

pub use base::{border, closed};
use rule::{Shape, Whole};

#[cfg(test)]
mod tests;
