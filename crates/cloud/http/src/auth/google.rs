//! Google: application default credentials, from the same places and in the same order as Google's own libraries.
//!
//! ```text
//!   GOOGLE_APPLICATION_CREDENTIALS, or what `gcloud auth application-default login` left, is a file of one type:
//!     service_account                an assertion, signed with its key, is exchanged
//!     authorized_user                a refresh token is
//!     impersonated_service_account   the token of other credentials gets one of a service account
//!     external_account               somebody else's token is exchanged ([`external`]), and may impersonate
//!   without a file                   the metadata server
//! ```
//!
//! Not Google's own crate (`google-cloud-auth`): it has an HTTP client, a clock and an environment of its own, which no
//! test can stand in for, and takes longer to compile than all that is here.

mod external;

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_lc_rs::{rand::SystemRandom, rsa, signature::RSA_PKCS1_SHA256};
use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use external::ExternalAccount;
use http::{HeaderName, Method, header::AUTHORIZATION};
use serde::{Deserialize, Serialize};

use super::{Environment, Token, TokenSource, missing, token_request};
use crate::{Clock, Failure, Request, Transport, form, read_json};

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// Of a token that impersonates, in seconds, unless its file says otherwise.
const LIFETIME: u64 = 3600;

pub struct GoogleTokens {
    environment: Environment,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
}

/// A file of credentials.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Credentials {
    ServiceAccount(ServiceAccount),
    AuthorizedUser {
        client_id: String,
        client_secret: String,
        refresh_token: String,
    },
    ImpersonatedServiceAccount {
        service_account_impersonation_url: String,
        source_credentials: Box<Credentials>,
        #[serde(default)]
        delegates: Vec<String>,
    },
    ExternalAccount(ExternalAccount),
}

#[derive(Deserialize)]
struct ServiceAccount {
    client_email: String,
    private_key: String,
    private_key_id: String,
    token_uri: String,
}

#[derive(Serialize)]
struct Claims<'c> {
    iss: &'c str,
    scope: &'c str,
    aud: &'c str,
    iat: u64,
    exp: u64,
}

/// What impersonation asks for, and is answered with.
#[derive(Serialize)]
struct Impersonation<'i> {
    scope: [&'i str; 1],
    delegates: &'i [String],
    lifetime: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Impersonated {
    access_token: String,
    expire_time: jiff::Timestamp,
}

/// A request to a token endpoint.
fn exchange(url: &str, pairs: &[(&str, &str)]) -> Request {
    Request::new("Google's token endpoint", Method::POST, url)
        .body("application/x-www-form-urlencoded", form(pairs.iter().copied()))
}

impl GoogleTokens {
    pub fn new(environment: Environment, transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        Self { environment, transport, clock }
    }

    fn credentials(&self) -> Result<Option<Credentials>, Failure> {
        let given = self.environment.get("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from);
        let by_default =
            || Some(self.environment.home()?.join(".config/gcloud/application_default_credentials.json"));
        let path = match (given, by_default()) {
            (Some(given), _) => given,
            (None, Some(path)) if path.exists() => path,
            _ => return Ok(None),
        };
        let bad =
            |err: &dyn std::fmt::Display| missing(format!("Google: cannot use {}: {err}", path.display()));
        let text = std::fs::read(&path).map_err(|err| bad(&err))?;
        serde_json::from_slice(&text).map(Some).map_err(|err| bad(&err))
    }

    /// A token of a file's credentials.
    async fn token_of(&self, credentials: &Credentials) -> Result<Token, Failure> {
        let request = match credentials {
            Credentials::ServiceAccount(account) => {
                let assertion = account.assertion(self.clock.now().as_secs())?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
                exchange(&account.token_uri, &[("grant_type", grant), ("assertion", &assertion)])
            }
            Credentials::AuthorizedUser { client_id, client_secret, refresh_token } => exchange(
                "https://oauth2.googleapis.com/token",
                &[
                    ("grant_type", "refresh_token"),
                    ("client_id", client_id),
                    ("client_secret", client_secret),
                    ("refresh_token", refresh_token),
                ],
            ),
            Credentials::ImpersonatedServiceAccount {
                service_account_impersonation_url: url,
                source_credentials,
                delegates,
            } => {
                let own = Box::pin(self.token_of(source_credentials)).await?;
                return self.impersonate(url, &own, delegates, LIFETIME).await;
            }
            Credentials::ExternalAccount(account) => return self.external_token(account).await,
        };
        self.ask(request).await
    }

    async fn ask(&self, request: Request) -> Result<Token, Failure> {
        token_request(&*self.transport, &*self.clock, request).await
    }

    /// A token of a service account, for one of somebody who may have it.
    async fn impersonate(
        &self,
        url: &str,
        own: &Token,
        delegates: &[String],
        seconds: u64,
    ) -> Result<Token, Failure> {
        let what = "Google's impersonation of a service account";
        let body = Impersonation { scope: [SCOPE], delegates, lifetime: format!("{seconds}s") };
        let body = serde_json::to_string(&body).map_err(|err| missing(format!("{what}: {err}")))?;
        let mut request = Request::new(what, Method::POST, url).body("application/json", body);
        request.header(AUTHORIZATION, &format!("Bearer {}", own.value));
        let reply = self.transport.send(&request).await.map_err(|err| missing(format!("{what}: {err}")))?;
        if reply.status != 200 {
            let text: String = reply.text().chars().take(300).collect();
            return Err(missing(format!("{what} answered {}: {text}", reply.status)));
        }
        let told: Impersonated = read_json(what, &reply)?;
        let ends = u64::try_from(told.expire_time.as_second()).unwrap_or_default();
        Ok(Token { value: told.access_token, ends: Duration::from_secs(ends) })
    }

    fn metadata_request(&self) -> Request {
        let host = self.environment.get("GCE_METADATA_HOST");
        let host = host.unwrap_or_else(|| "metadata.google.internal".to_owned());
        let path = "computeMetadata/v1/instance/service-accounts/default/token";
        let mut request =
            Request::new("Google's metadata server", Method::GET, format!("http://{host}/{path}"));
        request.header(HeaderName::from_static("metadata-flavor"), "Google");
        request
    }
}

impl ServiceAccount {
    /// Says who asks, signed with the account's key.
    fn assertion(&self, now: u64) -> Result<String, Failure> {
        let bad = |_| missing("Google: the private key of the key file cannot be used");
        let encode = |text: String| BASE64_URL_SAFE_NO_PAD.encode(text);
        let head = serde_json::json!({"alg": "RS256", "typ": "JWT", "kid": self.private_key_id});
        let claims =
            Claims { iss: &self.client_email, scope: SCOPE, aud: &self.token_uri, iat: now, exp: now + 3600 };
        let claims = serde_json::to_string(&claims).map_err(|err| missing(format!("Google: {err}")))?;
        let signed = format!("{}.{}", encode(head.to_string()), encode(claims));
        let body: String = self.private_key.lines().filter(|line| !line.starts_with("-----")).collect();
        let der = BASE64_STANDARD.decode(body.trim()).map_err(|_| bad(()))?;
        let pair = rsa::KeyPair::from_pkcs8(&der).map_err(|_| bad(()))?;
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|_| bad(()))?;
        Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[async_trait]
impl TokenSource for GoogleTokens {
    async fn fetch(&self) -> Result<Token, Failure> {
        match self.credentials()? {
            Some(credentials) => self.token_of(&credentials).await,
            None => self.ask(self.metadata_request()).await,
        }
    }
}

#[cfg(test)]
mod tests;
