//! What a platform says of the machine this runs on: its metadata service is asked, or a file read that it has put there.
//!
//! ```text
//!   aws          PUT latest/api/token ─► GET latest/dynamic/instance-identity/rsa2048
//!   azure        GET metadata/attested/document, over the controller's nonce
//!   gcp          GET computeMetadata/v1/instance/service-accounts/default/identity, for the controller as audience
//!   ibm          PUT instance_identity/v1/token ─► POST instance_identity/v1/iam_token, for a trusted profile
//!   kubernetes   the file of a projected service account token
//! ```
//!
//! In: which platform, the controller's nonce. Out: the statement, and the name that the machine has there if the statement is about an
//! instance. Holds nothing. Whether the statement is true is the controller's to judge.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::ValueEnum;
use cloud_http::{HttpTransport, Reply, Request, Transport as _, encode_component};
use http::{HeaderName, Method, header::AUTHORIZATION};
use model::host::ten_digits;
use serde_json::{Value, json};

/// Time for a metadata service, which is on the same machine or none, to answer.
const PATIENCE: Duration = Duration::from_secs(5);
const LINK_LOCAL: &str = "http://169.254.169.254";
const GOOGLE: &str = "http://metadata.google.internal";
/// Where a projected token is expected that was made for the controller.
const PROJECTED: &str = "/var/run/secrets/trestle/token";

/// Who says what this machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Platform {
    Aws,
    Azure,
    Gcp,
    Ibm,
    Kubernetes,
}

#[derive(Debug, clap::Args)]
pub struct StatementArgs {
    /// With --identity: who is asked what this machine is (default: the identity's name, if it is one of these)
    #[arg(long, value_name = "PLATFORM", requires = "identity")]
    from: Option<Platform>,
    /// With --identity: file with the statement instead of asking; - is the standard input
    #[arg(long, value_name = "FILE", requires = "identity", conflicts_with = "from")]
    statement: Option<PathBuf>,
    /// With --identity: for whom the statement is to be, as the controller's `audience` says (default: URL)
    #[arg(long, value_name = "TEXT", requires = "identity")]
    audience: Option<String>,
    /// With --identity ibm: the trusted profile that this instance may take on
    #[arg(long, value_name = "ID", requires = "identity")]
    profile: Option<String>,
    /// With --identity: another metadata service than the platform's own
    #[arg(long, value_name = "URL", requires = "identity")]
    metadata: Option<String>,
}

/// What is shown to the controller.
pub struct Statement {
    pub text: String,
    /// What the machine is called there.
    pub instance: Option<String>,
}

