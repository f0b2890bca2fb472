//! From documents of one cluster to observations.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kubernetes::{RESOURCES, Told};
use model::policy::{Kind, Object, ObjectId, ObjectMeta, workload::CLUSTER_LABEL};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{Counts, Heard, Outstanding};
use crate::{
    objects::read_of_cluster,
    policy::{Observation, Policy},
};

/// Documents taken in before the engine is told.
const BATCH: usize = 256;

/// What kubectl keeps for itself: the whole object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Trials are of stored objects.
const TRIALS: &str = "trestle.dev/try-";

pub(super) struct Intake {
    cluster: String,
    known: BTreeMap<Kind, BTreeSet<ObjectId>>,
    /// Of kinds that are being told as a whole.
    listed: BTreeMap<Kind, BTreeSet<ObjectId>>,
    /// Kinds that have been told as a whole.
    whole: BTreeSet<Kind>,
    heard: Arc<Mutex<Heard>>,
}

impl Intake {
    pub(super) fn new(cluster: &str, heard: Arc<Mutex<Heard>>) -> Self {
        let (known, listed, whole) = Default::default();
        Self { cluster: cluster.to_owned(), known, listed, whole, heard }
    }

    /// For as long as the cluster is read.
    pub(super) async fn run(
        mut self,
        mut told: mpsc::Receiver<Told>,
        policy: Arc<Policy>,
        outstanding: Arc<Outstanding>,
    ) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut is_first = true;
        while told.recv_many(&mut batch, BATCH).await > 0 {
            let mut observed = Vec::with_capacity(batch.len());
            batch.drain(..).for_each(|told| self.take(told, &mut observed));
            self.heard.lock().counts = self.count();
            let is_whole = is_first && self.whole.len() == RESOURCES.len();
            if is_whole {
                is_first = false;
                info!(cluster = self.cluster, "everything that the cluster has is known");
            }
            policy.observe(observed, is_whole && outstanding.is_last()).await;
        }
        // Whoever tells is gone when the controller stops.
        std::future::pending().await
    }

    fn count(&self) -> Counts {
        self.known.iter().map(|(kind, names)| (*kind, names.len())).collect()
    }

    fn take(&mut self, told: Told, observed: &mut Vec<Observation>) {
        match told {
            Told::Begin(kind) => drop(self.listed.insert(kind, BTreeSet::new())),
            Told::Apply(kind, document) => observed.push(self.apply(kind, document)),
            Told::Delete(kind, document) => {
                let id = name_of(kind, &document);
                if let Some(listed) = self.listed.get_mut(&kind) {
                    listed.remove(&id);
                }
                self.delete(id, observed);
            }
            Told::Complete(kind) => {
                let listed = self.listed.remove(&kind).unwrap_or_default();
                let known = self.known.entry(kind).or_default();
                let gone: Vec<_> = known.difference(&listed).cloned().collect();
                gone.into_iter().for_each(|id| self.delete(id, observed));
                self.whole.insert(kind);
            }
        }
    }

    fn apply(&mut self, kind: Kind, document: Value) -> Observation {
        if RESOURCES.iter().any(|resource| resource.kind == kind && resource.has_status()) {
            self.heard.lock().statuses.insert(name_of(kind, &document), document["status"].clone());
        }
        let (id, object, told) = match read_of_cluster(kind, document) {
            Ok(object) => (object.id(), Some(object), None),
            Err(unreadable) => {
                let told = unreadable.told_of_cluster(&self.cluster);
                warn!("{told}");
                (unreadable.id, unreadable.stand_in, Some(told))
            }
        };
        self.known.entry(kind).or_default().insert(id.clone());
        if let Some(listed) = self.listed.get_mut(&kind) {
            listed.insert(id.clone());
        }
        Observation { id, object: object.map(|object| self.kept(object)), told }
    }

    fn delete(&mut self, id: ObjectId, observed: &mut Vec<Observation>) {
        self.heard.lock().statuses.remove(&id);
        if self.known.get_mut(&id.kind).is_some_and(|known| known.remove(&id)) {
            observed.push(Observation { id, object: None, told: None });
        }
    }

    /// What of an object decides something, and where it is from.
    fn kept(&self, mut object: Object) -> Object {
        trim(&mut object);
        let metadata = object.metadata_mut();
        let annotations = std::mem::take(&mut metadata.annotations);
        let is_kept = |key: &str| key != LAST_APPLIED && !key.starts_with(TRIALS);
        metadata.annotations = annotations.into_iter().filter(|(key, _)| is_kept(key)).collect();
        if is_labelled(object.kind()) {
            object.metadata_mut().labels.insert(CLUSTER_LABEL.to_owned(), self.cluster.clone());
        }
        object
    }
}

/// Workloads, and the namespaces they are selected by.
fn is_labelled(kind: Kind) -> bool {
    matches!(kind, Kind::Namespace | Kind::Node | Kind::Pod | Kind::ExternalNode | Kind::ExternalEntity)
}

