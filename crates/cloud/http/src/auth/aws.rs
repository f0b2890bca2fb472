//! AWS: environment, shared files, web identity, container endpoint, instance metadata, in that order.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{HeaderName, Method};
use parking_lot::Mutex as Lock;
use serde::Deserialize;
use tokio::sync::Mutex;

use super::{Environment, missing, sigv4};
use crate::{Clock, Failure, Reply, Request, Signer, Transport, form};

#[derive(Clone)]
struct Keys {
    access_key: String,
    secret_key: String,
    session_token: Option<String>,
    ends: Duration,
}

/// Signs requests of one service; the region is the request's scope.
pub struct AwsSigner {
    service: &'static str,
    environment: Environment,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    keys: Mutex<Option<Keys>>,
    /// How far the cloud's clock is ahead of ours, and how far behind, learnt from a refusal.
    skew: Lock<(Duration, Duration)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleKeys {
    access_key_id: String,
    secret_access_key: String,
    #[serde(alias = "SessionToken")]
    token: String,
    expiration: jiff::Timestamp,
}

const METADATA: &str = "http://169.254.169.254";
const CONTAINER: &str = "http://169.254.170.2";

impl AwsSigner {
    pub fn new(
        service: &'static str,
        environment: Environment,
        transport: Arc<dyn Transport>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { service, environment, transport, clock, keys: Mutex::new(None), skew: Lock::default() }
    }

    async fn find(&self) -> Result<Keys, Failure> {
        let env = |name| self.environment.get(name);
        if let (Some(access_key), Some(secret_key)) = (env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY"))
        {
            let session_token = env("AWS_SESSION_TOKEN");
            return Ok(Keys { access_key, secret_key, session_token, ends: Duration::MAX });
        }
        if let Some(keys) = self.shared_file()? {
            return Ok(keys);
        }
        if let (Some(file), Some(role)) = (env("AWS_WEB_IDENTITY_TOKEN_FILE"), env("AWS_ROLE_ARN")) {
            return self.web_identity(&file, &role).await;
        }
        if let Some(path) = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
            let request =
                Request::new("the container's credentials", Method::GET, format!("{CONTAINER}{path}"));
            return self.role_keys(request).await;
        }
        if env("AWS_EC2_METADATA_DISABLED").as_deref() == Some("true") {
            return Err(missing(
                "AWS: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY nor a profile nor a web identity is set",
            ));
        }
        self.instance_metadata().await
    }

    /// `~/.aws/credentials` and `~/.aws/config`, the section of `AWS_PROFILE`.
    fn shared_file(&self) -> Result<Option<Keys>, Failure> {
        let profile = self.environment.get("AWS_PROFILE");
        let named = |variable: &str, name: &str| {
            let given = self.environment.get(variable).map(PathBuf::from);
            given.or_else(|| Some(self.environment.home()?.join(".aws").join(name)))
        };
        let files = [named("AWS_SHARED_CREDENTIALS_FILE", "credentials"), named("AWS_CONFIG_FILE", "config")];
        let wanted = profile.clone().unwrap_or_else(|| "default".to_owned());
        for text in files.into_iter().flatten().filter_map(|path| std::fs::read_to_string(path).ok()) {
            let get = |key| value_in(&text, &wanted, key);
            if let (Some(access_key), Some(secret_key)) =
                (get("aws_access_key_id"), get("aws_secret_access_key"))
            {
                let session_token = get("aws_session_token");
                return Ok(Some(Keys { access_key, secret_key, session_token, ends: Duration::MAX }));
            }
        }
        match profile {
            Some(profile) => {
                Err(missing(format!("AWS: the profile {profile} has no keys in ~/.aws/credentials")))
            }
            None => Ok(None),
        }
    }

    async fn web_identity(&self, file: &str, role: &str) -> Result<Keys, Failure> {
        let token = std::fs::read_to_string(file)
            .map_err(|err| missing(format!("AWS: cannot read {file}: {err}")))?;
        let session = self.environment.get("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "trestle".to_owned());
        let endpoint = self.environment.get("AWS_ENDPOINT_URL_STS");
        let endpoint = endpoint.unwrap_or_else(|| "https://sts.amazonaws.com".to_owned());
        let query = form([
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", "2011-06-15"),
            ("RoleArn", role),
            ("RoleSessionName", &sigv4::plain(&session)),
            ("WebIdentityToken", token.trim()),
        ]);
        let request = Request::new("sts:AssumeRoleWithWebIdentity", Method::POST, format!("{endpoint}/"))
            .body("application/x-www-form-urlencoded", query);
        let reply = self.transport.send(&request).await.map_err(|err| missing(format!("AWS STS: {err}")))?;
        let text = reply.text().into_owned();
        let element = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            Some(rest.split_once('<')?.0.to_owned())
        };
        let keys = (element("AccessKeyId"), element("SecretAccessKey"), element("SessionToken"));
        let (Some(access_key), Some(secret_key), Some(token)) = keys else {
            let code = element("Code").unwrap_or_else(|| reply.status.to_string());
            return Err(missing(format!("AWS STS does not give the role {role}: {code}")));
        };
        let ends = element("Expiration").and_then(|text| text.parse().ok()).map_or(Duration::MAX, unix);
        Ok(Keys { access_key, secret_key, session_token: Some(token), ends })
    }

