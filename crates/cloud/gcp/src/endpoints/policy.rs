//! Permit lists of endpoints as rules of a firewall policy. Pure.
//!
//! A rule is an entry's firewall, said of the senders: what would be its source is the rule's source, the endpoint is
//! its destination, and instead of letting through it hands over to the sender's own firewalls.

use std::{collections::BTreeMap, net::IpAddr};

use cloud_api::CloudError;
use ipnet::Ipv4Net;
use model::{PermitEntry, Segment};
use serde_json::{Value, json};

use crate::{
    names,
    rules::{Home, entries_of, firewalls_of},
};

/// Rules of lists come before those that close.
const FIRST_ENTRY: u64 = 1_000;
const FIRST_DENY: u64 = 1_000_000;
/// Fields that make a rule what it is.
const FIELDS: [&str; 6] = ["ruleName", "description", "direction", "action", "disabled", "match"];

/// A rule that keeps everybody from a network of endpoints.
pub(crate) fn deny(mark: names::Mark, space: Ipv4Net) -> Value {
    json!({
        "description": names::write(mark),
        "direction": "EGRESS",
        "action": "deny",
        "disabled": false,
        "match": {"destIpRanges": [space.to_string()], "layer4Configs": [{"ipProtocol": "all"}]},
    })
}

/// The network that a rule closes, if it is such a rule, in force and whole.
pub(crate) fn closed(rule: &Value) -> Option<(Segment, Ipv4Net)> {
    let (region, matched) = (names::read(rule)?.region?, &rule["match"]);
    let everything = matched["layer4Configs"] == json!([{"ipProtocol": "all"}])
        && matched["srcIpRanges"].as_array().is_none_or(Vec::is_empty);
    let [space] = matched["destIpRanges"].as_array()?.as_slice() else { return None };
    let is_so = rule["action"] == "deny" && rule["direction"] == "EGRESS" && rule["disabled"] != true;
    (is_so && everything).then_some((region, space.as_str()?.parse().ok()?))
}

pub(crate) fn rules_in(policy: &Value) -> impl Iterator<Item = &Value> {
    policy["rules"].as_array().into_iter().flatten()
}

pub(crate) fn priority(rule: &Value) -> u64 {
    rule["priority"].as_u64().unwrap_or_default()
}

/// The lowest free priority of a kind of rule.
fn free(taken: &[u64], from: u64) -> u64 {
    (from..).find(|number| !taken.contains(number)).unwrap_or(from)
}

/// With a priority that is free.
pub(crate) fn placed(policy: &Value, mut rule: Value) -> Value {
    let taken: Vec<u64> = rules_in(policy).map(priority).collect();
    let from = if rule["action"] == "deny" { FIRST_DENY } else { FIRST_ENTRY };
    rule["priority"] = free(&taken, from).into();
    rule
}

/// The rules of one endpoint's list: by their name, or because they are for its address alone.
pub(crate) fn of_endpoint<'p>(
    policy: &'p Value,
    prefix: &'p str,
    address: Option<IpAddr>,
) -> impl Iterator<Item = &'p Value> {
    rules_in(policy).filter(move |rule| {
        let named = rule["ruleName"].as_str().is_some_and(|name| name.starts_with(prefix));
        let aimed = address.is_some() && destination(rule) == address;
        (named || aimed) && rule["action"] != "deny"
    })
}

/// The one address that a rule is for. It may be written with its mask or without.
fn destination(rule: &Value) -> Option<IpAddr> {
    let [only] = rule["match"]["destIpRanges"].as_array()?.as_slice() else { return None };
    let text = only.as_str()?;
    text.strip_suffix("/32").unwrap_or(text).parse().ok()
}

fn rule_of(firewall: &Value, address: IpAddr) -> Value {
    let config = |allowed: &Value| {
        let mut config = json!({"ipProtocol": allowed["IPProtocol"]});
        if !allowed["ports"].is_null() {
            config["ports"] = allowed["ports"].clone();
        }
        config
    };
    let configs: Vec<Value> = firewall["allowed"].as_array().into_iter().flatten().map(config).collect();
    json!({
        "ruleName": firewall["name"],
        "description": firewall["description"],
        "direction": "EGRESS",
        "action": "goto_next",
        "disabled": false,
        "match": {"srcIpRanges": firewall["sourceRanges"], "destIpRanges": [format!("{address}/32")], "layer4Configs": configs},
    })
}

/// The same as a firewall. One that does more than hand over is nobody's entry.
fn firewall_of(rule: &Value, address: IpAddr) -> Value {
    let allowed = |config: &Value| json!({"IPProtocol": config["ipProtocol"], "ports": config["ports"]});
    let configs = rule["match"]["layer4Configs"].as_array().into_iter().flatten();
    let applies =
        rule["disabled"] != true && rule["direction"] == "EGRESS" && destination(rule) == Some(address);
    json!({
        "name": rule["ruleName"],
        "description": if rule["action"] == "goto_next" { rule["description"].clone() } else { Value::Null },
        "direction": "INGRESS",
        "disabled": !applies,
        "allowed": configs.map(allowed).collect::<Vec<_>>(),
        "sourceRanges": rule["match"]["srcIpRanges"],
    })
}

