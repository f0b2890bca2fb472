//! Adopted networks: VPCs that somebody else made, and that instances are attached from.
//!
//! ```text
//!   us-west1-vpc-HASH   the network's name: region, and a hash of the VPC's path
//!   t-SITE-ad-HASH      a disabled firewall of ours in that VPC that says so, and which subnet's range it is about
//!   site's VPC          has the gateway; peered with the adopted one, it exports what the gateway has learnt, and its
//!                       router advertises the range
//! ```
//!
//! Into the VPC itself come firewalls and peerings only, with names of ours.

use cloud_api::CloudError;
use ipnet::Ipv4Net;
use model::Segment;
use serde_json::{Value, json};

use crate::{
    cloud::{GcpCloud, Ground, Result, Vpc, is_cluster},
    names::{self, Mark, hash, last, path},
};

/// A network that a site has adopted.
#[derive(Clone, Debug)]
pub(crate) struct Adopted {
    pub(crate) name: Segment,
    pub(crate) vpc: Vpc,
    pub(crate) space: Ipv4Net,
}

/// The region of an adopted network's name; none if it is a region itself, or a cluster's network.
pub(crate) fn adopted_region(name: &str) -> Option<&str> {
    let (region, _) = name.split_once("-vpc-")?;
    (!is_cluster(name)).then_some(region)
}

/// What the VPC of a subnet is called once it is adopted from there.
pub(crate) fn name_of(subnet: &Value) -> Result<Segment> {
    let name = format!("{}-vpc-{}", last(&subnet["region"]), hash(path(&subnet["network"]), 10));
    name.parse().map_err(|_| CloudError::unavailable(format!("the subnet {} has no region", subnet["name"])))
}

pub(crate) fn range(subnet: &Value) -> Option<Ipv4Net> {
    subnet["ipCidrRange"].as_str()?.parse().ok()
}

/// All ranges of a subnet. Peered VPCs have routes to every one of them.
pub(crate) fn ranges(subnet: &Value) -> Vec<Ipv4Net> {
    let more = subnet["secondaryIpRanges"].as_array().into_iter().flatten().filter_map(range);
    range(subnet).into_iter().chain(more).collect()
}

impl GcpCloud {
    fn marker_name(ground: &Ground, name: &str) -> String {
        ground.names.of("ad", name)
    }

    fn read_marker(ground: &Ground, marker: &Value) -> Option<Adopted> {
        let mark = names::read(marker).filter(|_| ground.names.owns(marker))?;
        let vpc = Vpc { ground: ground.clone(), name: last(&marker["network"]).to_owned() };
        Some(Adopted { name: mark.region?, vpc, space: mark.space? })
    }

