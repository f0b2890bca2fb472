//! Azure's resource manager: one request, and the operation it starts.
//!
//! In: ids and bodies. Out: objects, or what Azure said. A change is followed to its end, well or badly, in Azure's own words.
//! Holds: the client, and what was lately changed from here, so that lists are not read too early.

mod refusals;

use std::time::Duration;

use async_trait::async_trait;
use cloud_api::CloudError;
use cloud_http::{
    Class, Client, Clock, Failure, Objects, Pace, Progress, Rates, Recent, Reply, Request, World,
    auth::azure::AzureTokens, if_there, or_gone, read_json, wait,
};
use http::Method;
use refusals::{ArmDialect, Refusal};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{kinds::version, options::AzureOptions, types::*};

const ENDPOINT: &str = "https://management.azure.com";
/// What a subscription's buckets refill with, per principal and region.
const RATES: Rates = Rates { read: 25.0, write: 10.0 };
/// Times that an operation which failed through no fault of ours is asked for.
const TRIES: u32 = 4;

pub struct Arm {
    client: Client,
    endpoint: String,
    recent: Recent,
}

/// A change, or a question that takes a while to answer.
struct Work<'w> {
    operation: String,
    method: Method,
    path: String,
    kind: &'static str,
    pace: Pace,
    body: Option<&'w Value>,
}

impl<'w> Work<'w> {
    /// Concerns an object, or the part of it that comes after its id.
    fn on<K: Object>(method: Method, id: &Id<K>, part: &str, body: Option<&'w Value>) -> Self {
        let verb = match method {
            Method::PUT => "write",
            Method::DELETE => "delete",
            _ => "action",
        };
        let operation = format!("{}{part}/{verb}", K::TYPE);
        Self { operation, method, path: format!("{id}{part}"), kind: K::TYPE, pace: K::PACE, body }
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let there = fields.into_iter().filter(|(_, value)| !value.is_null());
            there.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// An answer as its type. To Azure, what is null is not there.
fn read_answer<T: DeserializeOwned>(operation: &str, reply: &Reply) -> Result<T, Failure> {
    let mut reply = reply.clone();
    if reply.body.windows(4).any(|word| word == b"null") {
        let all: Value = read_json(operation, &reply)?;
        reply.body = without_nulls(all).to_string().into();
    }
    read_json(operation, &reply)
}

/// A body as it is sent: what is none is left out.
pub fn sent(body: &impl Serialize) -> Value {
    without_nulls(serde_json::to_value(body).expect("bodies have text as keys, and numbers that JSON knows"))
}

/// How an operation is.
#[derive(Deserialize)]
struct Operation {
    status: String,
    #[serde(default)]
    error: Refusal,
}

/// What any object says of the work on it.
#[derive(Deserialize)]
struct Worked {
    #[serde(default)]
    properties: ClusterProperties,
}

/// The path of the object that a path is of, or of a part of; and its type, by that of the part.
fn whole<'p>(path: &'p str, kind: &'p str) -> (&'p str, &'p str) {
    let provider = path.rfind("/providers/").map_or(0, |at| at + "/providers/".len());
    let end = path[provider..].match_indices('/').nth(2).map_or(path.len(), |(at, _)| provider + at);
    let kind_end = kind.match_indices('/').nth(1).map_or(kind.len(), |(at, _)| at);
    (&path[..end], &kind[..kind_end])
}

impl Arm {
    pub fn new(options: &AzureOptions, world: World) -> Result<Self, CloudError> {
        let endpoint = world.environment.endpoint(&options.endpoint, "ARM_ENDPOINT", ENDPOINT);
        let (ca, token) = (options.ca.as_deref(), options.token.clone());
        let client = Client::bearing("Azure", world, ca, ArmDialect, RATES, token, AzureTokens::new)?;
        Ok(Self { client, endpoint, recent: Recent::default() })
    }

    pub fn clock(&self) -> &dyn Clock {
        self.client.clock()
    }

