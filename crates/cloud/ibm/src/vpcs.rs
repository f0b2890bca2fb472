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

use crate::shapes::{self, AddressPrefix, Named, PrefixRequest, SecurityGroup};
use crate::{Api, Collection, Ground, Listed, Result, notes};

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
    pub(crate) home: Home,
    /// The block that instances are attached from, of an adopted one.
    pub(crate) adopted: Option<Ipv4Net>,
}

impl Vpc {
    pub(crate) fn new(region: &str, shown: shapes::Vpc, home: Home) -> Self {
        Self { region: region.to_owned(), id: shown.id, crn: shown.crn, home, adopted: None }
    }

    pub(crate) async fn make(ground: &Ground, region: &str, name: String, home: Home) -> Result<Self> {
        let (address_prefix_management, resource_group) = ("manual", ground.group());
        let request = shapes::VpcRequest { name, address_prefix_management, resource_group };
        Ok(Self::new(region, ground.within(region).ensure(None, &request).await?, home))
    }

    /// The network of a name.
    pub(crate) async fn find(ground: &Ground, network: &str) -> Result<Option<Self>> {
        let found = match place(network) {
            (region, Home::Adopted(_)) => adopted_in(ground, region).await?,
            (region, _) => made_in(ground, region).await?.networks,
        };
        Ok(found.into_iter().find(|vpc| vpc.name() == network))
    }

    pub(crate) async fn need(ground: &Ground, network: &str) -> Result<Self> {
        let none = || CloudError::conflict(format!("there is no network {}.{network}", ground.site));
        Self::find(ground, network).await?.ok_or_else(none)
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

    pub(crate) fn segment(&self) -> Result<Segment> {
        let name = self.name();
        name.parse().map_err(|err| CloudError::invalid(format!("{name} is no network's name: {err}")))
    }

    /// What tells a zone of this VPC from the same zone of others of the site.
    pub(crate) fn corner(&self, zone: &str) -> String {
        match &self.home {
            Home::Cluster(cluster, _) => format!("{zone} {cluster}"),
            _ => zone.to_owned(),
        }
    }

    /// What is in it.
    pub(crate) fn all<'a, K: Listed>(&'a self, api: &'a Api) -> Collection<'a, K> {
        api.in_region(&self.region).with("vpc.id", &self.id)
    }

    fn all_prefixes<'a>(&'a self, api: &'a Api) -> Collection<'a, AddressPrefix> {
        api.in_region(&self.region).of::<shapes::Vpc>(&self.id)
    }

    pub(crate) async fn make_prefix(
        &self,
        ground: &Ground,
        number: usize,
        cidr: Ipv4Net,
        zone: &str,
    ) -> Result {
        let request = PrefixRequest { name: ground.names.part(number), cidr, zone: Named::of(zone) };
        self.all_prefixes(&ground.api).ensure(None, &request).await.map(drop)
    }

    pub(crate) async fn prefixes(&self, api: &Api) -> Result<Vec<Ipv4Net>> {
        Ok(self.all_prefixes(api).list().await?.into_iter().map(|prefix| prefix.cidr).collect())
    }

    /// The space of the network, if it is whole.
    pub(crate) async fn space(&self, api: &Api) -> Result<Option<Ipv4Net>> {
        match self.adopted {
            Some(space) => Ok(Some(space)),
            None => Ok(whole(&self.prefixes(api).await?)),
        }
    }
}

/// A network's space in four: one part for each of three zones, and one that is kept.
pub(crate) fn parts(space: Ipv4Net) -> Result<Vec<Ipv4Net>> {
    let length = space.prefix_len();
    if !(8..=24).contains(&length) {
        return Err(CloudError::invalid(format!(
            "{space} cannot be a network in IBM Cloud: a quarter of it must do for the instances of a zone, so it is between \
             /8 and /24"
        )));
    }
    Ok(space.subnets(length + 2).map_err(|err| CloudError::invalid(err.to_string()))?.collect())
}

/// The space that prefixes are the parts of, if they are all there.
pub(crate) fn whole(prefixes: &[Ipv4Net]) -> Option<Ipv4Net> {
    let mut sorted = prefixes.to_vec();
    sorted.sort();
    let first = sorted.first()?;
    let space = Ipv4Net::new(first.network(), first.prefix_len().checked_sub(2)?).ok()?;
    (parts(space).ok()? == sorted).then_some(space)
}

/// The VPCs of a site: its networks, and the one of its gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vpcs {
    /// By name.
    pub(crate) networks: Vec<Vpc>,
    pub(crate) gateway: Option<Vpc>,
}

