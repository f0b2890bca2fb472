//! A session: requests in, replies out, many at a time.
//!
//! In: the stream after the handshake. Out: replies, in the order they are done. Holds: what has been read and not yet
//! served, what has been answered and not yet sent.
//!
//! ```text
//!   read all there is ─► serve each request ─► send all replies ─► read …
//!                          │ would wait for the disk (cold read, flush, FUA, large trim)
//!                          └──► a thread that may wait ──► reply when done
//! ```
//! One read and one send carry as many requests as the client had in flight, so the cost of a request at depth 32 is
//! about one copy and one `pwrite`.

mod input;
mod output;
mod slow;
mod transfer;

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinHandle,
    time::Instant,
};

use self::{
    input::Input,
    output::Output,
    slow::Done,
    transfer::{Arriving, LargeWrite, Piece},
};
use crate::{
    buffers::BufferPool,
    handshake::{CONTEXT_ID, Export},
    protocol::{
        Command, Errno, MAX_PAYLOAD, REQUEST_LEN, Request, command_flag, data_chunk, error_chunk, hole_chunk,
        simple_reply, status_chunk,
    },
};

/// Requests of one session that may wait for the disk at once.
const MAX_WAITING: usize = 64;
/// Reads up to this size are answered with others in one send; larger ones are sent in pieces.
const SMALL_READ: u32 = 64 << 10;
/// Trims and zeroes up to this size are done on the spot.
const SMALL_TRIM: u32 = 1 << 20;
/// Extents in one answer about block status.
const MAX_EXTENTS: usize = 4096;
/// A write into the page cache that takes this long was held up by the kernel to let the disk catch up; the next ones
/// wait where waiting harms nobody else.
const HELD_UP: Duration = Duration::from_millis(2);
const HOLD_UP_LASTS: Duration = Duration::from_secs(1);

/// Why a session ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("the client lost step: no request where one should start")]
    OutOfStep,
    #[error("the client sent a write of {length} bytes; {MAX_PAYLOAD} is the most")]
    TooLarge { length: u32 },
    #[error("reading failed after a part of the answer was sent")]
    HalfRead,
}

pub(crate) struct Session<S> {
    stream: S,
    export: Export,
    pool: Arc<BufferPool>,
    input: Input,
    output: Output,
    /// A write whose data is still coming in.
    arriving: Option<Arriving>,
    /// Large writes with pieces on their way to the file.
    large: HashMap<u64, LargeWrite>,
    /// Large writes begun; names them.
    begun: u64,
    /// Pieces of large writes that have come in and wait for their turn.
    pieces: Vec<Piece>,
    /// Whether a batch of pieces is among the waiting.
    writing: bool,
    waiting: FuturesUnordered<JoinHandle<Done>>,
    held_up_until: Option<Instant>,
}

/// Whether a session goes on.
#[derive(PartialEq, Eq)]
enum Flow {
    GoOn,
    Disconnect,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    pub(crate) fn new(stream: S, export: Export, pool: Arc<BufferPool>) -> Self {
        Self {
            stream,
            export,
            pool,
            input: Input::default(),
            output: Output::default(),
            arriving: None,
            large: HashMap::new(),
            begun: 0,
            pieces: Vec::new(),
            writing: false,
            waiting: FuturesUnordered::new(),
            held_up_until: None,
        }
    }

    /// Serves until the client leaves.
    pub(crate) async fn run(mut self) -> Result<(), SessionError> {
        loop {
            self.output.send(&mut self.stream).await?;
            let may_idle = self.waiting.is_empty();
            tokio::select! {
                Some(done) = self.waiting.next(), if !may_idle => self.finish(done).await?,
                read = self.input.fill(&mut self.stream, &self.pool, may_idle), if self.waiting.len() < MAX_WAITING => {
                    if read? == 0 || self.serve().await? == Flow::Disconnect {
                        break;
                    }
                }
            }
        }
        while let Some(done) = self.waiting.next().await {
            self.finish(done).await?;
        }
        self.output.send(&mut self.stream).await?;
        Ok(())
    }

