//! The plugin itself: the contract's calls, each handed to the module of its object.

use std::net::Ipv4Addr;

use async_trait::async_trait;
use cloud_api::{At, Attachment, Listing, PeeringSpec, ResourceSpec, prelude::*};
use cloud_http::{Turns, World};
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, Cost, Effort, GatewayState, PermitEntry, ResourceState,
    Segment, Site,
};

use crate::{
    adopt,
    arm::Arm,
    attach, connections, gateway, listing, lists, nat, networks,
    options::{AzureOptions, Settings},
    peerings,
    place::*,
    resources::{self, Described},
};

/// Azure, any number of resource groups.
pub struct AzureCloud {
    arm: Arm,
    settings: Settings,
    turns: Turns,
}

impl AzureCloud {
    /// The bounds that Azure sets to plans: it takes custom BGP addresses from 169.254.21.0 to 169.254.22.255 only.
    pub fn traits() -> CloudTraits {
        CloudTraits {
            bgp_first: [169, 254, 21, 0].into(),
            bgp_last: [169, 254, 22, 252].into(),
            tunnels: 4,
            asn_reserved: vec![(65_515, 65_515), (65_517, 65_520)],
            // What its documentation lets one expect, and its simulator takes.
            gateway: Some(Effort { seconds: 1500, cost: Cost::Hourly }),
            connection: Some(Effort { seconds: 30, cost: Cost::Hourly }),
            ..CloudTraits::default()
        }
    }

    /// With the process's environment and clock.
    pub fn new(options: &AzureOptions) -> Result<Self> {
        Self::with(options, World::default())
    }

    pub fn with(options: &AzureOptions, world: World) -> Result<Self> {
        let settings = Settings::of(options, &world.environment)?;
        Ok(Self { arm: Arm::new(options, world)?, settings, turns: Turns::default() })
    }

    fn at(&self, at: &At) -> Result<Place<'_>> {
        self.place(&at.site, &at.deployment)
    }

    fn place(&self, site: &Site, deployment: &str) -> Result<Place<'_>> {
        Place::of(&self.arm, &self.settings, &self.turns, site, deployment)
    }

    fn ends(&self, spec: &PeeringSpec) -> Result<[Place<'_>; 2]> {
        let ([a, b], [one, two]) = (spec.name.ends(), &spec.deployments);
        Ok([self.place(&a.site, one)?, self.place(&b.site, two)?])
    }
}

#[async_trait]
impl Cloud for AzureCloud {
    async fn describe(&self) -> Result<CloudTraits> {
        Ok(Self::traits())
    }

    async fn list(&self, at: &At) -> Result<Listing> {
        listing::read(&self.at(at)?).await
    }
}

#[async_trait]
impl Networks for AzureCloud {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        networks::make(&self.at(at)?, region, space).await
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result {
        networks::remove(&self.at(at)?, region).await
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
impl Resources for AzureCloud {
    async fn inspect_resource(&self, _: &At, name: &Segment, description: &str) -> Result<Segment> {
        Described::read(description, self.settings.makes_clusters)?.network(name)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        resources::make(&self.at(at)?, spec).await
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result {
        resources::remove(&self.at(at)?, name).await
    }
}

#[async_trait]
impl Attachments for AzureCloud {
    async fn inspect_attachment(&self, at: &At, id: &str) -> Result<Attachment> {
        attach::inspect(&self.at(at)?, id).await
    }

    async fn adopt_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        adopt::adopt(&self.at(at)?, region, space).await
    }

    async fn release_network(&self, at: &At, region: &Segment) -> Result {
        adopt::release(&self.at(at)?, region).await
    }

    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState> {
        attach::attach(&self.at(at)?, name, id).await
    }
}

#[async_trait]
impl PermitLists for AzureCloud {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        lists::read(&self.at(at)?, uri).await
    }

    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        lists::put(&self.at(at)?, uri, before, wanted).await
    }
}

#[async_trait]
impl Links for AzureCloud {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        gateway::make(&self.at(at)?, asn).await
    }

    async fn delete_gateway(&self, at: &At) -> Result {
        gateway::remove(&self.at(at)?).await
    }

    async fn create_bgp_sessions(&self, at: &At, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        connections::offer_sessions(&self.at(at)?, spec).await.map(|()| Vec::new())
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result {
        connections::make(&self.at(at)?, spec).await
    }

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result {
        connections::remove(&self.at(at)?, peer).await
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus> {
        connections::status(&self.at(at)?, peer).await
    }
}
