//! Permissions where policies guard: what Pods and hosts at an end get, and who is at an end that only the engine knows.
//!
//! ```text
//!   orchestrator: permissions ──┬─► policies (derived, one for each permission) ─► policy engine ─► nodes
//!   tags, resources, Pods ──────┤
//!                               └─► addresses of Pods, hosts, namespaces ─► orchestrator: lists of resources
//! ```
//!
//! A permission is stored once, by the orchestrator; what is made of it here is derived and stored nowhere, as are the entries
//! that resources get. So both ends have what they need or neither wants it, after whatever was interrupted, and taking the
//! permission back takes away exactly what it gave.
//!
//! In: permissions, tags, resources, workloads. Out: derived policies, the Pods that they name, addresses. Holds: what was told
//! last. Not here: what a policy of a permission looks like (`policies`), which texts name an end (`ends`).

mod ends;
mod policies;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use life::Life;
use model::{
    Address, Segment,
    allow::{End, Permission},
    policy::{Kind, Object, ObjectId},
};
use orchestrator::execute::{Asking, Elsewhere, Orchestrator};
use store::Revision;
use tokio::sync::watch;

pub use ends::{Known, host_tag};
pub use policies::{policy, policy_of};

use crate::{namespaces::Namespaces, policy::Policy, tags::Tags};

/// How long changes are gathered, so that many at once are one step.
const GATHER: Duration = Duration::from_millis(10);

/// What was worked out from: everything up to here has come to policies, and to addresses for the orchestrator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The orchestrator's count of changes.
    pub changes: u64,
    pub objects: Option<Revision>,
    pub tags: Revision,
}

/// Permissions of one controller, for callers.
#[derive(Clone)]
pub struct Permissions {
    pub orchestrator: Arc<Orchestrator>,
    pub policy: Arc<Policy>,
    pub tags: Arc<Tags>,
    pub namespaces: Namespaces,
}

impl Permissions {
    /// What there is that a text can name; as of now.
    pub async fn known(&self) -> Known {
        let namespaces = self.namespaces.list().await.unwrap_or_default();
        let namespaces = namespaces.into_iter().map(|namespace| namespace.name.to_string()).collect();
        let graph = self.tags.snapshot().map(|snapshot| snapshot.graph.clone()).unwrap_or_default();
        Known {
            orchestrator: Arc::clone(&self.orchestrator),
            policy: Arc::clone(&self.policy),
            graph,
            namespaces,
        }
    }

    /// A permission as the orchestrator is asked for it.
    pub fn asking(&self, permission: Permission, build: bool) -> Asking {
        let ends = permission.ends().map(Clone::clone);
        Asking { elsewhere: Arc::new(self.elsewhere(ends)), permission, build }
    }

    /// The policy that a permission comes to; none if no Pod or host is at either end.
    pub fn policy_of(&self, permission: &Permission) -> Option<Object> {
        let graph = self.tags.snapshot().map(|snapshot| snapshot.graph.clone()).unwrap_or_default();
        policies::policy(permission, &self.addresses(permission), &graph)
    }

    /// Who is at those of the ends that only the engine and hosts know. An end where nobody is is not there.
    fn elsewhere(&self, ends: impl IntoIterator<Item = End>) -> BTreeMap<End, BTreeSet<Address>> {
        let wanted: BTreeSet<End> = ends.into_iter().collect();
        let is_workload = |end: &End| matches!(end, End::Pod { .. } | End::Namespace(_));
        let mut found = match wanted.iter().any(is_workload) {
            true => ends::workloads(&self.policy, &wanted),
            false => BTreeMap::new(),
        };
        let Ok(tags) = self.tags.snapshot() else { return found };
        for end in wanted.iter().filter(|end| matches!(end, End::Host(_))) {
            let addresses = ends::addresses(end, &tags.graph);
            if !addresses.is_empty() {
                found.insert(end.clone(), addresses);
            }
        }
        found
    }

