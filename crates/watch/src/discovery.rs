//! The documents from which kubectl and the aggregation layer learn what is served.

use serde_json::{Value, json};

use crate::{
    encode::{API_VERSION, GROUP, VERSION},
    proto::{STATS_GROUP, STATS_VERSION},
    resource::Resource,
    statistics::StatsResource,
};

/// `/api`: no legacy group here.
pub fn legacy() -> Value {
    json!({ "kind": "APIVersions", "versions": [], "serverAddressByClientCIDRs": [] })
}

/// `/apis`.
pub fn groups() -> Value {
    let groups = [one_group(GROUP, VERSION), one_group(STATS_GROUP, STATS_VERSION)];
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `/apis/controlplane.antrea.io`.
pub fn group() -> Value {
    group_document(GROUP, VERSION)
}

/// `/apis/stats.antrea.io`.
pub fn stats_group() -> Value {
    group_document(STATS_GROUP, STATS_VERSION)
}

fn group_document(group: &str, version: &str) -> Value {
    let mut group = one_group(group, version);
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    group
}

fn one_group(group: &str, version: &str) -> Value {
    let version = json!({ "groupVersion": format!("{group}/{version}"), "version": version });
    json!({ "name": group, "versions": [version], "preferredVersion": version })
}

/// `/apis/controlplane.antrea.io/v1beta2`.
pub fn resources() -> Value {
    let mut resources: Vec<Value> = Resource::ALL
        .into_iter()
        .map(|resource| {
            let singular = resource.kind().to_lowercase();
            resource_entry(resource.plural(), &singular, resource.kind(), false, &["get", "list", "watch"])
        })
        .collect();
    for (name, singular, kind, is_namespaced, verb) in [
        ("networkpolicies/status", "", "NetworkPolicyStatus", false, "create"),
        ("nodestatssummaries", "nodestatssummary", "NodeStatsSummary", false, "create"),
        ("clustergroupmembers", "clustergroupmembers", "ClusterGroupMembers", false, "get"),
        ("groupmembers", "groupmembers", "GroupMembers", true, "get"),
        ("groupassociations", "groupassociation", "GroupAssociation", true, "get"),
        ("ipgroupassociations", "ipgroupassociation", "IPGroupAssociation", false, "get"),
        ("networkpolicyevaluation", "networkpolicyevaluation", "NetworkPolicyEvaluation", false, "create"),
    ] {
        resources.push(resource_entry(name, singular, kind, is_namespaced, &[verb]));
    }
    resource_list(API_VERSION, &resources)
}

/// `/apis/stats.antrea.io/v1alpha1`.
pub fn stats_resources() -> Value {
    let entry = |resource: StatsResource| {
        let name = resource.plural();
        resource_entry(name, name, resource.kind(), resource.is_namespaced(), &["get", "list"])
    };
    let resources: Vec<Value> = StatsResource::ALL.into_iter().map(entry).collect();
    resource_list(&format!("{STATS_GROUP}/{STATS_VERSION}"), &resources)
}

fn resource_list(group_version: &str, resources: &[Value]) -> Value {
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    })
}

fn resource_entry(name: &str, singular: &str, kind: &str, is_namespaced: bool, verbs: &[&str]) -> Value {
    json!({ "name": name, "singularName": singular, "namespaced": is_namespaced, "kind": kind, "verbs": verbs })
}

/// `v1` `Status`: how Kubernetes clients are told of a failure.
pub fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": if code < 400 { "Success" } else { "Failure" },
        "message": message,
        "reason": reason,
        "code": code,
    })
}
