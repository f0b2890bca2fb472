//! Kinds of resources: which one a description is of. A managed Kubernetes cluster has pools of nodes.

use cloud_api::{ResourceSpec, clusters_allowed, network_of_cluster};
use model::{ResourceState, Segment};
use serde_json::Value;

use crate::{
    cloud::{AzureCloud, Ground, Result},
    clusters::ClusterDescription,
    description::Description,
};

/// What a description is of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Described {
    Machine(Description),
    Cluster(ClusterDescription),
}

impl Described {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match serde_json::from_str::<Value>(text) {
            Ok(fields) if !fields["properties"]["agentPoolProfiles"].is_null() => {
                ClusterDescription::parse(text).map(Self::Cluster)
            }
            _ => Description::parse(text).map(Self::Machine),
        }
    }

    /// The network that a resource of this name lives in.
    pub(crate) fn network(&self, name: &Segment) -> Result<Segment> {
        match self {
            Self::Machine(description) => Ok(description.region.clone()),
            Self::Cluster(description) => network_of_cluster(&description.region, name),
        }
    }
}

impl AzureCloud {
    /// Reads a description; refused if the configuration does not allow its kind.
    pub(crate) fn described(&self, text: &str) -> Result<Described> {
        let described = Described::parse(text)?;
        if let Described::Cluster(_) = described {
            clusters_allowed(self.makes_clusters, "Azure")?;
        }
        Ok(described)
    }

    pub(crate) async fn make_resource(&self, ground: &Ground, spec: &ResourceSpec) -> Result<ResourceState> {
        let described = self.described(&spec.description)?;
        spec.check_network(&described.network(&spec.name)?)?;
        match described {
            Described::Machine(description) => self.make_machine(ground, spec, description).await,
            Described::Cluster(description) => self.make_cluster(ground, spec, description).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_tells_the_kind_and_the_network() {
        let name = "k".parse().unwrap();
        let network = |text: &str| Described::parse(text).unwrap().network(&name).unwrap().to_string();
        let machine = r#"{"location":"West US 2","properties":{"hardwareProfile":{}}}"#;
        assert_eq!(network(machine), "westus2");
        let cluster = r#"{"location":"West US 2","identity":{"type":"UserAssigned","userAssignedIdentities":{"/i":{}}},
            "properties":{"agentPoolProfiles":[{"name":"p"}]}}"#;
        assert_eq!(network(cluster), "westus2-k8s-k");
    }
}
