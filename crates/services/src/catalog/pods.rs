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

/// All Pods with their indices.
#[derive(Debug, Default)]
pub struct Pods {
    pods: BTreeMap<PodId, Entry>,
    by_label: HashMap<Pair, BTreeSet<Arc<str>>>,
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
        let id = id(namespace, name);
        for (key, value) in facts.labels.iter() {
            let pair = (id.0.clone(), key.clone(), value.clone());
            self.by_label.entry(pair).or_default().insert(id.1.clone());
        }
        self.by_node.entry(facts.node.clone()).or_default().insert(id.clone());
        self.pods.insert(id, Entry { facts, serves: serves.clone() });
        serves
    }

    pub fn remove(&mut self, namespace: &str, name: &str) -> BTreeSet<Arc<str>> {
        let id = id(namespace, name);
        let Some(Entry { facts, serves }) = self.pods.remove(&id) else { return BTreeSet::new() };
        for (key, value) in facts.labels {
            take(&mut self.by_label, (id.0.clone(), key, value), &id.1);
        }
        take(&mut self.by_node, facts.node, &id);
        serves
    }

    pub fn serve(&mut self, namespace: &str, pod: &str, service: &str) {
        if let Some(entry) = self.pods.get_mut(&id(namespace, pod)) {
            entry.serves.insert(service.into());
        }
    }

    pub fn serve_no_more(&mut self, namespace: &str, pod: &str, service: &str) {
        if let Some(entry) = self.pods.get_mut(&id(namespace, pod)) {
            entry.serves.remove(service);
        }
    }

    pub fn served_by(&self, namespace: &str, pod: &str) -> BTreeSet<Arc<str>> {
        self.pods.get(&id(namespace, pod)).map(|entry| entry.serves.clone()).unwrap_or_default()
    }

    pub fn on_node(&self, node: &str) -> Vec<PodId> {
        self.by_node.get(node).into_iter().flatten().cloned().collect()
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

    /// Pods that a selector selects. O(Pods with its rarest label).
    pub fn selected(&self, namespace: &str, selector: &Labels) -> Vec<Arc<str>> {
        let namespace: Arc<str> = namespace.into();
        let of_pair = |(key, value): (&String, &String)| {
            self.by_label.get(&(namespace.clone(), key.clone(), value.clone()))
        };
        let mut fewest: Option<&BTreeSet<Arc<str>>> = None;
        for pair in selector.iter() {
            let Some(pods) = of_pair(pair) else { return Vec::new() };
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
