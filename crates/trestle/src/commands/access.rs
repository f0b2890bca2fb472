//! `trestle token`, `cert` and `whoami`.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use jiff::SignedDuration;
use model::Role;
use wire::{
    json::{role_name, time_text},
    trestle::v1::{
        self, CertificateInfo, CreateJoinTokenRequest, CreateTokenRequest, IssueCertificateRequest,
        ListCertificatesRequest, ListTokensRequest, RevokeCertificateRequest, RevokeTokenRequest, TokenInfo,
        WhoAmIRequest, access_client::AccessClient,
    },
};

use crate::{
    client::Connection,
    output::{Format, Rows},
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  trestle token create alice --role viewer --ttl 720h
  trestle token create --join --tag web --uses 10 --for 1h       # on each host: sudo trestle join https://CONTROLLER:8081 TOKEN
  trestle token create --join --names 'db-*' --tag db --label tier=back
  trestle token revoke 0123456789abcdef")]
pub enum TokenCommand {
    /// All tokens, without their secrets
    List,
    /// Make a token; it is shown once
    Create {
        /// Whose it is
        #[arg(required_unless_present = "join", conflicts_with = "join")]
        name: Option<String>,
        #[arg(long, required_unless_present = "join", conflicts_with = "join")]
        role: Option<Role>,
        /// How long it is valid, e.g. 12h or 30m (default: until revoked, or for people as long as the credential it is made with; to
        /// join 1h)
        #[arg(long, visible_alias = "for", value_parser = duration)]
        ttl: Option<SignedDuration>,
        #[command(flatten)]
        join: JoinFlags,
    },
    /// Make a token invalid at once
    Revoke {
        id: String,
        /// And what was made with it, and with that: tokens and certificates, of people and of machines
        #[arg(long)]
        with_made: bool,
    },
}

/// What hosts become that join with a token.
#[derive(Debug, clap::Args)]
pub struct JoinFlags {
    /// A token that lets machines join as hosts, instead of one for a person; see docs/hosts.md
    #[arg(long)]
    join: bool,
    /// How many hosts it lets in
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "join", value_parser = clap::value_parser!(u32).range(1..))]
    uses: u32,
    /// A tag that the hosts are made members of; once per tag. One that is not there is made
    #[arg(long, value_name = "TAG", requires = "join")]
    tag: Vec<String>,
    /// A label that the hosts carry, for policies; once per label
    #[arg(long, value_name = "KEY=VALUE", requires = "join", value_parser = label)]
    label: Vec<(String, String)>,
    /// Which names the hosts may have, as in 'web-*'
    #[arg(long, visible_alias = "name", value_name = "PATTERN", default_value = "*", requires = "join")]
    names: String,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err("write it as KEY=VALUE".to_owned()),
    }
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
    Revoke {
        serial: String,
        /// And what was made with it, and with that: tokens and certificates, of people and of machines
        #[arg(long)]
        with_made: bool,
    },
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
            output.list(&reply.tokens)
        }
        TokenCommand::Create { ttl, join, .. } if join.join => {
            let JoinFlags { uses, tag, label, names, .. } = join;
            let labels = label.into_iter().collect();
            let request =
                CreateJoinTokenRequest { uses, ttl_seconds: seconds(ttl), names, tags: tag, labels };
            let reply = access.create_join_token(request).await?.into_inner();
            output.done(&reply.token, &reply)
        }
        TokenCommand::Create { name, role, ttl, .. } => {
            let (name, role) = name.zip(role).context("say whose the token is, and in which --role")?;
            let role = v1::Role::from(role) as i32;
            let request = CreateTokenRequest { name, role, ttl_seconds: seconds(ttl) };
            let reply = access.create_token(request).await?.into_inner();
            let info = reply.info.context("the controller sent no token")?;
            let data = serde_json::json!({ "token": info, "secret": reply.secret });
            output.done(&reply.secret, &data)
        }
        TokenCommand::Revoke { id, with_made } => {
            let request = RevokeTokenRequest { id: id.clone(), with_made };
            let also = access.revoke_token(request).await?.into_inner().also;
            let data = serde_json::json!({ "id": id, "also": also });
            output.done(&revoked(&format!("Revoked token: {id}"), &also), &data)
        }
    }
}

pub async fn cert(command: CertCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut access = AccessClient::new(connection);
    match command {
        CertCommand::List => {
            let reply = access.list_certificates(ListCertificatesRequest {}).await?.into_inner();
            output.list(&reply.certificates)
        }
        CertCommand::Issue { name, role, ttl, out } => {
            let role = v1::Role::from(role) as i32;
            let request = IssueCertificateRequest { name, role, ttl_seconds: seconds(ttl) };
            let reply = access.issue_certificate(request).await?.into_inner();
            let info = reply.info.context("the controller sent no certificate")?;
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
        CertCommand::Revoke { serial, with_made } => {
            let request = RevokeCertificateRequest { serial: serial.clone(), with_made };
            let also = access.revoke_certificate(request).await?.into_inner().also;
            let data = serde_json::json!({ "serial": serial, "also": also });
            output.done(&revoked(&format!("Revoked certificate: {serial}"), &also), &data)
        }
    }
}

/// A line for each.
fn revoked(first: &str, also: &[String]) -> String {
    let also = also.iter().map(|made| format!("\nRevoked, since it was made with it: {made}"));
    std::iter::once(first.to_owned()).chain(also).collect()
}

pub async fn whoami(output: Format, connection: Connection) -> anyhow::Result<()> {
    let me = AccessClient::new(connection).who_am_i(WhoAmIRequest {}).await?.into_inner();
    output.done(&format!("{} ({}, by {})", me.name, role_name(me.role), me.proof), &me)
}

impl Rows for TokenInfo {
    const HEADER: &'static [&'static str] =
        &["id", "kind", "name", "role", "created", "expires", "made with", "uses left", "tags"];

    fn row(&self) -> Vec<String> {
        let kind = self.kind().word().to_owned();
        let expires = self.expires_at.map_or_else(|| "never".to_owned(), time_text);
        let (role, created) = (role_name(self.role), time_text(self.created_at));
        let left =
            self.join.as_ref().map(|join| format!("{} of {}", join.uses_left, join.uses)).unwrap_or_default();
        let tags = self.join.as_ref().map(|join| join.tags.join(" ")).unwrap_or_default();
        let made_with = self.made_with.clone();
        vec![self.id.clone(), kind, self.name.clone(), role, created, expires, made_with, left, tags]
    }
}

impl Rows for CertificateInfo {
    const HEADER: &'static [&'static str] = &["serial", "name", "role", "valid until", "state", "made with"];

    fn row(&self) -> Vec<String> {
        let state = if self.revoked { "revoked" } else { "valid" };
        vec![
            self.serial.clone(),
            self.name.clone(),
            role_name(self.role),
            time_text(self.not_after),
            state.to_owned(),
            self.made_with.clone(),
        ]
    }
}
