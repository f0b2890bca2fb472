//! Permit lists as firewalls. Pure.
//!
//! An entry is one firewall whose name is made from the resource and the entry; with more than 256 targets it is
//! several. The mark holds the entry's own name and tags.

use std::collections::BTreeMap;

use cloud_api::{
    CloudError,
    rules::{Gathered, STRANGE, literal_in, no_source_ports, only_ipv4, span, tags_of},
};
use model::{Address, Direction, PermitEntry, Ports, Protocol};

use crate::{
    names::hash,
    shapes::{Effective, EffectivePolicy, Firewall, Flow, Link, Mark, Network, Remark, Rule, Traffic},
};

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

/// Where a resource's firewalls belong.
#[derive(Clone, Debug)]
pub struct Home {
    pub owner: String,
    pub site: String,
    /// What their names begin with.
    pub prefix: String,
    pub network: Link<Network>,
    /// The resource's network tag.
    pub tag: String,
    pub priority: u32,
}

/// Firewalls by name.
pub type Firewalls = BTreeMap<String, Firewall>;

/// The firewalls that entries need. Refused if Google cannot express them or has no room for them.
pub fn firewalls_of(home: &Home, entries: &[PermitEntry]) -> Result<Firewalls, CloudError> {
    let mut firewalls = Firewalls::new();
    for entry in entries {
        no_source_ports(entry, "Google's firewalls")?;
        only_ipv4(entry, "Google Cloud")?;
        let targets: Vec<Address> = entry.targets().iter().copied().collect();
        for (number, part) in targets.chunks(MOST_RANGES).enumerate() {
            let name = format!("{}-{}-{number}", home.prefix, hash(entry.name.as_str(), 10));
            firewalls.insert(name.clone(), firewall(home, &name, entry, part)?);
        }
    }
    Ok(firewalls)
}

fn firewall(
    home: &Home,
    name: &str,
    entry: &PermitEntry,
    targets: &[Address],
) -> Result<Firewall, CloudError> {
    let (literal, all) = literal_in(entry, targets);
    let description: Remark = Mark {
        owner: home.owner.clone(),
        site: home.site.clone(),
        entry: Some(entry.name.to_string()),
        tags: tags_of(entry),
        literal: if all { Vec::new() } else { literal },
        all,
        ..Mark::default()
    }
    .into();
    if description.len() > LONGEST {
        return Err(CloudError::conflict(format!(
            "the name and the tags of the entry {} take {} characters; Google keeps {LONGEST} with a firewall. Use fewer tags in \
             one rule",
            entry.name,
            description.len()
        )));
    }
    let direction = match entry.traffic.direction {
        Direction::Inbound => Flow::Ingress,
        Direction::Outbound => Flow::Egress,
    };
    let ports = match entry.traffic.dst_ports {
        Ports::Any => Vec::new(),
        Ports::Range { first, last } if first == last => vec![first.to_string()],
        Ports::Range { first, last } => vec![format!("{first}-{last}")],
    };
    Ok(Firewall {
        name: name.to_owned(),
        network: home.network.clone(),
        description,
        priority: home.priority,
        allowed: vec![Traffic { protocol: protocol(entry.traffic.protocol), ports }],
        target_tags: vec![home.tag.clone()],
        ..Firewall::towards(direction, targets.iter().map(|target| target.net().to_string()).collect())
    })
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
pub fn entries_of<'f>(firewalls: impl IntoIterator<Item = &'f Firewall>) -> Vec<PermitEntry> {
    let mut found = Gathered::default();
    for firewall in firewalls.into_iter().filter(|firewall| !firewall.disabled) {
        let mark = firewall.description.mark().unwrap_or_default();
        let name = mark.entry.clone().unwrap_or_else(|| format!("{STRANGE}{}", firewall.name));
        // In the order in which they were written, whatever Google made of it.
        let mut targets: Vec<Address> = targets(firewall).collect();
        targets.sort();
        for allowed in &firewall.allowed {
            let traffic = model::Traffic {
                direction: direction(firewall),
                protocol: read_protocol(&allowed.protocol),
                src_ports: Ports::Any,
                dst_ports: span(allowed.ports.iter().map(String::as_str)),
            };
            let named =
                targets.iter().enumerate().filter(|(place, _)| mark.all || mark.literal.contains(place));
            let tags = mark.tags.iter().cloned().chain(named.map(|(_, target)| target.to_string()));
            found.add(name.clone(), traffic, targets.iter().copied(), tags);
        }
    }
    found.entries()
}

