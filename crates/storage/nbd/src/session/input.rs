//! What has been read and not yet served.

use std::{io, ops::Range, sync::Arc, time::Duration};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::{
    buffers::{Buffer, BufferPool},
    protocol::REQUEST_LEN,
};

/// A session silent for this long gives its buffer back.
const IDLE: Duration = Duration::from_millis(200);

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

    /// Gives the first `bytes` away in their buffer, and goes on with the rest in another.
    pub(super) fn detach(&mut self, bytes: usize, pool: &Arc<BufferPool>) -> (Buffer, Range<usize>) {
        let taken = self.start..self.start + bytes;
        let mut next = pool.take();
        let left = self.end - taken.end;
        next[..left].copy_from_slice(&self.available()[bytes..]);
        (self.start, self.end) = (0, left);
        let given = self.buffer.replace(next).unwrap_or_else(|| pool.take());
        (given, taken)
    }

    /// Reads what there is; 0 at the end of the stream. Dropped half-way, it loses nothing.
    pub(super) async fn fill<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        pool: &Arc<BufferPool>,
        may_idle: bool,
    ) -> io::Result<usize> {
        self.compact();
        if let Some(buffer) = &mut self.buffer {
            let read = stream.read(&mut buffer[self.end..]);
            if self.end > 0 || !may_idle {
                let read = read.await?;
                self.end += read;
                return Ok(read);
            }
            if let Ok(read) = tokio::time::timeout(IDLE, read).await {
                self.end = read?;
                return Ok(self.end);
            }
            self.buffer = None;
        }
        let mut first = [0; REQUEST_LEN];
        let read = stream.read(&mut first).await?;
        let mut buffer = pool.take();
        buffer[..read].copy_from_slice(&first[..read]);
        self.buffer = Some(buffer);
        self.end = read;
        Ok(read)
    }

    /// Moves what is left to the front.
    fn compact(&mut self) {
        if let Some(buffer) = &mut self.buffer
            && self.start > 0
        {
            buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }
}
