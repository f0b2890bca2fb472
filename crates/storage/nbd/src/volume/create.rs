//! Making and opening a volume's file.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use arc_swap::ArcSwap;

use super::{Layer, Volume, syscalls::data_ranges};
#[cfg(test)]
use crate::{account::Account, cipher::Cipher};
use crate::{allocation::BLOCK, keys::KeyStoreError, protocol::Errno};

/// Why a volume cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenVolumeError {
    #[error("opening the volume {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("opening the encrypted volume {}", path.display())]
    Key {
        path: PathBuf,
        #[source]
        source: KeyStoreError,
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
    /// A volume that is made of these layers.
    pub(crate) fn over(name: &str, top: Arc<Layer>, size: u64, read_only: bool) -> Self {
        Self {
            name: name.to_owned(),
            top: ArcSwap::new(top),
            size: (size / BLOCK * BLOCK).into(),
            read_only,
            gate: Default::default(),
            users: Default::default(),
            figures: Default::default(),
            syncs: Default::default(),
            broken: false.into(),
            closed: false.into(),
        }
    }

    /// One that is a file alone, as large as that.
    #[cfg(test)]
    pub(crate) fn open(
        name: &str,
        path: &Path,
        account: Arc<Account>,
        cipher: Option<Arc<Cipher>>,
    ) -> Result<Self, OpenVolumeError> {
        let layer = Layer::open(path, None, account, cipher)?;
        let size = layer.bytes().expect("an open file has a length");
        Ok(Self::over(name, Arc::new(layer), size, false))
    }

    /// Makes the file larger. Open connections keep the size they were told, new ones get the new size.
    pub(crate) fn grow(&self, size: u64) -> io::Result<()> {
        let _alone = self.gate.write();
        if self.size() < size {
            self.resize_file(size)?;
            self.size.store(size, Ordering::Release);
        }
        Ok(())
    }

    /// Makes the file smaller; what was beyond holds no data, and nobody is connected.
    pub(crate) fn lower(&self, size: u64) -> io::Result<()> {
        let _alone = self.gate.write();
        self.size.store(size, Ordering::Release);
        self.resize_file(size)
    }

    fn resize_file(&self, size: u64) -> io::Result<()> {
        let top = self.top.load();
        let file = top.medium.file();
        file.set_len(size)?;
        file.sync_all()
    }

    /// Where the last block that holds data ends.
    pub(crate) fn end_of_data(&self) -> u64 {
        self.top.load().end() * BLOCK
    }

    /// Whether all its files are still the ones under their names in this directory.
    pub(crate) fn is_in_place(&self, dir: &Path) -> bool {
        let in_place = |layer: Arc<Layer>| {
            let named = std::fs::metadata(dir.join(&layer.name));
            named.is_ok_and(|named| layer.inode().is_ok_and(|held| held == (named.dev(), named.ino())))
        };
        self.top().chain().into_iter().all(in_place)
    }

    /// Takes a moment in which nothing is written and all that was acknowledged is on disk; `then` is done in it. What
    /// is returned is the top layer from then on.
    pub(crate) fn freeze<E>(
        &self,
        broken: impl Fn() -> E,
        then: impl FnOnce(&Arc<Layer>) -> Result<Option<Arc<Layer>>, E>,
    ) -> Result<(), E> {
        // Most of the work, while others write on.
        self.flush().map_err(|_| broken())?;
        let alone = self.gate.write();
        self.flush().map_err(|_| broken())?;
        let old = self.top();
        let Some(top) = then(&old)? else { return Ok(()) };
        self.top.store(top);
        drop(alone);
        // Blocks that were claimed for writes which went to the new layer are not its any more.
        old.settle();
        Ok(())
    }

    /// Copies its whole file into another one, if the file system can share the blocks.
    pub(crate) fn share_file(layer: &Layer, into: &std::fs::File) -> bool {
        rustix::fs::ioctl_ficlone(into, layer.medium.file()).is_ok()
    }

    /// Has the top layer take over a piece from the layer below it, while nobody writes.
    pub(crate) fn take_over_piece(&self, layer: &Arc<Layer>, from: u64) -> Result<Progress, Errno> {
        let _alone = self.gate.write();
        self.check_open()?;
        take_over_piece(layer, from)
    }

    /// The file, for tests that compare it with the map.
    #[cfg(test)]
    pub(crate) fn file(&self) -> std::fs::File {
        self.top.load().medium.file().try_clone().expect("a descriptor more")
    }
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Go on from this block.
    Next(u64),
    Done,
}

/// Blocks that are taken over at once.
const PIECE: u64 = (1 << 20) / BLOCK;

/// Takes over the next piece from the layer below. The caller writes alone, or nobody does.
pub(crate) fn take_over_piece(layer: &Layer, from: u64) -> Result<Progress, Errno> {
    let Some(mut missing) = layer.missing(from, 1 << 15) else { return Ok(Progress::Done) };
    missing.end = missing.end.min(missing.start + PIECE);
    layer.take_over(missing.clone())?;
    Ok(Progress::Next(missing.end))
}

/// Whether the file system tells exactly which blocks hold data, also of what was just written: on what it does not, a
/// hole could not be told from zeroes.
pub(crate) fn is_exact(path: &Path) -> io::Result<bool> {
    let probe = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let told = (|| {
        probe.set_len(64 * BLOCK)?;
        let mut exact = true;
        for (round, block) in [32u64, 7].into_iter().enumerate() {
            probe.write_all_at(&[1; BLOCK as usize], block * BLOCK)?;
            let told = data_ranges(&probe, 0, 64 * BLOCK)?;
            exact &= told.len() == round + 1 && told[0] == (block * BLOCK..(block + 1) * BLOCK);
            probe.sync_all()?;
            exact &= data_ranges(&probe, 0, 64 * BLOCK)? == told;
        }
        Ok(exact)
    })();
    std::fs::remove_file(path)?;
    told
}
