//! What a cluster must allow whoever reads it, and no more (pure).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::resource::RESOURCES;

/// Verbs on resources of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub group: &'static str,
    pub resources: Vec<String>,
    pub verbs: &'static [&'static str],
}

/// All that is used.
pub fn rules() -> Vec<Rule> {
    let mut read = BTreeMap::<&str, Vec<String>>::new();
    let (mut asked, mut told) = (read.clone(), read.clone());
    for resource in RESOURCES {
        let name = || resource.plural.to_owned();
        read.entry(resource.group).or_default().push(name());
        if resource.kind.is_policy() {
            asked.entry(resource.group).or_default().push(name());
        }
        if resource.has_status() {
            told.entry(resource.group).or_default().push(format!("{}/status", resource.plural));
        }
    }
    let of = |rules: BTreeMap<&'static str, Vec<String>>, verbs| {
        rules.into_iter().map(move |(group, resources)| Rule { group, resources, verbs })
    };
    let events = Rule { group: "", resources: vec!["events".to_owned()], verbs: &["create"] };
    let rules = of(read, &["list", "watch"]).chain(of(asked, &["get"])).chain(of(told, &["patch"]));
    rules.chain([events]).collect()
}

/// As documents for kubectl: a service account, a role, and that the one has the other.
pub fn documents(name: &str, namespace: &str) -> Vec<Value> {
    let rule =
        |rule: Rule| json!({"apiGroups": [rule.group], "resources": rule.resources, "verbs": rule.verbs});
    let rules: Vec<_> = rules().into_iter().map(rule).collect();
    let group = "rbac.authorization.k8s.io";
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
               "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
               "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]}),
    ]
}
