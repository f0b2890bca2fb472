//! Machines that join by what they already are: a signed statement about them, and the rules that say what it admits to.
//!
//! ```text
//!   token       a JSON Web Token of Kubernetes, Google, or a managed identity of Azure; `jwt`, against the issuer's `keys`
//!   review      a Kubernetes token of which the cluster's API server is asked; `review`
//!   ibm         a JSON Web Token of IBM's IAM, which names nobody that it is for
//!   aws, azure  a signed document about an instance; `document`
//! ```
//!
//! In: the configured issuers, a statement as a stranger sent it. Out: who the machine is and what it may become, or why not. Holds:
//! the configuration, and issuers' keys for a while. A rule that asks nothing of the statement is refused at the start: everybody may be
//! given a statement by a public cloud. What is not bound to this controller lets a machine in once ([`Proven::once`]).

mod document;
mod jwt;
mod keys;
mod pkcs7;
mod review;

use std::{collections::BTreeMap, path::PathBuf};

use model::{Admission, Grant, GrantError, Host};
use serde::Deserialize;
use serde_json::{Map, Value};
use tonic::Code;
use tracing::error;

use self::keys::KeyRing;
#[cfg(fuzzing)]
pub(crate) use self::pkcs7::Message;
use crate::failure::Failure;

/// What statements of an issuer are, and how they are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdentityKind {
    #[default]
    Token,
    Review,
    Ibm,
    Aws,
    Azure,
}

/// One issuer of statements about machines.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentityConfig {
    /// What `trestle join --identity` names.
    pub name: String,
    #[serde(default)]
    pub kind: IdentityKind,
    /// The `iss` of its statements.
    #[serde(default)]
    pub issuer: String,
    /// The `aud` that its statements for this controller have.
    #[serde(default)]
    pub audience: String,
    /// Its public keys as a JSON Web Key Set, of documents its certificates as PEM: a file, or an https URL.
    #[serde(default)]
    pub keys: String,
    /// The API server that is asked for a review; of none of this and the next two is said anything: that of the cluster in which this runs
    /// as a Pod.
    #[serde(default)]
    pub server: String,
    /// Whose certificates are believed at such a URL; none: those that this machine believes.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// File with the token that this controller shows there; read each time.
    #[serde(default)]
    pub credential: Option<PathBuf>,
    /// What its statements admit to; the first that fits counts.
    pub admit: Vec<AdmitRule>,
}

/// What a statement must say, and what the machine then may become.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdmitRule {
    /// By claim, as in `google.compute_engine.project_id`: its value; `*` stands for any characters.
    pub when: BTreeMap<String, String>,
    /// The claim that the host's name must be.
    #[serde(default)]
    pub name_from: Option<String>,
    /// It takes the place of a machine that the same identity has admitted before under the name, with another key: where names are given
    /// again to machines made anew, as those of a cluster's nodes are.
    #[serde(default)]
    pub replaces: bool,
    /// Which names it may have, where no claim says it.
    #[serde(default)]
    pub names: String,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Why a configuration is unsafe or senseless.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityConfigError {
    #[error("`hosts.identities` names {name:?} twice, or not at all")]
    Name { name: String },
    #[error(
        "`hosts.identities` {name:?} has no `issuer` or no `audience`: it would believe statements that were made for others"
    )]
    Anyones { name: String },
    #[error("`hosts.identities` {name:?} needs `{key}`, {what}")]
    Missing { name: String, key: &'static str, what: &'static str },
    #[error(
        "`{key}` of `hosts.identities` {name:?} begins with http://, where anybody on the way may answer: it must be https://"
    )]
    Plaintext { name: String, key: &'static str },
    #[error("`hosts.identities` {name:?} has `{key}`, which its kind does not use")]
    Unused { name: String, key: &'static str },
    #[error(
        "a rule of `hosts.identities` {name:?} has no `when`: it would admit every machine its issuer knows"
    )]
    Everybody { name: String },
    #[error(
        "a rule of `hosts.identities` {name:?} has neither `name_from` nor `names`: its machines could take any name"
    )]
    AnyName { name: String },
    #[error(
        "a rule of `hosts.identities` {name:?} has `replaces` without `name_from`, or of a statement that whoever has seen it can show: \
         its machines could take each other's places"
    )]
    Replaces { name: String },
    #[error("a rule of `hosts.identities` {name:?} cannot be used: {err}")]
    Grant { name: String, err: GrantError },
}

