//! Pods as endpoints, and which services select them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use model::{
    policy::{Labels, workload::Pod},
    service::{Protocol, ServiceName},
};

/// What makes a Pod an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    pub labels: Labels,
    pub node: String,
    pub addresses: Vec<IpAddr>,
    pub ready: bool,
    pub terminating: bool,
    /// Ports with a name, which services may refer to.
    pub ports: Vec<(String, Protocol, u16)>,
}

impl PodFacts {
    /// `None` for a Pod without addresses, or one that has run to its end.
    pub fn read(pod: &Pod) -> Option<Self> {
        let addresses: Vec<IpAddr> = pod.status.addresses().filter_map(|text| text.parse().ok()).collect();
        if addresses.is_empty() || pod.status.is_terminated() {
            return None;
        }
        let ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
        let ports = ports.filter(|port| !port.name.is_empty()).filter_map(|port| {
            let number = u16::try_from(port.container_port).ok().filter(|number| *number != 0)?;
            Some((port.name.clone(), port.protocol.parse().ok()?, number))
        });
        Some(Self {
            labels: pod.metadata.labels.clone(),
            node: pod.spec.node_name.clone(),
            addresses,
            ready: pod.status.is_ready(),
            terminating: pod.metadata.is_going(),
            ports: ports.collect(),
        })
    }
}

type PodId = (Arc<str>, Arc<str>);
/// Namespace, key and value of a label.
type Pair = (Arc<str>, String, String);

/// Labels of the Pods of one namespace, and the names of those that have each.
type ByLabel = HashMap<(String, String), BTreeSet<Arc<str>>>;

/// All Pods with their indices.
#[derive(Debug, Default)]
pub struct Pods {
    pods: BTreeMap<PodId, Entry>,
    /// Of namespaces in which some service has selected Pods: in most there is none.
    by_label: HashMap<Arc<str>, ByLabel>,
    /// Those that serve.
    by_node: HashMap<String, BTreeSet<PodId>>,
    /// Services by the first label of their selector.
    by_selector: HashMap<Pair, BTreeSet<Arc<str>>>,
    selectors: HashMap<ServiceName, Labels>,
}

#[derive(Debug)]
struct Entry {
    facts: PodFacts,
    /// Names of services in its namespace that select it.
    serves: BTreeSet<Arc<str>>,
}

impl Pods {
    pub fn get(&self, namespace: &str, name: &str) -> Option<&PodFacts> {
        self.pods.get(&id(namespace, name)).map(|entry| &entry.facts)
    }

    /// Returns the services that the Pod served before.
    pub fn put(&mut self, namespace: &str, name: &str, facts: PodFacts) -> BTreeSet<Arc<str>> {
        let serves = self.remove(namespace, name);
        let id = self.id(namespace, name);
        if let Some(by_label) = self.by_label.get_mut(namespace) {
            enter(by_label, &facts.labels, &id.1);
        }
        if !serves.is_empty() {
            self.by_node.entry(facts.node.clone()).or_default().insert(id.clone());
        }
        self.pods.insert(id, Entry { facts, serves: serves.clone() });
        serves
    }

    pub fn remove(&mut self, namespace: &str, name: &str) -> BTreeSet<Arc<str>> {
        let id = id(namespace, name);
        let Some(Entry { facts, serves }) = self.pods.remove(&id) else { return BTreeSet::new() };
        if let Some(by_label) = self.by_label.get_mut(namespace) {
            for (key, value) in facts.labels {
                take(by_label, (key, value), &id.1);
            }
        }
        take(&mut self.by_node, facts.node, &id);
        serves
    }

    pub fn serve(&mut self, namespace: &str, pod: &str, service: &str) {
        let id = id(namespace, pod);
        if let Some(entry) = self.pods.get_mut(&id) {
            if entry.serves.is_empty() {
                self.by_node.entry(entry.facts.node.clone()).or_default().insert(id);
            }
            entry.serves.insert(service.into());
        }
    }

    pub fn serve_no_more(&mut self, namespace: &str, pod: &str, service: &str) {
        let id = id(namespace, pod);
        if let Some(entry) = self.pods.get_mut(&id) {
            entry.serves.remove(service);
            if entry.serves.is_empty() {
                take(&mut self.by_node, entry.facts.node.clone(), &id);
            }
        }
    }

    pub fn served_by(&self, namespace: &str, pod: &str) -> BTreeSet<Arc<str>> {
        self.pods.get(&id(namespace, pod)).map(|entry| entry.serves.clone()).unwrap_or_default()
    }

