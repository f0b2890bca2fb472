//! Pools of a cluster of Kubernetes Engine, and their nodes: instances with a range of their own for Pods.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Outcome, Refusal,
    clusters::{LONGEST_NAME, MAKING, TIME, hash, invalid, missing},
    state::{Gce, Request, is_name},
    wire::net,
};
use crate::rest::{items, list, text, texts};

/// The addresses for Pods that a node gets: the length of their prefix.
pub(super) const PODS_OF_NODE: u8 = 24;

/// Pools as Google shows them, with the nodes of each.
pub(super) fn pools(cluster: &mut Value) -> Result<Vec<(String, u64)>, Refusal> {
    let given = items(&cluster["nodePools"]);
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
        let name = text(&pool["name"]);
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
    /// The nodes of the pools, in each zone.
    pub(super) fn place_nodes(
        &mut self,
        request: &Request<'_>,
        cluster: &Value,
        subnet: &str,
        sizes: &[(String, u64)],
        until: u64,
    ) -> Result<(), Refusal> {
        let zones = texts(&cluster["locations"]);
        let mut number = 0;
        for (pool, count) in sizes {
            let each = |zone| std::iter::repeat_n(zone, usize::try_from(*count).unwrap_or(0));
            for zone in zones.iter().copied().flat_map(each) {
                self.place_node(request, cluster, subnet, (pool, zone, number), until)?;
                number += 1;
            }
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
        let name = text(&cluster["name"]);
        let id = hash(text(&cluster["selfLink"]));
        let path = request.path(name);
        let name_of_node = format!("gke-{name}-{pool}-{id}-{number:04}");
        let pods = net(&cluster["clusterIpv4Cidr"]).ok_or_else(|| invalid("Pods"))?;
        let start = u32::from(pods.network()) + (number << (32 - u32::from(PODS_OF_NODE)));
        let own = Ipv4Net::new(Ipv4Addr::from(start), PODS_OF_NODE).map_err(|_| invalid("Pods"))?;
        if !pods.contains(&own) {
            return Err(invalid("The range for Pods has no room for another node."));
        }
        let address = self.next_address(subnet)?;
        let all = list(&cluster["nodePools"]);
        let config = all
            .into_iter()
            .find(|one| one["name"] == pool)
            .map(|one| one["config"].clone())
            .unwrap_or_default();
        let mut tags = vec![json!(format!("gke-{name}-{}-node", hash(&path)))];
        tags.extend(list(&config["tags"]).cloned());
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

    /// A pool comes, without nodes as yet, or goes. A change that fails leaves a cluster in error that was running.
    pub(super) fn change_pools(&mut self, request: &Request<'_>, path: &str) -> Outcome {
        let mut cluster = self.idle(path)?.clone();
        let mut pools = items(&cluster["nodePools"]);
        let kind =
            if request.target.method.ends_with("create") { "CREATE_NODE_POOL" } else { "DELETE_NODE_POOL" };
        match request.target.verb.as_str() {
            "" => {
                let mut pool = request.body["nodePool"].clone();
                if pools.iter().any(|other| other["name"] == pool["name"]) {
                    bail!(409, "alreadyExists", "Already exists: {}.", pool["name"]);
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
}
