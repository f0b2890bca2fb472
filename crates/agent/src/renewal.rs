//! The next certificate of a host that has joined, before the present one ends.
//!
//! In: the files of the host's identity, the clock. Out: a new certificate in their place, and a new key with it; whoever connects next
//! shows them. At two thirds of its life a certificate is renewed over a connection that it proves itself; one that has ended, because the
//! host was away, is followed by one that the host's key alone proves. What is in force is not touched by any of this.
//!
//! What proves a host without a good certificate is its key, or what its platform says of it ([`Proof`]): nodes of Kubernetes join so, and
//! join anew by themselves where a controller does not know them any more.
//!
//! The next key is kept beside the present one before anybody hears of it, and takes its place once there is a certificate for it. So
//! whatever is cut, the controller knows one of the two as the host's.

use std::{
    convert::Infallible,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use common::Backoff;
use jiff::Timestamp;
use model::BACKDATE_SECONDS;
use tonic::{Code, transport::Channel};
use tracing::{error, info, warn};

use crate::{
    feed::{Uplink, link},
    join::{self, Admission, HostKey, JoinError, validity},
};

/// The longest time between two looks: somebody may set the clock, or put other files there.
const LOOK: Duration = Duration::from_secs(3600);
/// Between tries.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// Between tries of a node that has none yet, and waits for its platform's files.
const FIRST: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
/// Time for one controller to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// What proves a host that has no certificate which is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It has joined before.
    Key,
    /// What its platform says of it, in a file that the platform keeps new: under this name the controller knows the platform.
    Statement { identity: String, file: PathBuf },
}

impl Proof {
    fn admission(&self) -> Result<Admission, JoinError> {
        match self {
            Self::Key => Ok(Admission::Key),
            Self::Statement { identity, file } => {
                Ok(Admission::Identity { provider: identity.clone(), statement: read(file)? })
            }
        }
    }
}

/// What is to be done about a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    In(Duration),
    /// It is good still.
    Renew,
    /// It is not any more.
    Again,
}

/// What is due now (pure). Hosts that joined at once do not all come back at once: `random`, from 0 to 1, takes up to a tenth of the
/// life away.
fn due((from, until): (i64, i64), now: i64, random: f64) -> Due {
    if now >= until {
        return Due::Again;
    }
    let life = (until - from - BACKDATE_SECONDS).max(1) as f64;
    let renewed = until - (life * (1.0 / 3.0 + random.clamp(0.0, 1.0) / 10.0)) as i64;
    match renewed - now {
        left @ 1.. => Due::In(Duration::from_secs(left.unsigned_abs())),
        _ => Due::Renew,
    }
}

/// Keeps the certificate of a host good, for ever.
pub async fn keep(uplink: Uplink, proof: Proof) -> Infallible {
    let random = fastrand::f64();
    let mut backoff = RETRY;
    loop {
        let wait = attempt(&uplink, &proof, random, &mut backoff).await;
        tokio::time::sleep(wait).await;
    }
}

/// Joins, if this host has no certificate yet: tries until it has one.
pub async fn join(uplink: &Uplink, proof: &Proof) {
    let has_one = || uplink.identity.as_ref().is_none_or(|(certificate, _)| certificate.exists());
    let mut backoff = FIRST;
    while !has_one() {
        let wait = attempt(uplink, proof, 0.0, &mut backoff).await;
        if !has_one() {
            tokio::time::sleep(wait).await;
        }
    }
}

/// Does what is due, and tells what stands in the way; how long to wait until the next attempt.
async fn attempt(uplink: &Uplink, proof: &Proof, random: f64, backoff: &mut Backoff) -> Duration {
    let err = match look(uplink, proof, random).await {
        Ok(next) => {
            *backoff = RETRY;
            return next;
        }
        Err(err) => err,
    };
    let text = common::chain(&err);
    // Whoever is told no is told so next time too.
    if matches!(err.code(), Some(Code::PermissionDenied | Code::Unauthenticated | Code::FailedPrecondition)) {
        error!(error = text, "the controller gives this host no certificate; what is in force stays");
        backoff.discourage();
    } else {
        warn!(error = text, "cannot get this host's certificate yet");
    }
    backoff.spread(fastrand::f64())
}

/// Has a controller forget this host.
pub async fn leave(uplink: &Uplink) -> Result<(), JoinError> {
    let mut last = JoinError::Answer("no controller is named");
    for server in &uplink.servers {
        let left = async { join::leave(connect(uplink.clone(), server).await?).await };
        match tokio::time::timeout(PATIENCE, left).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(err)) => last = err,
            Err(_) => last = JoinError::Mute(server.clone()),
        }
    }
    Err(last)
}

async fn connect(uplink: Uplink, server: &str) -> Result<Channel, JoinError> {
    let connected = link::connect(&uplink, server, PATIENCE).await;
    connected.map(|(channel, _)| channel).map_err(|err| JoinError::Unreachable(common::chain(&err)))
}

