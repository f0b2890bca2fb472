//! Backups: one format for both backends, so that one restores what the other wrote.
//!
//! In: a store (any backend). Out: a stream of bytes, consistent at one revision, taken while the store works on;
//! and, from such bytes in a file, entries that are proven whole before the first is used. Not here: putting
//! entries into a store ([`crate::embedded::restore`], [`crate::etcd::restore`]).
//!
//! JSON Lines. The digest covers every byte before the trailer line:
//!
//! ```text
//! {"format":"trestle-backup","version":1,"revision":4711}
//! {"key":"tags/web","value":"eyJ…","created":12,"modified":4000}
//! …
//! {"entries":1,"leased_left_out":0,"sha256":"…"}
//! ```
//!
//! Values that are sealed stay sealed ([`crate::sealed`]). Entries on a lease are left out: they are somebody's presence, not intent, and would never end after a restore.

mod read;

use std::{io, mem};

use aws_lc_rs::digest::{Context, SHA256};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

pub use read::{BackupEntry, BackupFile, VerifyError};

use crate::api::{BackupError, Entry, Prefix, Revision, Snapshot, Store};

const FORMAT: &str = "trestle-backup";
const VERSION: u64 = 1;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub format: String,
    pub version: u64,
    /// The revision of the store at which the backup is consistent.
    pub revision: Revision,
}

#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    value: String,
    created: Revision,
    modified: Revision,
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trailer {
    pub entries: u64,
    pub leased_left_out: u64,
    /// Hexadecimal.
    pub sha256: String,
}

#[derive(Debug, Error)]
pub enum RestoreError {
    #[error("the backup cannot be used")]
    Backup(#[from] VerifyError),
    #[error("{place} already holds a store; ask for it to be replaced")]
    NotEmpty { place: String },
    #[error("the restore did not succeed")]
    Target(#[source] Box<dyn std::error::Error + Send + Sync>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    pub entries: u64,
    /// Where the restored store stands.
    pub revision: Revision,
}

/// The backup as chunks of about a page of entries each.
pub fn stream(store: &Store) -> impl Stream<Item = Result<Bytes, BackupError>> + Send + 'static {
    let store = store.clone();
    stream::unfold(Step::Begin(store), |step| async move {
        match step {
            Step::Begin(store) => match store.snapshot_as_stored(&Prefix::all()).await {
                Ok(snapshot) => {
                    let mut writer = Writer::new();
                    let chunk = writer.header(snapshot.revision);
                    Some((Ok(chunk), Step::Pages(Box::new((snapshot, writer)))))
                }
                Err(error) => Some((Err(BackupError::Read(error)), Step::Done)),
            },
            Step::Pages(mut state) => {
                let (Snapshot { pages, .. }, writer) = &mut *state;
                let chunk = match pages.next().await {
                    Some(Ok(page)) => writer.page(&page),
                    Some(Err(error)) => Err(BackupError::Read(error)),
                    None => return Some((Ok(writer.trailer()), Step::Done)),
                };
                let next = if chunk.is_ok() { Step::Pages(state) } else { Step::Done };
                Some((chunk, next))
            }
            Step::Done => None,
        }
    })
}

/// Writes a whole backup. Without an error the output is complete and flushed.
pub async fn write(store: &Store, output: &mut (impl AsyncWrite + Unpin)) -> Result<(), BackupError> {
    let mut chunks = std::pin::pin!(stream(store));
    while let Some(chunk) = chunks.next().await {
        output.write_all(&chunk?).await.map_err(BackupError::Write)?;
    }
    output.flush().await.map_err(BackupError::Write)
}

enum Step {
    Begin(Store),
    Pages(Box<(Snapshot, Writer)>),
    Done,
}

struct Writer {
    digest: Context,
    entries: u64,
    leased: u64,
    buffer: Vec<u8>,
}

impl Writer {
    fn new() -> Self {
        Self { digest: Context::new(&SHA256), entries: 0, leased: 0, buffer: Vec::new() }
    }

    fn header(&mut self, revision: Revision) -> Bytes {
        let header = Header { format: FORMAT.to_owned(), version: VERSION, revision };
        self.line(&header).expect("plain structs of text and numbers encode");
        self.chunk()
    }

    fn page(&mut self, page: &[Entry]) -> Result<Bytes, BackupError> {
        for entry in page {
            if entry.lease.is_some() {
                self.leased += 1;
                continue;
            }
            let line = Line {
                key: entry.key.to_string(),
                value: BASE64_STANDARD.encode(&entry.value),
                created: entry.created,
                modified: entry.modified,
            };
            self.line(&line).map_err(|source| BackupError::Encode { key: entry.key.clone(), source })?;
            self.entries += 1;
        }
        Ok(self.chunk())
    }

    fn trailer(&mut self) -> Bytes {
        let digest = mem::replace(&mut self.digest, Context::new(&SHA256)).finish();
        let trailer = Trailer {
            entries: self.entries,
            leased_left_out: self.leased,
            sha256: common::hex(digest.as_ref()),
        };
        self.line(&trailer).expect("plain structs of text and numbers encode");
        self.chunk()
    }

    fn line(&mut self, line: &impl Serialize) -> serde_json::Result<()> {
        serde_json::to_writer(&mut self.buffer, line)?;
        self.buffer.push(b'\n');
        Ok(())
    }

    fn chunk(&mut self) -> Bytes {
        self.digest.update(&self.buffer);
        mem::take(&mut self.buffer).into()
    }
}

fn decode_value(text: &str) -> io::Result<Bytes> {
    BASE64_STANDARD
        .decode(text)
        .map(Bytes::from)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
