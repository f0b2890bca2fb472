//! What has been answered and not yet sent.

use std::{io, sync::Arc};

use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::buffers::{BUFFER, Buffer, BufferPool};

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

    pub(super) async fn send<S: AsyncWrite + Unpin>(&mut self, stream: &mut S) -> io::Result<()> {
        let Some(buffer) = self.buffer.take() else { return Ok(()) };
        let end = std::mem::take(&mut self.end);
        if end > 0 {
            stream.write_all(&buffer[..end]).await?;
            stream.flush().await?;
        }
        Ok(())
    }
}
