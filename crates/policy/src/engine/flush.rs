//! The flush: from what was touched to updates, in an order that leaves no reference dangling on any node.
//!
//! ```text
//!  settle ─► 1 groups grow ─► 2 policies ─► 3 groups shrink ─► 4 statuses ─► tidy
//!            added; members;   added and     nodes that no
//!            nodes that need   updated, then longer need it,
//!            the group now     removed       groups removed
//! ```
//!
//! A group is on a node from before the first policy there that names it until after the last. A member that is the
//! last one of an AppliedToGroup on its node goes with the node in step 3, so a workload that moves is on its new node
//! before it is off its old one.

mod expand;

use std::{collections::VecDeque, sync::Arc};

use model::policy::output::{Change, GroupUpdate, Identifier, Member, PolicyUpdate, Span, Update};
use rustc_hash::FxHashMap;

use super::{
    Engine,
    groups::{GroupKind, is_member},
    policies::Told,
    spans::{Nodes, Owner},
    tables::{EntityId, GroupId, Id, PolicyId, SpanId},
};

#[derive(Debug, Default, Clone)]
pub(crate) struct Flush {
    step: Step,
    /// Work lists, consumed from the end.
    groups: Vec<GroupId>,
    policies: Vec<PolicyId>,
    shrinking: Vec<(GroupKind, GroupUpdate)>,
    unnamed: Vec<GroupId>,
    /// What was told under names that are no longer their policies'.
    vacated: FxHashMap<Identifier, (PolicyId, Told)>,
    retracting: Vec<(Identifier, (PolicyId, Told))>,
    gone: Vec<PolicyId>,
    /// Updates of a flush that an event cut short.
    ready: VecDeque<Update>,
    spelled: expand::Spelled,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Step {
    #[default]
    Idle,
    Grow,
    Policies,
    Vacate,
    Shrink,
    Status,
}

/// What becomes of a group's members.
#[derive(Default)]
struct Changes {
    added: Vec<Arc<Member>>,
    removed: Vec<Arc<Member>>,
    readdressed: Vec<Arc<Member>>,
}

impl Engine {
    pub(super) fn next_update(&mut self) -> Option<Update> {
        if let Some(update) = self.flush.ready.pop_front() {
            return Some(update);
        }
        if self.flush.step == Step::Idle {
            self.begin_flush();
        }
        self.step()
    }

    /// Makes the rest of a flush in progress, so that the state may change under it.
    pub(super) fn finish_flush(&mut self) {
        while self.flush.step != Step::Idle {
            if let Some(update) = self.step() {
                self.flush.ready.push_back(update);
            }
        }
    }

    fn begin_flush(&mut self) {
        self.settle();
        for row in self.spans.take_changed() {
            self.mark_readers(row);
        }
        self.flush.groups = std::mem::take(&mut self.groups.changed);
        self.flush.policies = std::mem::take(&mut self.policies.changed);
        self.flush.step = Step::Grow;
    }

    /// Everyone whose span is this row.
    fn mark_readers(&mut self, row: SpanId) {
        match self.spans.get(row).owner {
            Owner::Nobody => {}
            Owner::Group(group) => {
                self.mark_group(group);
                if self.groups.rows[group].kind == GroupKind::AppliedTo {
                    for policy in
                        self.groups.rows[group].links.ids().map(|id| PolicyId::from_index(id as usize))
                    {
                        if self.policies.rows[policy].span == row {
                            self.policies.mark(policy);
                        }
                    }
                }
            }
            Owner::Policy(policy) => self.policies.mark(policy),
        }
        for at in 0..self.spans.get(row).readers.len() {
            self.mark_group(self.spans.get(row).readers[at]);
        }
    }

