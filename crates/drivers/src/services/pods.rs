//! The Pods of each node that have been taken into account: nodes open those, and no others.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use model::policy::{Kind, Object, ObjectId, workload::Pod};
use wire::{node::octets, trestle::v1::NodePod};

/// Namespace and name. Each Pod is in two maps under one.
type PodName = Arc<(String, String)>;

/// What a node is told of a Pod beside its name.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    uid: Box<str>,
    addresses: Box<[IpAddr]>,
}

#[derive(Debug, Default)]
pub struct Covered {
    by_node: BTreeMap<Arc<str>, BTreeMap<PodName, Place>>,
    places: HashMap<PodName, Arc<str>>,
    /// Nodes whose Pods are others than when they were last asked for.
    dirty: BTreeSet<Arc<str>>,
}

impl Covered {
    pub fn apply(&mut self, object: &Object) {
        if let Object::Pod(pod) = object {
            let name = Arc::new((pod.metadata.namespace.clone(), pod.metadata.name.clone()));
            // On the node's own network it is the node, and one that has ended has no link any more.
            let is_here =
                !(pod.spec.node_name.is_empty() || pod.spec.host_network || pod.status.is_terminated());
            self.put(name, is_here.then(|| (pod.spec.node_name.as_str(), covered(pod))));
        }
    }

    pub fn delete(&mut self, id: &ObjectId) {
        if id.kind == Kind::Pod {
            self.put(Arc::new((id.namespace.clone(), id.name.clone())), None);
        }
    }

    fn put(&mut self, name: PodName, place: Option<(&str, Place)>) {
        let before = self.places.remove(&name);
        if let Some(node) = before.filter(|node| place.as_ref().is_none_or(|(now, _)| **now != **node)) {
            let pods = self.by_node.entry(Arc::clone(&node)).or_default();
            pods.remove(&name);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
            self.dirty.insert(node);
        }
        if let Some((node, pod)) = place {
            let known = self.by_node.get_key_value(node).map(|(node, _)| Arc::clone(node));
            let node = known.unwrap_or_else(|| node.into());
            let pods = self.by_node.entry(Arc::clone(&node)).or_default();
            let name = pods.get_key_value(&name).map_or(name, |(known, _)| Arc::clone(known));
            if pods.get(&name) != Some(&pod) {
                pods.insert(Arc::clone(&name), pod);
                self.dirty.insert(Arc::clone(&node));
            }
            self.places.insert(name, node);
        }
    }

    pub fn of(&self, node: &str) -> Vec<NodePod> {
        let pod = |(name, place): (&PodName, &Place)| NodePod {
            namespace: name.0.clone(),
            name: name.1.clone(),
            uid: place.uid.to_string(),
            addresses: place.addresses.iter().copied().map(octets).collect(),
        };
        self.by_node.get(node).into_iter().flatten().map(pod).collect()
    }

    pub fn take_dirty(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.dirty)
    }
}

fn covered(pod: &Pod) -> Place {
    let addresses = pod.status.addresses().filter_map(|text| text.parse::<IpAddr>().ok());
    Place { uid: pod.metadata.uid.as_str().into(), addresses: addresses.collect() }
}

#[cfg(test)]
mod tests {
    use model::policy::workload::{PodIp, PodSpec, PodStatus};

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

    fn names(covered: &Covered, node: &str) -> Vec<String> {
        covered.of(node).into_iter().map(|pod| pod.name).collect()
    }

    #[test]
    fn a_pod_is_covered_on_the_node_it_is_on_and_only_there() {
        let mut covered = Covered::default();
        covered.apply(&pod("a", "n1", "10.0.0.1"));
        covered.apply(&pod("b", "", "10.0.0.2"));
        assert_eq!(covered.take_dirty(), ["n1".into()].into());
        assert_eq!(covered.of("n1")[0].addresses, [vec![10, 0, 0, 1]]);
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
