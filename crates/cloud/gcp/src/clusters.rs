//! Managed Kubernetes clusters (GKE): a cluster, the fence around it, and its permit list, which is the gate in the fence.
//!
//! ```text
//!   network   us-west1-k8s-NAME: a subnet for the cluster alone, divided among nodes, services and Pods ([`space`])
//!   fence     firewalls for the cluster's network tag ([`fence`]): deny everything, in and out, before all firewalls of
//!             Google's and of whoever is inside; but for the cluster's own space, and Google's APIs
//!   names     private zones of the VPC that lead to Google's APIs without the internet (`dns`)
//!   cluster   private nodes that all have the tag, a control plane without a public address
//!   list      firewalls for the tag, before those that deny
//! ```
//!
//! The fence is there before the cluster is, and goes after it. Where it has gaps, or nodes have no tag, the list says so with
//! entries that nobody asked for; who changes the list closes the gaps.
//!
//! A note beside the fence (a disabled firewall) says that a cluster is being made. With it, a cluster in error never was up, and is
//! removed; without it, somebody may have work in it, and it is left alone.

mod border;
pub(crate) mod description;
pub(crate) mod fence;
pub(crate) mod space;

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
pub(crate) use border::{Around, border};
use cloud_api::{CloudError, ResourceSpec, cluster_network};
use cloud_http::{Clock, Failure, Fit, Kind as _, Objects, Phase, Progress, Wanted, ensure, wait};
use ipnet::{IpNet, Ipv4Net};
use model::{ResourceState, Segment};
use serde_json::{Map, Value};

use crate::{
    attach::closers,
    clusters::{description::ClusterDescription, fence::untagged},
    ground::{Ground, Result},
    link::Link,
    lists::apply,
    mark::Mark,
    networks::subnets,
    shapes::Cluster,
};

/// How often a cluster is asked to go.
const STEPS: usize = 8;

/// The path of a cluster, which is its id.
fn link_of(ground: &Ground, location: &str, name: &str) -> Link<Cluster> {
    format!("projects/{}/locations/{location}/clusters/{name}", ground.project).as_str().into()
}

fn own_link(ground: &Ground, cluster: &Cluster) -> Link<Cluster> {
    link_of(ground, &cluster.location, &cluster.name)
}

/// The cluster of an id; none if it is no cluster's.
pub(crate) fn parse(uri: &str, project: &str) -> Option<Link<Cluster>> {
    match uri.split('/').collect::<Vec<_>>().as_slice() {
        ["projects", at, "locations", _, "clusters", _] if *at == project => Some(uri.into()),
        _ => None,
    }
}

/// Asks for clusters, each with a note before it that it is being made.
struct Makers<'g> {
    ground: &'g Ground,
    mark: Mark,
    is_noted: AtomicBool,
}

#[async_trait]
impl Objects<Cluster> for Makers<'_> {
    type Address = Link<Cluster>;
    type Body = Map<String, Value>;

    async fn get(&self, link: &Link<Cluster>) -> Result<Option<Cluster>, Failure> {
        self.ground.apis.container.get(link).await
    }

    async fn put(&self, link: &Link<Cluster>, body: &Self::Body) -> Result<Option<Cluster>, Failure> {
        if !self.is_noted.load(Ordering::Relaxed) {
            self.ground.vpc().note(&border::making(link.name()), self.mark.clone()).await?;
            self.is_noted.store(true, Ordering::Relaxed);
        }
        self.ground.apis.container.create(link, body).await?;
        Ok(None)
    }

    async fn delete(&self, link: &Link<Cluster>) -> Result<(), Failure> {
        self.ground.apis.container.delete(link).await
    }

    fn clock(&self) -> &dyn Clock {
        self.ground.compute().clock()
    }
}

pub(crate) async fn make(
    ground: &Ground,
    spec: &ResourceSpec,
    described: &ClusterDescription,
) -> Result<ResourceState> {
    let space = border::space_of(ground, &spec.region).await?;
    let tag = ground.names.cluster(&spec.name);
    let link = link_of(ground, &described.location, &tag);
    let _turn = ground.turn(link.path()).await;
    let Around { gaps, is_making, .. } = border::around(ground, &spec.name, space).await?;
    apply(ground, &gaps).await?;
    let mark =
        Mark { name: Some(spec.name.clone()), region: Some(spec.region.clone()), ..ground.names.mark() };
    let subnet = ground.names.subnet(spec.region.as_str());
    let body = described.body(&tag, mark.clone().into(), &ground.names.network(), &subnet);
    let is_ours = |cluster: &Cluster| ground.owns(&cluster.description);
    let wanted = Wanted { body: &body, is_ours: &is_ours, fits: &|_| Fit::Yes };
    let makers = Makers { ground, mark, is_noted: is_making.into() };
    let cluster = ensure(&makers, &link, wanted).await?;
    let is_making = makers.is_noted.into_inner();
    if let Some(reason) = cluster.failure() {
        return Err(given_up(ground, &spec.name, &link, reason, is_making).await?);
    }
    if let Some(pool) = untagged(&cluster, &tag).first() {
        return Err(CloudError::conflict(format!(
            "the nodes of {pool} in the cluster {} have no network tag {tag}, and no list of its cluster is for them; add \
             it to their pool, or remove the pool",
            spec.name
        )));
    }
    if is_making {
        ground.delete(&ground.firewall(&border::making(&tag))).await?;
    }
    let uri = own_link(ground, &cluster).to_string();
    Ok(ResourceState { uri, address: IpNet::from(space).into(), region: spec.region.clone() })
}

