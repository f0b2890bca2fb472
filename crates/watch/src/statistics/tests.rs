use std::sync::Arc;

use model::policy::{
    Kind,
    output::{Change, Detail, Direction, PolicySource, PolicyUpdate, Rule, RuleDetail, Update},
};
use serde_json::Value;

use super::*;
use crate::{Cache, proto};

fn policy(kind: Kind, namespace: &str, name: &str, rules: &[&str]) -> Update {
    let uid = Identifier::parse(&format!("uid-{name}"));
    let rule = |name: &&str| Rule {
        direction: Direction::In,
        action: None,
        priority: 0,
        enable_logging: false,
        address_groups: Vec::new(),
        applied_to_groups: Vec::new(),
        detail: Detail::from(RuleDetail { name: (*name).into(), ..RuleDetail::default() }),
    };
    let source = PolicySource { kind, namespace: namespace.into(), name: name.into(), uid: uid.clone() };
    Update::NetworkPolicy(PolicyUpdate {
        uid: uid.clone(),
        change: Change::Added,
        content_changed: true,
        policy: Arc::new(NetworkPolicy {
            uid,
            generation: 1,
            source,
            tier_priority: None,
            priority: None,
            rules: rules.iter().map(rule).collect(),
            applied_to_groups: Vec::new(),
            applied_to_per_rule: false,
        }),
        span_added: ["n1".into(), "n2".into()].into_iter().collect(),
        span_removed: Default::default(),
    })
}

fn traffic(packets: i64) -> TrafficStats {
    TrafficStats { packets, bytes: packets.saturating_mul(100), sessions: 1 }
}

fn said(policy: &str, traffic_stats: TrafficStats, rules: &[(&str, i64)]) -> PolicyStats {
    let rule = |(name, packets): &(&str, i64)| RuleTrafficStats {
        name: (*name).into(),
        traffic_stats: traffic(*packets),
    };
    PolicyStats {
        network_policy: proto::SourceRef { uid: format!("uid-{policy}"), ..Default::default() },
        traffic_stats,
        rule_traffic_stats: rules.iter().map(rule).collect(),
    }
}

fn cache() -> Cache {
    let cache = Cache::new(1);
    cache.apply([
        policy(Kind::NetworkPolicy, "shop", "k", &[]),
        policy(Kind::AntreaNetworkPolicy, "shop", "a", &["first", "second"]),
        policy(Kind::AntreaClusterNetworkPolicy, "", "c", &["only"]),
        policy(Kind::NetworkPolicy, "far", "k2", &[]),
    ]);
    cache.set_synced();
    cache
}

fn listed(cache: &Cache, resource: StatsResource, namespace: Option<&str>, encoding: Encoding) -> Value {
    serde_json::from_slice(&cache.statistics(resource, namespace, 5_000, encoding).unwrap()).unwrap()
}

#[test]
fn counts_of_nodes_are_added_up_by_policy_and_by_rule() {
    let cache = cache();
    for node in ["n1", "n2", "n1"] {
        let summary = proto::NodeStatsSummary {
            network_policies: vec![said("k", traffic(2), &[])],
            antrea_network_policies: vec![said("a", TrafficStats::default(), &[("first", 3), ("nobody", 9)])],
            antrea_cluster_network_policies: vec![said("c", TrafficStats::default(), &[("only", 1)])],
            ..Default::default()
        };
        cache.count(node, &summary, 2_000);
    }
    let of = |resource| listed(&cache, resource, None, Encoding::Json)["items"].clone();
    let kubernetes = of(StatsResource::NetworkPolicy);
    assert_eq!(kubernetes[0]["metadata"]["name"], "k2");
    assert_eq!(kubernetes[0]["trafficStats"], serde_json::json!({}));
    assert_eq!(kubernetes[1]["trafficStats"], serde_json::json!({"packets": 6, "bytes": 600, "sessions": 3}));
    assert_eq!(kubernetes[1]["metadata"]["creationTimestamp"], "1970-01-01T00:00:02Z");
    let antrea = of(StatsResource::AntreaNetworkPolicy);
    assert_eq!(antrea[0]["trafficStats"]["packets"], 9);
    assert_eq!(antrea[0]["ruleTrafficStats"].as_array().unwrap().len(), 1);
    assert_eq!(antrea[0]["ruleTrafficStats"][0]["name"], "first");
    assert_eq!(of(StatsResource::AntreaClusterNetworkPolicy)[0]["trafficStats"]["packets"], 3);
    let table = listed(&cache, StatsResource::NetworkPolicy, Some("shop"), Encoding::Table);
    assert_eq!(table["rows"][0]["cells"], serde_json::json!(["k", 3, 6, 600, "1970-01-01T00:00:02Z"]));
    assert_eq!(table["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn nodes_can_neither_count_for_others_nor_make_a_count_wrap() {
    let cache = cache();
    let report = |node: &str, packets: i64| {
        let summary = proto::NodeStatsSummary {
            network_policies: vec![said("k", traffic(packets), &[]), said("gone", traffic(1), &[])],
            ..Default::default()
        };
        cache.count(node, &summary, 1);
    };
    report("elsewhere", 7);
    report("n1", -7);
    report("n1", i64::MAX);
    report("n1", i64::MAX);
    let list = listed(&cache, StatsResource::NetworkPolicy, Some("shop"), Encoding::Json);
    assert_eq!(list["items"][0]["trafficStats"]["packets"], i64::MAX);
    assert_eq!(list["items"][0]["trafficStats"]["sessions"], 3);
}

#[test]
fn counts_go_with_their_policy() {
    let cache = cache();
    let summary =
        proto::NodeStatsSummary { network_policies: vec![said("k", traffic(2), &[])], ..Default::default() };
    cache.count("n1", &summary, 1);
    let Update::NetworkPolicy(mut removal) = policy(Kind::NetworkPolicy, "shop", "k", &[]) else {
        unreachable!("it is a policy")
    };
    removal.change = Change::Removed;
    std::mem::swap(&mut removal.span_added, &mut removal.span_removed);
    cache.apply([Update::NetworkPolicy(removal)]);
    let one =
        || cache.statistics_of(StatsResource::NetworkPolicy, "shop", "k", 9_000, Encoding::Json).unwrap();
    assert_eq!(one(), None);
    cache.apply([policy(Kind::NetworkPolicy, "shop", "k", &[])]);
    let again: Value = serde_json::from_slice(&one().unwrap()).unwrap();
    assert_eq!(again["trafficStats"], serde_json::json!({}));
    assert_eq!(again["metadata"]["creationTimestamp"], "1970-01-01T00:00:09Z");
    let protobuf = cache.statistics_of(StatsResource::NetworkPolicy, "shop", "k", 0, Encoding::Protobuf);
    let body = protobuf.unwrap().unwrap();
    assert!(body.starts_with(b"k8s\0") && body.windows(24).any(|w| w == b"stats.antrea.io/v1alpha1"));
}
