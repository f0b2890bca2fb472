//! The plugin itself: how it is set up, and the contract's calls, each handed to the module of its object.

use std::net::{IpAddr, Ipv4Addr};

use async_trait::async_trait;
use cloud_api::{At, Attachment, Listing, PeeringSpec, ResourceSpec, Result, prelude::*};
use cloud_http::{Turn, World};
use ipnet::Ipv4Net;
use model::{
    CloudTraits, ConnectionSpec, ConnectionStatus, Cost, Effort, GatewayState, PermitEntry, ResourceState,
    Segment, Site,
};

use crate::{
    account::{Account, Place},
    adopt, attach, connections,
    description::Description,
    ec2::{AwsOptions, Ec2},
    lists, nat, peerings, resources, sites, transit,
};

/// One AWS account.
pub struct AwsCloud {
    pub(crate) account: Account,
}

impl AwsCloud {
    /// The bounds that EC2 sets to plans.
    pub fn traits() -> CloudTraits {
        // "Specify an inside tunnel CIDR": these are taken.
        let taken = [[0, 0], [1, 0], [2, 0], [3, 0], [4, 0], [5, 0], [169, 252]];
        CloudTraits {
            bgp_reserved: taken.map(|[c, d]| Ipv4Net::new_assert([169, 254, c, d].into(), 30)).into(),
            // Two connections of two tunnels, each tunnel with an address of its own.
            tunnels: 4,
            addresses: 4,
            late_addresses: true,
            bgp_first_host: true,
            // What its documentation lets one expect, and its simulator takes.
            gateway: Some(Effort { seconds: 180, cost: Cost::Hourly }),
            connection: Some(Effort { seconds: 300, cost: Cost::Hourly }),
            ..CloudTraits::default()
        }
    }

    /// With the process's environment and clock.
    pub fn new(options: &AwsOptions) -> Result<Self> {
        Self::with(options, World::default())
    }

    pub fn with(options: &AwsOptions, world: World) -> Result<Self> {
        let ec2 = Ec2::new(options, world)?;
        let owner = options.owner.clone().unwrap_or_else(|| "trestle".to_owned());
        Ok(Self { account: Account::new(ec2, owner, options.regions.clone()) })
    }

    /// What changes a site's networks or its gateway comes one after another.
    async fn turn(&self, at: &At) -> Turn {
        self.account.turns.take(&at.site.to_string()).await
    }

    fn place<'p>(&'p self, at: &'p At, region: &'p Segment) -> Place<'p> {
        self.account.at(&at.site, region.as_str())
    }
}

#[async_trait]
impl Cloud for AwsCloud {
    async fn describe(&self) -> Result<CloudTraits> {
        Ok(Self::traits())
    }

    async fn list(&self, at: &At) -> Result<Listing> {
        sites::list(&self.account, &at.site).await
    }
}

#[async_trait]
impl Networks for AwsCloud {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        let _turn = self.turn(at).await;
        sites::make_network(self.place(at, region), space).await
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result {
        let _turn = self.turn(at).await;
        sites::remove_network(self.place(at, region)).await
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result {
        peerings::make(&self.account, &spec.name).await
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result {
        peerings::remove(&self.account, &spec.name).await
    }

    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result {
        nat::make(self.place(at, region)).await
    }

    async fn delete_nat(&self, at: &At, region: &Segment) -> Result {
        nat::remove(self.place(at, region)).await
    }
}

#[async_trait]
impl Resources for AwsCloud {
    async fn inspect_resource(&self, _: &At, _: &Segment, description: &str) -> Result<Segment> {
        Ok(Description::parse(description)?.region)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        resources::make(self.place(at, &spec.region), spec).await
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result {
        resources::remove(&self.account, &at.site, name).await
    }
}

#[async_trait]
impl Attachments for AwsCloud {
    async fn inspect_attachment(&self, at: &At, id: &str) -> Result<Attachment> {
        attach::inspect(&self.account, &at.site, id).await
    }

    async fn adopt_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result {
        let _turn = self.turn(at).await;
        adopt::adopt(&self.account, &at.site, region.as_str(), space).await
    }

    async fn release_network(&self, at: &At, region: &Segment) -> Result {
        let _turn = self.turn(at).await;
        adopt::release(&self.account, &at.site, region.as_str()).await
    }

    /// In turn with the gateway: whichever comes second joins the two.
    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState> {
        let _turn = self.turn(at).await;
        attach::attach(&self.account, &at.site, name.as_str(), id).await
    }
}

#[async_trait]
impl PermitLists for AwsCloud {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        lists::read(&self.account, &at.site, uri).await
    }

    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        lists::put(&self.account, &at.site, uri, before, wanted).await
    }
}

#[async_trait]
impl Links for AwsCloud {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        let _turn = self.turn(at).await;
        transit::make(&self.account, &at.site, asn).await
    }

    async fn delete_gateway(&self, at: &At) -> Result {
        let _turn = self.turn(at).await;
        transit::remove(&self.account, &at.site).await
    }

    /// EC2 makes its end of a session with the tunnel.
    async fn create_bgp_sessions(&self, _: &At, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        connections::tunnels_by_address(spec).map(|_| Vec::new())
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result {
        connections::connect(&self.account, &at.site, spec).await
    }

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result {
        connections::disconnect(&self.account, &at.site, peer).await
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus> {
        connections::status(&self.account, &at.site, peer).await
    }

    async fn connection_addresses(&self, at: &At, peer: &Site) -> Result<Vec<IpAddr>> {
        connections::addresses(&self.account, &at.site, peer).await
    }
}
