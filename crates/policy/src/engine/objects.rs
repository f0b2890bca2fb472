//! From each kind of object to the tables; tiers, groups and Services, and who must be compiled again after them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use model::policy::{
    Kind, Labels, Object, ObjectId, ObjectMeta,
    antrea::{self, GroupSpec, NamespacedName, PolicySpec, SYSTEM_TIERS},
    external::{ExternalEntity, ExternalNode},
    kubernetes,
    output::{MemberKind, NamedPort, Problem, Protocol},
    workload::{Node, Pod},
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{
    Engine,
    entities::Described,
    groups::GroupKind,
    matching::LabelSet,
    symbols::Interner,
    tables::{IdSet, NamespaceId, PolicyId, SelectorId, Symbol},
};
use crate::{
    selection::SERVICE_ACCOUNT_LABEL,
    translate::{World, antrea_policy, kubernetes_policy, resolve},
};

/// Objects that are looked up by name and are few beside Pods and policies.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    tiers: BTreeMap<String, i32>,
    groups: BTreeMap<NamespacedName, GroupObject>,
    services: BTreeMap<NamespacedName, Labels>,
    /// ExternalNodes by the entity they make, then by their name: two could make the same.
    external_nodes: BTreeMap<NamespacedName, BTreeMap<String, ExternalEntity>>,
    /// Entities that exist as objects of their own; these win over made ones.
    explicit_entities: BTreeSet<NamespacedName>,
    dependents: FxHashMap<Dependency, IdSet<PolicyId>>,
    group_users: BTreeMap<Reference, BTreeSet<NamespacedName>>,
    stale_groups: BTreeSet<NamespacedName>,
    /// Groups whose object has another UID than consumers were told.
    retitled: BTreeSet<NamespacedName>,
}

/// What a group names in its text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Reference {
    Child(NamespacedName),
    Service(NamespacedName),
}

#[derive(Debug)]
pub(crate) struct GroupObject {
    spec: GroupSpec,
    pub(crate) uid: String,
}

/// What an Antrea policy must be compiled again for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Dependency {
    Tier(String),
    Group(NamespacedName),
    Namespaces,
}

impl GroupObject {
    fn references(&self, own: &NamespacedName) -> Vec<Reference> {
        let child = |name: &String| {
            Reference::Child(NamespacedName { namespace: own.namespace.clone(), name: name.clone() })
        };
        let service = self.spec.service_reference.iter().cloned().map(Reference::Service);
        self.spec.child_groups.iter().map(child).chain(service).collect()
    }
}

impl Lookups {
    pub(crate) fn is_retitled(&self, name: &NamespacedName) -> bool {
        self.retitled.contains(name)
    }

    pub(crate) fn group_uid(&self, name: &NamespacedName) -> Option<&str> {
        self.groups.get(name).map(|group| group.uid.as_str()).filter(|uid| !uid.is_empty())
    }
}

/// What translations see of the engine.
pub(crate) struct View<'a> {
    pub(crate) engine: &'a Engine,
}

impl World for View<'_> {
    fn tier_priority(&self, name: &str) -> Option<i32> {
        let system = SYSTEM_TIERS.iter().find(|(tier, _)| *tier == name).map(|(_, priority)| *priority);
        self.engine.lookups.tiers.get(name).copied().or(system)
    }

    fn group(&self, name: &NamespacedName) -> Option<&GroupSpec> {
        self.engine.lookups.groups.get(name).map(|group| &group.spec)
    }

    fn service_selector(&self, name: &NamespacedName) -> Option<&Labels> {
        self.engine.lookups.services.get(name)
    }

    fn namespaces(&self) -> Vec<(Arc<str>, Labels)> {
        let text = |symbol: &Symbol| self.engine.symbols.text(*symbol).to_string();
        let rows = self.engine.namespaces.rows.iter().filter(|(_, row)| row.known);
        let mut namespaces: Vec<_> = rows
            .map(|(_, row)| {
                (Arc::clone(&row.name), row.labels.iter().map(|(k, v)| (text(k), text(v))).collect())
            })
            .collect();
        namespaces.sort_unstable();
        namespaces
    }
}

