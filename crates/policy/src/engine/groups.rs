//! Groups: which selectors they are made of, who refers to them, and what changed since consumers were last told.
//!
//! A group keeps no list of members: its selectors know the profiles and those know the entities. It keeps, for each
//! entity that was touched since the last flush, what consumers believe about it. Costs: one entity in, out or changed
//! is O(1) per group it concerns (plus O(log span) for an AppliedToGroup); a group that nobody names any more is taken
//! apart at the next flush, so that a policy update that drops and takes up the same group costs nothing.

use std::sync::Arc;

use model::policy::{
    antrea::NamespacedName,
    output::{Identifier, Member, MemberKind},
};
use rustc_hash::FxHashMap;

use super::{
    Engine,
    spans::{Nodes, Owner},
    tables::{CountedSet, EntityId, GroupId, Id, IdSet, NodeId, ProfileId, SelectorId, Slab, SpanId},
};
use crate::selection::{GroupRef, Scope, Selection};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum GroupKind {
    AppliedTo,
    Address,
}

#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) kind: GroupKind,
    pub(crate) origin: Origin,
    pub(crate) name: Identifier,
    pub(crate) selectors: IdSet<SelectorId>,
    /// AppliedToGroup: its own row. AddressGroup: the row it reads, its own if it has several sources.
    pub(crate) span: SpanId,
    /// AppliedToGroup: the policies applied to it. AddressGroup: the rows of the policies that name it. Both by index.
    pub(crate) links: CountedSet32,
    /// How many policies refer to it.
    pub(crate) references: u32,
    /// The span consumers were told; `None` if they do not know the group.
    pub(crate) told: Option<Nodes>,
    /// What consumers believe of each entity touched since: `None`, that it is no member.
    pub(crate) believed: Option<Box<FxHashMap<EntityId, Option<Arc<Member>>>>>,
    pub(crate) changed: bool,
}

pub(crate) type CountedSet32 = CountedSet<u32>;