    fn url(&self, path: &str, kind: &str) -> String {
        format!("{}{path}?api-version={}", self.endpoint, version(kind))
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

    async fn read<T: DeserializeOwned>(&self, path: &str, kind: &str) -> Result<Option<T>, Failure> {
        let operation = format!("{kind}/read");
        let there = if_there(self.send(&operation, Method::GET, self.url(path, kind), None).await)?;
        there.map(|reply| read_answer(&operation, &reply)).transpose()
    }

    /// The objects of a kind in a resource group or a subscription.
    pub async fn list<K: Object>(&self, scope: &str) -> Result<Vec<K>, Failure> {
        let (operation, collection) = (format!("{}/read", K::TYPE), format!("{scope}/providers/{}", K::TYPE));
        self.recent.settle(&collection, self.clock()).await;
        let mut url = self.url(&collection, K::TYPE);
        let mut found = Vec::new();
        loop {
            let page: Page<K> = match self.send(&operation, Method::GET, url, None).await {
                // The resource group itself is not there, and so nothing in it.
                Err(failure) if failure.is(Class::NotFound) => return Ok(found),
                reply => read_answer(&operation, &reply?)?,
            };
            found.extend(page.value);
            match page.next_link.filter(|link| !link.is_empty()) {
                Some(next) => url = next,
                None => return Ok(found),
            }
        }
    }

    /// Sets a part of an object that has no state of its own to wait for, such as a key.
    pub async fn set<K: Object>(&self, id: &Id<K>, part: &str, body: &impl Serialize) -> Result<(), Failure> {
        self.change(&Work::on(Method::PUT, id, &format!("/{part}"), Some(&sent(body)))).await.map(drop)
    }

    /// Asks an object a question that takes it a while to answer. Who has nothing to say sends nothing.
    pub async fn ask<K, T>(&self, id: &Id<K>, question: &str) -> Result<T, Failure>
    where
        K: Object,
        T: DeserializeOwned + Default,
    {
        let work = Work::on(Method::POST, id, &format!("/{question}"), None);
        let reply = self.change(&work).await?;
        if reply.body.is_empty() { Ok(T::default()) } else { read_answer(&work.operation, &reply) }
    }

    async fn change(&self, work: &Work<'_>) -> Result<Reply, Failure> {
        let collection = work.path.rsplit_once('/').map_or(work.path.as_str(), |(collection, _)| collection);
        let mut tries = 1;
        loop {
            let url = self.url(&work.path, work.kind);
            let sent = self.send(&work.operation, work.method.clone(), url, work.body).await;
            let outcome = match sent {
                Ok(reply) => self.end_of(work, reply).await?,
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
                        self.quiet(work).await?;
                    }
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Follows an operation to its end: well, or badly in the cloud's own words. The outer error is ours.
    async fn end_of(&self, work: &Work<'_>, started: Reply) -> Result<Result<Reply, Failure>, Failure> {
        let header = |name: &str| started.header(name).map(str::to_owned);
        let (status, result) = (header("azure-asyncoperation"), header("location"));
        if let Some(url) = status {
            let ended = |operation: &str, reply: &Reply| {
                let now: Operation = read_answer(operation, reply)?;
                Ok((now.status != "InProgress").then_some(now))
            };
            let ended = self.poll(work, url, ended).await?;
            if ended.status != "Succeeded" {
                let (operation, answer) = (work.operation.clone(), ended.error.answer(500));
                return Ok(Err(Failure::Refused { operation, status: 200, answer }));
            }
            if work.method != Method::POST {
                return Ok(Ok(started));
            }
        }
        match result {
            Some(url) if started.status == 202 => {
                let ended = |_: &str, reply: &Reply| Ok((reply.status != 202).then(|| reply.clone()));
                Ok(Ok(self.poll(work, url, ended).await?))
            }
            _ => Ok(Ok(started)),
        }
    }

    /// Looks at an address until what is there has come to an end.
    async fn poll<T: Send>(
        &self,
        work: &Work<'_>,
        url: String,
        ended: impl Fn(&str, &Reply) -> Result<Option<T>, Failure> + Send + Sync,
    ) -> Result<T, Failure> {
        let provider = work.kind.split('/').next().unwrap_or_default();
        let operation = format!("{provider}/locations/operations/read");
        self.wait_for(work, || async {
            let reply = self.send(&operation, Method::GET, url.clone(), None).await?;
            let seconds = reply.header("retry-after").and_then(|seconds| seconds.parse().ok());
            Ok((ended(&operation, &reply)?, seconds.map(Duration::from_secs)))
        })
        .await
    }

    /// Waits until nobody works on what a change is for.
    async fn quiet(&self, work: &Work<'_>) -> Result<(), Failure> {
        let (path, kind) = whole(&work.path, work.kind);
        self.wait_for(work, || async {
            let there: Option<Worked> = self.read(path, kind).await?;
            let is_over = there.is_none_or(|object| object.properties.provisioning_state.is_settled());
            Ok((is_over.then_some(()), None))
        })
        .await
    }

    async fn wait_for<T: Send, F>(
        &self,
        work: &Work<'_>,
        look: impl Fn() -> F + Send + Sync,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<(Option<T>, Option<Duration>), Failure>> + Send,
    {
        let what = format!("the work on {}", work.path);
        let looked = wait(self.clock(), work.pace, &what, || async {
            Ok(match look().await {
                Ok((Some(end), _)) => Progress::Done(Ok(end)),
                Ok((None, Some(pause))) => Progress::Later(pause),
                Ok((None, None)) => Progress::Pending,
                Err(failure) => Progress::Done(Err(failure)),
            })
        });
        let late = |late: CloudError| Failure::Unreadable {
            operation: work.operation.clone(),
            message: late.to_string(),
        };
        looked.await.unwrap_or_else(|err| Err(late(err)))
    }
}

#[async_trait]
impl<K: Object> Objects<K> for Arm {
    type Address = Id<K>;
    type Body = Value;

    async fn get(&self, id: &Id<K>) -> Result<Option<K>, Failure> {
        self.read(id.as_str(), K::TYPE).await
    }

    /// Waits until that is done. The object's name makes it safe to ask again.
    async fn put(&self, id: &Id<K>, body: &Value) -> Result<Option<K>, Failure> {
        self.change(&Work::on(Method::PUT, id, "", Some(body))).await.map(|_| None)
    }

    async fn delete(&self, id: &Id<K>) -> Result<(), Failure> {
        or_gone(self.change(&Work::on(Method::DELETE, id, "", None)).await)
    }

    fn clock(&self) -> &dyn Clock {
        Arm::clock(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_of_a_whole() {
        let group = "/subscriptions/s/resourceGroups/g/providers/";
        for (kind, path, expected) in [
            ("Microsoft.Network/virtualNetworks", "/v", "/v"),
            ("Microsoft.Network/virtualNetworks/subnets", "/v/subnets/s", "/v"),
            ("Microsoft.Network/virtualNetworkGateways", "/g/getLearnedRoutes", "/g"),
        ] {
            let own = kind.split('/').take(2).collect::<Vec<_>>().join("/");
            let path = format!("{group}{own}{path}");
            assert_eq!(whole(&path, kind), (format!("{group}{own}{expected}").as_str(), own.as_str()));
        }
    }

    /// A token is not shown to whoever an answer points at.
    #[tokio::test]
    async fn answers_cannot_send_the_token_elsewhere() {
        let options = AzureOptions { token: Some("t".into()), ..AzureOptions::default() };
        let arm = Arm::new(&options, World::default()).unwrap();
        for url in ["https://management.azure.com.evil.example/x", "http://169.254.169.254/"] {
            let err = arm.send("x", Method::GET, url.to_owned(), None).await.unwrap_err();
            assert!(matches!(err, Failure::Unreadable { .. }), "{err}");
        }
    }
}
