//! Hosts that have joined, as Nodes of the policy engine.
//!
//! ```text
//!   hosts/NAME ─ mirror ─► a Node for each, with its labels and addresses ─► engine: policies select it, groups hold it
//! ```
//!
//! In: the records. Out: derived objects, which are stored nowhere. Holds: what the engine was told. A stored Node of the same
//! name outranks the one made here.
//!
//! Not here: the label `trestle.dev/host`, which the engine gives every Node; who makes policies true on the host.

use std::{collections::BTreeMap, sync::Arc};

use life::Life;
use model::{
    Host,
    policy::{
        Object, ObjectId,
        meta::ObjectMeta,
        workload::{HOST_IP, Node, NodeAddress, NodeSpec, NodeStatus},
    },
};

use super::{HostRecord, Hosts};
use crate::policy::Policy;

impl Hosts {
    /// Makes the policy engine know the hosts, for ever. It knows all there are before this returns, so that no agent is told
    /// a state in which its own host is missing.
    pub async fn start_telling(self: &Arc<Self>, policy: Arc<Policy>, life: &Life) {
        let mut changes = self.changes();
        // The sender lives in self, so neither wait can fail.
        let _ = changes.wait_for(Option::is_some).await;
        changes.mark_unchanged();
        let mut told = BTreeMap::new();
        tell(&policy, &mut told, nodes(&self.list())).await;
        let hosts = Arc::clone(self);
        life.spawn("hosts: nodes", async move {
            while changes.changed().await.is_ok() {
                tell(&policy, &mut told, nodes(&hosts.list())).await;
            }
        });
    }
}

/// Tells what differs.
async fn tell(policy: &Policy, told: &mut BTreeMap<ObjectId, Object>, now: BTreeMap<ObjectId, Object>) {
    let apply: Vec<Object> =
        now.iter().filter(|(id, node)| told.get(id) != Some(node)).map(|(_, node)| node.clone()).collect();
    let delete: Vec<ObjectId> = told.keys().filter(|id| !now.contains_key(id)).cloned().collect();
    if !apply.is_empty() || !delete.is_empty() {
        policy.derive(apply, delete).await;
        *told = now;
    }
}

fn nodes(records: &[Arc<HostRecord>]) -> BTreeMap<ObjectId, Object> {
    let nodes = records.iter().map(|record| Object::Node(node(&record.host)));
    nodes.map(|node| (node.id(), node)).collect()
}

fn node(host: &Host) -> Node {
    let address =
        |address: &std::net::IpAddr| NodeAddress { kind: HOST_IP.to_owned(), address: address.to_string() };
    Node {
        metadata: ObjectMeta {
            name: host.name.to_string(),
            labels: host.labels.clone().into_iter().collect(),
            ..ObjectMeta::default()
        },
        spec: NodeSpec::default(),
        status: NodeStatus { addresses: host.addresses.iter().map(address).collect() },
    }
}

#[cfg(test)]
mod tests {
    use model::{Admission, Joined};

    use super::*;

    #[test]
    fn a_host_is_a_node_with_all_its_addresses_and_labels() {
        let addresses =
            ["10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2"].map(|text| text.parse().unwrap());
        let host = Host {
            name: "h1".parse().unwrap(),
            labels: BTreeMap::from([("role".to_owned(), "db".to_owned())]),
            tags: [].into(),
            addresses: addresses.into(),
            fingerprint: "a".repeat(64).parse().unwrap(),
            joined: Joined { by: Admission::Token { id: "t".to_owned() }, at: 1 },
        };
        let node = node(&host);
        assert_eq!(node.addresses(), addresses.into());
        assert_eq!(
            (node.metadata.name.as_str(), node.metadata.labels.get("role").map(String::as_str)),
            ("h1", Some("db"))
        );
    }
}
