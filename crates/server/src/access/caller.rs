//! The two ends of a call: the peer that connected, and the caller it proved to be.

use std::net::SocketAddr;

use model::{Role, Subject};
use tokio_util::sync::CancellationToken;

/// What is known of a connection. Set by the listener on every request.
#[derive(Clone, Debug)]
pub struct Peer {
    pub addr: SocketAddr,
    /// The client certificate, verified against the local CA during the handshake.
    pub certificate: Option<PeerCertificate>,
    /// Closes the connection, whatever it is doing.
    pub cut: CancellationToken,
}

/// The identity in a client certificate.
#[derive(Clone, Debug)]
pub struct PeerCertificate {
    pub subject: Subject,
    pub serial: String,
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
    /// The id of the token or session that proved it.
    pub token: Option<String>,
}

impl Caller {
    pub fn role(&self) -> Role {
        self.subject.role
    }
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
