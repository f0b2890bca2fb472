//! Kubernetes Engine: clusters, what Google makes for one by itself, and operations. The control plane has an address in the
//! subnet, and is no host of the wire.

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Outcome, Refusal,
    pools::{PODS_OF_NODE, pools},
    refuse,
    state::{Gce, REGIONS, Request, is_name, path_of},
    wire::net,
};
use crate::rest::{items, show, text};

pub(super) const LONGEST_NAME: usize = 40;
/// Seconds.
pub(super) const MAKING: u64 = 300;
const REMOVING: u64 = 180;
pub(super) const TIME: &str = "2026-10-01T00:00:00+00:00";

pub(super) fn invalid(message: impl Into<String>) -> Refusal {
    refuse(400, "badRequest", message)
}

pub(super) fn missing(path: &str) -> Refusal {
    refuse(404, "notFound", format!("Not found: {path}."))
}

/// Whether a cluster is in a network or a subnet.
pub(super) fn uses(object: &Value, link: &str) -> bool {
    object["_network"] == link || object["_subnet"] == link
}

/// What a location means: its region, and the zones that nodes are in.
fn zones(location: &str) -> Result<(String, Vec<String>), Refusal> {
    let zone = location
        .rsplit_once('-')
        .filter(|(region, zone)| REGIONS.contains(region) && ["a", "b"].contains(zone));
    match zone {
        Some((region, _)) => Ok((region.to_owned(), vec![location.to_owned()])),
        None if REGIONS.contains(&location) => {
            Ok((location.to_owned(), ["a", "b"].map(|zone| format!("{location}-{zone}")).to_vec()))
        }
        None => Err(invalid(format!("Location \"{location}\" does not exist."))),
    }
}

/// A short name, or a path, of something in a place.
fn reference(value: &Value, project: &str, place: &str, collection: &str) -> String {
    let text = value.as_str().unwrap_or("default");
    match text.contains('/') {
        true => path_of(text, project),
        false => format!("projects/{project}/{place}/{collection}/{text}"),
    }
}