impl Id for u32 {
    fn from_index(index: usize) -> Self {
        u32::try_from(index).expect("fewer than 2^32 rows fit in memory")
    }
    fn index(self) -> usize {
        self as usize
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Two spellings of one selector are two names and one selector row.
    Selection(Spelling),
    Named(Box<NamespacedName>),
    /// Its members are this Service on every node.
    Service(Box<NamespacedName>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spelling {
    scope: ScopeSpelling,
    has_selector: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScopeSpelling {
    Namespace,
    Matching,
    Everywhere,
}

impl Spelling {
    fn of(selection: &Selection<'_>) -> Self {
        let scope = match selection.scope {
            Scope::Namespace(_) => ScopeSpelling::Namespace,
            Scope::Matching(_) => ScopeSpelling::Matching,
            Scope::Everywhere => ScopeSpelling::Everywhere,
        };
        Spelling { scope, has_selector: selection.selector.is_some() }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Groups {
    pub(crate) rows: Slab<GroupId, Group>,
    named: FxHashMap<(GroupKind, NamespacedName), GroupId>,
    services: FxHashMap<NamespacedName, GroupId>,
    pub(crate) changed: Vec<GroupId>,
}

impl Groups {
    pub(crate) fn new() -> Self {
        let (named, services) = (FxHashMap::default(), FxHashMap::default());
        Groups { rows: Slab::new(), named, services, changed: Vec::new() }
    }

    pub(crate) fn named(&self, kind: GroupKind, name: &NamespacedName) -> Option<GroupId> {
        self.named.get(&(kind, name.clone())).copied()
    }
}

impl Engine {
    /// Finds or makes the group, without a reference: the caller's policy takes one.
    /// `last` is the selection met before, which is often the same.
    pub(super) fn intern_group<'g>(
        &mut self,
        kind: GroupKind,
        group: &'g GroupRef<'_>,
        last: &mut Option<(&'g Selection<'g>, SelectorId)>,
    ) -> GroupId {
        match group {
            GroupRef::Selection(selection) => {
                let selector = match last {
                    Some((same, selector)) if **same == *selection => *selector,
                    _ => self.intern_selection(selection),
                };
                *last = Some((selection, selector));
                self.intern_selected(kind, selection, selector, group)
            }
            GroupRef::Named(name) => {
                if let Some(id) = self.groups.named(kind, name) {
                    return id;
                }
                let id =
                    self.insert_group(kind, Origin::Named(Box::new(name.clone().into_owned())), group.name());
                self.groups.named.insert((kind, name.clone().into_owned()), id);
                let selectors = self.named_selectors(name);
                self.set_selectors(id, selectors);
                id
            }
            GroupRef::Service(name) => {
                if let Some(id) = self.groups.services.get(&**name) {
                    return *id;
                }
                let id = self.insert_group(
                    kind,
                    Origin::Service(Box::new(name.clone().into_owned())),
                    group.name(),
                );
                self.groups.services.insert(name.clone().into_owned(), id);
                let nodes = Selection { kind: MemberKind::Node, scope: Scope::Everywhere, selector: None };
                let selector = self.intern_selection(&nodes);
                self.set_selectors(id, [selector].into_iter().collect());
                id
            }
        }
    }

    fn intern_selected(
        &mut self,
        kind: GroupKind,
        selection: &Selection<'_>,
        selector: SelectorId,
        group: &GroupRef<'_>,
    ) -> GroupId {
        let origin = Origin::Selection(Spelling::of(selection));
        let mut name = None;
        for id in self.selectors.rows[selector].groups.iter() {
            let row = &self.groups.rows[*id];
            if row.origin == origin {
                if row.kind == kind {
                    return *id;
                }
                name = Some(row.name.clone());
            }
        }
        let name = name.unwrap_or_else(|| group.name());
        let id = self.insert_group(kind, origin, name);
        self.set_selectors(id, [selector].into_iter().collect());
        id
    }

    fn insert_group(&mut self, kind: GroupKind, origin: Origin, name: Identifier) -> GroupId {
        let id = self.groups.rows.insert(Group {
            kind,
            origin,
            name,
            selectors: IdSet::new(),
            span: self.nowhere,
            links: CountedSet::new(),
            references: 0,
            told: None,
            believed: None,
            changed: false,
        });
        if kind == GroupKind::AppliedTo {
            self.groups.rows[id].span = self.spans.insert(Owner::Group(id));
        }
        self.mark_group(id);
        id
    }

    pub(super) fn mark_group(&mut self, id: GroupId) {
        let row = &mut self.groups.rows[id];
        if !row.changed {
            row.changed = true;
            self.groups.changed.push(id);
        }
    }

    /// O(members that come or go). The selectors in `new` may be fresh; those left without a group are dropped.
    pub(super) fn set_selectors(&mut self, group: GroupId, new: IdSet<SelectorId>) {
        if self.groups.rows[group].selectors.is_empty() && new.len() == 1 {
            return self.set_first_selector(group, new[0]);
        }
        let old_profiles = self.profiles_of(group);
        let old = std::mem::replace(&mut self.groups.rows[group].selectors, new.clone());
        for selector in new.iter() {
            self.selectors.rows[*selector].groups.insert(group);
        }
        for selector in old.iter().filter(|s| !new.contains(**s)) {
            self.selectors.rows[*selector].groups.remove(group);
        }
        let new_profiles = self.profiles_of(group);
        for profile in new_profiles.iter().filter(|p| old_profiles.binary_search(p).is_err()) {
            for at in 0..self.entities.profiles[*profile].entities.len() {
                self.enter(group, self.entities.profiles[*profile].entities[at]);
            }
        }
        for profile in old_profiles.iter().filter(|p| new_profiles.binary_search(p).is_err()) {
            for at in 0..self.entities.profiles[*profile].entities.len() {
                let entity = self.entities.profiles[*profile].entities[at];
                let row = &self.entities.rows[entity];
                let (member, node) = (Arc::clone(&row.member), row.node);
                self.leave(group, entity, &member, node);
            }
        }
        for selector in old.iter().filter(|s| !new.contains(**s)) {
            self.drop_if_unused(*selector);
        }
    }

    /// The usual case, without the lists it takes to compare two sets.
    fn set_first_selector(&mut self, group: GroupId, selector: SelectorId) {
        self.groups.rows[group].selectors.insert(selector);
        self.selectors.rows[selector].groups.insert(group);
        for p in 0..self.selectors.rows[selector].profiles.len() {
            let profile = self.selectors.rows[selector].profiles[p];
            for at in 0..self.entities.profiles[profile].entities.len() {
                self.enter(group, self.entities.profiles[profile].entities[at]);
            }
        }
    }

    /// Ascending, each once.
    pub(crate) fn profiles_of(&self, group: GroupId) -> Vec<ProfileId> {
        let selectors = &self.groups.rows[group].selectors;
        let profiles =
            selectors.iter().flat_map(|selector| self.selectors.rows[*selector].profiles.iter().copied());
        let mut profiles: Vec<ProfileId> = profiles.collect();
        if selectors.len() > 1 {
            profiles.sort_unstable();
            profiles.dedup();
        }
        profiles
    }

    pub(super) fn enter(&mut self, group: GroupId, entity: EntityId) {
        let row = &self.entities.rows[entity];
        let counts = self.counts(group, &row.member);
        let node = row.node;
        self.touch(group, entity, || None);
        if counts {
            self.count(group, node);
        }
    }

    pub(super) fn leave(
        &mut self,
        group: GroupId,
        entity: EntityId,
        was: &Arc<Member>,
        was_on: Option<NodeId>,
    ) {
        self.touch(group, entity, || Some(Arc::clone(was)));
        if self.counts(group, was) {
            self.discount(group, was_on);
        }
    }

    /// The entity stays in the group and is another record now.
    pub(super) fn refresh(
        &mut self,
        group: GroupId,
        entity: EntityId,
        was: &Arc<Member>,
        was_on: Option<NodeId>,
    ) {
        self.touch(group, entity, || Some(Arc::clone(was)));
        let row = &self.entities.rows[entity];
        let node = row.node;
        let (counted, counts) = (self.counts(group, was), self.counts(group, &row.member));
        if counted && counts && was_on == node {
            return;
        }
        if counts {
            self.count(group, node);
        }
        if counted {
            self.discount(group, was_on);
        }
    }

    /// Remembers what consumers believe, the first time only; a group they do not know yet is told in full.
    fn touch(&mut self, group: GroupId, entity: EntityId, believed: impl FnOnce() -> Option<Arc<Member>>) {
        let row = &mut self.groups.rows[group];
        if row.told.is_some() {
            row.believed.get_or_insert_default().entry(entity).or_insert_with(believed);
            self.mark_group(group);
        }
    }

    /// Whether a matched workload is a member of the AppliedToGroup, and so counts for its span.
    fn counts(&self, group: GroupId, member: &Member) -> bool {
        let row = &self.groups.rows[group];
        row.kind == GroupKind::AppliedTo && is_member(row, member)
    }

    fn count(&mut self, group: GroupId, node: Option<NodeId>) {
        let node = node.expect("members of an AppliedToGroup have a node");
        self.spans.increment(self.groups.rows[group].span, node);
    }

    fn discount(&mut self, group: GroupId, node: Option<NodeId>) {
        let node = node.expect("members of an AppliedToGroup have a node");
        self.spans.decrement(self.groups.rows[group].span, node);
    }

    /// Called at a flush for a group no policy names.
    pub(super) fn take_apart(&mut self, id: GroupId) {
        let selectors = std::mem::replace(&mut self.groups.rows[id].selectors, IdSet::new());
        let row = self.groups.rows.remove(id);
        for selector in selectors.iter() {
            self.selectors.rows[*selector].groups.remove(id);
            self.drop_if_unused(*selector);
        }
        if row.kind == GroupKind::AppliedTo {
            self.spans.remove(row.span);
        }
        match row.origin {
            Origin::Selection(_) => {}
            Origin::Named(name) => drop(self.groups.named.remove(&(row.kind, *name))),
            Origin::Service(name) => drop(self.groups.services.remove(&*name)),
        }
    }
}

/// Whether a workload its selectors match is a member. A namespaced Group given as appliedTo never reaches into another
/// namespace: its policy has no say there.
pub(crate) fn is_member(group: &Group, member: &Member) -> bool {
    match (group.kind, &group.origin) {
        (GroupKind::Address, _) => member.is_address_member(),
        (GroupKind::AppliedTo, Origin::Named(name)) if !name.namespace.is_empty() => {
            member.is_applied_to_member() && *member.namespace == *name.namespace
        }
        (GroupKind::AppliedTo, _) => member.is_applied_to_member(),
    }
}
