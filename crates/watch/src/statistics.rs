//! What nodes counted of each policy, added up, as `stats.antrea.io/v1alpha1` shows it.
//!
//! ```text
//!  node ── NodeStatsSummary (what it counted since the last) ──► Statistics ──► lists, objects, tables
//! ```
//!
//! In: summaries of nodes. Out: bodies of replies. Holds: sums by policy, and by rule for Antrea's own, since this process
//! first heard of the policy or was asked about it. Not here: counting (agents), who may report (`server`).
//!
//! Counts of nodes that do not need the policy, and of rules that it does not have, are not taken: what is held is bounded by
//! the policies there are.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::policy::{
    Kind,
    output::{Identifier, NetworkPolicy},
};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::{
    encode::{document, json},
    encoding::Encoding,
    proto::{
        AntreaClusterNetworkPolicyStats, AntreaClusterNetworkPolicyStatsList, AntreaNetworkPolicyStats,
        AntreaNetworkPolicyStatsList, ListMeta, NetworkPolicyStats, NetworkPolicyStatsList, ObjectMeta,
        PolicyStats, RuleTrafficStats, Time, TrafficStats,
    },
    realisation::Millis,
};

/// What there are statistics of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatsResource {
    NetworkPolicy,
    AntreaNetworkPolicy,
    AntreaClusterNetworkPolicy,
}

impl StatsResource {
    pub const ALL: [StatsResource; 3] = [
        StatsResource::NetworkPolicy,
        StatsResource::AntreaNetworkPolicy,
        StatsResource::AntreaClusterNetworkPolicy,
    ];