    /// Serves every request that has come in whole.
    async fn serve(&mut self) -> Result<Flow, SessionError> {
        loop {
            if self.arriving.is_some() {
                if !self.take_payload().await? {
                    return Ok(Flow::GoOn);
                }
                continue;
            }
            let Some(header) = self.input.peek::<REQUEST_LEN>() else { return Ok(Flow::GoOn) };
            let request = Request::parse(header).ok_or(SessionError::OutOfStep)?;
            if request.command == Command::Disconnect {
                return Ok(Flow::Disconnect);
            }
            if request.payload() > MAX_PAYLOAD {
                return Err(SessionError::TooLarge { length: request.length });
            }
            if request.command == Command::Write {
                if !self.begin_write(request).await? {
                    return Ok(Flow::GoOn);
                }
                continue;
            }
            self.input.consume(REQUEST_LEN);
            match request.check(self.export.size) {
                Ok(()) => self.serve_one(request).await?,
                Err(errno) => self.fail(request, errno).await?,
            }
        }
    }

    async fn serve_one(&mut self, request: Request) -> Result<(), SessionError> {
        let Request { command, offset, length, cookie, .. } = request;
        let volume = &self.export.volume;
        match command {
            Command::Read => self.read(request).await,
            Command::Trim | Command::WriteZeroes
                if length > SMALL_TRIM || request.has(command_flag::FUA | command_flag::NO_HOLE) =>
            {
                self.wait_elsewhere(request, Vec::new()).await
            }
            Command::Trim => {
                let done = volume.trim(offset, length.into());
                self.reply(request, done).await
            }
            Command::WriteZeroes => {
                let done = volume.write_zeroes(offset, length.into(), false);
                self.reply(request, done).await
            }
            Command::Cache => {
                let done = volume.prefetch(offset, length.into());
                self.reply(request, done).await
            }
            Command::BlockStatus if self.export.block_status => {
                let most = if request.has(command_flag::REQ_ONE) { 1 } else { MAX_EXTENTS };
                let extents = volume.extents(offset, length, most);
                self.put(&status_chunk(cookie, CONTEXT_ID, &extents)).await
            }
            Command::BlockStatus => self.fail(request, Errno::Invalid).await,
            Command::Flush => self.wait_elsewhere(request, Vec::new()).await,
            Command::Write | Command::Disconnect | Command::Unknown => {
                unreachable!(
                    "writes and disconnects are served before, unknown commands are refused by the check"
                )
            }
        }
    }

    /// Adds a reply, after sending what is there if it does not fit.
    async fn put(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        self.make_room(bytes.len()).await?;
        self.output.space(&self.pool)[..bytes.len()].copy_from_slice(bytes);
        self.output.extend(bytes.len());
        Ok(())
    }

    async fn make_room(&mut self, bytes: usize) -> Result<(), SessionError> {
        if self.output.room() < bytes {
            self.output.send(&mut self.stream).await?;
        }
        Ok(())
    }

    async fn reply(&mut self, request: Request, done: Result<(), Errno>) -> Result<(), SessionError> {
        match done {
            Ok(()) => self.put(&simple_reply(request.cookie, None)).await,
            Err(errno) => self.fail(request, errno).await,
        }
    }

    async fn fail(&mut self, request: Request, errno: Errno) -> Result<(), SessionError> {
        // Answers to reads and block status have one form once structured replies were agreed.
        let structured =
            self.export.structured && matches!(request.command, Command::Read | Command::BlockStatus);
        if structured {
            return self.put(&error_chunk(request.cookie, errno)).await;
        }
        self.put(&simple_reply(request.cookie, Some(errno))).await
    }

    /// The bytes in front of a read's data.
    fn read_header(&self, request: &Request) -> Vec<u8> {
        if self.export.structured {
            data_chunk(request.cookie, request.offset, request.length)
        } else {
            simple_reply(request.cookie, None).to_vec()
        }
    }

    /// The answer to a read of nothing but a hole, if the client understands one.
    fn hole(&self, request: &Request) -> Option<Vec<u8>> {
        let hole = self.export.structured
            && request.length > 0
            && self.export.volume.is_hole(request.offset, request.length.into());
        hole.then(|| hole_chunk(request.cookie, request.offset, request.length))
    }
}
