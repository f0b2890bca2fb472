//! The clouds there are to be, and how each is.
//!
//! ```text
//!   expected ─► waiting ──► ready ◄──► failing        removed from the configuration: gone with the process
//! ```
//!
//! In: what the configuration names, what came of connecting, and of every call. Out: views, and why a cloud that is named
//! cannot be used. Holds: one entry per cloud. Not here: the clouds themselves (`orchestrator`).

use std::fmt;

use jiff::Timestamp;
use model::Segment;

use super::{Orchestrator, OrchestratorError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudState {
    /// Its plugin has not answered yet, or cannot be used.
    Waiting,
    Ready,
    /// It was ready, and the last call to it failed.
    Failing,
}

impl fmt::Display for CloudState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Failing => "failing",
        })
    }
}

/// A cloud as users see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudView {
    pub name: Segment,
    /// What its plugin is, and where.
    pub plugin: String,
    pub state: CloudState,
    pub since: Timestamp,
    /// Why it is not ready.
    pub message: String,
}

impl CloudView {
    fn new(name: Segment, plugin: String, state: CloudState) -> Self {
        Self { name, plugin, state, since: Timestamp::now(), message: String::new() }
    }

    fn become_(&mut self, state: CloudState, message: String) {
        if self.state != state {
            (self.state, self.since) = (state, Timestamp::now());
        }
        self.message = message;
    }
}

impl Orchestrator {
    /// A cloud that is to be; [`Orchestrator::add_cloud`] makes it known.
    pub fn expect_cloud(&self, name: Segment, plugin: String) {
        let mut views = self.cloud_states.lock();
        views.entry(name.clone()).or_insert_with(|| CloudView::new(name, plugin, CloudState::Waiting));
    }

    /// Why it is not known yet.
    pub fn cloud_waits(&self, name: &Segment, message: String) {
        if let Some(view) = self.cloud_states.lock().get_mut(name) {
            view.become_(CloudState::Waiting, message);
        }
    }

    /// All clouds that are to be, by name.
    pub fn cloud_views(&self) -> Vec<CloudView> {
        self.cloud_states.lock().values().cloned().collect()
    }

    pub fn cloud_view(&self, name: &Segment) -> Result<CloudView, OrchestratorError> {
        let found = self.cloud_states.lock().get(name).cloned();
        found.ok_or_else(|| OrchestratorError::UnknownCloud { cloud: name.clone() })
    }

    pub(super) fn cloud_is_ready(&self, name: &Segment, plugin: Option<String>) {
        let mut views = self.cloud_states.lock();
        let new = || CloudView::new(name.clone(), String::new(), CloudState::Ready);
        let view = views.entry(name.clone()).or_insert_with(new);
        view.become_(CloudState::Ready, String::new());
        if let Some(plugin) = plugin {
            view.plugin = plugin;
        }
    }

    /// What came of a call. A refusal is an answer.
    pub(super) fn cloud_answered<T>(&self, name: &Segment, answer: &Result<T, OrchestratorError>) {
        let mut views = self.cloud_states.lock();
        let Some(view) = views.get_mut(name).filter(|view| view.state != CloudState::Waiting) else { return };
        match answer {
            Err(err) if err.is_passing() => view.become_(CloudState::Failing, common::chain(err)),
            _ => view.become_(CloudState::Ready, String::new()),
        }
    }

    /// Why nothing can be asked of a cloud.
    pub(super) fn no_cloud(&self, name: &Segment) -> OrchestratorError {
        match self.cloud_view(name) {
            Ok(view) => {
                let message =
                    if view.message.is_empty() { "it was not reached yet".to_owned() } else { view.message };
                OrchestratorError::CloudWaits { cloud: view.name, message }
            }
            Err(err) => err,
        }
    }
}
