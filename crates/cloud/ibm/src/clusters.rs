//! Managed Kubernetes clusters: IBM Cloud Kubernetes Service, each in a VPC of its own.
//!
//! ```text
//!   t-SITE-k8s-NAME        the VPC: the cluster's network
//!   t-SITE-iks-HASH        the cluster; its workers are in IBM's group kube-CLUSTER, which opens the inside, and in
//!   t-SITE-iks-HASH-sg     … to -sg-3: four groups of ours, made without rules before the cluster, for the permit list
//!   iks-…                  endpoint gateways that IBM makes for clusters and leaves behind
//! ```
//!
//! Workers keep the groups that they were made with: IBM adds none later. Five are the most, so four are ours from the
//! beginning. Born closed: they have no rules, and the VPC's default group is on nothing.

mod border;

use std::time::Duration;

use cloud_api::{CloudError, ResourceSpec};
use cloud_http::{Class, Pace, Progress, wait};
use futures::{future::try_join_all, try_join};
use http::Method;
use ipnet::Ipv4Net;
use model::{Direction, ResourceState, Segment};

use self::border::shut;
pub(crate) use self::border::{balancers_group, check_space, check_targets, opened, workers_group};
use crate::described::ClusterDescription;
use crate::groups::remove_with_list;
use crate::rules::{Rule, request_of};
use crate::shapes::{Cluster, ClusterRequest, EndpointGateway, PoolRequest, PoolZone};
use crate::vpcs::parts;
use crate::{Call, Ground, Groups, Result, Vpc, Vpcs, subnets};

/// Groups of ours that workers are in.
const GROUPS: usize = 4;
/// Addresses of a zone that are not for workers: IBM's five, and endpoint gateways and load balancers.
const KEPT: u64 = 21;

/// Before a cluster is looked for again that is not seen yet.
const PAUSE: Duration = Duration::from_secs(10);

impl Cluster {
    /// Not deleted, nor being deleted.
    fn is_alive(&self) -> bool {
        !["deleting", "deleted"].contains(&self.state.as_str())
    }

    fn has_failed(&self) -> bool {
        self.state.ends_with("failed") || self.state == "aborted"
    }

    fn is_ready(&self) -> bool {
        let unfinished = ["requested", "deploying", "pending"].contains(&self.state.as_str());
        self.is_alive() && !self.has_failed() && !unfinished
    }

    /// Whether it is in a VPC, or does not say yet where it is.
    fn is_in(&self, vpc: &Vpc) -> bool {
        self.vpcs.is_empty() || self.vpcs.contains(&vpc.id)
    }

    /// What IBM says of one that failed.
    fn failure(&self) -> CloudError {
        let told = [&self.lifecycle.master_status, &self.master_status];
        let told = told.into_iter().flatten().find(|told| !told.is_empty());
        CloudError::conflict(format!(
            "IBM Cloud failed to make the cluster {}, which is {}: {}",
            self.name,
            self.state,
            told.map_or("no reason is given", String::as_str)
        ))
    }
}

/// A cluster as the contract knows it: its workers are anywhere in its network.
fn state_of(vpc: &Vpc, name: &str, space: Ipv4Net) -> Result<ResourceState> {
    let region = vpc.segment()?;
    Ok(ResourceState { uri: format!("{region}/{name}"), address: ipnet::IpNet::from(space).into(), region })
}

/// The cluster of a name, in whatever state.
async fn find(ground: &Ground, name: &str) -> Result<Option<Cluster>> {
    let path = format!("v2/vpc/getCluster?cluster={name}");
    Ok(ground.api.look(Call::get(ground.containers(), "vpc_get_cluster", path)).await?)
}

/// The cluster of a name, if it is there and in its VPC.
pub(crate) async fn find_in(ground: &Ground, vpc: &Vpc, name: &str) -> Result<Option<Cluster>> {
    Ok(find(ground, name).await?.filter(|one| one.is_alive() && one.is_in(vpc)))
}

