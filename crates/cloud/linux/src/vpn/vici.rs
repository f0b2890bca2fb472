//! VICI, the protocol by which strongSwan's daemon is told what to do.
//!
//! A packet is its length (4 bytes), its type and its content; a message is a tree of sections, lists and texts.

use std::{io, path::Path, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};

/// A daemon that has not answered within this time does not.
const PATIENCE: Duration = Duration::from_secs(5);
/// Larger packets are not vici's.
const LARGEST: usize = 512 * 1024;

const REQUEST: u8 = 0;
const RESPONSE: u8 = 1;
const UNKNOWN_REQUEST: u8 = 2;
const REGISTER: u8 = 3;
const CONFIRM: u8 = 5;
const UNKNOWN_EVENT: u8 = 6;
const EVENT: u8 = 7;

const SECTION_START: u8 = 1;
const SECTION_END: u8 = 2;
const KEY_VALUE: u8 = 3;
const LIST_START: u8 = 4;
const LIST_ITEM: u8 = 5;
const LIST_END: u8 = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    List(Vec<String>),
    Section(Section),
}

/// Names and values, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section(Vec<(String, Value)>);

#[derive(Debug)]
pub(crate) enum ViciError {
    Io(io::Error),
    /// The answer is not what the protocol allows here.
    Malformed,
    Unknown(String),
    Refused(String),
}

impl std::fmt::Display for ViciError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(err) => write!(f, "strongSwan does not answer: {err}"),
            Self::Malformed => f.write_str("strongSwan's answer cannot be read"),
            Self::Unknown(name) => write!(f, "this strongSwan does not know {name}"),
            Self::Refused(why) => write!(f, "strongSwan refuses: {why}"),
        }
    }
}

impl From<io::Error> for ViciError {
    fn from(err: io::Error) -> Self {
        Self::Io(err)
    }
}

impl Section {
    #[must_use]
    pub(crate) fn text(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.push((name.to_owned(), Value::Text(value.into())));
        self
    }

    #[must_use]
    pub(crate) fn list(mut self, name: &str, items: &[&str]) -> Self {
        self.0.push((name.to_owned(), Value::List(items.iter().map(ToString::to_string).collect())));
        self
    }

    #[must_use]
    pub(crate) fn section(mut self, name: &str, section: Self) -> Self {
        self.0.push((name.to_owned(), Value::Section(section)));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|(key, value)| match value {
            Value::Text(text) if key == name => Some(text.as_str()),
            _ => None,
        })
    }

    pub(crate) fn sections(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.0.iter().filter_map(|(key, value)| match value {
            Value::Section(section) => Some((key.as_str(), section)),
            _ => None,
        })
    }

    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.sections().find(|(key, _)| *key == name).map(|(_, section)| section)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.0 {
            match value {
                Value::Text(text) => {
                    put_name(out, KEY_VALUE, name);
                    put_value(out, text);
                }
                Value::List(items) => {
                    put_name(out, LIST_START, name);
                    for item in items {
                        out.push(LIST_ITEM);
                        put_value(out, item);
                    }
                    out.push(LIST_END);
                }
                Value::Section(section) => {
                    put_name(out, SECTION_START, name);
                    section.encode(out);
                    out.push(SECTION_END);
                }
            }
        }
    }

    pub(crate) fn decode(bytes: &mut &[u8], is_inner: bool) -> Result<Self, ViciError> {
        let mut section = Self::default();
        loop {
            let Some((kind, rest)) = bytes.split_first() else {
                return if is_inner { Err(ViciError::Malformed) } else { Ok(section) };
            };
            *bytes = rest;
            match *kind {
                SECTION_END if is_inner => return Ok(section),
                SECTION_START => {
                    let name = take_name(bytes)?;
                    section.0.push((name, Value::Section(Self::decode(bytes, true)?)));
                }
                KEY_VALUE => {
                    let name = take_name(bytes)?;
                    section.0.push((name, Value::Text(take_value(bytes)?)));
                }
                LIST_START => {
                    let name = take_name(bytes)?;
                    section.0.push((name, Value::List(take_list(bytes)?)));
                }
                _ => return Err(ViciError::Malformed),
            }
        }
    }
}

fn put_name(out: &mut Vec<u8>, kind: u8, name: &str) {
    out.push(kind);
    out.push(u8::try_from(name.len()).expect("names in requests are short"));
    out.extend_from_slice(name.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &str) {
    let length = u16::try_from(value.len()).expect("values in requests are short");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value.as_bytes());
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Result<&'b [u8], ViciError> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(ViciError::Malformed)?;
    *bytes = rest;
    Ok(taken)
}

fn take_name(bytes: &mut &[u8]) -> Result<String, ViciError> {
    let length = take(bytes, 1)?[0];
    Ok(String::from_utf8_lossy(take(bytes, length.into())?).into_owned())
}

fn take_value(bytes: &mut &[u8]) -> Result<String, ViciError> {
    let length = u16::from_be_bytes(take(bytes, 2)?.try_into().map_err(|_| ViciError::Malformed)?);
    Ok(String::from_utf8_lossy(take(bytes, length.into())?).into_owned())
}

