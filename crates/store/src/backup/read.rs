//! Reading a backup file: verified as a whole first, then entry by entry.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use thiserror::Error;

use super::{FORMAT, Header, Line, Trailer, VERSION, decode_value};
use crate::api::{Cause, Key, Revision};

/// No line is longer: twice the largest transaction of either backend.
const MAX_LINE: u64 = 64 << 20;

#[derive(Clone, Debug, Error)]
pub enum VerifyError {
    #[error("{} could not be read", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: Arc<io::Error>,
    },
    #[error("{} is not a backup made by `trestle store backup`", path.display())]
    NotABackup { path: PathBuf },
    #[error("{} has version {found}, this program knows up to {VERSION}; use a newer one", path.display())]
    Version { path: PathBuf, found: u64 },
    #[error("{} is cut short: its last line is missing; take another backup file", path.display())]
    Cut { path: PathBuf },
    #[error("{} is damaged ({what}); take another backup file", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("line {line} of {} is damaged; take another backup file", path.display())]
    Line {
        path: PathBuf,
        line: u64,
        #[source]
        source: Cause,
    },
}

/// An entry as it was when the backup was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupEntry {
    pub key: Key,
    pub value: Bytes,
    pub created: Revision,
    pub modified: Revision,
}

/// A backup file that has been read once from end to end and found whole.
#[derive(Clone, Debug)]
pub struct BackupFile {
    path: PathBuf,
    pub header: Header,
    pub trailer: Trailer,
}

impl BackupFile {
    /// Reads the whole file: format, every entry, ascending keys, count and digest. Blocks.
    pub fn verify(path: impl Into<PathBuf>) -> Result<Self, VerifyError> {
        let path = path.into();
        let mut reader = Reader::open(&path)?;
        let header = reader.header()?;
        let mut last: Option<Key> = None;
        while let Some(entry) = reader.entry()? {
            if last.as_ref().is_some_and(|last| *last >= entry.key) {
                let what = format!("{} is out of order", entry.key);
                return Err(VerifyError::Damaged { path, what });
            }
            last = Some(entry.key);
        }
        let trailer = reader.trailer()?;
        Ok(Self { path, header, trailer })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The entries, ascending by key. The digest is checked again: the last item is an error if the file changed.
    pub fn entries(
        &self,
    ) -> Result<impl Iterator<Item = Result<BackupEntry, VerifyError>> + use<>, VerifyError> {
        let mut reader = Reader::open(&self.path)?;
        reader.header()?;
        let mut done = false;
        Ok(std::iter::from_fn(move || {
            if done {
                return None;
            }
            let next = match reader.entry() {
                Ok(None) => reader.trailer().err().map(Err),
                Ok(Some(entry)) => Some(Ok(entry)),
                Err(error) => Some(Err(error)),
            };
            done = !matches!(next, Some(Ok(_)));
            next
        }))
    }
}

struct Reader {
    path: PathBuf,
    input: BufReader<File>,
    digest: Context,
    entries: u64,
    line: u64,
    /// The line after the last entry, once it was met.
    trailer: Option<Trailer>,
}

impl Reader {
    fn open(path: &Path) -> Result<Self, VerifyError> {
        let file = File::open(path)
            .map_err(|source| VerifyError::Io { path: path.to_owned(), source: Arc::new(source) })?;
        let input = BufReader::with_capacity(256 * 1024, file);
        let digest = Context::new(&SHA256);
        Ok(Self { path: path.to_owned(), input, digest, entries: 0, line: 0, trailer: None })
    }

    /// The next line with its newline; `None` at the end. A last line without newline was cut.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, VerifyError> {
        let mut line = Vec::new();
        let path = || self.path.clone();
        (&mut self.input)
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .map_err(|source| VerifyError::Io { path: path(), source: Arc::new(source) })?;
        self.line += 1;
        match line.last() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(line)),
            Some(_) if line.len() as u64 == MAX_LINE => {
                Err(VerifyError::Damaged { path: path(), what: format!("line {} is too long", self.line) })
            }
            Some(_) => Err(VerifyError::Cut { path: path() }),
        }
    }

    fn header(&mut self) -> Result<Header, VerifyError> {
        let path = self.path.clone();
        let Some(line) = self.next_line()? else { return Err(VerifyError::NotABackup { path }) };
        let Ok(header) = serde_json::from_slice::<Header>(&line) else {
            return Err(VerifyError::NotABackup { path });
        };
        if header.format != FORMAT {
            return Err(VerifyError::NotABackup { path });
        }
        if header.version > VERSION {
            return Err(VerifyError::Version { path, found: header.version });
        }
        self.digest.update(&line);
        Ok(header)
    }

    fn entry(&mut self) -> Result<Option<BackupEntry>, VerifyError> {
        let Some(line) = self.next_line()? else { return Err(VerifyError::Cut { path: self.path.clone() }) };
        if let Ok(trailer) = serde_json::from_slice(&line) {
            self.trailer = Some(trailer);
            return Ok(None);
        }
        let entry = parse_entry(&line).map_err(|source| VerifyError::Line {
            path: self.path.clone(),
            line: self.line,
            source,
        })?;
        self.digest.update(&line);
        self.entries += 1;
        Ok(Some(entry))
    }

    fn trailer(&mut self) -> Result<Trailer, VerifyError> {
        let path = self.path.clone();
        let Some(trailer) = self.trailer.clone() else { return Err(VerifyError::Cut { path }) };
        let digest = common::hex(self.digest.clone().finish().as_ref());
        let what = if self.entries != trailer.entries {
            format!("{} entries, {} were written", self.entries, trailer.entries)
        } else if digest != trailer.sha256 {
            "its digest does not match".to_owned()
        } else if self.next_line()?.is_some() {
            "there is more after its end".to_owned()
        } else {
            return Ok(trailer);
        };
        Err(VerifyError::Damaged { path, what })
    }
}

fn parse_entry(line: &[u8]) -> Result<BackupEntry, Cause> {
    let line: Line = serde_json::from_slice(line).map_err(|error| Arc::new(error) as Cause)?;
    let key = Key::try_from(line.key).map_err(|error| Arc::new(error) as Cause)?;
    let value = decode_value(&line.value).map_err(|error| Arc::new(error) as Cause)?;
    Ok(BackupEntry { key, value, created: line.created, modified: line.modified })
}
