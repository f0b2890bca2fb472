//! Permit lists as firewalls. Pure.
//!
//! An entry is one firewall whose name is made from the resource and the entry; with more than 256 targets it is
//! several. The description holds the entry's own name and tags.

use std::collections::{BTreeMap, BTreeSet};

use cloud_api::{CloudError, CloudErrorKind};
use ipnet::IpNet;
use model::{Address, Direction, EntryName, PermitEntry, Ports, Protocol, Traffic};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::names::hash;

/// Ranges of one firewall.
const MOST_RANGES: usize = 256;
/// Google's bound on a description.
const LONGEST: usize = 2048;
/// Before the firewall that lets nothing out, after what an operator may want to deny.
pub const PRIORITY: u32 = 1000;
/// Of an instance that is attached: before the two firewalls that close it, which are before everything of its owner's but
/// what has this priority too. Of two with the same priority the one that denies decides.
pub const ATTACHED_PRIORITY: u32 = 0;
const CLOSING_PRIORITY: u32 = 1;
/// What the names of entries begin with that nobody here asked for.
pub const STRANGE: &str = "not-ours ";

#[derive(Serialize, Deserialize)]
struct Note {
    trestle: NoteBody,
}

#[derive(Serialize, Deserialize)]
struct NoteBody {
    owner: String,
    site: String,
    entry: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    /// Targets that the rule names itself, by their place in the ranges; all of them if it is `all`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    literal: Vec<usize>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    all: bool,
}

/// Where a resource's firewalls belong.
#[derive(Clone, Debug)]
pub struct Home {
    pub owner: String,
    pub site: String,
    /// What their names begin with.
    pub prefix: String,
    pub network: String,
    /// The resource's network tag.
    pub tag: String,
    pub priority: u32,
}

/// Firewalls by name.
pub type Firewalls = BTreeMap<String, Value>;

/// The firewalls that entries need. Refused if Google cannot express them or has no room for them.
pub fn firewalls_of(home: &Home, entries: &[PermitEntry]) -> Result<Firewalls, CloudError> {
    let mut firewalls = Firewalls::new();
    for entry in entries {
        let traffic = &entry.traffic;
        if traffic.src_ports != Ports::Any {
            let message = format!(
                "the entry {} names source ports, which Google's firewalls do not look at; leave them out",
                entry.name
            );
            return Err(CloudError::new(CloudErrorKind::Unsupported, message));
        }
        if let Some(v6) = entry.targets().iter().find(|target| matches!(target.net(), IpNet::V6(_))) {
            let message = format!(
                "the entry {} has the IPv6 target {v6}; networks of Trestle in Google Cloud are IPv4 only",
                entry.name
            );
            return Err(CloudError::new(CloudErrorKind::Unsupported, message));
        }
        let targets: Vec<Address> = entry.targets().iter().copied().collect();
        for (number, part) in targets.chunks(MOST_RANGES).enumerate() {
            let name = format!("{}-{}-{number}", home.prefix, hash(entry.name.as_str(), 10));
            firewalls.insert(name.clone(), firewall(home, &name, entry, part)?);
        }
    }
    Ok(firewalls)
}

fn firewall(home: &Home, name: &str, entry: &PermitEntry, targets: &[Address]) -> Result<Value, CloudError> {
    let texts: BTreeSet<String> = entry.targets().iter().map(ToString::to_string).collect();
    let literal: Vec<usize> =
        (0..targets.len()).filter(|place| entry.tags.contains(&targets[*place].to_string())).collect();
    let all = literal.len() == targets.len();
    let note = NoteBody {
        owner: home.owner.clone(),
        site: home.site.clone(),
        entry: entry.name.to_string(),
        tags: entry.tags.iter().filter(|tag| !texts.contains(*tag)).cloned().collect(),
        literal: if all { Vec::new() } else { literal },
        all,
    };
    let description = serde_json::to_string(&Note { trestle: note }).unwrap_or_default();
    if description.len() > LONGEST {
        return Err(CloudError::conflict(format!(
            "the name and the tags of the entry {} take {} characters; Google keeps {LONGEST} with a firewall. Use fewer tags in \
             one rule",
            entry.name,
            description.len()
        )));
    }
    let ranges: Vec<String> = targets.iter().map(|target| target.net().to_string()).collect();
    let (direction, field) = match entry.traffic.direction {
        Direction::Inbound => ("INGRESS", "sourceRanges"),
        Direction::Outbound => ("EGRESS", "destinationRanges"),
    };
    let mut allowed = json!({"IPProtocol": protocol(entry.traffic.protocol)});
    if let Ports::Range { first, last } = entry.traffic.dst_ports {
        let text = if first == last { first.to_string() } else { format!("{first}-{last}") };
        allowed["ports"] = json!([text]);
    }
    Ok(json!({
        "name": name,
        "network": home.network,
        "description": description,
        "direction": direction,
        "priority": home.priority,
        "disabled": false,
        "allowed": [allowed],
        field: ranges,
        "targetTags": [home.tag],
    }))
}

