//! The cache between the engine and its readers: one writer, any number of watchers.
//!
//! ```text
//!  engine ─ Update ─► Cache ─┬─ Objects (policies) ───┬─► Watch ─► frames
//!                            ├─ Objects (applied-to) ─┤   …
//!                            ├─ Objects (address) ────┘
//!  nodes ── reports ────────►├─ Reports ─► Realisation of each policy
//!        ── counts ─────────►└─ Statistics ─► lists
//! ```

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use model::policy::{
    ObjectId,
    output::{Change, Identifier, NetworkPolicy, Problem, Update},
};
use parking_lot::{Mutex, RwLock};

use crate::{
    encode,
    encoding::Encoding,
    objects::{Expired, Objects, Start},
    oversize, proto,
    realisation::{Millis, Others, Outcome, Realisation, Report, Reports, ReportsOf},
    resource::Resource,
    statistics::{self, Statistics, StatsResource},
    version::{Content, Node},
    watcher::{Watch, Watcher},
};

/// Updates applied before readers get a turn.
const TURN: usize = 1024;

/// What a reader asks to see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Only what this span key needs, and of AppliedToGroups only its own members.
    pub node: Option<Arc<str>>,
    pub name: Option<Identifier>,
}

/// The state of the engine, to be read and watched. Shared by reference.
#[derive(Debug)]
pub struct Cache {
    policies: Arc<RwLock<Objects>>,
    applied_to: Arc<RwLock<Objects>>,
    address: Arc<RwLock<Objects>>,
    egress: Arc<RwLock<Objects>>,
    support_bundles: Arc<RwLock<Objects>>,
    reports: Mutex<Reports>,
    /// Counts reports.
    reported: AtomicU64,
    problems: Mutex<BTreeMap<ObjectId, Vec<Problem>>>,
    statistics: Mutex<Statistics>,
}

/// The sources are not in sync yet: an answer would be a lie that takes rules away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the policies are still being read; ask again in a moment")]
pub struct NotSynced;

/// Why a watch did not start.
pub type WatchError = Expired;

impl Cache {
    /// `first_revision` must be larger than any an earlier process gave out, for instance from the clock: clients
    /// resume by revision.
    pub fn new(first_revision: u64) -> Self {
        let objects = |resource| Arc::new(RwLock::new(Objects::new(resource, first_revision)));
        Cache {
            policies: objects(Resource::NetworkPolicies),
            applied_to: objects(Resource::AppliedToGroups),
            address: objects(Resource::AddressGroups),
            egress: objects(Resource::EgressGroups),
            support_bundles: objects(Resource::SupportBundleCollections),
            reports: Mutex::default(),
            reported: AtomicU64::new(0),
            problems: Mutex::default(),
            statistics: Mutex::default(),
        }
    }

    /// What the engine said since the last call, in its order. From one writer only.
    pub fn apply(&self, updates: impl IntoIterator<Item = Update>) {
        let mut updates = updates.into_iter().peekable();
        while updates.peek().is_some() {
            let mut applied_to = self.applied_to.write();
            let mut address = self.address.write();
            let mut policies = self.policies.write();
            for update in updates.by_ref().take(TURN) {
                match update {
                    Update::AppliedToGroup(update) => applied_to.take_group(update),
                    Update::AddressGroup(update) => address.take_group(update),
                    Update::NetworkPolicy(update) => {
                        self.reports.lock().forget(
                            &update.uid,
                            update.change == Change::Removed,
                            &update.span_removed,
                        );
                        if update.change == Change::Removed {
                            self.statistics.lock().forget(&update.uid);
                        }
                        policies.take_policy(update);
                    }
                    Update::Status(update) => {
                        let mut problems = self.problems.lock();
                        match update.problems.is_empty() {
                            true => problems.remove(&update.object),
                            false => problems.insert(update.object, update.problems),
                        };
                    }
                }
            }
            applied_to.settle();
            address.settle();
            policies.settle();
        }
    }

