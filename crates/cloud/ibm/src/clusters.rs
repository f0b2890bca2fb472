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
mod description;

use std::time::Duration;

use cloud_api::{CloudError, ResourceSpec};
use cloud_http::{Class, Pace, Progress, wait};
use futures::{future::try_join_all, try_join};
use http::Method;
use ipnet::Ipv4Net;
use model::{Direction, ResourceState, Segment};
use serde_json::{Value, json};

use self::border::shut;
pub(crate) use self::{
    border::{balancers_group, check_space, check_targets, opened, workers_group},
    description::ClusterDescription,
};
use crate::{
    api::{ENDPOINT_GATEWAY, Place, RULE, text},
    cloud::{Ground, IbmCloud, Result},
    names::MOST_IN_CLUSTER_NAME,
    networks::parts,
    resources::note_of,
    rules::{Note, Rule},
    vpcs::{Vpc, Vpcs},
};

/// Groups of ours that workers are in.
const GROUPS: usize = 4;
/// Addresses of a zone that are not for workers: IBM's five, and endpoint gateways and load balancers.
const KEPT: u64 = 21;

/// Before a cluster is looked for again that is not seen yet.
const PAUSE: Duration = Duration::from_secs(10);

/// Refuses a name that a cluster's VPC cannot have.
pub(crate) fn check_name(name: &Segment) -> Result<()> {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let text = name.as_str();
    match text.len() <= MOST_IN_CLUSTER_NAME && text.bytes().all(legal) && !text.ends_with('-') {
        true => Ok(()),
        false => Err(CloudError::invalid(format!(
            "a cluster in IBM Cloud cannot be called {name}: its VPC has the name in its own, so it is of small letters, \
             digits and hyphens, {MOST_IN_CLUSTER_NAME} at most, and ends with none"
        ))),
    }
}

/// Not deleted, nor being deleted.
pub(crate) fn is_alive(cluster: &Value) -> bool {
    !["deleting", "deleted"].contains(&text(cluster, "state"))
}

fn has_failed(cluster: &Value) -> bool {
    let state = text(cluster, "state");
    state.ends_with("failed") || state == "aborted"
}

/// What IBM says of a cluster that failed.
fn failure(name: &str, cluster: &Value) -> CloudError {
    let told = [text(&cluster["lifecycle"], "masterStatus"), text(cluster, "masterStatus")];
    let told = told.into_iter().find(|told| !told.is_empty()).unwrap_or("no reason is given");
    CloudError::conflict(format!(
        "IBM Cloud failed to make the cluster {name}, which is {}: {told}",
        text(cluster, "state")
    ))
}

fn is_ready(cluster: &Value) -> bool {
    let unfinished = ["requested", "deploying", "pending"].contains(&text(cluster, "state"));
    is_alive(cluster) && !has_failed(cluster) && !unfinished
}

/// Whether a cluster is in a VPC, or does not say yet where it is.
pub(crate) fn is_in(cluster: &Value, vpc: &Vpc) -> bool {
    let vpcs = cluster["vpcs"].as_array().map(Vec::as_slice).unwrap_or_default();
    vpcs.is_empty() || vpcs.iter().any(|id| *id == vpc.id.as_str())
}

/// A cluster as the contract knows it: its workers are anywhere in its network.
fn state_of(vpc: &Vpc, name: &str, space: Ipv4Net) -> Result<ResourceState> {
    let network = vpc.name();
    Ok(ResourceState {
        uri: format!("{network}/{name}"),
        address: ipnet::IpNet::from(space).into(),
        region: network.parse().map_err(|err| CloudError::invalid(format!("{network}: {err}")))?,
    })
}

