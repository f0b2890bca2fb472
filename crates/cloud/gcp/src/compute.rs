//! Compute Engine: one request, and the operation it starts.
//!
//! ```text
//!   get, list          read
//!   insert, delete     under a name of ours: what is there already, or gone already, is fine
//!   patch, put, act    change what is there
//! ```
//!
//! A change is over when its operation is. Not here: what an object must be (`kinds`, `shapes`).

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use cloud_http::{
    Answer, Class, Clock, Failure, Objects, Pace, Progress, encode_component, or_gone, or_there, wait,
};
use http::Method;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    google::{Api, class, json},
    shapes::{Link, Place, Resource, shapes},
};

pub(crate) struct Compute {
    api: Api,
}

/// A change to ask for.
struct Change<'c> {
    operation: String,
    method: Method,
    place: &'c Place,
    path: String,
    body: Option<String>,
}

shapes! {
    Operation {
        told { error: Errors, http_error_status_code: Option<u16>, }
        given { name: String, status: String, }
    }

    Errors { told { errors: Vec<Told>, } }

    Told { told { code: String, message: String, } }
}

/// The objects of one region or zone in a list of all; each kind has its own name for them.
#[derive(Deserialize)]
struct Scope<K> {
    #[serde(default = "Vec::new", alias = "addresses", alias = "forwardingRules", alias = "instances")]
    #[serde(alias = "routers", alias = "subnetworks", alias = "vpnGateways", alias = "vpnTunnels")]
    objects: Vec<K>,
}

/// Google's name of an operation in a place.
fn operation<K: Resource>(place: &Place, verb: &str) -> String {
    let collection = if place.kind() == "global" { K::GLOBAL } else { K::COLLECTION };
    format!("compute.{collection}.{verb}")
}

impl Compute {
    pub(crate) fn new(api: Api) -> Self {
        Self { api }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.api.clock()
    }

    /// An object; none if there is no such.
    pub(crate) async fn get<K: Resource>(&self, link: &Link<K>) -> Result<Option<K>, Failure> {
        self.api.find(&operation::<K>(&link.place(), "get"), link.path()).await
    }

    /// Asks an object something with a verb that reads.
    pub(crate) async fn ask<K: Resource, T: DeserializeOwned>(
        &self,
        link: &Link<K>,
        verb: &str,
        query: &str,
    ) -> Result<T, Failure> {
        let path = format!("{link}/{verb}{query}");
        self.api.send(&format!("compute.{}.{verb}", K::COLLECTION), Method::GET, &path, None).await
    }

    /// Objects of a place whose names begin with a prefix.
    pub(crate) async fn list<K: Resource>(&self, place: &Place, prefix: &str) -> Result<Vec<K>, Failure> {
        let pages: Vec<Vec<K>> = self.pages::<K, _>(place.path(), prefix).await?;
        Ok(pages.into_iter().flatten().filter(|one| one.name().starts_with(prefix)).collect())
    }

    /// The same in all regions or zones of a project.
    pub(crate) async fn list_all<K: Resource>(&self, project: &str, prefix: &str) -> Result<Vec<K>, Failure> {
        let place = format!("projects/{project}/aggregated");
        let pages: Vec<BTreeMap<String, Scope<K>>> = self.pages::<K, _>(&place, prefix).await?;
        let all = pages.into_iter().flat_map(BTreeMap::into_values).flat_map(|scope| scope.objects);
        Ok(all.filter(|one| one.name().starts_with(prefix)).collect())
    }

    async fn pages<K: Resource, I>(&self, place: &str, prefix: &str) -> Result<Vec<I>, Failure>
    where
        I: Default + DeserializeOwned,
    {
        let filter = encode_component(&format!("name eq {prefix}.*"));
        let path = format!("{place}/{}?filter={filter}", K::COLLECTION);
        self.api.pages(&format!("compute.{}.list", K::COLLECTION), &path).await
    }

    /// Asks for an object, and waits until it is made.
    async fn create<K: Resource>(&self, place: &Place, body: &K) -> Result<(), Failure> {
        let path = format!("{}/{}", place.path(), K::COLLECTION);
        let operation = operation::<K>(place, "insert");
        self.change(Change { operation, method: Method::POST, place, path, body: Some(json(body)) }).await
    }

    /// Makes an object. One that is there already is fine: its name says what it is.
    pub(crate) async fn insert<K: Resource>(&self, place: &Place, body: &K) -> Result<(), Failure> {
        or_there(self.create(place, body).await)
    }

