//! The plugin itself: the contract's calls, each handed to the module of its object.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use async_trait::async_trait;
pub(crate) use cloud_api::Result;
use cloud_api::{At, Attachment, CloudError, Listing, PeeringSpec, ResourceSpec, prelude::*};
use cloud_http::{Clock, Recent, Recorder, Turns, auth::Environment};
use futures::future::try_join_all;
use ipnet::Ipv4Net;
use model::{CloudTraits, ConnectionSpec, ConnectionStatus, GatewayState, ResourceState, Segment, Site};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    api::{AwsOptions, Ec2, text},
    description::Description,
    marks::Marks,
};

/// One AWS account.
pub struct AwsCloud {
    pub(crate) ec2: Ec2,
    owner: String,
    given_regions: Option<Vec<Segment>>,
    regions: OnceCell<Vec<String>>,
    pub(crate) turns: Turns,
    pub(crate) recent: Recent,
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
            ..CloudTraits::default()
        }
    }

    /// With the process's environment and clock.
    pub fn new(options: &AwsOptions) -> Result<Self> {
        Self::with(options, Environment::process(), None, None)
    }

    pub fn with(
        options: &AwsOptions,
        environment: Environment,
        clock: Option<Arc<dyn Clock>>,
        recorder: Option<Arc<dyn Recorder>>,
    ) -> Result<Self> {
        Ok(Self {
            ec2: Ec2::new(options, environment, clock, recorder)?,
            owner: options.owner.clone().unwrap_or_else(|| "trestle".to_owned()),
            given_regions: options.regions.clone(),
            regions: OnceCell::new(),
            turns: Turns::default(),
            recent: Recent::default(),
        })
    }

    pub(crate) fn marks<'m>(&'m self, site: &'m Site) -> Marks<'m> {
        Marks { owner: &self.owner, site }
    }

    /// Finds what this controller made, of whichever site.
    pub(crate) fn owner_filter(&self) -> serde_json::Value {
        json!({"Name": "tag:trestle:owner", "Value": [self.owner]})
    }

    /// The regions to look at.
    pub(crate) async fn regions(&self) -> Result<&[String]> {
        let find = || async {
            if let Some(given) = &self.given_regions {
                return Ok(given.iter().map(ToString::to_string).collect());
            }
            let found = self.ec2.list("us-east-1", "DescribeRegions", "regionInfo", json!({})).await?;
            Ok::<_, CloudError>(found.iter().map(|region| text(region, "regionName").to_owned()).collect())
        };
        self.regions.get_or_try_init(find).await.map(Vec::as_slice)
    }

    /// Waits until reads show what was last written to this kind of object at this site.
    pub(crate) async fn settle(&self, site: &Site, kind: &str) {
        self.recent.settle(&format!("{site}/{kind}"), self.ec2.clock()).await;
    }

    pub(crate) fn touch(&self, site: &Site, kind: &str) {
        self.recent.touch(&format!("{site}/{kind}"), self.ec2.clock());
    }
}

#[async_trait]
impl Cloud for AwsCloud {
    async fn describe(&self) -> Result<CloudTraits> {
        Ok(Self::traits())
    }

    async fn list(&self, at: &At) -> Result<Listing> {
        let regions = self.regions().await?;
        let parts = try_join_all(regions.iter().map(|region| self.list_region(&at.site, region))).await?;
        let mut listing = Listing::default();
        for part in parts {
            listing.networks.extend(part.networks);
            listing.resources.extend(part.resources);
            listing.peerings.extend(part.peerings);
            listing.nats.extend(part.nats);
        }
        if !listing.networks.is_empty() {
            (listing.gateway, listing.connections) = self.list_gateway(&at.site).await?;
        }
        listing.peerings.sort();
        listing.peerings.dedup();
        listing.connections.sort();
        listing.connections.dedup();
        Ok(listing)
    }
}

#[async_trait]
impl Networks for AwsCloud {
    async fn ensure_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<()> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        self.make_network(&at.site, region.as_str(), space).await
    }

    async fn delete_network(&self, at: &At, region: &Segment) -> Result<()> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        self.remove_network(&at.site, region.as_str()).await
    }

    async fn ensure_peering(&self, spec: &PeeringSpec) -> Result<()> {
        self.make_peering(&spec.name).await
    }

    async fn delete_peering(&self, spec: &PeeringSpec) -> Result<()> {
        self.remove_peering(&spec.name).await
    }

    async fn ensure_nat(&self, at: &At, region: &Segment) -> Result<()> {
        self.make_nat(&at.site, region.as_str()).await
    }

    async fn delete_nat(&self, at: &At, region: &Segment) -> Result<()> {
        self.remove_nat(&at.site, region.as_str()).await
    }
}

#[async_trait]
impl Resources for AwsCloud {
    async fn inspect_resource(&self, _: &At, _: &Segment, description: &str) -> Result<Segment> {
        Ok(Description::parse(description)?.region)
    }

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        self.make_resource(&at.site, spec).await
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result<()> {
        self.remove_resource(&at.site, name).await
    }
}

#[async_trait]
impl Attachments for AwsCloud {
    async fn inspect_attachment(&self, at: &At, id: &str) -> Result<Attachment> {
        self.inspect_instance(&at.site, id).await
    }

    async fn adopt_network(&self, at: &At, region: &Segment, space: Ipv4Net) -> Result<()> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        self.adopt(&at.site, region.as_str(), space).await
    }

    async fn release_network(&self, at: &At, region: &Segment) -> Result<()> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        self.release(&at.site, region.as_str()).await
    }

    /// In turn with the gateway: whichever comes second joins the two.
    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        self.attach_instance(&at.site, name.as_str(), id).await
    }
}

#[async_trait]
impl Links for AwsCloud {
    async fn create_gateway(&self, at: &At, asn: u32) -> Result<GatewayState> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        self.make_gateway(&at.site, asn).await
    }

    async fn delete_gateway(&self, at: &At) -> Result<()> {
        let _turn = self.turns.take(&at.site.to_string()).await;
        self.remove_gateway(&at.site).await
    }

    /// EC2 makes its end of a session with the tunnel.
    async fn create_bgp_sessions(&self, _: &At, spec: &ConnectionSpec) -> Result<Vec<Ipv4Addr>> {
        crate::connections::tunnels_by_address(spec).map(|_| Vec::new())
    }

    async fn create_connections(&self, at: &At, spec: &ConnectionSpec) -> Result<()> {
        self.connect(&at.site, spec).await
    }

    async fn delete_connections(&self, at: &At, peer: &Site) -> Result<()> {
        self.disconnect(&at.site, peer).await
    }

    async fn connection_status(&self, at: &At, peer: &Site) -> Result<ConnectionStatus> {
        self.status(&at.site, peer).await
    }

    async fn connection_addresses(&self, at: &At, peer: &Site) -> Result<Vec<IpAddr>> {
        self.addresses(&at.site, peer).await
    }
}
