//! Workloads (Pods, external entities, Nodes) and the label sets they share.
//!
//! ```text
//!  Entity ──► Profile (kind, namespace, labels) ◄──► Selector ──► Group
//! ```
//!
//! An entity is in exactly one profile, and selectors match profiles, not entities: a thousand replicas are matched
//! once. Costs: a known label set is a hash lookup; a new one asks the indexes of its namespace and of the namespace
//! selectors that match it; a change of address or node touches the groups the entity is in and nothing else.

use std::{cell::OnceCell, net::IpAddr, sync::Arc};

use model::policy::output::{Addresses, Member, MemberKind, NamedPort};
use smallvec::SmallVec;

use super::{
    Engine,
    lookup::{KeyHash, Lookup},
    matching::{LabelIndex, LabelSet, matches},
    tables::{EntityId, GroupId, IdSet, NamespaceId, NodeId, ProfileId, SelectorId, Slab, Symbol},
};

#[derive(Debug, Clone)]
pub(crate) struct Entity {
    pub(crate) member: Arc<Member>,
    /// `None`: deleted, and kept until the next flush so that a re-creation finds what consumers were told before.
    pub(crate) profile: Option<ProfileId>,
    /// Where it stands in its profile's list.
    at: u32,
    pub(crate) node: Option<NodeId>,
}

impl Entity {
    fn is(&self, kind: MemberKind, namespace: &str, name: &str) -> bool {
        self.member.kind == kind && *self.member.name == *name && *self.member.namespace == *namespace
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) kind: MemberKind,
    pub(crate) namespace: NamespaceId,
    pub(crate) labels: LabelSet,
    /// Unordered; entities know their place.
    pub(crate) entities: SmallVec<[EntityId; 4]>,
    pub(crate) selectors: IdSet<SelectorId>,
}

#[derive(Debug, Clone)]
pub(crate) struct Entities {
    pub(crate) rows: Slab<EntityId, Entity>,
    by_name: Lookup<EntityId>,
    dead: Vec<EntityId>,
    pub(crate) profiles: Slab<ProfileId, Profile>,
    by_labels: Lookup<ProfileId>,
    pub(crate) profile_index: LabelIndex<ProfileId>,
    /// Live entities under each of their addresses (by its place in the list). Made when it is first asked for.
    by_address: OnceCell<Lookup<(EntityId, u8)>>,
}

/// What is said about a workload, before it is compared with what is known.
pub(crate) struct Described<'a> {
    pub(crate) kind: MemberKind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) labels: SmallVec<[(Symbol, Symbol); 8]>,
    pub(crate) enforced: bool,
    pub(crate) addresses: Addresses,
    pub(crate) ports: Box<[NamedPort]>,
    pub(crate) node: Option<&'a str>,
}

impl Entities {
    pub(crate) fn new() -> Self {
        Entities {
            rows: Slab::new(),
            by_name: Lookup::new(),
            dead: Vec::new(),
            profiles: Slab::new(),
            by_labels: Lookup::new(),
            profile_index: LabelIndex::new(),
            by_address: OnceCell::new(),
        }
    }

    /// Finds the dead too.
    fn find(&self, kind: MemberKind, namespace: &str, name: &str) -> Option<EntityId> {
        self.by_name.find(hash(kind, namespace, name), |id| self.rows[id].is(kind, namespace, name))
    }

    pub(crate) fn live(&self, kind: MemberKind, namespace: &str, name: &str) -> Option<EntityId> {
        self.find(kind, namespace, name).filter(|id| self.rows[*id].profile.is_some())
    }

    fn index_addresses(&mut self, id: EntityId) {
        if let Some(index) = self.by_address.get_mut() {
            address_keys(&self.rows[id].member).for_each(|(hash, at)| index.add(hash, (id, at)));
        }
    }

    fn unindex_addresses(&mut self, id: EntityId) {
        if let Some(index) = self.by_address.get_mut() {
            address_keys(&self.rows[id].member).for_each(|(hash, at)| index.remove(hash, (id, at)));
        }
    }

    /// Every live workload that claims the address: two may.
    pub(crate) fn with_address(&self, address: IpAddr) -> impl Iterator<Item = EntityId> {
        let index = self.by_address.get_or_init(|| {
            let mut index = Lookup::new();
            for (id, row) in self.rows.iter().filter(|(_, row)| row.profile.is_some()) {
                address_keys(&row.member).for_each(|(hash, at)| index.add(hash, (id, at)));
            }
            index
        });
        index
            .all(KeyHash::of(&address))
            .filter(move |(id, at)| self.rows[*id].member.addresses.as_slice()[*at as usize] == address)
            .map(|(id, _)| id)
    }