pub(crate) async fn list(
    ground: &Ground,
    vpc: &Vpc,
    cluster: &str,
    space: Option<Ipv4Net>,
) -> Result<Vec<(Segment, ResourceState)>> {
    let name = ground.names.cluster(cluster);
    let (Some(space), Some(_)) = (space, find_in(ground, vpc, &name).await?) else { return Ok(Vec::new()) };
    let resource = cluster.parse().map_err(|err| CloudError::invalid(format!("{cluster}: {err}")))?;
    Ok(vec![(resource, state_of(vpc, &name, space)?)])
}

/// Not by the executor of other objects: what IBM opens is closed at each look, and one that fails is told of instead of
/// made anew. Its reasons seldom pass by themselves, and each time takes IBM up to an hour.
pub(crate) async fn make(
    ground: &Ground,
    spec: &ResourceSpec,
    description: ClusterDescription,
) -> Result<ResourceState> {
    let (name, network) = (ground.names.cluster(spec.name.as_str()), spec.region.as_str());
    let _turn = ground.turns.take(&format!("{network}/{name}")).await;
    let vpc = Vpc::need(ground, network).await?;
    let unfinished = || CloudError::conflict(format!("the network {}.{network} is not whole", ground.site));
    let space = vpc.space(&ground.api).await?.ok_or_else(unfinished)?;
    check_size(&description, space)?;
    for _ in 0..4 {
        match find(ground, &name).await? {
            Some(cluster) if !cluster.is_in(&vpc) && cluster.is_alive() => {
                return Err(CloudError::conflict(format!("the cluster {name} is in another VPC")));
            }
            Some(cluster) if cluster.has_failed() || !cluster.is_alive() => {
                end(ground, &cluster).await?;
                continue;
            }
            Some(_) => {}
            None => begin(ground, spec, &vpc, &name, &description).await?,
        }
        if until_ready(ground, &vpc, &name).await? {
            return state_of(&vpc, &name, space);
        }
        ground.api.clock().sleep(PAUSE).await;
    }
    Err(CloudError::unavailable(format!("IBM Cloud did not make the cluster {name}")))
}

/// Asks for a cluster, in groups that nothing is open in.
async fn begin(
    ground: &Ground,
    spec: &ResourceSpec,
    vpc: &Vpc,
    name: &str,
    description: &ClusterDescription,
) -> Result {
    let groups = Groups::read(ground, vpc).await?;
    groups.note_new(name, &spec.name).await?;
    let further = (1..GROUPS).map(|number| ground.names.further_group(name, number));
    let names: Vec<String> = std::iter::once(ground.names.group(name)).chain(further).collect();
    let own = try_join_all(names.iter().map(|group| groups.empty(group)));
    let subnets = try_join_all(description.zones.iter().map(|zone| subnets::ensure(ground, vpc, zone)));
    let (own, subnets) = try_join!(own, subnets)?;
    let call = Call::new(ground.containers(), "vpc_create_cluster", Method::POST, "v2/vpc/createCluster");
    match ground.api.send(call.body(&request(vpc, name, description, &own, &subnets))).await {
        // It is there already, from a request whose answer was lost.
        Err(failure) if [Class::Exists, Class::InUse].contains(&failure.class()) => Ok(()),
        outcome => Ok(outcome.map(drop)?),
    }
}

/// Waits for a cluster, and closes what IBM opens meanwhile. Answers whether it is there.
async fn until_ready(ground: &Ground, vpc: &Vpc, name: &str) -> Result<bool> {
    wait(ground.api.clock(), Pace::SLOW, &format!("the cluster {name}"), || async {
        // The group is there before any worker is.
        close_border(&Groups::read(ground, vpc).await?).await?;
        Ok(match find(ground, name).await? {
            Some(cluster) if cluster.is_ready() => Progress::Done(true),
            Some(cluster) if cluster.has_failed() => return Err(cluster.failure()),
            Some(cluster) if cluster.is_alive() => Progress::Pending,
            _ => Progress::Done(false),
        })
    })
    .await
}

