//! What has been received and not yet served.

use std::{io, sync::Arc};

use crate::{
    attention::{Patience, Received},
    buffers::{BUFFER, Buffer, BufferPool},
    wire::Wire,
};

#[derive(Default)]
pub(super) struct Input {
    buffer: Option<Buffer>,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn available(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.start..self.end])
    }

    pub(super) fn peek<const N: usize>(&self) -> Option<&[u8; N]> {
        self.available().first_chunk()
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.end);
    }

    /// Receives into the free part.
    pub(super) fn fill(
        &mut self,
        wire: &mut Wire,
        patience: Patience,
        pool: &Arc<BufferPool>,
    ) -> io::Result<Received> {
        self.fill_to(BUFFER, wire, patience, pool)
    }

    /// Receives until `wanted` bytes are available, or as many as fit.
    pub(super) fn fill_to(
        &mut self,
        wanted: usize,
        wire: &mut Wire,
        patience: Patience,
        pool: &Arc<BufferPool>,
    ) -> io::Result<Received> {
        self.make_room();
        let buffer = self.buffer.get_or_insert_with(|| pool.take());
        let end = self.start.saturating_add(wanted).min(BUFFER);
        let received = wire.receive(&mut buffer[self.end..end], patience, pool)?;
        if let Received::Bytes(bytes) = received {
            self.end += bytes;
        }
        Ok(received)
    }

    /// Gives the buffer back if nothing is in it.
    pub(super) fn release(&mut self) {
        if self.start == self.end {
            *self = Self::default();
        }
    }

    /// Moves what is left to the front, if there is little room behind it.
    fn make_room(&mut self) {
        let Some(buffer) = &mut self.buffer else { return };
        if self.start == self.end || BUFFER - self.end < BUFFER / 2 {
            buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }
}
