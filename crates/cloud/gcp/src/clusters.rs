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

pub(crate) use border::Around;
use cloud_api::{CloudError, ResourceSpec, cluster_network};
use cloud_http::{Pace, Progress, wait};
use futures::future::try_join_all;
use ipnet::{IpNet, Ipv4Net};
use model::{ResourceState, Segment};
use serde_json::Value;

use crate::{
    cloud::{GcpCloud, Ground, Result},
    clusters::{border::making, description::ClusterDescription, fence::untagged},
    names::{self, Mark},
};

/// How often a cluster is looked at anew while it is made or removed.
const STEPS: usize = 8;

/// The path of a cluster, which is its id.
pub(crate) fn path_of(ground: &Ground, location: &str, name: &str) -> String {
    format!("projects/{}/locations/{location}/clusters/{name}", ground.project)
}

/// The name of a cluster in an id; none if it is no cluster's.
pub(crate) fn parse<'u>(uri: &'u str, project: &str) -> Option<&'u str> {
    match uri.split('/').collect::<Vec<_>>().as_slice() {
        ["projects", at, "locations", _, "clusters", name] if *at == project => Some(name),
        _ => None,
    }
}

/// Whether a cluster is on its way to something else.
fn is_busy(cluster: &Value) -> bool {
    matches!(cluster["status"].as_str(), Some("PROVISIONING" | "STOPPING" | "STATUS_UNSPECIFIED") | None)
}

/// Whether a cluster is there and being changed, by whomever; Google takes no other change meanwhile.
fn is_changing(cluster: &Value) -> bool {
    is_busy(cluster) || cluster["status"] == "RECONCILING"
}

/// What Google says is wrong with a cluster in error.
fn failure(cluster: &Value) -> Option<String> {
    if cluster["status"] != "ERROR" {
        return None;
    }
    let told = [&cluster["conditions"][0]["message"], &cluster["statusMessage"]];
    let told = told.into_iter().filter_map(Value::as_str).find(|text| !text.is_empty());
    Some(told.unwrap_or("Google does not say why").to_owned())
}

fn own_path(ground: &Ground, cluster: &Value) -> Option<String> {
    Some(path_of(ground, cluster["location"].as_str()?, cluster["name"].as_str()?))
}

impl GcpCloud {
    /// A cluster once it is not at work any more; none if it is gone.
    async fn settled(&self, path: &str, is_at_work: fn(&Value) -> bool) -> Result<Option<Value>> {
        let clock = self.compute.clock();
        wait(clock, Pace::SLOW, &format!("the cluster {path}"), || async {
            let found = self.container.get(path).await?;
            let busy = found.as_ref().is_some_and(is_at_work);
            Ok(if busy { Progress::Pending } else { Progress::Done(found) })
        })
        .await
    }

    pub(crate) async fn make_cluster(
        &self,
        ground: &Ground,
        spec: &ResourceSpec,
        described: &ClusterDescription,
    ) -> Result<ResourceState> {
        let space = self.cluster_space(ground, &spec.region).await?;
        let tag = ground.names.cluster(&spec.name);
        let path = path_of(ground, &described.location, &tag);
        let _turn = self.turns.take(&path).await;
        let Around { gaps, mut is_making, .. } = self.around(ground, &spec.name, space).await?;
        self.apply(ground, &gaps).await?;
        let mark =
            Mark { name: Some(spec.name.clone()), region: Some(spec.region.clone()), ..ground.names.mark() };
        let subnet = ground.names.subnet(spec.region.as_str());
        let body = described.body(&tag, &names::write(mark.clone()), &ground.names.network(), &subnet);
        for _ in 0..STEPS {
            match self.settled(&path, is_busy).await? {
                None => {
                    if !is_making {
                        self.note(&ground.vpc(), &making(&tag), mark.clone()).await?;
                        is_making = true;
                    }
                    self.container.create(ground, &described.location, &body).await?;
                }
                Some(cluster) if !ground.names.owns(&cluster) => {
                    return Err(CloudError::conflict(format!("{path} is there and is somebody else's")));
                }
                Some(cluster) => {
                    if let Some(reason) = failure(&cluster) {
                        return Err(self.given_up(&spec.name, &path, &reason, is_making).await?);
                    }
                    let state = self.tagged(ground, &cluster, spec, space)?;
                    if is_making {
                        self.compute.delete(&ground.global(), "firewalls", &making(&tag)).await?;
                    }
                    return Ok(state);
                }
            }
        }
        Err(CloudError::unavailable(format!(
            "the cluster {} was asked for and is not there; look at {path} in Google's console",
            spec.name
        )))
    }

    /// A cluster in error: removed if it never was up, so that it can be asked for again; otherwise left as it is.
    async fn given_up(
        &self,
        name: &Segment,
        path: &str,
        reason: &str,
        is_making: bool,
    ) -> Result<CloudError> {
        if is_making {
            self.container.delete(path).await?;
            return Ok(CloudError::conflict(format!(
                "Google could not make the cluster {name}, and it is removed again: {reason}; look at {path} among the operations in \
                 Google's console"
            )));
        }
        Ok(CloudError::conflict(format!(
            "the cluster {name} is in error: {reason}. It is not replaced, since it may be in use; mend {path} in Google's \
             console, or delete the resource"
        )))
    }

