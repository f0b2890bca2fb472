//! What somebody makes who has never heard of Trestle.

use std::collections::BTreeMap;

use http::{HeaderMap, Method, Uri};
use serde_json::{Value, json};

use super::state::{Gce, Request};
use crate::{
    Machine,
    rest::{show, text},
    server::Ask,
};

const PROJECT: &str = "projects/p1";
const REGION: &str = "us-west1";
const SPACE: &str = "172.22.0.0/20";

impl Gce {
    /// Sends a request as the owner of a project would, and lets it come to its end.
    pub(crate) fn do_by_hand(&mut self, now: u64, method: Method, path: &str, body: Value) -> Value {
        let uri: Uri = format!("{}{path}", super::PREFIX).parse().expect("it is a path");
        let ask = Ask {
            method: &method,
            uri: &uri,
            headers: &HeaderMap::new(),
            body: &[],
            now,
            origin: "http://localhost".to_owned(),
        };
        let target = super::target(&ask).unwrap_or_else(|| panic!("{path} is simulated"));
        super::schema::check_request(&target.method, &body).unwrap_or_else(|err| panic!("{path}: {err}"));
        let request = Request { target: &target, ask: &ask, body, fails: false };
        let answer = self.call(&request).unwrap_or_else(|refusal| panic!("{path}: {refusal:?}"));
        self.settle(u64::MAX);
        answer
    }

    fn make_by_hand(&mut self, now: u64, place: &str, collection: &str, body: Value) -> String {
        let name = text(&body["name"]).to_owned();
        self.do_by_hand(now, Method::POST, &format!("{PROJECT}/{place}/{collection}"), body);
        format!("{PROJECT}/{place}/{collection}/{name}")
    }

    /// An instance with tags in a VPC with subnets in two regions, whose firewalls let everybody in. A neighbour is in
    /// another zone of the same subnet, and has no tags.
    pub(crate) fn put_machine(&mut self, neighbour: Option<&Machine>, now: u64) -> Machine {
        let network = format!("{PROJECT}/global/networks/old");
        if neighbour.is_none() {
            self.make_by_hand(
                now,
                "global",
                "networks",
                json!({"name": "old", "autoCreateSubnetworks": false}),
            );
            for (name, region, range) in [("one", REGION, SPACE), ("two", "europe-west1", "172.22.16.0/20")] {
                let body =
                    json!({"name": name, "network": network, "ipCidrRange": range, "description": "by hand"});
                self.make_by_hand(now, &format!("regions/{region}"), "subnetworks", body);
            }
            for (name, priority, more) in [
                ("all", 1, json!({})),
                ("web", 100, json!({"targetTags": ["web"]})),
                ("out", 10, json!({"direction": "EGRESS"})),
            ] {
                let mut body = json!({"name": name, "network": network, "priority": priority, "allowed": [{"IPProtocol": "all"}]});
                body.as_object_mut()
                    .into_iter()
                    .for_each(|body| body.extend(more.as_object().cloned().unwrap_or_default()));
                self.make_by_hand(now, "global", "firewalls", body);
            }
        }
        let (name, zone) =
            if neighbour.is_none() { ("old-one", "us-west1-a") } else { ("old-two", "us-west1-b") };
        let subnet = format!("{PROJECT}/regions/{REGION}/subnetworks/one");
        let mut body = json!({"name": name, "machineType": format!("zones/{zone}/machineTypes/e2-small"), "disks": [{"boot": true}], "networkInterfaces": [{"subnetwork": subnet, "stackType": "IPV4_ONLY"}]});
        if neighbour.is_none() {
            body["tags"] = json!({"items": ["web", "db"]});
        }
        let id = self.make_by_hand(now, &format!("zones/{zone}"), "instances", body);
        let address = &self.objects[&id]["networkInterfaces"][0]["networkIP"];
        Machine {
            address: address.as_str().and_then(|text| text.parse().ok()).expect("it has an address"),
            space: SPACE.parse().expect("it is a prefix"),
            id,
        }
    }

    /// Everything there is, as Google shows it.
    pub(crate) fn all_objects(&self) -> BTreeMap<String, Value> {
        self.objects.iter().map(|(path, object)| (path.clone(), show(object))).collect()
    }
}
