//! What kinds of resources have in common in all clouds. The description tells the kind, and the plugin reads it.
//!
//! A private endpoint, an address that stands for a service of somebody else, is a resource like a machine with two
//! differences: it is made only where the cloud's configuration says so, and it never opens a connection, so that its
//! permit list speaks of inbound traffic only.
//!
//! A managed Kubernetes cluster, too, is made only where the configuration says so. It has a block of addresses where a
//! machine has one, and a network for itself, so that the block is chosen as those of regions are, and that what its
//! provider opens inside the cluster is open to nobody else. Its permit list is its border: what passes inside it is
//! not spoken of. The few services of its provider without which nodes do not come up are open, and in no list.

use model::{Direction, PermitEntry, Segment};
use serde_json::Value;

use crate::{CloudError, Result};

/// Refuses to make an endpoint unless the configuration has the flag.
pub fn endpoints_allowed(flag: bool, cloud: &str) -> Result {
    match flag {
        true => Ok(()),
        false => Err(CloudError::unsupported(format!(
            "the description is that of a private endpoint, which {cloud} makes only with `private_endpoints: true` in the \
             cloud's configuration (or `trestle plugin … --private-endpoints`)"
        ))),
    }
}

/// Refuses to make a cluster unless the configuration has the flag.
pub fn clusters_allowed(flag: bool, cloud: &str) -> Result {
    match flag {
        true => Ok(()),
        false => Err(CloudError::unsupported(format!(
            "the description is that of a managed Kubernetes cluster, which {cloud} makes only with `kubernetes_clusters: true` \
             in the cloud's configuration (or `trestle plugin … --kubernetes-clusters`)"
        ))),
    }
}

/// Between region and cluster in the name of a cluster's network. No region has it in its name.
const K8S: &str = "-k8s-";

/// The network that a cluster has for itself.
pub fn network_of_cluster(region: &Segment, cluster: &Segment) -> Result<Segment> {
    let name = format!("{region}{K8S}{cluster}");
    name.parse().map_err(|err| {
        CloudError::invalid(format!("the cluster {cluster} cannot have a network {name}: {err}"))
    })
}

/// The region and the cluster, if a network is a cluster's.
pub fn cluster_network(network: &Segment) -> Option<(Segment, Segment)> {
    let (region, cluster) = network.as_str().split_once(K8S)?;
    Some((region.parse().ok()?, cluster.parse().ok()?))
}

/// The name of a field, without what clouds do not look at: to them `podSubnetID`, `podSubnetId` and `pod_subnet_id` are one.
fn plain(name: &str) -> String {
    name.chars().filter(|letter| *letter != '_').map(|letter| letter.to_ascii_lowercase()).collect()
}

/// The first of an object's fields that is one of these, however it is spelled.
pub fn field_among<'o>(object: &'o Value, names: &[&str]) -> Option<&'o str> {
    let wanted: Vec<String> = names.iter().map(|name| plain(name)).collect();
    let mut fields = object.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    fields.find(|name| wanted.contains(&plain(name)))
}

/// Refuses entries that an endpoint cannot mean anything by.
pub fn only_inbound(entries: &[PermitEntry]) -> Result {
    match entries.iter().find(|entry| entry.traffic.direction == Direction::Outbound) {
        None => Ok(()),
        Some(entry) => Err(CloudError::unsupported(format!(
            "the entry {} is for outbound traffic, and a private endpoint opens no connections; permit inbound traffic at the \
             endpoint and outbound traffic at those who call it",
            entry.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{EntryName, Ports, Protocol, Traffic};
    use serde_json::json;

    use super::*;
    use crate::CloudErrorKind;

    #[test]
    fn what_an_endpoint_cannot_be_is_refused_by_name() {
        let refused = endpoints_allowed(false, "IBM Cloud").unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Unsupported);
        assert!(refused.message.contains("private_endpoints"), "{refused}");
        let refused = clusters_allowed(false, "Azure").unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Unsupported);
        assert!(refused.message.contains("kubernetes_clusters"), "{refused}");
        let entry = |direction| {
            let traffic = Traffic::new(direction, Protocol::TCP, Ports::Any, Ports::one(443)).unwrap();
            let targets = ["10.0.0.1".parse().unwrap()].into();
            PermitEntry::new(EntryName::reported("e"), traffic, targets, BTreeSet::new()).unwrap()
        };
        assert!(only_inbound(&[entry(Direction::Inbound)]).is_ok());
        let refused = only_inbound(&[entry(Direction::Inbound), entry(Direction::Outbound)]).unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Unsupported);
    }

    #[test]
    fn a_field_is_found_however_it_is_spelled() {
        let names = ["networkConfig", "podSubnetID"];
        for (object, found) in [
            (json!({"name": 1, "network_config": 2}), Some("network_config")),
            (json!({"podsubnetid": 1}), Some("podsubnetid")),
            (json!({"networkConfiguration": 1}), None),
            (json!(["networkConfig"]), None),
        ] {
            assert_eq!(field_among(&object, &names), found, "{object}");
        }
    }

    #[test]
    fn a_clusters_network_names_its_region_and_the_cluster() {
        let [region, name] = ["us-west1", "a-k8s-b"].map(|text| text.parse::<Segment>().unwrap());
        let network = network_of_cluster(&region, &name).unwrap();
        assert_eq!(cluster_network(&network), Some((region.clone(), name)));
        assert_eq!(cluster_network(&region), None);
        let long = "x".repeat(125).parse().unwrap();
        assert_eq!(network_of_cluster(&region, &long).unwrap_err().kind, CloudErrorKind::Invalid);
    }
}
