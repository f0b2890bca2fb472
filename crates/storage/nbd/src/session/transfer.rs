//! Data in both directions: writes from the client, reads to it.

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

use super::{HELD_UP, HOLD_UP_LASTS, SMALL_READ, Session, SessionError};
use crate::{
    allocation::BLOCK,
    buffers::BUFFER,
    protocol::{Errno, REQUEST_LEN, Request, command_flag},
    volume::Reservation,
};

/// A write too large for the buffer, or one that is refused and whose data must be read past.
pub(super) struct Arriving {
    request: Request,
    /// Bytes of it that have come in.
    taken: u64,
    /// Paid for all of it; an error once it is refused.
    state: Result<Reservation, Errno>,
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
        let state = checked.and_then(|()| self.export.volume.reserve(request.offset, length as u64));
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
            let written = self.export.volume.try_write(request.offset, data, None);
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

    /// Takes what has come in of a large write. `true` when it is complete.
    pub(super) async fn take_payload(&mut self) -> Result<bool, SessionError> {
        let Some(mut arriving) = self.arriving.take() else { return Ok(true) };
        let left = u64::from(arriving.request.length) - arriving.taken;
        let here = (self.input.available().len() as u64).min(left);
        // A refused write may lie anywhere; it goes nowhere.
        let at = arriving.request.offset.saturating_add(arriving.taken);
        // Pieces end on block borders: half a block would cost a read of the other half.
        let take = match &arriving.state {
            Ok(_) if here < left => ((at + here) / BLOCK * BLOCK).saturating_sub(at),
            Ok(_) | Err(_) => here,
        };
        let piece = &self.input.available()[..usize::try_from(take).expect("a part of the buffer")];
        if let Ok(reserved) = &mut arriving.state {
            let written = self.export.volume.write(at, piece, false, Some(reserved));
            if let Err(errno) = written {
                arriving.state = Err(errno);
            }
        }
        self.input.consume(piece.len());
        arriving.taken += take;
        if arriving.taken < u64::from(arriving.request.length) {
            self.arriving = Some(arriving);
            return Ok(false);
        }
        let Arriving { request, state, .. } = arriving;
        match state {
            Ok(_) if request.has(command_flag::FUA) => self.wait_elsewhere(request, Vec::new()).await?,
            state => self.reply(request, state.map(|_| ())).await?,
        }
        Ok(true)
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

    /// Sends a large read piece by piece, so that its size is not held in memory.
    async fn read_large(&mut self, request: Request) -> Result<(), SessionError> {
        let mut header = Some(self.read_header(&request));
        let (mut at, end) = (request.offset, request.offset + u64::from(request.length));
        while at < end {
            self.output.send(&mut self.stream).await?;
            let front = header.as_ref().map_or(0, Vec::len);
            let piece = usize::try_from(end - at).unwrap_or(usize::MAX).min(BUFFER - front);
            let whole = front + piece;
            let space = &mut self.output.space(&self.pool)[..whole];
            let mut read = self.export.volume.try_read(at, &mut space[front..]);
            if read == Ok(false) {
                let volume = std::sync::Arc::clone(&self.export.volume);
                // The pieces behind this one start on their way while we wait for it.
                let cold = move || -> Result<Vec<u8>, Errno> {
                    volume.prefetch(at, end - at)?;
                    let mut found = vec![0; piece];
                    volume.read(at, &mut found)?;
                    Ok(found)
                };
                let found = tokio::task::spawn_blocking(cold).await.map_err(std::io::Error::from)?;
                read = found.map(|found| {
                    space[front..].copy_from_slice(&found);
                    true
                });
            }
            match (read, header.take()) {
                (Ok(_), front) => {
                    if let Some(front) = front {
                        space[..front.len()].copy_from_slice(&front);
                    }
                    self.output.extend(whole);
                }
                (Err(errno), Some(_)) => return self.fail(request, errno).await,
                (Err(_), None) => return Err(SessionError::HalfRead),
            }
            at += piece as u64;
        }
        Ok(())
    }
}
