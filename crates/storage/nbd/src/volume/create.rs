//! Making and opening a volume's file.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use super::{Volume, syscalls::data_ranges, touched};
use crate::{account::Account, allocation::BLOCK};

/// Why a volume cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenVolumeError {
    #[error("opening the volume {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("finding the data in the volume {}; its file system must support SEEK_DATA", path.display())]
    Scan {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Makes the file if it is missing and lets it grow to `size`; it never shrinks. All of it is on disk afterwards.
pub(crate) fn create_file(path: &Path, size: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    if file.metadata()?.len() < size {
        file.set_len(size)?;
    }
    file.sync_all()
}

impl Volume {
    /// Opens a file and counts what it holds into the account. O(extents of the file).
    pub(crate) fn open(name: &str, path: &Path, account: Arc<Account>) -> Result<Self, OpenVolumeError> {
        let failed = |source| OpenVolumeError::Open { path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len() / BLOCK * BLOCK;
        let volume = Self {
            name: name.to_owned(),
            size: size.into(),
            gate: Default::default(),
            allocation: Default::default(),
            account,
            syncs: Default::default(),
            broken: false.into(),
            closed: false.into(),
            file,
        };
        volume.count().map_err(|source| OpenVolumeError::Scan { path: path.to_owned(), source })?;
        Ok(volume)
    }

    fn count(&self) -> io::Result<()> {
        let mut allocation = self.allocation.lock();
        let data = data_ranges(&self.file, 0, self.size()).map_err(io::Error::from)?;
        let blocks: u64 = data
            .into_iter()
            .map(|range| allocation.claim(touched(range.start, range.end - range.start)))
            .sum();
        self.account.found(blocks * BLOCK);
        Ok(())
    }

    /// Makes the file larger. Open connections keep the size they were told, new ones get the new size.
    pub(crate) fn grow(&self, size: u64) -> io::Result<()> {
        let _alone = self.gate.write();
        if self.size() < size {
            self.file.set_len(size)?;
            self.file.sync_all()?;
            self.size.store(size, Ordering::Release);
        }
        Ok(())
    }

    /// Makes the file smaller; what was beyond holds no data, and nobody is connected.
    pub(crate) fn lower(&self, size: u64) -> io::Result<()> {
        let _alone = self.gate.write();
        self.size.store(size, Ordering::Release);
        self.file.set_len(size)?;
        self.file.sync_all()
    }

    /// Where the last block that holds data ends.
    pub(crate) fn end_of_data(&self) -> u64 {
        self.allocation.lock().end() * BLOCK
    }

    /// Device and number of the file.
    pub(crate) fn inode(&self) -> io::Result<(u64, u64)> {
        let held = self.file.metadata()?;
        Ok((held.dev(), held.ino()))
    }

    /// The file, for tests that compare it with the map.
    #[cfg(test)]
    pub(crate) fn file(&self) -> &std::fs::File {
        &self.file
    }
}
