//! IBM Cloud Kubernetes Service on VPCs. Workers are in a service account: no instance of the VPC shows them, and no group
//! names them among its targets.

mod provided;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Outcome, REGIONS, Refusal,
    objects::{CREATED, net},
    refuse,
    state::{Ibm, Request},
};
use crate::{
    rest,
    rest::{list, text},
    wire::{Host, Wire},
};

/// Security groups that a worker is in at most.
const MOST_GROUPS: usize = 5;
/// Seconds that a cluster takes to come and to go.
const COMES: u64 = 1200;
const GOES: u64 = 600;
/// Where Pods and Services are unless the request says otherwise.
const PODS: &str = "172.17.0.0/18";
const SERVICES: &str = "172.21.0.0/16";
/// Where a request may have them, from the first address to the last.
const ALLOWED: [([u8; 4], [u8; 4]); 4] = [
    ([172, 17, 0, 0], [172, 17, 255, 255]),
    ([172, 21, 0, 0], [172, 31, 255, 255]),
    ([192, 168, 0, 0], [192, 168, 254, 255]),
    ([198, 18, 0, 0], [198, 19, 255, 255]),
];

fn bad(message: impl Into<String>) -> Refusal {
    refuse(400, "E0002", message)
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let fits = name.len() <= 32 && name.starts_with(|first: char| first.is_ascii_alphabetic());
    match fits && name.bytes().all(legal) {
        true => Ok(()),
        false => Err(bad(format!("The cluster name {name:?} is not valid"))),
    }
}

impl Ibm {
    pub(super) fn clusters(&mut self, request: &Request<'_>, name: &str) -> Outcome {
        match name {
            "vpc_create_cluster" => {
                let id = self.create_cluster(request)?;
                Ok((201, json!({"clusterID": id})))
            }
            "vpc_get_clusters" => {
                let known = request.parameter("provider").is_none_or(|provider| provider == "vpc-gen2");
                let all = self.of_kind("clusters").filter(|_| known);
                Ok((200, all.map(rest::show).collect()))
            }
            "vpc_get_cluster" | "get_cluster" => {
                let wanted = request.parameter("cluster").unwrap_or_default();
                Ok((200, rest::show(self.cluster(&wanted)?)))
            }
            "remove_cluster" => self.remove_cluster(request).map(|()| (204, Value::Null)),
            _ => Err(refuse(404, "E0005", format!("{name} is not simulated"))),
        }
    }

    /// By id or name.
    fn cluster(&self, wanted: &str) -> Result<&Value, Refusal> {
        let found = self.of_kind("clusters").find(|one| one["id"] == wanted || one["name"] == wanted);
        found.ok_or_else(|| refuse(404, "E0015", "The specified cluster could not be found."))
    }

    fn create_cluster(&mut self, request: &Request<'_>) -> Result<String, Refusal> {
        let (body, pool) = (&request.body, &request.body["workerPool"]);
        let name = text(&body["name"]);
        check_name(name)?;
        if self.cluster(name).is_ok() {
            bail!(409, "E0007", "A cluster with the name {name} already exists.");
        }
        if body["provider"] != "vpc-gen2" {
            return Err(bad("Only the provider vpc-gen2 is simulated"));
        }
        let vpc = self.get("vpcs", text(&pool["vpcID"])).map_err(|_| bad("The VPC is not known"))?.clone();
        let region = REGIONS.iter().find(|one| vpc["_region"] == **one).ok_or_else(|| bad("no region"))?;
        let zones = self.zones_of(pool, &vpc)?;
        self.check_blocks(body, &zones)?;
        let count = pool["workerCount"].as_u64().filter(|count| (1..=1000).contains(count));
        let count = count.ok_or_else(|| bad("workerCount is at least 1"))?;
        let number = self.number();
        let id = format!("c{number:019x}");
        let hand = provided::Hand { request, region };
        let kube = self.provide_groups(&hand, &id, &vpc)?;
        let groups = self.groups_of(body, &vpc, &kube)?;
        self.provide_endpoints(&hand, &id, &vpc, &zones[0].1)?;
        for (zone, subnet) in &zones {
            for _ in 0..count {
                self.worker(request, &id, &vpc, zone, subnet, &groups)?;
            }
        }
        let mut object = self.described(request, &id, &vpc, &zones);
        let then = match request.fails {
            true => {
                let lifecycle = json!({"masterStatus": "There is no capacity for the workers.", "masterState": "deploy_failed"});
                json!({"state": "deploy_failed", "lifecycle": lifecycle})
            }
            false => {
                let lifecycle =
                    json!({"masterStatus": "Ready", "masterHealth": "normal", "masterState": "deployed"});
                json!({"state": "normal", "lifecycle": lifecycle})
            }
        };
        Self::later(request, &mut object, COMES, then);
        self.objects.insert(id.clone(), object);
        Ok(id)
    }