    /// Pods of a node that serve.
    pub fn on_node(&self, node: &str) -> Vec<PodId> {
        self.by_node.get(node).into_iter().flatten().cloned().collect()
    }

    /// A Pod that comes: its neighbour has the name of their namespace already.
    fn id(&self, namespace: &str, name: &str) -> PodId {
        let id = id(namespace, name);
        let neighbour = self.pods.range(..&id).next_back().map(|((of, _), _)| of);
        let shared = neighbour.filter(|of| **of == id.0).map(Arc::clone);
        (shared.unwrap_or(id.0), id.1)
    }

    /// Enters the selector of a service, or takes it out.
    pub fn select(&mut self, service: &ServiceName, selector: Option<&Labels>) {
        let name: Arc<str> = Arc::clone(&service.name);
        if let Some(before) = self.selectors.remove(service)
            && let Some(pair) = first(service, &before)
        {
            take(&mut self.by_selector, pair, &name);
        }
        if let Some(selector) = selector
            && let Some(pair) = first(service, selector)
        {
            self.by_selector.entry(pair).or_default().insert(name);
            self.selectors.insert(service.clone(), selector.clone());
        }
    }

    /// Pods that a selector selects. O(Pods with its rarest label); the first time in a namespace, O(its Pods).
    pub fn selected(&mut self, namespace: &str, selector: &Labels) -> Vec<Arc<str>> {
        // What selects nothing is no reason to look at a namespace.
        if selector.is_empty() {
            return Vec::new();
        }
        let namespace: Arc<str> = namespace.into();
        let pods = &self.pods;
        let by_label = self.by_label.entry(Arc::clone(&namespace)).or_insert_with(|| {
            let mut by_label = ByLabel::new();
            let of_namespace = pods.range((Arc::clone(&namespace), "".into())..);
            for ((_, name), entry) in of_namespace.take_while(|((of, _), _)| *of == namespace) {
                enter(&mut by_label, &entry.facts.labels, name);
            }
            by_label
        });
        let mut fewest: Option<&BTreeSet<Arc<str>>> = None;
        for (key, value) in selector.iter() {
            let Some(pods) = by_label.get(&(key.clone(), value.clone())) else { return Vec::new() };
            if fewest.is_none_or(|known| pods.len() < known.len()) {
                fewest = Some(pods);
            }
        }
        let candidates = fewest.into_iter().flatten();
        let selected = candidates.filter(|name| {
            let entry = self.pods.get(&(namespace.clone(), Arc::clone(name)));
            entry.is_some_and(|entry| matches(selector, &entry.facts.labels))
        });
        selected.cloned().collect()
    }

    /// Services that select a Pod. O(its labels and the services that begin with one of them).
    pub fn selectors(&self, namespace: &str, pod: &str) -> BTreeSet<Arc<str>> {
        let Some(entry) = self.pods.get(&id(namespace, pod)) else { return BTreeSet::new() };
        let namespace: Arc<str> = namespace.into();
        let labels = &entry.facts.labels;
        let pairs = labels.iter().map(|(key, value)| (namespace.clone(), key.clone(), value.clone()));
        let candidates = pairs.filter_map(|pair| self.by_selector.get(&pair)).flatten();
        let selects = |name: &&Arc<str>| {
            let service = ServiceName::new(&*namespace, &***name);
            self.selectors.get(&service).is_some_and(|selector| matches(selector, labels))
        };
        candidates.filter(selects).cloned().collect()
    }
}

fn enter(by_label: &mut ByLabel, labels: &Labels, pod: &Arc<str>) {
    for (key, value) in labels.iter() {
        by_label.entry((key.clone(), value.clone())).or_default().insert(Arc::clone(pod));
    }
}

fn id(namespace: &str, name: &str) -> PodId {
    (namespace.into(), name.into())
}

fn first(service: &ServiceName, selector: &Labels) -> Option<Pair> {
    let (key, value) = selector.iter().next()?;
    Some((Arc::clone(&service.namespace), key.clone(), value.clone()))
}

fn matches(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Takes a member out of one of the sets of an index.
fn take<K: std::hash::Hash + Eq, T: Ord>(index: &mut HashMap<K, BTreeSet<T>>, key: K, member: &T) {
    if let Some(members) = index.get_mut(&key) {
        members.remove(member);
        if members.is_empty() {
            index.remove(&key);
        }
    }
}
