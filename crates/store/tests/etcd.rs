//! The etcd backend keeps the store's contract, on a real etcd.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod conformance;

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering},
};

use store::{Store, etcd};
use testkit::etcd::Cluster;
use tokio::sync::{Mutex, OwnedMutexGuard};

conformance_suite!(fresh);

/// Cases run one at a time on a shared member, each in a namespace of its own: a case may then count revisions.
struct Turn {
    _turn: OwnedMutexGuard<()>,
    _cluster: Arc<Cluster>,
}

static SHARED: std::sync::Mutex<Weak<Cluster>> = std::sync::Mutex::new(Weak::new());
static TURN: std::sync::LazyLock<Arc<Mutex<()>>> = std::sync::LazyLock::new(Arc::default);
static NAMESPACE: AtomicU64 = AtomicU64::new(0);

async fn fresh() -> (Store, Turn) {
    let cluster = shared();
    let turn = Arc::clone(&TURN).lock_owned().await;
    let number = NAMESPACE.fetch_add(1, Ordering::Relaxed);
    let mut options = etcd::Options::new(cluster.endpoints());
    options.namespace = format!("/case-{number}/");
    let store = options.connect().await.unwrap();
    (store, Turn { _turn: turn, _cluster: cluster })
}

/// Lives as long as a case holds it: a static would never be dropped.
fn shared() -> Arc<Cluster> {
    let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(Cluster::start(1));
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}
