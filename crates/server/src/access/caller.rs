//! The two ends of a call: the peer that connected, and the caller it proved to be.

use std::{fmt, net::SocketAddr, sync::Arc};

use model::{Role, Subject};
use wire::trestle::v1::{self, Identity};

use crate::crowd::Guest;

/// What is known of a connection. Set by the listener on every request.
#[derive(Clone, Debug)]
pub struct Peer {
    pub addr: SocketAddr,
    /// The client certificate, verified against the local CA during the handshake.
    pub certificate: Option<PeerCertificate>,
    /// The connection, as the listener counts it.
    pub guest: Arc<Guest>,
}

/// The identity in a client certificate.
#[derive(Clone, Debug)]
pub struct PeerCertificate {
    pub subject: Subject,
    pub serial: String,
    /// Its SHA-256.
    pub fingerprint: [u8; 32],
}

/// How a caller proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    Token,
    /// The cookie of a browser's session.
    Session,
    Certificate,
    /// Not at all: allowed on plaintext loopback listeners, and only when configured.
    Anonymous,
}

/// Who makes a call. Set by the gate on every request it lets through.
#[derive(Clone, Debug)]
pub struct Caller {
    pub subject: Subject,
    pub proof: Proof,
    /// What proved it, if it can be taken away while the call lasts.
    pub credential: Option<Credential>,
}

/// Names a token or a certificate, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Credential {
    /// By its id.
    Token(String),
    /// By its serial.
    Certificate(String),
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(id) => write!(f, "token/{id}"),
            Self::Certificate(serial) => write!(f, "certificate/{serial}"),
        }
    }
}

impl Credential {
    /// From its text, as [`fmt::Display`] writes it.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once('/')? {
            ("token", id) => Some(Self::Token(id.to_owned())),
            ("certificate", serial) => Some(Self::Certificate(serial.to_owned())),
            _ => None,
        }
    }
}

impl Caller {
    pub fn role(&self) -> Role {
        self.subject.role
    }
}

/// Who somebody is, and how that was proved.
pub fn identity(subject: &Subject, proof: Proof) -> Identity {
    let role = v1::Role::from(subject.role) as i32;
    Identity { role, name: subject.name.to_string(), proof: proof.as_str().to_owned() }
}

impl Proof {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Session => "session",
            Self::Certificate => "certificate",
            Self::Anonymous => "anonymous",
        }
    }
}