impl Engine {
    pub(super) fn apply(&mut self, object: &Object) {
        match object {
            Object::Namespace(o) => {
                self.apply_namespace(&o.metadata.name, &o.metadata.labels, &o.metadata.annotations)
            }
            Object::Node(o) => self.apply_node(o),
            Object::Pod(o) => self.apply_pod(o),
            Object::Service(o) => {
                self.lookups.services.insert(key(&o.metadata), o.spec.selector.clone());
                self.service_changed(&key(&o.metadata));
            }
            Object::ExternalNode(o) => self.apply_external_node(o),
            Object::ExternalEntity(o) => {
                self.lookups.explicit_entities.insert(key(&o.metadata));
                self.put_external_entity(o);
            }
            Object::Tier(o) => {
                self.lookups.tiers.insert(o.metadata.name.clone(), o.spec.priority);
                self.depended_on_changed(&Dependency::Tier(o.metadata.name.clone()));
            }
            Object::ClusterGroup(o) => self.apply_group(String::new(), o),
            Object::Group(o) => self.apply_group(o.metadata.namespace.clone(), o),
            Object::NetworkPolicy(o) => self.apply_kubernetes_policy(o),
            Object::AntreaNetworkPolicy(o) => {
                self.apply_antrea_policy(Kind::AntreaNetworkPolicy, &o.metadata.namespace, o);
            }
            Object::AntreaClusterNetworkPolicy(o) => {
                self.apply_antrea_policy(Kind::AntreaClusterNetworkPolicy, "", o)
            }
        }
    }

    pub(super) fn delete(&mut self, id: &ObjectId) {
        let ObjectId { kind, namespace, name } = id;
        let key = NamespacedName { namespace: namespace.clone(), name: name.clone() };
        match kind {
            Kind::Namespace => self.delete_namespace(name),
            Kind::Node => self.delete_entity(MemberKind::Node, "", name),
            Kind::Pod => self.delete_entity(MemberKind::Pod, namespace, name),
            Kind::Service => {
                self.lookups.services.remove(&key);
                self.service_changed(&key);
            }
            Kind::ExternalNode => self.delete_external_node(namespace, name),
            Kind::ExternalEntity => {
                self.lookups.explicit_entities.remove(&key);
                self.remake_entity(&key);
            }
            Kind::Tier => {
                self.lookups.tiers.remove(name);
                self.depended_on_changed(&Dependency::Tier(name.clone()));
            }
            Kind::ClusterGroup | Kind::Group => {
                self.set_problems(id.clone(), Vec::new());
                self.set_group(&key, None);
            }
            Kind::NetworkPolicy | Kind::AntreaNetworkPolicy | Kind::AntreaClusterNetworkPolicy => {
                self.delete_policy(id)
            }
        }
    }

    fn apply_pod(&mut self, pod: &Pod) {
        let account = match pod.spec.service_account_name.as_str() {
            "" => "default",
            account => account,
        };
        let labels = pod.metadata.labels.iter().filter(|(key, _)| *key != SERVICE_ACCOUNT_LABEL);
        let mut labels: SmallVec<[(Symbol, Symbol); 8]> =
            labels.map(|(k, v)| (self.symbols.intern(k), self.symbols.intern(v))).collect();
        labels.push((self.service_account, self.symbols.intern(account)));
        labels.sort_unstable();
        let ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
        let ports =
            ports.filter_map(|port| named_port(&port.name, port.container_port, &port.protocol)).collect();
        self.put_entity(Described {
            kind: MemberKind::Pod,
            namespace: &pod.metadata.namespace,
            name: &pod.metadata.name,
            labels,
            enforced: !pod.spec.host_network && !pod.status.is_terminated(),
            addresses: pod.status.addresses().filter_map(|text| text.parse::<IpAddr>().ok()).collect(),
            ports,
            node: Some(pod.spec.node_name.as_str()).filter(|node| !node.is_empty()),
        });
    }

    fn apply_node(&mut self, node: &Node) {
        let labels = SmallVec::from_slice(&self.intern_labels(node.metadata.labels.iter()));
        self.put_entity(Described {
            kind: MemberKind::Node,
            namespace: "",
            name: &node.metadata.name,
            labels,
            enforced: true,
            addresses: node.addresses().filter_map(|text| text.parse::<IpAddr>().ok()).collect(),
            ports: Box::default(),
            node: Some(&node.metadata.name),
        });
    }

