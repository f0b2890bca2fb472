//! Policies: their compiled rules over group ids, their references to groups, their row of the spans.
//!
//! Kubernetes policies are compiled once and their text is not kept. Antrea policies depend on tiers, groups and
//! namespaces, so their text stays and they are compiled again, at the next flush, when one of those changed.
//! Cost of one policy: O(its rules), plus O(its span) when it is applied to several groups.

use std::sync::Arc;

use model::policy::{
    Kind, ObjectId,
    output::{Action, Detail, Direction, Identifier},
};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::{
    Engine,
    groups::GroupKind,
    lookup::{KeyHash, Lookup},
    spans::{Nodes, Owner},
    tables::{GroupId, Id, IdSet, NamespaceId, PolicyId, Slab, SpanId},
};
use crate::{selection::name_uuid, translate::Translation};

#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) kind: Kind,
    pub(crate) namespace: NamespaceId,
    pub(crate) name: Arc<str>,
    /// `None` after a delete, until the next flush.
    pub(crate) record: Option<Arc<Record>>,
    /// Of Antrea policies, to be compiled again. As text: a tenth of what the parsed form takes, and rarely read.
    pub(crate) spec: Option<Box<str>>,
    pub(crate) span: SpanId,
    pub(crate) told: Option<Told>,
    pub(crate) changed: bool,
    pub(crate) stale: bool,
}

/// What consumers know of the policy.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) record: Arc<Record>,
    pub(crate) span: Nodes,
    /// Whether it went out under its own UID, or under a derived one because another object claims the same.
    pub(crate) derived: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    pub(crate) uid: Identifier,
    pub(crate) generation: i64,
    pub(crate) tier_priority: Option<i32>,
    pub(crate) priority: Option<f64>,
    pub(crate) applied_to_per_rule: bool,
    /// Kubernetes policies log by an annotation of their namespace.
    pub(crate) logging: bool,
    /// In place: most policies have one rule each way.
    pub(crate) rules: SmallVec<[CompiledRule; 2]>,
    pub(crate) applied_to: IdSet<GroupId>,
    pub(crate) addresses: IdSet<GroupId>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CompiledRule {
    pub(crate) direction: Direction,
    pub(crate) action: Option<Action>,
    pub(crate) enable_logging: bool,
    pub(crate) priority: i32,
    pub(crate) groups: SmallVec<[GroupId; 4]>,
    /// Empty unless the policy is applied per rule.
    pub(crate) applied_to: Box<[GroupId]>,
    pub(crate) detail: Detail,
}

#[derive(Debug, Clone)]
pub(crate) struct Policies {
    pub(crate) rows: Slab<PolicyId, Policy>,
    by_name: Lookup<PolicyId>,
    /// Policies with a record, by its UID; more than one when objects share a UID.
    by_uid: Lookup<PolicyId>,
    /// UIDs that more than one policy claims. Nearly always none, and then nobody looks for rivals.
    contested: FxHashSet<Identifier>,
    pub(crate) changed: Vec<PolicyId>,
    pub(crate) stale: Vec<PolicyId>,
}

impl Policies {
    pub(crate) fn new() -> Self {
        Policies {
            rows: Slab::new(),
            by_name: Lookup::new(),
            by_uid: Lookup::new(),
            contested: FxHashSet::default(),
            changed: Vec::new(),
            stale: Vec::new(),
        }
    }

    pub(crate) fn find(&self, kind: Kind, namespace: NamespaceId, name: &str) -> Option<PolicyId> {
        self.by_name.find(hash(kind, namespace, name), |id| self.rows[id].is(kind, namespace, name))
    }

    pub(crate) fn mark(&mut self, id: PolicyId) {
        let row = &mut self.rows[id];
        if !row.changed {
            row.changed = true;
            self.changed.push(id);
        }
    }

    pub(crate) fn mark_stale(&mut self, id: PolicyId) {
        let row = &mut self.rows[id];
        if !row.stale {
            row.stale = true;
            self.stale.push(id);
        }
    }

    fn claimants(&self, uid: &Identifier) -> impl Iterator<Item = PolicyId> {
        let claims = move |id: &PolicyId| self.rows[*id].record.as_ref().is_some_and(|r| r.uid == *uid);
        self.by_uid.all(KeyHash::of(uid)).filter(claims)
    }