    async fn instance_metadata(&self) -> Result<Keys, Failure> {
        let base = self.environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        let base = base.unwrap_or_else(|| METADATA.to_owned());
        let mut request = Request::new("instance metadata", Method::PUT, format!("{base}/latest/api/token"));
        request.header(HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds"), "21600");
        let unreachable = |err| {
            missing(format!("AWS: no keys in the environment or in files, and no instance metadata: {err}"))
        };
        let token = self.transport.send(&request).await.map_err(unreachable)?.text().into_owned();
        let ask = |path: String| {
            let mut request = Request::new("instance metadata", Method::GET, path);
            request.header(HeaderName::from_static("x-aws-ec2-metadata-token"), &token);
            request
        };
        let roles = format!("{base}/latest/meta-data/iam/security-credentials/");
        let role = self.transport.send(&ask(roles.clone())).await.map_err(unreachable)?;
        let role = role.text().lines().next().unwrap_or_default().to_owned();
        self.role_keys(ask(format!("{roles}{role}"))).await
    }

    async fn role_keys(&self, request: Request) -> Result<Keys, Failure> {
        let what = request.operation.clone();
        let reply =
            self.transport.send(&request).await.map_err(|err| missing(format!("AWS, {what}: {err}")))?;
        let keys: RoleKeys = serde_json::from_slice(&reply.body)
            .map_err(|err| missing(format!("AWS, {what}: no credentials in the answer: {err}")))?;
        Ok(Keys {
            access_key: keys.access_key_id,
            secret_key: keys.secret_access_key,
            session_token: Some(keys.token),
            ends: unix(keys.expiration),
        })
    }
}

fn unix(time: jiff::Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(time.as_second()).unwrap_or_default())
}

/// A value in a section `[name]` or `[profile name]` of an INI file.
fn value_in(text: &str, section: &str, key: &str) -> Option<String> {
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            inside = name.trim() == section || name.strip_prefix("profile ").map(str::trim) == Some(section);
        } else if inside
            && let Some((name, value)) = line.split_once('=')
            && name.trim() == key
        {
            return Some(value.trim().to_owned());
        }
    }
    None
}

#[async_trait]
impl Signer for AwsSigner {
    async fn sign(&self, request: &mut Request) -> Result<(), Failure> {
        let mut held = self.keys.lock().await;
        let now = self.clock.now();
        let keys = match &*held {
            Some(keys) if keys.ends > now + super::EARLY => keys.clone(),
            _ => held.insert(self.find().await?).clone(),
        };
        drop(held);
        let (ahead, behind) = *self.skew.lock();
        let time = sigv4::stamp((now + ahead).saturating_sub(behind));
        let region = request.scope.clone();
        let context = sigv4::Context {
            access_key: &keys.access_key,
            secret_key: &keys.secret_key,
            session_token: keys.session_token.as_deref(),
            region: &region,
            service: self.service,
            time: &time,
        };
        sigv4::sign(request, &context).ok_or_else(|| missing(format!("{:?} is no URL to sign", request.url)))
    }

    /// A clock that is wrong is corrected by what the cloud says the time is; keys are looked up again.
    fn refused(&self, reply: &Reply) -> bool {
        if let Ok(mut keys) = self.keys.try_lock() {
            *keys = None;
        }
        let date = reply.header("date").and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
        if let Some(theirs) = date.map(|date| unix(date.timestamp())) {
            let ours = self.clock.now();
            *self.skew.lock() = (theirs.saturating_sub(ours), ours.saturating_sub(theirs));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HttpTransport, SystemClock};

    fn signer(pairs: &[(&str, &str)]) -> AwsSigner {
        let transport = Arc::new(HttpTransport::new(None).unwrap());
        AwsSigner::new("ec2", Environment::of(pairs.iter().copied()), transport, Arc::new(SystemClock))
    }

    async fn credential(signer: &AwsSigner) -> Result<String, Failure> {
        let mut request = Request::new("x", Method::POST, "http://127.0.0.1:1/").scope("eu-west-1");
        signer.sign(&mut request).await?;
        Ok(request.headers["authorization"].to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn keys_are_found_where_aws_tools_look() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("credentials");
        std::fs::write(&file, "[default]\naws_access_key_id = A\naws_secret_access_key=s\n[work]\naws_access_key_id=B\naws_secret_access_key = s\n").unwrap();
        let file = file.to_str().unwrap();
        let both = [("AWS_SHARED_CREDENTIALS_FILE", file), ("AWS_CONFIG_FILE", "/nonexistent")];
        assert!(credential(&signer(&both)).await.unwrap().contains("Credential=A/"));
        let work = [both[0], both[1], ("AWS_PROFILE", "work")];
        assert!(credential(&signer(&work)).await.unwrap().contains("Credential=B/"));
        let none = [both[0], both[1], ("AWS_PROFILE", "none")];
        assert!(credential(&signer(&none)).await.unwrap_err().to_string().contains("none"));
        let environment = [work[0], work[2], ("AWS_ACCESS_KEY_ID", "C"), ("AWS_SECRET_ACCESS_KEY", "s")];
        let found = credential(&signer(&environment)).await.unwrap();
        assert!(found.contains("Credential=C/") && found.contains("/eu-west-1/ec2/aws4_request"), "{found}");
        let nothing = credential(&signer(&[("AWS_EC2_METADATA_DISABLED", "true")])).await.unwrap_err();
        assert!(matches!(nothing, Failure::Credentials { .. }), "{nothing}");
    }
}