    fn step(&mut self) -> Option<Update> {
        loop {
            match self.flush.step {
                Step::Idle => return None,
                Step::Grow => match self.flush.groups.pop() {
                    Some(group) => {
                        if let Some(update) = self.grow(group) {
                            return Some(wrap(self.groups.rows[group].kind, update));
                        }
                    }
                    None => {
                        self.vacate_names();
                        self.flush.step = Step::Policies;
                    }
                },
                Step::Policies => match self.flush.policies.pop() {
                    Some(policy) => {
                        if let Some(update) = self.tell_policy(policy) {
                            return Some(Update::NetworkPolicy(update));
                        }
                    }
                    None => {
                        self.flush.retracting = std::mem::take(&mut self.flush.vacated).into_iter().collect();
                        self.flush.step = Step::Vacate;
                    }
                },
                Step::Vacate => match self.flush.retracting.pop() {
                    Some((name, (id, told))) => {
                        return Some(Update::NetworkPolicy(self.retract(name, id, &told)));
                    }
                    None => self.flush.step = Step::Shrink,
                },
                Step::Shrink => {
                    if let Some(update) = self.shrink() {
                        return Some(update);
                    }
                    self.flush.step = Step::Status;
                }
                Step::Status => {
                    if let Some(update) = self.problems.next_change() {
                        return Some(Update::Status(update));
                    }
                    self.tidy();
                    self.flush.step = Step::Idle;
                }
            }
        }
    }

    fn grow(&mut self, id: GroupId) -> Option<GroupUpdate> {
        let row = &mut self.groups.rows[id];
        row.changed = false;
        if row.references == 0 {
            self.flush.unnamed.push(id);
            return None;
        }
        let believed = row.believed.take();
        let nodes = self.spans.list(row.span);
        let Some(told) = row.told.replace(Arc::clone(&nodes)) else {
            return Some(self.introduce(id, &nodes));
        };
        let (span_added, span_removed) = self.span_difference(&told, &nodes);
        let Changes { added, mut removed, readdressed } =
            believed.map(|believed| self.member_changes(id, &believed)).unwrap_or_default();
        let row = &self.groups.rows[id];
        let blank = GroupUpdate {
            name: row.name.clone(),
            uid: self.group_uid(row),
            change: Change::Updated,
            added: Vec::new(),
            removed: Vec::new(),
            readdressed: Vec::new(),
            span_added: Span::default(),
            span_removed: Span::default(),
        };
        if !span_removed.is_empty() {
            let goes =
                |m: &Arc<Member>| m.node.as_ref().is_some_and(|n| span_removed.binary_search(n).is_ok());
            let leaving = match row.kind {
                GroupKind::AppliedTo => removed.extract_if(.., |member| goes(member)).collect(),
                GroupKind::Address => Vec::new(),
            };
            let update = GroupUpdate { removed: leaving, span_removed, ..blank.clone() };
            self.flush.shrinking.push((row.kind, update));
        }
        let says_nothing = added.is_empty() && removed.is_empty() && readdressed.is_empty();
        if says_nothing && span_added.is_empty() && !self.is_retitled(row) {
            return None;
        }
        Some(GroupUpdate { added, removed, readdressed, span_added, ..blank })
    }

    fn introduce(&mut self, id: GroupId, nodes: &Nodes) -> GroupUpdate {
        let span_added = self.spell(nodes);
        let row = &self.groups.rows[id];
        GroupUpdate {
            name: row.name.clone(),
            uid: self.group_uid(row),
            change: Change::Added,
            added: self.members(id),
            removed: Vec::new(),
            readdressed: Vec::new(),
            span_added,
            span_removed: Span::default(),
        }
    }

    /// By each entity that was touched: what consumers believe against what is.
    fn member_changes(&self, id: GroupId, believed: &FxHashMap<EntityId, Option<Arc<Member>>>) -> Changes {
        let group = &self.groups.rows[id];
        let Changes { mut added, mut removed, mut readdressed } = Changes::default();
        for (entity, was) in believed {
            let was = was.as_ref().filter(|member| is_member(group, member));
            let row = &self.entities.rows[*entity];
            let matched = row.profile.is_some_and(|profile| self.has_profile(id, profile));
            let now = matched.then_some(&row.member).filter(|member| is_member(group, member));
            if let (Some(was), Some(now)) = (was, now) {
                let same_key = match group.kind {
                    GroupKind::AppliedTo => was.same_applied_to_key(now),
                    GroupKind::Address => was.same_address_key(now),
                };
                if same_key && was.ports == now.ports {
                    // The same key of an AddressGroup is the same addresses.
                    let (was, now) = (self.seen_by(group, was), self.seen_by(group, now));
                    if was.addresses != now.addresses {
                        readdressed.push(now);
                    }
                    continue;
                }
                if same_key {
                    added.push(self.seen_by(group, now));
                    continue;
                }
            }
            added.extend(now.map(|member| self.seen_by(group, member)));
            removed.extend(was.map(|member| self.seen_by(group, member)));
        }
        Changes { added, removed, readdressed }
    }

