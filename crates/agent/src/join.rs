//! The host's side of joining: becoming a host, getting the next certificate, leaving.
//!
//! ```text
//!   join:   key on disk ─► pinned connection ─► challenge ─ is the clock right? ─► request over the nonce ─► certificate
//!   renew:  the same key, over a connection that the present certificate proves
//!   again:  the same key, without one: the certificate has ended while the host was away
//! ```
//!
//! In: a URL, what is known of the controller's CA, the host's key, what proves that it may join. Out: a certificate, not yet on disk.
//! Holds nothing. Not here: files of a host and its service (`trestle join`), when a certificate is renewed ([`crate::renewal`]).

mod key;
pub mod pinned;

use std::{io, path::PathBuf};

use jiff::Timestamp;
use model::{BACKDATE_SECONDS, Fingerprint, JoinToken};
use tonic::{Code, Status, transport::Channel};
use wire::trestle::v1::{
    ChallengeRequest, HostInfo, JoinRequest, JoinResponse, LeaveRequest, RenewRequest,
    join_client::JoinClient, join_request::Proof,
};

pub use self::key::{HostKey, validity};

/// A clock that is off by more is told.
const TOLD_SECONDS: i64 = 60;

/// Why a host did not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(
        "{0:?} is not a URL like https://controller:8081, with the port of the controller's gRPC listener"
    )]
    Url(String),
    #[error("cannot read or write {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("{} does not hold a usable key; if it is of no use any more, `trestle leave --local` removes it", path.display())]
    Key {
        path: PathBuf,
        #[source]
        err: rcgen::Error,
    },
    #[error("cannot make a certificate request")]
    Request(#[source] rcgen::Error),
    #[error("cannot set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("the controller at {0} has not answered in time; can this host reach it?")]
    Mute(String),
    #[error("cannot reach the controller at {0}")]
    Connect(String, #[source] tonic::transport::Error),
    #[error(
        "the controller at {server} is another one than the token is from: it shows a CA with fingerprint {shown}, and the token is for \
         {wanted}. If the controller was set up anew, make a token there and, if this host has joined before, run `trestle leave` first; \
         if not, somebody is in between. Nothing was sent"
    )]
    OtherController { server: String, wanted: Fingerprint, shown: Fingerprint },
    #[error(
        "the certificate of the controller at {server} is right but not for this name; it is for {names}. Use one of these, or add the \
         name to `names` in the controller's configuration"
    )]
    Name { server: String, names: String },
    #[error("the certificates that the controller at {server} shows do not fit together")]
    Chain {
        server: String,
        #[source]
        err: rustls::Error,
    },
    #[error(
        "this host's clock is {} the controller's, and with it no certificate of either would be valid; set it (`timedatectl`), and join \
         again", apart(*ahead)
    )]
    Clock { ahead: i64 },
    #[error("{0}")]
    Unreachable(String),
    #[error("{}", status.message())]
    Refused { status: Box<Status> },
    #[error("the controller's answer cannot be used: {0}")]
    Answer(&'static str),
}

impl From<Status> for JoinError {
    fn from(status: Status) -> Self {
        Self::Refused { status: Box::new(status) }
    }
}

impl JoinError {
    /// What the controller said, if it did.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { status } => Some(status.code()),
            _ => None,
        }
    }
}

/// By how much a clock is off, in words.
pub fn apart(ahead: i64) -> String {
    let seconds = ahead.unsigned_abs();
    let size = match seconds {
        0..120 => format!("{seconds} seconds"),
        120..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    };
    format!("{size} {}", if ahead < 0 { "behind" } else { "ahead of" })
}

/// What lets a host join.
#[derive(Clone, Debug)]
pub enum Admission {
    /// It has joined before.
    Key,
    Token(JoinToken),
    /// What the machine already is: a configured identity, and the statement that its issuer signed.
    Identity {
        provider: String,
        statement: String,
    },
}

/// A host with a certificate.
#[derive(Debug)]
pub struct Joined {
    pub host: HostInfo,
    pub certificate_pem: String,
    pub warnings: Vec<String>,
}

