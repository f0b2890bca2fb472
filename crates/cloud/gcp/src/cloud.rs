//! The plugin itself: the contract's calls, each handed to the module of its object.

use std::{net::Ipv4Addr, sync::Arc};

use async_trait::async_trait;
use cloud_api::{
    At, Attachment, CloudError, Listing, PeeringSpec, ResourceSpec, clusters_allowed, endpoints_allowed,
    prelude::*,
};
use cloud_http::World;
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, Cost, Effort, GatewayState, PermitEntry, ResourceState,
    Segment, Site,
};

use crate::{
    adopt, advertise, attach, clusters, connections,
    described::Described,
    endpoints::{self, Spot},
    gateway,
    google::{self, GcpOptions},
    ground::{Apis, Ground, Result},
    instances,
    listing::list_site,
    lists,
    names::Names,
    nat, networks, peerings,
};

/// Google Cloud, any number of projects.
pub struct GcpCloud {
    apis: Arc<Apis>,
    owner: String,
    private_endpoints: bool,
    kubernetes_clusters: bool,
    project: Option<String>,
}

impl GcpCloud {
    /// The bounds that Google Cloud sets to plans.
    pub fn traits() -> CloudTraits {
        CloudTraits {
            tunnels: 4,
            // What its documentation lets one expect, and its simulator takes.
            gateway: Some(Effort { seconds: 30, cost: Cost::Hourly }),
            connection: Some(Effort { seconds: 60, cost: Cost::Hourly }),
            ..CloudTraits::default()
        }
    }

    /// With the process's environment and clock.
    pub fn new(options: &GcpOptions) -> Result<Self> {
        Self::with(options, World::default())
    }

    pub fn with(options: &GcpOptions, world: World) -> Result<Self> {
        let project = options.project.clone().or_else(|| world.environment.get("GOOGLE_CLOUD_PROJECT"));
        Ok(Self {
            apis: Arc::new(google::open(options, world)?.into()),
            owner: options.owner.clone().unwrap_or_else(|| "trestle".to_owned()),
            private_endpoints: options.private_endpoints,
            kubernetes_clusters: options.kubernetes_clusters,
            project,
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
            apis: Arc::clone(&self.apis),
            site: site.clone(),
            project: project.ok_or_else(none)?,
            names: Names::new(&self.owner, site),
        })
    }

    fn at(&self, at: &At) -> Result<Ground> {
        self.ground(&at.site, &at.deployment)
    }

    fn ends(&self, spec: &PeeringSpec) -> Result<[Ground; 2]> {
        let [a, b] = spec.name.ends();
        Ok([self.ground(&a.site, &spec.deployments[0])?, self.ground(&b.site, &spec.deployments[1])?])
    }

    /// A description that the configuration allows.
    fn described(&self, text: &str) -> Result<Described> {
        let described = Described::parse(text)?;
        match described {
            Described::Instance(_) => {}
            Described::Endpoint(_) => endpoints_allowed(self.private_endpoints, "Google Cloud")?,
            Described::Cluster(_) => clusters_allowed(self.kubernetes_clusters, "Google Cloud")?,
        }
        Ok(described)
    }
}

#[async_trait]
impl Cloud for GcpCloud {
    async fn describe(&self) -> Result<CloudTraits> {
        Ok(Self::traits())
    }

    async fn list(&self, at: &At) -> Result<Listing> {
        list_site(&self.at(at)?).await
    }
}

#[async_trait]
impl Networks for GcpCloud {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        let ground = self.at(at)?;
        let _turn = ground.turn(&at.site.to_string()).await;
        match Spot::of(region.as_str()) {
            Some(spot) => endpoints::networks::make(&ground, region, &spot, space).await,
            None => {
                networks::make(&ground, region, space, self.private_endpoints).await?;
                advertise::settle_router(&ground, None).await
            }
        }
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result {
        let ground = self.at(at)?;
        let _turn = ground.turn(&at.site.to_string()).await;
        match Spot::of(region.as_str()) {
            Some(spot) => endpoints::networks::remove(&ground, region, &spot).await?,
            None => networks::remove(&ground, region.as_str()).await?,
        }
        advertise::settle_router(&ground, None).await?;
        networks::remove_vpc(&ground).await
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result {
        peerings::make(&self.ends(spec)?, spec).await
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result {
        peerings::remove(&self.ends(spec)?, spec).await
    }

    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result {
        nat::make(&self.at(at)?, region).await
    }

    async fn delete_nat(&self, at: &At, region: &Segment) -> Result {
        nat::remove(&self.at(at)?, region).await
    }
}

#[async_trait]
impl Resources for GcpCloud {
    async fn inspect_resource(&self, _: &At, name: &Segment, description: &str) -> Result<Segment> {
        self.described(description)?.network(name)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        let ground = self.at(at)?;
        let described = self.described(&spec.description)?;
        spec.check_network(&described.network(&spec.name)?)?;
        match described {
            Described::Instance(description) => instances::make(&ground, spec, description).await,
            Described::Endpoint(service) => endpoints::resources::make(&ground, &spec.name, &service).await,
            Described::Cluster(cluster) => clusters::make(&ground, spec, &cluster).await,
        }
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result {
        let ground = self.at(at)?;
        attach::let_go(&ground, name).await?;
        instances::remove(&ground, name).await?;
        clusters::remove(&ground, name).await?;
        endpoints::resources::remove(&ground, name).await
    }
}

#[async_trait]
impl Attachments for GcpCloud {
    async fn inspect_attachment(&self, at: &At, id: &str) -> Result<Attachment> {
        attach::inspect(&self.at(at)?, id).await
    }

    async fn adopt_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        let ground = self.at(at)?;
        let _turn = ground.turn(&at.site.to_string()).await;
        adopt::adopt(&ground, region, space).await
    }

    async fn release_network(&self, at: &At, region: &Segment) -> Result {
        let ground = self.at(at)?;
        let _turn = ground.turn(&at.site.to_string()).await;
        adopt::release(&ground, region).await
    }

    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState> {
        attach::attach(&self.at(at)?, name, id).await
    }
}

#[async_trait]
impl PermitLists for GcpCloud {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        let ground = self.at(at)?;
        match endpoints::resources::parse(uri, &ground.project) {
            Some(_) => endpoints::resources::read_list(&ground, uri).await,
            None => lists::read(&ground, uri).await,
        }
    }

    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        let ground = self.at(at)?;
        match endpoints::resources::parse(uri, &ground.project) {
            Some(_) => endpoints::resources::put_list(&ground, uri, before, wanted).await,
            None => lists::put(&ground, uri, before, wanted).await,
        }
    }
}

#[async_trait]
impl Links for GcpCloud {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        let ground = self.at(at)?;
        let _turn = ground.turn(&at.site.to_string()).await;
        gateway::make(&ground, asn).await
    }

    async fn delete_gateway(&self, at: &At) -> Result {
        let ground = self.at(at)?;
        let _turn = ground.turn(&at.site.to_string()).await;
        gateway::remove(&ground).await
    }

    /// The router's end of a session needs the tunnel first.
    async fn create_bgp_sessions(&self, _: &At, _: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        Ok(Vec::new())
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result {
        connections::connect(&self.at(at)?, spec).await
    }

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result {
        connections::disconnect(&self.at(at)?, peer).await
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus> {
        connections::status(&self.at(at)?, peer).await
    }
}
