//! `trestle token`, `cert` and `whoami`.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use jiff::{SignedDuration, Timestamp};
use model::Role;
use serde::Serialize;
use wire::trestle::v1::{
    self, CreateTokenRequest, IssueCertificateRequest, ListCertificatesRequest, ListTokensRequest,
    RevokeCertificateRequest, RevokeTokenRequest, WhoAmIRequest, access_client::AccessClient,
};

use crate::{
    client::Connection,
    output::{Format, Rows},
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  trestle token create alice --role viewer --ttl 720h")]
pub enum TokenCommand {
    /// All tokens, without their secrets
    List,
    /// Make a token; it is shown once
    Create {
        /// Whose it is
        name: String,
        #[arg(long)]
        role: Role,
        /// How long it is valid, e.g. 12h or 30m (default: until revoked)
        #[arg(long, value_parser = duration)]
        ttl: Option<SignedDuration>,
    },
    /// Make a token invalid at once
    Revoke { id: String },
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  trestle cert issue node-1 --role node --out /etc/trestle/node-1")]
pub enum CertCommand {
    /// All certificates issued
    List,
    /// Make a client certificate: PREFIX.pem, PREFIX.key and PREFIX.ca.pem
    Issue {
        /// Whose it is: a node's name, a consumer's id
        name: String,
        #[arg(long)]
        role: Role,
        /// How long it is valid (default: 8760h, one year)
        #[arg(long, value_parser = duration)]
        ttl: Option<SignedDuration>,
        /// Path the files' names start with
        #[arg(long, value_name = "PREFIX")]
        out: PathBuf,
    },
    /// Refuse a certificate from now on
    Revoke { serial: String },
}

pub fn duration(text: &str) -> Result<SignedDuration, String> {
    let duration: SignedDuration = text.parse().map_err(|err: jiff::Error| err.to_string())?;
    if duration.as_secs() < 1 { Err("at least a second".to_owned()) } else { Ok(duration) }
}

fn seconds(ttl: Option<SignedDuration>) -> Option<u64> {
    ttl.map(|ttl| ttl.as_secs().unsigned_abs())
}

pub async fn token(command: TokenCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut access = AccessClient::new(connection);
    match command {
        TokenCommand::List => {
            let reply = access.list_tokens(ListTokensRequest {}).await?.into_inner();
            output.list(&reply.tokens.into_iter().map(Token::from).collect::<Vec<_>>())
        }
        TokenCommand::Create { name, role, ttl } => {
            let role = v1::Role::from(role) as i32;
            let request = CreateTokenRequest { name, role, ttl_seconds: seconds(ttl) };
            let reply = access.create_token(request).await?.into_inner();
            let info = Token::from(reply.info.context("the controller sent no token")?);
            let data = serde_json::json!({ "token": info, "secret": reply.secret });
            output.done(&reply.secret, &data)
        }
        TokenCommand::Revoke { id } => {
            access.revoke_token(RevokeTokenRequest { id: id.clone() }).await?;
            output.done(&format!("Revoked token: {id}"), &serde_json::json!({ "id": id }))
        }
    }
}

pub async fn cert(command: CertCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut access = AccessClient::new(connection);
    match command {
        CertCommand::List => {
            let reply = access.list_certificates(ListCertificatesRequest {}).await?.into_inner();
            output.list(&reply.certificates.into_iter().map(Certificate::from).collect::<Vec<_>>())
        }
        CertCommand::Issue { name, role, ttl, out } => {
            let role = v1::Role::from(role) as i32;
            let request = IssueCertificateRequest { name, role, ttl_seconds: seconds(ttl) };
            let reply = access.issue_certificate(request).await?.into_inner();
            let info = Certificate::from(reply.info.context("the controller sent no certificate")?);
            let place = |extension: &str| out.with_added_extension(extension);
            let failed = |path: &PathBuf| format!("cannot write {}", path.display());
            let key = place("key");
            files::write(&key, reply.key_pem.as_bytes()).with_context(|| failed(&key))?;
            for (path, pem) in [(place("pem"), reply.certificate_pem), (place("ca.pem"), reply.ca_pem)] {
                fs::write(&path, pem).with_context(|| failed(&path))?;
            }
            let sentence =
                format!("Issued certificate {} for {}: {}", info.serial, info.name, place("pem").display());
            output.done(&sentence, &info)
        }
        CertCommand::Revoke { serial } => {
            access.revoke_certificate(RevokeCertificateRequest { serial: serial.clone() }).await?;
            output.done(&format!("Revoked certificate: {serial}"), &serde_json::json!({ "serial": serial }))
        }
    }
}

pub async fn whoami(output: Format, connection: Connection) -> anyhow::Result<()> {
    let me = AccessClient::new(connection).who_am_i(WhoAmIRequest {}).await?.into_inner();
    let role = role_name(me.role);
    let data = serde_json::json!({ "name": me.name, "role": role, "proof": me.proof });
    output.done(&format!("{} ({role}, by {})", me.name, me.proof), &data)
}

pub fn role_name(number: i32) -> String {
    wire::access::role(number).map_or_else(|_| format!("role {number}"), |role| role.to_string())
}

fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

#[derive(Debug, Serialize)]
struct Token {
    id: String,
    /// `token` or `session`.
    kind: &'static str,
    name: String,
    role: String,
    created: String,
    expires: Option<String>,
}

impl From<v1::TokenInfo> for Token {
    fn from(info: v1::TokenInfo) -> Self {
        let (role, created) = (role_name(info.role), time(info.created_at));
        let kind = if info.session { "session" } else { "token" };
        Self { id: info.id, kind, name: info.name, role, created, expires: info.expires_at.map(time) }
    }
}

impl Rows for Token {
    const HEADER: &'static [&'static str] = &["id", "kind", "name", "role", "created", "expires"];

    fn row(&self) -> Vec<String> {
        let expires = self.expires.clone().unwrap_or_else(|| "never".to_owned());
        let kind = self.kind.to_owned();
        vec![self.id.clone(), kind, self.name.clone(), self.role.clone(), self.created.clone(), expires]
    }
}

#[derive(Debug, Serialize)]
struct Certificate {
    serial: String,
    name: String,
    role: String,
    not_after: String,
    revoked: bool,
}

impl From<v1::CertificateInfo> for Certificate {
    fn from(info: v1::CertificateInfo) -> Self {
        let (role, not_after) = (role_name(info.role), time(info.not_after));
        Self { serial: info.serial, name: info.name, role, not_after, revoked: info.revoked }
    }
}

impl Rows for Certificate {
    const HEADER: &'static [&'static str] = &["serial", "name", "role", "valid until", "state"];

    fn row(&self) -> Vec<String> {
        let state = if self.revoked { "revoked" } else { "valid" };
        vec![
            self.serial.clone(),
            self.name.clone(),
            self.role.clone(),
            self.not_after.clone(),
            state.to_owned(),
        ]
    }
}
