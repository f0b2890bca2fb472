//! Requests to the API of Kubernetes clusters. What they start is followed by the cluster's own state.

use cloud_http::{Class, Failure};
use http::Method;
use serde_json::{Value, json};

use crate::{
    cloud::{Ground, Result},
    google::Api,
};

pub(crate) struct Container(Api);

impl Container {
    pub(crate) fn new(api: Api) -> Self {
        Self(api)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>> {
        Ok(self.0.find("container.clusters.get", path).await?)
    }

    /// The clusters of a project, in all its regions and zones.
    pub(crate) async fn list(&self, project: &str) -> Result<Vec<Value>> {
        let path = format!("projects/{project}/locations/-/clusters");
        let operation = "container.clusters.list";
        let answer = self.0.send(operation, Method::GET, &path, None).await?;
        let missing = answer["missingZones"].as_array().filter(|zones| !zones.is_empty());
        match missing {
            // A list that lacks some would be taken for one of clusters that are gone.
            Some(zones) => {
                let message = format!("Google does not know the clusters of {zones:?} just now");
                Err(Failure::Unreadable { operation: operation.to_owned(), message }.into())
            }
            None => Ok(answer["clusters"].as_array().cloned().unwrap_or_default()),
        }
    }

    /// Asks for a cluster. One that is there already is fine: its name says what it is.
    pub(crate) async fn create(&self, ground: &Ground, location: &str, cluster: &Value) -> Result<()> {
        let path = format!("projects/{}/locations/{location}/clusters", ground.project);
        let body = json!({ "cluster": cluster });
        match self.0.send("container.clusters.create", Method::POST, &path, Some(&body)).await {
            Err(failure) if failure.is(Class::Exists) => Ok(()),
            outcome => Ok(outcome.map(drop)?),
        }
    }

    /// Asks for a cluster to go. One that is not there is fine.
    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        match self.0.send("container.clusters.delete", Method::DELETE, path, None).await {
            Err(failure) if failure.is(Class::NotFound) => Ok(()),
            outcome => Ok(outcome.map(drop)?),
        }
    }
}
