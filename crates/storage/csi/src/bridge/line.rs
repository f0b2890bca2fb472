//! NBD on the wire, as the kernel and this client speak it after the handshake (pure): requests of 28 bytes, simple replies of 16.

pub(crate) const REQUEST_LEN: usize = 28;
pub(crate) const REPLY_LEN: usize = 16;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const WRITE_ZEROES: u16 = 6;

/// The kernel's number of a plain I/O error, and the server's of one that is about to stop.
pub(crate) const IO: u32 = 5;
pub(crate) const SHUTDOWN: u32 = 108;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Head {
    /// `None`: the stream is out of step.
    pub(crate) fn parse(bytes: &[u8; REQUEST_LEN]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (flags, rest) = rest.split_first_chunk::<2>()?;
        let (command, rest) = rest.split_first_chunk::<2>()?;
        let (cookie, rest) = rest.split_first_chunk::<8>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let length = rest.first_chunk::<4>()?;
        (u32::from_be_bytes(*magic) == REQUEST_MAGIC).then_some(Self {
            flags: u16::from_be_bytes(*flags),
            command: u16::from_be_bytes(*command),
            cookie: u64::from_be_bytes(*cookie),
            offset: u64::from_be_bytes(*offset),
            length: u32::from_be_bytes(*length),
        })
    }

    pub(crate) fn bytes(&self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// Error and cookie of a reply. `None`: the stream is out of step.
pub(crate) fn parse_reply(bytes: &[u8; REPLY_LEN]) -> Option<(u32, u64)> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let (error, rest) = rest.split_first_chunk::<4>()?;
    let cookie = rest.first_chunk::<8>()?;
    (u32::from_be_bytes(*magic) == REPLY_MAGIC)
        .then_some((u32::from_be_bytes(*error), u64::from_be_bytes(*cookie)))
}

pub(crate) fn reply(error: u32, cookie: u64) -> Vec<u8> {
    [&REPLY_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_garbage_is_not() {
        let head = Head { flags: 1, command: WRITE, cookie: 7 << 40, offset: 1 << 41, length: 4096 };
        assert_eq!(Head::parse(&head.bytes()), Some(head));
        assert_eq!(Head::parse(&[0; REQUEST_LEN]), None);
        let told = reply(IO, 99);
        assert_eq!(parse_reply(told.as_slice().try_into().unwrap()), Some((IO, 99)));
        assert_eq!(parse_reply(&[1; REPLY_LEN]), None);
    }
}
