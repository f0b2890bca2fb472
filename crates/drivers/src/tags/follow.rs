//! The follower: turns the store's watch into the current graph.
//!
//! It applies whole transactions: writes are gathered until the guard, or until a revision ends without one.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::StreamExt as _;
use store::{Event, Revision, Store, Watch, WatchFrom};
use tags::{Change, Write};
use tokio::sync::mpsc;
use tracing::warn;

use super::{
    Snapshot, Tags,
    keys::{self, Strange, Told},
};
use crate::error::chain;

/// Pause before a lost watch is started over.
const RETRY: Duration = Duration::from_millis(500);

/// What the follower tells of each transaction.
pub(super) struct Followed {
    pub revision: Revision,
    pub change: Change,
}

pub(super) async fn run(tags: Arc<Tags>, store: Store, changes: mpsc::Sender<Followed>) {
    let mut follower =
        Follower { tags, changes, snapshot: Snapshot::default(), gathered: Gathered::default() };
    loop {
        follower.follow(store.watch(&keys::prefix(), WatchFrom::Start)).await;
        tokio::time::sleep(RETRY).await;
    }
}

struct Follower {
    tags: Arc<Tags>,
    changes: mpsc::Sender<Followed>,
    /// What was published last.
    snapshot: Snapshot,
    gathered: Gathered,
}

/// The transaction, or the initial state, that is being told.
#[derive(Default)]
struct Gathered {
    writes: Vec<Write>,
    revision: Revision,
    guard: Option<Revision>,
}

impl Gathered {
    /// Takes in what was told; true if that ends a transaction.
    fn take(&mut self, revision: Revision, told: Result<Told, Strange>) -> bool {
        self.revision = self.revision.max(revision);
        match told {
            Ok(Told::Write(write)) => self.writes.push(write),
            Ok(Told::Guard) => self.guard = Some(revision),
            Ok(Told::GuardGone) => self.guard = Some(Revision(0)),
            Err(err) => warn!(error = chain(&err), "a stored object is not a tag and is left out"),
        }
        self.guard.is_some()
    }
}

impl Follower {
    async fn follow(&mut self, mut watch: Watch) {
        self.gathered = Gathered::default();
        let mut loading = false;
        while let Some(event) = watch.next().await {
            match event {
                Ok(Event::Init { .. }) => loading = true,
                Ok(Event::Apply(entry)) if loading => {
                    self.gathered.take(entry.modified, keys::put(&entry));
                }
                Ok(Event::InitDone { .. }) => {
                    loading = false;
                    self.load().await;
                }
                Ok(Event::Apply(entry)) => self.told(entry.modified, keys::put(&entry)).await,
                Ok(Event::Delete { key, revision }) => self.told(revision, keys::deleted(&key)).await,
                Err(err) => warn!(error = chain(&err), "the watch on tags was lost and is started over"),
            }
        }
    }

    async fn told(&mut self, revision: Revision, told: Result<Told, Strange>) {
        if revision != self.gathered.revision && !self.gathered.writes.is_empty() {
            // The end of a transaction by somebody who does not know the guard.
            self.apply().await;
        }
        if self.gathered.take(revision, told) {
            self.apply().await;
        }
    }

    /// Takes what was gathered as the whole state: what it does not mention does not exist.
    async fn load(&mut self) {
        let listed: BTreeSet<_> = self.gathered.writes.iter().map(Write::key).collect();
        let known = self.snapshot.graph.facts().map(|fact| fact.key());
        let gone: Vec<_> = known.filter(|key| !listed.contains(key)).map(Write::Delete).collect();
        self.gathered.writes.extend(gone);
        self.gathered.guard.get_or_insert(Revision(0));
        self.apply().await;
    }

    async fn apply(&mut self) {
        let Gathered { writes, revision, guard } = std::mem::take(&mut self.gathered);
        let change = self.snapshot.graph.apply(writes);
        self.snapshot.revision = revision;
        self.snapshot.guard = guard.unwrap_or(self.snapshot.guard);
        self.tags.publish(self.snapshot.clone());
        // Nobody listens any more only when the controller stops.
        let _ = self.changes.send(Followed { revision, change }).await;
    }
}
