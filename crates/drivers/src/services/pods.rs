//! The Pods of each node that have been taken into account: nodes open those, and no others.
//!
//! In: objects. Out: what a node is told of its Pods, and which nodes are to be told. Holds: each Pod as it is told, since a node is
//! told of all its Pods whenever one of them changes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use model::policy::{Kind, Object, ObjectId, workload::Pod};
use prost::encoding::message;
use wire::{node::octets, trestle::v1::NodePod};

/// Of `pods` in `NodeFacts`.
const FIELD: u32 = 4;

/// Pods by `namespace/name`, and how each stands among the facts of its node.
type Encoded = BTreeMap<Arc<str>, Box<[u8]>>;

#[derive(Debug, Default)]
pub struct Covered {
    /// By node.
    by_node: HashMap<Arc<str>, Encoded>,
    /// Where each Pod is.
    places: HashMap<Arc<str>, Arc<str>>,
    /// Nodes whose Pods are others than when they were last asked for.
    dirty: BTreeSet<Arc<str>>,
}

impl Covered {
    pub fn apply(&mut self, object: &Object) {
        if let Object::Pod(pod) = object {
            let name = name(&pod.metadata.namespace, &pod.metadata.name);
            // On the node's own network it is the node, and one that has ended has no link any more.
            let is_here =
                !(pod.spec.node_name.is_empty() || pod.spec.host_network || pod.status.is_terminated());
            self.put(&name, is_here.then(|| (pod.spec.node_name.as_str(), told(pod))));
        }
    }

    pub fn delete(&mut self, id: &ObjectId) {
        if id.kind == Kind::Pod {
            self.put(&name(&id.namespace, &id.name), None);
        }
    }

    fn put(&mut self, name: &str, place: Option<(&str, Box<[u8]>)>) {
        let before = self.places.get(name);
        let left = before.filter(|node| place.as_ref().is_none_or(|(now, _)| **now != ***node)).cloned();
        if let Some(node) = left {
            self.places.remove(name);
            if let Some(pods) = self.by_node.get_mut(&node) {
                pods.remove(name);
                if pods.is_empty() {
                    self.by_node.remove(&node);
                }
            }
            self.dirty.insert(node);
        }
        let Some((node, pod)) = place else { return };
        let known = self.by_node.get_key_value(node).map(|(node, _)| Arc::clone(node));
        let node = known.unwrap_or_else(|| node.into());
        let pods = self.by_node.entry(Arc::clone(&node)).or_default();
        match pods.get_mut(name) {
            Some(known) if *known == pod => return,
            Some(known) => *known = pod,
            None => {
                let name: Arc<str> = name.into();
                pods.insert(Arc::clone(&name), pod);
                self.places.insert(name, Arc::clone(&node));
            }
        }
        self.dirty.insert(node);
    }

    /// A node's Pods, as they stand at the end of its facts; empty if there are none.
    pub fn of(&self, node: &str) -> Vec<u8> {
        let pods = self.by_node.get(node).into_iter().flat_map(BTreeMap::values);
        pods.flat_map(|pod| pod.iter().copied()).collect()
    }

    pub fn take_dirty(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.dirty)
    }
}

fn name(namespace: &str, name: &str) -> String {
    [namespace, "/", name].concat()
}

fn told(pod: &Pod) -> Box<[u8]> {
    let addresses = pod.status.addresses().filter_map(|text| text.parse::<IpAddr>().ok());
    let pod = NodePod {
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        addresses: addresses.map(octets).collect(),
    };
    let mut encoded = Vec::with_capacity(message::encoded_len(FIELD, &pod));
    message::encode(FIELD, &pod, &mut encoded);
    encoded.into()
}

#[cfg(test)]
mod tests {
    use model::policy::workload::{PodIp, PodSpec, PodStatus};

    use prost::Message as _;
    use wire::trestle::v1::NodeFacts;

    use super::*;

    fn pod(name: &str, node: &str, ip: &str) -> Object {
        let mut pod = Pod {
            spec: PodSpec { node_name: node.into(), ..PodSpec::default() },
            status: PodStatus { pod_ips: vec![PodIp { ip: ip.into() }], ..PodStatus::default() },
            ..Pod::default()
        };
        (pod.metadata.namespace, pod.metadata.name) = ("x".into(), name.into());
        Object::Pod(pod)
    }

    fn pods(covered: &Covered, node: &str) -> Vec<NodePod> {
        NodeFacts::decode(&*covered.of(node)).unwrap().pods
    }

    fn names(covered: &Covered, node: &str) -> Vec<String> {
        pods(covered, node).into_iter().map(|pod| pod.name).collect()
    }

    #[test]
    fn a_pod_is_covered_on_the_node_it_is_on_and_only_there() {
        let mut covered = Covered::default();
        covered.apply(&pod("a", "n1", "10.0.0.1"));
        covered.apply(&pod("b", "", "10.0.0.2"));
        assert_eq!(covered.take_dirty(), ["n1".into()].into());
        assert_eq!(pods(&covered, "n1")[0].addresses, [vec![10, 0, 0, 1]]);
        covered.apply(&pod("a", "n1", "10.0.0.1"));
        assert!(covered.take_dirty().is_empty(), "nothing new");
        covered.apply(&pod("a", "n2", "10.0.0.1"));
        assert_eq!(covered.take_dirty(), ["n1".into(), "n2".into()].into());
        assert_eq!((names(&covered, "n1").len(), names(&covered, "n2")), (0, vec!["a".to_owned()]));
        let id = ObjectId { kind: Kind::Pod, namespace: "x".into(), name: "a".into() };
        covered.delete(&id);
        assert!(names(&covered, "n2").is_empty() && covered.take_dirty().contains("n2"));
    }
}
