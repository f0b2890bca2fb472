//! Workload identity federation: a token that somebody else gave (a cluster, a CI system, a cloud) is exchanged for one of
//! Google's.
//!
//! In: a file of type `external_account`, which names where that token is: a file, a URL, or a program that prints it. Out: Google's
//! token, of the identity itself or of a service account that it may impersonate. Not here: tokens signed as AWS signs, and
//! certificates.

use std::{collections::BTreeMap, process::Stdio, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderName, Method, header::AUTHORIZATION};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::process::Command;

use super::{GoogleTokens, LIFETIME, SCOPE, exchange};
use crate::{
    Failure, Request,
    auth::{Token, missing},
};

/// Programs are run only if this is 1: a file of credentials that somebody sent must not run anything.
const ALLOWED: &str = "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES";
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
pub(super) struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: String,
    credential_source: Source,
    service_account_impersonation_url: Option<String>,
    #[serde(default)]
    service_account_impersonation: Lifetime,
    client_id: Option<String>,
    client_secret: Option<String>,
    workforce_pool_user_project: Option<String>,
}

#[derive(Default, Deserialize)]
struct Lifetime {
    token_lifetime_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Source {
    File {
        file: String,
        #[serde(default)]
        format: Format,
    },
    Url {
        url: String,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default)]
        format: Format,
    },
    Program {
        executable: Program,
    },
    Other(Map<String, Value>),
}

#[derive(Deserialize)]
struct Program {
    command: String,
    timeout_millis: Option<u64>,
}

/// How a token is written: as it is, or in a field of an object.
#[derive(Default, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Format {
    #[default]
    Text,
    Json {
        subject_token_field_name: String,
    },
}

/// What a program prints.
#[derive(Deserialize)]
struct Printed {
    success: bool,
    #[serde(alias = "saml_response")]
    id_token: Option<String>,
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Format {
    fn read(&self, text: &str) -> Result<String, String> {
        let Self::Json { subject_token_field_name: name } = self else { return Ok(text.trim().to_owned()) };
        let fields: Map<String, Value> = serde_json::from_str(text).map_err(|err| err.to_string())?;
        let token = fields.get(name).and_then(Value::as_str).map(str::to_owned);
        token.ok_or_else(|| format!("it has no text {name}"))
    }
}

impl GoogleTokens {
    pub(super) async fn external_token(&self, account: &ExternalAccount) -> Result<Token, Failure> {
        let subject = self.subject_token(account).await?;
        let mut pairs = vec![
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("audience", &account.audience),
            ("scope", SCOPE),
            ("subject_token_type", &account.subject_token_type),
            ("subject_token", &subject),
        ];
        let options = account.workforce_pool_user_project.as_ref();
        let options = options.map(|project| serde_json::json!({"userProject": project}).to_string());
        if let (Some(options), None) = (&options, &account.client_id) {
            pairs.push(("options", options));
        }
        let mut request = exchange(&account.token_url, &pairs);
        if let (Some(id), Some(secret)) = (&account.client_id, &account.client_secret) {
            let both = BASE64_STANDARD.encode(format!("{id}:{secret}"));
            request.header(AUTHORIZATION, &format!("Basic {both}"));
        }
        let own = self.ask(request).await?;
        let Some(url) = &account.service_account_impersonation_url else { return Ok(own) };
        let seconds = account.service_account_impersonation.token_lifetime_seconds.unwrap_or(LIFETIME);
        self.impersonate(url, &own, &[], seconds).await
    }

    /// The token that is exchanged.
    async fn subject_token(&self, account: &ExternalAccount) -> Result<String, Failure> {
        let bad = |what: &str, err: String| {
            missing(format!("Google: no token of an external account from {what}: {err}"))
        };
        match &account.credential_source {
            Source::File { file, format } => {
                let text = std::fs::read_to_string(file).map_err(|err| bad(file, err.to_string()))?;
                format.read(&text).map_err(|err| bad(file, err))
            }
            Source::Url { url, headers, format } => {
                let mut request = Request::new("a source of tokens", Method::GET, url);
                for (name, value) in headers {
                    let name: HeaderName =
                        name.parse().map_err(|_| bad(url, format!("{name} is no header")))?;
                    request.header(name, value);
                }
                let reply = self.transport.send(&request).await.map_err(|err| bad(url, err.to_string()))?;
                match reply.status {
                    200 => format.read(&reply.text()).map_err(|err| bad(url, err)),
                    status => Err(bad(url, format!("it answered {status}"))),
                }
            }
            Source::Program { executable } => {
                let printed = self.run(account, executable).await;
                printed.map_err(|err| bad(&executable.command, err))
            }
            Source::Other(fields) => {
                let names: Vec<&str> = fields.keys().map(String::as_str).collect();
                Err(bad(&names.join(", "), "only file, url and executable are known".to_owned()))
            }
        }
    }

    async fn run(&self, account: &ExternalAccount, program: &Program) -> Result<String, String> {
        if self.environment.get(ALLOWED).as_deref() != Some("1") {
            return Err(format!("programs are run only if {ALLOWED} is 1"));
        }
        let mut words = program.command.split_whitespace();
        let mut command = Command::new(words.next().ok_or("it is empty")?);
        let ran = command
            .args(words)
            .env("GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE", &account.audience)
            .env("GOOGLE_EXTERNAL_ACCOUNT_TOKEN_TYPE", &account.subject_token_type)
            .env("GOOGLE_EXTERNAL_ACCOUNT_INTERACTIVE", "0")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let patience = program.timeout_millis.map_or(PATIENCE, Duration::from_millis);
        let ran = tokio::time::timeout(patience, ran).await;
        let ran = ran.map_err(|_| format!("it did not end within {patience:?}"))?;
        let ran = ran.map_err(|err| err.to_string())?;
        let printed: Printed = serde_json::from_slice(&ran.stdout)
            .map_err(|err| format!("it ended with {} and printed something else: {err}", ran.status))?;
        match printed {
            Printed { success: true, id_token: Some(token), .. } => Ok(token),
            Printed { code, message, .. } => Err(format!("it says {code} {message}")),
        }
    }
}
