//! What the orchestrator asks of its neighbours.

use async_trait::async_trait;
use model::{Leaf, Segment, Site, Subscriber, TagName};
use tags::Graph;

/// The tags, as the orchestrator needs them.
#[async_trait]
pub trait TagBook: Send + Sync + 'static {
    /// The graph as it is; none before it is loaded.
    fn graph(&self) -> Option<Graph>;
    /// Returns when the graph may have changed since the last call returned.
    async fn changed(&self);
    /// Creates or replaces a leaf.
    async fn set_leaf(&self, tag: &TagName, leaf: Leaf) -> Result<(), String>;
    /// Deletes a tag; one that is not there is fine.
    async fn delete(&self, tag: &TagName) -> Result<(), String>;
    async fn subscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), String>;
    async fn unsubscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), String>;
}

/// Where namespaces live.
#[async_trait]
pub trait Deployments: Send + Sync + 'static {
    /// The cloud's id for a site: empty if the namespace names none; none if there is no such namespace.
    async fn deployment(&self, site: &Site) -> Result<Option<String>, String>;
    async fn has_namespace(&self, namespace: &Segment) -> Result<bool, String>;
}
