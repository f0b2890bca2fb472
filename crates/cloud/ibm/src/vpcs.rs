//! The VPCs of a site, and what their networks are called.
//!
//! ```text
//!   us-south              t-SITE-vpc        the network of a region
//!   us-south-k8s-NAME     t-SITE-k8s-NAME   the network that a cluster has for itself
//!   us-south-vpc-r006-…   as it is called   somebody else's, adopted
//! ```

use cloud_api::{CloudError, cluster_network, network_of_cluster};
use futures::future::try_join_all;
use ipnet::Ipv4Net;
use model::Segment;
use serde_json::Value;

use crate::{
    api::{Place, VPC, is_alive, text},
    cloud::{Ground, IbmCloud, Result},
};

/// Whose a network is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Region,
    /// A cluster by its name, and the name of its network.
    Cluster(Segment, Segment),
    /// Somebody else's VPC, by its id.
    Adopted(String),
}

/// Between region and VPC in the name of an adopted network.
const ADOPTED: &str = "-vpc-";

impl Home {
    /// Of a cluster in a region.
    pub(crate) fn of_cluster(region: &str, cluster: &str) -> Option<Self> {
        let (region, cluster) = (region.parse().ok()?, cluster.parse().ok()?);
        let network = network_of_cluster(&region, &cluster).ok()?;
        Some(Self::Cluster(cluster, network))
    }
}

/// The region of a network's name, and whose it is.
pub(crate) fn place(name: &str) -> (&str, Home) {
    let cluster = name.parse().ok().and_then(|network: Segment| Some((cluster_network(&network)?, network)));
    if let Some(((region, cluster), network)) = cluster
        && !region.as_str().contains(ADOPTED)
    {
        return (&name[..region.as_str().len()], Home::Cluster(cluster, network));
    }
    match name.split_once(ADOPTED) {
        Some((region, id)) => (region, Home::Adopted(id.to_owned())),
        None => (name, Home::Region),
    }
}

/// A VPC of a site.
#[derive(Clone, Debug)]
pub(crate) struct Vpc {
    pub(crate) region: String,
    pub(crate) id: String,
    pub(crate) crn: String,
    home: Home,
    /// The block that instances are attached from, if somebody else made it.
    block: Option<Ipv4Net>,
}

impl Vpc {
    pub(crate) fn read(region: &str, vpc: &Value, home: Home) -> Self {
        let (id, crn) = (text(vpc, "id").to_owned(), text(vpc, "crn").to_owned());
        Self { region: region.to_owned(), id, crn, home, block: None }
    }

    /// Somebody else's, of which a block is used.
    pub(crate) fn adopt(region: &str, vpc: &Value, block: Ipv4Net) -> Self {
        let home = Home::Adopted(text(vpc, "id").to_owned());
        Self { block: Some(block), ..Self::read(region, vpc, home) }
    }

    /// The block that instances are attached from, of an adopted one.
    pub(crate) fn adopted(&self) -> Option<Ipv4Net> {
        self.block
    }

    /// The cluster whose network it is.
    pub(crate) fn cluster(&self) -> Option<&str> {
        match &self.home {
            Home::Cluster(cluster, _) => Some(cluster.as_str()),
            _ => None,
        }
    }

    /// The name of the network.
    pub(crate) fn name(&self) -> String {
        match &self.home {
            Home::Region => self.region.clone(),
            Home::Cluster(_, network) => network.to_string(),
            Home::Adopted(id) => format!("{}{ADOPTED}{id}", self.region),
        }
    }

    /// What tells a zone of this VPC from the same zone of others of the site.
    pub(crate) fn corner(&self, zone: &str) -> String {
        match &self.home {
            Home::Cluster(cluster, _) => format!("{zone} {cluster}"),
            _ => zone.to_owned(),
        }
    }
}

/// The VPCs of a site: its networks, by region, and the one of its gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vpcs {
    pub(crate) networks: Vec<Vpc>,
    pub(crate) gateway: Option<Vpc>,
}