    /// The networks that a site has adopted, in the order of their names.
    pub(crate) async fn adopted(&self, ground: &Ground) -> Result<Vec<Adopted>> {
        let prefix = format!("{}-ad-", ground.names.prefix());
        let markers = self.compute.list(&ground.global(), "firewalls", &prefix).await?;
        let mut found: Vec<Adopted> =
            markers.iter().filter_map(|marker| Self::read_marker(ground, marker)).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    pub(crate) async fn adopted_as(&self, ground: &Ground, name: &str) -> Result<Option<Adopted>> {
        let marker =
            self.compute.get(&ground.global(), "firewalls", &Self::marker_name(ground, name)).await?;
        Ok(marker.and_then(|marker| Self::read_marker(ground, &marker)))
    }

    /// The VPC of a network, made or adopted; none if there is no such network.
    pub(crate) async fn vpc_of(&self, ground: &Ground, name: &str) -> Result<Option<Vpc>> {
        if adopted_region(name).is_some() {
            return Ok(self.adopted_as(ground, name).await?.map(|adopted| adopted.vpc));
        }
        Ok(self.subnet(ground, name).await?.map(|_| ground.vpc()))
    }

    pub(crate) async fn adopt(&self, ground: &Ground, name: &Segment, space: Ipv4Net) -> Result<()> {
        let Some(region) = adopted_region(name.as_str()) else {
            return Err(CloudError::invalid(format!("{name} names no VPC to adopt")));
        };
        // The name has a hash, so the VPC is looked for among those that have subnets there.
        let subnets = self.compute.list(&ground.region(region), "subnetworks", "").await?;
        let inside: Vec<&Value> =
            subnets.iter().filter(|subnet| name_of(subnet).as_ref() == Ok(name)).collect();
        let Some(subnet) = inside.iter().find(|subnet| range(subnet) == Some(space)) else {
            let there: Vec<Ipv4Net> = inside.iter().filter_map(|subnet| range(subnet)).collect();
            return match inside.is_empty() {
                true => Err(CloudError::not_found(format!("there is no VPC that is called {name}"))),
                false => Err(CloudError::conflict(format!("{name} has {there:?}, and not {space}"))),
            };
        };
        let vpc = Vpc { ground: ground.clone(), name: last(&subnet["network"]).to_owned() };
        self.check_adopter(&vpc).await?;
        let mark = Mark { region: Some(name.clone()), space: Some(space), ..ground.names.mark() };
        self.note(&vpc, &Self::marker_name(ground, name.as_str()), mark).await?;
        self.serve_adopted(ground, None).await
    }

    /// Writes something down in a VPC: a firewall that is disabled, and so does nothing but to have a description.
    pub(crate) async fn note(&self, vpc: &Vpc, name: &str, mark: Mark) -> Result<()> {
        let note = json!({"name": name, "network": vpc.path(), "description": names::write(mark), "direction": "INGRESS", "priority": 65535, "disabled": true, "denied": [{"IPProtocol": "all"}], "sourceRanges": ["0.0.0.0/0"]});
        Ok(self.compute.insert(&vpc.ground.global(), "firewalls", &note).await?)
    }

    /// Refuses a VPC that is another site's or controller's.
    pub(crate) async fn check_adopter(&self, vpc: &Vpc) -> Result<()> {
        let (ground, vpc) = (&vpc.ground, vpc.path());
        let all = self.compute.list(&ground.global(), "firewalls", "t-").await?;
        let theirs = |firewall: &&Value| path(&firewall["network"]) == vpc && !ground.names.owns(firewall);
        let marks = all.iter().filter(theirs).filter_map(names::read);
        match marks.into_iter().find(|mark| mark.space.is_some()) {
            Some(mark) => Err(CloudError::conflict(format!(
                "{vpc} is adopted already, by {} of {}; a VPC belongs to one site",
                mark.site, mark.owner
            ))),
            None => Ok(()),
        }
    }

    pub(crate) async fn release(&self, ground: &Ground, name: &Segment) -> Result<()> {
        let Some(adopted) = self.adopted_as(ground, name.as_str()).await? else { return Ok(()) };
        if let Some(one) = self.attachments(ground).await?.into_iter().find(|one| one.network == *name) {
            return Err(CloudError::conflict(format!("the resource {} is attached from {name}", one.name)));
        }
        self.serve_adopted(ground, Some(name)).await?;
        self.unjoin(&ground.vpc(), &adopted.vpc).await?;
        let marker = Self::marker_name(ground, name.as_str());
        Ok(self.compute.delete(&ground.global(), "firewalls", &marker).await?)
    }

    /// Joins the site's gateway, if there is one, with the adopted networks, but for one that is about to go.
    pub(crate) async fn serve_adopted(&self, ground: &Ground, leaving: Option<&Segment>) -> Result<()> {
        if self.gateway(ground).await?.is_none() {
            return Ok(());
        }
        let mut adopted = self.adopted(ground).await?;
        adopted.retain(|one| Some(&one.name) != leaving);
        for one in &adopted {
            self.join(&ground.vpc(), &one.vpc).await?;
        }
        self.settle_router(ground, leaving).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(host: &str) -> Value {
        let place = format!("{host}projects/p/regions/us-west1");
        json!({"name": "s", "region": place, "network": format!("{host}projects/p/global/networks/n"), "ipCidrRange": "10.1.0.0/20",
            "secondaryIpRanges": [{"rangeName": "pods", "ipCidrRange": "10.2.0.0/16"}]})
    }

    #[test]
    fn a_vpc_is_called_the_same_however_it_is_written() {
        let name = name_of(&subnet("https://www.googleapis.com/compute/v1/")).unwrap();
        assert_eq!(name, name_of(&subnet("https://compute.googleapis.com/compute/v1/")).unwrap());
        assert_eq!(adopted_region(name.as_str()), Some("us-west1"));
        assert_eq!(adopted_region("us-west1"), None);
        assert_eq!(adopted_region("us-west1-k8s-my-vpc-cluster"), None);
    }

    #[test]
    fn all_ranges_of_a_subnet_count() {
        let wanted: Vec<Ipv4Net> = ["10.1.0.0/20", "10.2.0.0/16"].map(|text| text.parse().unwrap()).into();
        assert_eq!(ranges(&subnet("")), wanted);
    }
}
