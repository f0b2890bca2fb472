//! One Compute Engine request, and the operation it starts.

use cloud_http::{Answer, Class, Clock, Failure, Pace, Progress, encode_component, wait};
use http::Method;
use serde_json::Value;

use crate::google::{Api, class};

pub(crate) struct Compute {
    api: Api,
}

/// A place in a project: `projects/P/global`, `projects/P/regions/R`, `projects/P/zones/Z`.
#[derive(Clone, Debug)]
pub(crate) struct Place(String);

impl Place {
    pub(crate) fn global(project: &str) -> Self {
        Self(format!("projects/{project}/global"))
    }

    pub(crate) fn region(project: &str, region: &str) -> Self {
        Self(format!("projects/{project}/regions/{region}"))
    }

    pub(crate) fn zone(project: &str, zone: &str) -> Self {
        Self(format!("projects/{project}/zones/{zone}"))
    }

    pub(crate) fn object(&self, collection: &str, name: &str) -> String {
        format!("{}/{collection}/{name}", self.0)
    }

    /// Google's name of an operation here: some collections have another one where they are global.
    fn operation(&self, collection: &str, verb: &str) -> String {
        match (self.0.ends_with("/global"), collection) {
            (true, "addresses") => format!("compute.globalAddresses.{verb}"),
            (true, "forwardingRules") => format!("compute.globalForwardingRules.{verb}"),
            _ => format!("compute.{collection}.{verb}"),
        }
    }
}

impl Compute {
    pub(crate) fn new(api: Api) -> Self {
        Self { api }
    }

    /// An object; none if there is no such.
    pub(crate) async fn get(
        &self,
        place: &Place,
        collection: &str,
        name: &str,
    ) -> Result<Option<Value>, Failure> {
        self.api.find(&place.operation(collection, "get"), &place.object(collection, name)).await
    }

    /// Asks a verb that reads.
    pub(crate) async fn ask(
        &self,
        place: &Place,
        collection: &str,
        name: &str,
        verb: &str,
        query: &str,
    ) -> Result<Value, Failure> {
        let path = format!("{}/{verb}{query}", place.object(collection, name));
        self.api.send(&format!("compute.{collection}.{verb}"), Method::GET, &path, None).await
    }

    /// Objects of a place whose names begin with a prefix.
    pub(crate) async fn list(
        &self,
        place: &Place,
        collection: &str,
        prefix: &str,
    ) -> Result<Vec<Value>, Failure> {
        let filter = encode_component(&format!("name eq {prefix}.*"));
        let path = format!("{}/{collection}?filter={filter}", place.0);
        let pages = self.pages(&format!("compute.{collection}.list"), &path).await?;
        let all = pages.iter().flat_map(|page| page["items"].as_array().cloned().unwrap_or_default());
        Ok(all.filter(|one| one["name"].as_str().is_some_and(|name| name.starts_with(prefix))).collect())
    }

    /// The same in all regions or zones of a project.
    pub(crate) async fn list_all(
        &self,
        project: &str,
        collection: &str,
        prefix: &str,
    ) -> Result<Vec<Value>, Failure> {
        let filter = encode_component(&format!("name eq {prefix}.*"));
        let path = format!("projects/{project}/aggregated/{collection}?filter={filter}");
        let pages = self.pages(&format!("compute.{collection}.list"), &path).await?;
        let mut found = Vec::new();
        for scope in pages
            .iter()
            .flat_map(|page| page["items"].as_object().into_iter().flatten())
            .map(|(_, scope)| scope)
        {
            found.extend(scope[collection].as_array().cloned().unwrap_or_default());
        }
        found.retain(|one| one["name"].as_str().is_some_and(|name| name.starts_with(prefix)));
        Ok(found)
    }

    async fn pages(&self, operation: &str, path: &str) -> Result<Vec<Value>, Failure> {
        let mut pages = Vec::new();
        let mut token = String::new();
        loop {
            let url = if token.is_empty() {
                path.to_owned()
            } else {
                format!("{path}&pageToken={}", encode_component(&token))
            };
            let page = self.api.send(operation, Method::GET, &url, None).await?;
            token = page["nextPageToken"].as_str().unwrap_or_default().to_owned();
            pages.push(page);
            if token.is_empty() {
                return Ok(pages);
            }
        }
    }

