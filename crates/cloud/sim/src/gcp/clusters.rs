//! Kubernetes Engine: clusters, what Google makes for one by itself, and operations. A node is an instance with a range of its
//! own for Pods; the control plane has an address in the subnet, and is no host of the wire.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Outcome, Refusal, refuse,
    state::{Gce, REGIONS, Request, is_name, path_of},
    wire::net,
};
use crate::rest::show;

const LONGEST_NAME: usize = 40;
/// Seconds.
const MAKING: u64 = 300;
const REMOVING: u64 = 180;
/// The addresses for Pods that a node gets.
const PODS_OF_NODE: u8 = 24;
const TIME: &str = "2026-10-01T00:00:00+00:00";

fn invalid(message: impl Into<String>) -> Refusal {
    refuse(400, "badRequest", message)
}

fn missing(path: &str) -> Refusal {
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

fn hash(text: &str) -> String {
    let hash =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

/// Pools as Google shows them, with the nodes of each.
fn pools(cluster: &mut Value) -> Result<Vec<(String, u64)>, Refusal> {
    let given = cluster["nodePools"].as_array().cloned().unwrap_or_default();
    let (count, config) = (cluster["initialNodeCount"].as_u64(), cluster["nodeConfig"].clone());
    let autopilot = cluster["autopilot"]["enabled"] == true;
    let pools = match (given.is_empty(), count) {
        (false, None) if !autopilot => given,
        (true, Some(count)) if count > 0 && !autopilot => {
            let config = if config.is_null() { json!({}) } else { config };
            vec![json!({"name": "default-pool", "initialNodeCount": count, "config": config})]
        }
        (true, None) if autopilot => {
            let tags = cluster["nodePoolAutoConfig"]["networkTags"]["tags"].clone();
            let config = if tags.is_null() { json!({}) } else { json!({ "tags": tags }) };
            vec![json!({"name": "default-pool", "initialNodeCount": 1, "config": config})]
        }
        _ => {
            return Err(invalid(
                "Cluster.initial_node_count must be greater than zero, or node_pools be given, and not both.",
            ));
        }
    };
    let sizes = pools.iter().map(|pool| {
        let name = pool["name"].as_str().unwrap_or_default();
        match is_name(name) && name.len() <= LONGEST_NAME {
            true => Ok((name.to_owned(), pool["initialNodeCount"].as_u64().unwrap_or(0))),
            false => Err(invalid(format!("Invalid value for field \"node_pool.name\": \"{name}\"."))),
        }
    });
    let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    cluster["nodePools"] = pools
        .into_iter()
        .map(|mut pool| {
            pool["status"] = "PROVISIONING".into();
            pool["version"] = "1.34.1-gke.1".into();
            pool
        })
        .collect();
    Ok(sizes)
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
        let name = cluster["name"].as_str().unwrap_or_default().to_owned();
        if !is_name(&name) || name.len() > LONGEST_NAME {
            return Err(invalid(format!("Invalid value for field \"cluster.name\": \"{name}\".")));
        }
        let path = request.path(&name);
        if self.objects.contains_key(&path) {
            return Err(refuse(409, "alreadyExists", format!("Already exists: {path}.")));
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
            let mut number = 0;
            for (pool, count) in &sizes {
                for zone in zones
                    .iter()
                    .flat_map(|zone| std::iter::repeat_n(zone, usize::try_from(*count).unwrap_or(0)))
                {
                    self.place_node(request, &cluster, &subnet, (pool, zone, number), until)?;
                    number += 1;
                }
            }
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
        let ranges = subnet["secondaryIpRanges"].as_array().cloned().unwrap_or_default();
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
        let start = format!("gke-{}-{id}", cluster["name"].as_str().unwrap_or_default());
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

    /// A node: an instance with the cluster's tags and those of its pool, and a range for Pods.
    fn place_node(
        &mut self,
        request: &Request<'_>,
        cluster: &Value,
        subnet: &str,
        (pool, zone, number): (&str, &str, u32),
        until: u64,
    ) -> Result<(), Refusal> {
        let (project, origin) = (&request.target.project, &request.ask.origin);
        let name = cluster["name"].as_str().unwrap_or_default();
        let id = hash(cluster["selfLink"].as_str().unwrap_or_default());
        let path = request.path(name);
        let name_of_node = format!("gke-{name}-{pool}-{id}-{number:04}");
        let pods = net(&cluster["clusterIpv4Cidr"]).ok_or_else(|| invalid("Pods"))?;
        let start = u32::from(pods.network()) + (number << (32 - u32::from(PODS_OF_NODE)));
        let own = Ipv4Net::new(Ipv4Addr::from(start), PODS_OF_NODE).map_err(|_| invalid("Pods"))?;
        if !pods.contains(&own) {
            return Err(invalid("The range for Pods has no room for another node."));
        }
        let address = self.next_address(subnet)?;
        let all = cluster["nodePools"].as_array().into_iter().flatten();
        let config = all
            .into_iter()
            .find(|one| one["name"] == pool)
            .map(|one| one["config"].clone())
            .unwrap_or_default();
        let mut tags = vec![json!(format!("gke-{name}-{}-node", hash(&path)))];
        tags.extend(config["tags"].as_array().cloned().unwrap_or_default());
        let node = format!("projects/{project}/zones/{zone}/instances/{name_of_node}");
        let instance = json!({
            "kind": "compute#instance", "name": name_of_node, "id": (8_000_000 + self.made + u64::from(number)).to_string(),
            "selfLink": format!("{origin}/compute/v1/{node}"), "zone": format!("{origin}/compute/v1/projects/{project}/zones/{zone}"),
            "status": "PROVISIONING", "creationTimestamp": TIME, "tags": {"items": tags, "fingerprint": "1"},
            "networkInterfaces": [{
                "name": "nic0", "network": cluster["_network"], "subnetwork": cluster["_subnet"], "networkIP": address.to_string(),
                "aliasIpRanges": [{"ipCidrRange": own.to_string(), "subnetworkRangeName": cluster["ipAllocationPolicy"]["clusterSecondaryRangeName"]}],
            }],
            "_cluster": cluster["selfLink"], "_until": until,
        });
        self.objects.insert(node, instance);
        Ok(())
    }

    /// A cluster that can be changed.
    fn idle(&self, path: &str) -> Result<&Value, Refusal> {
        let cluster = self.objects.get(path).ok_or_else(|| missing(path))?;
        match cluster["_until"].is_null() {
            true => Ok(cluster),
            false => {
                let message = format!("Cluster is running incompatible operation {}.", cluster["_operation"]);
                Err(refuse(400, "failedPrecondition", message))
            }
        }
    }

    /// A pool comes, without nodes as yet, or goes. A change that fails leaves a cluster in error that was running.
    fn change_pools(&mut self, request: &Request<'_>, path: &str) -> Outcome {
        let mut cluster = self.idle(path)?.clone();
        let mut pools = cluster["nodePools"].as_array().cloned().unwrap_or_default();
        let kind =
            if request.target.method.ends_with("create") { "CREATE_NODE_POOL" } else { "DELETE_NODE_POOL" };
        match request.target.verb.as_str() {
            "" => {
                let mut pool = request.body["nodePool"].clone();
                if pools.iter().any(|other| other["name"] == pool["name"]) {
                    return Err(refuse(409, "alreadyExists", format!("Already exists: {}.", pool["name"])));
                }
                pool["status"] = "RUNNING".into();
                pools.push(pool);
            }
            name => {
                let place = pools.iter().position(|pool| pool["name"] == name);
                pools.remove(place.ok_or_else(|| missing(name))?);
            }
        }
        let until = request.ask.now + MAKING;
        cluster["nodePools"] = pools.into();
        cluster["status"] = "RECONCILING".into();
        cluster["_until"] = until.into();
        cluster["_failed"] = request.fails.into();
        self.objects.insert(path.to_owned(), cluster);
        Ok(self.begin(request, kind, path, until))
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
    fn begin(&mut self, request: &Request<'_>, kind: &str, path: &str, until: u64) -> Value {
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
