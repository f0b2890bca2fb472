//! The parts of a running controller, as the services see them.

use std::sync::Arc;

use jiff::Timestamp;
use orchestrator::execute::Orchestrator;
use store::Store;

use crate::{
    access::Credentials, audit::Audit, config::Config, metrics::Metrics, news::News, serving::Serving,
};
use drivers::{
    namespaces::Namespaces, objects::Objects, peers::Peers, pki::Pki, policy::Policy, services::Services,
    storage::Storage, tags::Tags, transport::Transport,
};
use life::Life;

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
    pub peers: Arc<Peers>,
    pub audit: Arc<Audit>,
    pub pki: Arc<Pki>,
    pub metrics: Arc<Metrics>,
    pub news: Arc<News>,
    pub started_at: Timestamp,
    pub serving: Arc<Serving>,
    pub life: Life,
}
