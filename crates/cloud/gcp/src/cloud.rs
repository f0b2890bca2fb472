//! The plugin itself: the contract's calls, each handed to the module of its object.

use std::{net::Ipv4Addr, sync::Arc};

use async_trait::async_trait;
pub(crate) use cloud_api::Result;
use cloud_api::{
    At, Attachment, CloudError, Listing, PeeringSpec, ResourceSpec, cluster_network, prelude::*,
};
use cloud_http::{Clock, Recorder, Turns, auth::Environment};
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, GatewayState, PermitEntry, ResourceState, Segment, Site,
};

use crate::{
    api::{Compute, Place},
    container::Container,
    dns::Dns,
    endpoints::{Spot, resources::parse},
    google::{Apis, GcpOptions},
    names::Names,
};

/// Google Cloud, any number of projects.
pub struct GcpCloud {
    pub(crate) compute: Compute,
    pub(crate) container: Container,
    pub(crate) dns: Dns,
    pub(crate) owner: String,
    pub(crate) private_endpoints: bool,
    pub(crate) kubernetes_clusters: bool,
    project: Option<String>,
    pub(crate) turns: Turns,
}

/// A site, with its project and its names.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    pub(crate) site: Site,
    pub(crate) project: String,
    pub(crate) names: Names,
}

/// Whether a network is a cluster's.
pub(crate) fn is_cluster(network: &str) -> bool {
    network.parse().is_ok_and(|name| cluster_network(&name).is_some())
}

/// The region that a network of ours is in: a network is called after its region, or after a cluster there.
pub(crate) fn region_of(network: &str) -> String {
    let cluster = network.parse().ok().and_then(|name| cluster_network(&name));
    cluster.map_or_else(|| network.to_owned(), |(region, _)| region.to_string())
}

impl Ground {
    pub(crate) fn global(&self) -> Place {
        Place::global(&self.project)
    }

    pub(crate) fn region(&self, region: &str) -> Place {
        Place::region(&self.project, region)
    }

    /// The place of a network: a region, or that of a cluster's network.
    pub(crate) fn place_of(&self, network: &str) -> Place {
        self.region(&region_of(network))
    }

    pub(crate) fn zone(&self, zone: &str) -> Place {
        Place::zone(&self.project, zone)
    }

    /// The site's own VPC.
    pub(crate) fn vpc(&self) -> Vpc {
        Vpc { name: self.names.network(), ground: self.clone() }
    }

    /// The reference of the site's own VPC.
    pub(crate) fn network(&self) -> String {
        self.vpc().path()
    }
}

/// A VPC of a site: its own, or one that it adopted.
#[derive(Clone, Debug)]
pub(crate) struct Vpc {
    pub(crate) ground: Ground,
    pub(crate) name: String,
}

impl Vpc {
    pub(crate) fn path(&self) -> String {
        self.ground.global().object("networks", &self.name)
    }

    pub(crate) fn is_own(&self) -> bool {
        self.name == self.ground.names.network()
    }
}

impl GcpCloud {
    /// The bounds that Google Cloud sets to plans.
    pub fn traits() -> CloudTraits {
        CloudTraits { tunnels: 4, ..CloudTraits::default() }
    }

    /// With the process's environment and clock.
    pub fn new(options: &GcpOptions) -> Result<Self> {
        Self::with(options, Environment::process(), None, None)
    }

    pub fn with(
        options: &GcpOptions,
        environment: Environment,
        clock: Option<Arc<dyn Clock>>,
        recorder: Option<Arc<dyn Recorder>>,
    ) -> Result<Self> {
        let project = options.project.clone().or_else(|| environment.get("GOOGLE_CLOUD_PROJECT"));
        let Apis { compute, container, dns } = Apis::open(options, environment, clock, recorder)?;
        Ok(Self {
            compute: Compute::new(compute),
            container: Container::new(container),
            dns: Dns::new(dns),
            owner: options.owner.clone().unwrap_or_else(|| "trestle".to_owned()),
            private_endpoints: options.private_endpoints,
            kubernetes_clusters: options.kubernetes_clusters,
            project,
            turns: Turns::default(),
        })
    }

