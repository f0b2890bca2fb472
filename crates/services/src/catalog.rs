//! The state of all services, and what of it nodes have not been told.
//!
//! Costs O(change): a Pod touches the services that select it and one slice of each, a slice touches itself.

mod derived;
mod pods;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use model::{
    policy::{Kind, Labels, Object, ObjectId, endpoint_slice::EndpointSlice, service as written, workload},
    service::{NodeFacts, Service, ServiceName, Slice},
};

use derived::{Derived, Recipe};
use pods::{PodFacts, Pods};

/// Who keeps the slices that are made from Pods, as in the label `endpointslice.kubernetes.io/managed-by`.
pub const MANAGER: &str = "trestle";

/// What nodes must hear. `None`: it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// To the node of this name.
    Node(String, Option<NodeFacts>),
    /// To every node. The key is unique among all slices.
    Slice { key: String, service: ServiceName, slice: Option<Arc<Slice>> },
    /// To every node.
    Service(ServiceName, Option<Arc<Service>>),
}

#[derive(Debug, Default)]
pub struct Catalog {
    services: BTreeMap<ServiceName, Known>,
    /// Which service each slice that was given belongs to.
    owners: HashMap<String, ServiceName>,
    pods: Pods,
    nodes: BTreeMap<String, NodeFacts>,
    /// Services that nodes were told of, by the addresses that they have from outside: two may have one.
    outside: HashMap<IpAddr, BTreeSet<ServiceName>>,
    dirty: BTreeMap<ServiceName, Dirty>,
    dirty_nodes: BTreeSet<String>,
}

/// What is known of one service.
#[derive(Debug, Default)]
struct Known {
    written: Option<Written>,
    /// Slices that users or their clusters wrote: if there are any, none are made from Pods.
    given: BTreeMap<String, Arc<Slice>>,
    derived: Derived,
    /// As nodes were last told.
    told: Option<Arc<Service>>,
    told_slices: BTreeMap<String, Arc<Slice>>,
}

#[derive(Debug)]
struct Written {
    service: Arc<Service>,
    selector: Labels,
    recipe: Recipe,
}

/// What of a service must be looked at again.
#[derive(Debug, Default)]
struct Dirty {
    /// Beginnings of the keys of slices; the empty one stands for all.
    slices: BTreeSet<String>,
}

/// One service as nodes know it.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub name: &'a ServiceName,
    pub service: &'a Arc<Service>,
    slices: &'a BTreeMap<String, Arc<Slice>>,
    /// Its slices are made from Pods.
    pub is_derived: bool,
}

impl<'a> Entry<'a> {
    pub fn slices(&self) -> impl Iterator<Item = (&'a str, &'a Arc<Slice>)> + use<'a> {
        self.slices.iter().map(|(key, slice)| (key.as_str(), slice))
    }
}

impl Catalog {
    pub fn apply(&mut self, object: &Object) {
        match object {
            Object::Service(service) => self.put_service(service),
            Object::EndpointSlice(slice) => self.put_slice(slice),
            Object::Pod(pod) => self.put_pod(pod),
            Object::Node(node) => self.put_node(&node.metadata.name, Some(NodeFacts::from(node))),
            _ => {}
        }
    }

    pub fn delete(&mut self, id: &ObjectId) {
        match id.kind {
            Kind::Service => self.delete_service(&ServiceName::new(id.namespace.clone(), id.name.clone())),
            Kind::EndpointSlice => self.remove_slice(&slice_key(&id.namespace, &id.name)),
            Kind::Pod => {
                let before = self.pods.remove(&id.namespace, &id.name);
                self.follow_pod(&id.namespace, &id.name, before);
            }
            Kind::Node => self.put_node(&id.name, None),
            _ => {}
        }
    }

