//! From ids back to names: members, spans and whole policies as consumers see them.

use std::sync::Arc;

use model::policy::output::{
    Addresses, Identifier, Member, MemberKind, NetworkPolicy, PolicySource, Rule, Span,
};
use rustc_hash::FxHashMap;

use super::super::{
    Engine,
    groups::{Group, Origin, is_member},
    policies::Record,
    spans::{Nodes, difference},
    tables::{GroupId, NodeId, PolicyId, ProfileId},
};

/// Of shorter lists only the last is remembered: to spell one costs less than to look it up.
const WORTH_SHARING: usize = 8;

/// Lists of names made in this flush. Policies over one group have one span, and one list of its names. Keys are the
/// addresses of lists that the value keeps alive.
#[derive(Debug, Default, Clone)]
pub(crate) struct Spelled {
    /// The groups made of one selector come one after the other.
    last: Option<(Nodes, Span)>,
    lists: FxHashMap<usize, (Nodes, Span)>,
    differences: FxHashMap<(usize, usize), (Nodes, Nodes, Span, Span)>,
}

impl Spelled {
    pub(super) fn clear(&mut self) {
        self.last = None;
        self.lists = FxHashMap::default();
        self.differences = FxHashMap::default();
    }
}

fn address(nodes: &Nodes) -> usize {
    nodes.as_ptr().addr()
}

impl Engine {
    pub(super) fn spell(&mut self, nodes: &Nodes) -> Span {
        if nodes.is_empty() {
            return Span::default();
        }
        if let Some((_, span)) = self.flush.spelled.last.as_ref().filter(|(last, _)| Arc::ptr_eq(last, nodes))
        {
            return span.clone();
        }
        if nodes.len() < WORTH_SHARING {
            let span = self.names(nodes);
            self.flush.spelled.last = Some((Arc::clone(nodes), span.clone()));
            return span;
        }
        if let Some((_, span)) = self.flush.spelled.lists.get(&address(nodes)) {
            return span.clone();
        }
        let span = self.names(nodes);
        self.flush.spelled.lists.insert(address(nodes), (Arc::clone(nodes), span.clone()));
        span
    }

    fn names(&self, nodes: &[NodeId]) -> Span {
        nodes.iter().map(|node| Arc::clone(self.nodes.text(*node))).collect()
    }

    /// (entered, left).
    pub(super) fn span_difference(&mut self, old: &Nodes, new: &Nodes) -> (Span, Span) {
        if Arc::ptr_eq(old, new) {
            return (Span::default(), Span::default());
        }
        let key = (address(old), address(new));
        if let Some((.., added, removed)) = self.flush.spelled.differences.get(&key) {
            return (added.clone(), removed.clone());
        }
        let (added, removed) = difference(old, new);
        let (added, removed) = (self.names(&added), self.names(&removed));
        let entry = (Arc::clone(old), Arc::clone(new), added.clone(), removed.clone());
        self.flush.spelled.differences.insert(key, entry);
        (added, removed)
    }

    pub(crate) fn members(&self, id: GroupId) -> Vec<Arc<Member>> {
        let group = &self.groups.rows[id];
        let several;
        let profiles: &[ProfileId] = match &*group.selectors {
            [] => &[],
            [only] => &self.selectors.rows[*only].profiles,
            _ => {
                several = self.profiles_of(id);
                &several
            }
        };
        let lists = profiles.iter().map(|profile| &self.entities.profiles[*profile].entities);
        let mut members = Vec::with_capacity(lists.clone().map(|entities| entities.len()).sum());
        for entity in lists.flatten() {
            let member = &self.entities.rows[*entity].member;
            if is_member(group, member) {
                members.push(self.seen_by(group, member));
            }
        }
        members
    }

    /// In the group of a Service every node stands for the Service on it.
    pub(super) fn seen_by(&self, group: &Group, member: &Arc<Member>) -> Arc<Member> {
        let Origin::Service(service) = &group.origin else { return Arc::clone(member) };
        Arc::new(Member {
            kind: MemberKind::Service,
            enforced: true,
            namespace: service.namespace.as_str().into(),
            name: service.name.as_str().into(),
            addresses: Addresses::None,
            ports: Box::default(),
            node: member.node.clone(),
        })
    }

    /// A group made of selectors is its own UID; one that has an object has the object's.
    pub(in crate::engine) fn group_uid(&self, group: &Group) -> Identifier {
        match &group.origin {
            Origin::Selection(_) | Origin::Service(_) => group.name.clone(),
            Origin::Named(name) => self.uid_of_group(name),
        }
    }

    pub(super) fn is_retitled(&self, group: &Group) -> bool {
        matches!(&group.origin, Origin::Named(name) if self.lookups.is_retitled(name))
    }

    pub(crate) fn expand(&self, id: PolicyId, record: &Record, uid: Identifier) -> NetworkPolicy {
        let row = &self.policies.rows[id];
        let names =
            |groups: &[GroupId]| groups.iter().map(|g| self.groups.rows[*g].name.clone()).collect::<Vec<_>>();
        let sorted = |groups: &[GroupId]| {
            let mut names = names(groups);
            names.sort_unstable();
            names
        };
        let rules = record.rules.iter().map(|rule| Rule {
            direction: rule.direction,
            action: rule.action,
            priority: rule.priority,
            enable_logging: rule.enable_logging || record.logging,
            address_groups: sorted(&rule.groups),
            applied_to_groups: sorted(&rule.applied_to),
            detail: rule.detail.clone(),
        });
        NetworkPolicy {
            uid,
            generation: record.generation,
            source: PolicySource {
                kind: row.kind,
                namespace: Arc::clone(&self.namespaces.rows[row.namespace].name),
                name: Arc::clone(&row.name),
                uid: record.uid.clone(),
            },
            tier_priority: record.tier_priority,
            priority: record.priority,
            rules: rules.collect(),
            applied_to_groups: sorted(&record.applied_to),
            applied_to_per_rule: record.applied_to_per_rule,
        }
    }
}