    fn put_external_entity(&mut self, entity: &ExternalEntity) {
        let labels = SmallVec::from_slice(&self.intern_labels(entity.metadata.labels.iter()));
        let ports =
            entity.spec.ports.iter().filter_map(|port| named_port(&port.name, port.port, &port.protocol));
        let endpoints = entity.spec.endpoints.iter();
        self.put_entity(Described {
            kind: MemberKind::ExternalEntity,
            namespace: &entity.metadata.namespace,
            name: &entity.metadata.name,
            labels,
            enforced: true,
            addresses: endpoints.filter_map(|endpoint| endpoint.ip.parse::<IpAddr>().ok()).collect(),
            ports: ports.collect(),
            node: entity.span_key().as_deref(),
        });
    }

    fn apply_external_node(&mut self, node: &ExternalNode) {
        let entity = node.entity();
        let key = key(&entity.metadata);
        self.forget_external_node(&node.metadata.namespace, &node.metadata.name, Some(&key));
        self.lookups
            .external_nodes
            .entry(key.clone())
            .or_default()
            .insert(node.metadata.name.clone(), entity);
        if !self.lookups.explicit_entities.contains(&key) {
            self.remake_entity(&key);
        }
    }

    fn delete_external_node(&mut self, namespace: &str, name: &str) {
        self.forget_external_node(namespace, name, None);
    }

    /// Its entity's name follows its interface, so an update may leave an entity of another name behind.
    fn forget_external_node(&mut self, namespace: &str, name: &str, except: Option<&NamespacedName>) {
        let first = NamespacedName { namespace: namespace.into(), name: name.into() };
        let made_by = self
            .lookups
            .external_nodes
            .range(first..)
            .take_while(|(key, _)| key.namespace == namespace && key.name.starts_with(name));
        let stale: Vec<NamespacedName> = made_by
            .filter(|(key, makers)| makers.contains_key(name) && Some(*key) != except)
            .map(|(key, _)| key.clone())
            .collect();
        for key in stale {
            if let Some(makers) = self.lookups.external_nodes.get_mut(&key) {
                makers.remove(name);
                if makers.is_empty() {
                    self.lookups.external_nodes.remove(&key);
                }
            }
            if !self.lookups.explicit_entities.contains(&key) {
                self.remake_entity(&key);
            }
        }
    }

    /// The entity as ExternalNodes would have it, or none.
    fn remake_entity(&mut self, key: &NamespacedName) {
        let made = self.lookups.external_nodes.get(key).and_then(|makers| makers.values().next()).cloned();
        match made {
            Some(entity) => self.put_external_entity(&entity),
            None => self.delete_entity(MemberKind::ExternalEntity, &key.namespace, &key.name),
        }
    }

    fn apply_group(&mut self, namespace: String, group: &antrea::Group) {
        let name = NamespacedName { namespace, name: group.metadata.name.clone() };
        let object = GroupObject { spec: group.spec.clone(), uid: group.metadata.uid.clone() };
        self.set_group(&name, Some(object));
    }

    /// Keeps who must hear of a change of a child or a Service.
    fn set_group(&mut self, name: &NamespacedName, object: Option<GroupObject>) {
        let new = object.as_ref().map(|object| object.references(name)).unwrap_or_default();
        let old = match object {
            Some(object) => self.lookups.groups.insert(name.clone(), object),
            None => self.lookups.groups.remove(name),
        };
        if old.as_ref().map(|object| &object.uid) != self.lookups.groups.get(name).map(|object| &object.uid) {
            self.lookups.retitled.insert(name.clone());
        }
        for reference in old.iter().flat_map(|object| object.references(name)) {
            if let Some(users) = self.lookups.group_users.get_mut(&reference) {
                users.remove(name);
                if users.is_empty() {
                    self.lookups.group_users.remove(&reference);
                }
            }
        }
        for reference in new {
            self.lookups.group_users.entry(reference).or_default().insert(name.clone());
        }
        self.group_changed(name);
    }

