//! Google: application default credentials. A key file, the file of `gcloud auth application-default login`, or the
//! metadata server.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use aws_lc_rs::{rand::SystemRandom, rsa, signature::RSA_PKCS1_SHA256};
use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use http::{HeaderName, Method};
use serde::Deserialize;

use super::{Environment, Token, TokenSource, missing, token_request};
use crate::{Clock, Failure, Request, Transport, form};

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

pub struct GoogleTokens {
    environment: Environment,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum KeyFile {
    ServiceAccount { client_email: String, private_key: String, private_key_id: String, token_uri: String },
    AuthorizedUser { client_id: String, client_secret: String, refresh_token: String },
}

impl GoogleTokens {
    pub fn new(environment: Environment, transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        Self { environment, transport, clock }
    }

    fn key_file(&self) -> Result<Option<KeyFile>, Failure> {
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

    fn assertion(&self, email: &str, key: &str, key_id: &str, audience: &str) -> Result<String, Failure> {
        let now = self.clock.now().as_secs();
        let encode = |value: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let head = encode(serde_json::json!({"alg": "RS256", "typ": "JWT", "kid": key_id}));
        let claims = encode(serde_json::json!({
            "iss": email, "scope": SCOPE, "aud": audience, "iat": now, "exp": now + 3600,
        }));
        let signed = format!("{head}.{claims}");
        let bad = |_| missing("Google: the private key of the key file cannot be used");
        let body: String = key.lines().filter(|line| !line.starts_with("-----")).collect();
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
        let request = match self.key_file()? {
            Some(KeyFile::ServiceAccount { client_email, private_key, private_key_id, token_uri }) => {
                let assertion = self.assertion(&client_email, &private_key, &private_key_id, &token_uri)?;
                let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
                let body = form([("grant_type", grant), ("assertion", &assertion)]);
                Request::new("Google's token endpoint", Method::POST, token_uri)
                    .body("application/x-www-form-urlencoded", body)
            }
            Some(KeyFile::AuthorizedUser { client_id, client_secret, refresh_token }) => {
                let body = form([
                    ("grant_type", "refresh_token"),
                    ("client_id", &client_id),
                    ("client_secret", &client_secret),
                    ("refresh_token", &refresh_token),
                ]);
                Request::new("Google's token endpoint", Method::POST, "https://oauth2.googleapis.com/token")
                    .body("application/x-www-form-urlencoded", body)
            }
            None => {
                let host = self.environment.get("GCE_METADATA_HOST");
                let host = host.unwrap_or_else(|| "metadata.google.internal".to_owned());
                let path = "computeMetadata/v1/instance/service-accounts/default/token";
                let mut request =
                    Request::new("Google's metadata server", Method::GET, format!("http://{host}/{path}"));
                request.header(HeaderName::from_static("metadata-flavor"), "Google");
                request
            }
        };
        token_request(&*self.transport, &*self.clock, request).await
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::{
        encoding::AsDer as _,
        signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey},
    };

    use super::*;
    use crate::{HttpTransport, SystemClock};

    #[test]
    fn an_assertion_is_signed_with_the_key() {
        let pair = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
        let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            BASE64_STANDARD.encode(der.as_ref())
        );
        let transport = Arc::new(HttpTransport::new(None).unwrap());
        let none: [(&str, &str); 0] = [];
        let tokens = GoogleTokens::new(Environment::of(none), transport, Arc::new(SystemClock));
        let assertion = tokens.assertion("a@b", &pem, "k1", "https://t/").unwrap();
        let (signed, signature) = assertion.rsplit_once('.').unwrap();
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref());
        key.verify(signed.as_bytes(), &signature).unwrap();
        assert!(tokens.assertion("a@b", "no key", "k1", "https://t/").is_err());
    }
}
