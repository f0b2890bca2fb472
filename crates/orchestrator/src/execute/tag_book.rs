//! What the orchestrator asks of its neighbours.

use std::error::Error;

use async_trait::async_trait;
use model::{Leaf, Segment, Site, Subscriber, TagName};
use tags::{Graph, RequestError};

/// Why the tags did not do what was asked of them.
#[derive(Debug, thiserror::Error)]
pub enum TagBookError {
    #[error(transparent)]
    Refused(#[from] RequestError),
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

/// Namespaces cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DeploymentsError(pub Box<dyn Error + Send + Sync>);

/// The tags, as the orchestrator needs them.
#[async_trait]
pub trait TagBook: Send + Sync + 'static {
    /// The graph as it is; none before it is loaded.
    fn graph(&self) -> Option<Graph>;
    /// Returns when the graph may have changed since the last call returned.
    async fn changed(&self);
    /// Creates or replaces a leaf.
    async fn set_leaf(&self, tag: &TagName, leaf: Leaf) -> Result<(), TagBookError>;
    /// Deletes a tag; one that is not there is fine.
    async fn delete(&self, tag: &TagName) -> Result<(), TagBookError>;
    async fn subscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), TagBookError>;
    async fn unsubscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), TagBookError>;
}

/// Where namespaces live.
#[async_trait]
pub trait Deployments: Send + Sync + 'static {
    /// The cloud's id for a site: empty if the namespace names none; none if there is no such namespace.
    async fn deployment(&self, site: &Site) -> Result<Option<String>, DeploymentsError>;
    /// All namespaces.
    async fn namespaces(&self) -> Result<Vec<Segment>, DeploymentsError>;
    async fn has_namespace(&self, namespace: &Segment) -> Result<bool, DeploymentsError>;
}