    /// How many there are.
    fn mark_claimants(&mut self, uid: &Identifier) -> usize {
        let claimants: SmallVec<[PolicyId; 2]> = self.claimants(uid).collect();
        claimants.iter().for_each(|claimant| self.mark(*claimant));
        claimants.len()
    }

    /// Takes away a policy that consumers no longer know and that was not created again.
    pub(crate) fn bury(&mut self, id: PolicyId) -> NamespaceId {
        let row = self.rows.remove(id);
        self.by_name.remove(hash(row.kind, row.namespace, &row.name), id);
        row.namespace
    }
}

fn hash(kind: Kind, namespace: NamespaceId, name: &str) -> KeyHash {
    KeyHash::of(&(kind, namespace, name))
}

impl Policy {
    fn is(&self, kind: Kind, namespace: NamespaceId, name: &str) -> bool {
        self.kind == kind && self.namespace == namespace && *self.name == *name
    }
}

impl Engine {
    pub(super) fn policy_row(&mut self, kind: Kind, namespace: &str, name: &str) -> PolicyId {
        let namespace = self.namespaces.acquire(namespace);
        let Policies { rows, by_name, .. } = &mut self.policies;
        let is = |id: PolicyId| rows[id].is(kind, namespace, name);
        let vacancy = match by_name.find_or_vacancy(hash(kind, namespace, name), is) {
            Ok(id) => {
                self.namespaces.release(namespace);
                return id;
            }
            Err(vacancy) => vacancy,
        };
        let id = rows.insert(Policy {
            kind,
            namespace,
            name: name.into(),
            record: None,
            spec: None,
            span: self.nowhere,
            told: None,
            changed: false,
            stale: false,
        });
        vacancy.fill(id);
        if kind == Kind::NetworkPolicy {
            self.namespaces.rows[namespace].policies.insert(id);
        }
        id
    }

    pub(crate) fn object_id(&self, id: PolicyId) -> ObjectId {
        let row = &self.policies.rows[id];
        let namespace = self.namespaces.rows[row.namespace].name.to_string();
        ObjectId { kind: row.kind, namespace, name: row.name.to_string() }
    }

    pub(crate) fn policy_named(&self, object: &ObjectId) -> Option<PolicyId> {
        let namespace = self.namespaces.find(&object.namespace)?;
        self.policies.find(object.kind, namespace, &object.name)
    }

    pub(crate) fn uid_of_policy(&self, object: &ObjectId) -> Option<Identifier> {
        let id = self.policy_named(object)?;
        self.policies.rows[id].record.as_ref().map(|record| record.uid.clone())
    }

    /// An object without a UID has one made of its name.
    pub(super) fn uid_of(&self, id: PolicyId, written: &str) -> Identifier {
        if written.is_empty() {
            Identifier::Uuid(name_uuid(&self.object_id(id).to_string()))
        } else {
            Identifier::parse(written)
        }
    }

    pub(super) fn compile(
        &mut self,
        translation: &Translation<'_>,
        uid: Identifier,
        generation: i64,
    ) -> Record {
        // Rules of one policy often name the same Pods, in both directions and in appliedTo.
        let mut last = None;
        let mut applied_to: SmallVec<[GroupId; 4]> = SmallVec::new();
        for group in &translation.applied_to {
            applied_to.push(self.intern_group(GroupKind::AppliedTo, group, &mut last));
        }
        let mut addresses: SmallVec<[GroupId; 8]> = SmallVec::new();
        let mut rules = SmallVec::with_capacity(translation.rules.len());
        for rule in &translation.rules {
            let mut groups: SmallVec<[GroupId; 4]> = rule
                .groups
                .iter()
                .map(|group| self.intern_group(GroupKind::Address, group, &mut last))
                .collect();
            groups.sort_unstable();
            groups.dedup();
            addresses.extend_from_slice(&groups);
            let own: IdSet<GroupId> = rule
                .applied_to
                .iter()
                .map(|group| self.intern_group(GroupKind::AppliedTo, group, &mut last))
                .collect();
            applied_to.extend_from_slice(&own);
            rules.push(CompiledRule {
                direction: rule.direction,
                action: rule.action,
                enable_logging: rule.enable_logging,
                priority: rule.priority,
                groups,
                applied_to: (*own).into(),
                detail: rule.detail.clone(),
            });
        }
        Record {
            uid,
            generation,
            tier_priority: translation.tier_priority,
            priority: translation.priority,
            applied_to_per_rule: translation.applied_to_per_rule,
            logging: false,
            rules,
            applied_to: applied_to.into_iter().collect(),
            addresses: addresses.into_iter().collect(),
        }
    }

