//! The firewalls around a cluster that are no entries of its list. Pure.
//!
//! Google's own firewalls for a cluster, and those that its controllers make when somebody inside asks for a load balancer,
//! allow with the priority 1000. These deny before them, and what is open stands before these.

use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net};
use model::{Address, Direction, EntryName, PermitEntry, Ports, Protocol, Traffic};
use serde_json::{Value, json};

use crate::rules::{ATTACHED_PRIORITY, Firewalls, STRANGE, closing, difference, side};

/// `restricted.googleapis.com`: Google's APIs, of those only the ones that a service perimeter can guard, without the
/// internet.
pub(crate) const GOOGLE: &str = "199.36.153.4/30";

/// Deny everything; but for what is inside, and HTTPS to Google's APIs, without which no node comes up.
pub(crate) fn fence(tag: &str, network: &str, description: &str, space: Ipv4Net) -> Firewalls {
    let open = |suffix: &str, direction: &str, field: &str, allowed: Value, range: &str| {
        let name = format!("{tag}-{suffix}");
        let firewall = json!({
            "name": name,
            "network": network,
            "description": description,
            "direction": direction,
            "priority": ATTACHED_PRIORITY,
            "disabled": false,
            "allowed": [allowed],
            field: [range],
            "targetTags": [tag],
        });
        (name, firewall)
    };
    let (all, space) = (json!({"IPProtocol": "all"}), space.to_string());
    let https = json!({"IPProtocol": "tcp", "ports": ["443"]});
    let mut firewalls = closing(tag, network, description);
    firewalls.extend([
        open("from", "INGRESS", "sourceRanges", all.clone(), &space),
        open("to", "EGRESS", "destinationRanges", all, &space),
        open("google", "EGRESS", "destinationRanges", https, GOOGLE),
    ]);
    firewalls
}

/// The parts of a cluster whose nodes the fence is not for.
pub(crate) fn untagged(cluster: &Value, tag: &str) -> Vec<String> {
    let has = |tags: &Value| tags.as_array().is_some_and(|tags| tags.iter().any(|one| one == tag));
    if cluster["autopilot"]["enabled"] == true {
        let tags = &cluster["nodePoolAutoConfig"]["networkTags"]["tags"];
        return if has(tags) { Vec::new() } else { vec!["the autopilot".to_owned()] };
    }
    let pools = cluster["nodePools"].as_array().into_iter().flatten();
    let without = pools.filter(|pool| !has(&pool["config"]["tags"]));
    without.map(|pool| format!("the pool {}", pool["name"].as_str().unwrap_or_default())).collect()
}

fn strange(what: &str, direction: Direction, targets: BTreeSet<Address>) -> Option<PermitEntry> {
    let traffic = Traffic::new(direction, Protocol::Any, Ports::Any, Ports::Any).ok()?;
    let all = Address::from(IpNet::V4(Ipv4Net::default()));
    let targets = if targets.is_empty() { [all].into() } else { targets };
    PermitEntry::new(EntryName::reported(format!("{STRANGE}{what}")), traffic, targets, BTreeSet::new())
}

/// What is not as it should be with a fence, as entries that nobody asked for: firewalls that are missing, or are others.
pub(crate) fn gaps_told(current: &Firewalls, wanted: &Firewalls) -> Vec<PermitEntry> {
    let change = difference(current, wanted);
    let told = |before: &str, firewall: &Value| {
        let (direction, field) = side(firewall);
        let targets = firewall[field].as_array().into_iter().flatten();
        let targets = targets.filter_map(|range| range.as_str()?.parse().ok()).collect();
        strange(&format!("{before}{}", firewall["name"].as_str().unwrap_or_default()), direction, targets)
    };
    let missing = change.insert.iter().filter_map(|firewall| told("missing ", firewall));
    let updated = change.update.iter().filter_map(|firewall| firewall["name"].as_str());
    let other = updated.chain(change.delete.iter().map(String::as_str)).filter_map(|name| current.get(name));
    missing.chain(other.filter_map(|firewall| told("", firewall))).collect()
}

/// The same of nodes that the fence is not for: to them everything may be open.
pub(crate) fn untagged_told(cluster: &Value, tag: &str) -> Vec<PermitEntry> {
    let both = [Direction::Inbound, Direction::Outbound];
    let told = |part: String| {
        both.map(|direction| {
            strange(&format!("{direction} at {part} without {tag}"), direction, BTreeSet::new())
        })
    };
    untagged(cluster, tag).into_iter().flat_map(told).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_denies_everything_but_the_inside_and_googles_apis() {
        let firewalls = fence("t", "n", "d", "10.4.0.0/16".parse().unwrap());
        assert_eq!(firewalls.len(), 5);
        let denied: Vec<&Value> = firewalls.values().filter(|one| !one["denied"].is_null()).collect();
        assert_eq!(denied.len(), 2);
        for open in firewalls.values().filter(|one| !one["allowed"].is_null()) {
            assert!(denied.iter().all(|deny| open["priority"].as_u64() < deny["priority"].as_u64()));
            let ranges = [&open["sourceRanges"], &open["destinationRanges"]];
            assert!(ranges.iter().any(|list| **list == json!(["10.4.0.0/16"]) || **list == json!([GOOGLE])));
        }
        assert!(firewalls.values().all(|one| one["targetTags"] == json!(["t"])));
    }

    #[test]
    fn nodes_without_the_tag_are_seen() {
        let pool = |tags: Value| json!({"name": "p", "config": {"tags": tags}});
        let both = json!({"nodePools": [pool(json!(["t", "x"])), pool(json!(["x"]))]});
        assert_eq!(untagged(&both, "t"), ["the pool p"]);
        assert_eq!(untagged_told(&both, "t").len(), 2);
        assert_eq!(untagged_told(&json!({"nodePools": [pool(json!(["t"]))]}), "t"), []);
        let auto = json!({"autopilot": {"enabled": true}, "nodePools": [pool(json!([]))]});
        assert_eq!(untagged(&auto, "t").len(), 1);
    }

    #[test]
    fn gaps_are_entries_that_nobody_asked_for() {
        let wanted = fence("t", "n", "d", "10.4.0.0/16".parse().unwrap());
        assert_eq!(gaps_told(&wanted, &wanted), []);
        let mut there = wanted.clone();
        there.remove("t-from");
        there.get_mut("t-out").unwrap()["disabled"] = true.into();
        there.insert("t-more".to_owned(), json!({"name": "t-more", "direction": "INGRESS"}));
        let names: Vec<String> =
            gaps_told(&there, &wanted).iter().map(|entry| entry.name.to_string()).collect();
        assert_eq!(names, ["not-ours missing t-from", "not-ours t-out", "not-ours t-more"]);
    }
}
