//! A session: requests in, replies out, many at a time.
//!
//! In: the connection after the handshake. Out: replies, in the order they are done. Holds: what has been received and
//! not yet served, what has been answered and not yet sent.
//!
//! ```text
//!   receive all there is ─► serve each request ─► send all replies ─► receive …
//!                             │ would wait for the disk (cold read, flush, FUA, large trim)
//!                             └──► a thread that may wait ──► reply when done
//! ```
//! A session has a thread of its own while its client talks, and blocks in the system calls: a request alone costs one
//! receive, one call on the file and one send. One receive and one send carry as many requests as the client had in
//! flight. A client that falls silent keeps no thread (`threads` waits for it) and no buffer.

mod input;
mod output;
mod transfer;
mod waiting;

use std::{io, net::TcpStream, sync::Arc, thread, time::Instant};

use storage_provider::ConsumerId;

use self::{
    input::Input,
    output::Output,
    waiting::{Done, Waiting},
};
use crate::{
    attention::{Patience, Received},
    buffers::BufferPool,
    disk::Disk,
    handshake::{CONTEXT_ID, Export},
    pace::Pace,
    protocol::{
        Command, Errno, MAX_PAYLOAD, REQUEST_LEN, Request, command_flag, data_chunk, error_chunk, hole_chunk,
        simple_reply, status_chunk,
    },
    vault::Share,
    wire::Wire,
};

/// Trims and zeroes up to this size are done on the spot.
const SMALL_TRIM: u32 = 1 << 20;
/// Extents in one answer about block status.
const MAX_EXTENTS: usize = 4096;

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

pub(crate) struct Session {
    wire: Wire,
    export: Export,
    pool: Arc<BufferPool>,
    input: Input,
    output: Output,
    waiting: Waiting,
    /// When the request that is being answered was begun.
    began: Instant,
    pace: Arc<Pace>,
    /// The request that came first is within the consumer's pace.
    paid: bool,
}

/// Why a session needs its thread no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The client is silent. Run it again when it has sent something.
    Silent,
    /// The client has left.
    Over,
}

/// Whether a session goes on.
#[derive(PartialEq, Eq)]
enum Flow {
    GoOn,
    Disconnect,
}

impl Session {
    pub(crate) fn new(
        wire: Wire,
        export: Export,
        pool: Arc<BufferPool>,
        disk: Disk,
        consumer: ConsumerId,
        pace: Arc<Pace>,
    ) -> Self {
        let (input, output) = (Input::default(), Output::default());
        let waiting = Waiting::new(disk, consumer);
        Self { wire, export, pool, input, output, waiting, began: Instant::now(), pace, paid: false }
    }

    /// The socket, for whoever waits for the client or ends the session.
    pub(crate) fn socket(&self) -> &Arc<TcpStream> {
        self.wire.socket()
    }

    /// Serves until the client leaves or falls silent. Blocks; nothing is under way when it returns.
    pub(crate) fn run(&mut self) -> Result<Rest, SessionError> {
        self.export.volume.figures.used();
        let mut rest = self.serve_while_busy();
        while !self.waiting.is_empty() {
            let done = self.waiting.wait(None, false)?;
            rest = rest.and_then(|rest| self.finish(done).map(|()| rest));
        }
        self.export.volume.figures.used();
        let rest = rest?;
        self.output.send(&mut self.wire)?;
        self.input.release();
        self.output.release();
        Ok(rest)
    }

    fn serve_while_busy(&mut self) -> Result<Rest, SessionError> {
        loop {
            self.output.send(&mut self.wire)?;
            let patience = if self.waiting.is_empty() { Patience::First } else { self.wait()? };
            if self.waiting.is_full() {
                continue;
            }
            match self.input.fill(&mut self.wire, patience, &self.pool)? {
                Received::Bytes(_) if self.serve()? == Flow::GoOn => {}
                Received::Silence if patience == Patience::None => {}
                Received::Silence => return Ok(Rest::Silent),
                Received::Bytes(_) | Received::End => return Ok(Rest::Over),
            }
        }
    }

    /// Waits for the client and for the requests on other threads; then, for the client, no more.
    fn wait(&mut self) -> Result<Patience, SessionError> {
        let held = self.wire.holds_bytes();
        let client = if self.waiting.is_full() { None } else { Some(&**self.wire.socket()) };
        let done = self.waiting.wait(client, held && client.is_some())?;
        self.finish(done)?;
        Ok(Patience::None)
    }

    /// Serves every request that has come in whole.
    fn serve(&mut self) -> Result<Flow, SessionError> {
        loop {
            let Some(header) = self.input.peek::<REQUEST_LEN>() else { return Ok(Flow::GoOn) };
            let request = Request::parse(header).ok_or(SessionError::OutOfStep)?;
            if request.command == Command::Disconnect {
                return Ok(Flow::Disconnect);
            }
            if request.payload() > MAX_PAYLOAD {
                return Err(SessionError::TooLarge { length: request.length });
            }
            self.keep_pace(&request)?;
            self.began = Instant::now();
            let checked = request.check(self.export.size).and_then(|()| self.may(&request));
            if request.command == Command::Write {
                if !self.write(request, checked)? {
                    return Ok(Flow::GoOn);
                }
                self.paid = false;
                continue;
            }
            self.input.consume(REQUEST_LEN);
            self.paid = false;
            match checked {
                Ok(()) => self.serve_one(request)?,
                Err(errno) => self.fail(request, errno)?,
            }
        }
    }

