//! Data in both directions: writes from the client, reads to it.

use std::{io, mem, ops::Range, sync::Arc};

use futures::StreamExt as _;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    time::Instant,
};

use super::{HELD_UP, HOLD_UP_LASTS, SMALL_READ, Session, SessionError, slow::Done};
use crate::{
    allocation::BLOCK,
    buffers::{BUFFER, Buffer},
    protocol::{Errno, REQUEST_LEN, Request, command_flag},
    volume::Ahead,
};

/// Pieces of large writes that wait while a batch of them is written: enough to keep the file busy.
const MAX_PIECES: usize = 8;

/// A write too large for the buffer, or one that is refused and whose data must be read past.
pub(super) struct Arriving {
    request: Request,
    /// Bytes of it that have come in.
    taken: u64,
    /// The large write it is, or why it is refused.
    state: Result<u64, Errno>,
}

/// A large write: done when all of it has come in and no piece is on its way.
pub(super) struct LargeWrite {
    request: Request,
    ahead: Arc<Ahead>,
    pieces: usize,
    arrived: bool,
    result: Result<(), Errno>,
}

/// A part of a large write, in the buffer it came in.
pub(super) struct Piece {
    write: u64,
    ahead: Arc<Ahead>,
    at: u64,
    buffer: Buffer,
    range: Range<usize>,
}

