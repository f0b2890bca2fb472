//! Networks: a VPC. And what a region's part of a site consists of.

use cloud_api::{CloudError, Listing};
use cloud_http::Class;
use futures::future::try_join_all;
use ipnet::Ipv4Net;
use model::{GatewayState, ResourceState, Segment, Site};
use serde_json::{Value, json};

use crate::{
    adopt::{blocks, place},
    api::{or_gone, text},
    cloud::{AwsCloud, Result},
    groups::first_group,
    lists::Uri,
    marks::mark,
    subnets::Parts,
};

/// How long something may stay in use by what is on its way out.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(180);

/// A site's network in a region.
#[derive(Clone, Debug)]
pub(crate) struct Vpc {
    pub(crate) region: String,
    pub(crate) id: String,
    pub(crate) space: Ipv4Net,
    /// Somebody else made it.
    pub(crate) adopted: bool,
}

impl AwsCloud {
    /// A site's VPCs in a region: those made for it, then those adopted. Of two that were made, which only a lost answer
    /// can leave, the older counts.
    pub(crate) async fn vpcs_in(&self, site: &Site, region: &str) -> Result<Vec<Vpc>> {
        self.settle(site, "vpc").await;
        // Made and adopted ones in one request: they have different tags, and filters of different tags must all be passed.
        let keys = json!([{"Name": "tag-key", "Value": ["trestle:*"]}]);
        let found = self.ec2.list(region, "DescribeVpcs", "vpcSet", json!({"Filter": keys})).await?;
        let marks = self.marks(site);
        let vpc = |vpc: &Value| {
            let space = match (marks.own(vpc), marks.adopts(vpc)) {
                (true, _) => text(vpc, "cidrBlock").parse().ok()?,
                // The block that instances are attached from. A VPC that has lost it is not the one that was adopted.
                (false, true) => {
                    mark(vpc, "space")?.parse().ok().filter(|space| blocks(vpc).contains(space))?
                }
                (false, false) => return None,
            };
            let id = text(vpc, "vpcId").to_owned();
            Some(Vpc { region: region.to_owned(), id, space, adopted: !marks.own(vpc) })
        };
        let mut vpcs: Vec<Vpc> = found.iter().filter_map(vpc).collect();
        vpcs.sort_by(|a, b| (a.adopted, &a.id).cmp(&(b.adopted, &b.id)));
        Ok(vpcs)
    }

    /// A network by its name, which is a region's or that of an adopted one.
    pub(crate) async fn vpc(&self, site: &Site, name: &str) -> Result<Option<Vpc>> {
        let (region, adopted) = place(name);
        let is_it = |vpc: &Vpc| match adopted {
            Some(id) => vpc.adopted && vpc.id == id,
            None => !vpc.adopted,
        };
        Ok(self.vpcs_in(site, region).await?.into_iter().find(is_it))
    }

    pub(crate) async fn need_vpc(&self, site: &Site, region: &str) -> Result<Vpc> {
        let none = || CloudError::conflict(format!("there is no network {site}.{region}"));
        self.vpc(site, region).await?.ok_or_else(none)
    }

    /// The VPCs of a site in all regions.
    pub(crate) async fn vpcs(&self, site: &Site) -> Result<Vec<Vpc>> {
        let regions = self.regions().await?;
        let found = try_join_all(regions.iter().map(|region| self.vpcs_in(site, region))).await?;
        let mut all: Vec<Vpc> = found.into_iter().flatten().collect();
        all.dedup_by(|second, first| !second.adopted && !first.adopted && second.region == first.region);
        all.sort_by_key(|vpc| vpc.adopted);
        Ok(all)
    }

    pub(crate) async fn make_network(&self, site: &Site, region: &str, space: Ipv4Net) -> Result<()> {
        Parts::of(space)?;
        let known = self.regions().await?;
        if !known.iter().any(|one| one == region) {
            return Err(CloudError::invalid(format!(
                "the account has no region {region}; it has {}",
                known.join(", ")
            )));
        }
        let vpc = match self.vpc(site, region).await? {
            Some(vpc) if vpc.space != space => {
                let message = format!("the network {site}.{region} has the space {}, not {space}", vpc.space);
                return Err(CloudError::conflict(message));
            }
            Some(vpc) => vpc,
            None => {
                let tags = self.marks(site).specification("vpc", region, &[("region", region)])?;
                self.touch(site, "vpc");
                let made = self.ec2.call(
                    region,
                    "CreateVpc",
                    json!({"CidrBlock": space.to_string(), "TagSpecification": tags}),
                );
                let made = made.await?;
                let id = text(&made["vpc"], "vpcId").to_owned();
                Vpc { region: region.to_owned(), id, space, adopted: false }
            }
        };
        self.zone_subnet(site, &vpc, None).await?;
        if let Some(hub) = self.hub(site).await? {
            self.attach(site, &hub, &[vpc]).await?;
        }
        Ok(())
    }