/// Takes out of IBM's groups of the workers and the load balancers what opens them to others.
async fn close_border(groups: &Groups<'_>) -> Result {
    let mut open = workers_group(&groups.all, &groups.vpc).map(opened).unwrap_or_default();
    if let Some(balancers) = balancers_group(&groups.all) {
        let theirs = opened(balancers);
        shut_balancers(groups, &balancers.id, theirs.keys()).await?;
        open.extend(theirs);
    }
    groups.close_rules(&open.into_values().collect::<Vec<_>>()).await
}

/// Puts rules that let in nobody in the place of those of a load balancers' group that are to go.
pub(crate) async fn shut_balancers(
    groups: &Groups<'_>,
    balancers: &str,
    going: impl Iterator<Item = &Rule>,
) -> Result {
    let inbound = going.filter(|rule| rule.direction == Direction::Inbound);
    groups.open_rules(balancers, inbound.map(|rule| request_of(&shut(rule)))).await
}

/// Deletes a cluster and waits until it is gone, with its workers.
async fn end(ground: &Ground, cluster: &Cluster) -> Result {
    if cluster.is_alive() {
        let path = format!("v1/clusters/{}?deleteResources=true", cluster.id);
        let call = Call::new(ground.containers(), "remove_cluster", Method::DELETE, path);
        ground.api.take_away(call).await?;
    }
    let name = &cluster.name;
    wait(ground.api.clock(), Pace::SLOW, &format!("the end of the cluster {name}"), || async {
        let is_gone = find(ground, name).await?.is_none_or(|left| left.state == "deleted");
        Ok(if is_gone { Progress::Done(()) } else { Progress::Pending })
    })
    .await
}

/// A cluster, its list, and what IBM made for it and leaves behind. Its network stays until it is asked to go.
pub(crate) async fn remove(ground: &Ground, vpcs: &Vpcs, resource: &Segment) -> Result {
    let name = ground.names.cluster(resource.as_str());
    for vpc in vpcs.networks.iter().filter(|vpc| vpc.cluster() == Some(resource.as_str())) {
        let _turn = ground.turns.take(&format!("{}/{name}", vpc.name())).await;
        if let Some(cluster) = find(ground, &name).await?.filter(|one| one.is_in(vpc)) {
            end(ground, &cluster).await?;
        }
        let endpoints = vpc.all::<EndpointGateway>(&ground.api);
        remove_with_list(ground, vpc, &endpoints, |one| one.starts_with("iks-"), &name).await?;
    }
    Ok(())
}

/// Refuses more workers than a zone has addresses for, or than Pods do.
fn check_size(description: &ClusterDescription, space: Ipv4Net) -> Result<()> {
    let (all, most) =
        (description.workers.saturating_mul(description.zones.len() as u64), border::most_workers());
    if all > most {
        return Err(CloudError::invalid(format!(
            "{all} workers are too many for a cluster in IBM Cloud: the addresses of its Pods do for {most}"
        )));
    }
    let zone = parts(space)?[0];
    let room = (1u64 << (32 - zone.prefix_len())).saturating_sub(KEPT);
    match description.workers > room {
        true => Err(CloudError::invalid(format!(
            "{} workers per zone do not fit {zone}, a zone's part of the cluster's network, which has room for {room}",
            description.workers
        ))),
        false => Ok(()),
    }
}

