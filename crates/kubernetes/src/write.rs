//! What is written back to an API server: statuses of objects, Events about them, and what a ConfigMap of ours holds. Nothing else ever is.

use std::time::Duration;

use common::chain;
use kube::{
    Client,
    api::{GetParams, Patch, PatchParams, PostParams},
    core::{Request, request::Error as RequestError, response::reason},
};
use model::policy::ObjectId;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{cluster::Cluster, resource::RESOURCES};

const ANSWER: Duration = Duration::from_secs(10);
/// Who reports, as Events have it.
const REPORTER: &str = "trestle";

/// Why something could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the API server has not been reached yet")]
    Unreached,
    #[error("kinds like {0} are not read")]
    Kind(ObjectId),
    #[error("there is no such object any more")]
    Gone,
    #[error("it is there already")]
    Exists,
    #[error("{0}")]
    Refused(String),
    #[error("no answer within {} s", ANSWER.as_secs())]
    NoAnswer,
}

/// Something that users of a cluster should know of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub about: ObjectId,
    pub reason: &'static str,
    pub message: String,
    /// Tells it from other Events about the object: the same again is the same Event.
    pub key: String,
    pub at: jiff::Timestamp,
}

impl Cluster {
    /// Merges fields into the status of an object.
    pub async fn write_status(&self, id: &ObjectId, status: &Value) -> Result<(), WriteError> {
        let client = self.client().ok_or(WriteError::Unreached)?;
        let resource = RESOURCES.iter().find(|resource| resource.kind == id.kind);
        let resource = resource.ok_or_else(|| WriteError::Kind(id.clone()))?;
        let patch = Patch::Merge(json!({ "status": status }));
        let request = Request::new(resource.path_in(&id.namespace)).patch_subresource(
            "status",
            &id.name,
            &PatchParams::default(),
            &patch,
        );
        send(&client, request).await.map(drop)
    }

    /// Reports an Event. One that is there already is as it should be.
    pub async fn report(&self, event: &Event) -> Result<(), WriteError> {
        let client = self.client().ok_or(WriteError::Unreached)?;
        let resource = RESOURCES.iter().find(|resource| resource.kind == event.about.kind);
        let resource = resource.ok_or_else(|| WriteError::Kind(event.about.clone()))?;
        let about = Request::new(resource.path_in(&event.about.namespace))
            .get(&event.about.name, &GetParams::default());
        let about = send(&client, about).await?;
        let uid = about["metadata"]["uid"].as_str().unwrap_or_default();
        let document = event.document(&resource.api_version(), resource.word(), uid);
        let namespace = event.namespace();
        let request = Request::new(format!("/api/v1/namespaces/{namespace}/events"));
        let request = request.create(&PostParams::default(), document.to_string().into_bytes());
        match send(&client, request).await {
            Err(WriteError::Exists) => Ok(()),
            sent => sent.map(drop),
        }
    }
}

impl Cluster {
    /// Has a ConfigMap, which must be there, hold a text under a key.
    pub async fn publish(
        &self,
        namespace: &str,
        name: &str,
        key: &str,
        text: &str,
    ) -> Result<(), WriteError> {
        let client = self.client().ok_or(WriteError::Unreached)?;
        let patch = Patch::Merge(json!({ "data": { key: text } }));
        let request = Request::new(format!("/api/v1/namespaces/{namespace}/configmaps"));
        send(&client, request.patch(name, &PatchParams::default(), &patch)).await.map(drop)
    }
}

impl Event {
    /// Of what has none, `default` has them.
    fn namespace(&self) -> &str {
        if self.about.namespace.is_empty() { "default" } else { &self.about.namespace }
    }

    fn document(&self, api_version: &str, kind: &str, uid: &str) -> Value {
        let Self { about, reason, message, key, at } = self;
        // A name is bounded, and so is a note.
        let name: String = about.name.chars().take(200).collect();
        let mut message = message.clone();
        message.truncate(message.floor_char_boundary(1000));
        let at = format!("{at:.6}");
        json!({
            "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": reason, "message": message,
            "metadata": {"name": format!("{name}.{key}"), "namespace": self.namespace()},
            "involvedObject": {"apiVersion": api_version, "kind": kind, "name": about.name, "namespace": about.namespace, "uid": uid},
            "source": {"component": REPORTER}, "reportingComponent": REPORTER, "reportingInstance": REPORTER, "action": "Enforce",
            "eventTime": at, "firstTimestamp": null, "lastTimestamp": null,
        })
    }
}

async fn send(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, RequestError>,
) -> Result<Value, WriteError> {
    let request = request.map_err(|err| WriteError::Refused(err.to_string()))?;
    match timeout(ANSWER, client.request::<Value>(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.reason == reason::ALREADY_EXISTS => {
            Err(WriteError::Exists)
        }
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(WriteError::Gone),
        Ok(Err(err)) => Err(WriteError::Refused(chain(&err))),
        Err(_) => Err(WriteError::NoAnswer),
    }
}
