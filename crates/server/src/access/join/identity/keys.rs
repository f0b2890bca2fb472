//! The keys of an issuer, from a file or from where it publishes them.
//!
//! A file is read each time, so that whoever renews it need not tell us. What was fetched is kept for an hour, and for a day while the
//! issuer cannot be reached. A token with a key that is not known has the keys fetched again, since issuers replace theirs; but not more
//! than once in half a minute, since strangers make such tokens too.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use cloud_http::{HttpTransport, Reply, Request, Transport as _, TransportError};
use common::chain;
use http::{Method, header::AUTHORIZATION};
use tokio::{sync::Mutex, time::Instant};
use tracing::warn;

use super::{IdentityConfig, jwt::Keys, unavailable};
use crate::failure::Failure;

const FRESH: Duration = Duration::from_secs(3600);
const USABLE: Duration = Duration::from_secs(24 * 3600);
const PAUSE: Duration = Duration::from_secs(30);
/// For an issuer to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why an issuer has not told what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    #[error("{} cannot be read", path.display())]
    Credential { path: PathBuf, source: io::Error },
    #[error("the file of its keys cannot be read")]
    File(#[source] io::Error),
    #[error(transparent)]
    Unreachable(#[from] TransportError),
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Late,
    #[error("the answer is {0}")]
    Refused(u16),
    #[error("that is no JSON Web Key Set")]
    NoKeys(#[from] serde_json::Error),
    #[error("they could not be fetched a moment ago")]
    TriedLately,
}

/// What was fetched of one issuer. Who needs the same waits for who fetches it.
#[derive(Default)]
pub struct KeyRing(Mutex<Fetched>);

#[derive(Default)]
struct Fetched {
    keys: Option<(Arc<Keys>, Instant)>,
    tried: Option<Instant>,
}

impl Fetched {
    /// What there is, and whether the issuer is to be asked first (pure).
    fn due(&self, id: Option<&str>, now: Instant) -> (Option<Arc<Keys>>, bool) {
        let age = |since: Instant| now.saturating_duration_since(since);
        let usable = self.keys.as_ref().filter(|(_, at)| age(*at) < USABLE);
        let is_enough = usable.is_some_and(|(keys, at)| age(*at) < FRESH && id.is_none_or(|id| keys.has(id)));
        let may_ask = self.tried.is_none_or(|at| age(at) >= PAUSE);
        (usable.map(|(keys, _)| Arc::clone(keys)), !is_enough && may_ask)
    }
}

impl KeyRing {
    /// The keys, with the one of this id if the issuer has it.
    pub async fn keys(&self, of: &IdentityConfig, id: Option<&str>) -> Result<Arc<Keys>, Failure> {
        if !of.keys.starts_with("https://") {
            let read = std::fs::read(&of.keys).map_err(IssuerError::File);
            let keys = read.and_then(|bytes| parse(&bytes));
            return keys.map_err(|error| {
                unavailable(of, "its keys cannot be read", &format!("{}: {}", of.keys, chain(&error)))
            });
        }
        let mut fetched = self.0.lock().await;
        let now = Instant::now();
        let (usable, is_due) = fetched.due(id, now);
        let error = if is_due {
            fetched.tried = Some(now);
            match fetch(of).await {
                Ok(keys) => {
                    fetched.keys = Some((Arc::clone(&keys), now));
                    return Ok(keys);
                }
                Err(error) => error,
            }
        } else {
            IssuerError::TriedLately
        };
        match usable {
            Some(keys) => {
                if is_due {
                    let error = chain(&error);
                    warn!(identity = of.name, error, "cannot fetch an issuer's keys; those it had are used");
                }
                Ok(keys)
            }
            None => {
                let error = format!("{}: {}", of.keys, chain(&error));
                Err(unavailable(of, "its keys cannot be fetched", &error))
            }
        }
    }
}

async fn fetch(of: &IdentityConfig) -> Result<Arc<Keys>, IssuerError> {
    let reply = send(of, Request::new("keys of an issuer", Method::GET, &of.keys)).await?;
    if reply.status != 200 {
        return Err(IssuerError::Refused(reply.status));
    }
    parse(&reply.body)
}

fn parse(bytes: &[u8]) -> Result<Arc<Keys>, IssuerError> {
    Ok(Arc::new(serde_json::from_slice(bytes)?))
}

/// Asks an issuer, showing what this controller has to show there.
pub async fn send(of: &IdentityConfig, mut request: Request) -> Result<Reply, IssuerError> {
    if let Some(path) = &of.credential {
        let unread = |source| IssuerError::Credential { path: path.clone(), source };
        let token = std::fs::read_to_string(path).map_err(unread)?;
        request.header(AUTHORIZATION, &format!("Bearer {}", token.trim()));
    }
    let transport = HttpTransport::new(of.ca.as_deref())?;
    let sent = tokio::time::timeout(PATIENCE, transport.send(&request)).await;
    Ok(sent.map_err(|_| IssuerError::Late)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn keys_are_fetched_when_they_are_old_or_one_is_not_known_and_not_at_strangers_will() {
        let keys = parse(br#"{"keys": [{"kty": "RSA", "kid": "a"}]}"#).unwrap();
        let start = Instant::now();
        let known = Fetched { keys: Some((keys, start)), tried: Some(start) };
        let due = |fetched: &Fetched, id, seconds| {
            let (usable, is_due) = fetched.due(id, start + Duration::from_secs(seconds));
            (usable.is_some(), is_due)
        };
        assert_eq!(due(&Fetched::default(), None, 0), (false, true));
        assert_eq!(due(&known, Some("a"), 0), (true, false));
        assert_eq!(due(&known, None, 3599), (true, false));
        assert_eq!(due(&known, Some("a"), 3600), (true, true), "old");
        // A key that the issuer may have made just now; asked for again and again.
        assert_eq!((due(&known, Some("b"), 29), due(&known, Some("b"), 30)), ((true, false), (true, true)));
        assert_eq!(due(&known, Some("a"), 24 * 3600), (false, true), "too old to be believed");
        let failing = Fetched { keys: None, tried: Some(start) };
        assert_eq!((due(&failing, None, 1), due(&failing, None, 31)), ((false, false), (false, true)));
    }
}