    fn join(&mut self, id: EntityId, profile: ProfileId) {
        let entities = &mut self.profiles[profile].entities;
        entities.push(id);
        let at = (entities.len() - 1) as u32;
        let row = &mut self.rows[id];
        (row.profile, row.at) = (Some(profile), at);
    }

    fn quit(&mut self, id: EntityId, profile: ProfileId) {
        let at = self.rows[id].at as usize;
        let entities = &mut self.profiles[profile].entities;
        entities.swap_remove(at);
        if let Some(moved) = entities.get(at) {
            self.rows[*moved].at = at as u32;
        }
        self.rows[id].profile = None;
    }
}

/// More than 256 addresses of one workload are not looked up by address.
fn address_keys(member: &Member) -> impl Iterator<Item = (KeyHash, u8)> {
    member.addresses.as_slice().iter().map(KeyHash::of).zip(0..=u8::MAX)
}

fn hash(kind: MemberKind, namespace: &str, name: &str) -> KeyHash {
    KeyHash::of(&(kind as u8, namespace, name))
}

fn hash_of(member: &Member) -> KeyHash {
    hash(member.kind, &member.namespace, &member.name)
}

impl Engine {
    /// A workload by its name.
    pub fn member(&self, kind: MemberKind, namespace: &str, name: &str) -> Option<&Arc<Member>> {
        self.entities.live(kind, namespace, name).map(|id| &self.entities.rows[id].member)
    }

    /// Every workload, in no order.
    pub fn all_members(&self) -> impl Iterator<Item = &Arc<Member>> {
        let live = self.entities.rows.iter().filter(|(_, entity)| entity.profile.is_some());
        live.map(|(_, entity)| &entity.member)
    }