/// Whether issuers and their rules are safe to use.
pub fn check(identities: &[IdentityConfig]) -> Result<(), IdentityConfigError> {
    for (place, identity) in identities.iter().enumerate() {
        let name = identity.name.clone();
        let is_named = !name.is_empty() && !name.contains(':');
        if !is_named || identities[..place].iter().any(|other| other.name == name) {
            return Err(IdentityConfigError::Name { name });
        }
        identity.check_source()?;
        for rule in &identity.admit {
            if rule.when.is_empty() || rule.when.values().all(|pattern| pattern.chars().all(|c| c == '*')) {
                return Err(IdentityConfigError::Everybody { name });
            }
            if rule.name_from.is_none() && rule.names.is_empty() {
                return Err(IdentityConfigError::AnyName { name });
            }
            if rule.replaces && (rule.name_from.is_none() || identity.kind.is_once()) {
                return Err(IdentityConfigError::Replaces { name });
            }
            rule.grant(&rule.names).map_err(|err| IdentityConfigError::Grant { name: name.clone(), err })?;
        }
    }
    Ok(())
}

/// The issuers that are believed.
pub struct Identities(Vec<(IdentityConfig, KeyRing)>);

/// What a statement proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    pub by: Admission,
    pub grant: Grant,
    /// Whoever sees the statement can show it, for ever: it counts once.
    pub once: bool,
    /// An earlier machine of this name, which the same identity has admitted, gives way.
    pub replaces: bool,
}

impl Identities {
    pub fn new(configs: Vec<IdentityConfig>) -> Self {
        Self(configs.into_iter().map(|config| (config.resolved(), KeyRing::default())).collect())
    }

    /// What a statement about a machine admits it to. `nonce` is what the controller gave to be signed.
    pub async fn admit(
        &self,
        provider: &str,
        statement: &str,
        nonce: &str,
        now: i64,
    ) -> Result<Proven, Failure> {
        let found = self.0.iter().find(|(identity, _)| identity.name == provider);
        let (identity, ring) = found.ok_or_else(|| {
            refused(
                "the controller is not configured to admit machines by this identity (`hosts.identities`)",
            )
        })?;
        let claims = identity.claims(ring, statement, nonce, now).await?;
        let (grant, replaces) = identity.judge(&claims).ok_or_else(|| {
            let text = format!(
                "no rule of `hosts.identities` {provider:?} admits what the statement says of this machine"
            );
            Failure::new(Code::PermissionDenied, text)
        })?;
        let subject = identity.kind.subject(&claims).chars().take(256).collect();
        let once = identity.kind.is_once();
        Ok(Proven {
            by: Admission::Identity { provider: provider.to_owned(), subject },
            grant,
            once,
            replaces,
        })
    }
}

fn refused(text: impl Into<String>) -> Failure {
    Failure::new(Code::Unauthenticated, text.into())
}

/// A statement that proves nothing, and why.
fn nothing(why: impl std::fmt::Display) -> Failure {
    refused(format!("the statement about this machine proves nothing: {why}"))
}

/// Something of our own is missing: that is for the log.
fn unavailable(identity: &IdentityConfig, what: &str, error: &str) -> Failure {
    error!(identity = identity.name, error, "{what}");
    Failure::new(
        Code::Unavailable,
        format!("the controller has trouble with this identity: {what}; see its log"),
    )
}