impl IbmCloud {
    /// The cluster of a name, in whatever state.
    pub(crate) async fn find_cluster(&self, ground: &Ground, name: &str) -> Result<Option<Value>> {
        let path = format!("v2/vpc/getCluster?cluster={name}");
        match self.api.send(ground.containers(), "vpc_get_cluster", Method::GET, &path, None).await {
            Ok(cluster) => Ok(Some(cluster)),
            Err(failure) if failure.is(Class::NotFound) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    pub(crate) async fn list_cluster(
        &self,
        ground: &Ground,
        vpc: &Vpc,
        cluster: &str,
        space: Option<Ipv4Net>,
    ) -> Result<Vec<(Segment, ResourceState)>> {
        let name = ground.names.cluster(cluster);
        let found = self.find_cluster(ground, &name).await?;
        let (Some(space), Some(_)) = (space, found.filter(|one| is_alive(one) && is_in(one, vpc))) else {
            return Ok(Vec::new());
        };
        let resource = cluster.parse().map_err(|err| CloudError::invalid(format!("{cluster}: {err}")))?;
        Ok(vec![(resource, state_of(vpc, &name, space)?)])
    }

    pub(crate) async fn make_cluster(
        &self,
        ground: &Ground,
        spec: &ResourceSpec,
        description: ClusterDescription,
    ) -> Result<ResourceState> {
        let (name, network) = (ground.names.cluster(spec.name.as_str()), spec.region.as_str());
        let _turn = self.turns.take(&format!("{network}/{name}")).await;
        let vpc = self.need_vpc(ground, network).await?;
        let unfinished =
            || CloudError::conflict(format!("the network {}.{network} is not whole", ground.site));
        let space = self.space_of(&vpc).await?.ok_or_else(unfinished)?;
        check_size(&description, space)?;
        for _ in 0..4 {
            let there = self.find_cluster(ground, &name).await?;
            match &there {
                Some(cluster) if !is_in(cluster, &vpc) && is_alive(cluster) => {
                    return Err(CloudError::conflict(format!("the cluster {name} is in another VPC")));
                }
                Some(cluster) if has_failed(cluster) || !is_alive(cluster) => {
                    self.end_cluster(ground, &name, cluster).await?;
                    continue;
                }
                Some(_) => {}
                None => self.begin_cluster(ground, spec, &vpc, &name, &description).await?,
            }
            if self.until_ready(ground, &vpc, &name).await? {
                return state_of(&vpc, &name, space);
            }
            self.api.clock().sleep(PAUSE).await;
        }
        Err(CloudError::unavailable(format!("IBM Cloud did not make the cluster {name}")))
    }

    /// Asks for a cluster, in groups that nothing is open in.
    async fn begin_cluster(
        &self,
        ground: &Ground,
        spec: &ResourceSpec,
        vpc: &Vpc,
        name: &str,
        description: &ClusterDescription,
    ) -> Result<()> {
        let groups = self.groups(vpc).await?;
        if note_of(ground, &groups, name).is_none() {
            let note = Note { name: spec.name.to_string(), list: Vec::new() };
            self.write_note(ground, vpc, &groups, name, &note).await?;
        }
        let names = (0..GROUPS).map(|number| match number {
            0 => ground.names.group(name),
            further => ground.names.further_group(name, further),
        });
        let names: Vec<String> = names.collect();
        let own = try_join_all(names.iter().map(|group| self.empty_group(ground, vpc, &groups, group)));
        let subnets = try_join_all(description.zones.iter().map(|zone| self.subnet(ground, vpc, zone)));
        let (own, subnets) = try_join!(own, subnets)?;
        let body = request(vpc, name, description, &own, &subnets);
        let path = "v2/vpc/createCluster";
        match self.api.send(ground.containers(), "vpc_create_cluster", Method::POST, path, Some(&body)).await
        {
            // It is there already, from a request whose answer was lost.
            Err(failure) if [Class::Exists, Class::InUse].contains(&failure.class()) => Ok(()),
            outcome => Ok(outcome.map(drop)?),
        }
    }

    /// Waits for a cluster, and closes what IBM opens meanwhile. Answers whether it is there. One that fails is left for
    /// whoever asks for it again, or to go: its reasons seldom pass by themselves, and each time takes IBM up to an hour.
    async fn until_ready(&self, ground: &Ground, vpc: &Vpc, name: &str) -> Result<bool> {
        let what = format!("the cluster {name}");
        wait(self.api.clock(), Pace::SLOW, &what, || async {
            // The group is there before any worker is.
            self.close_border(vpc).await?;
            Ok(match self.find_cluster(ground, name).await? {
                Some(cluster) if is_ready(&cluster) => Progress::Done(true),
                Some(cluster) if has_failed(&cluster) => return Err(failure(name, &cluster)),
                Some(cluster) if is_alive(&cluster) => Progress::Pending,
                _ => Progress::Done(false),
            })
        })
        .await
    }

    /// Takes out of IBM's groups of the workers and the load balancers what opens them to others.
    async fn close_border(&self, vpc: &Vpc) -> Result<()> {
        let groups = self.groups(vpc).await?;
        let mut open = workers_group(&groups, vpc).map(opened).unwrap_or_default();
        if let Some(balancers) = balancers_group(&groups) {
            let theirs = opened(balancers);
            self.shut_balancers(vpc, text(balancers, "id"), theirs.keys()).await?;
            open.extend(theirs);
        }
        try_join_all(open.into_values().map(|path| async move {
            self.api.remove(Place::Region(&vpc.region), &RULE, &format!("security_groups/{path}")).await
        }))
        .await
        .map(drop)
    }

    /// Puts rules that let in nobody in the place of those of a load balancers' group that are to go.
    pub(crate) async fn shut_balancers(
        &self,
        vpc: &Vpc,
        group: &str,
        going: impl Iterator<Item = &Rule>,
    ) -> Result<()> {
        let path = format!("security_groups/{group}/rules");
        let inbound = going.filter(|rule| rule.direction == Direction::Inbound);
        let shut = inbound.map(|rule| {
            let (path, body) = (&path, shut(rule).write());
            async move { self.api.make(Place::Region(&vpc.region), &RULE, path, &body).await }
        });
        try_join_all(shut).await.map(drop)
    }

    /// Deletes a cluster and waits until it is gone, with its workers.
    async fn end_cluster(&self, ground: &Ground, name: &str, cluster: &Value) -> Result<()> {
        if is_alive(cluster) {
            let path = format!("v1/clusters/{}?deleteResources=true", text(cluster, "id"));
            match self.api.send(ground.containers(), "remove_cluster", Method::DELETE, &path, None).await {
                Err(failure) if failure.is(Class::NotFound) => {}
                outcome => drop(outcome?),
            }
        }
        wait(self.api.clock(), Pace::SLOW, &format!("the end of the cluster {name}"), || async {
            let left = self.find_cluster(ground, name).await?;
            let is_gone = left.is_none_or(|left| text(&left, "state") == "deleted");
            Ok(if is_gone { Progress::Done(()) } else { Progress::Pending })
        })
        .await
    }

    /// A cluster, its list, and what IBM made for it and leaves behind. Its network stays until it is asked to go.
    pub(crate) async fn remove_cluster(&self, ground: &Ground, vpcs: &Vpcs, name: &Segment) -> Result<()> {
        let homes: Vec<&Vpc> =
            vpcs.networks.iter().filter(|vpc| vpc.cluster() == Some(name.as_str())).collect();
        let name = ground.names.cluster(name.as_str());
        for vpc in homes {
            let _turn = self.turns.take(&format!("{}/{name}", vpc.name())).await;
            let found = self.find_cluster(ground, &name).await?.filter(|one| is_in(one, vpc));
            if let Some(cluster) = found {
                self.end_cluster(ground, &name, &cluster).await?;
            }
            self.clear(ground, vpc, &name).await?;
        }
        Ok(())
    }

    async fn clear(&self, ground: &Ground, vpc: &Vpc, name: &str) -> Result<()> {
        let place = Place::Region(&vpc.region);
        let listed = format!("endpoint_gateways?vpc.id={}", vpc.id);
        let (endpoints, groups) = try_join!(
            async { Ok(self.api.list(place, &ENDPOINT_GATEWAY, &listed).await?) },
            self.groups(vpc)
        )?;
        let shared = endpoints.iter().filter(|one| text(one, "name").starts_with("iks-"));
        try_join_all(shared.map(|one| async move {
            self.api.remove(place, &ENDPOINT_GATEWAY, &format!("endpoint_gateways/{}", text(one, "id"))).await
        }))
        .await?;
        self.forget_list(ground, vpc, &groups, name).await
    }
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
fn request(
    vpc: &Vpc,
    name: &str,
    description: &ClusterDescription,
    groups: &[String],
    subnets: &[String],
) -> Value {
    let zones = description.zones.iter().zip(subnets);
    let zones: Vec<Value> = zones.map(|(zone, subnet)| json!({"id": zone, "subnetID": subnet})).collect();
    let mut pool = Value::Object(description.pool.clone());
    pool["workerCount"] = description.workers.into();
    pool["vpcID"] = vpc.id.as_str().into();
    pool["zones"] = zones.into();
    if pool["name"].is_null() {
        pool["name"] = "default".into();
    }
    let own = std::iter::once("cluster").chain(groups.iter().map(String::as_str));
    let mut body = Value::Object(description.fields.clone());
    for (field, value) in [
        ("name", json!(name)),
        ("provider", json!("vpc-gen2")),
        ("disablePublicServiceEndpoint", json!(true)),
        ("disableOutboundTrafficProtection", json!(false)),
        ("podSubnet", json!(border::PODS.to_string())),
        ("serviceSubnet", json!(border::SERVICES.to_string())),
        ("securityGroupIDs", own.collect()),
        ("workerPool", pool),
    ] {
        body[field] = value;
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vpcs::Home;

    fn description(workers: u64) -> ClusterDescription {
        let text =
            format!(r#"{{"zone":"us-south-1","workerPool":{{"flavor":"f","workerCount":{workers}}}}}"#);
        ClusterDescription::of(serde_json::from_str(&text).unwrap()).unwrap()
    }

    /// Without groups of the request's own, IBM would put workers into the VPC's default group, which lets everything out.
    #[test]
    fn a_request_is_closed_and_private() {
        let vpc = Vpc::read("us-south", &json!({"id": "r006-1"}), Home::of_cluster("us-south", "k").unwrap());
        let groups = ["g0", "g1", "g2", "g3"].map(str::to_owned);
        let body = request(&vpc, "t-x-iks-y", &description(2), &groups, &["s1".to_owned()]);
        assert_eq!(body["securityGroupIDs"], json!(["cluster", "g0", "g1", "g2", "g3"]));
        assert_eq!(
            (&body["disablePublicServiceEndpoint"], &body["provider"]),
            (&json!(true), &json!("vpc-gen2"))
        );
        assert_eq!(body["disableOutboundTrafficProtection"], json!(false));
        let pool = json!({"flavor": "f", "name": "default", "workerCount": 2, "vpcID": "r006-1", "zones": [{"id": "us-south-1", "subnetID": "s1"}]});
        assert_eq!(body["workerPool"], pool);
    }

    #[test]
    fn states_tell_what_is_to_be_done() {
        let told = |state: &str| {
            let cluster = json!({"state": state});
            (is_ready(&cluster), has_failed(&cluster), is_alive(&cluster))
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
        let vpc = Vpc::read("us-south", &json!({"id": "r006-1"}), Home::of_cluster("us-south", "k").unwrap());
        let is_here = |vpcs: Value| is_in(&json!({"vpcs": vpcs}), &vpc);
        assert!(is_here(json!(["r006-1"])) && is_here(json!([])) && !is_here(json!(["r006-2"])));
    }

    #[test]
    fn what_does_not_fit_is_refused_before_the_first_call() {
        let space = "10.0.0.0/24".parse().unwrap();
        assert!(check_size(&description(43), space).is_ok());
        assert!(check_size(&description(44), space).is_err());
        let wide = "10.0.0.0/16".parse().unwrap();
        assert!(check_size(&description(512), wide).is_ok());
        assert!(check_size(&description(513), wide).is_err());
        for (name, fits) in [("web-1", true), ("Web", false), ("a_b", false), ("a-", false)] {
            assert_eq!(check_name(&name.parse().unwrap()).is_ok(), fits, "{name}");
        }
        assert!(check_name(&"x".repeat(45).parse().unwrap()).is_err());
    }
}
