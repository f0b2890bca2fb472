//! Requests to Cloud DNS.

use cloud_api::CloudError;
use cloud_http::{or_gone, or_there};
use http::Method;
use serde::de::DeserializeOwned;

use crate::{google::Api, shapes::RecordSet};

pub(crate) struct Dns(Api);

impl Dns {
    pub(crate) fn new(api: Api) -> Self {
        Self(api)
    }

    /// Asks for something. What is there already is fine.
    pub(crate) async fn create(&self, operation: &str, path: &str, body: String) -> Result<(), CloudError> {
        let asked = self.0.tell(operation, Method::POST, path, Some(body));
        Ok(or_there(asked.await)?)
    }

    /// Asks for something to go. What is not there is fine.
    pub(crate) async fn leave(
        &self,
        operation: &str,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(), CloudError> {
        Ok(or_gone(self.0.tell(operation, method, path, body).await)?)
    }

    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        operation: &str,
        path: &str,
    ) -> Result<Vec<T>, CloudError> {
        Ok(self.0.pages::<Vec<T>>(operation, path).await?.into_iter().flatten().collect())
    }

    pub(crate) async fn records_in(&self, zone: &str) -> Result<Vec<RecordSet>, CloudError> {
        self.list("dns.resourceRecordSets.list", &format!("{zone}/rrsets")).await
    }
}