    /// Where a site is. A deployment is a project, with or without `projects/` before it.
    pub(crate) fn ground(&self, site: &Site, deployment: &str) -> Result<Ground> {
        let given = deployment.strip_prefix("projects/").unwrap_or(deployment);
        let project = if given.is_empty() { self.project.clone() } else { Some(given.to_owned()) };
        let none = || {
            CloudError::invalid(format!(
                "the namespace {} names no Google Cloud project, and the plugin has none; set one with `trestle namespace`, or \
                 `project` in the configuration",
                site.namespace
            ))
        };
        Ok(Ground {
            site: site.clone(),
            project: project.ok_or_else(none)?,
            names: Names::new(&self.owner, site),
        })
    }

    fn at(&self, at: &At) -> Result<Ground> {
        self.ground(&at.site, &at.deployment)
    }
}

#[async_trait]
impl Cloud for GcpCloud {
    async fn describe(&self) -> Result<CloudTraits> {
        Ok(Self::traits())
    }

    async fn list(&self, at: &At) -> Result<Listing> {
        self.list_site(&self.at(at)?).await
    }
}

#[async_trait]
impl Networks for GcpCloud {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<()> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        let ground = self.at(at)?;
        match Spot::of(region.as_str()) {
            Some(spot) => self.make_endpoint_network(&ground, region, &spot, space).await,
            None => {
                self.make_network(&ground, region, space).await?;
                self.settle_router(&ground, None).await
            }
        }
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result<()> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        let ground = self.at(at)?;
        match Spot::of(region.as_str()) {
            Some(spot) => self.remove_endpoint_network(&ground, region, &spot).await?,
            None => self.remove_network(&ground, region.as_str()).await?,
        }
        self.settle_router(&ground, None).await?;
        self.remove_vpc(&ground).await
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result<()> {
        self.make_peering(spec).await
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result<()> {
        self.remove_peering(spec).await
    }

    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result<()> {
        if Spot::of(region.as_str()).is_some() {
            let message =
                format!("{region} has private endpoints in it, which open no connections and need no NAT");
            return Err(CloudError::unsupported(message));
        }
        self.make_nat(&self.at(at)?, region).await
    }

    async fn delete_nat(&self, at: &At, region: &Segment) -> Result<()> {
        if Spot::of(region.as_str()).is_some() {
            return Ok(());
        }
        let ground = self.at(at)?;
        let place = ground.place_of(region.as_str());
        Ok(self.compute.delete(&place, "routers", &ground.names.nat(region.as_str())).await?)
    }
}

#[async_trait]
impl Resources for GcpCloud {
    async fn inspect_resource(&self, _: &At, name: &Segment, description: &str) -> Result<Segment> {
        self.described(description)?.network(name)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        self.make_described(&self.at(at)?, spec).await
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result<()> {
        let ground = self.at(at)?;
        self.remove_resource(&ground, name).await?;
        self.remove_cluster(&ground, name).await?;
        self.remove_endpoint(&ground, name).await
    }
}

#[async_trait]
impl Attachments for GcpCloud {
    async fn inspect_attachment(&self, at: &At, id: &str) -> Result<Attachment> {
        self.inspect_instance(&self.at(at)?, id).await
    }

    async fn adopt_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<()> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        self.adopt(&self.at(at)?, region, space).await
    }

    async fn release_network(&self, at: &At, region: &Segment) -> Result<()> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        self.release(&self.at(at)?, region).await
    }

    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState> {
        self.attach_instance(&self.at(at)?, name, id).await
    }
}

#[async_trait]
impl PermitLists for GcpCloud {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        let ground = self.at(at)?;
        match parse(uri, &ground.project) {
            Some(_) => self.read_endpoint_list(&ground, uri).await,
            None => self.read_list(&ground, uri).await,
        }
    }

    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        let ground = self.at(at)?;
        match parse(uri, &ground.project) {
            Some(_) => self.put_endpoint_list(&ground, uri, before, wanted).await,
            None => self.write_list(&ground, uri, before, wanted).await,
        }
    }
}

#[async_trait]
impl Links for GcpCloud {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        self.make_gateway(&self.at(at)?, asn).await
    }

    async fn delete_gateway(&self, at: &At) -> Result<()> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        self.remove_gateway(&self.at(at)?).await
    }

    /// The router's end of a session needs the tunnel first.
    async fn create_bgp_sessions(&self, _: &At, _: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        Ok(Vec::new())
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result<()> {
        self.connect(&self.at(at)?, spec).await
    }

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result<()> {
        self.disconnect(&self.at(at)?, peer).await
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus> {
        self.status(&self.at(at)?, peer).await
    }
}
