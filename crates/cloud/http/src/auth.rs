//! Credentials: where each cloud's own tools look for them, in the same order.
//!
//! Three clouds take a bearer token that is fetched and renewed ([`Bearer`] over a [`TokenSource`]). AWS, which signs each
//! request, looks for its keys itself (`cloud/aws`).

pub mod azure;
pub mod google;
pub mod ibm;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use http::header::AUTHORIZATION;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::{Clock, Failure, Reply, Request, Signer, Transport};

/// Variables of the environment: those of the process, or some given ones.
#[derive(Clone, Debug, Default)]
pub struct Environment(Option<BTreeMap<String, String>>);

impl Environment {
    pub fn process() -> Self {
        Self(None)
    }

    pub fn of<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self(Some(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect()))
    }

    /// All variables, if they were given; none if they are the process's.
    pub fn given(&self) -> Option<&BTreeMap<String, String>> {
        self.0.as_ref()
    }

    /// A variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<String> {
        let value = match &self.0 {
            Some(given) => given.get(name).cloned(),
            None => std::env::var(name).ok(),
        };
        value.filter(|value| !value.is_empty())
    }

    /// Where a service is: as it was set up, or as a variable says, or where it usually is; without a slash at the end.
    pub fn endpoint(&self, set_up: &Option<String>, variable: &str, usual: &str) -> String {
        let given = set_up.clone().or_else(|| self.get(variable));
        given.as_deref().unwrap_or(usual).trim_end_matches('/').to_owned()
    }

    fn home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from)
    }
}

fn missing(message: impl Into<String>) -> Failure {
    Failure::Credentials { message: message.into() }
}

/// A token and when it ends, since 1970.
#[derive(Clone, Debug)]
pub struct Token {
    pub value: String,
    pub ends: Duration,
}

#[async_trait]
pub trait TokenSource: Send + Sync {
    async fn fetch(&self) -> Result<Token, Failure>;
}

/// Renewed this long before it ends.
const EARLY: Duration = Duration::from_secs(300);

/// Puts a token on each request, fetched when needed.
pub struct Bearer {
    source: Arc<dyn TokenSource>,
    clock: Arc<dyn Clock>,
    token: Mutex<Option<Token>>,
    stale: std::sync::atomic::AtomicBool,
}

impl Bearer {
    pub fn new(source: Arc<dyn TokenSource>, clock: Arc<dyn Clock>) -> Self {
        Self { source, clock, token: Mutex::new(None), stale: false.into() }
    }
}

#[async_trait]
impl Signer for Bearer {
    async fn sign(&self, request: &mut Request) -> Result<(), Failure> {
        let mut token = self.token.lock().await;
        let stale = self.stale.swap(false, std::sync::atomic::Ordering::Relaxed);
        let lasts = |token: &Token| token.ends > self.clock.now() + EARLY;
        let value = match &*token {
            Some(token) if lasts(token) && !stale => token.value.clone(),
            _ => token.insert(self.source.fetch().await?).value.clone(),
        };
        request.header(AUTHORIZATION, &format!("Bearer {value}"));
        Ok(())
    }

    fn refused(&self, _: &Reply) -> bool {
        self.stale.store(true, std::sync::atomic::Ordering::Relaxed);
        true
    }
}

/// A token that somebody else made, for example with a command line tool.
pub struct FixedToken(pub String);

#[async_trait]
impl TokenSource for FixedToken {
    async fn fetch(&self) -> Result<Token, Failure> {
        Ok(Token { value: self.0.clone(), ends: Duration::MAX })
    }
}

/// What OAuth 2 token endpoints answer; some write numbers as text.
#[derive(Deserialize)]
struct TokenReply {
    access_token: String,
    #[serde(default)]
    expires_in: serde_json::Value,
}

/// Asks a token endpoint.
async fn token_request(
    transport: &dyn Transport,
    clock: &dyn Clock,
    request: Request,
) -> Result<Token, Failure> {
    let what = request.operation.clone();
    let reply = transport.send(&request).await.map_err(|err| missing(format!("{what}: {err}")))?;
    if reply.status != 200 {
        let text: String = reply.text().chars().take(300).collect();
        return Err(missing(format!("{what} answered {}: {text}", reply.status)));
    }
    let read: TokenReply = serde_json::from_slice(&reply.body)
        .map_err(|err| missing(format!("{what} answered with something else: {err}")))?;
    let seconds = match &read.expires_in {
        serde_json::Value::Number(number) => number.as_u64(),
        serde_json::Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let ends = clock.now() + Duration::from_secs(seconds.unwrap_or(3600));
    Ok(Token { value: read.access_token, ends })
}
