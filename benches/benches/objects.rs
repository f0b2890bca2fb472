//! Objects: what it costs to find out what of a set is to go, beside the way in which each object was held against a list; and to
//! look whether documents have fields that nobody knows.

#![expect(clippy::unwrap_used, reason = "a failed bench stops")]

use std::{hint::black_box, sync::Arc, time::Instant};

use benches::report;
use drivers::objects::{Document, Objects, Validation};
use model::policy::{Kind, ObjectId, fields};
use serde_json::{Value, json};
use store::embedded;

const OBJECTS: usize = 20_000;
const REQUEST: usize = 1000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(prune());
    unknown();
}

fn pod(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{number}"), "namespace": "shop", "labels": {"app": "web", "part": "front"}},
        "spec": {"nodeName": "n1", "serviceAccountName": "web", "containers": [
            {"name": "web", "image": "web:1", "env": [{"name": "A", "value": "B"}], "ports": [{"name": "http", "containerPort": 80}]},
        ]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
    })
}

fn id(number: usize) -> ObjectId {
    ObjectId { kind: Kind::Pod, namespace: "shop".into(), name: format!("pod-{number}") }
}

/// A set of which everything is kept, which is how a set that is applied again usually is; and one of which everything goes.
async fn prune() {
    let dir = tempfile::tempdir().unwrap();
    let store = embedded::Options::new(dir.path()).open().unwrap();
    let objects = Objects::new(store, Default::default());
    for start in (0..OBJECTS).step_by(REQUEST) {
        let read = |number| Document::read(pod(number).to_string().as_bytes(), Validation::Strict).unwrap();
        let documents: Arc<[Document]> = (start..start + REQUEST).map(read).collect();
        objects.apply(documents, "set", None, false).await.unwrap();
    }
    let keep: Vec<ObjectId> = (0..OBJECTS).map(id).collect();
    let by_list = Instant::now();
    let gone = (0..OBJECTS).map(id).filter(|id| !keep.contains(black_box(id))).count();
    report("objects.prune.peer", "seconds", by_list.elapsed().as_secs_f64(), "s");
    let started = Instant::now();
    let (applied, _) = objects.prune("set", keep, false).await.unwrap();
    assert_eq!((applied.len(), gone), (0, 0));
    report("objects.prune", "seconds", started.elapsed().as_secs_f64(), "s");
    let started = Instant::now();
    let (applied, _) = objects.prune("set", [], false).await.unwrap();
    assert_eq!(applied.len(), OBJECTS);
    report("objects.prune_all", "seconds", started.elapsed().as_secs_f64(), "s");
}

fn unknown() {
    let pod = pod(1);
    let started = Instant::now();
    for _ in 0..OBJECTS {
        assert!(fields::unknown(Kind::Pod, black_box(&pod)).is_empty());
    }
    report("objects.fields", "us", started.elapsed().as_secs_f64() * 1e6 / OBJECTS as f64, "us");
}