    pub fn plural(self) -> &'static str {
        match self {
            StatsResource::NetworkPolicy => "networkpolicystats",
            StatsResource::AntreaNetworkPolicy => "antreanetworkpolicystats",
            StatsResource::AntreaClusterNetworkPolicy => "antreaclusternetworkpolicystats",
        }
    }

    pub fn kind(self) -> &'static str {
        match self {
            StatsResource::NetworkPolicy => "NetworkPolicyStats",
            StatsResource::AntreaNetworkPolicy => "AntreaNetworkPolicyStats",
            StatsResource::AntreaClusterNetworkPolicy => "AntreaClusterNetworkPolicyStats",
        }
    }

    pub fn is_namespaced(self) -> bool {
        self.of().is_namespaced()
    }

    pub(crate) fn of(self) -> Kind {
        match self {
            StatsResource::NetworkPolicy => Kind::NetworkPolicy,
            StatsResource::AntreaNetworkPolicy => Kind::AntreaNetworkPolicy,
            StatsResource::AntreaClusterNetworkPolicy => Kind::AntreaClusterNetworkPolicy,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Statistics {
    kept: FxHashMap<Identifier, Counted>,
}

#[derive(Debug, Clone, Default)]
struct Counted {
    since: Millis,
    total: TrafficStats,
    rules: BTreeMap<String, TrafficStats>,
}

impl TrafficStats {
    /// A count is never negative and never wraps, whatever a node says.
    fn add(&mut self, more: &TrafficStats) {
        let sum = |own: i64, more: i64| own.saturating_add(more.max(0));
        self.packets = sum(self.packets, more.packets);
        self.bytes = sum(self.bytes, more.bytes);
        self.sessions = sum(self.sessions, more.sessions);
    }
}

impl Statistics {
    pub fn forget(&mut self, policy: &Identifier) {
        self.kept.remove(policy);
    }

    pub fn take(&mut self, policy: &NetworkPolicy, said: &PolicyStats, at: Millis) {
        let counted = self.entry(&policy.uid, at);
        let is_by_rule = policy.source.kind != Kind::NetworkPolicy && said.traffic_stats.bytes <= 0;
        if !is_by_rule {
            return counted.total.add(&said.traffic_stats);
        }
        let has = |name: &str| policy.rules.iter().any(|rule| rule.detail.name == name);
        counted.rules.retain(|name, _| has(name));
        for rule in said.rule_traffic_stats.iter().filter(|rule| has(&rule.name)) {
            counted.total.add(&rule.traffic_stats);
            counted.rules.entry(rule.name.clone()).or_default().add(&rule.traffic_stats);
        }
    }

    fn entry(&mut self, policy: &Identifier, at: Millis) -> &mut Counted {
        self.kept.entry(policy.clone()).or_insert_with(|| Counted { since: at, ..Counted::default() })
    }

    /// What is known of a policy; of one never heard of, that nothing was counted up to now.
    pub fn shown(&mut self, policy: &NetworkPolicy, now: Millis) -> Shown {
        let counted = self.entry(&policy.uid, now).clone();
        let seconds = i64::try_from(counted.since / 1000).unwrap_or(i64::MAX);
        let rule = |(name, traffic_stats)| RuleTrafficStats { name, traffic_stats };
        Shown {
            metadata: ObjectMeta {
                name: policy.source.name.to_string(),
                namespace: policy.source.namespace.to_string(),
                uid: policy.source.uid.to_string(),
                creation_timestamp: Some(Time { seconds, nanos: 0 }),
                ..ObjectMeta::default()
            },
            total: counted.total,
            rules: counted.rules.into_iter().map(rule).collect(),
        }
    }
}

/// The counts of one policy, ready to be shown.
#[derive(Debug)]
pub(crate) struct Shown {
    metadata: ObjectMeta,
    total: TrafficStats,
    rules: Vec<RuleTrafficStats>,
}

macro_rules! of_kind {
    ($shown:expr, $kind:ident) => {{
        let Shown { metadata, total: traffic_stats, rules: rule_traffic_stats } = $shown;
        $kind { metadata, traffic_stats, rule_traffic_stats }
    }};
}

pub(crate) fn list(resource: StatsResource, shown: Vec<Shown>, encoding: Encoding) -> Bytes {
    if encoding == Encoding::Table {
        return table(shown);
    }
    let (metadata, shown) = (ListMeta::default(), shown.into_iter());
    match resource {
        StatsResource::NetworkPolicy => {
            let items = shown.map(|one| of_kind!(one, NetworkPolicyStats)).collect();
            document(encoding, &NetworkPolicyStatsList { metadata, items })
        }
        StatsResource::AntreaNetworkPolicy => {
            let items = shown.map(|one| of_kind!(one, AntreaNetworkPolicyStats)).collect();
            document(encoding, &AntreaNetworkPolicyStatsList { metadata, items })
        }
        StatsResource::AntreaClusterNetworkPolicy => {
            let items = shown.map(|one| of_kind!(one, AntreaClusterNetworkPolicyStats)).collect();
            document(encoding, &AntreaClusterNetworkPolicyStatsList { metadata, items })
        }
    }
}

pub(crate) fn one(resource: StatsResource, shown: Shown, encoding: Encoding) -> Bytes {
    if encoding == Encoding::Table {
        return table(vec![shown]);
    }
    match resource {
        StatsResource::NetworkPolicy => document(encoding, &of_kind!(shown, NetworkPolicyStats)),
        StatsResource::AntreaNetworkPolicy => document(encoding, &of_kind!(shown, AntreaNetworkPolicyStats)),
        StatsResource::AntreaClusterNetworkPolicy => {
            document(encoding, &of_kind!(shown, AntreaClusterNetworkPolicyStats))
        }
    }
}

fn table(shown: Vec<Shown>) -> Bytes {
    let column = |name: &str, kind: &str, format: &str, description: &str| json!({ "name": name, "type": kind, "format": format, "description": description, "priority": 0 });
    let row = |one: &Shown| -> Value {
        let since = one.metadata.creation_timestamp.as_ref().map(Time::text);
        json!({
            "cells": [one.metadata.name, one.total.sessions, one.total.packets, one.total.bytes, since],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": one.metadata,
            },
        })
    };
    json(&json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [
            column("Name", "string", "name", "The policy"),
            column("Sessions", "integer", "", "Sessions that met the policy"),
            column("Packets", "integer", "", "Packets that met the policy"),
            column("Bytes", "integer", "", "Bytes that met the policy"),
            column("Created At", "date", "", "Since when is counted"),
        ],
        "rows": shown.iter().map(row).collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests;