impl IdentityKind {
    /// Whoever sees such a statement can show it.
    fn is_once(self) -> bool {
        matches!(self, Self::Aws | Self::Ibm)
    }

    /// Who a verified statement is about.
    fn subject(self, claims: &Map<String, Value>) -> String {
        let paths: &[&str] = match self {
            Self::Token | Self::Review => &["sub"],
            // The instance; without one the profile that it has.
            Self::Ibm => &["authn.sub", "sub"],
            Self::Aws => &["instanceId"],
            Self::Azure => &["vmId"],
        };
        paths.iter().find_map(|path| claim(claims, path)).unwrap_or_default()
    }
}

impl IdentityConfig {
    /// A review of which is not said who is asked is the business of the cluster in which this is a Pod.
    fn resolved(mut self) -> Self {
        if self.is_our_clusters() {
            self.server = review::our_clusters_server();
            self.ca = Some(review::OUR_CLUSTERS_CA.into());
            self.credential = Some(review::OUR_CREDENTIAL.into());
        }
        self
    }

    fn is_our_clusters(&self) -> bool {
        let says_nothing = self.server.is_empty() && self.ca.is_none() && self.credential.is_none();
        self.kind == IdentityKind::Review && says_nothing
    }

    /// Whether it is said what verifies its statements, and nothing that does not.
    fn check_source(&self) -> Result<(), IdentityConfigError> {
        use IdentityKind::{Aws, Azure, Ibm, Review, Token};
        let name = || self.name.clone();
        let is_url = |text: &str| text.starts_with("https://");
        for (key, value) in [("keys", &self.keys), ("server", &self.server)] {
            if value.starts_with("http://") {
                return Err(IdentityConfigError::Plaintext { name: name(), key });
            }
        }
        let missing = |key, what| Err(IdentityConfigError::Missing { name: name(), key, what });
        match self.kind {
            Token if self.issuer.is_empty() || self.audience.is_empty() => {
                return Err(IdentityConfigError::Anyones { name: name() });
            }
            Review if self.audience.is_empty() => return Err(IdentityConfigError::Anyones { name: name() }),
            Ibm if self.issuer.is_empty() => return Err(IdentityConfigError::Anyones { name: name() }),
            Review if self.is_our_clusters() => {}
            Review if !is_url(&self.server) => {
                return missing("server", "the https URL of the cluster's API server");
            }
            Review if self.credential.is_none() => {
                return missing("credential", "the file with the token that may ask it for reviews");
            }
            Token | Ibm if self.keys.is_empty() => {
                return missing("keys", "the issuer's keys: a file or an https URL");
            }
            Aws | Azure if self.keys.is_empty() || is_url(&self.keys) => {
                return missing("keys", "a PEM file with the certificates that documents are signed with");
            }
            _ => {}
        }
        let asks = self.kind == Review || is_url(&self.keys);
        let unused = [
            ("issuer", !self.issuer.is_empty() && !matches!(self.kind, Token | Ibm)),
            ("audience", !self.audience.is_empty() && !matches!(self.kind, Token | Review)),
            ("keys", !self.keys.is_empty() && self.kind == Review),
            ("server", !self.server.is_empty() && self.kind != Review),
            ("ca", self.ca.is_some() && !asks),
            ("credential", self.credential.is_some() && !asks),
        ];
        match unused.into_iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => Err(IdentityConfigError::Unused { name: name(), key }),
            None => Ok(()),
        }
    }

    /// What a statement says, if it is one.
    async fn claims(
        &self,
        ring: &KeyRing,
        statement: &str,
        nonce: &str,
        now: i64,
    ) -> Result<Map<String, Value>, Failure> {
        match self.kind {
            IdentityKind::Token | IdentityKind::Ibm => {
                let keys = ring.keys(self, jwt::key_id(statement).as_deref()).await?;
                let audience = (self.kind == IdentityKind::Token).then_some(self.audience.as_str());
                jwt::verify(statement, &keys, &self.issuer, audience, now).map_err(nothing)
            }
            IdentityKind::Review => review::ask(self, statement).await,
            IdentityKind::Aws | IdentityKind::Azure => {
                let pem = std::fs::read(&self.keys).map_err(|err| {
                    unavailable(self, "its certificates cannot be read", &format!("{}: {err}", self.keys))
                })?;
                let claims = match self.kind {
                    IdentityKind::Azure => document::azure(statement, &pem, nonce, now),
                    _ => document::aws(statement, &pem),
                };
                claims.map_err(nothing)
            }
        }
    }

    /// What the first rule grants that the claims fit (pure).
    pub(crate) fn judge(&self, claims: &Map<String, Value>) -> Option<(Grant, bool)> {
        self.admit.iter().find_map(|rule| {
            let says = |(path, pattern): (&String, &String)| {
                claim(claims, path).is_some_and(|value| model::host::matches(pattern, &value))
            };
            if !rule.when.iter().all(says) {
                return None;
            }
            let names = match &rule.name_from {
                // A claim that is no name, or that could stand for several, names nobody.
                Some(path) => Host::parse_name(&claim(claims, path)?).ok()?.to_string(),
                None => rule.names.clone(),
            };
            rule.grant(&names).ok().map(|grant| (grant, rule.replaces))
        })
    }
}