    /// The zones of a pool, each with its subnet.
    fn zones_of(&self, pool: &Value, vpc: &Value) -> Result<Vec<(String, String)>, Refusal> {
        let mut zones = Vec::new();
        for zone in list(&pool["zones"]) {
            let subnet = self
                .get("subnets", text(&zone["subnetID"]))
                .map_err(|_| bad("The specified VPC subnet could not be found"))?;
            if subnet["_vpc"] != vpc["id"] || subnet["zone"]["name"] != zone["id"] {
                return Err(bad("The subnet is in another VPC or zone"));
            }
            if subnet["status"] != "available" {
                bail!(409, "E0029", "The subnet is not available");
            }
            zones.push((text(&zone["id"]).to_owned(), text(&subnet["id"]).to_owned()));
        }
        match zones.is_empty() {
            true => Err(bad("A worker pool has a zone at least")),
            false => Ok(zones),
        }
    }

    /// Pods and Services are in blocks that IBM has for them, and overlap neither each other nor the workers' subnets.
    fn check_blocks(&self, body: &Value, zones: &[(String, String)]) -> Result<(), Refusal> {
        let block = |field: &str, usual: &str, longest: u8| {
            let text = body[field].as_str().filter(|text| !text.is_empty()).unwrap_or(usual);
            let block: Option<Ipv4Net> = text.parse().ok();
            let allowed = |block: &Ipv4Net| {
                let (first, last) = (block.network(), block.broadcast());
                let within =
                    |(from, to): &([u8; 4], [u8; 4])| first.octets() >= *from && last.octets() <= *to;
                block.prefix_len() <= longest && ALLOWED.iter().any(within)
            };
            block.filter(allowed).ok_or_else(|| bad(format!("The {field} {text} is not allowed")))
        };
        let (pods, services) = (block("podSubnet", PODS, 23)?, block("serviceSubnet", SERVICES, 24)?);
        let overlap = |a: &Ipv4Net, b: &Ipv4Net| a.contains(b) || b.contains(a);
        let workers =
            zones.iter().filter_map(|(_, subnet)| net(&self.objects.get(subnet)?["ipv4_cidr_block"]));
        match overlap(&pods, &services) || workers.into_iter().any(|one| overlap(&one, &pods)) {
            true => Err(bad("The podSubnet overlaps the serviceSubnet or a subnet of the workers")),
            false => Ok(()),
        }
    }

    /// The groups of workers: the cluster's own, and those asked for, or else the one that the VPC began with.
    fn groups_of(&self, body: &Value, vpc: &Value, kube: &str) -> Result<Vec<Value>, Refusal> {
        let mut groups = vec![Value::from(kube)];
        let asked = rest::texts(&body["securityGroupIDs"]);
        for id in asked.iter().filter(|id| **id != "cluster") {
            let group =
                self.get("security_groups", id).map_err(|_| bad(format!("There is no group {id}")))?;
            if group["_vpc"] != vpc["id"] {
                return Err(bad("The security group is in another VPC"));
            }
            groups.push(group["id"].clone());
        }
        if asked.is_empty() {
            groups.push(vpc["default_security_group"]["id"].clone());
        }
        match groups.len() > MOST_GROUPS {
            true => Err(bad("Workers are in five security groups at most")),
            false => Ok(groups),
        }
    }

