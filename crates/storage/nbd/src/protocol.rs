//! NBD on the wire: numbers, requests and replies as bytes. Pure.
//!
//! The numbers are those of the NBD protocol document, sections "Values" and "Protocol phases".

/// `NBDMAGIC`, `IHAVEOPT`, and the server's handshake flags: fixed newstyle, no zeroes.
pub(crate) const GREETING: [u8; 18] = *b"NBDMAGICIHAVEOPT\0\x03";
pub(crate) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Largest payload of one request: the default that clients assume when no limit is told.
pub(crate) const MAX_PAYLOAD: u32 = 32 << 20;

pub(crate) const REQUEST_LEN: usize = 28;
pub(crate) const SIMPLE_REPLY_LEN: usize = 16;
pub(crate) const CHUNK_HEADER_LEN: usize = 20;

/// Flags of the client in the handshake.
pub(crate) mod client_flag {
    pub(crate) const FIXED_NEWSTYLE: u32 = 1;
    pub(crate) const NO_ZEROES: u32 = 2;
}

pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub(crate) const ERR_UNSUP: u32 = ERROR | 1;
    pub(crate) const ERR_INVALID: u32 = ERROR | 3;
    pub(crate) const ERR_TLS_REQD: u32 = ERROR | 5;
    pub(crate) const ERR_UNKNOWN: u32 = ERROR | 6;
    pub(crate) const ERR_TOO_BIG: u32 = ERROR | 9;
}

pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// What every export can do: flush, FUA, trim, write zeroes (fast ones too), several connections, cache.
pub(crate) const TRANSMISSION_FLAGS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;
/// Nobody can write to it.
pub(crate) const READ_ONLY: u16 = 1 << 1;
/// And, once structured replies were agreed, reads that must not be fragmented.
pub(crate) const DONT_FRAGMENT: u16 = 1 << 7;