/// What a controller gave to be signed, and over which connection.
#[derive(Debug)]
pub struct Challenge {
    client: JoinClient<Channel>,
    pub nonce: String,
    /// By how much this host's clock is ahead.
    ahead: i64,
}

/// Begins to join over a connection that is known to lead to the right controller. `clock_is_wrong` if its certificate is not valid now.
pub async fn challenge(channel: Channel, clock_is_wrong: bool) -> Result<Challenge, JoinError> {
    let mut client = JoinClient::new(channel);
    let challenge = client.challenge(ChallengeRequest {}).await?.into_inner();
    let ahead = Timestamp::now().as_second() - challenge.now;
    // Controllers of an earlier version do not say how long certificates are good.
    let life = Some(challenge.certificate_seconds).filter(|seconds| *seconds > 0).unwrap_or(i64::MAX);
    if clock_is_wrong || ahead >= life || -ahead >= BACKDATE_SECONDS {
        return Err(JoinError::Clock { ahead });
    }
    Ok(Challenge { client, nonce: challenge.nonce, ahead })
}

/// Joins, with what admits this host at hand.
pub async fn join(
    channel: Channel,
    clock_is_wrong: bool,
    key: &HostKey,
    name: &str,
    admission: Admission,
) -> Result<Joined, JoinError> {
    answer(challenge(channel, clock_is_wrong).await?, key, name, admission).await
}

/// Signs what was given, and shows what admits this host.
pub async fn answer(
    challenge: Challenge,
    key: &HostKey,
    name: &str,
    admission: Admission,
) -> Result<Joined, JoinError> {
    let Challenge { mut client, nonce, ahead } = challenge;
    let proof = match admission {
        Admission::Key => None,
        Admission::Token(token) => Some(Proof::Token(token.expose().expose().to_owned())),
        Admission::Identity { provider, statement } => {
            Some(Proof::Token(format!("{provider}:{}", statement.trim())))
        }
    };
    let request = JoinRequest { request: key.request(&nonce)?, name: name.to_owned(), proof };
    let reply = client.join(request).await?.into_inner();
    let mut joined = taken(reply, key, ahead)?;
    if ahead.abs() > TOLD_SECONDS {
        joined.warnings.push(format!("this host's clock is {} the controller's", apart(ahead)));
    }
    Ok(joined)
}

/// The next certificate, over a connection that the present one proves.
pub async fn renew(channel: Channel, key: &HostKey) -> Result<Joined, JoinError> {
    let request = RenewRequest { request: key.request("renewal")? };
    let reply = JoinClient::new(channel).renew(request).await?.into_inner();
    let ahead = Timestamp::now().as_second() - reply.now;
    taken(reply, key, ahead)
}

/// The host goes; the controller forgets it.
pub async fn leave(channel: Channel) -> Result<(), JoinError> {
    JoinClient::new(channel).leave(LeaveRequest {}).await?;
    Ok(())
}

fn taken(reply: JoinResponse, key: &HostKey, ahead: i64) -> Result<Joined, JoinError> {
    let JoinResponse { host, certificate_pem, warnings, .. } = reply;
    let host = host.ok_or(JoinError::Answer("it names no host"))?;
    if !key.fits(&certificate_pem) {
        return Err(JoinError::Answer("the certificate is not for this host's key"));
    }
    let (from, until) =
        validity(&certificate_pem).ok_or(JoinError::Answer("the certificate cannot be read"))?;
    let now = Timestamp::now().as_second();
    if now < from || now >= until {
        return Err(JoinError::Clock { ahead });
    }
    Ok(Joined { host, certificate_pem, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_clocks_are_apart_is_told_in_words() {
        for (ahead, words) in [
            (1, "1 seconds ahead of"),
            (-180, "3 minutes behind"),
            (7200, "2 hours ahead of"),
            (-86_400, "24 hours behind"),
            (86_400 * 40, "40 days ahead of"),
        ] {
            assert_eq!(apart(ahead), words);
        }
    }
}