    /// Sets aside what was told under names that are no longer right.
    fn vacate_names(&mut self) {
        for at in 0..self.flush.policies.len() {
            let id = self.flush.policies[at];
            let row = &self.policies.rows[id];
            if row.record.is_none() {
                self.flush.gone.push(id);
            }
            let Some(told) = &row.told else { continue };
            let keeps = row.record.as_ref().is_some_and(|record| {
                record.uid == told.record.uid && self.is_derived(id, &record.uid) == told.derived
            });
            if !keeps {
                let name = self.policy_name(id, &told.record.uid, told.derived);
                let told = self.policies.rows[id].told.take().expect("it was just looked at");
                self.flush.vacated.insert(name, (id, told));
            }
        }
    }

    fn tell_policy(&mut self, id: PolicyId) -> Option<PolicyUpdate> {
        self.policies.rows[id].changed = false;
        let record = Arc::clone(self.policies.rows[id].record.as_ref()?);
        let derived = self.is_derived(id, &record.uid);
        let uid = self.policy_name(id, &record.uid, derived);
        let span = self.spans.list(self.policies.rows[id].span);
        let told = Told { record: Arc::clone(&record), span: Arc::clone(&span), derived };
        let before = self.policies.rows[id].told.replace(told);
        let (before, content_changed) = match before {
            Some(before) => {
                let changed = !Arc::ptr_eq(&before.record, &record) && *before.record != *record;
                (Some(before), changed)
            }
            // The name may be one that another policy gives up in this flush.
            None => (self.flush.vacated.remove(&uid).map(|(_, told)| told), true),
        };
        let Some(before) = before else {
            let (span_added, span_removed) = (self.spell(&span), Span::default());
            let policy = Arc::new(self.expand(id, &record, uid.clone()));
            return Some(PolicyUpdate {
                uid,
                change: Change::Added,
                policy,
                content_changed,
                span_added,
                span_removed,
            });
        };
        let (span_added, span_removed) = self.span_difference(&before.span, &span);
        if !content_changed && span_added.is_empty() && span_removed.is_empty() {
            return None;
        }
        let policy = Arc::new(self.expand(id, &record, uid.clone()));
        Some(PolicyUpdate { uid, change: Change::Updated, policy, content_changed, span_added, span_removed })
    }

    fn retract(&mut self, uid: Identifier, id: PolicyId, told: &Told) -> PolicyUpdate {
        let policy = Arc::new(self.expand(id, &told.record, uid.clone()));
        let span_removed = self.spell(&told.span);
        let span_added = Span::default();
        PolicyUpdate { uid, change: Change::Removed, policy, content_changed: true, span_added, span_removed }
    }

    fn shrink(&mut self) -> Option<Update> {
        if let Some((kind, update)) = self.flush.shrinking.pop() {
            return Some(wrap(kind, update));
        }
        while let Some(id) = self.flush.unnamed.pop() {
            let row = &mut self.groups.rows[id];
            let (kind, told) = (row.kind, row.told.take());
            let update = told.map(|told| {
                let span_removed = self.spell(&told);
                let row = &self.groups.rows[id];
                GroupUpdate {
                    name: row.name.clone(),
                    uid: self.group_uid(row),
                    change: Change::Removed,
                    added: Vec::new(),
                    removed: Vec::new(),
                    readdressed: Vec::new(),
                    span_added: Span::default(),
                    span_removed,
                }
            });
            self.take_apart(id);
            if let Some(update) = update {
                return Some(wrap(kind, update));
            }
        }
        None
    }

    fn tidy(&mut self) {
        self.bury_entities();
        for node in std::mem::take(&mut self.idle_nodes) {
            self.nodes.forget(node);
        }
        for id in std::mem::take(&mut self.flush.gone) {
            let namespace = self.policies.bury(id);
            self.namespaces.rows[namespace].policies.remove(id);
            self.namespaces.release(namespace);
        }
        self.flush.spelled.clear();
        self.forget_retitled();
    }
}

fn wrap(kind: GroupKind, update: GroupUpdate) -> Update {
    match kind {
        GroupKind::AppliedTo => Update::AppliedToGroup(update),
        GroupKind::Address => Update::AddressGroup(update),
    }
}