    /// The group, and those that see it through one or two levels of children. Resolved at the flush.
    fn group_changed(&mut self, name: &NamespacedName) {
        let mut level = BTreeSet::from([name.clone()]);
        for _ in 0..2 {
            let users = level
                .iter()
                .filter_map(|child| self.lookups.group_users.get(&Reference::Child(child.clone())));
            let parents: BTreeSet<NamespacedName> = users.flatten().cloned().collect();
            self.lookups.stale_groups.append(&mut level);
            level = parents;
        }
        self.lookups.stale_groups.append(&mut level);
    }

    fn service_changed(&mut self, service: &NamespacedName) {
        let users =
            self.lookups.group_users.get(&Reference::Service(service.clone())).cloned().unwrap_or_default();
        users.iter().for_each(|group| self.group_changed(group));
    }

    pub(super) fn namespaces_changed(&mut self) {
        self.depended_on_changed(&Dependency::Namespaces);
    }

    fn depended_on_changed(&mut self, dependency: &Dependency) {
        if let Some(dependents) = self.lookups.dependents.get(dependency).cloned() {
            dependents.iter().for_each(|policy| self.policies.mark_stale(*policy));
        }
    }

    /// Brings everything that was only marked up to date.
    pub(super) fn settle(&mut self) {
        for name in std::mem::take(&mut self.lookups.stale_groups) {
            self.refresh_group(&name);
            self.depended_on_changed(&Dependency::Group(name));
        }
        for id in std::mem::take(&mut self.policies.stale) {
            if self.policies.rows.get(id).is_some_and(|row| row.stale) {
                self.policies.rows[id].stale = false;
                self.recompile(id);
            }
        }
    }

    pub(super) fn forget_retitled(&mut self) {
        self.lookups.retitled.clear();
    }

    fn refresh_group(&mut self, name: &NamespacedName) {
        for kind in [GroupKind::AppliedTo, GroupKind::Address] {
            if let Some(group) = self.groups.named(kind, name) {
                let selectors = self.named_selectors(name);
                self.set_selectors(group, selectors);
                self.mark_group(group);
            }
        }
        let kind = if name.namespace.is_empty() { Kind::ClusterGroup } else { Kind::Group };
        let id = ObjectId { kind, namespace: name.namespace.clone(), name: name.name.clone() };
        let problems =
            resolve(&View { engine: self }, name).map(|resolved| resolved.problems).unwrap_or_default();
        self.set_problems(id, problems);
    }

    /// The selectors a group stands for; those that are new have no group yet.
    pub(super) fn named_selectors(&mut self, name: &NamespacedName) -> IdSet<SelectorId> {
        let resolved = resolve(&View { engine: self }, name).unwrap_or_default();
        resolved.selections.iter().map(|selection| self.intern_selection(selection)).collect()
    }

    fn apply_kubernetes_policy(&mut self, policy: &kubernetes::NetworkPolicy) {
        let metadata = &policy.metadata;
        let id = self.policy_row(Kind::NetworkPolicy, &metadata.namespace, &metadata.name);
        let translation = kubernetes_policy(policy);
        let uid = self.uid_of(id, &metadata.uid);
        let mut record = self.compile(&translation, uid, metadata.generation);
        record.logging = self.namespaces.rows[self.policies.rows[id].namespace].logging;
        self.install(id, Some(record));
        self.report(id, translation.problems);
    }

    pub(super) fn relog(&mut self, namespace: NamespaceId) {
        let row = &self.namespaces.rows[namespace];
        let logging = row.logging;
        for id in row.policies.clone().iter() {
            if let Some(record) = &self.policies.rows[*id].record {
                let record = super::policies::Record { logging, ..(**record).clone() };
                self.install(*id, Some(record));
            }
        }
    }

    fn apply_antrea_policy(&mut self, kind: Kind, namespace: &str, policy: &antrea::Policy) {
        let id = self.policy_row(kind, namespace, &policy.metadata.name);
        self.set_spec(id, Some(Arc::new(policy.spec.clone())));
        let uid = self.uid_of(id, &policy.metadata.uid);
        self.translate_and_install(id, uid, policy.metadata.generation);
    }

    fn recompile(&mut self, id: PolicyId) {
        let Some(record) = self.policies.rows[id].record.clone() else { return };
        self.translate_and_install(id, record.uid.clone(), record.generation);
    }

