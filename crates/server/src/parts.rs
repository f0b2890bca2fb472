//! The parts of a running controller, as the services see them.

use std::sync::Arc;

use jiff::Timestamp;
use model::{Segment, change::Change};
use orchestrator::execute::Orchestrator;
use store::Store;

use crate::{
    access::Credentials,
    audit::Audit,
    config::Config,
    failure::chain,
    life::Life,
    metrics::Metrics,
    namespaces::{NamespaceError, Namespaces},
    news::News,
    objects::Objects,
    pki::Pki,
    policy::Policy,
    services::Services,
    storage::Storage,
    tags::Tags,
    transport::Transport,
};

/// Handles on everything; cheap to clone.
#[derive(Clone)]
pub struct Parts {
    pub config: Arc<Config>,
    pub store: Store,
    pub tags: Arc<Tags>,
    pub namespaces: Namespaces,
    pub orchestrator: Arc<Orchestrator>,
    pub objects: Objects,
    pub policy: Arc<Policy>,
    /// How far the policy engine knows the resources, in the orchestrator's count of changes.
    pub enforced: tokio::sync::watch::Receiver<u64>,
    pub services: Arc<Services>,
    pub watch: Arc<watch::Cache>,
    pub credentials: Arc<Credentials>,
    pub storage: Option<Arc<Storage>>,
    pub transport: Arc<Transport>,
    pub audit: Arc<Audit>,
    pub pki: Arc<Pki>,
    pub metrics: Arc<Metrics>,
    pub news: Arc<News>,
    pub started_at: Timestamp,
    pub life: Life,
}

impl Parts {
    /// Deletes a namespace that holds no resources.
    pub async fn delete_namespace(&self, name: &Segment) -> Result<Change, NamespaceError> {
        let mut names = self.orchestrator.resources().into_iter().map(|resource| resource.name);
        if let Some(resource) = names.find(|resource| resource.namespace == *name) {
            return Err(NamespaceError::NotEmpty { name: name.clone(), resource });
        }
        self.namespaces.delete(name).await
    }

    /// Why the controller cannot serve; empty if it can.
    pub async fn not_ready(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.life.is_stopping() {
            reasons.push("the controller is stopping".to_owned());
        }
        if !self.credentials.is_synced() {
            reasons.push("tokens and certificates are not loaded yet".to_owned());
        }
        if !self.tags.is_synced() {
            reasons.push("tags are not loaded yet".to_owned());
        }
        if !self.policy.is_synced() {
            reasons.push("objects are not loaded yet".to_owned());
        }
        reasons.extend(self.audit.trouble());
        match self.store.health().await {
            Ok(health) => reasons.extend(health.refusing_writes),
            Err(err) => reasons.push(chain(&err)),
        }
        reasons
    }
}
