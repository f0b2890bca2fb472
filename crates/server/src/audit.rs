//! The audit log: one line of JSON for every call that writes, and for every call refused.
//!
//! In: records from the gate, after the call and before its reply. Out: the newest records, for those who ask.
//! Holds: the open file `audit.log`; at [`ROTATE_AT`] it becomes `audit.log.1` and so on, the oldest is deleted.
//! A record that cannot be written is counted and logged as an error: the call it records has happened.

use std::{
    cell::RefCell,
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use model::Subject;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Size at which the file is rotated, and how many old ones are kept.
const ROTATE_AT: u64 = 64 << 20;
const KEEP: usize = 8;
/// Records kept in memory to answer queries; older ones are in the files.
const RECENT: usize = 1000;

/// One audited call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Record {
    #[schema(value_type = String)]
    pub time: Timestamp,
    /// Who called; absent if the caller was not known.
    #[schema(value_type = Option<Object>)]
    pub caller: Option<Subject>,
    /// The address the call came from.
    pub peer: String,
    pub operation: String,
    /// What the call acted on, where the request names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// The gRPC code, for example `OK`.
    pub result: String,
}

/// The log of one data directory.
pub struct Audit {
    inner: Mutex<Inner>,
    /// Counts records.
    changes: watch::Sender<u64>,
}

struct Inner {
    path: PathBuf,
    file: File,
    size: u64,
    recent: VecDeque<Record>,
}

impl Audit {
    /// Opens the log and reads its newest records.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join("audit.log");
        let (file, mut size) = append_to(&path)?;
        let bytes = fs::read(&path)?;
        // A line torn by a crash must not swallow the next one. To cut it off needs no room on the disk.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < bytes.len() {
            size = whole as u64;
            file.set_len(size)?;
        }
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let mut recent: VecDeque<Record> =
            text.lines().rev().filter_map(|line| serde_json::from_str(line).ok()).take(RECENT).collect();
        recent.make_contiguous().reverse();
        Ok(Self { inner: Mutex::new(Inner { path, file, size, recent }), changes: watch::Sender::new(0) })
    }

    pub fn append(&self, record: Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(&record)?;
        line.push(b'\n');
        let mut inner = self.inner.lock();
        if inner.recent.len() == RECENT {
            inner.recent.pop_front();
        }
        inner.recent.push_back(record);
        self.changes.send_modify(|count| *count += 1);
        if inner.size >= ROTATE_AT {
            inner.rotate()?;
        }
        inner.file.write_all(&line)?;
        inner.size += line.len() as u64;
        Ok(())
    }

    /// Changes with every record.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The newest records, newest first.
    pub fn newest(&self, limit: usize) -> Vec<Record> {
        self.inner.lock().recent.iter().rev().take(limit).cloned().collect()
    }
}

impl Inner {
    fn rotate(&mut self) -> io::Result<()> {
        let numbered = |n: usize| self.path.with_added_extension(n.to_string());
        for n in (1..KEEP).rev() {
            if numbered(n).exists() {
                fs::rename(numbered(n), numbered(n + 1))?;
            }
        }
        fs::rename(&self.path, numbered(1))?;
        (self.file, self.size) = append_to(&self.path)?;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

tokio::task_local! {
    static OBJECT: RefCell<String>;
}

/// Runs a call and returns what it said it acted on, beside its result.
pub async fn observe<T>(call: impl Future<Output = T>) -> (T, String) {
    OBJECT
        .scope(RefCell::default(), async {
            let result = call.await;
            (result, OBJECT.with(RefCell::take))
        })
        .await
}

/// Says what the running call acts on, for its audit record.
pub fn object(name: impl std::fmt::Display) {
    // Outside an observed call, as in a unit test of a handler, there is no record to put it in.
    let _ = OBJECT.try_with(|object| *object.borrow_mut() = name.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(n: usize) -> Record {
        Record {
            time: Timestamp::UNIX_EPOCH,
            caller: None,
            peer: "127.0.0.1:1".into(),
            operation: "x/Y".into(),
            object: n.to_string(),
            result: "OK".into(),
        }
    }

    #[test]
    fn records_survive_a_restart_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(dir.path()).unwrap();
        (0..3).for_each(|n| audit.append(record(n)).unwrap());
        drop(audit);
        let audit = Audit::open(dir.path()).unwrap();
        assert_eq!(audit.newest(2), [record(2), record(1)]);
    }

    #[test]
    fn a_torn_last_line_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        Audit::open(dir.path()).unwrap().append(record(7)).unwrap();
        let mut file = OpenOptions::new().append(true).open(dir.path().join("audit.log")).unwrap();
        file.write_all(b"{\"time\":\"20").unwrap();
        Audit::open(dir.path()).unwrap().append(record(8)).unwrap();
        assert_eq!(Audit::open(dir.path()).unwrap().newest(9), [record(8), record(7)]);
    }

    #[test]
    fn a_full_file_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(dir.path()).unwrap();
        audit.inner.lock().size = ROTATE_AT;
        audit.append(record(1)).unwrap();
        assert!(dir.path().join("audit.log.1").exists());
        assert_eq!(audit.inner.lock().size, fs::metadata(dir.path().join("audit.log")).unwrap().len());
    }
}