    /// What differs since the last call, slices before the services that they belong to, and slices that go before
    /// those that come: one may have moved from a service to another.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let nodes = std::mem::take(&mut self.dirty_nodes).into_iter();
        let mut gone: Vec<_> =
            nodes.map(|name| Change::Node(name.clone(), self.nodes.get(&name).cloned())).collect();
        let mut come = Vec::new();
        for (name, dirty) in std::mem::take(&mut self.dirty) {
            let Some(known) = self.services.get_mut(&name) else { continue };
            let before = known.told.clone();
            known.changes(&name, &dirty, &mut gone, &mut come);
            let after = known.told.clone();
            self.index(&name, before.as_deref(), after.as_deref());
            let Some(known) = self.services.get(&name) else { continue };
            if known.written.is_none() && known.given.is_empty() {
                self.services.remove(&name);
            }
        }
        gone.append(&mut come);
        gone
    }

    /// Services that nodes were told of, by name.
    pub fn services(&self) -> impl Iterator<Item = Entry<'_>> {
        self.services.iter().filter_map(|(name, known)| known.entry(name))
    }

    pub fn service(&self, name: &ServiceName) -> Option<Entry<'_>> {
        let (name, known) = self.services.get_key_value(name)?;
        known.entry(name)
    }

    /// Services that have an address from outside, as nodes were told, by name.
    pub fn having(&self, address: IpAddr) -> impl Iterator<Item = Entry<'_>> {
        let names = self.outside.get(&address).into_iter().flatten();
        names.filter_map(|name| self.service(name))
    }

    fn index(&mut self, name: &ServiceName, before: Option<&Service>, after: Option<&Service>) {
        let [before, after] = [before, after]
            .map(|one| one.map(|one| one.outside().collect::<BTreeSet<_>>()).unwrap_or_default());
        for address in before.difference(&after) {
            if let Some(names) = self.outside.get_mut(address) {
                names.remove(name);
                if names.is_empty() {
                    self.outside.remove(address);
                }
            }
        }
        for address in after.difference(&before) {
            self.outside.entry(*address).or_default().insert(name.clone());
        }
    }

    pub fn node(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes.get(name)
    }

    fn put_service(&mut self, service: &written::Service) {
        let name = ServiceName::from(&service.metadata);
        let selector = service.spec.selector.clone();
        let recipe = Recipe::from(service);
        let known = self.services.entry(name.clone()).or_default();
        let before = known.written.as_ref();
        let same_pods = before.is_some_and(|before| before.selector == selector && before.recipe == recipe);
        let service = Arc::new(Service::from(service));
        // It may have become one of ours, or ceased to be: all its slices are to be looked at.
        self.dirty.entry(name.clone()).or_default().slices.insert(String::new());
        if same_pods {
            if let Some(written) = &mut known.written {
                written.service = service;
            }
            return;
        }
        self.forget_selection(&name);
        self.pods.select(&name, Some(&selector));
        let selected: Vec<_> = self.pods.selected(&name.namespace, &selector);
        if let Some(known) = self.services.get_mut(&name) {
            known.written = Some(Written { service, selector, recipe });
        }
        for pod in selected {
            self.pods.serve(&name.namespace, &pod, &name.name);
            self.derive(&name, &pod);
        }
    }

    fn delete_service(&mut self, name: &ServiceName) {
        self.forget_selection(name);
        if let Some(known) = self.services.get_mut(name) {
            known.written = None;
            self.dirty.entry(name.clone()).or_default().slices.insert(String::new());
        }
    }

    /// Takes back all that was made from Pods for a service.
    fn forget_selection(&mut self, name: &ServiceName) {
        let Some(known) = self.services.get_mut(name) else { return };
        for pod in known.derived.pods() {
            self.pods.serve_no_more(&name.namespace, pod, &name.name);
        }
        known.derived = Derived::default();
        self.pods.select(name, None);
    }

    fn put_slice(&mut self, slice: &EndpointSlice) {
        let key = slice_key(&slice.metadata.namespace, &slice.metadata.name);
        let Some(slice) = Slice::read(slice) else { return self.remove_slice(&key) };
        if self.owners.get(&key).is_some_and(|owner| *owner != slice.service) {
            self.remove_slice(&key);
        }
        let owner = slice.service.clone();
        self.owners.insert(key.clone(), owner.clone());
        let known = self.services.entry(owner.clone()).or_default();
        let first = known.given.is_empty();
        known.given.insert(key.clone(), Arc::new(slice));
        // From the first on, those made from Pods give way.
        self.dirty.entry(owner).or_default().slices.insert(if first { String::new() } else { key });
    }

    fn remove_slice(&mut self, key: &str) {
        let Some(owner) = self.owners.remove(key) else { return };
        let Some(known) = self.services.get_mut(&owner) else { return };
        known.given.remove(key);
        let all = known.given.is_empty();
        self.dirty.entry(owner).or_default().slices.insert(if all { String::new() } else { key.to_owned() });
    }

    fn put_pod(&mut self, pod: &workload::Pod) {
        let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
        let Some(facts) = PodFacts::read(pod) else {
            let before = self.pods.remove(namespace, name);
            return self.follow_pod(namespace, name, before);
        };
        let before = self.pods.put(namespace, name, facts);
        self.follow_pod(namespace, name, before);
    }

    /// After a Pod changed: `before` are the services that it served.
    fn follow_pod(&mut self, namespace: &str, pod: &str, before: BTreeSet<Arc<str>>) {
        let after = self.pods.selectors(namespace, pod);
        for gone in before.difference(&after) {
            self.pods.serve_no_more(namespace, pod, gone);
            self.derive(&ServiceName::new(namespace, &**gone), pod);
        }
        for service in &after {
            self.pods.serve(namespace, pod, service);
            self.derive(&ServiceName::new(namespace, &**service), pod);
        }
    }

    /// Brings what one Pod adds to one service up to date.
    fn derive(&mut self, name: &ServiceName, pod: &str) {
        let Some(known) = self.services.get_mut(name) else { return };
        let Some(written) = &known.written else { return };
        let facts = self.pods.get(&name.namespace, pod).filter(|facts| written.selects(&facts.labels));
        let zone = facts.and_then(|facts| self.nodes.get(&facts.node)?.zone.as_deref());
        let endpoints = facts.map(|facts| written.recipe.endpoints(facts, zone)).unwrap_or_default();
        let touched = known.derived.put(name, pod, endpoints);
        self.dirty.entry(name.clone()).or_default().slices.extend(touched);
    }

    fn put_node(&mut self, name: &str, facts: Option<NodeFacts>) {
        let before = match facts.clone() {
            Some(facts) => self.nodes.insert(name.to_owned(), facts),
            None => self.nodes.remove(name),
        };
        if before == facts {
            return;
        }
        self.dirty_nodes.insert(name.to_owned());
        let zone = |facts: Option<NodeFacts>| facts.and_then(|facts| facts.zone);
        if zone(before) != zone(facts) {
            for (namespace, pod) in self.pods.on_node(name) {
                let services = self.pods.served_by(&namespace, &pod);
                services
                    .iter()
                    .for_each(|service| self.derive(&ServiceName::new(&*namespace, &**service), &pod));
            }
        }
    }
}