pub(super) fn hash(text: &str) -> String {
    let hash =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

impl Gce {
    pub(super) fn call_container(&mut self, request: &Request<'_>) -> Outcome {
        let target = request.target;
        let path = request.path(&target.name);
        if target.method.contains(".nodePools.") {
            return self.change_pools(request, &path);
        }
        match (target.collection.as_str(), target.method.rsplit('.').next().unwrap_or_default()) {
            ("clusters", "create") => self.create_cluster(request),
            ("clusters", "get") => self.objects.get(&path).map(show).ok_or_else(|| missing(&path)),
            ("clusters", "list") => {
                let start = format!("projects/{}/locations/", target.project);
                let here = format!("projects/{}/{}/", target.project, target.scope);
                let all = self.of_kind("clusters").filter(|(path, _)| path.starts_with(&start));
                let all = all.filter(|(path, _)| target.scope == "locations/-" || path.starts_with(&here));
                let all: Vec<Value> = all.map(|(_, cluster)| show(cluster)).collect();
                Ok(if all.is_empty() { json!({}) } else { json!({ "clusters": all }) })
            }
            ("clusters", "delete") => self.delete_cluster(request, &path),
            ("operations", "get") => {
                let found = self.operations.get(&target.name).filter(|one| one["_of_cluster"] == true);
                found.map(show).ok_or_else(|| missing(&path))
            }
            ("operations", "list") => {
                let all = self.operations.iter().filter(|(_, one)| one["_of_cluster"] == true);
                Ok(json!({"operations": all.map(|(_, one)| show(one)).collect::<Vec<_>>()}))
            }
            _ => Err(refuse(404, "notFound", format!("{} is not simulated", target.method))),
        }
    }

    fn create_cluster(&mut self, request: &Request<'_>) -> Outcome {
        let project = &request.target.project;
        let location = request.target.scope.trim_start_matches("locations/");
        let (region, zones) = zones(location)?;
        let mut cluster = request.body["cluster"].clone();
        let name = text(&cluster["name"]).to_owned();
        if !is_name(&name) || name.len() > LONGEST_NAME {
            return Err(invalid(format!("Invalid value for field \"cluster.name\": \"{name}\".")));
        }
        let path = request.path(&name);
        if self.objects.contains_key(&path) {
            bail!(409, "alreadyExists", "Already exists: {path}.");
        }
        let until = request.ask.now + MAKING;
        let network = reference(&cluster["network"], project, "global", "networks");
        let subnet = reference(&cluster["subnetwork"], project, &format!("regions/{region}"), "subnetworks");
        let link = self.ready(&network)?["selfLink"].clone();
        let found = self.ready(&subnet)?.clone();
        if found["network"] != link {
            return Err(invalid(format!("{subnet} is no subnetwork of {network}.")));
        }
        let pods = self.allot(&mut cluster, &found)?;
        self.guard_control_plane(&mut cluster, &subnet)?;
        let sizes = pools(&mut cluster)?;
        let id = hash(&path);
        for (field, value) in [
            ("status", json!("PROVISIONING")),
            ("location", json!(location)),
            ("zone", json!(location)),
            ("locations", json!(zones)),
            ("selfLink", json!(format!("{}/v1/{path}", request.ask.origin))),
            ("id", json!(format!("{id}{id}"))),
            ("createTime", json!(TIME)),
            ("currentMasterVersion", json!("1.34.1-gke.1")),
            ("network", json!(network.rsplit('/').next())),
            ("subnetwork", json!(subnet.rsplit('/').next())),
            ("_network", link.clone()),
            ("_subnet", found["selfLink"].clone()),
            ("_until", json!(until)),
            ("_failed", json!(request.fails)),
        ] {
            cluster[field] = value;
        }
        cluster["networkConfig"]["network"] = network.clone().into();
        cluster["networkConfig"]["subnetwork"] = subnet.clone().into();
        self.own_firewalls(request, &cluster, &found, pods, &id)?;
        if !request.fails {
            self.place_nodes(request, &cluster, &subnet, &sizes, until)?;
        }
        self.objects.insert(path.clone(), cluster);
        Ok(self.begin(request, "CREATE_CLUSTER", &path, until))
    }

    /// Gives a cluster the ranges that it names, and answers with that of its Pods.
    fn allot(&self, cluster: &mut Value, subnet: &Value) -> Result<Ipv4Net, Refusal> {
        let policy = cluster["ipAllocationPolicy"].clone();
        if policy["useIpAliases"] != true {
            return Err(invalid("Only VPC-native clusters are simulated."));
        }
        let ranges = items(&subnet["secondaryIpRanges"]);
        let mut found = Vec::new();
        for (field, block) in [
            ("clusterSecondaryRangeName", "clusterIpv4CidrBlock"),
            ("servicesSecondaryRangeName", "servicesIpv4CidrBlock"),
        ] {
            let range = ranges.iter().find(|one| one["rangeName"] == policy[field]);
            let range = range.and_then(|one| net(&one["ipCidrRange"]));
            let range =
                range.ok_or_else(|| invalid(format!("Secondary range {} does not exist.", policy[field])))?;
            cluster["ipAllocationPolicy"][block] = range.to_string().into();
            found.push(range);
        }
        let [pods, services] = found.as_slice() else { return Err(invalid("ranges")) };
        let taken = |other: &Value| {
            other["_subnet"] == subnet["selfLink"]
                && other["ipAllocationPolicy"]["clusterSecondaryRangeName"]
                    == policy["clusterSecondaryRangeName"]
        };
        if self.of_kind("clusters").any(|(_, other)| taken(other)) {
            return Err(invalid("The secondary range is in use by another cluster."));
        }
        if pods.prefix_len() > PODS_OF_NODE || !(16..=28).contains(&services.prefix_len()) {
            return Err(invalid("A secondary range has a size that is not supported."));
        }
        cluster["clusterIpv4Cidr"] = pods.to_string().into();
        cluster["servicesIpv4Cidr"] = services.to_string().into();
        Ok(*pods)
    }

    fn guard_control_plane(&mut self, cluster: &mut Value, subnet: &str) -> Result<(), Refusal> {
        let older = !cluster["privateClusterConfig"].is_null()
            || !cluster["masterAuthorizedNetworksConfig"].is_null();
        if older && !cluster["controlPlaneEndpointsConfig"].is_null() {
            return Err(invalid(
                "control_plane_endpoints_config and private_cluster_config are one too many.",
            ));
        }
        let private = cluster["networkConfig"]["defaultEnablePrivateNodes"] == true
            || cluster["privateClusterConfig"]["enablePrivateNodes"] == true;
        if !private {
            return Err(invalid("Only clusters with private nodes are simulated."));
        }
        let address = self.next_address(subnet)?.to_string();
        cluster["controlPlaneEndpointsConfig"]["ipEndpointsConfig"]["privateEndpoint"] =
            address.clone().into();
        cluster["privateClusterConfig"]["privateEndpoint"] = address.clone().into();
        cluster["privateClusterConfig"]["enablePrivateNodes"] = true.into();
        cluster["endpoint"] = address.into();
        Ok(())
    }

    /// The firewalls that Google makes for a cluster: what is inside is open.
    fn own_firewalls(
        &mut self,
        request: &Request<'_>,
        cluster: &Value,
        subnet: &Value,
        pods: Ipv4Net,
        id: &str,
    ) -> Result<(), Refusal> {
        let start = format!("gke-{}-{id}", text(&cluster["name"]));
        let allow =
            |list: &[&str]| list.iter().map(|protocol| json!({"IPProtocol": protocol})).collect::<Vec<_>>();
        let all = json!(allow(&["esp", "ah", "sctp", "tcp", "udp", "icmp"]));
        let some = json!([{"IPProtocol": "icmp"}, {"IPProtocol": "tcp", "ports": ["1-65535"]}, {"IPProtocol": "udp", "ports": ["1-65535"]}]);
        let kubelet = json!([{"IPProtocol": "tcp", "ports": ["10255"]}]);
        for (end, list, rules, ranges) in [
            ("all", "allowed", all, json!([pods.to_string()])),
            ("vms", "allowed", some, json!([subnet["ipCidrRange"]])),
            ("exkubelet", "denied", kubelet, json!(["0.0.0.0/0"])),
        ] {
            let name = format!("{start}-{end}");
            let path = format!("projects/{}/global/firewalls/{name}", request.target.project);
            let mut firewall = json!({
                "kind": "compute#firewall", "name": name, "network": cluster["_network"], "direction": "INGRESS", list: rules,
                "sourceRanges": ranges, "targetTags": [format!("{start}-node")], "creationTimestamp": TIME, "id": "1",
                "selfLink": format!("{}/compute/v1/{path}", request.ask.origin), "_cluster": cluster["selfLink"],
            });
            super::check::firewall(&mut firewall)?;
            self.objects.insert(path, firewall);
        }
        Ok(())
    }

    /// A cluster that can be changed.
    pub(super) fn idle(&self, path: &str) -> Result<&Value, Refusal> {
        let cluster = self.objects.get(path).ok_or_else(|| missing(path))?;
        match cluster["_until"].is_null() {
            true => Ok(cluster),
            false => {
                let message = format!("Cluster is running incompatible operation {}.", cluster["_operation"]);
                Err(refuse(400, "failedPrecondition", message))
            }
        }
    }

    fn delete_cluster(&mut self, request: &Request<'_>, path: &str) -> Outcome {
        let cluster = self.idle(path)?;
        let (until, link) = (request.ask.now + REMOVING, cluster["selfLink"].clone());
        self.objects.change(
            |other, object| other == path || object["_cluster"] == link,
            |object| {
                object["_until"] = until.into();
                object["_gone"] = true.into();
                if !object["status"].is_null() {
                    object["status"] = "STOPPING".into();
                }
            },
        );
        Ok(self.begin(request, "DELETE_CLUSTER", path, until))
    }

    /// The operation that a request starts.
    pub(super) fn begin(&mut self, request: &Request<'_>, kind: &str, path: &str, until: u64) -> Value {
        self.made += 1;
        let (id, location) =
            (format!("operation-{}", self.made), request.target.scope.trim_start_matches("locations/"));
        let origin = &request.ask.origin;
        let link = format!(
            "{origin}/v1/projects/{}/{}/operations/{id}",
            request.target.project, request.target.scope
        );
        let operation = json!({
            "name": id, "operationType": kind, "status": "RUNNING", "location": location, "zone": location, "selfLink": link,
            "targetLink": format!("{origin}/v1/{path}"), "startTime": TIME,
            "_until": until, "_failed": request.fails && kind != "DELETE_CLUSTER", "_of_cluster": true,
        });
        if let Some(object) = self.objects.get_mut(path) {
            object["_operation"] = id.clone().into();
        }
        self.operations.insert(id, operation.clone());
        show(&operation)
    }
}

/// A cluster whose time has come.
pub(super) fn settle(cluster: &mut Value) {
    let failed = cluster["_failed"] == true;
    cluster["status"] = if failed { "ERROR" } else { "RUNNING" }.into();
    if failed {
        let message = "All cluster resources were brought up, but: only 0 nodes out of 1 have registered.";
        cluster["statusMessage"] = message.into();
        cluster["conditions"] = json!([{"message": message, "canonicalCode": "INTERNAL"}]);
    } else if let Value::Object(fields) = cluster {
        fields.retain(|name, _| name != "statusMessage" && name != "conditions");
    }
    for pool in cluster["nodePools"].as_array_mut().into_iter().flatten() {
        pool["status"] = if failed { "ERROR" } else { "RUNNING" }.into();
    }
}

/// An operation whose time has come.
pub(super) fn end(operation: &mut Value) {
    operation["status"] = "DONE".into();
    operation["endTime"] = TIME.into();
    if operation["_failed"] == true {
        operation["error"] = json!({"code": 13, "message": "Internal error."});
    }
}
