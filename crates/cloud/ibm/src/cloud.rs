//! The plugin itself: the contract's calls, each handed to the module of its object.

use std::{net::Ipv4Addr, sync::Arc};

use async_trait::async_trait;
pub(crate) use cloud_api::Result;
use cloud_api::{At, Attachment, CloudError, Listing, PeeringSpec, ResourceSpec, prelude::*};
use cloud_http::{Clock, Recorder, Turns, auth::Environment};
use ipnet::Ipv4Net;
use model::{CloudTraits, ConnectionSpec, ConnectionStatus, GatewayState, ResourceState, Segment, Site};
use serde_json::{Value, json};

use crate::{
    api::{Api, IbmOptions, Place, text},
    names::Names,
};

/// One account of IBM Cloud.
pub struct IbmCloud {
    pub(crate) api: Api,
    pub(crate) owner: String,
    pub(crate) private_endpoints: bool,
    pub(crate) kubernetes_clusters: bool,
    resource_group: Option<String>,
    given_regions: Option<Vec<Segment>>,
    regions: tokio::sync::OnceCell<Vec<String>>,
    pub(crate) turns: Turns,
}

/// A site, with its resource group and its names.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    pub(crate) site: Site,
    group: Option<String>,
    pub(crate) names: Names,
}

impl Ground {
    /// What a request says of the resource group; empty where the account's default one will do.
    pub(crate) fn place(&self, mut body: Value) -> Value {
        if let Some(id) = &self.group {
            body["resource_group"] = json!({"id": id});
        }
        body
    }

    /// The Kubernetes Service, told the resource group.
    pub(crate) fn containers(&self) -> Place<'_> {
        Place::Containers(self.group.as_deref())
    }

    /// A collection of which only the resource group's objects are asked for.
    pub(crate) fn within(&self, collection: &str) -> String {
        match &self.group {
            Some(id) => format!("{collection}?resource_group.id={id}"),
            None => collection.to_owned(),
        }
    }
}

impl IbmCloud {
    /// The bounds that IBM Cloud sets to plans. A connection has a tunnel from each member to each address of the peer.
    /// Two of four are enough, and Azure could not use more; those that lead nowhere have the upper half of the inside
    /// addresses.
    pub fn traits() -> CloudTraits {
        CloudTraits {
            bgp_last: [169, 254, 127, 252].into(),
            tunnels: 4,
            asn_reserved: vec![
                (64_512, 64_513),
                (65_100, 65_100),
                (65_200, 65_234),
                (65_402, 65_433),
                (65_500, 65_500),
                (4_201_065_000, 4_201_065_999),
            ],
            ..CloudTraits::default()
        }
    }

    /// With the process's environment and clock.
    pub fn new(options: &IbmOptions) -> Result<Self> {
        Self::with(options, Environment::process(), None, None)
    }

    pub fn with(
        options: &IbmOptions,
        environment: Environment,
        clock: Option<Arc<dyn Clock>>,
        recorder: Option<Arc<dyn Recorder>>,
    ) -> Result<Self> {
        Ok(Self {
            api: Api::new(options, environment, clock, recorder)?,
            owner: options.owner.clone().unwrap_or_else(|| "trestle".to_owned()),
            private_endpoints: options.private_endpoints,
            kubernetes_clusters: options.kubernetes_clusters,
            resource_group: options.resource_group.clone(),
            given_regions: options.regions.clone(),
            regions: tokio::sync::OnceCell::new(),
            turns: Turns::default(),
        })
    }

    /// Where a site is. A deployment is a resource group's id.
    pub(crate) fn ground(&self, site: &Site, deployment: &str) -> Ground {
        let group =
            if deployment.is_empty() { self.resource_group.clone() } else { Some(deployment.to_owned()) };
        Ground { site: site.clone(), group, names: Names::new(&self.owner, site) }
    }

    pub(crate) fn at(&self, at: &At) -> Ground {
        self.ground(&at.site, &at.deployment)
    }

    /// Changes of a site's networks, peerings and gateway take turns: they share its transit gateway.
    pub(crate) async fn turn(&self, site: &Site) -> tokio::sync::OwnedMutexGuard<()> {
        self.turns.take(&site.to_string()).await
    }

    /// The regions to look at.
    pub(crate) async fn regions(&self) -> Result<&[String]> {
        let find = || async {
            if let Some(given) = &self.given_regions {
                return Ok(given.iter().map(ToString::to_string).collect());
            }
            let answer =
                self.api.send(Place::Region("us-south"), "list_regions", http::Method::GET, "regions", None);
            let answer = answer.await?;
            let regions = answer["regions"].as_array().into_iter().flatten();
            let usable = regions.filter(|region| region["status"] != "unavailable");
            Ok::<_, CloudError>(usable.map(|region| text(region, "name").to_owned()).collect())
        };
        self.regions.get_or_try_init(find).await.map(Vec::as_slice)
    }
}

#[async_trait]
impl Cloud for IbmCloud {
    async fn describe(&self) -> Result<CloudTraits> {
        Ok(Self::traits())
    }

    async fn list(&self, at: &At) -> Result<Listing> {
        self.list_site(&self.at(at)).await
    }
}

#[async_trait]
impl Networks for IbmCloud {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<()> {
        let _turn = self.turn(&at.site).await;
        self.make_network(&self.at(at), region.as_str(), space).await
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result<()> {
        let _turn = self.turn(&at.site).await;
        self.remove_network(&self.at(at), region.as_str()).await
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result<()> {
        self.make_peering(spec).await
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result<()> {
        self.remove_peering(spec).await
    }

    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result<()> {
        self.make_nat(&self.at(at), region.as_str()).await
    }

    async fn delete_nat(&self, at: &At, region: &Segment) -> Result<()> {
        self.remove_nat(&self.at(at), region.as_str()).await
    }
}

#[async_trait]
impl Resources for IbmCloud {
    async fn inspect_resource(&self, _: &At, name: &Segment, description: &str) -> Result<Segment> {
        self.described(description)?.network(name)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        self.make_described(&self.at(at), spec).await
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result<()> {
        let ground = self.at(at);
        let vpcs = self.vpcs(&ground).await?;
        self.remove_resource(&ground, &vpcs, name).await?;
        self.remove_endpoint(&ground, &vpcs, name).await?;
        self.remove_cluster(&ground, &vpcs, name).await
    }
}

#[async_trait]
impl Attachments for IbmCloud {
    async fn inspect_attachment(&self, _: &At, id: &str) -> Result<Attachment> {
        Ok(self.find_instance(id).await?.attachment)
    }

    async fn adopt_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<()> {
        let _turn = self.turn(&at.site).await;
        self.adopt(&self.at(at), region.as_str(), space).await
    }

    async fn release_network(&self, at: &At, region: &Segment) -> Result<()> {
        let _turn = self.turn(&at.site).await;
        self.release(&self.at(at), region.as_str()).await
    }

    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState> {
        self.attach_instance(&self.at(at), name, id).await
    }
}

#[async_trait]
impl Links for IbmCloud {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        let _turn = self.turn(&at.site).await;
        self.make_gateway(&self.at(at), asn).await
    }

    async fn delete_gateway(&self, at: &At) -> Result<()> {
        let _turn = self.turn(&at.site).await;
        self.remove_gateway(&self.at(at)).await
    }

    /// A connection has its sessions from the beginning.
    async fn create_bgp_sessions(&self, _: &At, _: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        Ok(Vec::new())
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result<()> {
        self.connect(&self.at(at), spec).await
    }

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result<()> {
        self.disconnect(&self.at(at), peer).await
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus> {
        self.status(&self.at(at), peer).await
    }
}