    pub(crate) async fn remove_network(&self, site: &Site, region: &str) -> Result<()> {
        if let (_, Some(id)) = place(region) {
            return Err(CloudError::conflict(format!("{id} is somebody else's; it can only be let go")));
        }
        for vpc in self.vpcs_in(site, region).await?.into_iter().filter(|vpc| !vpc.adopted) {
            let inside = self.instances(site, region, &[]).await?;
            if let Some(instance) = inside.iter().find(|instance| text(instance, "vpcId") == vpc.id) {
                let name = mark(instance, "name").unwrap_or(text(instance, "instanceId"));
                return Err(CloudError::conflict(format!(
                    "the network {site}.{region} has the resource {name} in it"
                )));
            }
            self.detach(site, &vpc).await?;
            let own = json!({"Filter": [{"Name": "vpc-id", "Value": [vpc.id]}]});
            self.settle(site, "subnet").await;
            for subnet in self.ec2.list(region, "DescribeSubnets", "subnetSet", own).await? {
                let id = text(&subnet, "subnetId").to_owned();
                self.delete(region, "DeleteSubnet", json!({"SubnetId": id})).await?;
                self.touch(site, "subnet");
            }
            self.delete(region, "DeleteVpc", json!({"VpcId": vpc.id})).await?;
            self.touch(site, "vpc");
        }
        Ok(())
    }

    /// Deletes what may still be in use for a moment: what used it is on its way out.
    pub(crate) async fn delete(&self, region: &str, action: &str, parameters: Value) -> Result<()> {
        let end = self.ec2.clock().now() + PATIENCE;
        let mut pause = std::time::Duration::from_secs(2);
        loop {
            match or_gone(self.ec2.safe(region, action, parameters.clone()).await) {
                Ok(()) => return Ok(()),
                Err(failure) if failure.is(Class::InUse) && self.ec2.clock().now() < end => {
                    self.ec2.clock().sleep(pause).await;
                    pause = (pause * 2).min(std::time::Duration::from_secs(15));
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// One region's part of a site, the gateway aside.
    pub(crate) async fn list_region(&self, site: &Site, region: &str) -> Result<Listing> {
        let vpcs = self.vpcs_in(site, region).await?;
        let adopted = self.list_adopted(site, region, &vpcs).await?;
        let Some(vpc) = vpcs.iter().find(|vpc| !vpc.adopted) else {
            // A peering that begins here with an adopted network.
            let peerings = match adopted.networks.is_empty() {
                true => Vec::new(),
                false => self.peerings_in(site, region).await?,
            };
            return Ok(Listing { peerings, ..adopted });
        };
        let place: Segment =
            region.parse().map_err(|_| CloudError::invalid(format!("{region} is no region's name")))?;
        let nat_filters = json!({"Filter": self.marks(site).filters(&[])});
        let nats =
            async { Ok(self.ec2.list(region, "DescribeNatGateways", "natGatewaySet", nat_filters).await?) };
        let (instances, peerings, nats) =
            futures::try_join!(self.instances(site, region, &[]), self.peerings_in(site, region), nats)?;
        let resource =
            |instance: &Value| Some((mark(instance, "name")?.parse().ok()?, state_of(instance, region)?));
        Ok(Listing {
            networks: [(place.clone(), vpc.space)].into_iter().chain(adopted.networks).collect(),
            resources: instances.iter().filter_map(resource).chain(adopted.resources).collect(),
            peerings,
            nats: if nats.iter().any(is_alive) { vec![place] } else { Vec::new() },
            gateway: None,
            connections: Vec::new(),
        })
    }

    /// The site's gateway, which may stand in a region that has no network any more, and whom it is connected to.
    pub(crate) async fn list_gateway(&self, site: &Site) -> Result<(Option<GatewayState>, Vec<Site>)> {
        let Some(hub) = self.hub(site).await? else { return Ok((None, Vec::new())) };
        let connections = self.connections_in(site, &hub.region).await?;
        let peers =
            connections.iter().filter_map(|connection| mark(connection, "peer")?.parse().ok()).collect();
        Ok((Some(GatewayState { asn: hub.asn, addresses: Vec::new() }), peers))
    }
}

/// An object that is not deleted, nor being deleted, nor failed.
pub(crate) fn is_alive(object: &Value) -> bool {
    !matches!(text(object, "state"), "deleting" | "deleted" | "failed")
}

/// An instance as the contract knows it. Its id is region, instance, group and name.
pub(crate) fn state_of(instance: &Value, region: &str) -> Option<ResourceState> {
    let (id, group, name) = (text(instance, "instanceId"), first_group(instance)?, mark(instance, "name")?);
    Some(ResourceState {
        uri: Uri { region, instance: id, group, name }.to_string(),
        address: text(instance, "privateIpAddress").parse().ok()?,
        region: region.parse().ok()?,
    })
}
