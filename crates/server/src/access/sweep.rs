//! Forgets sessions that have ended and logins that nobody used, a few at a time.
//!
//! Not where they are made: there may be more of them than one transaction takes, and whoever comes next would pay for all
//! those before. Only the controller that leads does it; should two, nothing is lost.

use std::time::Duration;

use jiff::Timestamp;
use store::{Key, Revision, Transaction};
use tracing::{info, warn};

use super::{
    Credential,
    credentials::{Credentials, CredentialsError, key, prefix},
    session::LoginRecord,
};

/// How often it is done.
const EVERY: Duration = Duration::from_secs(60);
/// How many are forgotten in one transaction; etcd takes 128 operations unless told otherwise.
const BATCH: usize = 64;

impl Credentials {
    /// Sweeps for ever, each time after it is this controller's turn.
    pub async fn keep_swept<F: Future<Output = ()>>(&self, turn: impl Fn() -> F) {
        for progress in self.progress() {
            progress.reach(Revision(0)).await;
        }
        loop {
            turn().await;
            match self.sweep(Timestamp::now()).await {
                Ok(0) => {}
                Ok(count) => info!(count, "forgot sessions that have ended and logins that nobody used"),
                Err(err) => warn!(error = common::chain(&err), "cannot forget old sessions and logins"),
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Forgets what is stale now; how many that were.
    async fn sweep(&self, now: Timestamp) -> Result<usize, CredentialsError> {
        let mut stale = self.stale_logins(now).await?;
        let sessions = self.tokens().into_iter().filter(|(_, record)| record.session).map(|(id, _)| id);
        let ended = sessions.filter(|id| !self.is_usable(&Credential::Token(id.clone()), now));
        stale.extend(ended.filter_map(|id| key("tokens", &id)));
        for batch in stale.chunks(BATCH) {
            let transaction = batch.iter().cloned().fold(Transaction::new(), Transaction::delete);
            self.store().transact(transaction).await.map_err(CredentialsError::Write)?;
        }
        Ok(stale.len())
    }

    async fn stale_logins(&self, now: Timestamp) -> Result<Vec<Key>, CredentialsError> {
        let logins = self.store().list(&prefix("logins")).await.map_err(CredentialsError::Read)?;
        let is_stale = |value: &[u8]| {
            serde_json::from_slice::<LoginRecord>(value).map_or(true, |login| login.expires_at <= now)
        };
        let stale = logins.entries.into_iter().filter(|entry| is_stale(&entry.value));
        Ok(stale.map(|entry| entry.key).collect())
    }
}
