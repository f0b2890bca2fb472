//! What somebody makes who has never heard of Trestle.

use std::collections::BTreeMap;

use http::{HeaderMap, Method, Uri};
use serde_json::{Value, json};

use super::{
    schema,
    state::{Ibm, Request},
};
use crate::{Machine, rest::text, server::Ask};

const REGION: &str = "us-south";
const ZONE: &str = "us-south-1";
const SPACE: &str = "172.18.0.0/18";

impl Ibm {
    fn make_by_hand(&mut self, now: u64, path: &str, body: Value) -> String {
        let uri: Uri = format!("/v1/{path}").parse().expect("it is a path");
        let (method, headers) = (Method::POST, HeaderMap::new());
        let ask = Ask::by_hand(&method, &uri, &headers, now);
        let call = schema::find("POST", path).expect("it is an operation");
        let request = Request { call: &call, region: REGION, ask: &ask, body, fails: false };
        let made = self.call(&request).unwrap_or_else(|refusal| panic!("{path}: {refusal:?}"));
        self.settle(u64::MAX);
        made.1["id"].as_str().unwrap_or_default().to_owned()
    }

    /// An instance in a VPC with blocks in two zones, in five groups, which is all it can be in, one of
    /// them open. A neighbour is in another subnet of
    /// the same zone, and in the VPC's default group.
    pub(crate) fn put_machine(&mut self, neighbour: Option<&Machine>, now: u64) -> Machine {
        let there = neighbour.and_then(|machine| self.objects.get(&machine.id));
        let there = there.map(|instance| text(&instance["_vpc"]).to_owned());
        let is_first = there.is_none();
        let vpc = there.unwrap_or_else(|| {
            let body = json!({"name": "old", "address_prefix_management": "manual"});
            let vpc = self.make_by_hand(now, "vpcs", body);
            for (cidr, zone) in [(SPACE, ZONE), ("172.18.64.0/18", "us-south-2")] {
                let body = json!({"cidr": cidr, "zone": {"name": zone}});
                self.make_by_hand(now, &format!("vpcs/{vpc}/address_prefixes"), body);
            }
            vpc
        });
        let (name, block) = if is_first { ("one", "172.18.1.0/24") } else { ("two", "172.18.2.0/24") };
        let body = json!({"name": format!("sub-{name}"), "vpc": {"id": vpc}, "zone": {"name": ZONE}, "ipv4_cidr_block": block});
        let subnet = self.make_by_hand(now, "subnets", body);
        let mut interface = json!({"subnet": {"id": subnet}});
        if is_first {
            let open = json!([{"direction": "inbound", "protocol": "icmp_tcp_udp"}, {"direction": "outbound", "protocol": "icmp_tcp_udp"}]);
            let groups = ["web", "ssh", "db", "logs", "backup"].map(|name| {
                let rules = if name == "web" { open.clone() } else { json!([]) };
                let body = json!({"name": name, "vpc": {"id": vpc}, "rules": rules});
                json!({"id": self.make_by_hand(now, "security_groups", body)})
            });
            interface["security_groups"] = groups.to_vec().into();
        }
        let attachment = json!({"name": "primary", "virtual_network_interface": interface});
        let body = json!({"name": format!("old-{name}"), "zone": {"name": ZONE}, "profile": {"name": "bx2-2x8"}, "primary_network_attachment": attachment});
        let id = self.make_by_hand(now, "instances", body);
        let address = &self.objects[&id]["primary_network_attachment"]["primary_ip"]["address"];
        Machine {
            address: address.as_str().and_then(|text| text.parse().ok()).expect("it has an address"),
            space: SPACE.parse().expect("it is a prefix"),
            id,
        }
    }

    /// Everything there is, as IBM shows it.
    pub(crate) fn all_objects(&self) -> BTreeMap<String, Value> {
        self.objects.iter().map(|(id, object)| (id.clone(), self.shown(object))).collect()
    }
}
