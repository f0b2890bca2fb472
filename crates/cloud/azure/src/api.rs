//! One request to Azure's resource manager, and the operation it starts.

use std::{sync::Arc, time::Duration};

use cloud_api::CloudError;
use cloud_http::{
    Answer, Class, Client, Clock, Dialect, Failure, HttpTransport, Pace, Parts, Progress, Rates, Recent,
    Recorder, Reply, Request, SystemClock,
    auth::{Bearer, Environment, FixedToken, TokenSource, azure::AzureTokens},
    wait,
};
use http::Method;
use ipnet::Ipv4Net;
use serde::Deserialize;
use serde_json::Value;

use crate::names::{kind, whole};

/// How the plugin is set up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AzureOptions {
    /// Where the resource manager is: `https://management.azure.com` by default.
    pub endpoint: Option<String>,
    /// The subscription and the resource group of namespaces that name none.
    pub subscription: Option<String>,
    pub resource_group: Option<String>,
    /// Whether descriptions of managed Kubernetes clusters are taken.
    pub kubernetes_clusters: bool,
    /// Marks what this controller made. Two controllers on one resource group need two owners.
    pub owner: Option<String>,
    /// Where gateways stand, a /27 or larger that no network may have: 100.127.255.224/27 by default.
    pub gateway_space: Option<Ipv4Net>,
    /// What VPN gateways are sold as: `VpnGw1AZ` by default.
    pub gateway_sku: Option<String>,
    /// Zones of the gateways' public addresses: 1, 2 and 3 by default; none where a region has none.
    pub zones: Option<Vec<String>>,
    /// A token to use as it is, instead of looking for credentials.
    #[serde(skip)]
    pub token: Option<String>,
    /// PEM file of a CA to trust instead of the machine's.
    pub ca: Option<std::path::PathBuf>,
}

const ENDPOINT: &str = "https://management.azure.com";
/// What a subscription's buckets refill with, per principal and region.
const RATES: Rates = Rates { read: 25.0, write: 10.0 };
/// Times that an operation which failed through no fault of ours is asked for.
const TRIES: u32 = 4;

/// The version of the API that a provider is asked in.
fn version(kind: &str) -> &'static str {
    match kind.split('/').next() {
        Some("Microsoft.Compute") => "2024-07-01",
        Some("Microsoft.ContainerService") => "2024-09-01",
        _ => "2024-05-01",
    }
}

pub(crate) struct Arm {
    client: Client,
    endpoint: String,
    recent: Recent,
}

struct ArmDialect;

impl Dialect for ArmDialect {
    fn judge(&self, reply: &Reply) -> Option<Answer> {
        let body: Option<Value> = match reply.body.is_empty() {
            true => Some(Value::Null),
            false => serde_json::from_slice(&reply.body).ok(),
        };
        if reply.status < 300 && body.is_some() {
            return None;
        }
        let error = body.map(|body| body["error"].clone()).unwrap_or_default();
        if error.is_null() {
            let start: String = reply.text().chars().take(80).collect();
            let class = class(reply.status, "");
            return Some(Answer { class, code: "no answer of Azure".into(), message: start });
        }
        Some(answer(reply.status, &error))
    }
}

/// A refusal, or the end of an operation that failed.
fn answer(status: u16, error: &Value) -> Answer {
    let field = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    let (code, mut message) = (field("code"), field("message"));
    if let Some(more) = error["details"][0]["message"].as_str().filter(|more| !message.contains(more)) {
        message = format!("{message} {more}");
    }
    Answer { class: class(status, &code), code, message }
}

