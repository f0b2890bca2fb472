//! The chained log, as it is written: lines at the end of `audit.log`, which becomes `audit.log.1` when it is large.
//!
//! In: records. Out: lines, each whole or not at all. Holds: the open file and the end of the chain. Opening needs no
//! room on the disk and does not fail: what cannot be opened is tried again with the next record.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use ::files::Lock;

use super::{
    chain::{self, Head, Link},
    files::{Backwards, KEEP, aged, head_path, log_path, read_head},
    record::Record,
};

/// Size at which a file is rotated.
const ROTATE_AT: u64 = 64 << 20;
/// The head's file is overwritten in place, so it has one size.
const HEAD_SIZE: usize = 128;

pub struct Log {
    dir: PathBuf,
    open: Option<Arc<Lock>>,
    size: u64,
    /// None until the chain's end was read.
    head: Option<Head>,
    /// What opening found that is to be known.
    notes: Vec<String>,
}

impl Log {
    pub fn open(dir: &Path) -> Self {
        let mut log = Self { dir: dir.to_owned(), open: None, size: 0, head: None, notes: Vec::new() };
        if let Err(err) = log.ready() {
            log.notes.push(format!("the log could not be opened at first: {err}"));
        }
        log
    }

    pub fn path(&self) -> PathBuf {
        log_path(&self.dir)
    }

    pub fn head(&self) -> Head {
        self.head.clone().unwrap_or_default()
    }

    /// The file that is written to, and the chain's end in it.
    pub fn written(&self) -> Option<(Arc<Lock>, Head)> {
        Some((Arc::clone(self.open.as_ref()?), self.head.clone()?))
    }

    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Appends records, all or none. The chain's end is then theirs.
    pub fn append(&mut self, records: &[Record]) -> io::Result<()> {
        if self.size >= ROTATE_AT {
            self.rotate()?;
        }
        let (file, mut head) = self.ready()?;
        let mut text = String::new();
        for record in records {
            let (line, next) = chain::link(&head, &serde_json::to_string(record)?);
            text.push_str(&line);
            text.push('\n');
            head = next;
        }
        if let Err(err) = (&**file).write_all(text.as_bytes()) {
            // A part of it may be there. To take it back needs no room; if even that fails, the file is looked at anew.
            if file.set_len(self.size).is_err() {
                (self.open, self.head) = (None, None);
            }
            return Err(err);
        }
        self.size += text.len() as u64;
        self.head = Some(head);
        Ok(())
    }

    /// Lets go of a file that somebody deleted, so that the next record makes a new one.
    pub fn check_file(&mut self) {
        let deleted = |file: &Arc<Lock>| file.metadata().is_ok_and(|data| data.nlink() == 0);
        if self.open.as_ref().is_some_and(deleted) {
            (self.open, self.size) = (None, 0);
        }
    }

    fn ready(&mut self) -> io::Result<(Arc<Lock>, Head)> {
        if let (Some(file), Some(head)) = (&self.open, &self.head) {
            return Ok((Arc::clone(file), head.clone()));
        }
        let options = OpenOptions::new().read(true).append(true).create(true).mode(0o600).clone();
        let file = options.open(self.path())?;
        let file = Lock::of(file).map_err(|err| match err {
            fs::TryLockError::Error(err) => err,
            fs::TryLockError::WouldBlock => {
                io::Error::new(io::ErrorKind::WouldBlock, "another process writes to it")
            }
        })?;
        let head = match &self.head {
            Some(head) => head.clone(),
            None => self.find_end(&file)?,
        };
        self.size = file.metadata()?.len();
        let file = Arc::new(file);
        (self.open, self.head) = (Some(Arc::clone(&file)), Some(head.clone()));
        Ok((file, head))
    }

    /// Cuts off a line torn by a crash, and finds where the chain goes on.
    fn find_end(&mut self, file: &File) -> io::Result<Head> {
        let size = file.metadata()?.len();
        let whole = whole_lines(file, size)?;
        if whole < size {
            // Kept aside if there is room; it is no record, and nothing depends on it.
            let mut torn = vec![0; usize::try_from(size - whole).unwrap_or_default()];
            let kept = file.read_exact_at(&mut torn, whole);
            let _ = kept.and_then(|()| files::write(&self.dir.join("audit.torn"), &torn));
            file.set_len(whole)?;
            self.notes.push(format!("a torn line of {} bytes was cut off", size - whole));
        }
        let mut last = last_link(&self.path())?;
        if whole == 0 {
            // Rotated, and nothing written since.
            last = last_link(&aged(&self.path(), 1))?;
        }
        let (head, note) = chain::resume(last, read_head(&self.dir)?);
        self.notes.extend(note);
        Ok(head)
    }

    fn rotate(&mut self) -> io::Result<()> {
        if let Some(file) = &self.open {
            // Who waits for its lines is told by the sync of the next file.
            file.sync_data()?;
        }
        let path = self.path();
        for age in (0..KEEP).rev() {
            match fs::rename(aged(&path, age), aged(&path, age + 1)) {
                Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                _ => {}
            }
        }
        (self.open, self.size) = (None, 0);
        Ok(())
    }
}

