//! A volume: one sparse file, and the rules that keep its accounting exact.
//!
//! In: reads, writes, trims and zeroes, already checked against the volume's size. Out: bytes, or an error for the
//! client. Holds: the file, the map of blocks in use, and a share in the consumer's account.
//!
//! ```text
//!   write:  gate (shared)   ─► map: count holes ─► account: claim or ENOSPC ─► map: mark ─► pwrite
//!   trim:   gate (alone)    ─► punch            ─► map: unmark              ─► account: release
//!   failed write, lost client:  gate (alone)    ─► look at the file: what is really there
//! ```
//! The gate keeps a trim from freeing a block between a writer's look at the map and its write.

mod create;
mod flush;
mod syscalls;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    net::TcpStream,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};

use crate::{
    account::Account,
    allocation::{Allocation, BLOCK, Run},
    protocol::Errno,
};

pub(crate) use self::create::{OpenVolumeError, create_file};

pub(crate) struct Volume {
    pub(crate) name: String,
    file: File,
    size: AtomicU64,
    gate: RwLock<()>,
    allocation: Mutex<Allocation>,
    account: Arc<Account>,
    syncs: flush::Syncs,
    /// A flush failed: what was acknowledged may be lost, so nothing more is acknowledged.
    broken: AtomicBool,
    /// The consumer is revoked; set alone under the gate, so that no write is under way when it is set.
    closed: AtomicBool,
}

/// Blocks claimed for a write whose data is still arriving. Unless all of it arrived, the books are put right when
/// this goes.
pub(crate) struct Ahead {
    volume: Arc<Volume>,
    blocks: Range<u64>,
    written: AtomicBool,
}

impl Ahead {
    /// All data is in place.
    pub(crate) fn complete(&self) {
        self.written.store(true, Ordering::Release);
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if !self.written.load(Ordering::Acquire) {
            self.volume.recount(self.blocks.clone());
        }
    }
}

/// How much one trim punches before it lets writers through again.
const PUNCH: u64 = 128 << 20;

impl Volume {
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Whether what was acknowledged may be lost, so that nothing more is.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Closes this volume for good and takes what it holds off the books: its file is about to go.
    pub(crate) fn retire(&self) {
        let _alone = self.gate.write();
        self.closed.store(true, Ordering::Release);
        let held = self.allocation.lock().release_all();
        self.account.release(held * BLOCK);
    }

    fn check_open(&self) -> Result<(), Errno> {
        if self.closed.load(Ordering::Acquire) { Err(Errno::Shutdown) } else { Ok(()) }
    }

    fn check_writable(&self) -> Result<(), Errno> {
        self.check_open()?;
        if self.broken.load(Ordering::Acquire) { Err(Errno::Io) } else { Ok(()) }
    }

    /// Claims all blocks a write will need before its data is read, so that it is refused whole or not at all.
    pub(crate) fn claim_ahead(self: &Arc<Self>, offset: u64, length: u64) -> Result<Ahead, Errno> {
        let blocks = touched(offset, length);
        let _gate = self.gate.read();
        self.check_writable()?;
        let claimed = self.claim(blocks.clone())?;
        Ok(Ahead { volume: Arc::clone(self), blocks, written: (claimed == 0).into() })
    }