fn class(status: u16, code: &str) -> Class {
    match code {
        "RetryableError"
        | "RetryableErrorDueToAnotherOperation"
        | "ReferencedResourceNotProvisioned"
        | "AnotherOperationInProgress"
        | "OperationPreempted"
        | "PreconditionFailed" => Class::Busy,
        "QuotaExceeded" | "OperationNotAllowed" | "SkuNotAvailable" | "SubnetIsFull" => Class::Limit,
        "ErrCode_InsufficientVCPUQuota" | "InsufficientSubnetSize" => Class::Limit,
        _ if code.ends_with("AllocationFailed") || code.ends_with("LimitReached") => Class::Limit,
        _ if code.starts_with("InUse") || code.ends_with("InUse") => Class::InUse,
        _ if code.ends_with("CannotBeDeleted") => Class::InUse,
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

/// Whether work on an object is over, well or not.
fn is_settled(object: &Value) -> bool {
    let state = object["properties"]["provisioningState"].as_str().unwrap_or("Succeeded");
    ["Succeeded", "Failed", "Canceled"].contains(&state)
}

pub(crate) fn is_made(object: &Value) -> bool {
    object["properties"]["provisioningState"].as_str().unwrap_or("Succeeded") == "Succeeded"
}

impl Arm {
    pub(crate) fn new(
        options: &AzureOptions,
        environment: Environment,
        clock: Option<Arc<dyn Clock>>,
        recorder: Option<Arc<dyn Recorder>>,
    ) -> Result<Self, CloudError> {
        let transport = || {
            HttpTransport::new(options.ca.as_deref())
                .map_err(|err| CloudError::invalid(format!("Azure: {err}")))
        };
        let endpoint = options.endpoint.clone().or_else(|| environment.get("ARM_ENDPOINT"));
        let endpoint = endpoint.as_deref().unwrap_or(ENDPOINT).trim_end_matches('/').to_owned();
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock));
        let source: Arc<dyn TokenSource> = match &options.token {
            Some(token) => Arc::new(FixedToken(token.clone())),
            None => Arc::new(AzureTokens::new(environment, Arc::new(transport()?), Arc::clone(&clock))),
        };
        let signer = Bearer::new(source, Arc::clone(&clock));
        let mut parts = Parts::new(transport()?, Arc::new(signer), Arc::new(ArmDialect), RATES);
        (parts.clock, parts.recorder) = (clock, recorder);
        Ok(Self { client: Client::new(parts), endpoint, recent: Recent::default() })
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.client.clock()
    }

    async fn send(
        &self,
        operation: &str,
        method: Method,
        url: String,
        body: Option<&Value>,
    ) -> Result<Reply, Failure> {
        // Addresses that an answer names are followed, with our token, only where the answer came from.
        if !url.starts_with(&format!("{}/", self.endpoint)) {
            let message = format!("it names {url}, which is not at {}", self.endpoint);
            return Err(Failure::Unreadable { operation: operation.to_owned(), message });
        }
        let scope: String = url[self.endpoint.len()..].split('/').take(3).collect::<Vec<_>>().join("/");
        let mut request = Request::new(operation, method, url).scope(scope).safe();
        if let Some(body) = body {
            request = request.body("application/json", body.to_string());
        }
        self.client.call(request).await
    }

    fn url(&self, id: &str) -> String {
        format!("{}{id}?api-version={}", self.endpoint, version(&kind(id)))
    }

    /// An object; none if there is no such.
    pub(crate) async fn get(&self, id: &str) -> Result<Option<Value>, Failure> {
        let operation = format!("{}/read", kind(id));
        match self.send(&operation, Method::GET, self.url(id), None).await {
            Ok(reply) => read(&operation, &reply).map(Some),
            Err(failure) if failure.is(Class::NotFound) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// An object that nobody works on any more; none if there is no such.
    pub(crate) async fn settled(&self, id: &str) -> Result<Option<Value>, Failure> {
        let what = format!("the work on {id}");
        let looked = wait(self.clock(), pace(id), &what, || async {
            Ok(match self.get(id).await {
                Ok(Some(object)) if !is_settled(&object) => Progress::Pending,
                outcome => Progress::Done(outcome),
            })
        });
        looked.await.unwrap_or_else(|err| late(id, &err))
    }

    /// The objects of a kind in a resource group.
    pub(crate) async fn list(&self, group: &str, kind: &str) -> Result<Vec<Value>, Failure> {
        let (operation, collection) = (format!("{kind}/read"), format!("{group}/providers/{kind}"));
        self.recent.settle(&collection, self.clock()).await;
        let mut url = self.url(&collection);
        let mut found = Vec::new();
        loop {
            let page = match self.send(&operation, Method::GET, url, None).await {
                // The resource group itself is not there, and so nothing in it.
                Err(failure) if failure.is(Class::NotFound) => return Ok(found),
                reply => read(&operation, &reply?)?,
            };
            found.extend(page["value"].as_array().cloned().unwrap_or_default());
            match page["nextLink"].as_str().filter(|link| !link.is_empty()) {
                Some(next) => url = next.to_owned(),
                None => return Ok(found),
            }
        }
    }

    /// Makes an object or replaces it, and waits until that is done. The object's name makes it safe to ask again.
    pub(crate) async fn put(&self, id: &str, body: &Value) -> Result<Value, Failure> {
        let operation = format!("{}/write", kind(id));
        self.change(&operation, Method::PUT, id, Some(body)).await?;
        let gone = || Failure::Unreadable {
            operation,
            message: format!("{id} was made and is not there; look at it in the portal"),
        };
        self.settled(id).await?.ok_or_else(gone)
    }

    /// Deletes an object. One that is not there is fine.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), Failure> {
        match self.change(&format!("{}/delete", kind(id)), Method::DELETE, id, None).await {
            Err(failure) if failure.is(Class::NotFound) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Sets what has no state of its own to wait for, such as a key.
    pub(crate) async fn set(&self, id: &str, body: &Value) -> Result<(), Failure> {
        self.change(&format!("{}/write", kind(id)), Method::PUT, id, Some(body)).await.map(drop)
    }

    /// Asks an object a question that takes it a while to answer.
    pub(crate) async fn ask(&self, id: &str, question: &str) -> Result<Value, Failure> {
        let id = format!("{id}/{question}");
        self.change(&format!("{}/action", kind(&id)), Method::POST, &id, None).await
    }

    async fn change(
        &self,
        operation: &str,
        method: Method,
        id: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let collection = id.rsplit_once('/').map_or(id, |(collection, _)| collection);
        let mut tries = 1;
        loop {
            let sent = self.send(operation, method.clone(), self.url(id), body).await;
            let outcome = match sent {
                Ok(reply) => self.end_of(operation, id, &method, reply).await?,
                Err(failure) if failure.is(Class::Busy) => Err(failure),
                Err(failure) => return Err(failure),
            };
            self.recent.touch(collection, self.clock());
            match outcome {
                Err(failure)
                    if tries < TRIES
                        && matches!(failure.class(), Class::Failed | Class::Busy | Class::Throttled) =>
                {
                    self.clock().sleep(Duration::from_secs(2 * u64::from(tries))).await;
                    if failure.is(Class::Busy) {
                        // Perhaps with what was asked for here, and whose answer got lost.
                        self.settled(whole(id)).await?;
                    }
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Follows an operation to its end: well, or badly in the cloud's own words. The outer error is ours.
    async fn end_of(
        &self,
        operation: &str,
        id: &str,
        method: &Method,
        started: Reply,
    ) -> Result<Result<Value, Failure>, Failure> {
        let header = |name: &str| started.header(name).map(str::to_owned);
        let (status, result) = (header("azure-asyncoperation"), header("location"));
        if let Some(url) = status {
            let ended = self.poll(id, url, |_, body| body["status"] != "InProgress").await?;
            if ended["status"] != "Succeeded" {
                let answer = answer(500, &ended["error"]);
                return Ok(Err(Failure::Refused { operation: operation.to_owned(), status: 200, answer }));
            }
            if *method != Method::POST {
                return Ok(Ok(Value::Null));
            }
        }
        match result {
            Some(url) if started.status == 202 => {
                Ok(Ok(self.poll(id, url, |status, _| status != 202).await?))
            }
            _ => Ok(read(operation, &started)),
        }
    }

    async fn poll(
        &self,
        id: &str,
        url: String,
        is_over: impl Fn(u16, &Value) -> bool + Sync,
    ) -> Result<Value, Failure> {
        let kind = kind(id);
        let provider = kind.split('/').next().unwrap_or_default();
        let operation = format!("{provider}/locations/operations/read");
        let (url, operation, is_over) = (&url, &operation, &is_over);
        let what = format!("the work on {id}");
        let looked = wait(self.clock(), pace(id), &what, || async move {
            let reply = match self.send(operation, Method::GET, url.clone(), None).await {
                Ok(reply) => reply,
                Err(failure) => return Ok(Progress::Done(Err(failure))),
            };
            let asked = reply.header("retry-after").and_then(|seconds| seconds.parse().ok());
            Ok(match (read(operation, &reply), asked) {
                (Ok(body), _) if is_over(reply.status, &body) => Progress::Done(Ok(body)),
                (Ok(_), Some(seconds)) => Progress::Later(Duration::from_secs(seconds)),
                (Ok(_), None) => Progress::Pending,
                (Err(failure), _) => Progress::Done(Err(failure)),
            })
        });
        looked.await.unwrap_or_else(|err| late(id, &err))
    }
}

/// Gateways take most of an hour, upgrades of clusters too, everything else minutes.
fn pace(id: &str) -> Pace {
    let slow = ["Microsoft.Network/virtualNetworkGateways", "Microsoft.ContainerService/managedClusters"];
    if slow.iter().any(|slow| kind(id).starts_with(slow)) { Pace::SLOW } else { Pace::QUICK }
}

fn late<T>(id: &str, err: &CloudError) -> Result<T, Failure> {
    Err(Failure::Unreadable { operation: kind(id), message: err.to_string() })
}

fn read(operation: &str, reply: &Reply) -> Result<Value, Failure> {
    if reply.body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&reply.body)
        .map_err(|err| Failure::Unreadable { operation: operation.to_owned(), message: err.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_their_classes() {
        for (status, code, expected) in [
            (429, "TooManyRequests", Class::Throttled),
            (429, "RetryableError", Class::Busy),
            (409, "AnotherOperationInProgress", Class::Busy),
            (400, "InUseSubnetCannotBeDeleted", Class::InUse),
            (400, "PublicIPAddressCannotBeDeleted", Class::InUse),
            (400, "NicInUse", Class::InUse),
            (400, "QuotaExceeded", Class::Limit),
            (400, "PublicIPCountLimitReached", Class::Limit),
            (409, "ZonalAllocationFailed", Class::Limit),
            (403, "AuthorizationFailed", Class::Denied),
            (401, "ExpiredAuthenticationToken", Class::Unauthenticated),
            (404, "ResourceGroupNotFound", Class::NotFound),
            (400, "SecurityRuleConflict", Class::Invalid),
            (500, "InternalServerError", Class::Failed),
            (502, "", Class::Failed),
        ] {
            assert_eq!(class(status, code), expected, "{code}");
        }
    }

    /// A token is not shown to whoever an answer points at.
    #[tokio::test]
    async fn answers_cannot_send_the_token_elsewhere() {
        let options = AzureOptions { token: Some("t".into()), ..AzureOptions::default() };
        let none: [(&str, &str); 0] = [];
        let arm = Arm::new(&options, Environment::of(none), None, None).unwrap();
        for url in ["https://management.azure.com.evil.example/x", "http://169.254.169.254/"] {
            let err = arm.send("x", Method::GET, url.to_owned(), None).await.unwrap_err();
            assert!(matches!(err, Failure::Unreadable { .. }), "{err}");
        }
    }
}
