//! Subnets: one for resources in each zone that has any, and a public one for NAT.
//!
//! ```text
//!   ├── resources ───────────────┼── resources-2 ──┼─ resources-3 ─┼ -4 ┼ public ┤
//!   half                          a quarter         an eighth       a sixteenth each
//! ```
//!
//! The largest is for the first zone that is used, which without a user's wish is the region's first.

use cloud_api::CloudError;
use ipnet::Ipv4Net;
use model::Site;
use serde_json::{Value, json};

use crate::{
    api::text,
    cloud::{AwsCloud, Result},
    marks::mark,
    networks::Vpc,
};

/// The subnets of resources, by size.
const ROLES: [&str; 4] = ["resources", "resources-2", "resources-3", "resources-4"];

/// The parts of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// In the order of their roles.
    zones: [Ipv4Net; 4],
    pub(crate) public: Ipv4Net,
}

impl Parts {
    pub(crate) fn of(space: Ipv4Net) -> Result<Self> {
        let length = space.prefix_len();
        if !(16..=24).contains(&length) {
            return Err(CloudError::invalid(format!(
                "{space} cannot be a network in AWS: a VPC is a /16 or smaller, and below /24 its subnets would be too small"
            )));
        }
        let halves = |space: Ipv4Net| {
            let none = || CloudError::invalid(format!("{space} cannot be divided"));
            let mut halves = space.subnets(space.prefix_len() + 1).map_err(|_| none())?;
            halves.next().zip(halves.next()).ok_or_else(none)
        };
        let (half, rest) = halves(space)?;
        let (quarter, rest) = halves(rest)?;
        let (eighth, rest) = halves(rest)?;
        let (sixteenth, public) = halves(rest)?;
        Ok(Self { zones: [half, quarter, eighth, sixteenth], public })
    }
}

impl AwsCloud {
    async fn subnets(&self, site: &Site, vpc: &Vpc, roles: &[&str]) -> Result<Vec<Value>> {
        self.settle(site, "subnet").await;
        let mut filters = self.marks(site).filters(&[]);
        if let Some(filters) = filters.as_array_mut() {
            filters.push(json!({"Name": "tag:trestle:role", "Value": roles}));
            filters.push(json!({"Name": "vpc-id", "Value": [vpc.id]}));
        }
        Ok(self.ec2.list(&vpc.region, "DescribeSubnets", "subnetSet", json!({"Filter": filters})).await?)
    }

    /// The subnets that resources are in, with their zones.
    pub(crate) async fn resource_subnets(&self, site: &Site, vpc: &Vpc) -> Result<Vec<(String, String)>> {
        let found = match vpc.adopted {
            true => self.attached_subnets(site, vpc).await?,
            false => self.subnets(site, vpc, &ROLES).await?,
        };
        let own = |subnet: &Value| {
            (text(subnet, "subnetId").to_owned(), text(subnet, "availabilityZone").to_owned())
        };
        Ok(found.iter().map(own).collect())
    }

    pub(crate) async fn find_public_subnet(&self, site: &Site, vpc: &Vpc) -> Result<Option<String>> {
        let found = self.subnets(site, vpc, &["public"]).await?;
        Ok(found.first().map(|subnet| text(subnet, "subnetId").to_owned()))
    }

    /// The subnet that NAT stands in, made if it is not there.
    pub(crate) async fn public_part(&self, site: &Site, vpc: &Vpc) -> Result<String> {
        match self.find_public_subnet(site, vpc).await? {
            Some(id) => Ok(id),
            None => self.make_subnet(site, vpc, "public", Parts::of(vpc.space)?.public, None).await,
        }
    }

    /// The subnet for resources of a zone, or of any if none is named; made if it is not there.
    pub(crate) async fn zone_subnet(&self, site: &Site, vpc: &Vpc, zone: Option<&str>) -> Result<String> {
        let _turn = self.turns.take(&format!("subnets/{}", vpc.id)).await;
        let found = self.subnets(site, vpc, &ROLES).await?;
        let suits = |subnet: &&Value| match zone {
            Some(zone) => text(subnet, "availabilityZone") == zone,
            None => mark(subnet, "role") == Some(ROLES[0]),
        };
        let there = found.iter().find(suits);
        let id = match there {
            Some(subnet) => text(subnet, "subnetId").to_owned(),
            None => {
                let is_free = |role: &str| !found.iter().any(|subnet| mark(subnet, "role") == Some(role));
                let spaces = Parts::of(vpc.space)?.zones;
                let free = ROLES.into_iter().zip(spaces).find(|(role, _)| is_free(role));
                let full = || {
                    let used: Vec<&str> =
                        found.iter().map(|subnet| text(subnet, "availabilityZone")).collect();
                    let zone = zone.unwrap_or_default();
                    CloudError::conflict(format!(
                        "the network {site}.{} has no room for the zone {zone}: it is in {}; use one of these",
                        vpc.region,
                        used.join(", ")
                    ))
                };
                let (role, space) = free.ok_or_else(full)?;
                self.make_subnet(site, vpc, role, space, zone).await?
            }
        };
        // A gateway serves the zones in which it is attached. Also when it was found: a crash may have come between.
        if zone.is_some()
            && there.and_then(|subnet| mark(subnet, "role")) != Some(ROLES[0])
            && let Some(hub) = self.hub(site).await?
        {
            self.attach(site, &hub, std::slice::from_ref(vpc)).await?;
        }
        Ok(id)
    }

    async fn make_subnet(
        &self,
        site: &Site,
        vpc: &Vpc,
        role: &str,
        space: Ipv4Net,
        zone: Option<&str>,
    ) -> Result<String> {
        let zones = self
            .ec2
            .list(&vpc.region, "DescribeAvailabilityZones", "availabilityZoneInfo", json!({}))
            .await?;
        let available = zones.iter().filter(|zone| text(zone, "zoneState") == "available");
        let available: Vec<&str> = available.map(|zone| text(zone, "zoneName")).collect();
        if let Some(zone) = zone.filter(|zone| !available.contains(zone)) {
            return Err(CloudError::invalid(format!(
                "{} has no zone {zone}; available are {}",
                vpc.region,
                available.join(", ")
            )));
        }
        let tags = self.marks(site).specification("subnet", role, &[("role", role)])?;
        let mut wanted = json!({"VpcId": vpc.id, "CidrBlock": space.to_string(), "TagSpecification": tags});
        if let Some(zone) = zone.or(available.first().copied()) {
            wanted["AvailabilityZone"] = zone.into();
        }
        self.touch(site, "subnet");
        let made = self.ec2.fresh(&vpc.region, "CreateSubnet", wanted).await?;
        Ok(text(&made["subnet"], "subnetId").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_divided_and_too_small_ones_are_refused() {
        let of = |text: &str| Parts::of(text.parse().unwrap());
        let large = of("10.4.0.0/16").unwrap();
        let zones = ["10.4.0.0/17", "10.4.128.0/18", "10.4.192.0/19", "10.4.224.0/20"];
        assert_eq!(large.zones, zones.map(|text| text.parse().unwrap()));
        assert_eq!(large.public, "10.4.240.0/20".parse().unwrap());
        assert_eq!(of("10.4.1.0/24").unwrap().public, "10.4.1.240/28".parse().unwrap());
        assert!(of("10.0.0.0/15").is_err() && of("10.0.0.0/25").is_err());
    }
}
