//! The plugin itself: the contract's calls, each handed to the module of its object.

use std::{net::Ipv4Addr, sync::Arc};

use async_trait::async_trait;
use cloud_api::{
    At, Attachment, Listing, PeeringSpec, ResourceSpec, clusters_allowed, endpoints_allowed, prelude::*,
};
use cloud_http::{Turns, World};
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, Cost, Effort, GatewayState, PermitEntry, ResourceState,
    Segment, Site,
};

use crate::api::IbmOptions;
use crate::described::Described;
use crate::names::Names;
use crate::{
    Api, Ground, Result, Vpcs, adopt, attach, clusters, connections, gateway, lists, networks, peerings,
    resources, subnets,
};

/// One account of IBM Cloud.
pub struct IbmCloud {
    api: Arc<Api>,
    turns: Arc<Turns>,
    owner: String,
    resource_group: Option<String>,
    private_endpoints: bool,
    kubernetes_clusters: bool,
}

impl IbmCloud {
    /// The bounds that IBM Cloud sets to plans. A connection has a tunnel from each member to each address of the peer.
    /// Two of four are enough, and Azure could not use more; those that lead nowhere have the upper half of the inside
    /// addresses.
    pub fn traits() -> CloudTraits {
        CloudTraits {
            bgp_last: [169, 254, 127, 252].into(),
            tunnels: 4,
            asn_reserved: gateway::RESERVED.to_vec(),
            // What its documentation lets one expect, and its simulator takes.
            gateway: Some(Effort { seconds: 420, cost: Cost::Hourly }),
            connection: Some(Effort { seconds: 60, cost: Cost::Hourly }),
            ..CloudTraits::default()
        }
    }

    /// With the process's environment and clock.
    pub fn new(options: &IbmOptions) -> Result<Self> {
        Self::with(options, World::default())
    }

    pub fn with(options: &IbmOptions, world: World) -> Result<Self> {
        Ok(Self {
            api: Arc::new(Api::new(options, world)?),
            turns: Arc::default(),
            owner: options.owner.clone().unwrap_or_else(|| "trestle".to_owned()),
            resource_group: options.resource_group.clone(),
            private_endpoints: options.private_endpoints,
            kubernetes_clusters: options.kubernetes_clusters,
        })
    }

    /// Where a site is. A deployment is a resource group's id.
    fn ground(&self, site: &Site, deployment: &str) -> Ground {
        let given = (!deployment.is_empty()).then(|| deployment.to_owned());
        Ground {
            api: Arc::clone(&self.api),
            turns: Arc::clone(&self.turns),
            owner: self.owner.clone(),
            site: site.clone(),
            group: given.or_else(|| self.resource_group.clone()),
            names: Names::new(&self.owner, site),
        }
    }

    fn at(&self, at: &At) -> Ground {
        self.ground(&at.site, &at.deployment)
    }

    fn ends(&self, spec: &PeeringSpec) -> [Ground; 2] {
        let [a, b] = spec.name.ends();
        [self.ground(&a.site, &spec.deployments[0]), self.ground(&b.site, &spec.deployments[1])]
    }

    /// A description that the configuration allows.
    fn described(&self, text: &str) -> Result<Described> {
        let described = Described::parse(text)?;
        match described {
            Described::Instance(_) => {}
            Described::Endpoint(_) => endpoints_allowed(self.private_endpoints, "IBM Cloud")?,
            Described::Cluster(_) => clusters_allowed(self.kubernetes_clusters, "IBM Cloud")?,
        }
        Ok(described)
    }
}

#[async_trait]
impl Cloud for IbmCloud {
    async fn describe(&self) -> Result<CloudTraits> {
        Ok(Self::traits())
    }

    async fn list(&self, at: &At) -> Result<Listing> {
        networks::list_site(&self.at(at)).await
    }
}

#[async_trait]
impl Networks for IbmCloud {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        networks::ensure(&self.at(at), region.as_str(), space).await
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result {
        networks::remove(&self.at(at), region.as_str()).await
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result {
        peerings::ensure(&self.ends(spec), spec).await
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result {
        peerings::remove(&self.ends(spec), spec).await
    }

    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result {
        subnets::ensure_nat(&self.at(at), region.as_str()).await
    }

    async fn delete_nat(&self, at: &At, region: &Segment) -> Result {
        subnets::remove_nat(&self.at(at), region.as_str()).await
    }
}

#[async_trait]
impl Resources for IbmCloud {
    async fn inspect_resource(&self, _: &At, name: &Segment, description: &str) -> Result<Segment> {
        self.described(description)?.network(name)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        let (ground, described) = (self.at(at), self.described(&spec.description)?);
        spec.check_network(&described.network(&spec.name)?)?;
        match described {
            Described::Instance(description) => resources::make_instance(&ground, spec, description).await,
            Described::Endpoint(description) => resources::make_endpoint(&ground, spec, description).await,
            Described::Cluster(description) => clusters::make(&ground, spec, description).await,
        }
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result {
        let ground = self.at(at);
        let vpcs = Vpcs::read(&ground).await?;
        resources::remove(&ground, &vpcs, name).await?;
        clusters::remove(&ground, &vpcs, name).await
    }
}

#[async_trait]
impl Attachments for IbmCloud {
    async fn inspect_attachment(&self, at: &At, id: &str) -> Result<Attachment> {
        Ok(attach::find_instance(&self.at(at), id).await?.attachment)
    }

    async fn adopt_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        adopt::adopt(&self.at(at), region.as_str(), space).await
    }

    async fn release_network(&self, at: &At, region: &Segment) -> Result {
        adopt::release(&self.at(at), region.as_str()).await
    }

    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState> {
        attach::attach(&self.at(at), name, id).await
    }
}

#[async_trait]
impl PermitLists for IbmCloud {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        lists::read(&self.at(at), uri).await
    }

    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        lists::put(&self.at(at), uri, before, wanted).await
    }
}

#[async_trait]
impl Links for IbmCloud {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        gateway::ensure(&self.at(at), asn).await
    }

    async fn delete_gateway(&self, at: &At) -> Result {
        gateway::remove(&self.at(at)).await
    }

    /// A connection has its sessions from the beginning.
    async fn create_bgp_sessions(&self, _: &At, _: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        Ok(Vec::new())
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result {
        connections::connect(&self.at(at), spec).await
    }

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result {
        connections::disconnect(&self.at(at), peer).await
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus> {
        connections::status(&self.at(at), peer).await
    }
}
