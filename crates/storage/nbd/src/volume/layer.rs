//! A layer: one sparse file, and which of its blocks hold data.
//!
//! In: bytes and block numbers, already checked. Out: bytes. Holds: the file (`medium`), the map of blocks in use with their share in
//! the consumer's account, and the layer below, if there is one. Not here: who may write when (`Volume`), which files make
//! up a volume (`vault::tenant`).
//!
//! ```text
//!   volume ─► top layer:   ▪ ▫ ▪ ▪ ▫ ▫      ▪ holds data: read here
//!             layer below: ▪ ▪ ▫ ▪ ▫ ▪ ◄─   ▫ a hole: read below, or zeroes at the bottom
//! ```
//! Only a volume's top layer is ever written to; what lies below belongs to a snapshot, or to others too. Which blocks
//! a layer holds is what its file system says holds data, so that a crash cannot leave the map and the data apart.

use std::{
    fs::OpenOptions,
    io,
    ops::Range,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use super::{OpenVolumeError, medium::Medium, syscalls, touched};
use crate::{
    account::Account,
    allocation::{Allocation, BLOCK, Run},
    cipher::Cipher,
    protocol::Errno,
};

pub(crate) struct Layer {
    /// Its file's name in the consumer's directory.
    pub(crate) name: String,
    pub(super) medium: Medium,
    account: Arc<Account>,
    /// Blocks that hold data, or were paid for and are being written.
    held: Mutex<Allocation>,
    /// Where something lies below: the blocks whose data is in place. Until it is, what lies below is read.
    written: Mutex<Allocation>,
    below: ArcSwapOption<Layer>,
    /// Blocks whose price another layer pays by now.
    passed_on: AtomicU64,
}

/// How one layer is read: its file, where from, into what; `false` when it would have to wait.
type ReadOne<'a> = &'a mut dyn FnMut(&Medium, u64, &mut [u8]) -> Result<bool, Errno>;

impl Layer {
    /// Opens a file and counts what it holds into the account. O(extents of the file).
    pub(crate) fn open(
        path: &Path,
        below: Option<Arc<Self>>,
        account: Arc<Account>,
        cipher: Option<Arc<Cipher>>,
    ) -> Result<Self, OpenVolumeError> {
        let failed = |source| OpenVolumeError::Open { path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let layer = Self {
            name: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            medium: Medium::new(file, cipher),
            account,
            held: Mutex::default(),
            written: Mutex::default(),
            below: ArcSwapOption::new(below),
            passed_on: AtomicU64::new(0),
        };
        layer.count().map_err(|source| OpenVolumeError::Scan { path: path.to_owned(), source })?;
        Ok(layer)
    }

    fn count(&self) -> io::Result<()> {
        let end = self.medium.file().metadata()?.len();
        let (mut held, mut written) = (self.held.lock(), self.written.lock());
        let layered = self.has_below();
        let data = self.medium.data_ranges(0, end).map_err(io::Error::from)?;
        let blocks: u64 = data
            .into_iter()
            .map(|range| {
                let blocks = touched(range.start, range.end - range.start);
                if layered {
                    written.claim(blocks.clone());
                }
                held.claim(blocks)
            })
            .sum();
        self.account.found(blocks * BLOCK);
        Ok(())
    }

    /// Takes what it holds off the books: nobody reads or writes it any more.
    pub(crate) fn close(&self) {
        let held = self.held.lock().release_all();
        self.account.release((held - self.passed_on.swap(0, Ordering::AcqRel)) * BLOCK);
    }

    pub(crate) fn below(&self) -> Option<Arc<Self>> {
        self.below.load_full()
    }

    pub(crate) fn has_below(&self) -> bool {
        self.below.load().is_some()
    }

    /// It and all that lies below it, from the top.
    pub(crate) fn chain(self: &Arc<Self>) -> Vec<Arc<Self>> {
        std::iter::successors(Some(Arc::clone(self)), |layer| layer.below()).collect()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> io::Result<u64> {
        Ok(self.medium.file().metadata()?.len())
    }

    /// Device and number of the file.
    pub(crate) fn inode(&self) -> io::Result<(u64, u64)> {
        let held = self.medium.file().metadata()?;
        Ok((held.dev(), held.ino()))
    }

    /// Blocks it holds itself.
    pub(crate) fn holds(&self) -> u64 {
        self.held.lock().count()
    }

    /// Whether a range holds no data at all, and so reads as zeroes.
    pub(super) fn is_hole(&self, blocks: Range<u64>) -> bool {
        let len = blocks.end - blocks.start;
        let below = self.below.load();
        let own = if below.is_some() { &self.written } else { &self.held };
        own.lock().holes(blocks.clone()) == len && below.as_ref().is_none_or(|below| below.is_hole(blocks))
    }

    /// The range as runs of data and of holes, whichever layer they are in, at most `most` of them.
    pub(super) fn runs(&self, blocks: Range<u64>, most: usize) -> Vec<Run> {
        let below = self.below.load();
        let Some(below) = &*below else { return self.held.lock().runs(blocks, most) };
        let mut runs: Vec<Run> = Vec::new();
        let mut at = blocks.start;
        for own in self.own_runs(blocks) {
            let parts = match own.data {
                true => vec![own],
                false => below.runs(at..at + own.blocks, usize::MAX),
            };
            at += own.blocks;
            for part in parts {
                let full = runs.len() == most;
                match runs.last_mut() {
                    Some(last) if last.data == part.data => last.blocks += part.blocks,
                    Some(_) | None if full => return runs,
                    Some(_) | None => runs.push(part),
                }
            }
        }
        runs
    }

    /// What this layer alone says.
    fn own_runs(&self, blocks: Range<u64>) -> Vec<Run> {
        let own = if self.has_below() { &self.written } else { &self.held };
        own.lock().runs(blocks, usize::MAX)
    }

    /// One past the last block that holds data, in this layer or below.
    pub(super) fn end(&self) -> u64 {
        let below = self.below.load().as_ref().map_or(0, |below| below.end());
        self.held.lock().end().max(below)
    }

    /// Reads, each part from the layer that holds it. `false` when that would have to wait and `one` does not.
    pub(super) fn read(&self, offset: u64, into: &mut [u8], one: ReadOne<'_>) -> Result<bool, Errno> {
        let below = self.below.load();
        let end = offset + into.len() as u64;
        let mut at = offset;
        for run in self.own_runs(touched(offset, into.len() as u64)) {
            let until = ((at / BLOCK + run.blocks) * BLOCK).min(end);
            let from = usize::try_from(at - offset).expect("it is within the buffer");
            let to = usize::try_from(until - offset).expect("it is within the buffer");
            let part = &mut into[from..to];
            let read = match (&*below, run.data) {
                (_, true) => one(&self.medium, at, part)?,
                (Some(below), false) => below.read(at, part, one)?,
                (None, false) => {
                    part.fill(0);
                    true
                }
            };
            if !read {
                return Ok(false);
            }
            at = until;
        }
        Ok(true)
    }

    /// A block that a write would fill in part while the rest of it lies below.
    pub(super) fn torn(&self, offset: u64, length: u64) -> Option<u64> {
        let below = self.below.load();
        let below = below.as_ref().filter(|_| length > 0)?;
        let end = offset + length;
        let first = (!offset.is_multiple_of(BLOCK)).then_some(offset / BLOCK);
        let last = (!end.is_multiple_of(BLOCK)).then_some(end / BLOCK);
        let torn = |block: &u64| {
            self.written.lock().holes(*block..block + 1) == 1 && !below.is_hole(*block..block + 1)
        };
        first.into_iter().chain(last).find(torn)
    }

    /// Changes a part of one block and writes it whole, whatever of it lies here or below. The caller writes alone.
    pub(super) fn patch(&self, offset: u64, part: &[u8]) -> Result<(), Errno> {
        let block = offset / BLOCK;
        let mut data = [0; BLOCK as usize];
        self.read(block * BLOCK, &mut data, &mut whole)?;
        let from = usize::try_from(offset % BLOCK).expect("less than a block");
        data[from..from + part.len()].copy_from_slice(part);
        self.claim(block..block + 1)?;
        self.medium.write_all(block * BLOCK, &data, false)?;
        self.in_place(block..block + 1);
        Ok(())
    }

    /// Fetches one block from below. The caller writes alone.
    pub(super) fn copy_up(&self, block: u64) -> Result<(), Errno> {
        let Some(below) = self.below() else { return Ok(()) };
        let mut data = [0; BLOCK as usize];
        below.read(block * BLOCK, &mut data, &mut whole)?;
        let claimed = self.claim(block..block + 1)?;
        let written = self.medium.write_all(block * BLOCK, &data, false);
        match written {
            Ok(()) => self.in_place(block..block + 1),
            Err(_) if claimed > 0 => self.recount(block..block + 1),
            Err(_) => {}
        }
        written
    }

    /// Marks blocks as data and pays for the new ones. Returns how many were new.
    pub(super) fn claim(&self, blocks: Range<u64>) -> Result<u64, Errno> {
        let mut held = self.held.lock();
        let holes = held.holes(blocks.clone());
        if holes == 0 {
            return Ok(0);
        }
        if !self.account.claim(holes * BLOCK) {
            return Err(Errno::NoSpace);
        }
        held.claim(blocks);
        Ok(holes)
    }

    /// The data of these blocks can be read here from now on.
    pub(super) fn in_place(&self, blocks: Range<u64>) {
        if self.has_below() {
            self.written.lock().claim(blocks);
        }
    }

    /// Puts map and account right for a range by looking at the file. The caller writes alone.
    pub(super) fn recount(&self, blocks: Range<u64>) {
        let data = self.medium.data_ranges(blocks.start * BLOCK, blocks.end * BLOCK);
        // A file that cannot be looked at keeps its claims: counting too much harms only its owner.
        let Ok(data) = data else { return };
        let mut found = Allocation::default();
        data.into_iter().for_each(|range| {
            found.claim(touched(range.start, range.end - range.start));
        });
        let (mut held, mut written) = (self.held.lock(), self.written.lock());
        let mut at = blocks.start;
        for run in found.runs(blocks, usize::MAX) {
            let range = at..at + run.blocks;
            at += run.blocks;
            if run.data {
                self.account.found(held.claim(range.clone()) * BLOCK);
                if self.has_below() {
                    written.claim(range);
                }
            } else {
                self.account.release(held.release(range.clone()) * BLOCK);
                written.release(range);
            }
        }
    }

    /// Puts the books right as a whole: nobody writes to it any more.
    pub(super) fn settle(&self) {
        let end = self.held.lock().end();
        self.recount(0..end);
    }

    /// Frees blocks below which there is nothing. `false` when the file system cannot. The caller writes alone.
    pub(super) fn punch(&self, blocks: Range<u64>) -> Result<bool, Errno> {
        let (start, len) = (blocks.start, blocks.end - blocks.start);
        if self.held.lock().holes(blocks.clone()) == len {
            return Ok(true);
        }
        if !syscalls::punch(self.medium.file(), start * BLOCK, len * BLOCK)? {
            return Ok(false);
        }
        self.written.lock().release(blocks.clone());
        let released = self.held.lock().release(blocks);
        self.account.release(released * BLOCK);
        Ok(true)
    }

    /// What of a range the layer below has and this one has not, as the next piece to fetch. `None` when there is nothing.
    pub(super) fn missing(&self, from: u64, most: u64) -> Option<Range<u64>> {
        let below = self.below()?;
        let end = below.held.lock().end();
        let mut at = from;
        while at < end {
            let window = at..(at + most).min(end);
            let mut block = window.start;
            for own in self.own_runs(window.clone()) {
                if !own.data {
                    let mut part = block;
                    for run in below.own_runs(block..block + own.blocks) {
                        if run.data {
                            return Some(part..part + run.blocks);
                        }
                        part += run.blocks;
                    }
                }
                block += own.blocks;
            }
            at = window.end;
        }
        None
    }

    /// Fetches these blocks from the layer below, which pays for them no longer. The caller writes alone.
    pub(super) fn take_over(&self, blocks: Range<u64>) -> Result<(), Errno> {
        let Some(below) = self.below() else { return Ok(()) };
        let bytes = usize::try_from((blocks.end - blocks.start) * BLOCK).expect("a piece fits in memory");
        let mut data = vec![0; bytes];
        below.read(blocks.start * BLOCK, &mut data, &mut whole)?;
        self.medium.write_all(blocks.start * BLOCK, &data, false)?;
        let new = self.held.lock().claim(blocks.clone());
        below.passed_on.fetch_add(new, Ordering::AcqRel);
        self.in_place(blocks);
        Ok(())
    }

    /// Stands on what lies under the layer below from now on; all of that one's data is here.
    pub(crate) fn step_over(&self) {
        if let Some(below) = self.below() {
            self.below.store(below.below());
        }
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        rustix::fs::fdatasync(self.medium.file()).map_err(io::Error::from)
    }
}

/// Reads all of it, however long that takes.
pub(super) fn whole(medium: &Medium, at: u64, into: &mut [u8]) -> Result<bool, Errno> {
    medium.read_exact(at, into).map(|()| true)
}
