//! Reads ahead of TLS: the TLS library reads 4 KiB at a time, the kernel would give it a quarter of a megabyte.
//!
//! In: a socket. Out: the same bytes. Holds: a buffer only while it has bytes in it.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::buffers::{Buffer, BufferPool};

pub(crate) struct ReadAhead<S> {
    socket: S,
    pool: Arc<BufferPool>,
    ahead: Option<Ahead>,
}

struct Ahead {
    buffer: Buffer,
    start: usize,
    end: usize,
}

impl<S> ReadAhead<S> {
    pub(crate) fn new(socket: S, pool: Arc<BufferPool>) -> Self {
        Self { socket, pool, ahead: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_none() {
            let mut buffer = this.pool.take();
            let mut read = ReadBuf::new(&mut buffer);
            ready!(Pin::new(&mut this.socket).poll_read(cx, &mut read))?;
            let end = read.filled().len();
            this.ahead = Some(Ahead { buffer, start: 0, end });
        }
        if let Some(ahead) = &mut this.ahead {
            let take = into.remaining().min(ahead.end - ahead.start);
            into.put_slice(&ahead.buffer[ahead.start..ahead.start + take]);
            ahead.start += take;
            if ahead.start == ahead.end {
                this.ahead = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}
