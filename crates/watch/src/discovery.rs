//! The documents from which kubectl and the aggregation layer learn what is served.

use serde_json::{Value, json};

use crate::{
    encode::{API_VERSION, GROUP, VERSION},
    resource::Resource,
};

/// `/api`: no legacy group here.
pub fn legacy() -> Value {
    json!({ "kind": "APIVersions", "versions": [], "serverAddressByClientCIDRs": [] })
}

/// `/apis`.
pub fn groups() -> Value {
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [one_group()] })
}

/// `/apis/controlplane.antrea.io`.
pub fn group() -> Value {
    let mut group = one_group();
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    group
}

fn one_group() -> Value {
    let version = json!({ "groupVersion": API_VERSION, "version": VERSION });
    json!({ "name": GROUP, "versions": [version], "preferredVersion": version })
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
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": API_VERSION,
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