    /// Waits until a request is within the consumer's pace. Others' answers are not held up by it.
    fn keep_pace(&mut self, request: &Request) -> Result<(), SessionError> {
        let bytes = match request.command {
            Command::Read | Command::Write => request.length.into(),
            Command::Flush | Command::Trim | Command::WriteZeroes | Command::Cache => 0,
            Command::BlockStatus | Command::Disconnect | Command::Unknown => return Ok(()),
        };
        while !self.paid {
            match self.pace.take(bytes, Instant::now()) {
                Ok(()) => self.paid = true,
                // Whoever was revoked is told so now.
                Err(_) if self.export.volume.is_closed() => self.paid = true,
                Err(wait) => {
                    self.output.send(&mut self.wire)?;
                    thread::sleep(wait);
                }
            }
        }
        Ok(())
    }

    /// Whether this client may do that: those who read only were told so.
    fn may(&self, request: &Request) -> Result<(), Errno> {
        let writes = matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes);
        if writes && self.export.share == Share::Read { Err(Errno::Permission) } else { Ok(()) }
    }

    /// Hands a request to a thread that may wait.
    fn wait_elsewhere(&mut self, request: Request) -> Result<(), SessionError> {
        self.wait_for_place()?;
        Ok(self.waiting.push(&self.export.volume, request)?)
    }

    /// Has a request answered when what was written so far lasts.
    fn sync_elsewhere(&mut self, request: Request) -> Result<(), SessionError> {
        self.wait_for_place()?;
        Ok(self.waiting.push_sync(&self.export.volume, request)?)
    }

    fn wait_for_place(&mut self) -> Result<(), SessionError> {
        while self.waiting.is_full() {
            let done = self.waiting.wait(None, false)?;
            self.finish(done)?;
        }
        Ok(())
    }

    /// Answers requests that have waited.
    fn finish(&mut self, done: Vec<Done>) -> Result<(), SessionError> {
        for Done { request, result, began } in done {
            self.began = began;
            match result {
                Ok(found) if request.command == Command::Read => {
                    self.count(&request, true);
                    let header = self.read_header(&request);
                    self.put(&header)?;
                    self.put(&found)?;
                }
                Ok(_) => self.reply(request, Ok(()))?,
                Err(errno) => self.fail(request, errno)?,
            }
        }
        Ok(())
    }

    fn serve_one(&mut self, request: Request) -> Result<(), SessionError> {
        let Request { command, offset, length, cookie, .. } = request;
        let volume = &self.export.volume;
        match command {
            Command::Read => self.read(request),
            Command::Trim | Command::WriteZeroes
                if length > SMALL_TRIM || request.has(command_flag::FUA | command_flag::NO_HOLE) =>
            {
                self.wait_elsewhere(request)
            }
            Command::Trim => {
                let done = volume.trim(offset, length.into());
                self.reply(request, done)
            }
            Command::WriteZeroes => {
                let done = volume.write_zeroes(offset, length.into(), false);
                self.reply(request, done)
            }
            Command::Cache => {
                let done = volume.prefetch(offset, length.into());
                self.reply(request, done)
            }
            Command::BlockStatus if self.export.block_status => {
                let most = if request.has(command_flag::REQ_ONE) { 1 } else { MAX_EXTENTS };
                let extents = volume.extents(offset, length, most);
                self.put(&status_chunk(cookie, CONTEXT_ID, &extents))
            }
            Command::BlockStatus => self.fail(request, Errno::Invalid),
            Command::Flush => self.sync_elsewhere(request),
            Command::Write | Command::Disconnect | Command::Unknown => {
                unreachable!(
                    "writes and disconnects are served before, unknown commands are refused by the check"
                )
            }
        }
    }

    /// Adds a reply, after sending what is there if it does not fit.
    fn put(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        self.make_room(bytes.len())?;
        self.output.space(&self.pool)[..bytes.len()].copy_from_slice(bytes);
        self.output.extend(bytes.len());
        Ok(())
    }

    fn make_room(&mut self, bytes: usize) -> Result<(), SessionError> {
        if self.output.room() < bytes {
            self.output.send(&mut self.wire)?;
        }
        Ok(())
    }

    fn reply(&mut self, request: Request, done: Result<(), Errno>) -> Result<(), SessionError> {
        match done {
            Ok(()) => {
                self.count(&request, true);
                self.put(&simple_reply(request.cookie, None))
            }
            Err(errno) => self.fail(request, errno),
        }
    }

    /// Counts a request that is answered now.
    fn count(&self, request: &Request, good: bool) {
        let took = self.began.elapsed();
        self.export.volume.figures.count(request.command, request.length.into(), took, good);
    }

    fn fail(&mut self, request: Request, errno: Errno) -> Result<(), SessionError> {
        self.count(&request, false);
        // Answers to reads and block status have one form once structured replies were agreed.
        let structured =
            self.export.structured && matches!(request.command, Command::Read | Command::BlockStatus);
        if structured {
            return self.put(&error_chunk(request.cookie, errno));
        }
        self.put(&simple_reply(request.cookie, Some(errno)))
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