impl Vpcs {
    /// In all regions.
    pub(crate) async fn read(ground: &Ground) -> Result<Self> {
        let regions = ground.api.regions().await?;
        // One request after the other: with credentials that do not work, a region is asked once.
        let found = try_join_all(regions.iter().map(|region| async move {
            let made = made_in(ground, region).await?;
            Ok::<_, CloudError>((made, adopted_in(ground, region).await?))
        }));
        let mut all = Self::default();
        for (made, adopted) in found.await? {
            all.networks.extend(made.networks.into_iter().chain(adopted));
            all.gateway = made.gateway.or(all.gateway);
        }
        all.networks.sort_by_key(Vpc::name);
        Ok(all)
    }

    pub(crate) fn network(&self, name: &str) -> Option<&Vpc> {
        self.networks.iter().find(|vpc| vpc.name() == name)
    }

    /// The networks of regions: neither clusters' nor adopted ones.
    pub(crate) fn of_regions(&self) -> impl Iterator<Item = &Vpc> {
        self.networks.iter().filter(|vpc| vpc.home == Home::Region)
    }
}

/// The VPCs that were made for a site in a region.
async fn made_in(ground: &Ground, region: &str) -> Result<Vpcs> {
    let (network, gateway) = (ground.names.network(), ground.names.gateway_network());
    let mut made = Vpcs::default();
    for vpc in ground.within::<shapes::Vpc>(region).list().await?.into_iter().filter(shapes::Vpc::is_alive) {
        let cluster =
            ground.names.cluster_of(&vpc.name).and_then(|cluster| Home::of_cluster(region, cluster));
        if let Some(home) = cluster.or_else(|| (vpc.name == network).then_some(Home::Region)) {
            made.networks.push(Vpc::new(region, vpc, home));
        } else if vpc.name == gateway {
            made.gateway = Some(Vpc::new(region, vpc, Home::Region));
        }
    }
    Ok(made)
}

/// The VPCs of a region that a site has adopted, by their notes.
async fn adopted_in(ground: &Ground, region: &str) -> Result<Vec<Vpc>> {
    let (groups, name) = (ground.within::<SecurityGroup>(region).list().await?, ground.names.adopted());
    let notes = groups.iter().filter(|group| group.name == name);
    let noted = notes.filter_map(|note| Some((&note.vpc, notes::read(note)?.parse().ok()?)));
    let vpc = |(vpc, block): (&shapes::Reference, Ipv4Net)| {
        let (id, crn) = (vpc.id.clone(), vpc.crn()?.to_owned());
        let home = Home::Adopted(id.clone());
        Ok(Vpc { region: region.to_owned(), id, crn, home, adopted: Some(block) })
    };
    noted.map(vpc).collect()
}

#[cfg(test)]
impl Vpc {
    pub(crate) fn sample(region: &str, home: Home) -> Self {
        let (id, crn) = ("r006-1".to_owned(), "crn:v1:vpc".to_owned());
        Self { region: region.to_owned(), id, crn, home, adopted: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_divided_and_put_together_again() {
        let space: Ipv4Net = "10.4.0.0/16".parse().unwrap();
        let mut four = parts(space).unwrap();
        assert_eq!(four[3], "10.4.192.0/18".parse().unwrap());
        four.rotate_left(1);
        assert_eq!(whole(&four), Some(space));
        assert_eq!(whole(&four[..3]), None);
        assert_eq!(whole(&[]), None);
        assert_eq!(whole(&["0.0.0.0/1".parse().unwrap()]), None);
        assert!(parts("10.0.0.0/25".parse().unwrap()).is_err());
    }

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
            assert_eq!(Vpc::sample(region, home).name(), name);
        }
    }
}
