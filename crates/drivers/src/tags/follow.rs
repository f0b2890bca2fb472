//! The follower: turns the store's watch into the current graph.
//! It applies whole transactions.

use std::{collections::BTreeSet, sync::Arc};

use store::{Revision, follow::Step};
use tags::{Change, Write};
use tokio::sync::mpsc;
use tracing::warn;

use super::{
    Snapshot, Tags,
    keys::{self, Strange, Told},
};

/// What the follower tells of each transaction.
pub(super) struct Followed {
    pub revision: Revision,
    pub change: Change,
}

pub(super) async fn run(
    tags: Arc<Tags>,
    mut steps: store::follow::Follower,
    changes: mpsc::Sender<Followed>,
) {
    let mut follower =
        Follower { tags, changes, snapshot: Snapshot::default(), gathered: Gathered::default() };
    let mut loading = false;
    loop {
        match steps.next().await {
            Step::Begin => {
                loading = true;
                follower.gathered = Gathered::default();
            }
            Step::Apply(entry) => follower.gathered.take(entry.modified, keys::put(&entry)),
            Step::Delete { key, revision } => follower.gathered.take(revision, keys::deleted(&key)),
            Step::Complete { revision } => {
                let followed = if std::mem::take(&mut loading) { follower.load() } else { follower.apply() };
                steps.took_in(revision);
                // Nobody listens any more only when the controller stops.
                let _ = follower.changes.send(followed).await;
            }
        }
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
    fn take(&mut self, revision: Revision, told: Result<Told, Strange>) {
        self.revision = self.revision.max(revision);
        match told {
            Ok(Told::Write(write)) => self.writes.push(write),
            Ok(Told::Guard) => self.guard = Some(revision),
            Ok(Told::GuardGone) => self.guard = Some(Revision(0)),
            Err(err) => warn!(error = common::chain(&err), "a stored object is not a tag and is left out"),
        }
    }
}

impl Follower {
    /// Takes what was gathered as the whole state: what it does not mention does not exist.
    fn load(&mut self) -> Followed {
        let listed: BTreeSet<_> = self.gathered.writes.iter().map(Write::key).collect();
        let known = self.snapshot.graph.facts().map(|fact| fact.key());
        let gone: Vec<_> = known.filter(|key| !listed.contains(key)).map(Write::Delete).collect();
        self.gathered.writes.extend(gone);
        self.gathered.guard.get_or_insert(Revision(0));
        self.apply()
    }

    fn apply(&mut self) -> Followed {
        let Gathered { writes, revision, guard } = std::mem::take(&mut self.gathered);
        let change = self.snapshot.graph.apply(writes);
        self.snapshot.revision = revision;
        self.snapshot.guard = guard.unwrap_or(self.snapshot.guard);
        self.tags.publish(self.snapshot.clone());
        Followed { revision, change }
    }
}
