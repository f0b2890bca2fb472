//! Documents, put into a cluster and taken away, by whoever has the rights for that.

use std::time::Duration;

use common::chain;
use kube::{
    Client,
    api::{DeleteParams, GetParams, Patch, PatchParams},
    core::{Request, request::Error as RequestError},
};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::{Install, NAME, leave};
use crate::access::{Access, AccessError};

const ANSWER: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("the API server refuses {what}: {why}")]
    Refused { what: String, why: String },
    #[error("the API server has not answered about {what} within {} s", ANSWER.as_secs())]
    NoAnswer { what: String },
    #[error(
        "{0} is not everywhere done yet: {1} of {2} nodes. What is left waits for nodes that do not run; look at `kubectl get pods -o wide`, \
         and repeat the command"
    )]
    Unfinished(String, u64, u64),
    #[error("{0} is still there; look at `kubectl describe`, and repeat the command")]
    StillThere(String),
}

/// An administrator's hand.
pub struct Installer {
    client: Client,
    /// Where it acts, for people.
    pub server: String,
}

impl Installer {
    pub async fn connect(access: &Access) -> Result<Self, InstallError> {
        let (client, server) = access.client().await?;
        Ok(Self { client, server })
    }

    /// Makes a document's object, or makes it so. With `dry_run` the API server judges it, and nothing is made.
    pub async fn apply(&self, document: &Value, dry_run: bool) -> Result<(), InstallError> {
        let params = PatchParams { dry_run, ..PatchParams::apply(NAME).force() };
        let request = Request::new(path(document)).patch(name(document), &params, &Patch::Apply(document));
        match self.send(document, request).await? {
            Some(_) => Ok(()),
            // What is applied is made; what it would be in is not there.
            None => Err(InstallError::Refused {
                what: what(document),
                why: "its namespace is not there".to_owned(),
            }),
        }
    }

    /// Whether there was one. What belongs to it goes too.
    pub async fn delete(&self, document: &Value) -> Result<bool, InstallError> {
        let request = Request::new(path(document)).delete(name(document), &DeleteParams::foreground());
        self.send(document, request).await.map(|answer| answer.is_some())
    }

    /// The object as it is, if it is there.
    pub async fn get(&self, document: &Value) -> Result<Option<Value>, InstallError> {
        let request = Request::new(path(document)).get(name(document), &GetParams::default());
        self.send(document, request).await
    }

    /// Takes all of an installation away: agents first, then what they have put onto nodes, then the rest. `told` hears of each step.
    pub async fn uninstall(
        &self,
        install: &Install,
        patience: Duration,
        told: impl Fn(&str),
    ) -> Result<(), InstallError> {
        let documents = install.documents();
        let agents = documents.last().expect("agents come last");
        let namespace = documents.first().expect("the namespace comes first");
        if self.get(namespace).await?.is_some() {
            let had_agents = self.delete(agents).await?;
            self.until_gone(agents, patience).await?;
            told("agents are gone; what they have put into kernels is in force");
            let leaving = install.leaving();
            let is_begun = self.get(&leaving).await?.is_some();
            if had_agents || is_begun {
                self.apply(&leaving, false).await?;
                self.until_everywhere(&leaving, patience).await?;
                told("nothing of it is left on nodes");
            }
        }
        for document in documents.iter().rev() {
            self.delete(document).await?;
        }
        self.until_gone(namespace, patience).await?;
        told("nothing of it is left in the cluster");
        Ok(())
    }

    async fn until_gone(&self, document: &Value, patience: Duration) -> Result<(), InstallError> {
        let end = Instant::now() + patience;
        while self.get(document).await?.is_some() {
            if Instant::now() >= end {
                return Err(InstallError::StillThere(what(document)));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Until a DaemonSet's Pods are ready on all nodes.
    async fn until_everywhere(&self, document: &Value, patience: Duration) -> Result<(), InstallError> {
        let end = Instant::now() + patience;
        loop {
            let there = self.get(document).await?.unwrap_or_default();
            let (ready, wanted, seen) = counts(&there);
            if seen && ready >= wanted {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(InstallError::Unfinished(leave::NAME.to_owned(), ready, wanted));
            }
            sleep(LOOK).await;
        }
    }

    /// None: it is not there.
    async fn send(
        &self,
        document: &Value,
        request: Result<http::Request<Vec<u8>>, RequestError>,
    ) -> Result<Option<Value>, InstallError> {
        let refused = |why: String| InstallError::Refused { what: what(document), why };
        let request = request.map_err(|err| refused(err.to_string()))?;
        match timeout(ANSWER, self.client.request::<Value>(request)).await {
            Ok(Ok(answer)) => Ok(Some(answer)),
            // Another 404 is of a path that there is not.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 && status.reason == "NotFound" => {
                Ok(None)
            }
            Ok(Err(kube::Error::Api(status))) => Err(refused(status.message.clone())),
            Ok(Err(err)) => Err(refused(chain(&err))),
            Err(_) => Err(InstallError::NoAnswer { what: what(document) }),
        }
    }
}

/// Of a DaemonSet: on how many nodes it is ready, on how many it should be, and whether that is of what was asked for last.
pub(super) fn counts(set: &Value) -> (u64, u64, bool) {
    let number = |key: &str| set["status"][key].as_u64().unwrap_or_default();
    let seen = set["status"]["observedGeneration"].as_i64() >= set["metadata"]["generation"].as_i64();
    let updated = number("updatedNumberScheduled").min(number("numberReady"));
    (updated, number("desiredNumberScheduled"), seen && !set["status"].is_null())
}

fn name(document: &Value) -> &str {
    document["metadata"]["name"].as_str().unwrap_or_default()
}

fn what(document: &Value) -> String {
    format!("{} {}", document["kind"].as_str().unwrap_or_default(), name(document))
}

/// Where objects of its kind are.
pub(super) fn path(document: &Value) -> String {
    let version = document["apiVersion"].as_str().unwrap_or_default();
    let base = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let kind = document["kind"].as_str().unwrap_or_default().to_lowercase();
    let plural = format!("{kind}{}", if kind.ends_with('s') { "es" } else { "s" });
    match document["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{base}/namespaces/{namespace}/{plural}"),
        None => format!("{base}/{plural}"),
    }
}
