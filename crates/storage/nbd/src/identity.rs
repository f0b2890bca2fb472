//! Who a certificate speaks for, and who makes certificates.
//!
//! In: a client's certificate, verified by its chain. Out: the consumer its URI name says it is.
//! Not here: the authority (given as an [`Issuer`]), whether the consumer is still welcome (`vault`).

use std::{fmt, time::SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use storage_provider::ConsumerId;
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

const PREFIX: &str = "spiffe://trestle/consumer/";

/// The URI name in a consumer's certificate.
pub fn identity_uri(consumer: ConsumerId) -> String {
    format!("{PREFIX}{consumer}")
}

/// A client certificate fresh from its authority. PEM texts.
#[derive(Clone)]
pub struct IssuedIdentity {
    pub certificate: String,
    pub key: String,
    /// What the client verifies the server with.
    pub authority: String,
    /// A new one is made when this time has come, well before the certificate ends.
    pub renew_at: SystemTime,
}

impl fmt::Debug for IssuedIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedIdentity").field("renew_at", &self.renew_at).finish_non_exhaustive()
    }
}

/// The authority did not make a certificate.
#[derive(Debug, thiserror::Error)]
#[error("the certificate authority refused: {reason}")]
pub struct IssueError {
    pub reason: String,
}

/// Makes client certificates whose URI name is the one given. The key is made anew each time.
pub trait Issuer: Send + Sync + 'static {
    fn issue(&self, uri: &str) -> Result<IssuedIdentity, IssueError>;
}

/// SHA-256 of a certificate: exactly this one, not another of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint([u8; 32]);

impl From<[u8; 32]> for Fingerprint {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl Fingerprint {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }
}

/// The consumer a certificate names. `None` unless it names exactly one.
pub(crate) fn consumer_of(certificate: &CertificateDer<'_>) -> Option<ConsumerId> {
    let (rest, parsed) = parse_x509_certificate(certificate).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let names = parsed.subject_alternative_name().ok()??;
    let mut uris = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    let uri = uris.next()?;
    if uris.next().is_some() {
        return None;
    }
    uri.strip_prefix(PREFIX)?.parse().ok()
}
