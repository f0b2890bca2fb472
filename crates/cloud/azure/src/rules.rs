//! Permit lists as the rules of a network security group. Pure.
//!
//! An entry is one rule with all its targets. The rule's description holds the entry's own name and tags; where that is
//! longer than Azure keeps, the entry has more rules that permit the same and hold the rest. A rule keeps its priority
//! for as long as it lives. Below all others come rules that every list of a kind of resource has, and that are no entries
//! (`base`): they deny everything else.

use std::collections::{BTreeMap, BTreeSet};

use cloud_api::{CloudError, CloudErrorKind};
use cloud_http::letters;
use ipnet::{IpNet, Ipv4Net};
use model::{Address, Direction, EntryName, PermitEntry, Ports, Protocol, Traffic};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Azure's bounds, per group: rules, and prefixes of all rules on one side.
const MOST_RULES: usize = 1000;
const MOST_PREFIXES: usize = 4000;
/// Azure's bound on a rule's description.
const LONGEST: usize = 140;
const FIRST_PRIORITY: u32 = 100;
/// The first that entries never have.
const BASE_PRIORITY: u32 = 4080;
/// What entries that nobody here made are called, before the rule's own name.
const STRANGE: &str = "not-ours ";

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

fn words(direction: Direction) -> (&'static str, &'static str, &'static str) {
    match direction {
        Direction::Inbound => ("Inbound", "source", "destination"),
        Direction::Outbound => ("Outbound", "destination", "source"),
    }
}

/// The rules that entries need, given the rules that are there and those that always are. What somebody else put there
/// stays, unless it is an entry to delete. Refused if Azure cannot express the entries or has no room for them.
pub fn rules_of(
    current: &[Value],
    entries: &[PermitEntry],
    base: &[Value],
) -> Result<Vec<Value>, CloudError> {
    let strange = |name: &str| entries.iter().any(|entry| entry.name.as_str() == format!("{STRANGE}{name}"));
    let is_deny = |rule: &Value| rule["properties"]["access"] == "Deny";
    let place_of = |rule: &Value| (rule["properties"]["direction"].clone(), priority(rule));
    let is_in_place = |rule: &Value| base.iter().any(|own| place_of(own) == place_of(rule));
    let mut rules: Vec<Value> = current
        .iter()
        .filter(|rule| !is_ours(rule) && !is_in_place(rule))
        .filter(|rule| is_deny(rule) || strange(rule["name"].as_str().unwrap_or_default()))
        .cloned()
        .collect();
    let mut wanted = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.name.as_str().starts_with(STRANGE)) {
        wanted.extend(rules_of_entry(entry)?);
    }
    place(&mut rules, current, wanted);
    rules.extend_from_slice(base);
    check_room(&rules)?;
    Ok(rules)
}

fn is_ours(rule: &Value) -> bool {
    rule["name"].as_str().is_some_and(|name| name.starts_with("t-"))
}

