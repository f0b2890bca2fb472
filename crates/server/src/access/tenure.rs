//! How long a caller may go on with what it began: no longer than its credential is good.
//!
//! In: the credentials that streams were opened with, and what becomes of credentials. Out: the ends of those streams. Holds:
//! which credentials have streams. One task looks at them whenever credentials change and when the next one expires.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{Credential, Credentials};

/// The longest time between two looks: somebody may set the clock.
const CHECK: Duration = Duration::from_secs(10);

/// What goes on with one credential.
pub struct Tenure {
    over: CancellationToken,
}

impl Tenure {
    /// Ends when the credential is not good any more.
    pub async fn over(self: Arc<Self>) {
        self.over.cancelled().await;
    }
}

/// What the caller is told then.
pub fn ended(credential: &Credential) -> Status {
    let what = match credential {
        Credential::Token(_) => "token or session",
        Credential::Certificate(_) => "certificate",
    };
    Status::unauthenticated(format!("the {what} of this stream was revoked or has expired"))
}

/// All of them.
#[derive(Default)]
pub struct Tenures {
    live: Mutex<HashMap<Credential, Weak<Tenure>>>,
    /// One was begun that ends before the next look.
    sooner: Notify,
}

impl Tenures {
    /// What goes on with `credential` from now on.
    pub fn begin(&self, credential: &Credential, credentials: &Credentials) -> Arc<Tenure> {
        let now = Timestamp::now();
        let tenure = {
            let mut live = self.live.lock();
            if let Some(tenure) = live.get(credential).and_then(Weak::upgrade) {
                return tenure;
            }
            let tenure = Arc::new(Tenure { over: CancellationToken::new() });
            live.insert(credential.clone(), Arc::downgrade(&tenure));
            tenure
        };
        // It may have been revoked since the call was let in, and before it was known here.
        if !credentials.is_usable(credential, now) {
            tenure.over.cancel();
        }
        if credentials.end_of(credential).is_some_and(|end| left(end, now) < CHECK) {
            self.sooner.notify_one();
        }
        tenure
    }

    /// Ends them for ever. `first` ends what has a word of its own for it.
    pub async fn keep(&self, credentials: &Credentials, first: impl Fn(Timestamp)) {
        let [mut tokens, mut certificates] = credentials.changes();
        loop {
            let now = Timestamp::now();
            first(now);
            let next = self.end_unusable(credentials, now);
            // Whether credentials changed or time went by: all are looked at in the same way.
            tokio::select! {
                _ = tokens.changed() => {}
                _ = certificates.changed() => {}
                () = self.sooner.notified() => {}
                () = tokio::time::sleep(next) => {}
            }
        }
    }

    /// Ends those whose credential is not good any more; how long the next look can wait.
    fn end_unusable(&self, credentials: &Credentials, now: Timestamp) -> Duration {
        let mut next = CHECK;
        self.live.lock().retain(|credential, tenure| {
            let Some(tenure) = tenure.upgrade() else { return false };
            if !credentials.is_usable(credential, now) {
                tenure.over.cancel();
                return false;
            }
            if let Some(end) = credentials.end_of(credential) {
                next = next.min(left(end, now));
            }
            true
        });
        next
    }
}

fn left(end: Timestamp, now: Timestamp) -> Duration {
    end.duration_since(now).try_into().unwrap_or_default()
}
