//! What IBM makes by itself for a cluster, and keeps as it wants it.
//!
//! ```text
//!   kube-CLUSTER         the workers' group: opens the inside, IBM's own services, and pings from everybody
//!   kube-vpegw-CLUSTER   the group of the endpoint gateway of the cluster's master; both go with the cluster
//!   kube-vpegw-VPC       the group of endpoint gateways that clusters of a VPC share; these stay
//!   kube-lbaas-CLUSTER   the group of load balancers: opens the ports of Ingress, which IBM makes one for, to everybody,
//!                        and again where no rule is left for a port. Load balancers themselves are not simulated.
//! ```

use serde_json::{Value, json};

use super::PODS;
use crate::{
    ibm::{
        Refusal, schema,
        state::{Ibm, Request, missing},
    },
    rest::text,
};

/// Services of IBM's that workers need: the control plane's and the cloud service endpoints', and instance metadata.
const NEEDED: [&str; 3] = ["161.26.0.0/16", "166.8.0.0/14", "169.254.169.254/32"];

/// The ports of the load balancer that Ingress has from the beginning.
const INGRESS: [u16; 2] = [80, 443];

/// What IBM itself asks its VPC API for.
pub(super) struct Hand<'h> {
    pub(super) request: &'h Request<'h>,
    pub(super) region: &'static str,
}

impl Hand<'_> {
    fn make(&self, ibm: &mut Ibm, path: &str, body: Value) -> Result<String, Refusal> {
        let call = schema::find("POST", path).ok_or_else(|| missing(path))?;
        let own = Request { call: &call, region: self.region, ask: self.request.ask, body, fails: false };
        ibm.create(&own)
    }

    fn open(&self, ibm: &mut Ibm, group: &str, direction: &str, remote: Value) -> Result<String, Refusal> {
        let body = json!({"direction": direction, "protocol": "icmp_tcp_udp", "remote": remote});
        self.make(ibm, &format!("security_groups/{group}/rules"), body)
    }
}

impl Ibm {
    /// IBM's own groups. Answers the workers'.
    pub(super) fn provide_groups(
        &mut self,
        hand: &Hand<'_>,
        id: &str,
        vpc: &Value,
    ) -> Result<String, Refusal> {
        let home = json!({"id": vpc["id"]});
        let body = &hand.request.body;
        let shared = format!("kube-vpegw-{}", text(&vpc["id"]));
        let mut ids = Vec::new();
        for name in [format!("kube-{id}"), format!("kube-vpegw-{id}"), format!("kube-lbaas-{id}"), shared] {
            let there = self
                .of_kind("security_groups")
                .find(|one| one["_vpc"] == vpc["id"] && one["name"] == name.as_str());
            let group = match there {
                Some(group) => text(&group["id"]).to_owned(),
                None => hand.make(self, "security_groups", json!({"name": name, "vpc": home}))?,
            };
            let is_shared = name.ends_with(text(&vpc["id"]));
            if let Some(object) = self.objects.get_mut(&group).filter(|_| !is_shared) {
                object["_cluster"] = id.into();
            }
            ids.push(group);
        }
        let [kube, master, balancers, shared] = [0, 1, 2, 3].map(|number| ids[number].clone());
        let pods =
            json!({"cidr_block": body["podSubnet"].as_str().filter(|net| !net.is_empty()).unwrap_or(PODS)});
        for (direction, remote) in [
            ("inbound", pods.clone()),
            ("inbound", json!({"id": kube})),
            ("outbound", pods),
            ("outbound", json!({"id": kube})),
            ("outbound", json!({"id": master})),
            ("outbound", json!({"id": shared})),
        ] {
            hand.open(self, &kube, direction, remote)?;
        }
        let open = body["disableOutboundTrafficProtection"] == true;
        for net in NEEDED.into_iter().chain(open.then_some("0.0.0.0/0")) {
            hand.open(self, &kube, "outbound", json!({"cidr_block": net}))?;
        }
        let ping = json!({"direction": "inbound", "protocol": "icmp", "type": 8, "remote": {"cidr_block": "0.0.0.0/0"}});
        let ping = hand.make(self, &format!("security_groups/{kube}/rules"), ping)?;
        for port in INGRESS {
            let rule = json!({"direction": "inbound", "protocol": "tcp", "port_min": port, "port_max": port, "remote": {"cidr_block": "0.0.0.0/0"}});
            hand.make(self, &format!("security_groups/{balancers}/rules"), rule)?;
        }
        for gateway in [&master, &shared] {
            hand.open(self, gateway, "inbound", json!({"id": kube}))?;
        }
        // For whoever puts it back.
        let ping = self.objects[&ping].clone();
        if let Some(object) = self.objects.get_mut(&kube) {
            object["_ping"] = ping;
        }
        Ok(kube)
    }

