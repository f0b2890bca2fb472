//! What the engine's driver tells: only whether a cloud is concerned.

use std::{collections::BTreeSet, sync::Arc};

use model::policy::output::{GroupUpdate, Identifier, PolicyUpdate, Span, Update};
use orchestrator::plan::PolicyView;
use parking_lot::Mutex;
use tokio::sync::Notify;

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

/// Hears the engine's updates.
pub struct Feed {
    news: Arc<Notify>,
    held: Held,
}

impl Feed {
    pub(super) fn new(news: Arc<Notify>, held: Held) -> Self {
        Self { news, held }
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
            self.news.notify_one();
        }
    }

    fn synced(&mut self) {
        self.news.notify_one();
    }
}