fn priority(rule: &Value) -> u32 {
    rule["properties"]["priority"].as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

/// Gives each rule a priority that nobody else of its direction has: the one it had, or the first that is free.
fn place(rules: &mut Vec<Value>, current: &[Value], wanted: Vec<Value>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let direction = |rule: &Value| text(&rule["properties"]["direction"]);
    let key = |rule: &Value| (text(&rule["name"]), direction(rule));
    let had: BTreeMap<_, u32> = current.iter().map(|rule| (key(rule), priority(rule))).collect();
    let old = |rule: &Value| had.get(&key(rule)).copied();
    let mut taken: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for rule in rules.iter() {
        taken.entry(direction(rule)).or_default().insert(priority(rule));
    }
    for rule in &wanted {
        taken.entry(direction(rule)).or_default().extend(old(rule));
    }
    for mut rule in wanted {
        let taken = taken.entry(direction(&rule)).or_default();
        let free = || (FIRST_PRIORITY..BASE_PRIORITY).find(|number| !taken.contains(number));
        // A thousand rules at most find room in four thousand priorities; more are refused below.
        let number = old(&rule).or_else(free).unwrap_or(BASE_PRIORITY - 1);
        taken.insert(number);
        rule["properties"]["priority"] = number.into();
        rules.push(rule);
    }
}

fn check_room(rules: &[Value]) -> Result<(), CloudError> {
    if rules.len() > MOST_RULES {
        return Err(CloudError::conflict(format!(
            "the permit list takes {} rules of a network security group, and Azure has room for {MOST_RULES}; use fewer \
             rules, or fewer tags in one",
            rules.len()
        )));
    }
    for side in ["source", "destination"] {
        let count: usize = rules.iter().map(|rule| prefixes(rule, side).len()).sum();
        if count > MOST_PREFIXES {
            return Err(CloudError::conflict(format!(
                "the permit list has {count} {side} prefixes, and a network security group of Azure has room for \
                 {MOST_PREFIXES}; permit larger networks instead of single addresses"
            )));
        }
    }
    Ok(())
}

fn rules_of_entry(entry: &PermitEntry) -> Result<Vec<Value>, CloudError> {
    let unsupported = |what: String| {
        let message = format!("the entry {} {what}", entry.name);
        Err(CloudError::new(CloudErrorKind::Unsupported, message))
    };
    if let Some(v6) = entry.targets().iter().find(|target| matches!(target.net(), IpNet::V6(_))) {
        return unsupported(format!("has the IPv6 target {v6}; networks of Trestle in Azure are IPv4 only"));
    }
    let Some(protocol) = protocol(entry.traffic.protocol) else {
        let number = entry.traffic.protocol;
        return unsupported(format!(
            "permits the protocol {number}; Azure's rules know TCP, UDP, ICMP, ESP, AH, or all of them"
        ));
    };
    let (direction, side, other) = words(entry.traffic.direction);
    let prefixes: Vec<String> = entry.targets().iter().map(|target| target.net().to_string()).collect();
    let note: Vec<char> = note(entry).chars().collect();
    let rule = |(number, part): (usize, &[char])| {
        json!({"name": format!("t-{}-{number}", letters(entry.name.as_str(), 16)), "properties": {
            "description": part.iter().collect::<String>(),
            "direction": direction, "access": "Allow", "protocol": protocol,
            format!("{side}AddressPrefixes"): prefixes, format!("{other}AddressPrefix"): "*",
            "sourcePortRange": range(entry.traffic.src_ports), "destinationPortRange": range(entry.traffic.dst_ports),
        }})
    };
    Ok(note.chunks(LONGEST).enumerate().map(rule).collect())
}

fn note(entry: &PermitEntry) -> String {
    let texts: Vec<String> = entry.targets().iter().map(ToString::to_string).collect();
    let literal: Vec<usize> = (0..texts.len()).filter(|place| entry.tags.contains(&texts[*place])).collect();
    let tags = entry.tags.iter().filter(|tag| !texts.contains(tag)).cloned().collect();
    let literal = match literal.len() {
        0 => Literal::All(false),
        all if all == texts.len() => Literal::All(true),
        _ => Literal::Some(literal),
    };
    serde_json::to_string(&Note(entry.name.to_string(), tags, literal)).unwrap_or_default()
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
pub fn entries_of(rules: &[Value], base: &[Value]) -> Vec<PermitEntry> {
    let mut parts: BTreeMap<(&str, String), BTreeMap<usize, &Value>> = BTreeMap::new();
    let mut entries = Vec::new();
    let is_base = |rule: &&Value| base.iter().any(|own| shape(own, true) == shape(rule, true));
    let told = rules.iter().filter(|rule| rule["properties"]["access"] == "Allow" && !is_base(rule));
    for rule in told {
        let name = rule["name"].as_str().unwrap_or_default();
        let numbered = name.rsplit_once('-').and_then(|(base, number)| Some((base, number.parse().ok()?)));
        match numbered {
            Some((base, number)) if is_ours(rule) => {
                // What a rule lets through is part of the key: rules that differ are not one entry.
                parts.entry((base, shape(rule, false).to_string())).or_default().insert(number, rule);
            }
            _ => entries.extend(strange_entry(name, rule)),
        }
    }
    for rules in parts.values() {
        let text: String =
            rules.values().filter_map(|rule| rule["properties"]["description"].as_str()).collect();
        let Some(rule) = rules.values().next() else { continue };
        match serde_json::from_str::<Note>(&text) {
            Ok(note) => entries.extend(entry(note, rule)),
            Err(_) => entries.extend(strange_entry(rule["name"].as_str().unwrap_or_default(), rule)),
        }
    }
    for own in base {
        let wanted = shape(own, true);
        if rules.iter().any(|rule| shape(rule, true) == wanted) {
            continue;
        }
        let name = format!("missing {}", own["name"].as_str().unwrap_or_default());
        entries.extend(match own["properties"]["access"] == "Deny" {
            true => open_entry(&name, traffic(own).direction),
            false => strange_entry(&name, own),
        });
    }
    entries
}

/// Everything is let through in a direction.
pub fn open_entry(name: &str, direction: Direction) -> Option<PermitEntry> {
    let traffic = Traffic::new(direction, Protocol::Any, Ports::Any, Ports::Any).ok()?;
    let all = [Address::from(IpNet::V4(Ipv4Net::default()))].into();
    PermitEntry::new(EntryName::reported(format!("{STRANGE}{name}")), traffic, all, BTreeSet::new())
}

fn entry(Note(name, tags, literal): Note, rule: &Value) -> Option<PermitEntry> {
    let (traffic, targets) = (traffic(rule), targets(rule));
    let named = targets.iter().enumerate().filter(|(place, _)| match &literal {
        Literal::All(all) => *all,
        Literal::Some(places) => places.contains(place),
    });
    let tags = tags.into_iter().chain(named.map(|(_, target)| target.to_string())).collect();
    PermitEntry::new(EntryName::reported(name), traffic, targets.clone(), tags)
}

fn strange_entry(name: &str, rule: &Value) -> Option<PermitEntry> {
    let name = EntryName::reported(format!("{STRANGE}{name}"));
    PermitEntry::new(name, traffic(rule), targets(rule), BTreeSet::new())
}

fn traffic(rule: &Value) -> Traffic {
    let properties = &rule["properties"];
    let direction = match properties["direction"].as_str() {
        Some("Outbound") => Direction::Outbound,
        _ => Direction::Inbound,
    };
    let protocol = match properties["protocol"].as_str().unwrap_or_default().to_ascii_lowercase().as_str() {
        "tcp" => Protocol::TCP,
        "udp" => Protocol::UDP,
        "icmp" => Protocol::ICMP,
        "esp" => Protocol::Number(50),
        "ah" => Protocol::Number(51),
        _ => Protocol::Any,
    };
    Traffic {
        direction,
        protocol,
        src_ports: read_ports(&both(rule, "sourcePortRange")),
        dst_ports: read_ports(&both(rule, "destinationPortRange")),
    }
}

/// Prefixes and ports may stand alone or in a list, or in both.
fn both(rule: &Value, field: &str) -> BTreeSet<String> {
    let properties = &rule["properties"];
    let plural = if field.ends_with("Prefix") { format!("{field}es") } else { format!("{field}s") };
    let alone = properties[field].as_str().filter(|text| !text.is_empty());
    let listed = properties[plural.as_str()].as_array().into_iter().flatten().filter_map(Value::as_str);
    alone.into_iter().chain(listed).map(str::to_owned).collect()
}

fn prefixes(rule: &Value, side: &str) -> BTreeSet<String> {
    both(rule, &format!("{side}AddressPrefix"))
}

/// The other side's addresses; what Azure calls by a name of its own counts as everything.
fn targets(rule: &Value) -> BTreeSet<Address> {
    let side = if rule["properties"]["direction"] == "Outbound" { "destination" } else { "source" };
    let all = || Address::from(IpNet::V4(Ipv4Net::default()));
    prefixes(rule, side).iter().map(|text| text.parse().unwrap_or_else(|_| all())).collect()
}

/// Several ranges, which Trestle never writes, show as all ports from the lowest to the highest.
fn read_ports(ranges: &BTreeSet<String>) -> Ports {
    let read = |text: &String| match text.parse() {
        Ok(Ports::Range { first, last }) => Some((first, last)),
        _ => None,
    };
    let bounds: Option<Vec<(u16, u16)>> = ranges.iter().map(read).collect();
    let joined = bounds.into_iter().flatten().reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
    joined.map_or(Ports::Any, |(first, last)| Ports::Range { first, last })
}

/// What makes a rule what it is, whichever way it was written; with its place and its words, or without.
fn shape(rule: &Value, whole: bool) -> Value {
    let properties = &rule["properties"];
    let lower = |field: &str| properties[field].as_str().unwrap_or_default().to_ascii_lowercase();
    let mut shape = json!([
        lower("direction"),
        lower("access"),
        lower("protocol"),
        prefixes(rule, "source"),
        prefixes(rule, "destination"),
        both(rule, "sourcePortRange"),
        both(rule, "destinationPortRange"),
    ]);
    if let (true, Value::Array(parts)) = (whole, &mut shape) {
        parts.extend([
            rule["name"].clone(),
            properties["priority"].clone(),
            properties["description"].clone(),
        ]);
    }
    shape
}

/// Whether rules are the wanted ones, in any order and any way of writing.
pub fn is_same(current: &[Value], wanted: &[Value]) -> bool {
    let shapes = |rules: &[Value]| -> BTreeSet<String> {
        rules.iter().map(|rule| shape(rule, true).to_string()).collect()
    };
    current.len() == wanted.len() && shapes(current) == shapes(wanted)
}

mod base;

pub use base::{border, closed};

#[cfg(test)]
mod tests;