pub(crate) mod command_flag {
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

mod chunk {
    pub(super) const DONE: u16 = 1;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const OFFSET_HOLE: u16 = 2;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const ERROR: u16 = 1 << 15 | 1;
}

/// What a client may be told went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errno {
    Permission = 1,
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    NotSupported = 95,
    Shutdown = 108,
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno as i32)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) flags: u16,
    pub(crate) command: Command,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Request {
    /// `None` when the magic is wrong: the stream is out of step and cannot be mended.
    pub(crate) fn parse(bytes: &[u8; REQUEST_LEN]) -> Option<Self> {
        if be32(bytes, 0) != REQUEST_MAGIC {
            return None;
        }
        let command = match be16(bytes, 6) {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            _ => Command::Unknown,
        };
        let flags = be16(bytes, 4);
        Some(Self {
            flags,
            command,
            cookie: be64(bytes, 8),
            offset: be64(bytes, 16),
            length: be32(bytes, 24),
        })
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The bytes that follow the request.
    pub(crate) fn payload(&self) -> u32 {
        if self.command == Command::Write { self.length } else { 0 }
    }

    /// Whether the request makes sense for a device of this size.
    pub(crate) fn check(&self, size: u64) -> Result<(), Errno> {
        use command_flag::{DF, FAST_ZERO, FUA, NO_HOLE, REQ_ONE};
        let allowed = match self.command {
            // FUA on commands that store nothing is allowed and means nothing.
            Command::Read => FUA | DF,
            Command::Write | Command::Flush | Command::Trim | Command::Cache => FUA,
            Command::WriteZeroes => FUA | NO_HOLE | FAST_ZERO,
            Command::BlockStatus => FUA | REQ_ONE,
            Command::Disconnect => return Ok(()),
            Command::Unknown => return Err(Errno::Invalid),
        };
        if self.flags & !allowed != 0 {
            return Err(Errno::Invalid);
        }
        if self.command == Command::Flush {
            return if self.offset == 0 && self.length == 0 { Ok(()) } else { Err(Errno::Invalid) };
        }
        if self.offset.checked_add(u64::from(self.length)).is_none_or(|end| end > size) {
            let writes = matches!(self.command, Command::Write | Command::WriteZeroes);
            return Err(if writes { Errno::NoSpace } else { Errno::Invalid });
        }
        match self.command {
            Command::Read if self.length > MAX_PAYLOAD => Err(Errno::Overflow),
            // An answer without data would be a chunk that clients refuse, and end the connection over.
            Command::Read | Command::BlockStatus if self.length == 0 => Err(Errno::Invalid),
            _ => Ok(()),
        }
    }
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

/// A reply to an option.
pub(crate) fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("option replies are small");
    let mut bytes = Vec::with_capacity(20 + data.len());
    bytes.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
    bytes
}

pub(crate) fn simple_reply(cookie: u64, error: Option<Errno>) -> [u8; SIMPLE_REPLY_LEN] {
    let mut bytes = [0; SIMPLE_REPLY_LEN];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.map_or(0, |errno| errno as u32).to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

fn chunk_header(kind: u16, cookie: u64, length: u32) -> [u8; CHUNK_HEADER_LEN] {
    let mut bytes = [0; CHUNK_HEADER_LEN];
    bytes[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&chunk::DONE.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The header of one chunk that carries a whole read's data.
pub(crate) fn data_chunk(cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = chunk_header(chunk::OFFSET_DATA, cookie, length + 8).to_vec();
    bytes.extend(offset.to_be_bytes());
    bytes
}

/// A whole read that is zeroes.
pub(crate) fn hole_chunk(cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = chunk_header(chunk::OFFSET_HOLE, cookie, 12).to_vec();
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

pub(crate) fn error_chunk(cookie: u64, error: Errno) -> Vec<u8> {
    let mut bytes = chunk_header(chunk::ERROR, cookie, 6).to_vec();
    bytes.extend((error as u32).to_be_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// Extents as (length, is data).
pub(crate) fn status_chunk(cookie: u64, context: u32, extents: &[(u32, bool)]) -> Vec<u8> {
    /// A hole that reads as zeroes.
    const HOLE_AND_ZERO: u32 = 3;
    let length = u32::try_from(4 + extents.len() * 8).expect("the number of extents is bounded");
    let mut bytes = chunk_header(chunk::BLOCK_STATUS, cookie, length).to_vec();
    bytes.extend(context.to_be_bytes());
    for (length, data) in extents {
        bytes.extend(length.to_be_bytes());
        bytes.extend(if *data { 0 } else { HOLE_AND_ZERO }.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(command: u16, flags: u16, offset: u64, length: u32) -> Request {
        let mut bytes = [0; REQUEST_LEN];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&command.to_be_bytes());
        bytes[16..24].copy_from_slice(&offset.to_be_bytes());
        bytes[24..].copy_from_slice(&length.to_be_bytes());
        Request::parse(&bytes).unwrap()
    }

    #[test]
    fn ranges_past_the_end_are_refused_without_overflow() {
        for (command, errno) in [
            (0, Errno::Invalid),
            (1, Errno::NoSpace),
            (4, Errno::Invalid),
            (6, Errno::NoSpace),
            (7, Errno::Invalid),
        ] {
            assert_eq!(request(command, 0, 0, 100).check(100), Ok(()));
            assert_eq!(request(command, 0, 1, 100).check(100), Err(errno));
            assert_eq!(request(command, 0, u64::MAX, 100).check(100), Err(errno));
        }
    }

    #[test]
    fn nonsense_is_invalid() {
        assert_eq!(request(99, 0, 0, 0).check(100), Err(Errno::Invalid));
        assert_eq!(request(0, 1 << 9, 0, 1).check(100), Err(Errno::Invalid));
        assert_eq!(request(1, command_flag::NO_HOLE, 0, 1).check(100), Err(Errno::Invalid));
        assert_eq!(request(3, 0, 1, 0).check(100), Err(Errno::Invalid));
        assert_eq!(request(7, 0, 0, 0).check(100), Err(Errno::Invalid));
        assert_eq!(request(0, 0, 0, MAX_PAYLOAD + 1).check(u64::MAX), Err(Errno::Overflow));
        assert_eq!(Request::parse(&[0; REQUEST_LEN]), None);
    }
}