/// Pods are the most by far, and most of a Pod decides nothing here.
fn trim(object: &mut Object) {
    let Object::Pod(pod) = object else { return };
    let ObjectMeta { annotations, owner_references, .. } = &mut pod.metadata;
    (*annotations, *owner_references) = Default::default();
    pod.spec.containers.iter_mut().for_each(|container| container.ports.retain(|port| !port.name.is_empty()));
    pod.spec.containers.retain(|container| !container.ports.is_empty());
    pod.status.conditions.retain(|condition| condition.kind == "Ready");
}

fn name_of(kind: Kind, document: &Value) -> ObjectId {
    let text = |field: &str| document["metadata"][field].as_str().unwrap_or_default().to_owned();
    let namespace = if kind.is_namespaced() { text("namespace") } else { String::new() };
    ObjectId { kind, namespace, name: text("name") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn intake() -> Intake {
        Intake::new("prod", Arc::default())
    }

    fn pod(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": name, "namespace": "shop", "uid": "u", "labels": {"app": "web", CLUSTER_LABEL: "other"},
                            "annotations": {LAST_APPLIED: "{}"}, "managedFields": [{}], "ownerReferences": [{"kind": "ReplicaSet", "name": "r"}]},
               "spec": {"nodeName": "n1", "volumes": [{}], "newer": 1,
                        "containers": [{"ports": [{"containerPort": 80}, {"name": "http", "containerPort": 8080}]}, {"image": "i"}]},
               "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized"}]}})
    }

    fn all(intake: &mut Intake, told: impl IntoIterator<Item = Told>) -> Vec<Observation> {
        let mut observed = Vec::new();
        told.into_iter().for_each(|told| intake.take(told, &mut observed));
        observed
    }

    #[test]
    fn of_a_pod_what_decides_is_kept_and_where_it_is_from_cannot_be_claimed() {
        let observed = all(&mut intake(), [Told::Apply(Kind::Pod, pod("a"))]);
        assert_eq!(observed[0].told, None, "fields of later versions decide nothing here");
        let Some(Object::Pod(pod)) = &observed[0].object else { panic!("{observed:?}") };
        assert_eq!(pod.metadata.labels.get(CLUSTER_LABEL).map(String::as_str), Some("prod"));
        assert_eq!(pod.metadata.labels.get("app").map(String::as_str), Some("web"));
        assert!(pod.metadata.annotations.is_empty() && pod.metadata.owner_references.is_empty());
        assert_eq!((pod.spec.containers.len(), pod.spec.containers[0].ports.len()), (1, 1));
        assert_eq!((pod.status.conditions.len(), pod.spec.node_name.as_str()), (1, "n1"));
        assert!(pod.status.is_ready());
    }

    #[test]
    fn what_a_whole_state_does_not_name_is_gone() {
        let mut intake = intake();
        let whole = |names: &[&str]| {
            let pods: Vec<_> = names.iter().map(|name| Told::Apply(Kind::Pod, pod(name))).collect();
            [vec![Told::Begin(Kind::Pod)], pods, vec![Told::Complete(Kind::Pod)]].concat()
        };
        all(&mut intake, whole(&["a", "b"]));
        assert_eq!(intake.count()[&Kind::Pod], 2);
        // One that was cut short says nothing of what it did not name.
        let cut = [Told::Begin(Kind::Pod), Told::Apply(Kind::Pod, pod("c"))];
        assert!(all(&mut intake, cut).iter().all(|one| one.object.is_some()));
        let observed = all(&mut intake, whole(&["b"]));
        let gone: Vec<_> =
            observed.iter().filter(|one| one.object.is_none()).map(|one| one.id.name.as_str()).collect();
        assert_eq!(gone, ["a", "c"]);
        // Deleted while it is told: it does not come back, and what comes then stays.
        let told = [
            Told::Begin(Kind::Pod),
            Told::Apply(Kind::Pod, pod("b")),
            Told::Delete(Kind::Pod, pod("b")),
            Told::Complete(Kind::Pod),
        ];
        let observed = all(&mut intake, told);
        assert!(observed.last().is_some_and(|one| one.object.is_none()) && intake.count()[&Kind::Pod] == 0);
    }

    #[test]
    fn a_policy_that_cannot_be_read_as_a_whole_closes_and_says_so() {
        let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a", "namespace": "shop"},
                            "spec": {"podSelector": {}, "ingress": [{"newer": []}]}});
        let observed = all(&mut intake(), [Told::Apply(Kind::NetworkPolicy, policy)]);
        let told = observed[0].told.as_deref().unwrap();
        assert!(told.contains("of cluster prod") && told.contains("closes all that it selects"), "{told}");
        let Some(Object::NetworkPolicy(policy)) = &observed[0].object else { panic!("{observed:?}") };
        assert!(policy.spec.ingress.is_empty());
    }
}
