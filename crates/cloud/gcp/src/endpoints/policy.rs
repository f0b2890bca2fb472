//! Permit lists of endpoints as rules of a firewall policy. Pure.
//!
//! A rule is an entry's firewall, said of the senders: what would be its source is the rule's source, the endpoint is
//! its destination, and instead of letting through it hands over to the sender's own firewalls.

use std::{collections::BTreeMap, net::IpAddr};

use cloud_api::CloudError;
use ipnet::Ipv4Net;
use model::{PermitEntry, Segment};

use crate::{
    mark::{Mark, Remark},
    rules::{Home, entries_of, firewalls_of},
    shapes::{Firewall, Flow, Layer4, Match, Policy, Rule},
};

/// Rules of lists come before those that close.
const FIRST_ENTRY: u64 = 1_000;
const FIRST_DENY: u64 = 1_000_000;

/// A rule that keeps everybody from a network of endpoints.
pub(crate) fn deny(mark: Mark, space: Ipv4Net) -> Rule {
    Rule {
        description: mark.into(),
        direction: Flow::Egress,
        action: "deny".to_owned(),
        matched: Match {
            dest_ip_ranges: vec![space.to_string()],
            layer4_configs: vec![Layer4 { ip_protocol: "all".to_owned(), ports: Vec::new() }],
            ..Match::default()
        },
        ..Rule::default()
    }
}

/// The network that a rule closes, if it is such a rule, in force and whole.
pub(crate) fn closed(rule: &Rule) -> Option<(Segment, Ipv4Net)> {
    let mark = rule.description.mark()?;
    let [space] = rule.matched.dest_ip_ranges.as_slice() else { return None };
    let space = space.parse().ok()?;
    let whole = deny(mark.clone(), space).matched;
    let is_whole =
        rule.matched.layer4_configs == whole.layer4_configs && rule.matched.src_ip_ranges.is_empty();
    let is_so = rule.action == "deny" && rule.direction == Flow::Egress && !rule.disabled;
    Some((mark.region.filter(|_| is_so && is_whole)?, space))
}

/// The lowest free priority of a kind of rule.
fn free(taken: &[u64], from: u64) -> u64 {
    (from..).find(|number| !taken.contains(number)).unwrap_or(from)
}

fn taken(policy: &Policy) -> Vec<u64> {
    policy.rules.iter().map(|rule| rule.priority).collect()
}

/// A rule that closes, with a priority that is free.
pub(crate) fn placed(policy: &Policy, deny: Rule) -> Rule {
    Rule { priority: free(&taken(policy), FIRST_DENY), ..deny }
}

/// The rules of one endpoint's list: by their name, or because they are for its address alone.
pub(crate) fn of_endpoint<'p>(
    policy: &'p Policy,
    prefix: &'p str,
    address: Option<IpAddr>,
) -> impl Iterator<Item = &'p Rule> {
    policy.rules.iter().filter(move |rule| {
        let is_aimed = address.is_some() && destination(rule) == address;
        (rule.rule_name.starts_with(prefix) || is_aimed) && rule.action != "deny"
    })
}

/// The one address that a rule is for. It may be written with its mask or without.
fn destination(rule: &Rule) -> Option<IpAddr> {
    let [only] = rule.matched.dest_ip_ranges.as_slice() else { return None };
    only.strip_suffix("/32").unwrap_or(only).parse().ok()
}

fn rule_of(firewall: Firewall, address: IpAddr) -> Rule {
    Rule {
        rule_name: firewall.name,
        description: firewall.description,
        direction: Flow::Egress,
        action: "goto_next".to_owned(),
        matched: Match {
            src_ip_ranges: firewall.source_ranges,
            dest_ip_ranges: vec![format!("{address}/32")],
            layer4_configs: firewall.allowed.into_iter().map(Layer4::from).collect(),
            ..Match::default()
        },
        ..Rule::default()
    }
}

/// The same as a firewall. One that does more than hand over is nobody's entry.
fn firewall_of(rule: &Rule, address: IpAddr) -> Firewall {
    let applies = !rule.disabled && rule.direction == Flow::Egress && destination(rule) == Some(address);
    let is_entry = rule.action == "goto_next";
    Firewall {
        name: rule.rule_name.clone(),
        description: if is_entry { rule.description.clone() } else { Remark::default() },
        disabled: !applies,
        allowed: rule.matched.layer4_configs.iter().cloned().map(Into::into).collect(),
        ..Firewall::towards(Flow::Ingress, rule.matched.src_ip_ranges.clone())
    }
}

/// The list that a policy has for an endpoint.
pub fn entries(policy: &Policy, prefix: &str, address: IpAddr) -> Vec<PermitEntry> {
    let firewalls: Vec<Firewall> =
        of_endpoint(policy, prefix, Some(address)).map(|rule| firewall_of(rule, address)).collect();
    entries_of(&firewalls)
}

/// What must change in a policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    pub add: Vec<Rule>,
    /// With the priority of the rule that is replaced.
    pub patch: Vec<(u64, Rule)>,
    pub remove: Vec<u64>,
}