    /// Writes; with `durable`, it is on disk when this returns.
    pub(crate) fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), Errno> {
        let gate = self.gate.read();
        self.check_writable()?;
        let blocks = touched(offset, data.len() as u64);
        let claimed = self.claim(blocks.clone())?;
        let written = syscalls::write_all(&self.file, offset, data, durable);
        drop(gate);
        if let Err(errno) = written {
            if claimed > 0 {
                self.recount(blocks);
            }
            // A full disk is told to the client; a failed sync may have lost what others were promised.
            if durable && errno == Errno::Io {
                self.broken.store(true, Ordering::Release);
            }
            return Err(errno);
        }
        Ok(())
    }

    /// Marks blocks as data and pays for the new ones. Returns how many were new.
    fn claim(&self, blocks: Range<u64>) -> Result<u64, Errno> {
        let mut allocation = self.allocation.lock();
        let holes = allocation.holes(blocks.clone());
        if holes == 0 {
            return Ok(0);
        }
        if !self.account.claim(holes * BLOCK) {
            return Err(Errno::NoSpace);
        }
        allocation.claim(blocks);
        Ok(holes)
    }

    /// Puts map and account right for a range by looking at the file.
    fn recount(&self, blocks: Range<u64>) {
        let _alone = self.gate.write();
        // A closed volume's books are closed too.
        if self.check_open().is_err() {
            return;
        }
        let data = syscalls::data_ranges(&self.file, blocks.start * BLOCK, blocks.end * BLOCK);
        // A file that cannot be looked at keeps its claims: counting too much harms only its owner.
        let Ok(data) = data else { return };
        let mut allocation = self.allocation.lock();
        let mut held = Allocation::default();
        data.into_iter().for_each(|range| {
            held.claim(touched(range.start, range.end - range.start));
        });
        let mut at = blocks.start;
        for run in held.runs(blocks, usize::MAX) {
            let range = at..at + run.blocks;
            at += run.blocks;
            if run.data {
                self.account.found(allocation.claim(range) * BLOCK);
            } else {
                self.account.release(allocation.release(range) * BLOCK);
            }
        }
    }

    /// Whether a range holds no data at all, and so reads as zeroes.
    pub(crate) fn is_hole(&self, offset: u64, length: u64) -> bool {
        let blocks = touched(offset, length);
        let len = blocks.end - blocks.start;
        self.allocation.lock().holes(blocks) == len
    }

    /// Reads if that needs no waiting for the disk. `Ok(false)` when it would.
    pub(crate) fn try_read(&self, offset: u64, into: &mut [u8]) -> Result<bool, Errno> {
        self.check_open()?;
        if self.is_hole(offset, into.len() as u64) {
            into.fill(0);
            return Ok(true);
        }
        Ok(syscalls::read_cached(&self.file, offset, into))
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.check_open()?;
        syscalls::read_exact(&self.file, offset, into)
    }

    /// Sends a range to a socket straight from the page cache.
    pub(crate) fn send(&self, offset: u64, length: u64, socket: &TcpStream) -> Result<(), Errno> {
        self.check_open()?;
        syscalls::send_all(&self.file, offset, length, socket)
    }

    /// Starts reading a range into the page cache.
    pub(crate) fn prefetch(&self, offset: u64, length: u64) -> Result<(), Errno> {
        self.check_open()?;
        syscalls::prefetch(&self.file, offset, length);
        Ok(())
    }

    /// Frees the whole blocks of a range. A hint: what cannot be freed stays.
    pub(crate) fn trim(&self, offset: u64, length: u64) -> Result<(), Errno> {
        self.punch(whole(offset, length)).map(|_| ())
    }

    /// Makes a range read as zeroes; unless `keep`, its blocks are given back.
    pub(crate) fn write_zeroes(self: &Arc<Self>, offset: u64, length: u64, keep: bool) -> Result<(), Errno> {
        self.check_writable()?;
        if keep {
            let ahead = self.claim_ahead(offset, length)?;
            syscalls::zero_pieces(offset, length)
                .try_for_each(|(at, zeroes)| self.write(at, zeroes, false))?;
            ahead.complete();
            return Ok(());
        }
        let inner = whole(offset, length);
        let end = offset + length;
        let (head, tail) = if inner.is_empty() {
            (offset..end, end..end)
        } else {
            (offset..inner.start * BLOCK, inner.end * BLOCK..end)
        };
        self.zero_data(head)?;
        self.zero_data(tail)?;
        if !self.punch(inner.clone())? {
            self.zero_data(inner.start * BLOCK..inner.end * BLOCK)?;
        }
        Ok(())
    }

    /// Overwrites with zeroes what holds data; holes are zeroes already.
    fn zero_data(&self, bytes: Range<u64>) -> Result<(), Errno> {
        let mut at = bytes.start;
        while at < bytes.end {
            let block = at / BLOCK;
            let run = self.allocation.lock().runs(block..bytes.end.div_ceil(BLOCK), 1);
            let Some(Run { blocks, data }) = run.first().copied() else { break };
            let end = ((block + blocks) * BLOCK).min(bytes.end);
            if data {
                syscalls::zero_pieces(at, end - at)
                    .try_for_each(|(at, zeroes)| self.write(at, zeroes, false))?;
            }
            at = end;
        }
        Ok(())
    }

    /// Frees blocks. `Ok(false)` when the file system cannot.
    fn punch(&self, blocks: Range<u64>) -> Result<bool, Errno> {
        let mut at = blocks.start;
        while at < blocks.end {
            let end = (at + PUNCH / BLOCK).min(blocks.end);
            let _alone = self.gate.write();
            self.check_writable()?;
            if self.allocation.lock().holes(at..end) < end - at {
                if !syscalls::punch(&self.file, at * BLOCK, (end - at) * BLOCK)? {
                    return Ok(false);
                }
                let released = self.allocation.lock().release(at..end);
                self.account.release(released * BLOCK);
            }
            at = end;
        }
        Ok(true)
    }

    /// The range as extents of at most `most` runs: length and whether it holds data.
    pub(crate) fn extents(&self, offset: u64, length: u32, most: usize) -> Vec<(u32, bool)> {
        let end = offset + u64::from(length);
        let mut at = offset;
        let runs = self.allocation.lock().runs(touched(offset, u64::from(length)), most);
        runs.into_iter()
            .map(|run| {
                let next = ((at / BLOCK + run.blocks) * BLOCK).min(end);
                let len = u32::try_from(next - at).expect("a part of a range of 32 bits");
                at = next;
                (len, run.data)
            })
            .collect()
    }
}

/// The blocks a byte range touches.
fn touched(offset: u64, length: u64) -> Range<u64> {
    if length == 0 { 0..0 } else { offset / BLOCK..(offset + length).div_ceil(BLOCK) }
}

/// The blocks a byte range covers whole.
fn whole(offset: u64, length: u64) -> Range<u64> {
    let (first, last) = (offset.div_ceil(BLOCK), (offset + length) / BLOCK);
    if first < last { first..last } else { 0..0 }
}
