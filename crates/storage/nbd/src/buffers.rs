//! Buffers that are there while they are needed: an idle connection holds none.
//!
//! In: sessions asking for one. Out: a buffer of [`BUFFER`] bytes, given back when dropped. Holds: a few spare ones.

use std::{
    mem,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use parking_lot::Mutex;

/// Room for 64 requests of 4 KiB: more than any client keeps in flight on one connection, and still within a core's
/// cache.
pub(crate) const BUFFER: usize = 256 << 10;
/// Spare buffers kept: enough for the sessions that run at the same moment, not for all that are connected.
const SPARE: usize = 32;

#[derive(Default)]
pub(crate) struct BufferPool {
    spare: Mutex<Vec<Box<[u8]>>>,
}

pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    pool: Arc<BufferPool>,
}

impl BufferPool {
    pub(crate) fn take(self: &Arc<Self>) -> Buffer {
        let spare = self.spare.lock().pop();
        Buffer { bytes: spare.unwrap_or_else(|| vec![0; BUFFER].into()), pool: Arc::clone(self) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut spare = self.pool.spare.lock();
        if spare.len() < SPARE {
            spare.push(mem::take(&mut self.bytes));
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}
