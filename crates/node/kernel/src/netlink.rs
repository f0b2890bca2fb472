//! Netlink sockets: requests, dumps and batches.
//!
//! The kernel works a request off within the call that sends it, so once `send` returns the answers are there.

mod attr;
mod message;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use netlink_sys::{Socket as RawSocket, SocketAddr};
use rustix::net::sockopt;

pub use attr::{Attr, Attrs, Writer};
pub use message::{Header, Message, MessageWriter, Messages};

use crate::urgent::Urgent;

/// How long a silent kernel is waited for.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Largest batch the socket takes; the kernel allocates only what is sent.
const SEND_BUFFER: usize = 128 << 20;
const RECEIVE_BUFFER: usize = 8 << 20;
/// The kernel fills dumps with at most 32 KiB per message block.
const READ: usize = 128 << 10;
/// A dump that others change while it runs is begun again this often.
const DUMP_ATTEMPTS: usize = 8;

pub const REQUEST: u16 = 0x1;
pub const ACK: u16 = 0x4;
pub const DUMP: u16 = 0x300;
pub const CREATE: u16 = 0x400;
pub const EXCLUSIVE: u16 = 0x200;
pub const APPEND: u16 = 0x800;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const DUMP_INTERRUPTED: u16 = 0x10;

#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    #[error("cannot open a netlink socket ({protocol}): is the support built into this kernel?")]
    Open {
        protocol: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot send {bytes} bytes to the kernel")]
    Send {
        bytes: usize,
        #[source]
        source: io::Error,
    },
    #[error("cannot listen to what the kernel tells group {group}")]
    Subscribe {
        group: u32,
        #[source]
        source: io::Error,
    },
    #[error("cannot read the kernel's answer")]
    Receive {
        #[source]
        source: io::Error,
    },
    #[error("the kernel's answer is cut short or malformed")]
    Malformed,
    #[error("the kernel gave no answer")]
    Silent,
    #[error("the dump was interrupted by other changes {DUMP_ATTEMPTS} times in a row")]
    Interrupted,
    #[error("{0}")]
    Refused(Refusal),
}

impl NetlinkError {
    /// The kernel's error number, if it answered with one.
    pub fn errno(&self) -> Option<i32> {
        if let Self::Refused(refusal) = self { Some(refusal.errno) } else { None }
    }
}

/// An error of the kernel about one message.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub errno: i32,
    /// Of the message that was refused.
    pub seq: u32,
    /// The kernel's extended acknowledgement.
    pub text: Option<String>,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.errno))?;
        self.text.iter().try_for_each(|text| write!(f, ": {text}"))
    }
}

/// What became of a batch.
pub struct Executed {
    pub refusals: Vec<Refusal>,
    /// How long the kernel worked on it, and kept others out.
    pub took: Duration,
}

pub struct Socket {
    raw: RawSocket,
    seq: u32,
    buffer: Vec<u8>,
}

impl Socket {
    pub fn open(protocol: isize, name: &'static str) -> Result<Self, NetlinkError> {
        let open = || {
            let mut raw = RawSocket::new(protocol)?;
            raw.bind(&SocketAddr::new(0, 0))?;
            raw.set_ext_ack(true)?;
            raw.set_cap_ack(true)?;
            // Without the privilege to exceed the system's limit: as much as it allows, and sends say what is wrong.
            if sockopt::set_socket_send_buffer_size_force(&raw, SEND_BUFFER).is_err() {
                sockopt::set_socket_send_buffer_size(&raw, SEND_BUFFER)?;
            }
            if sockopt::set_socket_recv_buffer_size_force(&raw, RECEIVE_BUFFER).is_err() {
                sockopt::set_socket_recv_buffer_size(&raw, RECEIVE_BUFFER)?;
            }
            sockopt::set_socket_timeout(&raw, sockopt::Timeout::Recv, Some(PATIENCE))?;
            Ok(raw)
        };
        let raw = open().map_err(|source| NetlinkError::Open { protocol: name, source })?;
        Ok(Self { raw, seq: 0, buffer: Vec::with_capacity(READ) })
    }