fn protocol(protocol: Protocol) -> String {
    match protocol {
        Protocol::Any => "all".to_owned(),
        Protocol::TCP => "tcp".to_owned(),
        Protocol::UDP => "udp".to_owned(),
        Protocol::ICMP => "icmp".to_owned(),
        Protocol::Number(50) => "esp".to_owned(),
        Protocol::Number(51) => "ah".to_owned(),
        Protocol::SCTP => "sctp".to_owned(),
        Protocol::Number(number) => number.to_string(),
    }
}

/// The list that firewalls stand for. One that cannot be read shows under its own name, with what it lets through.
pub fn entries_of<'f>(firewalls: impl IntoIterator<Item = &'f Value>) -> Vec<PermitEntry> {
    let mut found: BTreeMap<(String, Traffic), (BTreeSet<Address>, BTreeSet<String>)> = BTreeMap::new();
    for firewall in firewalls {
        if firewall["disabled"] == true {
            continue;
        }
        let note = firewall["description"].as_str().and_then(|text| serde_json::from_str::<Note>(text).ok());
        let (direction, field) = side(firewall);
        let ranges = firewall[field].as_array().into_iter().flatten();
        // In the order in which they were written, whatever Google made of it.
        let mut targets: Vec<Address> = ranges.filter_map(|range| range.as_str()?.parse().ok()).collect();
        targets.sort();
        for allowed in firewall["allowed"].as_array().into_iter().flatten() {
            let traffic = Traffic {
                direction,
                protocol: read_protocol(&allowed["IPProtocol"]),
                src_ports: Ports::Any,
                dst_ports: read_ports(&allowed["ports"]),
            };
            let name = match &note {
                Some(note) => note.trestle.entry.clone(),
                None => format!("{STRANGE}{}", firewall["name"].as_str().unwrap_or_default()),
            };
            let (entry, tags) = found.entry((name, traffic)).or_default();
            entry.extend(&targets);
            if let Some(Note { trestle: note }) = &note {
                tags.extend(note.tags.iter().cloned());
                let named =
                    targets.iter().enumerate().filter(|(place, _)| note.all || note.literal.contains(place));
                tags.extend(named.map(|(_, target)| target.to_string()));
            }
        }
    }
    let entry = |((name, traffic), (targets, tags))| {
        PermitEntry::new(EntryName::reported(name), traffic, targets, tags)
    };
    found.into_iter().filter_map(entry).collect()
}

/// A firewall's direction, and the field with the ranges of the other side.
pub fn side(firewall: &Value) -> (Direction, &'static str) {
    match firewall["direction"].as_str() {
        Some("EGRESS") => (Direction::Outbound, "destinationRanges"),
        _ => (Direction::Inbound, "sourceRanges"),
    }
}

fn read_protocol(value: &Value) -> Protocol {
    match value.as_str().unwrap_or_default() {
        "esp" => Protocol::Number(50),
        "ah" => Protocol::Number(51),
        "ipip" => Protocol::Number(94),
        other => other.parse().unwrap_or(Protocol::Any),
    }
}

/// Several ranges, which Trestle never writes, show as all ports from the lowest to the highest.
fn read_ports(value: &Value) -> Ports {
    let ranges: Vec<Ports> =
        value.as_array().into_iter().flatten().filter_map(|text| text.as_str()?.parse().ok()).collect();
    let bounds = ranges.iter().filter_map(|ports| match ports {
        Ports::Range { first, last } => Some((*first, *last)),
        Ports::Any => None,
    });
    bounds
        .reduce(|(a, b), (c, d)| (a.min(c), b.max(d)))
        .map_or(Ports::Any, |(first, last)| Ports::Range { first, last })
}

/// The two firewalls that close whatever has a tag, whatever else there is for it.
pub fn closing(tag: &str, network: &str, description: &str) -> Firewalls {
    let both = [("in", "INGRESS", "sourceRanges"), ("out", "EGRESS", "destinationRanges")];
    let firewall = |(suffix, direction, field): (&str, &str, &str)| {
        let name = format!("{tag}-{suffix}");
        let firewall = json!({
            "name": name,
            "network": network,
            "description": description,
            "direction": direction,
            "priority": CLOSING_PRIORITY,
            "disabled": false,
            "denied": [{"IPProtocol": "all"}],
            field: ["0.0.0.0/0"],
            "targetTags": [tag],
        });
        (name, firewall)
    };
    both.into_iter().map(firewall).collect()
}

