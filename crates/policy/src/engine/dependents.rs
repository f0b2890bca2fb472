//! Tiers, groups and Services, the policies, and who must be resolved or compiled again after whom.
//!
//! A change marks what depends on it; marks are worked off once per flush, groups before policies, however many events
//! came in between.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::policy::{
    Kind, Labels, ObjectId,
    antrea::{self, GroupSpec, NamespacedName, PolicySpec, SYSTEM_TIERS},
    cluster,
    external::ExternalEntity,
    kubernetes,
    output::{Identifier, Problem},
};
use rustc_hash::FxHashMap;

use super::{
    Engine,
    groups::GroupKind,
    policies::{Policy, Record},
    tables::{IdSet, NamespaceId, PolicyId, SelectorId, Symbol},
};
use crate::translate::{World, antrea_policy, kubernetes_policy, resolve};

/// Objects that are looked up by name and are few beside Pods and policies.
#[derive(Debug, Default, Clone)]
pub(crate) struct Lookups {
    pub(crate) tiers: BTreeMap<String, i32>,
    groups: BTreeMap<NamespacedName, GroupObject>,
    pub(crate) services: BTreeMap<NamespacedName, Labels>,
    /// ExternalNodes by the entity they make, then by their name: two could make the same.
    pub(crate) external_nodes: BTreeMap<NamespacedName, BTreeMap<String, ExternalEntity>>,
    /// Entities that exist as objects of their own; these win over made ones.
    pub(crate) explicit_entities: BTreeSet<NamespacedName>,
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

#[derive(Debug, Clone)]
pub(crate) struct GroupObject {
    spec: GroupSpec,
    pub(crate) uid: String,
}

/// What an Antrea policy must be compiled again for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Dependency {
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

    pub(crate) fn group_names(&self) -> impl Iterator<Item = &NamespacedName> {
        self.groups.keys()
    }

    pub(crate) fn group_uid(&self, name: &NamespacedName) -> Option<&str> {
        self.groups.get(name).map(|group| group.uid.as_str()).filter(|uid| !uid.is_empty())
    }
}

/// What translations see of the engine.
pub(crate) struct Surroundings<'a> {
    pub(crate) engine: &'a Engine,
}

impl World for Surroundings<'_> {
    fn tier_priority(&self, name: &str) -> Option<i32> {
        let mut tiers = SYSTEM_TIERS.iter().chain(&cluster::TIERS);
        let system = tiers.find(|(tier, _)| *tier == name).map(|(_, priority)| *priority);
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

impl Policy {
    fn spec(&self) -> Option<PolicySpec> {
        self.spec.as_ref().map(|text| serde_json::from_str(text).expect("it was written by this process"))
    }
}

impl Engine {
    pub(super) fn apply_group(&mut self, namespace: String, group: &antrea::Group) {
        let name = NamespacedName { namespace, name: group.metadata.name.clone() };
        let object = GroupObject { spec: group.spec.clone(), uid: group.metadata.uid.clone() };
        self.set_group(&name, Some(object));
    }

    /// Keeps who must hear of a change of a child or a Service.
    pub(super) fn set_group(&mut self, name: &NamespacedName, object: Option<GroupObject>) {
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

    pub(super) fn service_changed(&mut self, service: &NamespacedName) {
        let users =
            self.lookups.group_users.get(&Reference::Service(service.clone())).cloned().unwrap_or_default();
        users.iter().for_each(|group| self.group_changed(group));
    }

    pub(super) fn namespaces_changed(&mut self) {
        self.depended_on_changed(&Dependency::Namespaces);
    }

    pub(super) fn depended_on_changed(&mut self, dependency: &Dependency) {
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
        let problems = resolve(&Surroundings { engine: self }, name)
            .map(|resolved| resolved.problems)
            .unwrap_or_default();
        self.set_problems(id, problems);
    }

    /// The selectors a group stands for; those that are new have no group yet.
    pub(super) fn named_selectors(&mut self, name: &NamespacedName) -> IdSet<SelectorId> {
        let resolved = resolve(&Surroundings { engine: self }, name).unwrap_or_default();
        resolved.selections.iter().map(|selection| self.intern_selection(selection)).collect()
    }

    pub(super) fn apply_kubernetes_policy(&mut self, policy: &kubernetes::NetworkPolicy) {
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
                let record = Record { logging, ..(**record).clone() };
                self.install(*id, Some(record));
            }
        }
    }

    pub(super) fn apply_antrea_policy(&mut self, kind: Kind, namespace: &str, policy: &antrea::Policy) {
        let id = self.policy_row(kind, namespace, &policy.metadata.name);
        self.set_spec(id, Some(&policy.spec));
        let uid = self.uid_of(id, &policy.metadata.uid);
        self.translate_and_install(id, &policy.spec, uid, policy.metadata.generation);
    }

    /// It depends on nothing but itself, so its text is not kept.
    pub(super) fn apply_cluster_policy(&mut self, kind: Kind, policy: &cluster::ClusterNetworkPolicy) {
        let metadata = &policy.metadata;
        let id = self.policy_row(kind, "", &metadata.name);
        let uid = self.uid_of(id, &metadata.uid);
        let (spec, mut problems) = policy.as_antrea();
        let translation = antrea_policy(&spec, "", &Surroundings { engine: self });
        problems.extend(translation.problems.iter().cloned());
        let record = self.compile(&translation, uid, metadata.generation);
        self.install(id, Some(record));
        self.report(id, problems);
    }

    fn recompile(&mut self, id: PolicyId) {
        let row = &self.policies.rows[id];
        let (Some(record), Some(spec)) = (row.record.clone(), row.spec()) else { return };
        self.translate_and_install(id, &spec, record.uid.clone(), record.generation);
    }

    fn translate_and_install(&mut self, id: PolicyId, spec: &PolicySpec, uid: Identifier, generation: i64) {
        let namespace = Arc::clone(&self.namespaces.rows[self.policies.rows[id].namespace].name);
        let translation = antrea_policy(spec, &namespace, &Surroundings { engine: self });
        let record = self.compile(&translation, uid, generation);
        self.install(id, Some(record));
        self.report(id, translation.problems);
    }

    fn set_spec(&mut self, id: PolicyId, spec: Option<&PolicySpec>) {
        let row = &mut self.policies.rows[id];
        let old = row.spec();
        row.spec = spec.map(|spec| {
            serde_json::to_string(spec).expect("a spec has string keys and no failing parts").into_boxed_str()
        });
        let namespace = Arc::clone(&self.namespaces.rows[row.namespace].name);
        for dependency in old.iter().flat_map(|spec| dependencies(spec, &namespace)) {
            if let Some(dependents) = self.lookups.dependents.get_mut(&dependency) {
                dependents.remove(id);
                if dependents.is_empty() {
                    self.lookups.dependents.remove(&dependency);
                }
            }
        }
        for dependency in spec.into_iter().flat_map(|spec| dependencies(spec, &namespace)) {
            self.lookups.dependents.entry(dependency).or_insert_with(IdSet::new).insert(id);
        }
    }

    pub(super) fn delete_policy(&mut self, object: &ObjectId) {
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
}

fn dependencies(spec: &PolicySpec, namespace: &str) -> BTreeSet<Dependency> {
    let group =
        |name: &String| Dependency::Group(NamespacedName { namespace: namespace.into(), name: name.clone() });
    let mut found = BTreeSet::from([Dependency::Tier(antrea::tier_name(&spec.tier).into())]);
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
