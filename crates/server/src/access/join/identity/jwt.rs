//! Signed statements about a machine: JSON Web Tokens, as Kubernetes, Google and IBM issue them (pure).
//!
//! In: a token as a stranger sent it, the issuer's keys, whom it must be from and for, the time. Out: its claims. Two algorithms are
//! known, and which one counts is said by the key, never by the token: RS256 and ES256. Everything else is refused.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Map, Value};

/// How far clocks of issuers may be apart from ours, in seconds.
const LEEWAY: i64 = 60;
/// Longest token that is read.
const MAX_TOKEN: usize = 16 << 10;

/// Why a token proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    #[error("it is not a signed JSON Web Token of at most {MAX_TOKEN} bytes")]
    Form,
    #[error("it is signed with a key that the configured issuer's keys do not hold")]
    Key,
    #[error("its signature is not right")]
    Signature,
    #[error("it is from {found:?}, and must be from {wanted:?}")]
    Issuer { found: String, wanted: String },
    #[error("it is not for {wanted:?}")]
    Audience { wanted: String },
    #[error("it has expired, or says not when it does")]
    Expired,
    #[error("it is not valid yet")]
    Early,
}

/// An issuer's public keys (RFC 7517).
#[derive(Clone, Debug, Deserialize)]
pub struct Keys {
    keys: Vec<Key>,
}

/// One of them; kinds that are not known are passed over.
#[derive(Clone, Debug, Deserialize)]
struct Key {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, rename = "use")]
    usage: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// Extensions that must be understood: none are.
    #[serde(default)]
    crit: Option<Value>,
}

impl Keys {
    pub fn has(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.kid.as_deref() == Some(id))
    }
}

/// Which key a token says that it is signed with. Nothing is proven by that.
pub fn key_id(token: &str) -> Option<String> {
    let header = token.get(..MAX_TOKEN.min(token.len()))?.trim().split('.').next()?;
    read::<Header>(header).ok()?.kid
}

/// The claims of a token that is whole, from the issuer, for the audience if there must be one, and valid now.
pub fn verify(
    token: &str,
    keys: &Keys,
    issuer: &str,
    audience: Option<&str>,
    now: i64,
) -> Result<Map<String, Value>, JwtError> {
    if token.len() > MAX_TOKEN {
        return Err(JwtError::Form);
    }
    let (signed, signature) = token.trim().rsplit_once('.').ok_or(JwtError::Form)?;
    let (header, claims) = signed.split_once('.').ok_or(JwtError::Form)?;
    let header: Header = read(header)?;
    let signature = bytes(signature)?;
    if header.crit.is_some() {
        return Err(JwtError::Form);
    }
    let fits = |key: &&Key| {
        let is_named = header.kid.is_none() || key.kid == header.kid;
        is_named
            && key.usage.as_deref().is_none_or(|usage| usage == "sig")
            && key.algorithm() == Some(header.alg.as_str())
    };
    let mut fitting = keys.keys.iter().filter(fits).peekable();
    if fitting.peek().is_none() {
        return Err(JwtError::Key);
    }
    if !fitting.any(|key| key.verifies(signed.as_bytes(), &signature)) {
        return Err(JwtError::Signature);
    }
    let claims: Map<String, Value> = read(claims)?;
    check(&claims, issuer, audience, now)?;
    Ok(claims)
}

fn check(
    claims: &Map<String, Value>,
    issuer: &str,
    audience: Option<&str>,
    now: i64,
) -> Result<(), JwtError> {
    let found = claims.get("iss").and_then(Value::as_str).unwrap_or_default();
    if found != issuer {
        return Err(JwtError::Issuer { found: found.chars().take(128).collect(), wanted: issuer.to_owned() });
    }
    let is_for = |audience: &&str| match claims.get("aud") {
        Some(Value::String(one)) => one == audience,
        Some(Value::Array(all)) => all.iter().any(|one| one == audience),
        _ => false,
    };
    if let Some(wanted) = audience.filter(|audience| !is_for(audience)) {
        return Err(JwtError::Audience { wanted: wanted.to_owned() });
    }
    let time = |claim| claims.get(claim).and_then(Value::as_f64).map(|seconds| seconds as i64);
    if time("exp").is_none_or(|end| now >= end.saturating_add(LEEWAY)) {
        return Err(JwtError::Expired);
    }
    if time("nbf").or(time("iat")).is_some_and(|start| start > now.saturating_add(LEEWAY)) {
        return Err(JwtError::Early);
    }
    Ok(())
}

impl Key {
    /// The one algorithm this key is used with.
    fn algorithm(&self) -> Option<&'static str> {
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => Some("RS256"),
            ("EC", Some("P-256")) => Some("ES256"),
            _ => None,
        }
    }

    fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        let field = |text: &Option<String>| text.as_deref().and_then(|text| bytes(text).ok());
        match self.algorithm() {
            Some("RS256") => field(&self.n).zip(field(&self.e)).is_some_and(|(n, e)| {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok()
            }),
            Some("ES256") => field(&self.x).zip(field(&self.y)).is_some_and(|(x, y)| {
                let point = [&[4][..], &x, &y].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature).is_ok()
            }),
            _ => false,
        }
    }
}

fn bytes(text: &str) -> Result<Vec<u8>, JwtError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| JwtError::Form)
}

