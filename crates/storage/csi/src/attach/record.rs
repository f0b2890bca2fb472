//! What is attached here, in a directory that ends with the machine's run: a record for each volume, and beside it what its bridge has.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// What a bridge needs to know. Written before it is started, gone when the volume is detached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub volume: String,
    /// By which the kernel and this driver know the device.
    pub backend: String,
    pub export: String,
    pub read_only: bool,
    /// Where the controller is, who says whether the export is over.
    pub server: String,
    /// Where the consumer's credentials are.
    pub credentials: PathBuf,
}

/// The directory.
#[derive(Clone, Debug)]
pub struct Records(PathBuf);

impl Records {
    pub fn open(dir: &Path) -> io::Result<Self> {
        files::closed_dir(dir)?;
        Ok(Self(dir.to_owned()))
    }

    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// Volumes' names have no slashes.
    pub(crate) fn path(&self, volume: &str, kind: &str) -> PathBuf {
        self.0.join(format!("{volume}.{kind}"))
    }

    /// Where a volume's bridge answers.
    pub fn socket(&self, volume: &str) -> PathBuf {
        self.path(volume, "sock")
    }

    pub fn write(&self, record: &Record) -> io::Result<()> {
        let text = serde_json::to_vec(record)?;
        files::write(&self.path(&record.volume, "json"), &text)
    }

    pub fn read(&self, volume: &str) -> io::Result<Option<Record>> {
        if volume.contains(['/', '\0']) || volume.len() > 64 {
            return Ok(None);
        }
        match fs::read(self.path(volume, "json")) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    pub(crate) fn all(&self) -> io::Result<Vec<Record>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            if path.extension().is_some_and(|kind| kind == "json")
                && let Some(volume) = path.file_stem().and_then(|name| name.to_str())
            {
                all.extend(self.read(volume)?);
            }
        }
        Ok(all)
    }

    /// The lock stays: a bridge that comes meanwhile must find the same file.
    pub(crate) fn remove(&self, volume: &str) -> io::Result<()> {
        for kind in ["json", "sock"] {
            match fs::remove_file(self.path(volume, kind)) {
                Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                _ => {}
            }
        }
        Ok(())
    }
}