/// The request for a cluster: the user's description, in our network and in groups of ours.
fn request<'r>(
    vpc: &'r Vpc,
    name: &'r str,
    description: &'r ClusterDescription,
    groups: &'r [String],
    subnets: &'r [String],
) -> ClusterRequest<'r> {
    let zones = description.zones.iter().zip(subnets);
    let zones = zones.map(|(zone, subnet)| PoolZone { id: zone, subnet }).collect();
    ClusterRequest {
        described: &description.fields,
        name,
        provider: "vpc-gen2",
        disable_public_service_endpoint: true,
        disable_outbound_traffic_protection: false,
        pod_subnet: border::PODS,
        service_subnet: border::SERVICES,
        groups: std::iter::once("cluster").chain(groups.iter().map(String::as_str)).collect(),
        worker_pool: PoolRequest { described: &description.pool, vpc: &vpc.id, zones },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{shapes::Lifecycle, vpcs::Home};

    fn description(workers: u64) -> ClusterDescription {
        let text =
            format!(r#"{{"zone":"us-south-1","workerPool":{{"flavor":"f","workerCount":{workers}}}}}"#);
        ClusterDescription::of(serde_json::from_str(&text).unwrap()).unwrap()
    }

    /// Without groups of the request's own, IBM would put workers into the VPC's default group, which lets everything out.
    #[test]
    fn a_request_is_closed_and_private() {
        let vpc = Vpc::sample("us-south", Home::of_cluster("us-south", "k").unwrap());
        let groups = ["g0", "g1", "g2", "g3"].map(str::to_owned);
        let (description, subnets) = (description(2), ["s1".to_owned()]);
        let body = request(&vpc, "t-x-iks-y", &description, &groups, &subnets);
        let pool = json!({"flavor": "f", "name": "default", "workerCount": 2, "vpcID": "r006-1", "zones": [{"id": "us-south-1", "subnetID": "s1"}]});
        let wanted = json!({
            "name": "t-x-iks-y",
            "provider": "vpc-gen2",
            "disablePublicServiceEndpoint": true,
            "disableOutboundTrafficProtection": false,
            "podSubnet": "198.18.0.0/16",
            "serviceSubnet": "198.19.0.0/16",
            "securityGroupIDs": ["cluster", "g0", "g1", "g2", "g3"],
            "workerPool": pool,
        });
        assert_eq!(serde_json::to_value(&body).unwrap(), wanted);
    }

    fn cluster(state: &str, vpcs: &[&str]) -> Cluster {
        Cluster {
            id: "c".into(),
            name: "k".into(),
            state: state.into(),
            vpcs: vpcs.iter().map(|vpc| (*vpc).to_owned()).collect(),
            lifecycle: Lifecycle { master_status: None },
            master_status: None,
        }
    }

    #[test]
    fn states_tell_what_is_to_be_done() {
        let told = |state: &str| {
            let cluster = cluster(state, &[]);
            (cluster.is_ready(), cluster.has_failed(), cluster.is_alive())
        };
        for state in ["requested", "deploying", "pending"] {
            assert_eq!(told(state), (false, false, true), "{state}");
        }
        for state in ["normal", "warning", "critical", "updating"] {
            assert_eq!(told(state), (true, false, true), "{state}");
        }
        for state in ["deploy_failed", "delete_failed", "aborted"] {
            assert_eq!(told(state), (false, true, true), "{state}");
        }
        assert_eq!(told("deleting"), (false, false, false));
        let vpc = Vpc::sample("us-south", Home::of_cluster("us-south", "k").unwrap());
        let is_here = |vpcs: &[&str]| cluster("normal", vpcs).is_in(&vpc);
        assert!(is_here(&["r006-1"]) && is_here(&[]) && !is_here(&["r006-2"]));
    }

    #[test]
    fn what_does_not_fit_is_refused_before_the_first_call() {
        let space = "10.0.0.0/24".parse().unwrap();
        assert!(check_size(&description(43), space).is_ok());
        assert!(check_size(&description(44), space).is_err());
        let wide = "10.0.0.0/16".parse().unwrap();
        assert!(check_size(&description(512), wide).is_ok());
        assert!(check_size(&description(513), wide).is_err());
    }
}
