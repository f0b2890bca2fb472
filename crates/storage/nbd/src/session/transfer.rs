//! Data in both directions: writes from the client, reads to it.

use std::{io, sync::Arc};

use super::{Session, SessionError};
use crate::{
    allocation::BLOCK,
    attention::{Patience, Received},
    buffers::BUFFER,
    protocol::{Errno, REQUEST_LEN, Request, command_flag},
};

/// Reads up to this size are answered with others in one send; larger ones are sent in pieces.
const SMALL_READ: u32 = 64 << 10;

impl Session {
    /// Serves a write. `false` when more of it must come in first.
    pub(super) fn write(
        &mut self,
        request: Request,
        checked: Result<(), Errno>,
    ) -> Result<bool, SessionError> {
        let length = request.length as usize;
        let whole = REQUEST_LEN + length;
        if checked.is_err() || whole > BUFFER {
            self.input.consume(REQUEST_LEN);
            self.write_in_pieces(request, checked)?;
            return Ok(true);
        }
        let Some(data) = self.input.available().get(REQUEST_LEN..whole) else { return Ok(false) };
        if request.has(command_flag::FUA) {
            self.write_to_last(request, whole)?;
        } else {
            let done = self.export.volume.write(request.offset, data, false);
            self.reply(request, done)?;
        }
        self.input.consume(whole);
        Ok(true)
    }

    /// A write that is to be on disk when it is answered: alone if nobody is syncing, or with all others who wait.
    fn write_to_last(&mut self, request: Request, whole: usize) -> Result<(), SessionError> {
        self.wait_for_place()?;
        let volume = Arc::clone(&self.export.volume);
        let data = &self.input.available()[REQUEST_LEN..whole];
        if volume.take_sync() {
            let data = data.to_vec();
            return Ok(self.waiting.push_write(&volume, request, data)?);
        }
        match volume.write(request.offset, data, false) {
            Ok(()) => Ok(self.waiting.push_sync(&volume, request)?),
            Err(errno) => self.reply(request, Err(errno)),
        }
    }

    /// A write too large for the buffer, or one that is refused and whose data must be read past.
    fn write_in_pieces(&mut self, request: Request, checked: Result<(), Errno>) -> Result<(), SessionError> {
        let volume = Arc::clone(&self.export.volume);
        let ahead = checked.and_then(|()| volume.claim_ahead(request.offset, request.length.into()));
        let mut result = ahead.as_ref().map(|_| ()).map_err(|errno| *errno);
        let mut at = request.offset;
        let mut left = request.length as usize;
        while left > 0 {
            let here = self.input.available().len().min(left);
            let take = if result.is_ok() { piece(at, here, left) } else { here };
            if take == 0 {
                self.receive_payload(left)?;
                continue;
            }
            if result.is_ok() {
                result = volume.write(at, &self.input.available()[..take], false);
                at += take as u64;
            }
            self.input.consume(take);
            left -= take;
        }
        if let (Ok(()), Ok(ahead)) = (result, &ahead) {
            ahead.complete();
            if request.has(command_flag::FUA) {
                return self.sync_elsewhere(request);
            }
        }
        self.reply(request, result)
    }

    /// Receives more of a payload of which `left` bytes are missing or not yet taken. Others get their answers first:
    /// this client may be slow.
    fn receive_payload(&mut self, left: usize) -> Result<(), SessionError> {
        self.output.send(&mut self.wire)?;
        loop {
            match self.input.fill_to(left, &mut self.wire, Patience::All, &self.pool)? {
                Received::Bytes(_) => return Ok(()),
                Received::Silence => {}
                Received::End => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            }
        }
    }

    pub(super) fn read(&mut self, request: Request) -> Result<(), SessionError> {
        if let Some(hole) = self.hole(&request) {
            self.count(&request, true);
            return self.put(&hole);
        }
        if request.length > SMALL_READ {
            return self.read_in_pieces(request);
        }
        let header = self.read_header(&request);
        let length = request.length as usize;
        self.make_room(header.len() + length)?;
        let space = self.output.space(&self.pool);
        match self.export.volume.try_read(request.offset, &mut space[header.len()..header.len() + length]) {
            Ok(true) => {
                space[..header.len()].copy_from_slice(&header);
                self.output.extend(header.len() + length);
                self.count(&request, true);
                Ok(())
            }
            Ok(false) => self.wait_elsewhere(request),
            Err(errno) => self.fail(request, errno),
        }
    }

    /// Sends a large read: a first piece that tells whether it can be read at all, then the rest.
    fn read_in_pieces(&mut self, request: Request) -> Result<(), SessionError> {
        let header = self.read_header(&request);
        self.output.send(&mut self.wire)?;
        let (front, end) = (header.len(), request.offset + u64::from(request.length));
        let space = self.output.space(&self.pool);
        let first = &mut space[..front + SMALL_READ as usize];
        first[..front].copy_from_slice(&header);
        let volume = &self.export.volume;
        let read = match volume.try_read(request.offset, &mut first[front..]) {
            // All of it starts on its way from the disk while we wait for this piece.
            Ok(false) => volume
                .prefetch(request.offset, request.length.into())
                .and_then(|()| volume.read(request.offset, &mut first[front..])),
            tried => tried.map(|_| ()),
        };
        if let Err(errno) = read {
            return self.fail(request, errno);
        }
        self.output.extend(front + SMALL_READ as usize);
        self.output.send(&mut self.wire)?;
        self.send_rest(request.offset + u64::from(SMALL_READ), end)?;
        self.count(&request, true);
        Ok(())
    }

    /// Sends what follows the first piece of a large read.
    fn send_rest(&mut self, mut at: u64, end: u64) -> Result<(), SessionError> {
        let volume = &self.export.volume;
        if let Some(socket) = self.wire.plain().filter(|_| volume.is_flat()) {
            return volume.send(at, end - at, socket).map_err(|_| SessionError::HalfRead);
        }
        while at < end {
            let space = self.output.space(&self.pool);
            let bytes = usize::try_from(end - at).unwrap_or(usize::MAX).min(space.len());
            volume.read(at, &mut space[..bytes]).map_err(|_| SessionError::HalfRead)?;
            self.output.extend(bytes);
            self.output.send(&mut self.wire)?;
            at += bytes as u64;
        }
        Ok(())
    }
}

/// How much of a large write to take at once: a good part of a buffer, or its end. Pieces end on block borders, since
/// half a block would cost a read of the other half.
fn piece(at: u64, here: usize, left: usize) -> usize {
    if here == left {
        return here;
    }
    if here < BUFFER / 2 {
        return 0;
    }
    let past = (at + here as u64) % BLOCK;
    here - usize::try_from(past).expect("less than a block")
}
