//! The firewalls around a cluster that are no entries of its list. Pure.
//!
//! Google's own firewalls for a cluster, and those that its controllers make when somebody inside asks for a load balancer,
//! allow with the priority 1000. These deny before them, and what is open stands before these.

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use crate::rules::{ATTACHED_PRIORITY, Firewalls, closing};

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

/// The first part of a cluster whose nodes the fence is not for.
pub(crate) fn untagged(cluster: &Value, tag: &str) -> Option<String> {
    let has = |tags: &Value| tags.as_array().is_some_and(|tags| tags.iter().any(|one| one == tag));
    if cluster["autopilot"]["enabled"] == true {
        let tags = &cluster["nodePoolAutoConfig"]["networkTags"]["tags"];
        return (!has(tags)).then(|| "the autopilot".to_owned());
    }
    let mut pools = cluster["nodePools"].as_array().into_iter().flatten();
    let without = pools.find(|pool| !has(&pool["config"]["tags"]))?;
    Some(format!("the pool {}", without["name"].as_str().unwrap_or_default()))
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
        assert_eq!(untagged(&both, "t").unwrap(), "the pool p");
        assert_eq!(untagged(&json!({"nodePools": [pool(json!(["t"]))]}), "t"), None);
        let auto = json!({"autopilot": {"enabled": true}, "nodePools": [pool(json!([]))]});
        assert!(untagged(&auto, "t").is_some());
    }
}
