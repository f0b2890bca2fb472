//! A volume: a sparse file, what it stands on, and the rules that keep its accounting exact.
//!
//! In: reads, writes, trims and zeroes, already checked against the volume's size. Out: bytes, or an error for the
//! client. Holds: its top layer, which is another one after a snapshot.
//!
//! ```text
//!   write:  gate (shared)   ─► map: count holes ─► account: claim or ENOSPC ─► map: mark ─► pwrite
//!   trim:   gate (alone)    ─► punch            ─► map: unmark              ─► account: release
//!   failed write, lost client:  gate (alone)    ─► look at the file: what is really there
//!   snapshot: gate (alone)  ─► sync             ─► written down             ─► a new top layer
//! ```
//! The gate keeps a trim from freeing a block between a writer's look at the map and its write, and a write that fills a
//! block of an encrypted volume in part from losing what others write beside it.

mod create;
mod flush;
mod layer;
mod medium;
mod syscalls;
#[cfg(test)]
mod tests;

use std::{
    net::TcpStream,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use arc_swap::ArcSwap;
use parking_lot::RwLock;

use crate::{
    allocation::{BLOCK, Run},
    figures::Figures,
    protocol::Errno,
};

pub(crate) use self::{
    create::{OpenVolumeError, Progress, create_file, is_exact, take_over_piece},
    layer::Layer,
};

pub(crate) struct Volume {
    pub(crate) name: String,
    top: ArcSwap<Layer>,
    size: AtomicU64,
    /// A snapshot: nobody writes to it.
    pub(crate) read_only: bool,
    gate: RwLock<()>,
    users: AtomicUsize,
    pub(crate) figures: Figures,
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

/// A session that has a volume open.
pub(crate) struct User(Arc<Volume>);

impl Drop for User {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How much one trim punches before it lets writers through again.
const PUNCH: u64 = 128 << 20;

/// Blocks that are read at once to be sent elsewhere.
const EXPORTED: u64 = (1 << 20) / BLOCK;

impl Volume {
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Whether what was acknowledged may be lost, so that nothing more is.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Closes this volume for good. What its layers hold is on the books until they are closed too.
    pub(crate) fn retire(&self) {
        let _alone = self.gate.write();
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn top(&self) -> Arc<Layer> {
        self.top.load_full()
    }

    /// Counts a session as long as what is returned lives.
    pub(crate) fn user(self: &Arc<Self>) -> User {
        self.users.fetch_add(1, Ordering::AcqRel);
        User(Arc::clone(self))
    }

    /// Sessions that have it open.
    pub(crate) fn users(&self) -> usize {
        self.users.load(Ordering::Acquire)
    }

    /// Whether it answers nothing any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn check_open(&self) -> Result<(), Errno> {
        if self.is_closed() { Err(Errno::Shutdown) } else { Ok(()) }
    }

    fn check_writable(&self) -> Result<(), Errno> {
        self.check_open()?;
        match self.read_only {
            true => Err(Errno::Permission),
            false if self.is_broken() => Err(Errno::Io),
            false => Ok(()),
        }
    }

    /// Claims all blocks a write will need before its data is read, so that it is refused whole or not at all.
    pub(crate) fn claim_ahead(self: &Arc<Self>, offset: u64, length: u64) -> Result<Ahead, Errno> {
        let blocks = touched(offset, length);
        let _gate = self.gate.read();
        self.check_writable()?;
        let claimed = self.top.load().claim(blocks.clone())?;
        Ok(Ahead { volume: Arc::clone(self), blocks, written: (claimed == 0).into() })
    }

    /// Writes; with `durable`, it is on disk when this returns.
    pub(crate) fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), Errno> {
        match self.top.load().medium.takes(offset, data.len()) {
            true => self.write_as_it_is(offset, data, durable),
            false => self.write_in_whole_blocks(offset, data, durable),
        }
    }

    /// Writes what begins or ends within a block of an encrypted volume.
    fn write_in_whole_blocks(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), Errno> {
        let blocks = touched(offset, data.len() as u64);
        let claimed = {
            let _gate = self.gate.read();
            self.check_writable()?;
            self.top.load().claim(blocks.clone())?
        };
        let parts = by_blocks(offset, data).into_iter().filter(|(_, part)| !part.is_empty());
        let written = parts.into_iter().try_for_each(|(at, part)| {
            if self.top.load().medium.takes(at, part.len()) {
                return self.write_as_it_is(at, part, false);
            }
            let _alone = self.gate.write();
            self.check_writable()?;
            self.top.load().patch(at, part)
        });
        let written = written.and_then(|()| if durable { self.flush() } else { Ok(()) });
        written.inspect_err(|_| {
            if claimed > 0 {
                self.recount(blocks);
            }
        })
    }

    fn write_as_it_is(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), Errno> {
        let length = data.len() as u64;
        loop {
            let gate = self.gate.read();
            self.check_writable()?;
            let top = self.top.load();
            let Some(block) = top.torn(offset, length) else {
                let blocks = touched(offset, length);
                let claimed = top.claim(blocks.clone())?;
                let written = top.medium.write_all(offset, data, durable);
                if written.is_ok() {
                    top.in_place(blocks.clone());
                }
                drop(gate);
                return written.inspect_err(|errno| {
                    if claimed > 0 {
                        self.recount(blocks);
                    }
                    // A full disk is told to the client; a failed sync may have lost what others were promised.
                    if durable && *errno == Errno::Io {
                        self.broken.store(true, Ordering::Release);
                    }
                });
            };
            drop(gate);
            self.copy_up(block, offset, length)?;
        }
    }

    /// Fetches a block from below that a write fills in part, unless somebody else did meanwhile.
    fn copy_up(&self, block: u64, offset: u64, length: u64) -> Result<(), Errno> {
        let _alone = self.gate.write();
        self.check_writable()?;
        let top = self.top.load();
        if top.torn(offset, length) == Some(block) { top.copy_up(block) } else { Ok(()) }
    }

    /// Puts map and account right for a range by looking at the file.
    fn recount(&self, blocks: Range<u64>) {
        let _alone = self.gate.write();
        // A closed volume's books are closed too.
        if self.check_open().is_ok() {
            self.top.load().recount(blocks);
        }
    }

    /// Whether a range holds no data at all, and so reads as zeroes.
    pub(crate) fn is_hole(&self, offset: u64, length: u64) -> bool {
        self.top.load().is_hole(touched(offset, length))
    }

    /// Reads if that needs no waiting for the disk. `Ok(false)` when it would.
    pub(crate) fn try_read(&self, offset: u64, into: &mut [u8]) -> Result<bool, Errno> {
        self.check_open()?;
        let top = self.top.load();
        if top.is_hole(touched(offset, into.len() as u64)) {
            into.fill(0);
            return Ok(true);
        }
        if top.has_below() {
            return top.read(offset, into, &mut |medium, at, part| Ok(medium.read_cached(at, part)));
        }
        Ok(top.medium.read_cached(offset, into))
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.check_open()?;
        let top = self.top.load();
        if top.has_below() || self.read_only {
            return top.read(offset, into, &mut layer::whole).map(|_| ());
        }
        top.medium.read_exact(offset, into)
    }

    /// Whether all of it is in one file, as it is.
    pub(crate) fn is_flat(&self) -> bool {
        let top = self.top.load();
        !self.read_only && !top.has_below() && !top.medium.is_encrypted()
    }

    /// Sends a range of a flat volume to a socket straight from the page cache.
    pub(crate) fn send(&self, offset: u64, length: u64, socket: &TcpStream) -> Result<(), Errno> {
        self.check_open()?;
        self.top.load().medium.send_all(offset, length, socket)
    }

    /// Starts reading a range into the page cache.
    pub(crate) fn prefetch(&self, offset: u64, length: u64) -> Result<(), Errno> {
        self.check_open()?;
        for layer in self.top().chain() {
            syscalls::prefetch(layer.medium.file(), offset, length);
        }
        Ok(())
    }

    /// Frees the whole blocks of a range. A hint: what cannot be freed stays.
    pub(crate) fn trim(&self, offset: u64, length: u64) -> Result<(), Errno> {
        self.punch(whole(offset, length), false).map(|_| ())
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
        if !self.punch(inner.clone(), true)? {
            self.zero_data(inner.start * BLOCK..inner.end * BLOCK)?;
        }
        Ok(())
    }

    /// Overwrites with zeroes what holds data; holes are zeroes already.
    fn zero_data(&self, bytes: Range<u64>) -> Result<(), Errno> {
        let mut at = bytes.start;
        while at < bytes.end {
            let block = at / BLOCK;
            let run = self.top.load().runs(block..bytes.end.div_ceil(BLOCK), 1);
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

    /// Frees blocks. What lies below would come to light again, so there it is overwritten with zeroes if `zeroing`, and
    /// left otherwise. `Ok(false)` when the file system cannot.
    fn punch(&self, blocks: Range<u64>, zeroing: bool) -> Result<bool, Errno> {
        let mut at = blocks.start;
        while at < blocks.end {
            let end = (at + PUNCH / BLOCK).min(blocks.end);
            let mut covering = Vec::new();
            {
                let _alone = self.gate.write();
                self.check_writable()?;
                let top = self.top.load();
                let below = match top.below() {
                    Some(below) => below.runs(at..end, usize::MAX),
                    None => vec![Run { blocks: end - at, data: false }],
                };
                for Run { blocks, data } in below {
                    if data {
                        covering.push(at * BLOCK..(at + blocks) * BLOCK);
                    } else if !top.punch(at..at + blocks)? {
                        return Ok(false);
                    }
                    at += blocks;
                }
            }
            if zeroing {
                covering.into_iter().try_for_each(|bytes| self.zero_data(bytes))?;
            }
        }
        Ok(true)
    }

    /// The next blocks from this byte on that hold data, at most a mebibyte of them.
    pub(crate) fn next_piece(&self, from: u64) -> Result<Option<(u64, Vec<u8>)>, Errno> {
        let end = self.size() / BLOCK;
        let mut block = from.div_ceil(BLOCK);
        while block < end {
            let run = self.top.load().runs(block..end, 1);
            let Some(Run { blocks, data }) = run.first().copied() else { break };
            if data {
                let mut bytes = vec![0; usize::try_from(blocks.min(EXPORTED) * BLOCK).expect("a mebibyte")];
                self.read(block * BLOCK, &mut bytes)?;
                return Ok(Some((block * BLOCK, bytes)));
            }
            block += blocks;
        }
        Ok(None)
    }

    /// The range as extents of at most `most` runs: length and whether it holds data.
    pub(crate) fn extents(&self, offset: u64, length: u32, most: usize) -> Vec<(u32, bool)> {
        let end = offset + u64::from(length);
        let mut at = offset;
        let runs = self.top.load().runs(touched(offset, u64::from(length)), most);
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

/// Bytes in three parts: up to the first border of blocks, whole blocks, and what is left.
fn by_blocks(offset: u64, data: &[u8]) -> [(u64, &[u8]); 3] {
    let length = data.len() as u64;
    let head = (offset.next_multiple_of(BLOCK) - offset).min(length);
    let body = (length - head) / BLOCK * BLOCK;
    let at = |bytes: u64| usize::try_from(bytes).expect("it is within the data");
    let (first, rest) = data.split_at(at(head));
    let (middle, last) = rest.split_at(at(body));
    [(offset, first), (offset + head, middle), (offset + head + body, last)]
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