impl AdmitRule {
    fn grant(&self, names: &str) -> Result<Grant, GrantError> {
        Grant::new(names, self.tags.clone(), self.labels.clone())
    }
}

/// The value of a claim by its path. The keys of claims may hold dots themselves (`kubernetes.io`), so every way to cut it is tried.
fn claim(claims: &Map<String, Value>, path: &str) -> Option<String> {
    match claims.get(path) {
        Some(Value::String(text)) => return Some(text.clone()),
        Some(Value::Number(number)) => return Some(number.to_string()),
        Some(Value::Bool(is)) => return Some(is.to_string()),
        _ => {}
    }
    path.match_indices('.').find_map(|(at, _)| match claims.get(&path[..at]) {
        Some(Value::Object(inner)) => claim(inner, &path[at + 1..]),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::{jwt::tests::Issuer, *};

    fn config(keys: PathBuf) -> IdentityConfig {
        serde_json::from_value(json!({
            "name": "gcp", "issuer": "https://accounts.google.com", "audience": "trestle", "keys": keys,
            "admit": [
                { "when": { "google.compute_engine.project_id": "shop", "google.compute_engine.zone": "eu-*" },
                  "name_from": "google.compute_engine.instance_name", "tags": ["web"], "labels": { "cloud": "gcp" } },
                { "when": { "kubernetes.io.namespace": "shop" }, "names": "k8s-*" },
            ],
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_machine_is_what_its_statement_says_within_the_rules() {
        let dir = tempfile::tempdir().unwrap();
        let (issuer, keys) = (Issuer::new(), dir.path().join("keys"));
        let identities = Identities::new(vec![config(keys.clone())]);
        let now = 1_800_000_000;
        let statement = |about: Value| {
            let mut claims = json!({ "iss": "https://accounts.google.com", "aud": "trestle", "exp": now + 10, "sub": "1" });
            claims.as_object_mut().unwrap().extend(about.as_object().unwrap().clone());
            issuer.sign(&json!({ "alg": "RS256", "kid": "r" }), &claims)
        };
        let vm = |project: &str, zone: &str, name: &str| {
            let engine = json!({ "project_id": project, "zone": zone, "instance_name": name });
            statement(json!({ "google": { "compute_engine": engine } }))
        };
        let ask = async |provider: &str, statement: &str| {
            identities.admit(provider, statement, "", now).await.map(|proven| (proven.by, proven.grant))
        };
        assert_eq!(
            ask("gcp", &vm("shop", "eu-1", "web-1")).await.unwrap_err().code,
            Code::Unavailable,
            "no keys yet"
        );
        fs::write(&keys, issuer.keys().to_string()).unwrap();
        let (by, grant) = ask("gcp", &vm("shop", "eu-1", "web-1")).await.unwrap();
        assert_eq!(by, Admission::Identity { provider: "gcp".into(), subject: "1".into() });
        assert!(grant.names.matches("web-1") && !grant.names.matches("web-2"));
        assert_eq!((grant.tags.len(), grant.labels["cloud"].as_str()), (1, "gcp"));
        for (project, zone, name) in [
            ("other", "eu-1", "web-1"),
            ("shop", "us-1", "web-1"),
            ("shop", "eu-1", "*"),
            ("shop", "eu-1", "a b"),
        ] {
            let refused = ask("gcp", &vm(project, zone, name)).await.unwrap_err();
            assert_eq!(refused.code, Code::PermissionDenied, "{project} {zone} {name}");
        }
        let pod = statement(json!({ "kubernetes.io": { "namespace": "shop" } }));
        assert!(ask("gcp", &pod).await.unwrap().1.names.matches("k8s-1"));
        assert_eq!(ask("aws", &pod).await.unwrap_err().code, Code::Unauthenticated);
        let forged = Issuer::new().sign(&json!({ "alg": "RS256", "kid": "r" }), &json!({}));
        assert_eq!(ask("gcp", &forged).await.unwrap_err().code, Code::Unauthenticated);
    }

    #[test]
    fn rules_that_admit_everybody_are_refused_at_the_start() {
        let good = config("keys".into());
        assert_eq!(check(std::slice::from_ref(&good)), Ok(()));
        assert!(matches!(check(&[good.clone(), good.clone()]), Err(IdentityConfigError::Name { .. })));
        let with = |change: &dyn Fn(&mut IdentityConfig)| {
            let mut config = good.clone();
            change(&mut config);
            check(&[config]).unwrap_err()
        };
        assert!(matches!(with(&|c| c.audience.clear()), IdentityConfigError::Anyones { .. }));
        assert!(matches!(with(&|c| c.keys.clear()), IdentityConfigError::Missing { key: "keys", .. }));
        assert!(matches!(with(&|c| c.keys = "http://x/keys".into()), IdentityConfigError::Plaintext { .. }));
        assert!(matches!(with(&|c| c.server = "https://x".into()), IdentityConfigError::Unused { .. }));
        assert!(matches!(
            with(&|c| c.kind = IdentityKind::Aws),
            IdentityConfigError::Unused { key: "issuer", .. }
        ));
        assert!(matches!(
            with(&|c| {
                c.kind = IdentityKind::Review;
                c.ca = Some("ca".into());
            }),
            IdentityConfigError::Missing { key: "server", .. }
        ));
        let replaces = |c: &mut IdentityConfig, rule: usize| c.admit[rule].replaces = true;
        assert!(matches!(with(&|c| replaces(c, 1)), IdentityConfigError::Replaces { .. }));
        let mut named = good.clone();
        replaces(&mut named, 0);
        assert_eq!(check(&[named]), Ok(()));
        let mut ours = IdentityConfig { kind: IdentityKind::Review, ..good.clone() };
        (ours.issuer, ours.keys) = (String::new(), String::new());
        assert_eq!(check(&[ours]), Ok(()), "the cluster in which this runs is asked");
        assert!(matches!(with(&|c| c.name = "a:b".into()), IdentityConfigError::Name { .. }));
        assert!(matches!(with(&|c| c.admit[0].when.clear()), IdentityConfigError::Everybody { .. }));
        assert!(matches!(
            with(&|c| c.admit[1].when = BTreeMap::from([("sub".into(), "*".into())])),
            IdentityConfigError::Everybody { .. }
        ));
        assert!(matches!(with(&|c| c.admit[0].name_from = None), IdentityConfigError::AnyName { .. }));
        assert!(matches!(
            with(&|c| c.admit[0].tags.push("host.x".into())),
            IdentityConfigError::Grant { .. }
        ));
    }
}
