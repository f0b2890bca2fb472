//! A layer's file as what is written to it and read from it: as it is, or encrypted.
//!
//! In: bytes anywhere in the file. Out: bytes. Holds: the file, and the cipher it is encrypted with. Not here: which blocks
//! hold data (`layer`), who may write when (`Volume`).
//!
//! ```text
//!   plain       bytes ──────────────────────────────────► file
//!   encrypted   whole blocks ─► copied ─► encrypted ────► file      a part of a block: read, changed, written whole,
//!               whole blocks ◄─ decrypted in place ◄───── file      while nobody else writes
//! ```
//! A block of zeroes in an encrypted file was never written and reads as zeroes: no data encrypts to that. So holes, blocks
//! that the file system has set apart, and such as a crash has left behind are what they are in a plain file.

use std::{cell::RefCell, fs::File, net::TcpStream, ops::Range, sync::Arc};

use rustix::io::Errno as Os;

use super::{syscalls, touched};
use crate::{allocation::BLOCK, cipher::Cipher, protocol::Errno};

pub(super) struct Medium {
    file: File,
    cipher: Option<Arc<Cipher>>,
}

/// Bytes that are encrypted at once.
const PIECE: usize = 256 << 10;

thread_local! {
    /// What is being encrypted, or read in whole blocks to take a part of.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Works with this many bytes of the thread's own.
fn with_scratch<T>(bytes: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < bytes {
            scratch.resize(bytes, 0);
        }
        work(&mut scratch[..bytes])
    })
}

fn is_whole(offset: u64, length: usize) -> bool {
    offset.is_multiple_of(BLOCK) && (length as u64).is_multiple_of(BLOCK)
}

impl Medium {
    pub(super) fn new(file: File, cipher: Option<Arc<Cipher>>) -> Self {
        Self { file, cipher }
    }

    /// The file itself, for what is no content: its length, its holes, its blocks as a whole.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.cipher.is_some()
    }

    /// Whether this can be written without what is around it.
    pub(super) fn takes(&self, offset: u64, length: usize) -> bool {
        self.cipher.is_none() || is_whole(offset, length)
    }

    /// Writes; of an encrypted file, whole blocks.
    pub(super) fn write_all(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), Errno> {
        let Some(cipher) = &self.cipher else {
            return syscalls::write_all(&self.file, offset, data, durable);
        };
        if !is_whole(offset, data.len()) {
            return Err(Errno::Invalid);
        }
        let mut at = offset;
        data.chunks(PIECE).try_for_each(|piece| {
            with_scratch(piece.len(), |encrypted| {
                encrypted.copy_from_slice(piece);
                cipher.encrypt(at / BLOCK, encrypted);
                syscalls::write_all(&self.file, at, encrypted, durable)
            })?;
            at += piece.len() as u64;
            Ok(())
        })
    }

    /// Reads what the page cache holds. `false` when it does not hold all of it.
    pub(super) fn read_cached(&self, offset: u64, into: &mut [u8]) -> bool {
        let read = |at, into: &mut [u8]| match syscalls::read_cached(&self.file, at, into) {
            true => Ok(()),
            false => Err(Errno::Io),
        };
        self.read_with(offset, into, read).is_ok()
    }

    pub(super) fn read_exact(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.read_with(offset, into, |at, into| syscalls::read_exact(&self.file, at, into))
    }

    fn read_with(
        &self,
        offset: u64,
        into: &mut [u8],
        read: impl Fn(u64, &mut [u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let Some(cipher) = &self.cipher else { return read(offset, into) };
        let decrypted = |at: u64, into: &mut [u8]| {
            read(at, into)?;
            cipher.decrypt(at / BLOCK, into);
            Ok(())
        };
        if is_whole(offset, into.len()) {
            return decrypted(offset, into);
        }
        let mut at = offset;
        let mut left = into;
        while !left.is_empty() {
            let skipped = usize::try_from(at % BLOCK).expect("less than a block");
            let (part, rest) = left.split_at_mut(left.len().min(PIECE - skipped));
            let blocks = touched(at, part.len() as u64);
            let bytes = usize::try_from((blocks.end - blocks.start) * BLOCK).expect("a piece fits in memory");
            with_scratch(bytes, |whole| {
                decrypted(blocks.start * BLOCK, whole)?;
                part.copy_from_slice(&whole[skipped..skipped + part.len()]);
                Ok(())
            })?;
            at += part.len() as u64;
            left = rest;
        }
        Ok(())
    }

    /// Sends a range of a plain file to a socket straight from the page cache.
    pub(super) fn send_all(&self, offset: u64, length: u64, socket: &TcpStream) -> Result<(), Errno> {
        match self.cipher {
            None => syscalls::send_all(&self.file, offset, length, socket),
            Some(_) => Err(Errno::Invalid),
        }
    }

    pub(super) fn data_ranges(&self, start: u64, end: u64) -> Result<Vec<Range<u64>>, Os> {
        syscalls::data_ranges(&self.file, start, end)
    }
}