impl Vpcs {
    pub(crate) fn network(&self, name: &str) -> Option<&Vpc> {
        self.networks.iter().find(|vpc| vpc.name() == name)
    }

    /// The networks of regions: neither clusters' nor adopted ones.
    pub(crate) fn of_regions(&self) -> impl Iterator<Item = &Vpc> {
        self.networks.iter().filter(|vpc| vpc.home == Home::Region)
    }
}

impl IbmCloud {
    /// The VPCs that were made for a site in a region, each with whether it is a network.
    async fn made_in(&self, ground: &Ground, region: &str) -> Result<Vec<(Vpc, bool)>> {
        let found = self.api.list(Place::Region(region), &VPC, &ground.within("vpcs")).await?;
        let (network, gateway) = (ground.names.network(), ground.names.gateway_network());
        let ours = found.iter().filter(|vpc| is_alive(vpc)).filter_map(|vpc| {
            let name = text(vpc, "name");
            let cluster = ground.names.cluster_of(name).and_then(|cluster| Home::of_cluster(region, cluster));
            let home = cluster.or_else(|| (name == network || name == gateway).then_some(Home::Region))?;
            Some((Vpc::read(region, vpc, home), name != gateway))
        });
        Ok(ours.collect())
    }

    /// The VPCs of a site in a region, those adopted too, each with whether it is a network. One request after the other:
    /// with credentials that do not work, a region is asked once.
    async fn vpcs_in(&self, ground: &Ground, region: &str) -> Result<Vec<(Vpc, bool)>> {
        let mut made = self.made_in(ground, region).await?;
        made.extend(self.adopted_in(ground, region).await?.into_iter().map(|vpc| (vpc, true)));
        Ok(made)
    }

    /// The VPCs of a site, in all regions.
    pub(crate) async fn vpcs(&self, ground: &Ground) -> Result<Vpcs> {
        let regions = self.regions().await?;
        let found = try_join_all(regions.iter().map(|region| self.vpcs_in(ground, region))).await?;
        let mut vpcs = Vpcs::default();
        for (vpc, is_network) in found.into_iter().flatten() {
            match is_network {
                true => vpcs.networks.push(vpc),
                false => vpcs.gateway = Some(vpc),
            }
        }
        vpcs.networks.sort_by_key(Vpc::name);
        Ok(vpcs)
    }

    pub(crate) async fn vpc(&self, ground: &Ground, region: &str) -> Result<Option<Vpc>> {
        let networks = match place(region) {
            (at, Home::Adopted(_)) => self.adopted_in(ground, at).await?,
            (at, _) => {
                let made = self.made_in(ground, at).await?.into_iter();
                made.filter_map(|(vpc, is_network)| is_network.then_some(vpc)).collect()
            }
        };
        Ok(networks.into_iter().find(|vpc| vpc.name() == region))
    }

    pub(crate) async fn need_vpc(&self, ground: &Ground, region: &str) -> Result<Vpc> {
        let none = || CloudError::conflict(format!("there is no network {}.{region}", ground.site));
        self.vpc(ground, region).await?.ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_networks_tell_region_and_home() {
        let cluster = |name: &str| Home::of_cluster("us-south", name).unwrap();
        let adopted = |id: &str| Home::Adopted(id.to_owned());
        assert_eq!(place("us-south"), ("us-south", Home::Region));
        assert_eq!(place("us-south-vpc-r006-1-2"), ("us-south", adopted("r006-1-2")));
        assert_eq!(place("us-south-k8s-web"), ("us-south", cluster("web")));
        assert_eq!(place("us-south-k8s-a-vpc-b-k8s-c"), ("us-south", cluster("a-vpc-b-k8s-c")));
        for name in ["us-south", "us-south-vpc-r006-1", "us-south-k8s-a-vpc-b"] {
            let (region, home) = place(name);
            let value = serde_json::json!({"id": "r006-1"});
            assert_eq!(Vpc::read(region, &value, home).name(), name);
        }
    }
}