    /// Sends a change and waits for the end of its operation. The request's own id makes it safe to send again.
    async fn change(
        &self,
        operation: &str,
        method: Method,
        place: &Place,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(), Failure> {
        let mut tries = 0;
        loop {
            let mark = if path.contains('?') { '&' } else { '?' };
            let url = format!("{path}{mark}requestId={}", uuid::Uuid::new_v4());
            let started = self.api.send(operation, method.clone(), &url, body).await?;
            match self.end_of(operation, place, started).await? {
                Ok(()) => return Ok(()),
                // An operation that fails through no fault of ours is asked for again.
                Err(failure)
                    if matches!(failure.class(), Class::Failed | Class::Busy | Class::Throttled)
                        && tries < 3 =>
                {
                    tries += 1;
                    self.clock().sleep(std::time::Duration::from_secs(2 * tries)).await;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Follows an operation to its end.
    async fn end_of(
        &self,
        operation: &str,
        place: &Place,
        started: Value,
    ) -> Result<Result<(), Failure>, Failure> {
        let name = started["name"].as_str().unwrap_or_default().to_owned();
        let path = format!("{}/wait", place.object("operations", &name));
        let kind = place.0.split('/').nth(2).unwrap_or_default();
        let asked = format!("compute.{}Operations.get", kind.trim_end_matches('s'));
        let mut last = started;
        let done = wait(self.clock(), Pace::QUICK, operation, || {
            let now = std::mem::take(&mut last);
            let (path, asked) = (&path, &asked);
            async move {
                let now =
                    if now.is_null() { self.api.send(asked, Method::POST, path, None).await? } else { now };
                Ok(if now["status"] == "DONE" { Progress::Done(now) } else { Progress::Pending })
            }
        });
        let ended = done.await.map_err(|err| Failure::Unreadable {
            operation: operation.to_owned(),
            message: err.to_string(),
        })?;
        let Some(error) = ended["error"]["errors"].as_array().and_then(|errors| errors.first()) else {
            return Ok(Ok(()));
        };
        let field = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        let (code, message) = (field("code"), field("message"));
        let status = ended["httpErrorStatusCode"]
            .as_u64()
            .and_then(|status| u16::try_from(status).ok())
            .unwrap_or(500);
        let answer = Answer { class: class(status, &code, &message), code, message };
        Ok(Err(Failure::Refused { operation: operation.to_owned(), status, answer }))
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.api.clock()
    }

    /// Makes an object. One that is there already is fine: its name says what it is.
    pub(crate) async fn insert(&self, place: &Place, collection: &str, body: &Value) -> Result<(), Failure> {
        let path = format!("{}/{collection}", place.0);
        match self
            .change(&place.operation(collection, "insert"), Method::POST, place, &path, Some(body))
            .await
        {
            Err(failure) if failure.is(Class::Exists) => Ok(()),
            outcome => outcome,
        }
    }

    pub(crate) async fn patch(
        &self,
        place: &Place,
        collection: &str,
        name: &str,
        body: &Value,
    ) -> Result<(), Failure> {
        let path = place.object(collection, name);
        self.change(&place.operation(collection, "update"), Method::PATCH, place, &path, Some(body)).await
    }

    pub(crate) async fn put(
        &self,
        place: &Place,
        collection: &str,
        name: &str,
        body: &Value,
    ) -> Result<(), Failure> {
        let path = place.object(collection, name);
        self.change(&place.operation(collection, "update"), Method::PUT, place, &path, Some(body)).await
    }

    pub(crate) async fn act(
        &self,
        place: &Place,
        collection: &str,
        name: &str,
        verb: &str,
        body: &Value,
    ) -> Result<(), Failure> {
        let path = format!("{}/{verb}", place.object(collection, name));
        self.change(&format!("compute.{collection}.{verb}"), Method::POST, place, &path, Some(body)).await
    }

    /// Changes a firewall policy's rules, or what it is in force for; `which` is a query that says which one.
    pub(crate) async fn adjust(
        &self,
        place: &Place,
        policy: &str,
        verb: &str,
        which: &str,
        body: Option<&Value>,
    ) -> Result<(), Failure> {
        let mark = if which.is_empty() { "" } else { "?" };
        let path = format!("{}/{verb}{mark}{which}", place.object("firewallPolicies", policy));
        self.change(&format!("compute.firewallPolicies.{verb}"), Method::POST, place, &path, body).await
    }

    /// Deletes an object. One that is not there is fine.
    pub(crate) async fn delete(&self, place: &Place, collection: &str, name: &str) -> Result<(), Failure> {
        let path = place.object(collection, name);
        match self.change(&place.operation(collection, "delete"), Method::DELETE, place, &path, None).await {
            Err(failure) if failure.is(Class::NotFound) => Ok(()),
            outcome => outcome,
        }
    }
}
