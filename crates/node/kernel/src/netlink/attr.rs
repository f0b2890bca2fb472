//! Attributes: type, length and value, nested, each padded to 4 bytes.

use super::NetlinkError;

const NESTED: u16 = 0x8000;
const TYPE: u16 = 0x3fff;

/// Appends attributes to a message.
pub struct Writer<'a> {
    pub(super) out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    pub fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.header(kind, value.len());
        self.out.extend_from_slice(value);
        self.pad();
    }

    /// A string that ends with a zero.
    pub fn text(&mut self, kind: u16, value: &str) {
        self.header(kind, value.len() + 1);
        self.out.extend_from_slice(value.as_bytes());
        self.out.push(0);
        self.pad();
    }

    pub fn be16(&mut self, kind: u16, value: u16) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub fn be32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub fn be64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub fn u16(&mut self, kind: u16, value: u16) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    pub fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_ne_bytes());
    }

    pub fn nest(&mut self, kind: u16, content: impl FnOnce(&mut Writer<'_>)) {
        let start = self.out.len();
        self.header(kind | NESTED, 0);
        content(&mut Writer { out: self.out });
        let len =
            u16::try_from(self.out.len() - start).expect("what is nested is kept below 64 KiB by its writer");
        self.out[start..start + 2].copy_from_slice(&len.to_ne_bytes());
    }

    /// Attributes that are encoded already.
    pub fn raw(&mut self, attrs: &[u8]) {
        self.out.extend_from_slice(attrs);
        self.pad();
    }

    /// Bytes written to the message so far.
    pub fn written(&self) -> usize {
        self.out.len()
    }

    fn header(&mut self, kind: u16, len: usize) {
        let len = u16::try_from(len + 4).expect("an attribute's value is kept below 64 KiB by its writer");
        self.out.extend_from_slice(&len.to_ne_bytes());
        self.out.extend_from_slice(&kind.to_ne_bytes());
    }

    fn pad(&mut self) {
        self.out.resize(self.out.len().next_multiple_of(4), 0);
    }
}

/// One attribute that was read.
#[derive(Clone, Copy, Debug)]
pub struct Attr<'a> {
    pub kind: u16,
    pub value: &'a [u8],
}

impl<'a> Attr<'a> {
    pub fn be32(&self) -> Result<u32, NetlinkError> {
        self.value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).ok_or(NetlinkError::Malformed)
    }

    pub fn be16(&self) -> Result<u16, NetlinkError> {
        self.value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes)).ok_or(NetlinkError::Malformed)
    }

    pub fn u16(&self) -> Result<u16, NetlinkError> {
        self.value.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes)).ok_or(NetlinkError::Malformed)
    }

    pub fn u32(&self) -> Result<u32, NetlinkError> {
        self.value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(NetlinkError::Malformed)
    }

    pub fn text(&self) -> String {
        let end = self.value.iter().position(|byte| *byte == 0).unwrap_or(self.value.len());
        String::from_utf8_lossy(&self.value[..end]).into_owned()
    }

    pub fn nested(&self) -> Attrs<'a> {
        Attrs::new(self.value)
    }
}

/// The attributes of a message or of a nest, in order.
#[derive(Clone, Debug)]
pub struct Attrs<'a> {
    rest: &'a [u8],
}

impl<'a> Attrs<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The first attribute of a kind.
    pub fn find(&self, kind: u16) -> Result<Option<Attr<'a>>, NetlinkError> {
        for attr in self.clone() {
            let attr = attr?;
            if attr.kind == kind {
                return Ok(Some(attr));
            }
        }
        Ok(None)
    }

    /// The first attribute of a kind, which must be there.
    pub fn get(&self, kind: u16) -> Result<Attr<'a>, NetlinkError> {
        self.find(kind)?.ok_or(NetlinkError::Malformed)
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, NetlinkError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = self.rest;
        let (Some(len), Some(kind)) = (half(rest, 0), half(rest, 2)) else {
            self.rest = &[];
            return Some(Err(NetlinkError::Malformed));
        };
        let len = usize::from(len);
        if len < 4 || len > rest.len() {
            self.rest = &[];
            return Some(Err(NetlinkError::Malformed));
        }
        self.rest = &rest[len.next_multiple_of(4).min(rest.len())..];
        Some(Ok(Attr { kind: kind & TYPE, value: &rest[4..len] }))
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut out = Vec::new();
        let mut writer = Writer { out: &mut out };
        writer.text(1, "ab");
        writer.nest(2, |inner| inner.be32(7, 9));
        let attrs = Attrs::new(&out);
        assert_eq!(attrs.get(1).unwrap().text(), "ab");
        assert_eq!(attrs.get(2).unwrap().nested().get(7).unwrap().be32().unwrap(), 9);
        assert!(attrs.find(3).unwrap().is_none());
    }

    #[test]
    fn no_cut_of_the_bytes_makes_the_reader_fall() {
        let mut out = Vec::new();
        let mut writer = Writer { out: &mut out };
        writer.nest(2, |inner| inner.text(7, "hello"));
        for cut in 1..out.len() {
            assert!(Attrs::new(&out[..cut]).any(|attr| attr.is_err()), "cut at {cut}");
        }
    }
}