    /// Deletes an object. One that is not there is fine.
    pub(crate) async fn delete<K: Resource>(&self, link: &Link<K>) -> Result<(), Failure> {
        let (place, path) = (&link.place(), link.path().to_owned());
        let operation = operation::<K>(place, "delete");
        let change = Change { operation, method: Method::DELETE, place, path, body: None };
        or_gone(self.change(change).await)
    }

    /// Changes the fields of an object that are said.
    pub(crate) async fn patch<K: Resource>(
        &self,
        link: &Link<K>,
        body: &impl Serialize,
    ) -> Result<(), Failure> {
        self.update(Method::PATCH, link, json(body)).await
    }

    /// Replaces an object.
    pub(crate) async fn put<K: Resource>(&self, link: &Link<K>, body: &K) -> Result<(), Failure> {
        self.update(Method::PUT, link, json(body)).await
    }

    async fn update<K: Resource>(&self, method: Method, link: &Link<K>, body: String) -> Result<(), Failure> {
        let (place, path) = (&link.place(), link.path().to_owned());
        let operation = operation::<K>(place, "update");
        self.change(Change { operation, method, place, path, body: Some(body) }).await
    }

    /// Does something to an object with a verb of its kind, which may have a query: `removeRule?priority=7`.
    pub(crate) async fn act<K: Resource>(
        &self,
        link: &Link<K>,
        verb: &str,
        body: Option<&(impl Serialize + Sync)>,
    ) -> Result<(), Failure> {
        let bare = verb.split('?').next().unwrap_or_default();
        let (place, path) = (&link.place(), format!("{link}/{verb}"));
        let operation = format!("compute.{}.{bare}", K::COLLECTION);
        self.change(Change { operation, method: Method::POST, place, path, body: body.map(json) }).await
    }

    /// Sends a change and waits for the end of its operation. The request's own id makes it safe to send again.
    async fn change(&self, change: Change<'_>) -> Result<(), Failure> {
        let mut tries = 0;
        loop {
            match self.once(&change).await? {
                // An operation that fails through no fault of ours is asked for again.
                Err(failure)
                    if matches!(failure.class(), Class::Failed | Class::Busy | Class::Throttled)
                        && tries < 3 =>
                {
                    tries += 1;
                    self.clock().sleep(Duration::from_secs(2 * tries)).await;
                }
                ended => return ended,
            }
        }
    }

    /// Starts an operation, and follows it to its end, good or bad.
    async fn once(&self, change: &Change<'_>) -> Result<Result<(), Failure>, Failure> {
        let Change { operation, method, place, path, body } = change;
        let mark = if path.contains('?') { '&' } else { '?' };
        let url = format!("{path}{mark}requestId={}", uuid::Uuid::new_v4());
        let started: Operation = self.api.send(operation, method.clone(), &url, body.clone()).await?;
        let path = format!("{}/operations/{}/wait", place.path(), started.name);
        let asked = format!("compute.{}Operations.get", place.kind().trim_end_matches('s'));
        let mut first = Some(started);
        let ended = wait(self.clock(), Pace::QUICK, operation, || {
            let (first, path, asked) = (first.take(), &path, &asked);
            async move {
                let now = match first {
                    Some(started) => started,
                    None => self.api.send(asked, Method::POST, path, None).await?,
                };
                Ok(if now.status == "DONE" { Progress::Done(now) } else { Progress::Pending })
            }
        });
        let ended = ended
            .await
            .map_err(|err| Failure::Unreadable { operation: operation.clone(), message: err.to_string() })?;
        let Some(Told { code, message }) = ended.error.errors.into_iter().next() else { return Ok(Ok(())) };
        let status = ended.http_error_status_code.unwrap_or(500);
        let answer = Answer { class: class(status, &code, &message), code, message };
        Ok(Err(Failure::Refused { operation: operation.clone(), status, answer }))
    }
}

#[async_trait]
impl<K: Resource> Objects<K> for Compute {
    type Address = Link<K>;
    type Body = K;

    async fn get(&self, link: &Link<K>) -> Result<Option<K>, Failure> {
        Self::get(self, link).await
    }

    async fn put(&self, link: &Link<K>, body: &K) -> Result<Option<K>, Failure> {
        self.create(&link.place(), body).await?;
        Ok(K::IS_AS_ASKED.then(|| body.clone()))
    }

    async fn delete(&self, link: &Link<K>) -> Result<(), Failure> {
        Self::delete(self, link).await
    }

    fn clock(&self) -> &dyn Clock {
        Self::clock(self)
    }
}
