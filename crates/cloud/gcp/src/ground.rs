//! A site as the rest of the plugin sees it: its project, its names, and the APIs that its objects are asked for with.

use std::sync::Arc;

use cloud_api::{CloudError, cluster_network};
use cloud_http::{Failure, Fit, Turn, Turns, Wanted};
use futures::future::try_join_all;
use model::Site;

use crate::{
    compute::Compute,
    container::Container,
    dns::Dns,
    kinds::Resource,
    link::{Link, Place},
    mark::{Mark, Remark},
    names::Names,
    rules::Home,
    shapes::{Firewall, Flow, Network, Router, Subnet, Traffic},
};

pub(crate) type Result<T = (), E = CloudError> = std::result::Result<T, E>;

/// What all sites share: the APIs, and turns for what only one may change at a time.
pub(crate) struct Apis {
    pub(crate) compute: Compute,
    pub(crate) container: Container,
    pub(crate) dns: Dns,
    pub(crate) turns: Turns,
}

#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) apis: Arc<Apis>,
    pub(crate) site: Site,
    pub(crate) project: String,
    pub(crate) names: Names,
}

/// Whether a network is a cluster's.
pub(crate) fn is_cluster(network: &str) -> bool {
    network.parse().is_ok_and(|name| cluster_network(&name).is_some())
}

/// The region that a network of ours is in: a network is called after its region, or after a cluster there.
pub(crate) fn region_of(network: &str) -> String {
    let cluster = network.parse().ok().and_then(|name| cluster_network(&name));
    cluster.map_or_else(|| network.to_owned(), |(region, _)| region.to_string())
}

/// Where things are.
impl Ground {
    pub(crate) fn global(&self) -> Place {
        Place::global(&self.project)
    }

    pub(crate) fn region(&self, region: &str) -> Place {
        Place::region(&self.project, region)
    }

    /// The place of a network: a region, or that of a cluster's network.
    pub(crate) fn place_of(&self, network: &str) -> Place {
        self.region(&region_of(network))
    }

    pub(crate) fn zone(&self, zone: &str) -> Place {
        Place::zone(&self.project, zone)
    }

    /// The site's own VPC.
    pub(crate) fn vpc(&self) -> Vpc {
        Vpc { link: self.global().object(&self.names.network()), ground: self.clone() }
    }

    /// The reference of the site's own VPC.
    pub(crate) fn network(&self) -> Link<Network> {
        self.vpc().link
    }

    /// The subnet of a network of ours.
    pub(crate) fn subnet(&self, network: &str) -> Link<Subnet> {
        self.place_of(network).object(&self.names.subnet(network))
    }

    pub(crate) fn router(&self, region: &str) -> Link<Router> {
        self.region(region).object(&self.names.router())
    }

    pub(crate) fn firewall(&self, name: &str) -> Link<Firewall> {
        self.global().object(name)
    }

    /// Where the firewalls of a permit list belong.
    pub(crate) fn home(&self, prefix: String, network: Link<Network>, tag: &str, priority: u32) -> Home {
        let Mark { owner, site, .. } = self.names.mark();
        Home { owner, site, prefix, network, tag: tag.to_owned(), priority }
    }
}

/// Asking for things.
impl Ground {
    pub(crate) fn compute(&self) -> &Compute {
        &self.apis.compute
    }

    pub(crate) async fn turn(&self, what: &str) -> Turn {
        self.apis.turns.take(what).await
    }

    /// Routers have no version, so whoever changes the site's holds this.
    pub(crate) async fn router_turn(&self) -> Turn {
        self.turn(&format!("router {}", self.site)).await
    }

    pub(crate) fn owns(&self, description: &Remark) -> bool {
        self.names.owns(description)
    }

    pub(crate) async fn get<K: Resource>(&self, link: &Link<K>) -> Result<Option<K>> {
        Ok(self.compute().get(link).await?)
    }

    /// What is ours in all regions or zones, by what its name begins with.
    pub(crate) async fn owned<K: Resource>(&self, prefix: &str) -> Result<Vec<K>> {
        let mut found: Vec<K> = self.compute().list_all(&self.project, prefix).await?;
        found.retain(|one| self.owns(one.description()));
        Ok(found)
    }

    /// Firewalls by what their names begin with, whosever they are.
    pub(crate) async fn firewalls(&self, prefix: &str) -> Result<Vec<Firewall>> {
        Ok(self.compute().list(&self.global(), prefix).await?)
    }

    /// Those that are ours.
    pub(crate) async fn owned_firewalls(&self, prefix: &str) -> Result<Vec<Firewall>> {
        let mut found = self.firewalls(prefix).await?;
        found.retain(|one| self.owns(&one.description));
        Ok(found)
    }

    /// Makes an object of ours if it is not there, and answers with it.
    pub(crate) async fn ensure<K: Resource>(&self, place: &Place, body: &K) -> Result<K> {
        let is_ours = |there: &K| self.owns(there.description());
        let wanted = Wanted { body, is_ours: &is_ours, fits: &|_| Fit::Yes };
        cloud_http::ensure(self.compute(), &place.object(body.name()), wanted).await
    }

    pub(crate) async fn delete<K: Resource>(&self, link: &Link<K>) -> Result {
        Ok(self.compute().delete(link).await?)
    }

    /// All at once.
    pub(crate) async fn delete_firewalls(&self, names: impl IntoIterator<Item = &str>) -> Result {
        let links: Vec<_> = names.into_iter().map(|name| self.firewall(name)).collect();
        try_join_all(links.iter().map(|link| self.delete(link))).await.map(drop)
    }
}

/// A VPC of a site: its own, or one that it adopted.
#[derive(Clone)]
pub(crate) struct Vpc {
    pub(crate) ground: Ground,
    pub(crate) link: Link<Network>,
}

impl Vpc {
    pub(crate) fn is_own(&self) -> bool {
        self.link.name() == self.ground.names.network()
    }

    /// Writes something down in it: a firewall that is disabled, and so does nothing but to have a description.
    pub(crate) async fn note(&self, name: &str, mark: Mark) -> Result<(), Failure> {
        let note = Firewall {
            name: name.to_owned(),
            network: self.link.clone(),
            description: mark.into(),
            priority: 65_535,
            disabled: true,
            denied: vec![Traffic::all()],
            ..Firewall::towards(Flow::Ingress, vec!["0.0.0.0/0".to_owned()])
        };
        self.ground.compute().insert(&self.ground.global(), &note).await
    }
}

#[cfg(test)]
pub(crate) fn for_tests(site: &str) -> Ground {
    let cloud = crate::GcpCloud::new(&crate::GcpOptions::default()).unwrap();
    cloud.ground(&site.parse().unwrap(), "p").unwrap()
}