    /// New references are taken before old ones are given back, so that what both have stays untouched.
    pub(super) fn install(&mut self, id: PolicyId, new: Option<Record>) {
        let row = &mut self.policies.rows[id];
        if row.record.as_deref() == new.as_ref() {
            return;
        }
        let (old, old_span) = (row.record.take(), row.span);
        if let Some(old) = &old {
            self.disclaim(id, &old.uid);
        }
        let new = new.map(Arc::new);
        let span = new.as_ref().map_or(self.nowhere, |record| self.attach(id, record));
        let row = &mut self.policies.rows[id];
        (row.record, row.span) = (new, span);
        self.claim(id);
        if let Some(old) = old {
            self.detach(id, &old, old_span);
        }
        self.policies.mark(id);
    }

    fn attach(&mut self, id: PolicyId, record: &Record) -> SpanId {
        for group in record.applied_to.iter() {
            let row = &mut self.groups.rows[*group];
            row.links.increment(id.index() as u32);
            row.references += 1;
        }
        let span = match &*record.applied_to {
            [] => self.nowhere,
            [only] => self.groups.rows[*only].span,
            several => {
                let own = self.spans.insert(Owner::Policy(id));
                for group in several {
                    self.spans.feed(self.groups.rows[*group].span, own);
                }
                own
            }
        };
        for group in record.addresses.iter() {
            self.groups.rows[*group].references += 1;
            self.add_source(*group, span);
        }
        span
    }

    fn detach(&mut self, id: PolicyId, record: &Record, span: SpanId) {
        for group in record.addresses.iter() {
            self.remove_source(*group, span);
            self.dereference(*group);
        }
        if record.applied_to.len() > 1 {
            for group in record.applied_to.iter() {
                self.spans.stop_feeding(self.groups.rows[*group].span, span);
            }
            self.spans.remove(span);
        }
        for group in record.applied_to.iter() {
            self.groups.rows[*group].links.decrement(id.index() as u32);
            self.dereference(*group);
        }
    }

    fn dereference(&mut self, group: GroupId) {
        let row = &mut self.groups.rows[group];
        row.references -= 1;
        if row.references == 0 {
            self.mark_group(group);
        }
    }

    /// Who may use a UID for its name is decided among all that claim it, so they are told again.
    fn claim(&mut self, id: PolicyId) {
        let Some(uid) = self.policies.rows[id].record.as_ref().map(|record| record.uid.clone()) else {
            return;
        };
        let rivals = self.policies.mark_claimants(&uid);
        self.policies.by_uid.add(KeyHash::of(&uid), id);
        if rivals > 0 {
            self.policies.contested.insert(uid);
        }
    }

    fn disclaim(&mut self, id: PolicyId, uid: &Identifier) {
        self.policies.by_uid.remove(KeyHash::of(uid), id);
        if self.policies.contested.contains(uid) && self.policies.mark_claimants(uid) < 2 {
            self.policies.contested.remove(uid);
        }
    }

    /// Whether the policy must go by a derived name: of several claimants of a UID the first by kind and name has it.
    pub(super) fn is_derived(&self, id: PolicyId, uid: &Identifier) -> bool {
        self.policies.contested.contains(uid)
            && self.policies.claimants(uid).any(|rival| self.object_id(rival) < self.object_id(id))
    }

    pub(super) fn policy_name(&self, id: PolicyId, uid: &Identifier, derived: bool) -> Identifier {
        if derived {
            Identifier::Uuid(name_uuid(&format!("{uid} {}", self.object_id(id))))
        } else {
            uid.clone()
        }
    }
}