    /// The sources are in sync: watchers who wait are served from now on.
    pub fn set_synced(&self) {
        for resource in Resource::ALL {
            self.objects(resource).write().set_synced();
        }
    }

    pub fn is_synced(&self) -> bool {
        self.policies.read().is_synced()
    }

    /// A stream of frames. Before the sources are in sync it is silent.
    pub fn watch(
        &self,
        resource: Resource,
        view: View,
        start: Start,
        encoding: Encoding,
        marks_initial_end: bool,
    ) -> Result<Watch, WatchError> {
        let objects = self.objects(resource);
        let watcher = Watcher::new(view.node, view.name);
        objects.write().attach(&watcher, start)?;
        Ok(Watch::new(watcher, Arc::clone(objects), encoding, marks_initial_end))
    }

    /// The body of a reply to LIST.
    pub fn list(&self, resource: Resource, view: &View, encoding: Encoding) -> Result<Bytes, NotSynced> {
        let (versions, revision) = {
            let objects = self.objects(resource).read();
            if !objects.is_synced() {
                return Err(NotSynced);
            }
            let mut versions = objects.all_seen(&view.node);
            versions.retain(|version| view.name.as_ref().is_none_or(|name| *name == version.name));
            (versions, objects.revision())
        };
        Ok(encode::list(resource, &versions, revision, &view.node, encoding))
    }

    /// The body of a reply to GET by name; none if there is none in view.
    pub fn get(
        &self,
        resource: Resource,
        name: &Identifier,
        node: &Node,
        encoding: Encoding,
    ) -> Result<Option<Bytes>, NotSynced> {
        let version = {
            let objects = self.objects(resource).read();
            if !objects.is_synced() {
                return Err(NotSynced);
            }
            objects.seen(name, node)
        };
        Ok(version.map(|version| encode::object(&version, node, encoding)))
    }