    /// A cluster that the fence is around, all of it.
    fn tagged(
        &self,
        ground: &Ground,
        cluster: &Value,
        spec: &ResourceSpec,
        space: Ipv4Net,
    ) -> Result<ResourceState> {
        let tag = ground.names.cluster(&spec.name);
        if let Some(pool) = untagged(cluster, &tag).first() {
            return Err(CloudError::conflict(format!(
                "the nodes of {pool} in the cluster {} have no network tag {tag}, and no list of its cluster is for them; add \
                 it to their pool, or remove the pool",
                spec.name
            )));
        }
        let uri = own_path(ground, cluster);
        let uri = uri.ok_or_else(|| CloudError::unavailable(format!("the cluster {tag} has no location")))?;
        Ok(ResourceState { uri, address: IpNet::from(space).into(), region: spec.region.clone() })
    }

    /// The clusters that are there, in error or not, given the networks of a site. Asked for only where there is a network for one.
    pub(crate) async fn clusters(
        &self,
        ground: &Ground,
        networks: &[(Segment, Ipv4Net)],
    ) -> Result<Vec<(Segment, ResourceState)>> {
        if !networks.iter().any(|(name, _)| cluster_network(name).is_some()) {
            return Ok(Vec::new());
        }
        let all = self.container.list(&ground.project).await?;
        let mut found = Vec::new();
        for cluster in all.iter().filter(|one| ground.names.owns(one)) {
            let Some((name, region)) = names::read(cluster).and_then(|mark| mark.name.zip(mark.region))
            else {
                continue;
            };
            let space = networks.iter().find(|(network, _)| *network == region).map(|(_, space)| *space);
            let (Some(space), Some(uri)) = (space, own_path(ground, cluster)) else { continue };
            if !is_busy(cluster) {
                found.push((name, ResourceState { uri, address: IpNet::from(space).into(), region }));
            }
        }
        Ok(found)
    }

    /// The cluster, then its list, then the fence.
    pub(crate) async fn remove_cluster(&self, ground: &Ground, name: &Segment) -> Result<()> {
        let (compute, tag, global) = (&self.compute, ground.names.cluster(name), ground.global());
        let fence = self.closers(ground, &format!("{tag}-")).await?;
        let mut networks = self.subnets(ground).await?.into_iter();
        let of_it = |network: &Segment| cluster_network(network).is_some_and(|(_, cluster)| cluster == *name);
        // Projects without clusters need not have the API.
        if fence.is_empty() && !networks.any(|(network, _)| of_it(&network)) {
            return Ok(());
        }
        let all = self.container.list(&ground.project).await?;
        let ours = all.iter().filter(|one| one["name"] == tag.as_str() && ground.names.owns(one));
        for path in ours.filter_map(|cluster| own_path(ground, cluster)) {
            self.remove_at(&path).await?;
        }
        let list = compute.list(&global, "firewalls", &self.list_prefix(ground, &tag)).await?;
        let list: Vec<&str> = list.iter().filter_map(|firewall| firewall["name"].as_str()).collect();
        try_join_all(list.iter().map(|name| compute.delete(&global, "firewalls", name))).await?;
        try_join_all(fence.keys().map(|name| compute.delete(&global, "firewalls", name))).await?;
        Ok(())
    }

    async fn remove_at(&self, path: &str) -> Result<()> {
        let _turn = self.turns.take(path).await;
        for _ in 0..STEPS {
            match self.settled(path, is_changing).await? {
                None => return Ok(()),
                Some(_) => self.container.delete(path).await?,
            }
        }
        Err(CloudError::unavailable(format!(
            "the cluster {path} does not go; look at it in Google's console"
        )))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_that_failed_is_told_from_one_that_is_coming() {
        for (status, busy, failed) in [
            ("PROVISIONING", true, false),
            ("STOPPING", true, false),
            ("RUNNING", false, false),
            ("RECONCILING", false, false),
            ("DEGRADED", false, false),
            ("ERROR", false, true),
        ] {
            let cluster = json!({"status": status, "statusMessage": "no quota"});
            assert_eq!((is_busy(&cluster), failure(&cluster).is_some()), (busy, failed), "{status}");
            assert_eq!(is_changing(&cluster), busy || status == "RECONCILING");
        }
        assert_eq!(failure(&json!({"status": "ERROR", "statusMessage": "no quota"})).unwrap(), "no quota");
    }

    #[test]
    fn ids_tell_a_cluster() {
        assert_eq!(parse("projects/p/locations/us-west1-a/clusters/c", "p"), Some("c"));
        for other in ["projects/q/locations/l/clusters/c", "projects/p/zones/z/instances/i", ""] {
            assert_eq!(parse(other, "p"), None, "{other}");
        }
    }
}
