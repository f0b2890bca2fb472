//! Tables: what `kubectl get` prints. The server chooses the columns.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{INITIAL_EVENTS_END, title};
use crate::{
    convert::source_kind,
    resource::Resource,
    version::{Content, Node, Version},
};

pub fn list(resource: Resource, versions: &[Arc<Version>], revision: u64, node: &Node) -> Value {
    let rows = versions.iter().map(|version| row(version, node)).collect();
    table(resource, rows, json!({ "resourceVersion": revision.to_string() }))
}

pub fn one(version: &Version, node: &Node) -> Value {
    table(Resource::of(version), vec![row(version, node)], json!({}))
}

/// A bookmark: a table without rows, so that nothing is printed.
pub fn empty(resource: Resource, revision: u64, is_marked: bool) -> Value {
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    if is_marked {
        metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
    }
    table(resource, Vec::new(), metadata)
}

fn table(resource: Resource, rows: Vec<Value>, metadata: Value) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns(resource),
        "rows": rows,
    })
}

fn columns(resource: Resource) -> Vec<Value> {
    let column = |name: &str, kind: &str, format: &str, description: &str| json!({ "name": name, "type": kind, "format": format, "description": description, "priority": 0 });
    let name = column("Name", "string", "name", "The name on the wire");
    match resource {
        Resource::NetworkPolicies => vec![
            name,
            column("Source", "string", "", "The policy object this was made from"),
            column("Tier", "string", "", "Priority of the tier; none for Kubernetes policies"),
            column("Rules", "integer", "", "Rules after expansion"),
            column("Generation", "integer", "", "Generation of the source"),
        ],
        Resource::SupportBundleCollections => vec![name],
        Resource::AppliedToGroups | Resource::AddressGroups | Resource::EgressGroups => {
            vec![name, column("Members", "integer", "", "Members in view")]
        }
    }
}

fn row(version: &Version, node: &Node) -> Value {
    let name = version.name.to_string();
    let cells = match &version.content {
        Content::Policy(policy) => {
            let source = &policy.source;
            let path = match source.namespace.is_empty() {
                true => source.name.to_string(),
                false => format!("{}/{}", source.namespace, source.name),
            };
            let tier = policy.tier_priority.map_or_else(|| "<none>".to_owned(), |tier| tier.to_string());
            let source = format!("{}:{path}", source_kind(source.kind));
            json!([name, source, tier, policy.rules.len(), policy.generation])
        }
        Content::Address(members) => json!([name, members.len()]),
        Content::AppliedTo(_) => json!([name, version.members(node).len()]),
    };
    let object = json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": title(version).metadata(),
    });
    json!({ "cells": cells, "object": object })
}
