//! Requests that wait for the disk, on threads that may.
//!
//! In: requests that cannot be answered on the spot. Out: the same with their results, in the order they are done.
//! The thread of the session waits for its client and for these at once: whoever is done rings a bell, which is a
//! descriptor like the socket.

use std::{io, mem, net::TcpStream, os::fd::OwnedFd, sync::Arc, time::Instant};

use parking_lot::Mutex;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::{Errno as Os, read, write},
};
use storage_provider::ConsumerId;

use crate::{
    disk::Disk,
    protocol::{Command, Errno, Request, command_flag},
    volume::Volume,
};

/// Requests of one session that may wait for the disk at once.
const MAX_WAITING: usize = 64;

pub(super) struct Waiting {
    /// Whose threads may wait, and for whom.
    disk: Disk,
    consumer: ConsumerId,
    count: usize,
    /// Made for the first request that has to wait.
    bell: Option<Arc<Bell>>,
}

struct Bell {
    descriptor: OwnedFd,
    done: Mutex<Vec<Done>>,
}

/// A request that has waited, with what a read found.
pub(super) struct Done {
    pub(super) request: Request,
    pub(super) result: Result<Vec<u8>, Errno>,
    pub(super) began: Instant,
}

/// Rings when it goes, whatever became of the work.
struct Ringer {
    bell: Arc<Bell>,
    request: Request,
    result: Result<Vec<u8>, Errno>,
    began: Instant,
}

impl Ringer {
    fn ring(mut self, result: Result<Vec<u8>, Errno>) {
        self.result = result;
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        let result = mem::replace(&mut self.result, Err(Errno::Shutdown));
        self.bell.done.lock().push(Done { request: self.request, result, began: self.began });
        // Fails only if it has rung 2^64 times unheard.
        let _ = write(&self.bell.descriptor, &1u64.to_ne_bytes());
    }
}

impl Waiting {
    pub(super) fn new(disk: Disk, consumer: ConsumerId) -> Self {
        Self { disk, consumer, count: 0, bell: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.count >= MAX_WAITING
    }

    /// Hands a request to a thread.
    pub(super) fn push(&mut self, volume: &Arc<Volume>, request: Request) -> io::Result<()> {
        let (ringer, volume) = (self.ringer(request)?, Arc::clone(volume));
        self.disk.run(self.consumer, move || ringer.ring(perform(&volume, &request)));
        Ok(())
    }

    /// Hands a write that is to last to a thread. Only for whom [`Volume::take_sync`] gave the turn.
    pub(super) fn push_write(
        &mut self,
        volume: &Arc<Volume>,
        request: Request,
        data: Vec<u8>,
    ) -> io::Result<()> {
        let turn = Turn { disk: self.disk.clone(), consumer: self.consumer, volume: Arc::clone(volume) };
        let ringer = self.ringer(request)?;
        self.disk.run(self.consumer, move || {
            ringer.ring(turn.volume.write(request.offset, &data, true).map(|()| Vec::new()));
            // The turn goes on when it is dropped, whatever happened.
            drop(turn);
        });
        Ok(())
    }

    /// Has a request answered once all that was written so far lasts.
    pub(super) fn push_sync(&mut self, volume: &Arc<Volume>, request: Request) -> io::Result<()> {
        let ringer = self.ringer(request)?;
        if volume.join_sync(move |synced| ringer.ring(synced.map(|()| Vec::new()))) {
            drop(Turn { disk: self.disk.clone(), consumer: self.consumer, volume: Arc::clone(volume) });
        }
        Ok(())
    }

    fn ringer(&mut self, request: Request) -> io::Result<Ringer> {
        let bell = match &self.bell {
            Some(bell) => Arc::clone(bell),
            None => {
                let descriptor = eventfd(0, EventfdFlags::CLOEXEC)?;
                let bell = Bell { descriptor, done: Mutex::default() };
                Arc::clone(self.bell.insert(Arc::new(bell)))
            }
        };
        self.count += 1;
        // If the work is never begun, the client is told so.
        Ok(Ringer { bell, request, result: Err(Errno::Shutdown), began: Instant::now() })
    }

    /// Waits until a request is done, or `client` has sent something if one is given. Returns what is done.
    pub(super) fn wait(&mut self, client: Option<&TcpStream>, at_once: bool) -> io::Result<Vec<Done>> {
        let Some(bell) = self.bell.as_ref().filter(|_| self.count > 0) else { return Ok(Vec::new()) };
        let mut watched = vec![PollFd::new(&bell.descriptor, PollFlags::IN)];
        watched.extend(client.map(|client| PollFd::new(client, PollFlags::IN)));
        let now = rustix::event::Timespec::default();
        loop {
            match poll(&mut watched, at_once.then_some(&now)) {
                Err(Os::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => break,
            }
        }
        if watched[0].revents().is_empty() {
            return Ok(Vec::new());
        }
        read(&bell.descriptor, &mut [0; 8])?;
        let done = mem::take(&mut *bell.done.lock());
        self.count -= done.len();
        Ok(done)
    }
}

/// The turn to sync a volume. When it goes, a thread serves those who wait; and again, until nobody does.
struct Turn {
    disk: Disk,
    consumer: ConsumerId,
    volume: Arc<Volume>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (disk, consumer, volume) = (self.disk.clone(), self.consumer, Arc::clone(&self.volume));
        self.disk.run(consumer, move || {
            if volume.sync_waiting() {
                drop(Turn { disk, consumer, volume });
            }
        });
    }
}

fn perform(volume: &Arc<Volume>, request: &Request) -> Result<Vec<u8>, Errno> {
    let Request { offset, length, command, .. } = *request;
    let durable = request.has(command_flag::FUA);
    match command {
        Command::Read => {
            let mut found = vec![0; length as usize];
            volume.read(offset, &mut found)?;
            return Ok(found);
        }
        Command::Trim => volume.trim(offset, length.into())?,
        Command::WriteZeroes => {
            let keep = request.has(command_flag::NO_HOLE);
            if keep && request.has(command_flag::FAST_ZERO) {
                return Err(Errno::NotSupported);
            }
            volume.write_zeroes(offset, length.into(), keep)?;
        }
        Command::Write
        | Command::Flush
        | Command::Cache
        | Command::BlockStatus
        | Command::Disconnect
        | Command::Unknown => {}
    }
    if durable && matches!(command, Command::Trim | Command::WriteZeroes) {
        volume.flush()?;
    }
    Ok(Vec::new())
}