    fn worker(
        &mut self,
        request: &Request<'_>,
        cluster: &str,
        vpc: &Value,
        zone: &str,
        subnet: &str,
        groups: &[Value],
    ) -> Result<(), Refusal> {
        let address = self.address(subnet)?;
        let number = self.number();
        let id = format!("kube-{cluster}-{number:08x}");
        let mut worker = json!({
            "id": id,
            "name": id,
            "status": "provisioning",
            "address": address.to_string(),
            "_kind": "workers",
            "_cluster": cluster,
            "_vpc": vpc["id"],
            "_subnet": subnet,
            "_zone": zone,
            "_groups": groups,
        });
        let then = if request.fails { "provision_failed" } else { "deployed" };
        Self::later(request, &mut worker, COMES, json!({"status": then}));
        self.objects.insert(id, worker);
        Ok(())
    }

    /// A cluster as IBM shows it.
    fn described(&self, request: &Request<'_>, id: &str, vpc: &Value, zones: &[(String, String)]) -> Value {
        let (body, region) = (&request.body, text(&vpc["_region"]));
        let group = request.ask.headers.get("x-auth-resource-group").and_then(|value| value.to_str().ok());
        let group = group.filter(|group| !group.is_empty()).unwrap_or("default-group");
        let or = |field: &str, usual: &str| {
            body[field].as_str().filter(|text| !text.is_empty()).unwrap_or(usual).to_owned()
        };
        let names: Vec<&str> = zones.iter().map(|(zone, _)| zone.as_str()).collect();
        let count = body["workerPool"]["workerCount"].as_u64().unwrap_or_default();
        let is_public = body["disablePublicServiceEndpoint"] != true;
        let private = format!("https://c100.private.{region}.containers.cloud.ibm.com:30829");
        json!({
            "id": id,
            "name": body["name"],
            "state": "deploying",
            "provider": "vpc-gen2",
            "region": region,
            "location": region,
            "dataCenter": names[0],
            "crn": format!("crn:v1:bluemix:public:containers-kubernetes:{region}:a/sim:{id}::"),
            "createdDate": CREATED,
            "type": "kubernetes",
            "entitlement": "",
            "isPaid": true,
            "masterKubeVersion": or("kubeVersion", "1.33.5_1536"),
            "targetVersion": or("kubeVersion", "1.33.5_1536"),
            "resourceGroup": group,
            "resourceGroupName": "Default",
            "podSubnet": or("podSubnet", PODS),
            "serviceSubnet": or("serviceSubnet", SERVICES),
            "multiAzCapable": true,
            "masterURL": private,
            "workerZones": names,
            "workerCount": count * zones.len() as u64,
            "vpcs": [vpc["id"]],
            "serviceEndpoints": {"privateServiceEndpointEnabled": true, "privateServiceEndpointURL": private, "publicServiceEndpointEnabled": is_public, "publicServiceEndpointURL": ""},
            "lifecycle": {"masterStatus": "Deploy in progress.", "masterHealth": "", "masterState": "deploying"},
            "ingress": {"hostname": "", "secretName": ""},
            "features": {"keyProtectEnabled": false, "pullSecretApplied": false},
            "addons": [],
            "_kind": "clusters",
            "_region": "global",
            "_vpc": vpc["id"],
        })
    }

    /// What IBM made for the cluster goes with it, but for what clusters share.
    fn remove_cluster(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let id = text(&self.cluster(request.id())?["id"]).to_owned();
        let own: Vec<Value> = self
            .objects
            .values()
            .filter(|one| one["_cluster"] == id.as_str())
            .map(|one| one["id"].clone())
            .collect();
        let until = request.ask.now + GOES;
        let goes = |key: &String, one: &Value| {
            *key == id
                || own.contains(&one["id"])
                || own.contains(&one["_parent"])
                || own.contains(&one["remote"]["id"])
        };
        self.objects.change(
            |key, one| goes(key, one) && one["_gone"] != true,
            |one| {
                (one["_gone"], one["_until"]) = (true.into(), until.into());
                if one["_kind"] == "clusters" {
                    one["state"] = "deleting".into();
                }
            },
        );
        Ok(())
    }

    /// Workers as hosts. Pods go out with their worker's address.
    pub(super) fn worker_hosts(&self, wire: &mut Wire) {
        let ready = self.of_kind("workers").filter(|one| one["status"] == "deployed");
        wire.hosts.extend(ready.map(|one| Host {
            address: text(&one["address"]).parse().ok(),
            network: super::wire::wire_name(&one["_vpc"], &one["_zone"]),
            inbound: self.firewall(one, "inbound"),
            outbound: self.firewall(one, "outbound"),
            ..Host::default()
        }));
    }
}