    fn translate_and_install(
        &mut self,
        id: PolicyId,
        uid: model::policy::output::Identifier,
        generation: i64,
    ) {
        let row = &self.policies.rows[id];
        let Some(spec) = row.spec.clone() else { return };
        let namespace = Arc::clone(&self.namespaces.rows[row.namespace].name);
        let translation = antrea_policy(&spec, &namespace, &View { engine: self });
        let record = self.compile(&translation, uid, generation);
        self.install(id, Some(record));
        self.report(id, translation.problems);
    }

    fn set_spec(&mut self, id: PolicyId, spec: Option<Arc<PolicySpec>>) {
        let row = &mut self.policies.rows[id];
        let old = std::mem::replace(&mut row.spec, spec.clone());
        let namespace = Arc::clone(&self.namespaces.rows[row.namespace].name);
        for dependency in old.iter().flat_map(|spec| dependencies(spec, &namespace)) {
            if let Some(dependents) = self.lookups.dependents.get_mut(&dependency) {
                dependents.remove(id);
                if dependents.is_empty() {
                    self.lookups.dependents.remove(&dependency);
                }
            }
        }
        for dependency in spec.iter().flat_map(|spec| dependencies(spec, &namespace)) {
            self.lookups.dependents.entry(dependency).or_insert_with(IdSet::new).insert(id);
        }
    }

    fn delete_policy(&mut self, object: &ObjectId) {
        let Some(namespace) = self.namespaces.find(&object.namespace) else { return };
        let Some(id) = self.policies.find(object.kind, namespace, &object.name) else { return };
        self.set_spec(id, None);
        self.install(id, None);
        self.set_problems(object.clone(), Vec::new());
    }

    fn report(&mut self, id: PolicyId, problems: Vec<Problem>) {
        // Most policies have no problem and never had one: their name is not even made.
        if !problems.is_empty() || !self.problems.is_empty() {
            self.set_problems(self.object_id(id), problems);
        }
    }

    pub(super) fn intern_labels<'a>(
        &mut self,
        labels: impl Iterator<Item = (&'a String, &'a String)>,
    ) -> LabelSet {
        let mut labels: Vec<_> =
            labels.map(|(k, v)| (self.symbols.intern(k), self.symbols.intern(v))).collect();
        labels.sort_unstable();
        labels.into()
    }

    pub(super) fn acquire_label(&mut self, key: Symbol, value: Symbol) {
        self.symbols.acquire(key);
        self.symbols.acquire(value);
    }

    pub(super) fn release_labels(&mut self, labels: &[(Symbol, Symbol)]) {
        for (key, value) in labels {
            self.release_symbol(*key);
            self.release_symbol(*value);
        }
    }

    pub(super) fn release_symbol(&mut self, symbol: Symbol) {
        release(&mut self.symbols, symbol);
    }
}

pub(super) fn release(symbols: &mut Interner<Symbol>, symbol: Symbol) {
    if symbols.release(symbol) {
        symbols.forget(symbol);
    }
}

fn key(metadata: &ObjectMeta) -> NamespacedName {
    NamespacedName { namespace: metadata.namespace.clone(), name: metadata.name.clone() }
}

fn named_port(name: &str, port: i32, protocol: &str) -> Option<NamedPort> {
    let (port, protocol) = (u16::try_from(port).ok()?, Protocol::parse(protocol)?);
    (!name.is_empty()).then(|| NamedPort { name: name.into(), port, protocol })
}

fn dependencies(spec: &PolicySpec, namespace: &str) -> BTreeSet<Dependency> {
    let group =
        |name: &String| Dependency::Group(NamespacedName { namespace: namespace.into(), name: name.clone() });
    let tier = if spec.tier.is_empty() { antrea::DEFAULT_TIER } else { &spec.tier };
    let mut found = BTreeSet::from([Dependency::Tier(tier.into())]);
    found.extend(spec.applied_to.iter().filter_map(|to| to.group.as_ref()).map(group));
    for rule in spec.ingress.iter().chain(&spec.egress) {
        found.extend(rule.applied_to.iter().filter_map(|to| to.group.as_ref()).map(group));
        for peer in rule.from.iter().chain(&rule.to) {
            found.extend(peer.group.as_ref().map(group));
            found.extend(peer.namespaces.as_ref().map(|_| Dependency::Namespaces));
        }
    }
    found
}