/// The list that a policy has for an endpoint.
pub fn entries(policy: &Value, prefix: &str, address: IpAddr) -> Vec<PermitEntry> {
    let firewalls: Vec<Value> =
        of_endpoint(policy, prefix, Some(address)).map(|rule| firewall_of(rule, address)).collect();
    entries_of(&firewalls)
}

/// What must change in a policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    pub add: Vec<Value>,
    /// With the priority of the rule that is replaced.
    pub patch: Vec<(u64, Value)>,
    pub remove: Vec<u64>,
}

/// So that an endpoint's list is as wanted.
pub fn difference(
    policy: &Value,
    home: &Home,
    address: IpAddr,
    list: &[PermitEntry],
) -> Result<Change, CloudError> {
    let mut change = Change::default();
    let mut wanted: BTreeMap<String, Value> = firewalls_of(home, list)?
        .into_iter()
        .map(|(name, firewall)| (name, rule_of(&firewall, address)))
        .collect();
    for rule in of_endpoint(policy, &home.prefix, Some(address)) {
        match rule["ruleName"].as_str().and_then(|name| wanted.remove(name)) {
            None => change.remove.push(priority(rule)),
            Some(new) if FIELDS.iter().any(|field| new[*field] != rule[*field]) => {
                change.patch.push((priority(rule), new));
            }
            Some(_) => {}
        }
    }
    let mut taken: Vec<u64> = rules_in(policy).map(priority).collect();
    for (_, mut rule) in wanted {
        let number = free(&taken, FIRST_ENTRY);
        taken.push(number);
        rule["priority"] = number.into();
        change.add.push(rule);
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
    fn policy(list: &[PermitEntry]) -> Value {
        let last = json!({"priority": 2_147_483_647_u64, "action": "goto_next", "match": {"srcIpRanges": ["0.0.0.0/0"]}});
        let bare = json!({"rules": [last]});
        let mut rules = difference(&bare, &home(), ADDRESS, list).unwrap().add;
        rules.push(bare["rules"][0].clone());
        json!({ "rules": rules })
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
        assert_eq!(change.add[0]["priority"], 1_002, "no two rules have one priority");
    }

    /// B17: an address without its mask is an address.
    #[test]
    fn addresses_without_masks_are_read() {
        let list = [entry("a", &["10.0.0.1"])];
        let mut there = policy(&list);
        there["rules"][0]["match"]["srcIpRanges"] = json!(["10.0.0.1"]);
        there["rules"][0]["match"]["destIpRanges"] = json!(["10.8.0.5"]);
        assert_eq!(entries(&there, &home().prefix, ADDRESS), list);
    }

    #[test]
    fn a_rule_that_was_meddled_with_is_no_entry() {
        let list = [entry("a", &["10.0.0.1"])];
        for (field, value) in
            [("disabled", json!(true)), ("action", json!("deny")), ("direction", json!("INGRESS"))]
        {
            let mut there = policy(&list);
            there["rules"][0][field] = value;
            assert_eq!(entries(&there, &home().prefix, ADDRESS), [], "{field}");
        }
        let mut there = policy(&list);
        there["rules"][0]["match"]["destIpRanges"] = json!(["10.8.0.6/32"]);
        assert_eq!(entries(&there, &home().prefix, ADDRESS), [], "for another address");
        // One that lets through by itself is wider than the entry.
        there = policy(&list);
        there["rules"][0]["action"] = "allow".into();
        let shown = entries(&there, &home().prefix, ADDRESS);
        assert!(shown.len() == 1 && shown[0].name.as_str().starts_with("not-ours"), "{shown:?}");
    }

    #[test]
    fn only_a_whole_deny_closes_a_network() {
        let mark =
            names::Mark { region: Some("us-west1-endpoints".parse().unwrap()), ..names::Mark::default() };
        let space: Ipv4Net = "10.8.0.0/16".parse().unwrap();
        let rule = deny(mark, space);
        assert_eq!(closed(&rule), Some(("us-west1-endpoints".parse().unwrap(), space)));
        for (path, value) in [
            ("/disabled", json!(true)),
            ("/action", json!("goto_next")),
            ("/direction", json!("INGRESS")),
            ("/match/layer4Configs", json!([{"ipProtocol": "tcp"}])),
            ("/match/destIpRanges", json!([])),
        ] {
            let mut meddled = rule.clone();
            *meddled.pointer_mut(path).unwrap() = value;
            assert_eq!(closed(&meddled), None, "{path}");
        }
    }
}