    /// Endpoint gateways of the cluster's master, and of services that clusters of a VPC share.
    pub(super) fn provide_endpoints(
        &mut self,
        hand: &Hand<'_>,
        id: &str,
        vpc: &Value,
        subnet: &str,
    ) -> Result<(), Refusal> {
        let group = |ibm: &Self, name: String| {
            let mut all = ibm.of_kind("security_groups");
            let found = all.find(|one| one["_vpc"] == vpc["id"] && one["name"] == name.as_str());
            found.map(|one| json!([{"id": one["id"]}])).unwrap_or_default()
        };
        for (name, service) in
            [(format!("iks-{id}"), id), ("iks-registry".to_owned(), "icr"), ("iks-api".to_owned(), "iks")]
        {
            let is_shared = service != id;
            let mut there = self.of_kind("endpoint_gateways");
            if there.any(|one| one["_vpc"] == vpc["id"] && one["name"] == name.as_str()) {
                continue;
            }
            drop(there);
            let owner = if is_shared { text(&vpc["id"]) } else { id };
            let crn = format!("crn:v1:bluemix:public:{service}:{}:::endpoint:sim", hand.region);
            let body = json!({
                "name": name,
                "vpc": {"id": vpc["id"]},
                "target": {"resource_type": "provider_cloud_service", "crn": crn},
                "ips": [{"name": name, "subnet": {"id": subnet}, "auto_delete": true}],
                "security_groups": group(self, format!("kube-vpegw-{owner}")),
            });
            let made = hand.make(self, "endpoint_gateways", body)?;
            if let Some(object) = self.objects.get_mut(&made) {
                object["_provided"] = true.into();
                if !is_shared {
                    object["_cluster"] = id.into();
                }
            }
        }
        Ok(())
    }

    /// A port of load balancers that no rule is left for is opened to everybody again.
    pub(in crate::ibm) fn reopen_balancers(&mut self, rule: &Value) {
        let group = self.get("security_groups", text(&rule["_parent"]));
        let is_balancers = group.is_ok_and(|group| text(&group["name"]).starts_with("kube-lbaas-"));
        let same = |other: &Value| {
            ["_parent", "direction", "port_min", "port_max"].iter().all(|field| other[*field] == rule[*field])
        };
        if is_balancers && rule["direction"] == "inbound" && !self.of_kind("security_groups/rules").any(same)
        {
            let mut open = rule.clone();
            open["remote"] = json!({"cidr_block": "0.0.0.0/0"});
            self.objects.insert(text(&rule["id"]).to_owned(), open);
        }
    }

    /// Somebody asks IBM to set the workers' groups to what they were in the beginning.
    pub(in crate::ibm) fn reset_groups(&mut self) {
        let pings: Vec<Value> = self
            .of_kind("security_groups")
            .map(|one| one["_ping"].clone())
            .filter(Value::is_object)
            .collect();
        for ping in pings {
            self.objects.insert(text(&ping["id"]).to_owned(), ping);
        }
    }
}