impl Written {
    /// A service without a selector selects nothing.
    fn selects(&self, labels: &Labels) -> bool {
        !self.selector.is_empty() && self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

impl Known {
    fn entry<'a>(&'a self, name: &'a ServiceName) -> Option<Entry<'a>> {
        let service = self.told.as_ref()?;
        let is_derived = self.given.is_empty() && !self.told_slices.is_empty();
        Some(Entry { name, service, slices: &self.told_slices, is_derived })
    }

    /// A service without an address of its own, or another proxy's, is nothing that nodes must know.
    fn visible(&self) -> Option<&Arc<Service>> {
        let service = &self.written.as_ref()?.service;
        (service.is_ours() && !service.cluster_ips.is_empty()).then_some(service)
    }

    fn changes(&mut self, name: &ServiceName, dirty: &Dirty, gone: &mut Vec<Change>, come: &mut Vec<Change>) {
        let service = self.visible().cloned();
        let mut covered: Option<&String> = None;
        for prefix in &dirty.slices {
            // Sorted: what a shorter one covers follows it. It may be a half of what has been joined since.
            if covered.is_some_and(|shorter| prefix.starts_with(shorter.as_str())) {
                continue;
            }
            covered = Some(prefix);
            let wanted = if service.is_some() { self.wanted(name, prefix) } else { BTreeMap::new() };
            let told: Vec<_> = under(&self.told_slices, prefix).map(|(key, _)| key.clone()).collect();
            for key in told.into_iter().filter(|key| !wanted.contains_key(key)) {
                self.told_slices.remove(&key);
                gone.push(Change::Slice { key, service: name.clone(), slice: None });
            }
            for (key, slice) in wanted {
                if self.told_slices.get(&key) != Some(&slice) {
                    self.told_slices.insert(key.clone(), slice.clone());
                    come.push(Change::Slice { key, service: name.clone(), slice: Some(slice) });
                }
            }
        }
        if self.told != service {
            self.told.clone_from(&service);
            come.push(Change::Service(name.clone(), service));
        }
    }

    fn wanted(&self, name: &ServiceName, prefix: &str) -> BTreeMap<String, Arc<Slice>> {
        if !self.given.is_empty() {
            let given = under(&self.given, prefix).filter(|(_, slice)| slice.is_ours());
            return given.map(|(key, slice)| (key.clone(), slice.clone())).collect();
        }
        self.derived.slices(name, prefix).into_iter().map(|(key, slice)| (key, Arc::new(slice))).collect()
    }
}

fn under<'a, T>(
    map: &'a BTreeMap<String, T>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a String, &'a T)> + 'a {
    map.range(prefix.to_owned()..).take_while(move |(key, _)| key.starts_with(prefix))
}

fn slice_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

#[cfg(test)]
mod tests;