fn read<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, JwtError> {
    serde_json::from_slice(&bytes(part)?).map_err(|_| JwtError::Form)
}

#[cfg(test)]
pub(super) mod tests {
    use aws_lc_rs::{
        rand::SystemRandom,
        rsa::KeySize,
        signature::{
            ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
        },
    };
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    /// An issuer with a key of each kind.
    pub struct Issuer {
        rsa: RsaKeyPair,
        ec: EcdsaKeyPair,
    }

    impl Issuer {
        pub fn new() -> Self {
            let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
            let ec = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
            Self { rsa, ec }
        }

        pub fn keys(&self) -> Value {
            let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            let public = self.rsa.public_key();
            let (n, e) = (public.modulus(), public.exponent());
            let (n, e) = (n.big_endian_without_leading_zero(), e.big_endian_without_leading_zero());
            let point = self.ec.public_key().as_ref();
            json!({ "keys": [
                { "kty": "oct", "kid": "r" },
                { "kty": "RSA", "kid": "r", "use": "sig", "alg": "RS256", "n": text(n), "e": text(e) },
                { "kty": "EC", "kid": "e", "crv": "P-256", "x": text(&point[1..33]), "y": text(&point[33..]) },
            ] })
        }

        pub fn sign(&self, header: &Value, claims: &Value) -> String {
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let signed = format!("{}.{}", part(header), part(claims));
            let random = SystemRandom::new();
            let signature = if header["kid"] == "e" {
                self.ec.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec()
            } else {
                let mut signature = vec![0; self.rsa.public_modulus_len()];
                self.rsa.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature).unwrap();
                signature
            };
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }

    #[test]
    fn a_statement_counts_from_its_issuer_for_us_and_now() {
        let (issuer, other) = (Issuer::new(), Issuer::new());
        let keys: Keys = serde_json::from_value(issuer.keys()).unwrap();
        let claims = |change: Value| {
            let mut claims = json!({ "iss": "us", "aud": ["x", "trestle"], "exp": NOW + 10, "iat": NOW - 10, "sub": "vm" });
            claims.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            claims
        };
        let ask = |token: &str| verify(token, &keys, "us", Some("trestle"), NOW);
        let (rsa, ec) = (json!({ "alg": "RS256", "kid": "r" }), json!({ "alg": "ES256", "kid": "e" }));
        for header in [&rsa, &ec, &json!({ "alg": "RS256" })] {
            assert_eq!(ask(&issuer.sign(header, &claims(json!({})))).unwrap()["sub"], "vm");
        }
        for (change, error) in [
            (json!({ "iss": "them" }), JwtError::Issuer { found: "them".into(), wanted: "us".into() }),
            (json!({ "iss": null }), JwtError::Issuer { found: "".into(), wanted: "us".into() }),
            (json!({ "aud": "x" }), JwtError::Audience { wanted: "trestle".into() }),
            (json!({ "aud": null }), JwtError::Audience { wanted: "trestle".into() }),
            (json!({ "exp": NOW - LEEWAY }), JwtError::Expired),
            (json!({ "exp": null }), JwtError::Expired),
            (json!({ "nbf": NOW + LEEWAY + 1 }), JwtError::Early),
        ] {
            assert_eq!(ask(&issuer.sign(&rsa, &claims(change))), Err(error));
        }
        assert_eq!(ask(&other.sign(&rsa, &claims(json!({})))), Err(JwtError::Signature));
        assert_eq!(
            ask(&issuer.sign(&json!({ "alg": "RS256", "kid": "z" }), &claims(json!({})))),
            Err(JwtError::Key)
        );
    }

    #[test]
    fn what_is_forged_or_garbage_is_refused() {
        let issuer = Issuer::new();
        let keys: Keys = serde_json::from_value(issuer.keys()).unwrap();
        let claims = json!({ "iss": "us", "aud": "trestle", "exp": NOW + 10 });
        let good = issuer.sign(&json!({ "alg": "RS256", "kid": "r" }), &claims);
        assert!(verify(&good, &keys, "us", Some("trestle"), NOW).is_ok());
        // The algorithms that forgers choose.
        for alg in ["none", "HS256", "RS1", "PS256", "ES256"] {
            let forged = issuer.sign(&json!({ "alg": alg, "kid": "r" }), &claims);
            assert_eq!(verify(&forged, &keys, "us", Some("trestle"), NOW), Err(JwtError::Key), "{alg}");
        }
        let critical = issuer.sign(&json!({ "alg": "RS256", "kid": "r", "crit": ["x"] }), &claims);
        assert_eq!(verify(&critical, &keys, "us", Some("trestle"), NOW), Err(JwtError::Form));
        let (signed, _) = good.rsplit_once('.').unwrap();
        for bad in ["", ".", "..", "a.b.c", signed, &format!("{signed}."), &"x".repeat(MAX_TOKEN + 1)] {
            assert!(verify(bad, &keys, "us", Some("trestle"), NOW).is_err(), "{bad}");
        }
        for place in (0..good.len()).step_by(7) {
            let mut bad = good.clone().into_bytes();
            bad[place] = if bad[place] == b'A' { b'B' } else { b'A' };
            assert!(
                verify(std::str::from_utf8(&bad).unwrap(), &keys, "us", Some("trestle"), NOW).is_err(),
                "{place}"
            );
        }
    }
}
