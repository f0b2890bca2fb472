//! Kill -9 at every point: the store stops answering before or after its n-th write, the orchestrator is dropped,
//! another one is started on what is there, and the story must end as if nothing had happened.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use store::{
    Backend, Committed, CompactError, Entry, Health, Key, Lease, LeaseError, LeaseId, Listing, Prefix,
    ReadError, Revision, Snapshot, Store, TransactError, Transaction, Watch, WatchFrom,
};

use super::house::{House, both, resource};
use crate::execute::OrchestratorError;

/// A store that stops answering. Everything the orchestrator does is between two writes, so to cut at every write,
/// before and after, is to cut everywhere.
struct Cut {
    inner: Store,
    left: AtomicI64,
    /// The last write is done, but nobody hears of it.
    after: bool,
    reached: Arc<AtomicI64>,
}

#[async_trait]
impl Backend for Cut {
    async fn transact(&self, transaction: Transaction) -> Result<Committed, TransactError> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        if left == 0 && self.after {
            self.inner.transact(transaction.clone()).await?;
            self.reached.store(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        } else if left <= 0 {
            self.reached.store(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        self.inner.transact(transaction).await
    }
    async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        self.inner.get(key).await
    }
    async fn list(&self, prefix: &Prefix) -> Result<Listing, ReadError> {
        self.inner.list(prefix).await
    }
    async fn snapshot(&self, prefix: &Prefix) -> Result<Snapshot, ReadError> {
        self.inner.snapshot(prefix).await
    }
    fn watch(&self, prefix: &Prefix, from: WatchFrom) -> Watch {
        self.inner.watch(prefix, from)
    }
    async fn revision(&self) -> Result<Revision, ReadError> {
        self.inner.revision().await
    }
    async fn grant_lease(&self, ttl: Duration) -> Result<Lease, LeaseError> {
        self.inner.grant_lease(ttl).await
    }
    async fn keep_alive(&self, lease: LeaseId) -> Result<Lease, LeaseError> {
        self.inner.keep_alive(lease).await
    }
    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), LeaseError> {
        self.inner.revoke_lease(lease).await
    }
    async fn compact(&self, revision: Revision) -> Result<(), CompactError> {
        self.inner.compact(revision).await
    }
    async fn health(&self) -> Result<Health, ReadError> {
        self.inner.health().await
    }
}

/// The whole story: two resources in two clouds, joined, then everything taken down. True if it was cut short.
async fn cut_story(writes: i64, after: bool) -> bool {
    let mut house = House::new(&["azure", "gcp"]).await;
    let reached = Arc::new(AtomicI64::new(0));
    let cut = Cut {
        inner: house.store.clone(),
        left: AtomicI64::new(writes),
        after,
        reached: Arc::clone(&reached),
    };
    house.restart(Store::new(cut), |cloud| cloud).await;
    let was_cut = {
        let story = async {
            let makes = [house.create("ns.azure.a", "west"), house.create("ns.gcp.b", "east")];
            for made in futures::future::join_all(makes).await {
                made.unwrap();
            }
            house.join("ns.azure.a", "ns.gcp.b").await;
            house.delete("ns.azure.a").await;
        };
        let cut = async {
            while reached.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // What else was under way gets as far as it can.
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        tokio::select! {
            () = story => false,
            () = cut => true,
        }
    };
    house.restart(house.store.clone(), |cloud| cloud).await;
    house.settle().await;
    for name in ["ns.azure.a", "ns.gcp.b"] {
        if house.orchestrator.resource(&resource(name)).is_err() {
            match house.create(name, "west").await {
                Ok(_) | Err(OrchestratorError::ResourceExists { .. }) => {}
                Err(err) => panic!("{err}"),
            }
        }
    }
    for (on, peer) in [("ns.azure.a", "ns.gcp.b"), ("ns.gcp.b", "ns.azure.a")] {
        house.put(on, both(peer)).await.unwrap();
    }
    house.settle().await;
    assert!(
        house.reaches("ns.azure.a", "ns.gcp.b") && house.reaches("ns.gcp.b", "ns.azure.a"),
        "cut at {writes}"
    );
    assert_eq!(house.orchestrator.check().await.unwrap(), [], "cut at {writes}, after: {after}");
    for name in ["ns.azure.a", "ns.gcp.b"] {
        house.delete(name).await;
    }
    house.settle().await;
    assert!(house.is_empty(), "cut at {writes}, after: {after}");
    was_cut
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_write_it_goes_on_where_it_was() {
    for after in [false, true] {
        let mut writes = 0;
        while cut_story(writes, after).await {
            writes += 1;
            assert!(writes < 200, "the story has an end");
        }
        assert!(writes > 20, "the story has {writes} writes");
    }
}

/// What another controller stores is known here without asking, and a request that was judged on what is gone is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_has_stored_is_known_here() {
    let mut house = House::new(&["azure"]).await;
    house.create("ns.azure.a", "west").await.unwrap();
    house.settle().await;
    let first = Arc::clone(&house.orchestrator);
    house.restart(house.store.clone(), |cloud| cloud).await;
    house.delete("ns.azure.a").await;
    house.settle().await;
    let known = async {
        while first.resource(&resource("ns.azure.a")).is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), known).await.expect("the first follows what is stored");
    let refused = first.put_rules(resource("ns.azure.a"), both("8.8.8.8"), false).await;
    assert!(matches!(refused, Err(OrchestratorError::UnknownResource { .. })), "{refused:?}");
}
