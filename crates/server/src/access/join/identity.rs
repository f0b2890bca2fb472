//! Machines that join by what they already are: a signed statement about them, and the rules that say what it admits to.
//!
//! In: the configured issuers, a statement as a stranger sent it. Out: who the machine is and what it may become, or why not. Holds:
//! the configuration. An issuer's keys are a file, read each time, so that whoever renews it need not tell us. A rule that asks nothing of
//! the statement is refused at the start: everybody may be given a statement by a public cloud.

mod jwt;

use std::{collections::BTreeMap, fs, path::PathBuf};

use model::{Admission, Grant, GrantError, Host};
use serde::Deserialize;
use serde_json::{Map, Value};
use tonic::Code;
use tracing::error;

use crate::failure::Failure;

/// One issuer of statements about machines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentityConfig {
    /// What `trestle join --identity` names.
    pub name: String,
    /// The `iss` of its statements.
    pub issuer: String,
    /// The `aud` that its statements for this controller have.
    pub audience: String,
    /// File with its public keys, as a JSON Web Key Set.
    pub keys: PathBuf,
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
    #[error(
        "a rule of `hosts.identities` {name:?} has no `when`: it would admit every machine its issuer knows"
    )]
    Everybody { name: String },
    #[error(
        "a rule of `hosts.identities` {name:?} has neither `name_from` nor `names`: its machines could take any name"
    )]
    AnyName { name: String },
    #[error("a rule of `hosts.identities` {name:?} cannot be used: {err}")]
    Grant { name: String, err: GrantError },
}

/// Whether issuers and their rules are safe to use.
pub fn check(identities: &[IdentityConfig]) -> Result<(), IdentityConfigError> {
    for (place, identity) in identities.iter().enumerate() {
        let name = identity.name.clone();
        if name.is_empty() || identities[..place].iter().any(|other| other.name == name) {
            return Err(IdentityConfigError::Name { name });
        }
        if identity.issuer.is_empty() || identity.audience.is_empty() {
            return Err(IdentityConfigError::Anyones { name });
        }
        for rule in &identity.admit {
            if rule.when.is_empty() || rule.when.values().all(|pattern| pattern.chars().all(|c| c == '*')) {
                return Err(IdentityConfigError::Everybody { name });
            }
            if rule.name_from.is_none() && rule.names.is_empty() {
                return Err(IdentityConfigError::AnyName { name });
            }
            rule.grant(&rule.names).map_err(|err| IdentityConfigError::Grant { name: name.clone(), err })?;
        }
    }
    Ok(())
}

/// What a statement about a machine admits it to.
pub fn admit(
    identities: &[IdentityConfig],
    provider: &str,
    statement: &str,
    now: i64,
) -> Result<(Admission, Grant), Failure> {
    let refused = |text: String| Failure::new(Code::Unauthenticated, text);
    let identity = identities.iter().find(|identity| identity.name == provider).ok_or_else(|| {
        refused(
            "the controller is not configured to admit machines by this identity (`hosts.identities`)"
                .to_owned(),
        )
    })?;
    let keys = identity.read_keys()?;
    let claims = jwt::verify(statement, &keys, &identity.issuer, &identity.audience, now)
        .map_err(|err| refused(format!("the statement about this machine proves nothing: {err}")))?;
    let grant = identity.judge(&claims).ok_or_else(|| {
        let text = format!(
            "no rule of `hosts.identities` {provider:?} admits what the statement says of this machine"
        );
        Failure::new(Code::PermissionDenied, text)
    })?;
    let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default().chars().take(256).collect();
    Ok((Admission::Identity { provider: provider.to_owned(), subject }, grant))
}

impl IdentityConfig {
    fn read_keys(&self) -> Result<jwt::Keys, Failure> {
        let read = fs::read(&self.keys).map_err(|err| err.to_string());
        let keys = read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|err| err.to_string()));
        keys.map_err(|err| {
            error!(identity = self.name, path = %self.keys.display(), error = err, "the keys of an identity cannot be read");
            Failure::new(Code::Unavailable, "the controller cannot read the keys of this identity; see its log")
        })
    }

    /// What the first rule grants that the claims fit (pure).
    fn judge(&self, claims: &Map<String, Value>) -> Option<Grant> {
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
            rule.grant(&names).ok()
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

    #[test]
    fn a_machine_is_what_its_statement_says_within_the_rules() {
        let dir = tempfile::tempdir().unwrap();
        let (issuer, keys) = (Issuer::new(), dir.path().join("keys"));
        let identities = [config(keys.clone())];
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
        let ask = |provider: &str, statement: &str| admit(&identities, provider, statement, now);
        assert_eq!(
            ask("gcp", &vm("shop", "eu-1", "web-1")).unwrap_err().code,
            Code::Unavailable,
            "no keys yet"
        );
        fs::write(&keys, issuer.keys().to_string()).unwrap();
        let (by, grant) = ask("gcp", &vm("shop", "eu-1", "web-1")).unwrap();
        assert_eq!(by, Admission::Identity { provider: "gcp".into(), subject: "1".into() });
        assert!(grant.names.matches("web-1") && !grant.names.matches("web-2"));
        assert_eq!((grant.tags.len(), grant.labels["cloud"].as_str()), (1, "gcp"));
        for (project, zone, name) in [
            ("other", "eu-1", "web-1"),
            ("shop", "us-1", "web-1"),
            ("shop", "eu-1", "*"),
            ("shop", "eu-1", "a b"),
        ] {
            let refused = ask("gcp", &vm(project, zone, name)).unwrap_err();
            assert_eq!(refused.code, Code::PermissionDenied, "{project} {zone} {name}");
        }
        let pod = statement(json!({ "kubernetes.io": { "namespace": "shop" } }));
        assert!(ask("gcp", &pod).unwrap().1.names.matches("k8s-1"));
        assert_eq!(ask("aws", &pod).unwrap_err().code, Code::Unauthenticated);
        let forged = Issuer::new().sign(&json!({ "alg": "RS256", "kid": "r" }), &json!({}));
        assert_eq!(ask("gcp", &forged).unwrap_err().code, Code::Unauthenticated);
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