impl Piece {
    fn write(self) -> (u64, Result<(), Errno>) {
        (self.write, self.ahead.volume().write(self.at, &self.buffer[self.range], false))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// Starts on a write. `false` when more of it must come in first.
    pub(super) async fn begin_write(&mut self, request: Request) -> Result<bool, SessionError> {
        let length = request.length as usize;
        let whole = REQUEST_LEN + length;
        let checked = request.check(self.export.size);
        if checked.is_ok() && whole <= BUFFER {
            if self.input.available().len() < whole {
                return Ok(false);
            }
            self.write_whole(request).await?;
            self.input.consume(whole);
            return Ok(true);
        }
        self.input.consume(REQUEST_LEN);
        let claimed = checked.and_then(|()| self.export.volume.claim_ahead(request.offset, length as u64));
        let state = claimed.map(|ahead| self.begin_large(request, ahead));
        self.arriving = Some(Arriving { request, taken: 0, state });
        Ok(true)
    }

    /// A write whose data lies in the buffer behind its header.
    async fn write_whole(&mut self, request: Request) -> Result<(), SessionError> {
        let data = &self.input.available()[REQUEST_LEN..REQUEST_LEN + request.length as usize];
        let wait =
            request.has(command_flag::FUA) || self.held_up_until.is_some_and(|until| Instant::now() < until);
        if !wait {
            let began = Instant::now();
            let written = self.export.volume.try_write(request.offset, data);
            let ended = Instant::now();
            if ended - began > HELD_UP {
                self.held_up_until = Some(ended + HOLD_UP_LASTS);
            }
            if let Some(done) = written {
                return self.reply(request, done).await;
            }
        }
        let data = data.to_vec();
        self.wait_elsewhere(request, data).await
    }

    fn begin_large(&mut self, request: Request, ahead: Ahead) -> u64 {
        self.begun += 1;
        let write = LargeWrite { request, ahead: Arc::new(ahead), pieces: 0, arrived: false, result: Ok(()) };
        self.large.insert(self.begun, write);
        self.begun
    }

    /// Takes what has come in of a large write. `true` when all of it has.
    pub(super) async fn take_payload(&mut self) -> Result<bool, SessionError> {
        let Some(mut arriving) = self.arriving.take() else { return Ok(true) };
        let left = u64::from(arriving.request.length) - arriving.taken;
        let here = (self.input.available().len() as u64).min(left);
        let take = match arriving.state {
            Err(_) => {
                self.input.consume(usize::try_from(here).expect("a part of the buffer"));
                here
            }
            Ok(write) => {
                let at = arriving.request.offset + arriving.taken;
                let take = piece(at, here, left);
                if take > 0 {
                    self.write_piece(write, at, usize::try_from(take).expect("a part of the buffer")).await?;
                }
                take
            }
        };
        arriving.taken += take;
        if arriving.taken < u64::from(arriving.request.length) {
            self.arriving = Some(arriving);
            return Ok(false);
        }
        match arriving.state {
            Err(errno) => self.fail(arriving.request, errno).await?,
            Ok(write) => {
                if let Some(large) = self.large.get_mut(&write) {
                    large.arrived = true;
                }
                self.finish_large(write).await?;
            }
        }
        Ok(true)
    }

    /// Has a piece written while the next ones come in.
    async fn write_piece(&mut self, write: u64, at: u64, bytes: usize) -> Result<(), SessionError> {
        while self.pieces.len() >= MAX_PIECES {
            if let Some(done) = self.waiting.next().await {
                Box::pin(self.finish(done)).await?;
            }
        }
        let (buffer, range) = self.input.detach(bytes, &self.pool);
        let Some(large) = self.large.get_mut(&write) else { return Ok(()) };
        large.pieces += 1;
        self.pieces.push(Piece { write, ahead: Arc::clone(&large.ahead), at, buffer, range });
        self.write_pieces();
        Ok(())
    }

    /// Hands all pieces to one thread, unless one has some already: a file takes one write at a time, and what comes in
    /// meanwhile makes the next batch, so that a slow file costs fewer changes of thread, not more.
    fn write_pieces(&mut self) {
        if self.writing || self.pieces.is_empty() {
            return;
        }
        self.writing = true;
        let pieces = mem::take(&mut self.pieces);
        let work = move || Done::Pieces(pieces.into_iter().map(Piece::write).collect());
        self.waiting.push(tokio::task::spawn_blocking(work));
    }

    pub(super) async fn finish_pieces(
        &mut self,
        results: Vec<(u64, Result<(), Errno>)>,
    ) -> Result<(), SessionError> {
        self.writing = false;
        self.write_pieces();
        for (write, result) in results {
            if let Some(large) = self.large.get_mut(&write) {
                large.pieces -= 1;
                large.result = large.result.and(result);
            }
            self.finish_large(write).await?;
        }
        Ok(())
    }

    /// Answers a large write if nothing of it is missing.
    async fn finish_large(&mut self, write: u64) -> Result<(), SessionError> {
        if self.large.get(&write).is_none_or(|large| !large.arrived || large.pieces > 0) {
            return Ok(());
        }
        let Some(LargeWrite { request, ahead, result, .. }) = self.large.remove(&write) else {
            return Ok(());
        };
        if result.is_ok() {
            ahead.complete();
        }
        if result.is_ok() && request.has(command_flag::FUA) {
            return Box::pin(self.wait_elsewhere(request, Vec::new())).await;
        }
        self.reply(request, result).await
    }

    pub(super) async fn read(&mut self, request: Request) -> Result<(), SessionError> {
        if let Some(hole) = self.hole(&request) {
            return self.put(&hole).await;
        }
        if request.length > SMALL_READ {
            return self.read_large(request).await;
        }
        let header = self.read_header(&request);
        let length = request.length as usize;
        self.make_room(header.len() + length).await?;
        let space = self.output.space(&self.pool);
        match self.export.volume.try_read(request.offset, &mut space[header.len()..header.len() + length]) {
            Ok(true) => {
                space[..header.len()].copy_from_slice(&header);
                self.output.extend(header.len() + length);
                Ok(())
            }
            Ok(false) => self.wait_elsewhere(request, Vec::new()).await,
            Err(errno) => self.fail(request, errno).await,
        }
    }

    /// Sends a large read piece by piece. What the page cache holds is read on the spot; once a piece has to come from
    /// the disk, the next ones are read while one is sent.
    async fn read_large(&mut self, request: Request) -> Result<(), SessionError> {
        self.output.send(&mut self.stream).await?;
        let header = self.read_header(&request);
        let end = request.offset + u64::from(request.length);
        let front = header.len();
        let first = Span { at: request.offset, bytes: share(end - request.offset, BUFFER - front), end };
        let mut buffer = self.pool.take();
        let mut cold = false;
        let mut found = match self.export.volume.try_read(first.at, &mut buffer[front..front + first.bytes]) {
            Ok(true) => Ok(buffer),
            Ok(false) => {
                cold = true;
                self.read_elsewhere(first, front, buffer).await?
            }
            Err(errno) => Err(errno),
        };
        let (mut span, mut front) = (first, front);
        if let Ok(buffer) = &mut found {
            buffer[..front].copy_from_slice(&header);
        }
        loop {
            let buffer = match found {
                Ok(buffer) => buffer,
                Err(errno) if span.at == request.offset => return self.fail(request, errno).await,
                Err(_) => return Err(SessionError::HalfRead),
            };
            let next = Span { at: span.at + span.bytes as u64, bytes: 0, end };
            let next = Span { bytes: share(end - next.at, BUFFER), ..next };
            let sent = &buffer[..front + span.bytes];
            if next.bytes == 0 {
                self.stream.write_all(sent).await?;
                self.stream.flush().await?;
                return Ok(());
            }
            found = if cold {
                let reading = self.read_elsewhere(next, 0, self.pool.take());
                let (sent, read) = tokio::join!(self.stream.write_all(sent), reading);
                sent?;
                read?
            } else {
                self.stream.write_all(sent).await?;
                let mut buffer = buffer;
                match self.export.volume.try_read(next.at, &mut buffer[..next.bytes]) {
                    Ok(true) => Ok(buffer),
                    Ok(false) => {
                        cold = true;
                        self.read_elsewhere(next, 0, buffer).await?
                    }
                    Err(errno) => Err(errno),
                }
            };
            (span, front) = (next, 0);
        }
    }

    /// Reads a piece on a thread that may wait for the disk.
    fn read_elsewhere(
        &self,
        span: Span,
        front: usize,
        mut buffer: Buffer,
    ) -> impl Future<Output = io::Result<Result<Buffer, Errno>>> + use<S> {
        let volume = Arc::clone(&self.export.volume);
        let work = move || {
            let Span { at, bytes, end } = span;
            if !volume.try_read(at, &mut buffer[front..front + bytes])? {
                // The pieces behind this one start on their way while we wait for it.
                volume.prefetch(at, end - at)?;
                volume.read(at, &mut buffer[front..front + bytes])?;
            }
            Ok(buffer)
        };
        let reading = tokio::task::spawn_blocking(work);
        async { reading.await.map_err(io::Error::from) }
    }
}

/// A piece of a large read, and where the read ends.
#[derive(Clone, Copy)]
struct Span {
    at: u64,
    bytes: usize,
    end: u64,
}

fn share(left: u64, most: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(most)
}

/// How much of a large write to take at once: a good part of a buffer, or its end. Pieces end on block borders, since
/// half a block would cost a read of the other half.
fn piece(at: u64, here: u64, left: u64) -> u64 {
    if here == left {
        return here;
    }
    if here < BUFFER as u64 / 2 {
        return 0;
    }
    (at + here) / BLOCK * BLOCK - at
}