/// A cluster in error: removed if it never was up, so that it can be asked for again; otherwise left as it is.
async fn given_up(
    ground: &Ground,
    name: &Segment,
    link: &Link<Cluster>,
    reason: &str,
    is_making: bool,
) -> Result<CloudError> {
    if is_making {
        ground.apis.container.delete(link).await?;
        return Ok(CloudError::conflict(format!(
            "Google could not make the cluster {name}, and it is removed again: {reason}; look at {link} among the operations in \
             Google's console"
        )));
    }
    Ok(CloudError::conflict(format!(
        "the cluster {name} is in error: {reason}. It is not replaced, since it may be in use; mend {link} in Google's \
         console, or delete the resource"
    )))
}

/// The clusters that are there, in error or not, given the networks of a site. Asked for only where there is a network for one.
pub(crate) async fn list(
    ground: &Ground,
    networks: &[(Segment, Ipv4Net)],
) -> Result<Vec<(Segment, ResourceState)>> {
    if !networks.iter().any(|(name, _)| cluster_network(name).is_some()) {
        return Ok(Vec::new());
    }
    let read = |cluster: &Cluster| {
        let (name, region) = border::named(cluster)?;
        let (_, space) = networks.iter().find(|(network, _)| *network == region)?;
        let uri = own_link(ground, cluster).to_string();
        Some((name, ResourceState { uri, address: IpNet::from(*space).into(), region }))
    };
    let all = ground.apis.container.list(&ground.project).await?;
    let ours = all.iter().filter(|one| ground.owns(&one.description) && one.phase() == Phase::Ready);
    Ok(ours.filter_map(read).collect())
}

/// The cluster, then its list, then the fence.
pub(crate) async fn remove(ground: &Ground, name: &Segment) -> Result {
    let tag = ground.names.cluster(name);
    let fence = closers(ground, &format!("{tag}-")).await?;
    let mut networks = subnets(ground).await?.into_iter();
    let of_it = |network: &Segment| cluster_network(network).is_some_and(|(_, cluster)| cluster == *name);
    // Projects without clusters need not have the API.
    if fence.is_empty() && !networks.any(|(network, _)| of_it(&network)) {
        return Ok(());
    }
    let all = ground.apis.container.list(&ground.project).await?;
    for cluster in all.iter().filter(|one| one.name == tag && ground.owns(&one.description)) {
        remove_at(ground, &own_link(ground, cluster)).await?;
    }
    let list = ground.firewalls(&ground.names.list(&tag)).await?;
    ground.delete_firewalls(list.iter().map(|firewall| firewall.name.as_str())).await?;
    ground.delete_firewalls(fence.keys().map(String::as_str)).await
}

/// Google takes no deletion of a cluster that is being changed, so that is waited for first.
async fn remove_at(ground: &Ground, link: &Link<Cluster>) -> Result {
    let _turn = ground.turn(link.path()).await;
    let container = &ground.apis.container;
    let what = format!("the cluster {link}");
    for _ in 0..STEPS {
        let idle = wait(ground.compute().clock(), Cluster::PACE, &what, || async {
            let found = container.get(link).await?;
            let is_changing = found.as_ref().is_some_and(Cluster::is_changing);
            Ok(if is_changing { Progress::Pending } else { Progress::Done(found) })
        });
        match idle.await? {
            None => return Ok(()),
            Some(_) => container.delete(link).await?,
        }
    }
    Err(CloudError::unavailable(format!("the cluster {link} does not go; look at it in Google's console")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_failed_is_told_from_one_that_is_coming() {
        for (status, phase, failed) in [
            ("PROVISIONING", Phase::Coming, false),
            ("STOPPING", Phase::Going, false),
            ("RUNNING", Phase::Ready, false),
            ("RECONCILING", Phase::Ready, false),
            ("DEGRADED", Phase::Ready, false),
            ("ERROR", Phase::Ready, true),
        ] {
            let told =
                format!(r#"{{"name":"c","location":"l","status":"{status}","statusMessage":"no quota"}}"#);
            let cluster: Cluster = serde_json::from_str(&told).unwrap();
            assert_eq!(cluster.failure(), failed.then_some("no quota"), "{status}");
            assert_eq!(cluster.is_changing(), phase != Phase::Ready || status == "RECONCILING");
            assert_eq!(cluster.phase(), phase, "{status}");
        }
    }

    #[test]
    fn ids_tell_a_cluster() {
        assert_eq!(parse("projects/p/locations/us-west1-a/clusters/c", "p").unwrap().name(), "c");
        for other in ["projects/q/locations/l/clusters/c", "projects/p/zones/z/instances/i", ""] {
            assert!(parse(other, "p").is_none(), "{other}");
        }
    }
}
