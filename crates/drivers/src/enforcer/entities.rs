//! Resources as the policy engine sees them.

use std::{collections::BTreeMap, net::IpAddr};

use model::{
    Address, ResourceName, Segment, TagName,
    policy::{
        Object, ObjectId,
        external::{Endpoint, ExternalEntity, ExternalEntitySpec},
        meta::ObjectMeta,
    },
};
use tags::Graph;

use crate::span::span_key;

const CLOUD: &str = "trestle.io/cloud";
const REGION: &str = "trestle.io/region";
const RESOURCE: &str = "trestle.io/resource";
/// Before the name of each tag the resource is in. The value is empty.
const TAG: &str = "tag.trestle.io/";

/// One entity for each resource: `cloud.name` in the resource's namespace. A cluster is none: policies know addresses
/// of workloads, and a cluster is the border of many.
pub fn entities(
    resources: Vec<(ResourceName, Segment, Address)>,
    graph: &Graph,
) -> BTreeMap<ObjectId, Object> {
    let entity = |(name, region, address): (ResourceName, Segment, IpAddr)| {
        let object = Object::ExternalEntity(ExternalEntity {
            metadata: ObjectMeta {
                name: format!("{}.{}", name.cloud, name.name),
                namespace: name.namespace.to_string(),
                labels: labels(&name, &region, graph).into_iter().collect(),
                ..ObjectMeta::default()
            },
            spec: ExternalEntitySpec {
                endpoints: vec![Endpoint { ip: address.to_string(), name: String::new() }],
                ports: Vec::new(),
                external_node: span_key(&name.cloud),
            },
        });
        (object.id(), object)
    };
    let single = |(name, region, address): (_, _, Address)| Some((name, region, address.single()?));
    resources.into_iter().filter_map(single).map(entity).collect()
}

fn labels(name: &ResourceName, region: &Segment, graph: &Graph) -> Vec<(String, String)> {
    let mut labels = vec![
        (CLOUD.to_owned(), name.cloud.to_string()),
        (REGION.to_owned(), region.to_string()),
        (RESOURCE.to_owned(), name.name.to_string()),
    ];
    let tag: Option<TagName> = name.to_string().parse().ok();
    let above = tag.and_then(|tag| graph.ancestors(&tag).ok()).unwrap_or_default();
    labels.extend(above.into_iter().map(|tag| (format!("{TAG}{tag}"), String::new())));
    labels
}