pub(crate) fn direction(firewall: &Firewall) -> Direction {
    match firewall.direction {
        Flow::Ingress => Direction::Inbound,
        Flow::Egress => Direction::Outbound,
    }
}

pub(crate) fn targets(firewall: &Firewall) -> impl Iterator<Item = Address> {
    firewall.ranges().iter().filter_map(|range| range.parse().ok())
}

fn read_protocol(text: &str) -> Protocol {
    match text {
        "esp" => Protocol::Number(50),
        "ah" => Protocol::Number(51),
        "ipip" => Protocol::Number(94),
        other => other.parse().unwrap_or(Protocol::Any),
    }
}

/// The two firewalls that close whatever has a tag, whatever else there is for it.
pub fn closing(tag: &str, network: &Link<Network>, description: &Remark) -> Firewalls {
    let firewall = |(suffix, flow): (&str, Flow)| {
        let firewall = Firewall {
            name: format!("{tag}-{suffix}"),
            network: network.clone(),
            description: description.clone(),
            priority: CLOSING_PRIORITY,
            denied: vec![Traffic::all()],
            target_tags: vec![tag.to_owned()],
            ..Firewall::towards(flow, vec!["0.0.0.0/0".to_owned()])
        };
        (firewall.name.clone(), firewall)
    };
    [("in", Flow::Ingress), ("out", Flow::Egress)].into_iter().map(firewall).collect()
}

/// What keeps an instance open whatever is closed for it, among the firewalls and policies that Google says are in force
/// for it. Policies of a network come first or last, as the network has it.
pub(crate) fn opening(effective: &Effective, network: &Network) -> Option<String> {
    let first = |one: &&Firewall| {
        !one.disabled
            && one.description.mark().is_none()
            && !one.allowed.is_empty()
            && one.priority == ATTACHED_PRIORITY
    };
    if let Some(firewall) = effective.firewalls.iter().find(first) {
        return Some(format!("the firewall {} with priority 0; give it 1 or more", firewall.name));
    }
    let comes_first = |policy: &&EffectivePolicy| match policy.kind.as_str() {
        "NETWORK" | "NETWORK_REGIONAL" => network.policies_come_first(),
        "SYSTEM_GLOBAL" | "SYSTEM_REGIONAL" => false,
        _ => true,
    };
    let decides = |rule: &Rule| !rule.disabled && !matches!(rule.action.as_str(), "deny" | "goto_next");
    let mut policies = effective.policies.iter().filter(comes_first);
    let policy = policies.find(|one| one.rules.iter().any(decides))?;
    let names = [&policy.short_name, &policy.display_name, &policy.name];
    let name = names.into_iter().find(|name| !name.is_empty()).map_or("", String::as_str);
    Some(format!("the firewall policy {name}, which permits before any firewall of a network is asked"))
}

/// What must change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    pub insert: Vec<Firewall>,
    pub update: Vec<Firewall>,
    pub delete: Vec<String>,
}

pub fn difference(current: &Firewalls, wanted: &Firewalls) -> Change {
    let mut change = Change::default();
    for (name, firewall) in wanted {
        match current.get(name) {
            None => change.insert.push(firewall.clone()),
            Some(there) if !firewall.does_as(there) => change.update.push(firewall.clone()),
            Some(_) => {}
        }
    }
    change.delete = current.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
    change
}

