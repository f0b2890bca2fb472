//! What the engine's driver tells: only whether a cloud is concerned.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use model::policy::output::{GroupUpdate, Identifier, PolicyUpdate, Span, Update};
use orchestrator::plan::PolicyView;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::{policy::Consumer, span};

/// The groups and policies that clouds had when they were last looked at.
#[derive(Debug, Default)]
pub struct Names(BTreeSet<Identifier>);

pub type Held = Arc<Mutex<Names>>;

impl Names {
    pub fn replace(&mut self, view: &PolicyView) {
        let groups = view.applied_to.keys().chain(view.addresses.keys());
        self.0 = groups.chain(view.policies.keys()).cloned().collect();
    }
}

/// Counts what the engine says of clouds, and how much of it has come to the orchestrator.
#[derive(Clone, Default)]
pub struct Pulse {
    beats: Arc<AtomicU64>,
    followed: watch::Sender<u64>,
}

/// The same, for those who wait.
#[derive(Clone)]
pub struct Followed {
    beats: Arc<AtomicU64>,
    followed: watch::Receiver<u64>,
}

impl Pulse {
    pub(super) fn beat(&self) -> u64 {
        self.beats.load(Relaxed)
    }

    pub(super) fn follow(&self, beat: u64) {
        self.followed.send_replace(beat);
    }

    pub(super) fn followed(&self) -> Followed {
        Followed { beats: Arc::clone(&self.beats), followed: self.followed.subscribe() }
    }
}

impl Followed {
    /// Waits until the orchestrator has what the engine has said of clouds up to now.
    pub async fn reach(&mut self) {
        let beat = self.beats.load(Relaxed);
        // Without an enforcer the controller is stopping, and nobody waits for anything.
        let _ = self.followed.wait_for(|followed| *followed >= beat).await;
    }
}

/// Hears the engine's updates.
pub struct Feed {
    news: Arc<Notify>,
    held: Held,
    pulse: Pulse,
}

impl Feed {
    pub(super) fn new(news: Arc<Notify>, held: Held, pulse: Pulse) -> Self {
        Self { news, held, pulse }
    }

    fn concerns(&self, update: &Update) -> bool {
        let (name, spans) = match update {
            Update::AppliedToGroup(GroupUpdate { name, span_added, span_removed, .. })
            | Update::AddressGroup(GroupUpdate { name, span_added, span_removed, .. }) => {
                (name, [span_added, span_removed])
            }
            Update::NetworkPolicy(PolicyUpdate { uid, span_added, span_removed, .. }) => {
                (uid, [span_added, span_removed])
            }
            Update::Status(_) => return false,
        };
        let of_cloud = |span: &&Span| span.iter().any(|key| span::is_cloud(key));
        spans.iter().any(of_cloud) || self.held.lock().0.contains(name)
    }
}

impl Consumer for Feed {
    fn apply(&mut self, updates: &[Update]) {
        if updates.iter().any(|update| self.concerns(update)) {
            self.pulse.beats.fetch_add(1, Relaxed);
            self.news.notify_one();
        }
    }

    fn synced(&mut self) {
        self.news.notify_one();
    }
}
