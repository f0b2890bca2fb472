//! Messages: a header, a fixed part that the protocol defines, and attributes.

use super::{Attrs, NetlinkError, Writer};

const HEADER: usize = 16;
/// NLM_F_ACK_TLVS: the answer carries an extended acknowledgement.
const EXTENDED: u16 = 0x200;
const EXTENDED_TEXT: u16 = 1;

#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub kind: u16,
    pub flags: u16,
    pub seq: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub header: Header,
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// The attributes after a fixed part of so many bytes.
    pub fn attrs(&self, fixed: usize) -> Result<Attrs<'a>, NetlinkError> {
        self.body.get(fixed..).map(Attrs::new).ok_or(NetlinkError::Malformed)
    }

    pub(super) fn extended_ack(&self) -> Option<String> {
        if self.header.flags & EXTENDED == 0 {
            return None;
        }
        // The error number, then the header of the refused message alone: the socket asks for capped answers.
        let attrs = self.attrs(4 + HEADER).ok()?;
        attrs.find(EXTENDED_TEXT).ok()?.map(|text| text.text())
    }
}

/// The messages of one block that was received.
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn read(&mut self) -> Option<Message<'a>> {
        let rest = self.rest;
        let len = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        let body = rest.get(HEADER..len)?;
        let header = Header {
            kind: u16::from_ne_bytes(*rest.get(4..)?.first_chunk()?),
            flags: u16::from_ne_bytes(*rest.get(6..)?.first_chunk()?),
            seq: u32::from_ne_bytes(*rest.get(8..)?.first_chunk()?),
        };
        self.rest = &rest[len.next_multiple_of(4).min(rest.len())..];
        Some(Message { header, body })
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, NetlinkError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let message = self.read();
        if message.is_none() {
            self.rest = &[];
        }
        Some(message.ok_or(NetlinkError::Malformed))
    }
}

/// Appends messages to one buffer.
#[derive(Default)]
pub struct MessageWriter {
    out: Vec<u8>,
}

impl MessageWriter {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn message(&mut self, header: Header, fixed: &[u8], attrs: impl FnOnce(&mut Writer<'_>)) {
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        self.out.extend_from_slice(&header.kind.to_ne_bytes());
        self.out.extend_from_slice(&header.flags.to_ne_bytes());
        self.out.extend_from_slice(&header.seq.to_ne_bytes());
        self.out.extend_from_slice(&[0; 4]);
        self.out.extend_from_slice(fixed);
        attrs(&mut Writer { out: &mut self.out });
        let len =
            u32::try_from(self.out.len() - start).expect("a message's attributes are below 64 KiB each");
        self.out[start..start + 4].copy_from_slice(&len.to_ne_bytes());
    }

    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.out
    }

    pub fn clear(&mut self) {
        self.out.clear();
    }
}