/// What keeps an instance open whatever is closed for it, among the firewalls and policies that Google says are in force
/// for it. Policies of a network come first or last, as the network has it.
pub fn opening(effective: &Value, network: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is_ours = |firewall: &Value| crate::names::read(firewall).is_some();
    let firewalls = effective["firewalls"].as_array().into_iter().flatten();
    let mut firewalls = firewalls.filter(|one| one["disabled"] != true && !is_ours(one));
    let first = |one: &&Value| !one["allowed"].is_null() && one["priority"] == ATTACHED_PRIORITY;
    if let Some(firewall) = firewalls.find(first) {
        return Some(format!("the firewall {} with priority 0; give it 1 or more", text(&firewall["name"])));
    }
    let comes_first = |policy: &&Value| match policy["type"].as_str() {
        Some("NETWORK" | "NETWORK_REGIONAL") => {
            network["networkFirewallPolicyEnforcementOrder"] == "BEFORE_CLASSIC_FIREWALL"
        }
        Some("SYSTEM_GLOBAL" | "SYSTEM_REGIONAL") => false,
        _ => true,
    };
    let decides = |rule: &Value| {
        rule["disabled"] != true && !matches!(rule["action"].as_str(), Some("deny" | "goto_next") | None)
    };
    let policies = effective["firewallPolicys"].as_array().into_iter().flatten();
    let mut policies = policies.filter(comes_first);
    let policy = policies.find(|one| one["rules"].as_array().into_iter().flatten().any(decides))?;
    let name = [&policy["shortName"], &policy["displayName"], &policy["name"]].map(text);
    let name = name.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
    Some(format!("the firewall policy {name}, which permits before any firewall of a network is asked"))
}

/// Fields that make a firewall what it is.
const FIELDS: [&str; 9] = [
    "description",
    "direction",
    "priority",
    "disabled",
    "allowed",
    "denied",
    "sourceRanges",
    "destinationRanges",
    "targetTags",
];

/// What must change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    pub insert: Vec<Value>,
    pub update: Vec<Value>,
    pub delete: Vec<String>,
}