fn take_list(bytes: &mut &[u8]) -> Result<Vec<String>, ViciError> {
    let mut items = Vec::new();
    loop {
        match take(bytes, 1)?[0] {
            LIST_ITEM => items.push(take_value(bytes)?),
            LIST_END => return Ok(items),
            _ => return Err(ViciError::Malformed),
        }
    }
}

/// A connection to one daemon.
pub(crate) struct Vici {
    stream: UnixStream,
}

impl Vici {
    pub(crate) async fn connect(socket: &Path) -> Result<Self, ViciError> {
        Ok(Self { stream: UnixStream::connect(socket).await? })
    }

    /// A request whose answer says whether it succeeded.
    pub(crate) async fn command(&mut self, name: &str, message: &Section) -> Result<(), ViciError> {
        let answer = self.request(name, message).await?;
        match answer.get("success") {
            Some("yes") => Ok(()),
            _ => Err(ViciError::Refused(format!(
                "{name}: {}",
                answer.get("errmsg").unwrap_or("no reason given")
            ))),
        }
    }

    pub(crate) async fn request(&mut self, name: &str, message: &Section) -> Result<Section, ViciError> {
        self.send(REQUEST, Some(name), message).await?;
        loop {
            match self.receive().await? {
                (RESPONSE, body) => return Section::decode(&mut body.as_slice(), false),
                (EVENT, _) => {}
                (UNKNOWN_REQUEST, _) => return Err(ViciError::Unknown(name.to_owned())),
                _ => return Err(ViciError::Malformed),
            }
        }
    }

    /// A request that is answered by events, one for each thing.
    pub(crate) async fn list(&mut self, name: &str, event: &str) -> Result<Vec<Section>, ViciError> {
        self.send(REGISTER, Some(event), &Section::default()).await?;
        match self.receive().await? {
            (CONFIRM, _) => {}
            (UNKNOWN_EVENT, _) => return Err(ViciError::Unknown(event.to_owned())),
            _ => return Err(ViciError::Malformed),
        }
        self.send(REQUEST, Some(name), &Section::default()).await?;
        let mut events = Vec::new();
        loop {
            match self.receive().await? {
                (RESPONSE, _) => return Ok(events),
                (EVENT, body) => {
                    let mut rest = body.as_slice();
                    take_name(&mut rest)?;
                    events.push(Section::decode(&mut rest, false)?);
                }
                (UNKNOWN_REQUEST, _) => return Err(ViciError::Unknown(name.to_owned())),
                _ => return Err(ViciError::Malformed),
            }
        }
    }

    async fn send(&mut self, kind: u8, name: Option<&str>, message: &Section) -> Result<(), ViciError> {
        let mut body = Vec::new();
        match name {
            Some(name) => put_name(&mut body, kind, name),
            None => body.push(kind),
        }
        message.encode(&mut body);
        let length = u32::try_from(body.len()).map_err(|_| ViciError::Malformed)?;
        let mut packet = length.to_be_bytes().to_vec();
        packet.append(&mut body);
        timeout(PATIENCE, self.stream.write_all(&packet)).await.map_err(late)??;
        Ok(())
    }

    async fn receive(&mut self) -> Result<(u8, Vec<u8>), ViciError> {
        let read = async {
            let length = self.stream.read_u32().await? as usize;
            if length == 0 || length > LARGEST {
                return Err(ViciError::Malformed);
            }
            let mut packet = vec![0; length];
            self.stream.read_exact(&mut packet).await?;
            let body = packet.split_off(1);
            Ok((packet[0], body))
        };
        timeout(PATIENCE, read).await.map_err(late)?
    }
}

fn late(_: tokio::time::error::Elapsed) -> ViciError {
    ViciError::Io(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Section {
        let inner = Section::default().text("auth", "psk").list("ids", &["a", "b"]).list("none", &[]);
        Section::default().text("version", "2").section("local", inner).text("last", "")
    }

    #[test]
    fn a_message_survives_the_wire() {
        let mut bytes = Vec::new();
        message().encode(&mut bytes);
        let read = Section::decode(&mut bytes.as_slice(), false).unwrap();
        assert_eq!(read, message());
        assert_eq!(read.child("local").unwrap().get("auth"), Some("psk"));
        assert_eq!(read.get("local"), None);
    }

    /// The example of the protocol's own description, byte by byte.
    #[test]
    fn the_bytes_are_those_of_the_protocol() {
        let mut bytes = Vec::new();
        Section::default()
            .text("key1", "value1")
            .section("section1", Section::default().list("list1", &["item1"]))
            .encode(&mut bytes);
        let wanted = b"\x03\x04key1\x00\x06value1\x01\x08section1\x04\x05list1\x05\x00\x05item1\x06\x02";
        assert_eq!(bytes, wanted);
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_an_error_or_a_message_and_never_a_panic() {
        let mut bytes = Vec::new();
        message().encode(&mut bytes);
        for cut in 0..bytes.len() {
            let _ = Section::decode(&mut &bytes[..cut], false);
        }
        for place in 0..bytes.len() {
            for flip in 1..=255u8 {
                let mut bad = bytes.clone();
                bad[place] ^= flip;
                let _ = Section::decode(&mut bad.as_slice(), false);
            }
        }
        assert!(matches!(Section::decode(&mut &[1u8, 1, b'a'][..], false), Err(ViciError::Malformed)));
    }
}