    /// Whether a namespace's object is known, so that selectors can tell it by its labels.
    pub fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.find(name).is_some_and(|id| self.namespaces.rows[id].known)
    }

    pub(super) fn put_entity(&mut self, described: Described<'_>) {
        let namespace = self.namespaces.acquire(described.namespace);
        let profile = self.profile(described.kind, namespace, &described.labels);
        let node = described.node.map(|text| self.nodes.intern(text));
        node.inspect(|node| self.nodes.acquire(*node));
        let member = Member {
            kind: described.kind,
            enforced: described.enforced,
            namespace: Arc::clone(&self.namespaces.rows[namespace].name),
            name: described.name.into(),
            addresses: described.addresses,
            ports: described.ports,
            node: node.map(|node| Arc::clone(self.nodes.text(node))),
        };
        let Entities { rows, by_name, .. } = &mut self.entities;
        let is = |id: EntityId| rows[id].is(described.kind, described.namespace, described.name);
        match by_name.find_or_vacancy(hash_of(&member), is) {
            Ok(id) => self.change_entity(id, profile, member, node),
            Err(vacancy) => {
                let id = rows.insert(Entity { member: Arc::new(member), profile: None, at: 0, node });
                vacancy.fill(id);
                self.entities.index_addresses(id);
                self.enter_profile(id, profile);
            }
        }
        self.namespaces.release(namespace);
    }

    fn change_entity(&mut self, id: EntityId, profile: ProfileId, member: Member, node: Option<NodeId>) {
        let row = &self.entities.rows[id];
        let old_profile = row.profile;
        if old_profile == Some(profile) && *row.member == member {
            self.release_node(node);
            return;
        }
        if old_profile.is_some() {
            self.entities.unindex_addresses(id);
        }
        let row = &mut self.entities.rows[id];
        let member = if *row.member == member { Arc::clone(&row.member) } else { Arc::new(member) };
        let old_member = std::mem::replace(&mut row.member, member);
        let old_node = std::mem::replace(&mut row.node, node);
        self.entities.index_addresses(id);
        let Some(old_profile) = old_profile else {
            self.enter_profile(id, profile);
            self.release_node(old_node);
            return;
        };
        if old_profile == profile {
            for group in self.groups_of(profile) {
                self.refresh(group, id, &old_member, old_node);
            }
        } else {
            let (old_groups, new_groups) = (self.groups_of(old_profile), self.groups_of(profile));
            self.entities.quit(id, old_profile);
            self.entities.join(id, profile);
            // What is entered comes before what is left, so that a node both sides share is not seen to leave.
            for group in &new_groups {
                match old_groups.binary_search(group) {
                    Ok(_) => self.refresh(*group, id, &old_member, old_node),
                    Err(_) => self.enter(*group, id),
                }
            }
            for group in old_groups.iter().filter(|g| new_groups.binary_search(g).is_err()) {
                self.leave(*group, id, &old_member, old_node);
            }
            self.drop_if_empty(old_profile);
        }
        self.release_node(old_node);
    }

    fn enter_profile(&mut self, id: EntityId, profile: ProfileId) {
        self.entities.join(id, profile);
        for group in self.groups_of(profile) {
            self.enter(group, id);
        }
    }

    pub(super) fn delete_entity(&mut self, kind: MemberKind, namespace: &str, name: &str) {
        let Some(id) = self.entities.live(kind, namespace, name) else { return };
        let row = &self.entities.rows[id];
        let (member, node) = (Arc::clone(&row.member), row.node);
        let profile = row.profile.expect("live entities have a profile");
        self.entities.unindex_addresses(id);
        self.entities.quit(id, profile);
        for group in self.groups_of(profile) {
            self.leave(group, id, &member, node);
        }
        self.drop_if_empty(profile);
        self.entities.rows[id].node = None;
        self.release_node(node);
        self.entities.dead.push(id);
    }

    /// Called when everything is told: nobody needs the deleted any more.
    pub(super) fn bury_entities(&mut self) {
        for id in std::mem::take(&mut self.entities.dead) {
            // An entity deleted twice between two flushes is in the list twice.
            let Some(row) = self.entities.rows.get(id).filter(|row| row.profile.is_none()) else { continue };
            self.entities.by_name.remove(hash_of(&row.member), id);
            self.entities.rows.remove(id);
        }
    }

    fn release_node(&mut self, node: Option<NodeId>) {
        if let Some(node) = node
            && self.nodes.release(node)
        {
            self.idle_nodes.push(node);
        }
    }

    /// All groups a profile's entities are in, ascending, each once.
    pub(crate) fn groups_of(&self, profile: ProfileId) -> SmallVec<[GroupId; 8]> {
        let selectors = &self.entities.profiles[profile].selectors;
        let groups =
            selectors.iter().flat_map(|selector| self.selectors.rows[*selector].groups.iter().copied());
        let mut groups: SmallVec<[GroupId; 8]> = groups.collect();
        if selectors.len() > 1 {
            groups.sort_unstable();
            groups.dedup();
        }
        groups
    }

    /// Finds or makes the profile.
    fn profile(
        &mut self,
        kind: MemberKind,
        namespace: NamespaceId,
        labels: &[(Symbol, Symbol)],
    ) -> ProfileId {
        let hash = profile_hash(kind, namespace, labels);
        let is = |id: ProfileId| {
            let row = &self.entities.profiles[id];
            row.namespace == namespace && row.kind == kind && *row.labels == *labels
        };
        if let Some(id) = self.entities.by_labels.find(hash, is) {
            return id;
        }
        self.namespaces.retain(namespace);
        labels.iter().for_each(|(k, v)| self.acquire_label(*k, *v));
        let selectors: IdSet<SelectorId> = self.selectors_for(kind, namespace, labels).into_iter().collect();
        let id = self.entities.profiles.insert(Profile {
            kind,
            namespace,
            labels: labels.into(),
            entities: SmallVec::new(),
            selectors: selectors.clone(),
        });
        for selector in selectors.iter() {
            self.selectors.rows[*selector].profiles.insert(id);
        }
        self.entities.by_labels.add(hash, id);
        self.entities.profile_index.insert(id, labels);
        self.namespaces.rows[namespace].profiles.insert(id, labels);
        id
    }

    fn selectors_for(
        &self,
        kind: MemberKind,
        namespace: NamespaceId,
        labels: &[(Symbol, Symbol)],
    ) -> Vec<SelectorId> {
        let mut selectors = Vec::new();
        let mut check = |id: SelectorId| {
            let row = &self.selectors.rows[id];
            if row.kind == kind && matches(&row.terms, labels) {
                selectors.push(id);
            }
        };
        let namespace = &self.namespaces.rows[namespace];
        namespace.selectors.candidates(labels, &mut check);
        for over in namespace.matched_by.iter() {
            self.namespaces.selectors[*over].selectors.candidates(labels, &mut check);
        }
        selectors
    }

    fn drop_if_empty(&mut self, id: ProfileId) {
        if !self.entities.profiles[id].entities.is_empty() {
            return;
        }
        let row = self.entities.profiles.remove(id);
        let hash = profile_hash(row.kind, row.namespace, &row.labels);
        self.entities.by_labels.remove(hash, id);
        self.entities.profile_index.remove(id, &row.labels);
        self.namespaces.rows[row.namespace].profiles.remove(id, &row.labels);
        for selector in row.selectors.iter() {
            self.selectors.rows[*selector].profiles.remove(id);
        }
        self.release_labels(&row.labels);
        self.namespaces.release(row.namespace);
    }
}

fn profile_hash(kind: MemberKind, namespace: NamespaceId, labels: &[(Symbol, Symbol)]) -> KeyHash {
    KeyHash::of(&(kind as u8, namespace, labels))
}