    /// A node says how far it is with a policy. Reports from nodes outside its span say nothing about it.
    pub fn report(&self, node: &str, policy: &Identifier, report: Report, at: Millis) {
        let policies = self.policies.read();
        let is_asked = policies.span(policy).is_some_and(|mut span| span.any(|name| **name == *node));
        if is_asked {
            self.reports.lock().take(policy, node, report, at);
            self.reported.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What a node has reported of a policy as it is now, and when; none if it has not.
    pub fn reported(&self, node: &str, policy: &Identifier) -> Option<(Millis, Outcome)> {
        let version = self.policies.read().seen(policy, &None)?;
        let Content::Policy(content) = &version.content else { return None };
        self.reports.lock().reported(policy, node, content.generation)
    }

    /// How many reports were taken, to know whether to look again.
    pub fn reports(&self) -> u64 {
        self.reported.load(Ordering::Relaxed)
    }

    /// The policies whose reports changed since the last call, with all their reports; at first, all.
    pub fn take_changed_reports(&self) -> Vec<ReportsOf> {
        self.reports.lock().take_changed()
    }

    /// How far the nodes are with each policy, by UID; also those of which somebody else knows.
    pub fn realisations(&self, others: &dyn Others) -> Vec<Realisation> {
        let objects = self.policies.read();
        let versions = objects.all_seen(&None);
        versions
            .iter()
            .filter_map(|version| self.realisation_of(&objects, &version.name, &version.content, others))
            .collect()
    }

    /// How far the nodes are with one policy; none if there is none of this name.
    pub fn realisation(&self, policy: &Identifier, others: &dyn Others) -> Option<Realisation> {
        let objects = self.policies.read();
        let version = objects.seen(policy, &None)?;
        self.realisation_of(&objects, &version.name, &version.content, others)
    }

    fn realisation_of(
        &self,
        objects: &Objects,
        name: &Identifier,
        content: &Content,
        others: &dyn Others,
    ) -> Option<Realisation> {
        let Content::Policy(policy) = content else { return None };
        let source = &policy.source;
        let object = ObjectId {
            kind: source.kind,
            namespace: source.namespace.to_string(),
            name: source.name.to_string(),
        };
        let mut problems = self.problems.lock().get(&object).cloned().unwrap_or_default();
        problems.extend(oversize::problem(policy));
        let span = objects.span(name).into_iter().flatten();
        Some(self.reports.lock().realisation(policy, object, span, problems, others))
    }

    /// What a node counted since it last said so. Counts of policies that it does not need say nothing.
    pub fn count(&self, node: &str, summary: &proto::NodeStatsSummary, at: Millis) {
        let said = [
            &summary.network_policies,
            &summary.antrea_network_policies,
            &summary.antrea_cluster_network_policies,
        ];
        let node: Node = Some(Arc::from(node));
        let policies = self.policies.read();
        let mut statistics = self.statistics.lock();
        for said in said.into_iter().flatten() {
            let version = policies.seen(&Identifier::parse(&said.network_policy.uid), &node);
            if let Some(Content::Policy(policy)) = version.as_ref().map(|version| &version.content) {
                statistics.take(policy, said, at);
            }
        }
    }

    /// The body of a reply to LIST of statistics, of one namespace or of all.
    pub fn statistics(
        &self,
        resource: StatsResource,
        namespace: Option<&str>,
        now: Millis,
        encoding: Encoding,
    ) -> Result<Bytes, NotSynced> {
        let in_view = |policy: &NetworkPolicy| namespace.is_none_or(|name| *policy.source.namespace == *name);
        let shown = self.counted(resource, in_view, now)?;
        Ok(statistics::list(resource, shown, encoding))
    }

    /// The body of a reply to GET of the statistics of one policy; none if there is no such policy.
    pub fn statistics_of(
        &self,
        resource: StatsResource,
        namespace: &str,
        name: &str,
        now: Millis,
        encoding: Encoding,
    ) -> Result<Option<Bytes>, NotSynced> {
        let is_it =
            |policy: &NetworkPolicy| *policy.source.namespace == *namespace && *policy.source.name == *name;
        let found = self.counted(resource, is_it, now)?.pop();
        Ok(found.map(|shown| statistics::one(resource, shown, encoding)))
    }

    /// By namespace and name.
    fn counted(
        &self,
        resource: StatsResource,
        is_asked: impl Fn(&NetworkPolicy) -> bool,
        now: Millis,
    ) -> Result<Vec<statistics::Shown>, NotSynced> {
        let objects = self.policies.read();
        if !objects.is_synced() {
            return Err(NotSynced);
        }
        let versions = objects.all_seen(&None);
        let mut policies: Vec<&Arc<NetworkPolicy>> = versions
            .iter()
            .filter_map(|version| match &version.content {
                Content::Policy(policy) => Some(policy),
                Content::AppliedTo(_) | Content::Address(_) => None,
            })
            .filter(|policy| policy.source.kind == resource.of() && is_asked(policy))
            .collect();
        policies.sort_by(|a, b| {
            (&a.source.namespace, &a.source.name).cmp(&(&b.source.namespace, &b.source.name))
        });
        let mut statistics = self.statistics.lock();
        Ok(policies.into_iter().map(|policy| statistics.shown(policy, now)).collect())
    }

    /// How many objects a resource has, and how many watch it.
    pub fn size(&self, resource: Resource) -> (usize, usize) {
        let objects = self.objects(resource).read();
        (objects.len(), objects.watchers())
    }

    fn objects(&self, resource: Resource) -> &Arc<RwLock<Objects>> {
        match resource {
            Resource::NetworkPolicies => &self.policies,
            Resource::AppliedToGroups => &self.applied_to,
            Resource::AddressGroups => &self.address,
            Resource::EgressGroups => &self.egress,
            Resource::SupportBundleCollections => &self.support_bundles,
        }
    }
}