/// The size of a file up to its last newline.
fn whole_lines(file: &File, size: u64) -> io::Result<u64> {
    let mut end = size;
    let mut chunk = vec![0; 64 << 10];
    while end > 0 {
        let from = end.saturating_sub(chunk.len() as u64);
        let part = &mut chunk[..usize::try_from(end - from).unwrap_or_default()];
        file.read_exact_at(part, from)?;
        if let Some(newline) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + newline as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

/// The end of the chain in a file; none if its last line is no link, or there is none.
fn last_link(path: &Path) -> io::Result<Option<Head>> {
    let file = match File::open(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let Some(line) = Backwards::new(file).next().transpose()? else { return Ok(None) };
    Ok(Link::read(&line).map(|link| link.head(&line)))
}

/// The file that holds the head. It is written after the lines it names are on the disk, so it never promises more.
#[derive(Default)]
pub struct HeadFile {
    open: Option<File>,
    is_dirty: bool,
}

impl HeadFile {
    pub fn write(&mut self, dir: &Path, head: &Head) -> io::Result<()> {
        let file = match self.open.take() {
            Some(file) if file.metadata()?.nlink() > 0 => file,
            _ => OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(head_path(dir))?,
        };
        let mut text = serde_json::to_vec(head)?;
        text.resize(HEAD_SIZE - 1, b' ');
        text.push(b'\n');
        file.write_all_at(&text, 0)?;
        (self.open, self.is_dirty) = (Some(file), true);
        Ok(())
    }

    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(file) = self.open.as_ref().filter(|_| self.is_dirty) {
            file.sync_data()?;
            self.is_dirty = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::audit::files::Opened;

    fn record(n: usize) -> Record {
        Record::event(Timestamp::UNIX_EPOCH, "test", n.to_string())
    }

    fn close(log: Log, dir: &Path) {
        HeadFile::default().write(dir, &log.head()).unwrap();
    }

    #[test]
    fn the_chain_goes_on_over_restarts_rotation_and_a_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path());
        log.append(&[record(1), record(2)]).unwrap();
        log.size = ROTATE_AT;
        log.append(&[record(3)]).unwrap();
        log.size = ROTATE_AT;
        log.rotate().unwrap();
        close(log, dir.path());
        // Nothing was written after the rotation.
        let mut log = Log::open(dir.path());
        log.append(&[record(4)]).unwrap();
        close(log, dir.path());
        let mut file = OpenOptions::new().append(true).open(log_path(dir.path())).unwrap();
        file.write_all(b"{\"n\":5,\"prev\":\"a").unwrap();
        let report = Opened::open(dir.path()).unwrap().verify().unwrap();
        assert!(report.is_sound() && report.findings.len() == 1, "{report:?}");
        let mut log = Log::open(dir.path());
        assert!(log.take_notes()[0].contains("torn"));
        log.append(&[record(5)]).unwrap();
        close(log, dir.path());
        let report = Opened::open(dir.path()).unwrap().verify().unwrap();
        assert_eq!((report.records, report.head.count, report.findings), (5, 5, vec![]));
        assert!(fs::read_to_string(dir.path().join("audit.torn")).unwrap().ends_with("\"a"));
    }

    #[test]
    fn a_tail_cut_while_nothing_ran_is_seen_also_after_new_records() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path());
        log.append(&(0..5).map(record).collect::<Vec<_>>()).unwrap();
        close(log, dir.path());
        let text = fs::read_to_string(log_path(dir.path())).unwrap();
        let kept: String = text.split_inclusive('\n').take(3).collect();
        fs::write(log_path(dir.path()), kept).unwrap();
        let mut log = Log::open(dir.path());
        assert!(log.take_notes()[0].contains("ended with record 3 instead of 5"));
        log.append(&[record(6)]).unwrap();
        close(log, dir.path());
        let report = Opened::open(dir.path()).unwrap().verify().unwrap();
        let [finding] = report.findings.as_slice() else { panic!("{report:?}") };
        assert!(finding.alarm && finding.text.contains("records 4 to 5 are missing"), "{finding:?}");
        assert_eq!(finding.place.line, 4);
    }

    #[test]
    fn a_log_of_a_version_without_links_is_kept_and_goes_on_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let old = r#"{"time":"2026-01-01T00:00:00Z","caller":null,"peer":"x","operation":"y","result":"OK"}"#;
        fs::write(log_path(dir.path()), format!("{old}\n")).unwrap();
        let mut log = Log::open(dir.path());
        log.append(&[record(1)]).unwrap();
        close(log, dir.path());
        let report = Opened::open(dir.path()).unwrap().verify().unwrap();
        assert!(report.is_sound() && report.records == 1, "{report:?}");
        serde_json::from_str::<Record>(old).unwrap();
    }

    #[test]
    fn a_file_deleted_by_hand_is_made_anew_and_missed() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path());
        log.append(&[record(1)]).unwrap();
        fs::remove_file(log_path(dir.path())).unwrap();
        log.check_file();
        log.append(&[record(2)]).unwrap();
        close(log, dir.path());
        let report = Opened::open(dir.path()).unwrap().verify().unwrap();
        assert!(!report.is_sound() && report.records == 1, "{report:?}");
    }
}
