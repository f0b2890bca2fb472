//! Requests to the API of Kubernetes clusters. What they start is followed by the cluster's own state.

use cloud_api::CloudError;
use cloud_http::{Failure, or_gone};
use http::Method;
use serde_json::{Map, Value};

use crate::{
    google::{Api, json},
    shapes::{Cluster, Clusters, Link, only},
};

pub(crate) struct Container(Api);

impl Container {
    pub(crate) fn new(api: Api) -> Self {
        Self(api)
    }

    pub(crate) async fn get(&self, link: &Link<Cluster>) -> Result<Option<Cluster>, Failure> {
        self.0.find("container.clusters.get", link.path()).await
    }

    /// The clusters of a project, in all its regions and zones.
    pub(crate) async fn list(&self, project: &str) -> Result<Vec<Cluster>, CloudError> {
        let path = format!("projects/{project}/locations/-/clusters");
        let operation = "container.clusters.list";
        let found: Clusters = self.0.send(operation, Method::GET, &path, None).await?;
        if !found.missing_zones.is_empty() {
            // A list that lacks some would be taken for one of clusters that are gone.
            let message = format!("Google does not know the clusters of {:?} just now", found.missing_zones);
            return Err(Failure::Unreadable { operation: operation.to_owned(), message }.into());
        }
        Ok(found.clusters)
    }

    /// Asks for a cluster.
    pub(crate) async fn create(
        &self,
        link: &Link<Cluster>,
        cluster: &Map<String, Value>,
    ) -> Result<(), Failure> {
        let (path, body) = (format!("{}/clusters", link.place().path()), json(&only("cluster", cluster)));
        self.0.tell("container.clusters.create", Method::POST, &path, Some(body)).await
    }

    /// Asks for a cluster to go. One that is not there is fine.
    pub(crate) async fn delete(&self, link: &Link<Cluster>) -> Result<(), Failure> {
        let asked = self.0.tell("container.clusters.delete", Method::DELETE, link.path(), None);
        or_gone(asked.await)
    }
}
