//! Adopted networks: VPCs that somebody else made, and that resources are attached from.
//!
//! ```text
//!   us-east-1-vpc-0abc    the network's name: region and VPC
//!   VPC                   gets the tag trestle:adopted-by, the only thing that is put on what is not ours
//!   its route tables      those that attached instances use get routes to our gateway and peerings
//! ```
//!
//! A VPC of ours has other tags, so nothing that deletes networks ever finds one of these.

use cloud_api::{CloudError, Listing};
use ipnet::Ipv4Net;
use model::Site;
use serde_json::{Value, json};

use crate::{
    api::{items, or_gone, text},
    attach::Attached,
    cloud::{AwsCloud, Result},
    marks::mark,
    networks::Vpc,
};

/// The region of a network's name, and the VPC if it is an adopted one's.
pub(crate) fn place(name: &str) -> (&str, Option<&str>) {
    match name.find("-vpc-") {
        Some(at) => (&name[..at], Some(&name[at + 1..])),
        None => (name, None),
    }
}

/// The address blocks of a VPC.
pub(crate) fn blocks(vpc: &Value) -> Vec<Ipv4Net> {
    let associated = items(&vpc["cidrBlockAssociationSet"])
        .filter(|one| text(&one["cidrBlockState"], "state") == "associated")
        .map(|one| text(one, "cidrBlock"));
    let mut blocks: Vec<Ipv4Net> =
        [text(vpc, "cidrBlock")].into_iter().chain(associated).filter_map(|text| text.parse().ok()).collect();
    blocks.sort();
    blocks.dedup();
    blocks
}

impl AwsCloud {
    /// Any VPC.
    pub(crate) async fn vpc_by_id(&self, site: &Site, region: &str, id: &str) -> Result<Option<Value>> {
        self.settle(site, "vpc").await;
        let filters = json!({"Filter": [{"Name": "vpc-id", "Value": [id]}]});
        Ok(self.ec2.list(region, "DescribeVpcs", "vpcSet", filters).await?.into_iter().next())
    }

    pub(crate) async fn adopt(&self, site: &Site, name: &str, space: Ipv4Net) -> Result<()> {
        let (region, Some(id)) = place(name) else {
            return Err(CloudError::invalid(format!("{name} names no VPC to adopt")));
        };
        let found = self.vpc_by_id(site, region, id).await?;
        let found = found.ok_or_else(|| CloudError::not_found(format!("there is no {id} in {region}")))?;
        if !blocks(&found).contains(&space) {
            return Err(CloudError::conflict(format!("{id} has {:?}, and not {space}", blocks(&found))));
        }
        self.check_adopter(site, &found)?;
        if mark(&found, "adopted-by").is_none() || mark(&found, "space") != Some(&space.to_string()) {
            let tags = json!([{"Key": "trestle:adopted-by", "Value": self.marks(site).adopter()}, {"Key": "trestle:space", "Value": space.to_string()}]);
            self.touch(site, "vpc");
            self.ec2.safe(region, "CreateTags", json!({"ResourceId": [id], "Tag": tags})).await?;
        }
        if let Some(hub) = self.hub(site).await? {
            let vpc = Vpc { region: region.to_owned(), id: id.to_owned(), space, adopted: true };
            self.attach(site, &hub, &[vpc]).await?;
        }
        Ok(())
    }

    /// Refuses a VPC that is another site's or controller's.
    pub(crate) fn check_adopter(&self, site: &Site, vpc: &Value) -> Result<()> {
        let id = text(vpc, "vpcId");
        if let Some(owner) = mark(vpc, "owner") {
            return Err(CloudError::conflict(format!(
                "{id} is a network that Trestle ({owner}) made itself"
            )));
        }
        match mark(vpc, "adopted-by") {
            Some(other) if other != self.marks(site).adopter() => Err(CloudError::conflict(format!(
                "{id} is adopted already, by {other}; a VPC belongs to one site"
            ))),
            _ => Ok(()),
        }
    }

    pub(crate) async fn release(&self, site: &Site, name: &str) -> Result<()> {
        let (region, Some(_)) = place(name) else { return Ok(()) };
        let Some(vpc) = self.vpc(site, name).await? else { return Ok(()) };
        let attached = self.attached(site, region).await?;
        if let Some(one) = attached.iter().find(|one| one.vpc == vpc.id) {
            return Err(CloudError::conflict(format!("the resource {} is attached from {name}", one.name)));
        }
        for transit in self.transits_in(site, region).await? {
            self.unroute(&vpc, "transitGatewayId", &transit).await?;
        }
        self.detach(site, &vpc).await?;
        let tags = json!([{"Key": "trestle:adopted-by"}, {"Key": "trestle:space"}]);
        self.touch(site, "vpc");
        Ok(or_gone(self.ec2.safe(region, "DeleteTags", json!({"ResourceId": [vpc.id], "Tag": tags})).await)?)
    }