    /// The addresses at both ends, as far as policies have no other word for who is there.
    fn addresses(&self, permission: &Permission) -> [BTreeSet<Address>; 2] {
        let graph = self.tags.snapshot().map(|snapshot| snapshot.graph.clone()).unwrap_or_default();
        permission.ends().map(|end| match end {
            End::Resource(name) => {
                let placed = self.orchestrator.placed();
                placed
                    .into_iter()
                    .filter(|(placed, ..)| placed == name)
                    .map(|(.., address)| address)
                    .collect()
            }
            End::Namespace(namespace) => {
                let placed = self.orchestrator.placed().into_iter();
                let inside = placed.filter(|(name, ..)| name.namespace.as_str() == namespace.as_str());
                inside.map(|(.., address)| address).collect()
            }
            end => ends::addresses(end, &graph),
        })
    }

    /// Tells what permissions come to, again and again. The first word is said before this returns, so that no node hears of
    /// policies without those of permissions.
    pub async fn start(self, told: watch::Sender<Told>, life: &Life) {
        let mut running = Running { told: BTreeMap::new(), permissions: self };
        running.tell().await;
        life.spawn("permissions", async move { running.run(&told).await });
    }
}

struct Running {
    permissions: Permissions,
    /// The policies that were told.
    told: BTreeMap<ObjectId, Object>,
}

impl Running {
    async fn run(mut self, told: &watch::Sender<Told>) {
        let mut changes = self.permissions.orchestrator.changes();
        let mut objects = self.permissions.policy.changes();
        let mut tags = Revision(0);
        loop {
            // None of the senders goes before the controller does.
            tokio::select! {
                _ = changes.changed() => {}
                _ = objects.changed() => {
                    // Objects change often, and most often no permission is about them.
                    if self.permissions.orchestrator.permissions().is_empty() && self.told.is_empty() {
                        let seen = *objects.borrow_and_update();
                        told.send_modify(|told| told.objects = seen);
                        continue;
                    }
                }
                seen = self.permissions.tags.later_than(tags) => tags = seen,
            }
            tokio::time::sleep(GATHER).await;
            // Looked at before it is worked out: what comes meanwhile comes again.
            let (changes, objects) = (*changes.borrow_and_update(), *objects.borrow_and_update());
            self.tell().await;
            told.send_replace(Told { changes, objects, tags });
        }
    }

    async fn tell(&mut self) {
        let permissions: Vec<(Segment, Permission)> = self.permissions.orchestrator.permissions();
        let ends = permissions.iter().flat_map(|(_, permission)| permission.ends()).cloned();
        let named: BTreeSet<ObjectId> = ends.clone().filter_map(pod).collect();
        let made = permissions.iter().filter_map(|(_, permission)| self.permissions.policy_of(permission));
        let now: BTreeMap<ObjectId, Object> = made.map(|object| (object.id(), object)).collect();
        let apply: Vec<Object> = now
            .iter()
            .filter(|(id, object)| self.told.get(id) != Some(object))
            .map(|(_, o)| o.clone())
            .collect();
        let delete: Vec<ObjectId> = self.told.keys().filter(|id| !now.contains_key(id)).cloned().collect();
        self.permissions.policy.name_pods(named).await;
        if !apply.is_empty() || !delete.is_empty() {
            self.permissions.policy.derive(apply, delete).await;
            self.told = now;
        }
        let elsewhere: Elsewhere = Arc::new(self.permissions.elsewhere(ends.collect::<BTreeSet<_>>()));
        self.permissions.orchestrator.set_elsewhere(elsewhere);
    }
}

fn pod(end: End) -> Option<ObjectId> {
    match end {
        End::Pod { namespace, name } => {
            Some(ObjectId { kind: Kind::Pod, namespace: namespace.to_string(), name: name.to_string() })
        }
        _ => None,
    }
}
