//! What has been answered and not yet sent.

use std::{io, sync::Arc};

use crate::{
    buffers::{BUFFER, Buffer, BufferPool},
    wire::Wire,
};

#[derive(Default)]
pub(super) struct Output {
    buffer: Option<Buffer>,
    end: usize,
}

impl Output {
    pub(super) fn room(&self) -> usize {
        BUFFER - self.end
    }

    /// The free part, to be filled and then counted with [`Self::extend`].
    pub(super) fn space(&mut self, pool: &Arc<BufferPool>) -> &mut [u8] {
        &mut self.buffer.get_or_insert_with(|| pool.take())[self.end..]
    }

    pub(super) fn extend(&mut self, bytes: usize) {
        self.end += bytes;
    }

    pub(super) fn send(&mut self, wire: &mut Wire) -> io::Result<()> {
        let end = std::mem::take(&mut self.end);
        match &self.buffer {
            Some(buffer) if end > 0 => wire.send(&buffer[..end]),
            Some(_) | None => Ok(()),
        }
    }

    /// Gives the buffer back; all is sent.
    pub(super) fn release(&mut self) {
        debug_assert_eq!(self.end, 0);
        self.buffer = None;
    }
}