pub fn difference(current: &Firewalls, wanted: &Firewalls) -> Change {
    let mut change = Change::default();
    for (name, firewall) in wanted {
        match current.get(name) {
            None => change.insert.push(firewall.clone()),
            Some(there) if FIELDS.iter().any(|field| there[*field] != firewall[*field]) => {
                change.update.push(firewall.clone())
            }
            Some(_) => {}
        }
    }
    change.delete = current.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
    change
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn home() -> Home {
        Home {
            owner: "o".into(),
            site: "ns.gcp".into(),
            prefix: "t-abc-fw-xyz".into(),
            network: "n".into(),
            tag: "tag".into(),
            priority: PRIORITY,
        }
    }

    fn entry(name: &str, protocol: Protocol, targets: &[String], tags: &[String]) -> PermitEntry {
        let ports = if protocol == Protocol::TCP { Ports::Range { first: 80, last: 90 } } else { Ports::Any };
        let traffic = Traffic::new(Direction::Outbound, protocol, Ports::Any, ports).unwrap();
        let targets = targets.iter().map(|text| text.parse().unwrap()).collect();
        PermitEntry::new(EntryName::reported(name), traffic, targets, tags.iter().cloned().collect()).unwrap()
    }

    /// B5, B6: Google takes a firewall without ranges for one that is open to everybody.
    #[test]
    fn every_firewall_has_ranges_and_a_target() {
        let many: Vec<String> = (0..600).map(|n| format!("10.{}.{}.1", n / 250, n % 250)).collect();
        let firewalls = firewalls_of(&home(), &[entry("a", Protocol::Any, &many, &[])]).unwrap();
        assert_eq!(firewalls.len(), 3);
        for firewall in firewalls.values() {
            let count = firewall["destinationRanges"].as_array().unwrap().len();
            assert!((1..=MOST_RANGES).contains(&count));
            assert_eq!(firewall["targetTags"], json!(["tag"]));
        }
        assert_eq!(entries_of(firewalls.values()), [entry("a", Protocol::Any, &many, &[])]);
    }

    /// B17: any protocol is "all", not "-1".
    #[test]
    fn protocols_have_googles_names() {
        let targets = ["10.0.0.1".to_owned()];
        for (number, text) in [
            (Protocol::Any, "all"),
            (Protocol::TCP, "tcp"),
            (Protocol::Number(47), "47"),
            (Protocol::Number(50), "esp"),
        ] {
            let list = [entry("a", number, &targets, &[])];
            let firewalls = firewalls_of(&home(), &list).unwrap();
            assert_eq!(firewalls.values().next().unwrap()["allowed"][0]["IPProtocol"], text);
            assert_eq!(entries_of(firewalls.values()), list);
        }
    }

    #[test]
    fn what_google_cannot_do_is_refused_before_the_first_call() {
        let targets = ["10.0.0.1".to_owned()];
        let mut from = entry("a", Protocol::TCP, &targets, &[]);
        from.traffic.src_ports = Ports::one(53);
        assert_eq!(firewalls_of(&home(), &[from]).unwrap_err().kind, CloudErrorKind::Unsupported);
        let tags: Vec<String> = (0..40).map(|n| format!("{n}{}", "x".repeat(60))).collect();
        assert_eq!(
            firewalls_of(&home(), &[entry("a", Protocol::TCP, &targets, &tags)]).unwrap_err().kind,
            CloudErrorKind::Conflict
        );
        assert!(
            firewalls_of(&home(), &[entry("a", Protocol::TCP, &["2001:db8::1".to_owned()], &[])]).is_err()
        );
    }

    /// Lower numbers come first, and of equals the one that denies.
    #[test]
    fn permits_of_an_attached_instance_come_before_what_closes_it_and_that_before_its_owners() {
        let home = Home { priority: ATTACHED_PRIORITY, ..home() };
        let targets = ["10.0.0.1".to_owned()];
        let permits = firewalls_of(&home, &[entry("a", Protocol::TCP, &targets, &[])]).unwrap();
        let closed = closing("tag", "n", "");
        assert_eq!(closed.len(), 2);
        for (permit, close) in permits.values().flat_map(|one| closed.values().map(move |two| (one, two))) {
            assert!(permit["priority"].as_u64() < close["priority"].as_u64());
            assert_eq!(permit["targetTags"], close["targetTags"]);
        }
    }

    #[test]
    fn what_could_not_be_closed_is_seen() {
        let network = json!({"networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL"});
        let first = json!({"networkFirewallPolicyEnforcementOrder": "BEFORE_CLASSIC_FIREWALL"});
        let rule = |priority: u32, what: &str| json!({"firewalls": [{"name": "f", "priority": priority, what: [{}]}]});
        let policy = |kind: &str, action: &str| json!({"firewallPolicys": [{"type": kind, "shortName": "p", "rules": [{"action": action}]}]});
        for (effective, network, opens) in [
            (json!({}), &network, false),
            (rule(0, "allowed"), &network, true),
            (rule(1, "allowed"), &network, false),
            (rule(0, "denied"), &network, false),
            (policy("HIERARCHY", "allow"), &network, true),
            (policy("HIERARCHY", "goto_next"), &network, false),
            (policy("HIERARCHY", "deny"), &network, false),
            (policy("HIERARCHY", "apply_security_profile_group"), &network, true),
            (policy("NETWORK", "allow"), &network, false),
            (policy("NETWORK", "allow"), &first, true),
            (policy("SYSTEM_GLOBAL", "allow"), &first, false),
        ] {
            assert_eq!(opening(&effective, network).is_some(), opens, "{effective}");
        }
        let mut off = rule(0, "allowed");
        off["firewalls"][0]["disabled"] = true.into();
        assert_eq!(opening(&off, &network), None);
    }

    type Lists = BTreeMap<String, (bool, BTreeSet<u8>, bool)>;

    proptest! {
        #[test]
        fn lists_survive_the_way_through_google(
            a in proptest::collection::btree_map("[a-z]{1,2}", (any::<bool>(), proptest::collection::btree_set(1u8..6, 1..4), any::<bool>()), 0..5),
            b in proptest::collection::btree_map("[a-z]{1,2}", (any::<bool>(), proptest::collection::btree_set(1u8..6, 1..4), any::<bool>()), 0..5),
        ) {
            let list = |map: &Lists| -> Vec<PermitEntry> {
                map.iter().map(|(name, (tcp, hosts, literal))| {
                    let targets: Vec<String> = hosts.iter().map(|host| format!("10.0.0.{host}")).collect();
                    let tags = if *literal { targets[..1].to_vec() } else { vec!["some.tag".to_owned()] };
                    entry(name, if *tcp { Protocol::TCP } else { Protocol::Any }, &targets, &tags)
                }).collect()
            };
            let (current, wanted) = (firewalls_of(&home(), &list(&a)).unwrap(), firewalls_of(&home(), &list(&b)).unwrap());
            let change = difference(&current, &wanted);
            let mut applied = current;
            change.delete.iter().for_each(|name| { applied.remove(name); });
            for firewall in change.insert.iter().chain(&change.update) {
                applied.insert(firewall["name"].as_str().unwrap().to_owned(), firewall.clone());
            }
            prop_assert_eq!(&applied, &wanted);
            prop_assert_eq!(entries_of(applied.values()), list(&b));
            prop_assert_eq!(difference(&applied, &wanted), Change::default());
        }
    }
}