/// So that an endpoint's list is as wanted.
pub fn difference(
    policy: &Policy,
    home: &Home,
    address: IpAddr,
    list: &[PermitEntry],
) -> Result<Change, CloudError> {
    let mut change = Change::default();
    let mut wanted: BTreeMap<String, Rule> = firewalls_of(home, list)?
        .into_iter()
        .map(|(name, firewall)| (name, rule_of(firewall, address)))
        .collect();
    for rule in of_endpoint(policy, &home.prefix, Some(address)) {
        match wanted.remove(&rule.rule_name) {
            None => change.remove.push(rule.priority),
            Some(new) if (Rule { priority: rule.priority, ..new.clone() }) != *rule => {
                change.patch.push((rule.priority, new));
            }
            Some(_) => {}
        }
    }
    let mut taken = taken(policy);
    for rule in wanted.into_values() {
        let priority = free(&taken, FIRST_ENTRY);
        taken.push(priority);
        change.add.push(Rule { priority, ..rule });
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{Direction, EntryName, Ports, Protocol, Traffic};

    use super::*;
    use crate::rules::tests::home;

    fn entry(name: &str, targets: &[&str]) -> PermitEntry {
        let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(443)).unwrap();
        let targets = targets.iter().map(|text| text.parse().unwrap()).collect();
        PermitEntry::new(EntryName::reported(name), traffic, targets, BTreeSet::new()).unwrap()
    }

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 8, 0, 5));

    /// A policy with Google's own last rule and an endpoint's list.
    fn policy(list: &[PermitEntry]) -> Policy {
        let last = r#"{"priority":2147483647,"action":"goto_next","direction":"EGRESS","match":{"srcIpRanges":["0.0.0.0/0"]}}"#;
        let mut policy = Policy { rules: vec![serde_json::from_str(last).unwrap()], ..Policy::default() };
        let mut rules = difference(&policy, &home(), ADDRESS, list).unwrap().add;
        rules.append(&mut policy.rules);
        Policy { rules, ..policy }
    }

    #[test]
    fn lists_survive_the_way_through_a_policy() {
        let (a, b, c) =
            (entry("a", &["10.0.0.1"]), entry("b", &["10.0.0.2", "10.1.0.0/16"]), entry("c", &["10.0.0.3"]));
        let there = policy(&[a.clone(), b.clone()]);
        assert_eq!(entries(&there, &home().prefix, ADDRESS), [a.clone(), b.clone()]);
        assert_eq!(difference(&there, &home(), ADDRESS, &[a.clone(), b]).unwrap(), Change::default());
        let changed = entry("a", &["10.0.0.9"]);
        let change = difference(&there, &home(), ADDRESS, &[changed, c]).unwrap();
        assert_eq!((change.add.len(), change.patch.len(), change.remove.len()), (1, 1, 1));
        assert_eq!(change.add[0].priority, 1_002, "no two rules have one priority");
    }

    #[test]
    fn addresses_without_masks_are_read() {
        let list = [entry("a", &["10.0.0.1"])];
        let mut there = policy(&list);
        there.rules[0].matched.src_ip_ranges = vec!["10.0.0.1".to_owned()];
        there.rules[0].matched.dest_ip_ranges = vec!["10.8.0.5".to_owned()];
        assert_eq!(entries(&there, &home().prefix, ADDRESS), list);
    }

    #[test]
    fn a_rule_that_was_meddled_with_is_no_entry() {
        let list = [entry("a", &["10.0.0.1"])];
        let meddled: [fn(&mut Rule); 4] = [
            |rule| rule.disabled = true,
            |rule| rule.action = "deny".to_owned(),
            |rule| rule.direction = Flow::Ingress,
            |rule| rule.matched.dest_ip_ranges = vec!["10.8.0.6/32".to_owned()],
        ];
        for (number, meddle) in meddled.into_iter().enumerate() {
            let mut there = policy(&list);
            meddle(&mut there.rules[0]);
            assert_eq!(entries(&there, &home().prefix, ADDRESS), [], "{number}");
        }
        // One that lets through by itself is wider than the entry.
        let mut there = policy(&list);
        there.rules[0].action = "allow".to_owned();
        let shown = entries(&there, &home().prefix, ADDRESS);
        assert!(shown.len() == 1 && shown[0].name.as_str().starts_with("not-ours"), "{shown:?}");
    }

    #[test]
    fn only_a_whole_deny_closes_a_network() {
        let mark = Mark { region: Some("us-west1-endpoints".parse().unwrap()), ..Mark::default() };
        let space: Ipv4Net = "10.8.0.0/16".parse().unwrap();
        let rule = deny(mark, space);
        assert_eq!(closed(&rule), Some(("us-west1-endpoints".parse().unwrap(), space)));
        let meddled: [fn(&mut Rule); 6] = [
            |rule| rule.disabled = true,
            |rule| rule.action = "goto_next".to_owned(),
            |rule| rule.direction = Flow::Ingress,
            |rule| rule.matched.layer4_configs[0].ip_protocol = "tcp".to_owned(),
            |rule| rule.matched.src_ip_ranges.push("10.0.0.1".to_owned()),
            |rule| rule.matched.dest_ip_ranges.clear(),
        ];
        for (number, meddle) in meddled.into_iter().enumerate() {
            let mut rule = rule.clone();
            meddle(&mut rule);
            assert_eq!(closed(&rule), None, "{number}");
        }
    }

    /// Somebody narrows a rule of ours with something that the plugin does not know: it is put right.
    #[test]
    fn conditions_that_are_not_ours_are_seen() {
        let list = [entry("a", &["10.0.0.1"])];
        let mut there = policy(&list);
        there.rules[0].matched.rest.insert("srcRegionCodes".to_owned(), vec!["US"].into());
        let change = difference(&there, &home(), ADDRESS, &list).unwrap();
        assert_eq!((change.add.len(), change.patch.len(), change.remove.len()), (0, 1, 0));
    }
}