/// Does what is due; how long the next look can wait.
async fn look(uplink: &Uplink, proof: &Proof, random: f64) -> Result<Duration, JoinError> {
    let Some((certificate, key)) = &uplink.identity else { return Ok(LOOK) };
    let (now, present) = (Timestamp::now().as_second(), certificate_in(certificate, proof)?);
    take_over(key, &present)?;
    // A certificate that cannot be read is followed like one that has ended, and so is one of another CA than the controller's.
    let due = validity(&present).map_or(Due::Again, |validity| due(validity, now, random));
    let due = if is_anothers(uplink, certificate, proof)? { Due::Again } else { due };
    if let Due::In(left) = due {
        return Ok(left.min(LOOK));
    }
    let keys = Keys {
        present: match proof {
            Proof::Key => HostKey::read(key)?.ok_or(JoinError::Answer("this host's key is gone"))?,
            Proof::Statement { .. } => HostKey::keep(key)?,
        },
        next: HostKey::keep(&HostKey::next_path(key))?,
    };
    let mut last = JoinError::Answer("no controller is named");
    for server in &uplink.servers {
        match tokio::time::timeout(PATIENCE, next_certificate(uplink, server, due, &keys, proof)).await {
            Ok(Ok(joined)) => {
                let written = files::write(certificate, joined.certificate_pem.as_bytes());
                written.map_err(|err| JoinError::File { path: certificate.clone(), err })?;
                take_over(key, &joined.certificate_pem)?;
                keep_ca(uplink, certificate, proof)?;
                info!(server, host = joined.host.name, "this host has its next certificate");
                return Ok(Duration::from_secs(1));
            }
            Ok(Err(err)) => last = err,
            Err(_) => last = JoinError::Mute(server.clone()),
        }
    }
    Err(last)
}

/// The key of a host, and the one that is to follow it.
struct Keys {
    present: HostKey,
    next: HostKey,
}

/// The next key becomes the host's if the certificate is for it.
fn take_over(key: &Path, certificate: &str) -> Result<(), JoinError> {
    let path = HostKey::next_path(key);
    let next = match HostKey::read(&path) {
        // Of no use to anybody, and in the way of one that is.
        Err(JoinError::Key { .. }) => {
            return fs::remove_file(&path).map_err(|err| JoinError::File { path, err });
        }
        read => read?,
    };
    if !next.is_some_and(|next| next.fits(certificate)) {
        return Ok(());
    }
    let moved = fs::rename(&path, key).and_then(|()| files::sync_dir_of(key));
    moved.map_err(|err| JoinError::File { path, err })
}

async fn next_certificate(
    uplink: &Uplink,
    server: &str,
    due: Due,
    keys: &Keys,
    proof: &Proof,
) -> Result<join::Joined, JoinError> {
    let Keys { present, next } = keys;
    match due {
        Due::Again => {
            // Nobody accepts a certificate that has ended; the key proves the host, the next one if the controller has taken it and was
            // not heard.
            let channel = connect(Uplink { identity: None, ..uplink.clone() }, server).await?;
            let (node, key) = (&uplink.node, Admission::Key);
            match join::join(channel.clone(), false, next, node, key.clone()).await {
                Err(err) if err.code() == Some(Code::Unauthenticated) => {
                    join::join(channel, false, present, node, proof.admission()?).await
                }
                joined => joined,
            }
        }
        Due::Renew | Due::In(_) => {
            let channel = connect(uplink.clone(), server).await?;
            match join::renew(channel.clone(), next).await {
                // A controller of an earlier version, or a certificate that is not the newest.
                Err(err) if err.code() == Some(Code::PermissionDenied) => join::renew(channel, present).await,
                renewed => renewed,
            }
        }
    }
}

fn read(path: &Path) -> Result<String, JoinError> {
    fs::read_to_string(path).map_err(|err| JoinError::File { path: path.to_owned(), err })
}

/// A node that joins by what its platform says has none at first.
fn certificate_in(path: &Path, proof: &Proof) -> Result<String, JoinError> {
    match read(path) {
        Err(JoinError::File { err, .. }) if err.kind() == io::ErrorKind::NotFound && *proof != Proof::Key => {
            Ok(String::new())
        }
        read => read,
    }
}

/// Where it is kept under which CA a certificate was given.
fn ca_of(certificate: &Path) -> PathBuf {
    certificate.with_extension("ca.pem")
}

/// Whether the platform names another CA by now: then the controller was set up anew, and knows nobody. Of hosts that join by a token
/// the CA never changes.
fn is_anothers(uplink: &Uplink, certificate: &Path, proof: &Proof) -> Result<bool, JoinError> {
    match (&uplink.ca, proof) {
        (Some(ca), Proof::Statement { .. }) => Ok(read(ca)? != read(&ca_of(certificate)).unwrap_or_default()),
        _ => Ok(false),
    }
}

fn keep_ca(uplink: &Uplink, certificate: &Path, proof: &Proof) -> Result<(), JoinError> {
    let (Some(ca), Proof::Statement { .. }) = (&uplink.ca, proof) else { return Ok(()) };
    let path = ca_of(certificate);
    files::write(&path, read(ca)?.as_bytes()).map_err(|err| JoinError::File { path, err })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_of_its_life_and_before_it_ends() {
        let issued = 1_800_000_000;
        let life = 7 * 86_400;
        let validity = (issued - BACKDATE_SECONDS, issued + life);
        let left = |now, random| match due(validity, now, random) {
            Due::In(left) => left.as_secs() as i64,
            Due::Renew => 0,
            Due::Again => -1,
        };
        assert_eq!(left(issued, 0.0), life * 2 / 3);
        let jittered = left(issued, 1.0);
        assert!((life / 2..life * 2 / 3).contains(&jittered), "{jittered}");
        assert_eq!(left(issued + life * 2 / 3, 0.0), 0);
        assert_eq!(left(issued + life - 1, 1.0), 0);
        assert_eq!(left(issued + life, 0.0), -1);
        // A life shorter than what certificates are dated back by, and a clock that is behind.
        assert_eq!(
            due((issued - BACKDATE_SECONDS, issued + 9), issued, 0.0),
            Due::In(Duration::from_secs(6))
        );
        assert!(matches!(due(validity, issued - 999_999, 0.0), Due::In(_)));
    }
}