    /// Whether the kernel tells the socket what it tells to this group.
    pub fn subscribe(&self, group: u32, on: bool) -> Result<(), NetlinkError> {
        let done = if on { self.raw.add_membership(group) } else { self.raw.drop_membership(group) };
        done.map_err(|source| NetlinkError::Subscribe { group, source })
    }

    /// How many bytes may wait to be read; the kernel doubles it for what it needs around them.
    pub fn set_receive_buffer(&self, bytes: usize) -> Result<(), NetlinkError> {
        sockopt::set_socket_recv_buffer_size(&self.raw, bytes)
            .map_err(|source| NetlinkError::Receive { source: source.into() })
    }

    /// What a subscription has brought, without waiting. Whether some of it was lost because too much was waiting.
    pub fn read_notifications(
        &mut self,
        each: impl FnMut(&Message<'_>) -> Result<(), NetlinkError>,
    ) -> Result<bool, NetlinkError> {
        self.read_some_notifications(usize::MAX, each)
    }

    /// The same, and no more than so many blocks: others may tell as fast as they are read.
    pub fn read_some_notifications(
        &mut self,
        most: usize,
        mut each: impl FnMut(&Message<'_>) -> Result<(), NetlinkError>,
    ) -> Result<bool, NetlinkError> {
        let mut lost = false;
        for _ in 0..most {
            match self.receive_now() {
                Ok(false) => return Ok(lost),
                Ok(true) => {
                    for message in Messages::new(&self.buffer) {
                        each(&message?)?;
                    }
                }
                Err(NetlinkError::Receive { source }) if source.raw_os_error() == Some(NO_BUFFERS) => {
                    lost = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(lost)
    }

    /// How many messages the kernel could not give to this socket because too much was waiting; none if it does not say.
    pub fn dropped(&self) -> Option<u64> {
        let mut address = SocketAddr::new(0, 0);
        self.raw.get_address(&mut address).ok()?;
        let port = address.port_number().to_string();
        let table = std::fs::read_to_string("/proc/thread-self/net/netlink").ok()?;
        // sk, protocol, port, groups, rmem, wmem, dump, locks, drops, inode.
        let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut ours =
            fields.filter(|fields| fields.get(1) == Some(&"12") && fields.get(2) == Some(&port.as_str()));
        ours.next_back()?.get(8)?.parse().ok()
    }

    /// A number for the next message; numbers of one socket are never used twice in a row of 2^32.
    pub fn next_seq(&mut self) -> u32 {
        self.seq = self.seq.wrapping_add(1);
        self.seq
    }

    /// Continues after a number that a batch has used.
    pub fn skip_to(&mut self, seq: u32) {
        self.seq = seq;
    }

    /// Sends messages whose last one asks for an acknowledgement, and waits for the answer to that one. The first
    /// refusal of any of them is the error.
    pub fn execute(&mut self, bytes: &[u8], last_seq: u32) -> Result<(), NetlinkError> {
        let refusals = self.execute_each(bytes, last_seq)?;
        refusals.into_iter().next().map_or(Ok(()), |refusal| Err(NetlinkError::Refused(refusal)))
    }

    /// As [`Self::execute`], with the refusals of all messages.
    pub fn execute_each(&mut self, bytes: &[u8], last_seq: u32) -> Result<Vec<Refusal>, NetlinkError> {
        self.drain();
        self.send(bytes)?;
        let mut refusals = Vec::new();
        loop {
            self.receive()?;
            let mut answered = false;
            for message in Messages::new(&self.buffer) {
                let message = message?;
                if message.header.kind != ERROR {
                    continue;
                }
                answered |= message.header.seq == last_seq;
                refusals.extend(refusal(&message)?);
            }
            if answered {
                return Ok(refusals);
            }
        }
    }

    /// As [`Self::execute_each`], for batches: the kernel may answer with refusals alone, all of them before the
    /// send returns.
    pub fn execute_batch(&mut self, bytes: &[u8]) -> Result<Executed, NetlinkError> {
        self.drain();
        let (urgent, started) = (Urgent::begin(), Instant::now());
        let sent = self.send(bytes);
        let took = started.elapsed();
        drop(urgent);
        sent?;
        let (mut refusals, mut answered) = (Vec::new(), false);
        while self.receive_now()? {
            for message in Messages::new(&self.buffer) {
                let message = message?;
                if message.header.kind == ERROR {
                    answered = true;
                    refusals.extend(refusal(&message)?);
                }
            }
        }
        if answered { Ok(Executed { refusals, took }) } else { Err(NetlinkError::Silent) }
    }

    /// Sends a request for a dump and feeds each answer to `each`. A dump that changes meanwhile begins anew, after
    /// `each` got `None`: forget what came so far.
    pub fn dump<E: From<NetlinkError>>(
        &mut self,
        request: &[u8],
        mut each: impl FnMut(Option<&Message<'_>>) -> Result<(), E>,
    ) -> Result<(), E> {
        for _ in 0..DUMP_ATTEMPTS {
            self.drain();
            self.send(request)?;
            if self.read_dump(&mut each)? {
                return Ok(());
            }
            each(None)?;
        }
        Err(NetlinkError::Interrupted.into())
    }

    /// As [`Self::dump`], whatever changes meanwhile: something may be missing.
    pub fn dump_once<E: From<NetlinkError>>(
        &mut self,
        request: &[u8],
        mut each: impl FnMut(&Message<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.drain();
        self.send(request)?;
        self.read_dump(&mut |message: Option<&Message<'_>>| message.map_or(Ok(()), &mut each))?;
        Ok(())
    }

    /// Whether the dump was consistent.
    fn read_dump<E: From<NetlinkError>>(
        &mut self,
        each: &mut impl FnMut(Option<&Message<'_>>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut consistent = true;
        loop {
            self.receive()?;
            for message in Messages::new(&self.buffer) {
                let message = message?;
                consistent &= message.header.flags & DUMP_INTERRUPTED == 0;
                match message.header.kind {
                    DONE => return Ok(consistent),
                    ERROR => {
                        if let Some(refusal) = refusal(&message)? {
                            return Err(NetlinkError::Refused(refusal).into());
                        }
                    }
                    _ => each(Some(&message))?,
                }
            }
        }
    }

    /// Sends a request that is answered with one message, and gives it to `read`.
    pub fn get<T>(
        &mut self,
        request: &[u8],
        read: impl FnOnce(&Message<'_>) -> Result<T, NetlinkError>,
    ) -> Result<T, NetlinkError> {
        self.drain();
        self.send(request)?;
        self.receive()?;
        let message = Messages::new(&self.buffer).next().ok_or(NetlinkError::Malformed)??;
        if message.header.kind == ERROR {
            return Err(refusal(&message)?.map_or(NetlinkError::Silent, NetlinkError::Refused));
        }
        read(&message)
    }

    fn send(&self, bytes: &[u8]) -> Result<(), NetlinkError> {
        let failed = |source| NetlinkError::Send { bytes: bytes.len(), source };
        let sent = self.raw.send(bytes, 0).map_err(failed)?;
        if sent == bytes.len() { Ok(()) } else { Err(failed(io::ErrorKind::WriteZero.into())) }
    }

    fn receive(&mut self) -> Result<(), NetlinkError> {
        self.receive_with(0).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => NetlinkError::Silent,
            _ => NetlinkError::Receive { source },
        })
    }

    /// Whether there was something to receive.
    fn receive_now(&mut self) -> Result<bool, NetlinkError> {
        match self.receive_with(DONT_WAIT) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(source) => Err(NetlinkError::Receive { source }),
        }
    }

    fn receive_with(&mut self, flags: i32) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.reserve(READ);
        self.raw.recv(&mut self.buffer, flags)?;
        Ok(())
    }

    /// Answers that an earlier, failed exchange left behind would be taken for those of the next.
    fn drain(&mut self) {
        while !matches!(self.receive_now(), Ok(false)) {}
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }
}

/// ENOBUFS: more came than the socket could hold.
const NO_BUFFERS: i32 = 105;
/// MSG_DONTWAIT.
const DONT_WAIT: i32 = 0x40;

fn refusal(message: &Message<'_>) -> Result<Option<Refusal>, NetlinkError> {
    let errno =
        message.body.first_chunk().map(|bytes| -i32::from_ne_bytes(*bytes)).ok_or(NetlinkError::Malformed)?;
    if errno == 0 {
        return Ok(None);
    }
    Ok(Some(Refusal { errno, seq: message.header.seq, text: message.extended_ack() }))
}