    /// A region's adopted networks, among its networks, and what is attached from them.
    pub(crate) async fn list_adopted(&self, site: &Site, region: &str, vpcs: &[Vpc]) -> Result<Listing> {
        let vpcs: Vec<&Vpc> = vpcs.iter().filter(|vpc| vpc.adopted).collect();
        if vpcs.is_empty() {
            return Ok(Listing::default());
        }
        let attached = self.attached(site, region).await?;
        let network = |vpc: &&Vpc| Some((format!("{region}-{}", vpc.id).parse().ok()?, vpc.space));
        let resource = |one: &Attached| Some((one.name.parse().ok()?, one.state(region)?));
        Ok(Listing {
            networks: vpcs.iter().filter_map(network).collect(),
            resources: attached.iter().filter_map(resource).collect(),
            ..Listing::default()
        })
    }

    async fn attached_in(&self, site: &Site, vpc: &Vpc) -> Result<Vec<Attached>> {
        let all = self.attached(site, &vpc.region).await?;
        Ok(all.into_iter().filter(|one| one.vpc == vpc.id).collect())
    }

    /// The subnets that attached instances are in.
    pub(crate) async fn attached_subnets(&self, site: &Site, vpc: &Vpc) -> Result<Vec<Value>> {
        let attached = self.attached_in(site, vpc).await?;
        let mut ids: Vec<&str> = attached.iter().filter_map(Attached::subnet).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let filters = json!({"Filter": [{"Name": "subnet-id", "Value": ids}]});
        Ok(self.ec2.list(&vpc.region, "DescribeSubnets", "subnetSet", filters).await?)
    }

    /// The zones of subnets: those of `known`, and EC2's word for others.
    pub(crate) async fn zones_of(
        &self,
        vpc: &Vpc,
        ids: &[&str],
        known: &[(String, String)],
    ) -> Result<Vec<String>> {
        let of = |id: &&str| known.iter().find(|(other, _)| other == id).map(|(_, zone)| zone.clone());
        let (found, unknown): (Vec<_>, Vec<_>) =
            ids.iter().map(|id| (id, of(id))).partition(|(_, zone)| zone.is_some());
        let mut zones: Vec<String> = found.into_iter().filter_map(|(_, zone)| zone).collect();
        if !unknown.is_empty() {
            let unknown: Vec<&&str> = unknown.into_iter().map(|(id, _)| id).collect();
            let filters = json!({"Filter": [{"Name": "subnet-id", "Value": unknown}]});
            let subnets = self.ec2.list(&vpc.region, "DescribeSubnets", "subnetSet", filters).await?;
            zones.extend(subnets.iter().map(|subnet| text(subnet, "availabilityZone").to_owned()));
        }
        Ok(zones)
    }

    pub(crate) async fn all_tables(&self, vpc: &Vpc) -> Result<Vec<Value>> {
        self.recent.settle(&format!("routes/{}", vpc.id), self.ec2.clock()).await;
        let filters = json!({"Filter": [{"Name": "vpc-id", "Value": [vpc.id]}]});
        Ok(self.ec2.list(&vpc.region, "DescribeRouteTables", "routeTableSet", filters).await?)
    }

    /// The route tables that attached instances use: their subnets' own, or else the main one.
    pub(crate) async fn attached_tables(&self, site: &Site, vpc: &Vpc) -> Result<Vec<Value>> {
        let attached = self.attached_in(site, vpc).await?;
        let mut subnets = attached.iter().filter_map(Attached::subnet).peekable();
        if subnets.peek().is_none() {
            return Ok(Vec::new());
        }
        let tables = self.all_tables(vpc).await?;
        let used: Vec<&str> = subnets.filter_map(|subnet| table_of(&tables, subnet)).collect();
        let is_used = |table: &Value| used.contains(&text(table, "routeTableId"));
        Ok(tables.iter().filter(|table| is_used(table)).cloned().collect())
    }
}

/// The id of the route table that a subnet uses.
pub(crate) fn table_of<'t>(tables: &'t [Value], subnet: &str) -> Option<&'t str> {
    let associated =
        |table: &&Value| items(&table["associationSet"]).any(|one| text(one, "subnetId") == subnet);
    let is_main = |table: &&Value| items(&table["associationSet"]).any(|one| text(one, "main") == "true");
    let table = tables.iter().find(associated).or_else(|| tables.iter().find(is_main))?;
    Some(text(table, "routeTableId"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_networks_tell_region_and_vpc() {
        assert_eq!(place("us-east-1"), ("us-east-1", None));
        assert_eq!(place("us-east-1-vpc-0ab"), ("us-east-1", Some("vpc-0ab")));
    }

    #[test]
    fn a_subnet_without_a_table_of_its_own_uses_the_main_one() {
        let tables = [
            json!({"routeTableId": "rtb-1", "associationSet": [{"main": "true"}]}),
            json!({"routeTableId": "rtb-2", "associationSet": [{"main": "false", "subnetId": "subnet-2"}]}),
        ];
        assert_eq!(table_of(&tables, "subnet-1"), Some("rtb-1"));
        assert_eq!(table_of(&tables, "subnet-2"), Some("rtb-2"));
    }
}