impl StatementArgs {
    /// The statement that `identity` asks for, for the controller at a URL.
    pub async fn get(&self, identity: &str, url: &str, nonce: &str) -> anyhow::Result<Statement> {
        if let Some(path) = &self.statement {
            return Ok(Statement { text: read(path)?, instance: None });
        }
        let platform = match self.from {
            Some(platform) => platform,
            None => Platform::from_str(identity, true).map_err(|_| {
                anyhow::anyhow!("say with --from who is asked what this machine is (aws, azure, gcp, ibm or kubernetes), or give --statement")
            })?,
        };
        if platform == Platform::Kubernetes {
            return Ok(Statement { text: read(Path::new(PROJECTED))?, instance: None });
        }
        let base = if platform == Platform::Gcp { GOOGLE } else { LINK_LOCAL };
        let base = self.metadata.as_deref().unwrap_or(base).trim_end_matches('/').to_owned();
        let service = Metadata { base, transport: HttpTransport::new(None)? };
        let text = match platform {
            Platform::Aws => service.aws().await,
            Platform::Azure => service.azure(nonce).await,
            Platform::Gcp => service.gcp(self.audience.as_deref().unwrap_or(url)).await,
            Platform::Ibm => match &self.profile {
                Some(profile) => service.ibm(profile).await,
                None => bail!("say with --profile which trusted profile this instance takes on"),
            },
            Platform::Kubernetes => unreachable!("it has no metadata service"),
        };
        let text = text.with_context(|| {
            format!(
                "the metadata service at {} does not say what this machine is; is this {platform:?}?",
                service.base
            )
        })?;
        let instance = instance(platform, &text);
        Ok(Statement { text, instance })
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let read = match path.to_str() {
        Some("-") => io::read_to_string(io::stdin()),
        _ => std::fs::read_to_string(path),
    };
    read.with_context(|| format!("cannot read the statement in {}", path.display()))
}

/// What the machine is called in a statement, of which nothing is verified here: only to ask for the name that it will be given.
fn instance(platform: Platform, text: &str) -> Option<String> {
    let (part, path): (Vec<u8>, &[&str]) = match platform {
        Platform::Aws => {
            (STANDARD.decode(text.split_whitespace().collect::<String>()).ok()?, &["instanceId"])
        }
        Platform::Azure => (STANDARD.decode(text).ok()?, &["vmId"]),
        Platform::Gcp => {
            let claims = text.split('.').nth(1)?;
            let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(claims).ok()?;
            (claims, &["google", "compute_engine", "instance_name"])
        }
        Platform::Ibm | Platform::Kubernetes => return None,
    };
    // In a signed message the document stands as it is.
    let start = part.iter().position(|byte| *byte == b'{')?;
    let mut values = serde_json::Deserializer::from_slice(&part[start..]).into_iter::<Value>();
    let claims = values.next()?.ok()?;
    Some(path.iter().try_fold(&claims, |claims, key| claims.get(key))?.as_str()?.to_owned())
}

struct Metadata {
    base: String,
    transport: HttpTransport,
}

impl Metadata {
    async fn aws(&self) -> anyhow::Result<String> {
        let life = [("x-aws-ec2-metadata-token-ttl-seconds", "60")];
        let token = self.ask(Method::PUT, "latest/api/token", &life, None).await?.text().into_owned();
        let shown = [("x-aws-ec2-metadata-token", token.as_str())];
        let path = "latest/dynamic/instance-identity/rsa2048";
        Ok(self.ask(Method::GET, path, &shown, None).await?.text().into_owned())
    }

    async fn azure(&self, nonce: &str) -> anyhow::Result<String> {
        let path = format!("metadata/attested/document?api-version=2020-09-01&nonce={}", ten_digits(nonce));
        let reply = self.ask(Method::GET, &path, &[("metadata", "true")], None).await?;
        field(&reply, "signature")
    }

    async fn gcp(&self, audience: &str) -> anyhow::Result<String> {
        let path = format!(
            "computeMetadata/v1/instance/service-accounts/default/identity?format=full&audience={}",
            encode_component(audience)
        );
        let reply = self.ask(Method::GET, &path, &[("metadata-flavor", "Google")], None).await?;
        Ok(reply.text().trim().to_owned())
    }

    async fn ibm(&self, profile: &str) -> anyhow::Result<String> {
        let flavor = [("metadata-flavor", "ibm")];
        let (version, life) = ("version=2022-03-01", json!({ "expires_in": 300 }));
        let path = format!("instance_identity/v1/token?{version}");
        let token = field(&self.ask(Method::PUT, &path, &flavor, Some(life)).await?, "access_token")?;
        let shown = [(AUTHORIZATION.as_str(), &*format!("Bearer {token}"))];
        let path = format!("instance_identity/v1/iam_token?{version}");
        let body = json!({ "trusted_profile": { "id": profile } });
        field(&self.ask(Method::POST, &path, &shown, Some(body)).await?, "access_token")
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> anyhow::Result<Reply> {
        let mut request = Request::new("metadata", method, format!("{}/{path}", self.base));
        for (name, value) in headers {
            request.header(HeaderName::from_bytes(name.as_bytes())?, value);
        }
        if let Some(body) = body {
            request = request.body("application/json", body.to_string());
        }
        let sent = tokio::time::timeout(PATIENCE, self.transport.send(&request)).await;
        let reply = sent.with_context(|| format!("no answer within {} s", PATIENCE.as_secs()))??;
        match reply.status {
            200 | 201 => Ok(reply),
            status => {
                let said: String = reply.text().chars().take(200).collect();
                bail!("{path} answers {status}: {}", said.trim())
            }
        }
    }
}

fn field(reply: &Reply, name: &str) -> anyhow::Result<String> {
    let told: Value = serde_json::from_slice(&reply.body).context("the answer is no JSON")?;
    let value = told.get(name).and_then(Value::as_str);
    value.map(str::to_owned).with_context(|| format!("the answer has no `{name}`"))
}
