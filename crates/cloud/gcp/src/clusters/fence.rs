//! The firewalls around a cluster that are no entries of its list. Pure.
//!
//! Google's own firewalls for a cluster, and those that its controllers make when somebody inside asks for a load balancer,
//! allow with the priority 1000. These deny before them, and what is open stands before these.

use std::collections::BTreeSet;

use cloud_api::rules::{open, strange};
use ipnet::Ipv4Net;
use model::{Direction, PermitEntry};

use crate::{
    rules::{ATTACHED_PRIORITY, Firewalls, closing, difference, direction, targets},
    shapes::{Cluster, Firewall, Flow, Link, Network, Pool, Remark, Traffic},
};

/// `restricted.googleapis.com`: Google's APIs, of those only the ones that a service perimeter can guard, without the
/// internet.
pub(crate) const GOOGLE: &str = "199.36.153.4/30";

/// Deny everything; but for what is inside, and HTTPS to Google's APIs, without which no node comes up.
pub(crate) fn fence(tag: &str, network: &Link<Network>, description: &Remark, space: Ipv4Net) -> Firewalls {
    let opening = |suffix: &str, flow: Flow, allowed: Traffic, range: String| {
        let firewall = Firewall {
            name: format!("{tag}-{suffix}"),
            network: network.clone(),
            description: description.clone(),
            priority: ATTACHED_PRIORITY,
            allowed: vec![allowed],
            target_tags: vec![tag.to_owned()],
            ..Firewall::towards(flow, vec![range])
        };
        (firewall.name.clone(), firewall)
    };
    let https = Traffic { protocol: "tcp".to_owned(), ports: vec!["443".to_owned()] };
    let mut firewalls = closing(tag, network, description);
    firewalls.extend([
        opening("from", Flow::Ingress, Traffic::all(), space.to_string()),
        opening("to", Flow::Egress, Traffic::all(), space.to_string()),
        opening("google", Flow::Egress, https, GOOGLE.to_owned()),
    ]);
    firewalls
}

/// The parts of a cluster whose nodes the fence is not for.
pub(crate) fn untagged(cluster: &Cluster, tag: &str) -> Vec<String> {
    let has = |tags: &[String]| tags.iter().any(|one| one == tag);
    if cluster.autopilot.enabled {
        let tags = &cluster.node_pool_auto_config.network_tags.tags;
        return if has(tags) { Vec::new() } else { vec!["the autopilot".to_owned()] };
    }
    let without = |pool: &&Pool| !has(&pool.config.tags);
    cluster.node_pools.iter().filter(without).map(|pool| format!("the pool {}", pool.name)).collect()
}

/// What is not as it should be with a fence, as entries that nobody asked for: firewalls that are missing, or are others.
pub(crate) fn gaps_told(current: &Firewalls, wanted: &Firewalls) -> Vec<PermitEntry> {
    let change = difference(current, wanted);
    let told = |before: &str, firewall: &Firewall| {
        let (name, targets) =
            (format!("{before}{}", firewall.name), targets(firewall).collect::<BTreeSet<_>>());
        let all = open(&name, direction(firewall))?;
        if targets.is_empty() { Some(all) } else { strange(&name, all.traffic, targets) }
    };
    let missing = change.insert.iter().filter_map(|firewall| told("missing ", firewall));
    let updated = change.update.iter().map(|firewall| &firewall.name);
    let other = updated.chain(&change.delete).filter_map(|name| current.get(name));
    missing.chain(other.filter_map(|firewall| told("", firewall))).collect()
}

/// The same of nodes that the fence is not for: to them everything may be open.
pub(crate) fn untagged_told(cluster: &Cluster, tag: &str) -> Vec<PermitEntry> {
    let both = [Direction::Inbound, Direction::Outbound];
    let told =
        |part: String| both.map(|direction| open(&format!("{direction} at {part} without {tag}"), direction));
    untagged(cluster, tag).into_iter().flat_map(told).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence_of_t() -> Firewalls {
        fence("t", &"n".into(), &Remark::default(), "10.4.0.0/16".parse().unwrap())
    }

    #[test]
    fn a_fence_denies_everything_but_the_inside_and_googles_apis() {
        let firewalls = fence_of_t();
        assert_eq!(firewalls.len(), 5);
        let denied: Vec<&Firewall> = firewalls.values().filter(|one| !one.denied.is_empty()).collect();
        assert_eq!(denied.len(), 2);
        for open in firewalls.values().filter(|one| !one.allowed.is_empty()) {
            assert!(denied.iter().all(|deny| open.priority < deny.priority));
            assert!(open.ranges() == ["10.4.0.0/16"] || open.ranges() == [GOOGLE]);
        }
        assert!(firewalls.values().all(|one| one.target_tags == ["t"]));
    }

    #[test]
    fn nodes_without_the_tag_are_seen() {
        let cluster = |more: &str| -> Cluster {
            serde_json::from_str(&format!(r#"{{"name":"c","location":"l",{more}}}"#)).unwrap()
        };
        let pool = |tags: &str| format!(r#"{{"name":"p","config":{{"tags":{tags}}}}}"#);
        let pools = |pools: &[String]| format!(r#""nodePools":[{}]"#, pools.join(","));
        let both = cluster(&pools(&[pool(r#"["t","x"]"#), pool(r#"["x"]"#)]));
        assert_eq!(untagged(&both, "t"), ["the pool p"]);
        assert_eq!(untagged_told(&both, "t").len(), 2);
        assert_eq!(untagged_told(&cluster(&pools(&[pool(r#"["t"]"#)])), "t"), []);
        let auto = cluster(&format!(r#""autopilot":{{"enabled":true}},{}"#, pools(&[pool("[]")])));
        assert_eq!(untagged(&auto, "t").len(), 1);
    }

    #[test]
    fn gaps_are_entries_that_nobody_asked_for() {
        let wanted = fence_of_t();
        assert_eq!(gaps_told(&wanted, &wanted), []);
        let mut there = wanted.clone();
        there.remove("t-from");
        there.get_mut("t-out").unwrap().disabled = true;
        there.insert("t-more".to_owned(), Firewall { name: "t-more".to_owned(), ..Firewall::default() });
        let names: Vec<String> =
            gaps_told(&there, &wanted).iter().map(|entry| entry.name.to_string()).collect();
        assert_eq!(names, ["not-ours missing t-from", "not-ours t-out", "not-ours t-more"]);
    }
}