#[cfg(test)]
pub(crate) mod tests {
    use cloud_api::CloudErrorKind;
    use proptest::prelude::*;
    use testkit::lists;

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
        lists::entry(name, Direction::Outbound, (protocol, ports), targets, tags)
    }

    /// Google takes a firewall without ranges for one that is open to everybody.
    #[test]
    fn every_firewall_has_ranges_and_a_target() {
        let many: Vec<String> = (0..600).map(|n| format!("10.{}.{}.1", n / 250, n % 250)).collect();
        let firewalls = firewalls_of(&home(), &[entry("a", Protocol::Any, &many, &[])]).unwrap();
        assert_eq!(firewalls.len(), 3);
        for firewall in firewalls.values() {
            assert!((1..=MOST_RANGES).contains(&firewall.destination_ranges.len()));
            assert_eq!(firewall.target_tags, ["tag"]);
        }
        assert_eq!(entries_of(firewalls.values()), [entry("a", Protocol::Any, &many, &[])]);
    }

    /// Any protocol is "all", not "-1".
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
            assert_eq!(firewalls.values().next().unwrap().allowed[0].protocol, text);
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
        let closed = closing("tag", &"n".into(), &Remark::default());
        assert_eq!(closed.len(), 2);
        for (permit, close) in permits.values().flat_map(|one| closed.values().map(move |two| (one, two))) {
            assert!(permit.priority < close.priority);
            assert_eq!(permit.target_tags, close.target_tags);
        }
    }

    #[test]
    fn what_could_not_be_closed_is_seen() {
        let network = |order: &str| Network {
            network_firewall_policy_enforcement_order: order.to_owned(),
            ..Network::default()
        };
        let (last, first) = (network("AFTER_CLASSIC_FIREWALL"), network("BEFORE_CLASSIC_FIREWALL"));
        let effective = |text: String| serde_json::from_str::<Effective>(&text).unwrap();
        let rule = |priority: u32, what: &str| {
            effective(format!(
                r#"{{"firewalls":[{{"name":"f","network":"n","priority":{priority},"{what}":[{{"IPProtocol":"all"}}]}}]}}"#
            ))
        };
        let policy = |kind: &str, action: &str| {
            effective(format!(
                r#"{{"firewallPolicys":[{{"type":"{kind}","shortName":"p","rules":[{{"action":"{action}"}}]}}]}}"#
            ))
        };
        for (effective, network, opens) in [
            (Effective::default(), &last, false),
            (rule(0, "allowed"), &last, true),
            (rule(1, "allowed"), &last, false),
            (rule(0, "denied"), &last, false),
            (policy("HIERARCHY", "allow"), &last, true),
            (policy("HIERARCHY", "goto_next"), &last, false),
            (policy("HIERARCHY", "deny"), &last, false),
            (policy("HIERARCHY", "apply_security_profile_group"), &last, true),
            (policy("NETWORK", "allow"), &last, false),
            (policy("NETWORK", "allow"), &first, true),
            (policy("SYSTEM_GLOBAL", "allow"), &first, false),
        ] {
            assert_eq!(opening(&effective, network).is_some(), opens, "{effective:?}");
        }
        let mut off = rule(0, "allowed");
        off.firewalls[0].disabled = true;
        assert_eq!(opening(&off, &last), None);
    }

    proptest! {
        #[test]
        fn lists_survive_the_way_through_google(a in lists::any(), b in lists::any()) {
            let (current, wanted) = (firewalls_of(&home(), &a).unwrap(), firewalls_of(&home(), &b).unwrap());
            let change = difference(&current, &wanted);
            let mut applied = current;
            change.delete.iter().for_each(|name| { applied.remove(name); });
            for firewall in change.insert.iter().chain(&change.update) {
                applied.insert(firewall.name.clone(), firewall.clone());
            }
            prop_assert_eq!(&applied, &wanted);
            prop_assert_eq!(entries_of(applied.values()), b);
            prop_assert_eq!(difference(&applied, &wanted), Change::default());
        }
    }
}
