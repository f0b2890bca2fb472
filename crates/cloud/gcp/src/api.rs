//! One Compute Engine request, and the operation it starts.

use std::sync::Arc;

use cloud_api::CloudError;
use cloud_http::{
    Answer, Class, Client, Clock, Dialect, Failure, HttpTransport, Pace, Parts, Progress, Rates, Recorder,
    Reply, Request, SystemClock,
    auth::{Bearer, Environment, FixedToken, TokenSource, google::GoogleTokens},
    encode_component, wait,
};
use http::Method;
use serde::Deserialize;
use serde_json::Value;

/// How the plugin is set up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GcpOptions {
    /// Where Compute Engine is, with its path: `https://compute.googleapis.com/compute/v1` by default.
    pub endpoint: Option<String>,
    /// The project of namespaces that name none.
    pub project: Option<String>,
    /// Whether descriptions of private endpoints are taken.
    pub private_endpoints: bool,
    /// Whether descriptions of managed Kubernetes clusters are taken.
    pub kubernetes_clusters: bool,
    /// Marks what this controller made. Two controllers on one project need two owners.
    pub owner: Option<String>,
    /// A token to use as it is, instead of application default credentials.
    #[serde(skip)]
    pub token: Option<String>,
    /// PEM file of a CA to trust instead of the machine's.
    pub ca: Option<std::path::PathBuf>,
}

const ENDPOINT: &str = "https://compute.googleapis.com/compute/v1";
const RATES: Rates = Rates { read: 20.0, write: 20.0 };

pub(crate) struct Compute {
    client: Client,
    endpoint: String,
}

struct ComputeDialect;

impl Dialect for ComputeDialect {
    fn judge(&self, reply: &Reply) -> Option<Answer> {
        let body: Option<Value> = serde_json::from_slice(&reply.body).ok();
        if reply.status < 300 && body.is_some() {
            return None;
        }
        let error = body.map(|body| body["error"].clone()).unwrap_or_default();
        let message = error["message"].as_str().unwrap_or_default().to_owned();
        let code = error["errors"][0]["reason"].as_str().unwrap_or_default().to_owned();
        let class = class(reply.status, &code, &message);
        if code.is_empty() && message.is_empty() {
            let start: String = reply.text().chars().take(80).collect();
            return Some(Answer { class, code: "no Google answer".into(), message: start });
        }
        Some(Answer { class, code, message })
    }
}

/// Of refusals, and of operations that ended badly.
fn class(status: u16, code: &str, message: &str) -> Class {
    match code {
        "rateLimitExceeded" | "userRateLimitExceeded" | "RESOURCE_OPERATION_RATE_EXCEEDED" => {
            Class::Throttled
        }
        "conditionNotMet" => Class::Changed,
        "resourceNotReady" | "RESOURCE_NOT_READY" => Class::Busy,
        _ if message.contains("operation in progress") => Class::Busy,
        "resourceInUseByAnotherResource" | "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE" => Class::InUse,
        "notFound" | "RESOURCE_NOT_FOUND" => Class::NotFound,
        "alreadyExists" | "RESOURCE_ALREADY_EXISTS" => Class::Exists,
        "quotaExceeded" | "QUOTA_EXCEEDED" | "limitExceeded" | "IP_SPACE_EXHAUSTED" => Class::Limit,
        "ZONE_RESOURCE_POOL_EXHAUSTED" => Class::Limit,
        "INTERNAL_ERROR" | "backendError" | "internalError" => Class::Failed,
        "forbidden" => Class::Denied,
        _ => match status {
            401 => Class::Unauthenticated,
            403 => Class::Denied,
            404 => Class::NotFound,
            409 => Class::Exists,
            429 => Class::Throttled,
            200..300 | 500.. => Class::Failed,
            _ => Class::Invalid,
        },
    }
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
    pub(crate) fn new(
        options: &GcpOptions,
        environment: Environment,
        clock: Option<Arc<dyn Clock>>,
        recorder: Option<Arc<dyn Recorder>>,
    ) -> Result<Self, CloudError> {
        let transport = || {
            HttpTransport::new(options.ca.as_deref())
                .map_err(|err| CloudError::invalid(format!("Google Cloud: {err}")))
        };
        // The same variables that gcloud takes.
        let endpoint =
            options.endpoint.clone().or_else(|| environment.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"));
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock));
        let source: Arc<dyn TokenSource> = match &options.token {
            Some(token) => Arc::new(FixedToken(token.clone())),
            None if environment.get("CLOUDSDK_AUTH_ACCESS_TOKEN").is_some() => {
                Arc::new(FixedToken(environment.get("CLOUDSDK_AUTH_ACCESS_TOKEN").unwrap_or_default()))
            }
            None => Arc::new(GoogleTokens::new(environment, Arc::new(transport()?), Arc::clone(&clock))),
        };
        let signer = Bearer::new(source, Arc::clone(&clock));
        let mut parts = Parts::new(transport()?, Arc::new(signer), Arc::new(ComputeDialect), RATES);
        (parts.clock, parts.recorder) = (clock, recorder);
        let endpoint = endpoint.as_deref().unwrap_or(ENDPOINT).trim_end_matches('/').to_owned();
        Ok(Self { client: Client::new(parts), endpoint })
    }

    async fn send(
        &self,
        operation: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let scope = path.split('/').take(4).collect::<Vec<_>>().join("/");
        let mut request =
            Request::new(operation, method, format!("{}/{path}", self.endpoint)).scope(scope).safe();
        if let Some(body) = body {
            request = request.body("application/json", body.to_string());
        }
        let reply = self.client.call(request).await?;
        let unreadable = |err: serde_json::Error| Failure::Unreadable {
            operation: operation.to_owned(),
            message: err.to_string(),
        };
        serde_json::from_slice(&reply.body).map_err(unreadable)
    }

    /// An object; none if there is no such.
    pub(crate) async fn get(
        &self,
        place: &Place,
        collection: &str,
        name: &str,
    ) -> Result<Option<Value>, Failure> {
        let outcome = self
            .send(&place.operation(collection, "get"), Method::GET, &place.object(collection, name), None)
            .await;
        match outcome {
            Ok(object) => Ok(Some(object)),
            Err(failure) if failure.is(Class::NotFound) => Ok(None),
            Err(failure) => Err(failure),
        }
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
        self.send(&format!("compute.{collection}.{verb}"), Method::GET, &path, None).await
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
            let page = self.send(operation, Method::GET, &url, None).await?;
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
            let started = self.send(operation, method.clone(), &url, body).await?;
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
                let now = if now.is_null() { self.send(asked, Method::POST, path, None).await? } else { now };
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
        self.client.clock()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_their_classes() {
        for (status, code, message, expected) in [
            (403, "rateLimitExceeded", "", Class::Throttled),
            (403, "quotaExceeded", "", Class::Limit),
            (403, "forbidden", "", Class::Denied),
            (
                400,
                "badRequest",
                "There is a peering operation in progress on the local or peer network.",
                Class::Busy,
            ),
            (400, "resourceNotReady", "", Class::Busy),
            (412, "conditionNotMet", "", Class::Changed),
            (400, "resourceInUseByAnotherResource", "", Class::InUse),
            (409, "alreadyExists", "", Class::Exists),
            (404, "notFound", "", Class::NotFound),
            (401, "authError", "", Class::Unauthenticated),
            (503, "backendError", "", Class::Failed),
            (400, "invalid", "", Class::Invalid),
            (502, "", "", Class::Failed),
        ] {
            assert_eq!(class(status, code, message), expected, "{code} {message}");
        }
    }
}
