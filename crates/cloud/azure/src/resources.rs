//! Resources of all kinds: which one a description is of, and what is deleted under a name. A managed Kubernetes cluster
//! has pools of nodes; everything else is a machine.

use cloud_api::{ResourceSpec, clusters_allowed, network_of_cluster};
use model::{ResourceState, Segment};
use serde::{Deserialize, de::IgnoredAny};

use crate::{
    attach,
    clusters::{self, ClusterDescription},
    description::Description,
    machines,
    place::*,
};

/// What a description is of.
#[derive(Clone, Debug, PartialEq)]
pub enum Described {
    Machine(Description),
    Cluster(ClusterDescription),
}

/// What tells a cluster from a machine.
#[derive(Deserialize)]
struct Pools {
    properties: PoolsProperties,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolsProperties {
    agent_pool_profiles: Option<IgnoredAny>,
}

impl Described {
    /// Reads a description; refused if the configuration does not allow its kind.
    pub fn read(text: &str, makes_clusters: bool) -> Result<Self> {
        let described = Self::parse(text)?;
        if let Self::Cluster(_) = described {
            clusters_allowed(makes_clusters, "Azure")?;
        }
        Ok(described)
    }

    fn parse(text: &str) -> Result<Self> {
        match serde_json::from_str::<Pools>(text) {
            Ok(Pools { properties: PoolsProperties { agent_pool_profiles: Some(_) } }) => {
                ClusterDescription::parse(text).map(Self::Cluster)
            }
            _ => Description::parse(text).map(Self::Machine),
        }
    }

    /// The network that a resource of this name lives in.
    pub fn network(&self, name: &Segment) -> Result<Segment> {
        match self {
            Self::Machine(description) => Ok(description.region.clone()),
            Self::Cluster(description) => network_of_cluster(&description.region, name),
        }
    }
}

pub async fn make(place: &Place<'_>, spec: &ResourceSpec) -> Result<ResourceState> {
    let described = Described::read(&spec.description, place.settings.makes_clusters)?;
    spec.check_network(&described.network(&spec.name)?)?;
    match described {
        Described::Machine(description) => machines::make(place, spec, description).await,
        Described::Cluster(description) => clusters::make(place, spec, description).await,
    }
}

/// Whatever has the name: it may be a machine, a cluster, or something attached, which is let go.
pub async fn remove(place: &Place<'_>, name: &Segment) -> Result {
    let groups = place.list().await?;
    attach::detach(place, name, &groups).await?;
    clusters::remove(place, name, &groups).await?;
    machines::remove(place, name).await
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
