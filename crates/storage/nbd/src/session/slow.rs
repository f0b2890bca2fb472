//! Requests that wait for the disk, on threads that may.

use std::sync::Arc;

use futures::StreamExt as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinError,
};

use super::{MAX_WAITING, Session, SessionError};
use crate::{
    protocol::{Command, Errno, Request, command_flag},
    volume::Volume,
};

/// What a thread has finished.
pub(super) enum Done {
    /// A whole request, with what a read found.
    Request { request: Request, result: Result<Vec<u8>, Errno> },
    /// A batch of pieces of large writes.
    Pieces(Vec<(u64, Result<(), Errno>)>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// Hands a request to a thread. `data` is what a write brought.
    pub(super) async fn wait_elsewhere(
        &mut self,
        request: Request,
        data: Vec<u8>,
    ) -> Result<(), SessionError> {
        while self.waiting.len() >= MAX_WAITING {
            if let Some(done) = self.waiting.next().await {
                self.finish(done).await?;
            }
        }
        let volume = Arc::clone(&self.export.volume);
        let work = move || Done::Request { result: perform(&volume, &request, data), request };
        self.waiting.push(tokio::task::spawn_blocking(work));
        Ok(())
    }

    /// Answers a request that has waited.
    pub(super) async fn finish(&mut self, done: Result<Done, JoinError>) -> Result<(), SessionError> {
        let (request, result) = match done.map_err(std::io::Error::from)? {
            Done::Request { request, result } => (request, result),
            Done::Pieces(results) => return self.finish_pieces(results).await,
        };
        match result {
            Ok(found) if request.command == Command::Read => {
                let header = self.read_header(&request);
                self.put(&header).await?;
                self.put(&found).await
            }
            Ok(_) => self.reply(request, Ok(())).await,
            Err(errno) => self.fail(request, errno).await,
        }
    }
}

fn perform(volume: &Arc<Volume>, request: &Request, data: Vec<u8>) -> Result<Vec<u8>, Errno> {
    let Request { offset, length, command, .. } = *request;
    let durable = request.has(command_flag::FUA);
    match command {
        Command::Read => {
            let mut found = vec![0; length as usize];
            volume.read(offset, &mut found)?;
            return Ok(found);
        }
        Command::Write if !data.is_empty() => volume.write(offset, &data, durable)?,
        // The data of a large write is in place already; what is left is to make it last.
        Command::Write | Command::Flush => volume.flush()?,
        Command::Trim => volume.trim(offset, length.into())?,
        Command::WriteZeroes => {
            let keep = request.has(command_flag::NO_HOLE);
            if keep && request.has(command_flag::FAST_ZERO) {
                return Err(Errno::NotSupported);
            }
            volume.write_zeroes(offset, length.into(), keep)?;
        }
        Command::Cache | Command::BlockStatus | Command::Disconnect | Command::Unknown => {}
    }
    if durable && matches!(command, Command::Trim | Command::WriteZeroes) {
        volume.flush()?;
    }
    Ok(Vec::new())
}
