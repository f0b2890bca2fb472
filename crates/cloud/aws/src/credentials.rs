//! Signatures, and the keys for them: where AWS's own tools look, in their order.
//!
//! ```text
//!   environment ─ profile (keys, role and source_profile, SSO, process, web identity) ─ web identity ─ container ─ instance
//! ```
//!
//! The search is AWS's own (`aws-config`), on our environment, transport and clock. Here: when it is done again, and that a clock
//! which is wrong is corrected.

mod wire;

use std::{
    collections::HashMap,
    error::Error,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use aws_config::{BehaviorVersion, ConfigLoader, Region};
use aws_credential_types::{Credentials, provider::ProvideCredentials as _};
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4,
};
use aws_types::os_shim_internal::Env;
use cloud_http::{Clock, Failure, Reply, Request, Signer, Transport, auth::Environment};
use common::chain;
use http::{HeaderName, HeaderValue};
use parking_lot::Mutex as Lock;
use tokio::sync::Mutex;

use wire::{Time, Wire};

/// Looked for again this long before they end.
const EARLY: Duration = Duration::from_secs(300);
/// Where roles are asked for if nobody says a region.
const ANY_REGION: &str = "us-east-1";

/// Signs requests of one service; the region is the request's scope.
pub(crate) struct AwsSigner {
    service: &'static str,
    environment: Environment,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    keys: Mutex<Option<Credentials>>,
    /// How far the cloud's clock is ahead of ours, and how far behind, learnt from a refusal.
    skew: Lock<(Duration, Duration)>,
}

impl AwsSigner {
    pub(crate) fn new(
        service: &'static str,
        environment: Environment,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { service, environment, transport, clock, keys: Mutex::new(None), skew: Lock::default() }
    }

    /// Keys that last, and as long as no new ones can be had those that are still good.
    async fn keys(&self) -> Result<Credentials, Failure> {
        let mut held = self.keys.lock().await;
        let now = UNIX_EPOCH + self.clock.now();
        let lasts = |keys: &Credentials, until: SystemTime| keys.expiry().is_none_or(|end| end > until);
        if let Some(keys) = held.as_ref().filter(|keys| lasts(keys, now + EARLY)) {
            return Ok(keys.clone());
        }
        match (self.find().await, &*held) {
            (Err(_), Some(keys)) if lasts(keys, now) => Ok(keys.clone()),
            (found, _) => Ok(held.insert(found?).clone()),
        }
    }

    async fn find(&self) -> Result<Credentials, Failure> {
        let env = |name| self.environment.get(name);
        // First in the order, and needs no region nor anything else that is looked up for the rest.
        if let (Some(id), Some(secret)) = (env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY")) {
            return Ok(Credentials::new(id, secret, env("AWS_SESSION_TOKEN"), None, "environment"));
        }
        let mut config = self.loader().load().await;
        if config.region().is_none() {
            config = self.loader().region(Region::from_static(ANY_REGION)).load().await;
        }
        let missing = |message: String| Failure::Credentials { message: format!("AWS: {message}") };
        let provider = config.credentials_provider().ok_or_else(|| missing("nowhere to look".to_owned()))?;
        let profile = env("AWS_PROFILE").map(|name| format!(" (profile {name})")).unwrap_or_default();
        let found = provider.provide_credentials().await;
        found.map_err(|err| missing(format!("{}{profile}", chain(&err).replace("\n  ", "; "))))
    }

    fn loader(&self) -> ConfigLoader {
        let loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(Wire::new(Arc::clone(&self.transport)))
            .time_source(Time(Arc::clone(&self.clock)));
        match self.environment.given() {
            Some(given) => loader.env(Env::from(given.clone().into_iter().collect::<HashMap<_, _>>())),
            None => loader,
        }
    }

    /// When it is, as the cloud sees it.
    fn time(&self) -> SystemTime {
        let (ahead, behind) = *self.skew.lock();
        UNIX_EPOCH + (self.clock.now() + ahead).saturating_sub(behind)
    }
}

#[async_trait]
impl Signer for AwsSigner {
    async fn sign(&self, request: &mut Request) -> Result<(), Failure> {
        let identity = self.keys().await?.into();
        let unsigned = |err: &dyn Error| Failure::Credentials {
            message: format!("AWS: {:?} cannot be signed: {}", request.url, chain(err)),
        };
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&request.scope)
            .name(self.service)
            .time(self.time())
            .settings(SigningSettings::default())
            .build()
            .map_err(|err| unsigned(&err))?
            .into();
        let headers = request.headers.iter();
        let headers = headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let body = SignableBody::Bytes(&request.body);
        let signable = SignableRequest::new(request.method.as_str(), &request.url, headers, body);
        let signed =
            signable.and_then(|signable| sign(signable, &parameters)).map_err(|err| unsigned(&err))?;
        let (headers, _) = signed.into_parts().0.into_parts();
        for header in headers {
            let mut value = HeaderValue::from_str(header.value()).map_err(|err| unsigned(&err))?;
            value.set_sensitive(header.sensitive());
            request.headers.insert(HeaderName::from_static(header.name()), value);
        }
        Ok(())
    }

    /// A clock that is wrong is corrected by what the cloud says the time is; keys are looked for again.
    fn refused(&self, reply: &Reply) -> bool {
        if let Ok(mut keys) = self.keys.try_lock() {
            *keys = None;
        }
        let date = reply.header("date").and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
        let seconds = date.and_then(|date| u64::try_from(date.timestamp().as_second()).ok());
        if let Some(theirs) = seconds.map(Duration::from_secs) {
            let ours = self.clock.now();
            *self.skew.lock() = (theirs.saturating_sub(ours), ours.saturating_sub(theirs));
        }
        true
    }
}

#[cfg(test)]
mod tests;
