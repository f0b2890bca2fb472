//! Objects of a kind: listed, found, made true, deleted.
//!
//! IBM's objects have an id that IBM chooses, so they are found by name in lists, page after page; afterwards by their id.
//! Deciding what to do with what is found is `cloud_http`'s ([`cloud_http::ensure_from`]).

use std::{fmt, marker::PhantomData, time::Duration};

use async_trait::async_trait;
use cloud_http::{Class, Clock, Failure, Fit, Objects, Wanted, ensure_from, gone, patiently};
use futures::future::try_join_all;
use http::Method;
use parking_lot::Mutex;
use serde::Serialize;

use crate::{Api, Call, Listed, Place, Result};

/// How long something may stay in use by what is on its way out.
const PATIENCE: Duration = Duration::from_secs(300);

/// Objects of a kind, in one place.
pub(crate) struct Collection<'a, K> {
    api: &'a Api,
    /// None: of the transit gateway API, which is one for all regions.
    region: Option<&'a str>,
    path: String,
    /// Which of them are listed.
    filter: String,
    kind: PhantomData<fn() -> K>,
}

impl Api {
    pub(crate) fn in_region<'a, K: Listed>(&'a self, region: &'a str) -> Collection<'a, K> {
        Collection { region: Some(region), ..self.transit() }
    }

    pub(crate) fn transit<K: Listed>(&self) -> Collection<'_, K> {
        let (path, filter) = (K::COLLECTION.to_owned(), String::new());
        Collection { api: self, region: None, path, filter, kind: PhantomData }
    }
}

impl<K: Listed> Collection<'_, K> {
    /// Those that belong to another object.
    pub(crate) fn of<P: Listed>(self, parent: &str) -> Self {
        Self { path: format!("{}/{parent}/{}", P::COLLECTION, K::COLLECTION), ..self }
    }

    /// Those that have a value in a field.
    pub(crate) fn with(self, field: &str, value: &str) -> Self {
        Self { filter: format!("{field}={value}"), ..self }
    }

    fn call(&self, operation: &str, method: Method, path: impl Into<String>) -> Call<'_> {
        Call::new(self.region.map_or(Place::Transit, Place::Region), operation, method, path)
    }

    fn call_one(&self, verb: &str, method: Method, id: &str) -> Call<'_> {
        self.call(&format!("{verb}_{}", K::ONE), method, format!("{}/{id}", self.path))
    }

    pub(crate) async fn list(&self) -> Result<Vec<K>> {
        Ok(self.pages().await?)
    }

    /// All of them, page after page, a hundred at a time, which is the most there is. Rules come all at once.
    async fn pages(&self) -> Result<Vec<K>, Failure> {
        let limit = if K::COLLECTION == "rules" { "" } else { "limit=100" };
        let (mut found, mut start) = (Vec::new(), String::new());
        loop {
            let query = [self.filter.as_str(), limit, &start].into_iter().filter(|part| !part.is_empty());
            let query = query.collect::<Vec<_>>().join("&");
            let path = format!("{}?{query}", self.path);
            let call = self.call(&format!("list_{}", K::MANY), Method::GET, path.trim_end_matches('?'));
            let operation = call.operation.clone();
            let (page, next) = K::read_page(&operation, &self.api.send(call).await?)?;
            found.extend(page);
            let Some(next) = next else { return Ok(found) };
            start = format!("start={next}");
        }
    }

    /// The one of a name. One that is on its way out only if there is no other.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<K>, Failure> {
        let mut named = self.pages().await?.into_iter().filter(|one| one.name() == name);
        Ok(match named.next() {
            Some(going) if !going.is_alive() => named.find(K::is_alive).or(Some(going)),
            first => first,
        })
    }

    /// The one of an id; none if there is no such.
    pub(crate) async fn get(&self, id: &str) -> Result<Option<K>, Failure> {
        self.api.look(self.call_one("get", Method::GET, id)).await
    }

    /// Makes the object of a request's name true, from what is known of it, and waits until it is ready.
    pub(crate) async fn ensure(&self, there: Option<K>, request: &K::Request) -> Result<K> {
        let name = K::requested_name(request);
        let spot =
            Spot { name: name.to_owned(), id: Mutex::new(there.as_ref().map(|one| one.id().to_owned())) };
        // Owner and site are in the name: what has it is ours, and as it was asked for.
        let wanted = Wanted { body: request, is_ours: &|one: &K| one.name() == name, fits: &|_| Fit::Yes };
        ensure_from(self, &spot, there, wanted).await
    }

    /// Changes some fields of the object of an id.
    pub(crate) async fn update(&self, id: &str, patch: &impl Serialize) -> Result {
        Ok(self.api.send(self.call_one("update", Method::PATCH, id).body(patch)).await.map(drop)?)
    }

    /// Deletes the object of an id, and waits until it is gone.
    pub(crate) async fn remove(&self, id: &str) -> Result {
        let spot = Spot { name: id.to_owned(), id: Mutex::new(Some(id.to_owned())) };
        Objects::delete(self, &spot).await?;
        if K::HAS_STATE { gone(self, &spot).await } else { Ok(()) }
    }

    /// The same for the one of a name, if there is any.
    pub(crate) async fn remove_named(&self, name: &str) -> Result {
        match self.find(name).await? {
            Some(one) => self.remove(one.id()).await,
            None => Ok(()),
        }
    }

    /// The same for several, at once.
    pub(crate) async fn remove_all(&self, ids: impl IntoIterator<Item = &str> + Send) -> Result {
        try_join_all(ids.into_iter().map(|id| self.remove(id))).await.map(drop)
    }
}

/// Which object of a collection: that of a name, until its id is known.
pub(crate) struct Spot {
    name: String,
    id: Mutex<Option<String>>,
}

impl fmt::Display for Spot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

#[async_trait]
impl<K: Listed> Objects<K> for Collection<'_, K> {
    type Address = Spot;
    type Body = K::Request;

    async fn get(&self, spot: &Spot) -> Result<Option<K>, Failure> {
        let id = spot.id.lock().clone();
        let found = match id {
            Some(id) => return Collection::get(self, &id).await,
            None => self.find(&spot.name).await?,
        };
        *spot.id.lock() = found.as_ref().map(|one| one.id().to_owned());
        Ok(found)
    }

    async fn put(&self, spot: &Spot, request: &K::Request) -> Result<Option<K>, Failure> {
        *spot.id.lock() = None;
        let call = self.call(&format!("create_{}", K::ONE), Method::POST, &*self.path).body(request);
        match self.api.ask::<K>(call).await {
            Ok(made) => {
                *spot.id.lock() = Some(made.id().to_owned());
                Ok(Some(made))
            }
            // Perhaps it is there already, from a request whose answer was lost, and is in its own way by its addresses.
            Err(failure) if failure.is(Class::Invalid) => match Objects::get(self, spot).await? {
                None => Err(failure),
                there => Ok(there),
            },
            Err(failure) => Err(failure),
        }
    }

    /// It may still be in use for a moment by what is on its way out.
    async fn delete(&self, spot: &Spot) -> Result<(), Failure> {
        let Some(id) = spot.id.lock().clone() else { return Ok(()) };
        let ask = || self.api.take_away(self.call_one("delete", Method::DELETE, &id));
        patiently(self.api.clock(), PATIENCE, ask).await
    }

    fn clock(&self) -> &dyn Clock {
        self.api.clock()
    }
}
