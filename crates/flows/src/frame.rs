//! Flows as bytes: a frame is what came at once. Ends, nodes and rules are in it once.
//!
//! ```text
//!   length  u32   of what follows the checksum
//!   crc32   u32   of what follows
//!   first   u64   the earliest and the latest time in it, so that a frame can be passed over
//!   last    u64
//!   content       protobuf; fields are only ever added
//! ```

use std::{
    hash::Hash,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use prost::Message as _;
use rustc_hash::FxHashMap;

use crate::{Direction, End, Flow, Kind, Verdict};

pub const HEADER: usize = 8;
const TIMES: usize = 16;
/// A length beyond this is none.
const MAX: usize = 64 << 20;

#[derive(Clone, PartialEq, prost::Message)]
struct StoredFrame {
    #[prost(message, repeated, tag = "1")]
    ends: Vec<StoredEnd>,
    /// Names of nodes, and rules.
    #[prost(string, repeated, tag = "2")]
    words: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    rows: Vec<StoredRow>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredEnd {
    #[prost(bytes = "vec", tag = "1")]
    address: Vec<u8>,
    #[prost(string, tag = "2")]
    workload: String,
    /// Keys and values in turn.
    #[prost(string, repeated, tag = "3")]
    labels: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    tags: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredRow {
    #[prost(uint32, tag = "1")]
    node: u32,
    #[prost(uint32, tag = "2")]
    verdict: u32,
    #[prost(uint32, tag = "3")]
    direction: u32,
    #[prost(uint32, tag = "4")]
    from: u32,
    #[prost(uint32, tag = "5")]
    to: u32,
    #[prost(uint32, tag = "6")]
    protocol: u32,
    #[prost(uint32, optional, tag = "7")]
    port: Option<u32>,
    #[prost(bytes = "vec", tag = "8")]
    service: Vec<u8>,
    #[prost(uint32, tag = "9")]
    service_port: u32,
    #[prost(uint32, tag = "10")]
    rule: u32,
    #[prost(uint64, tag = "11")]
    count: u64,
    #[prost(uint64, optional, tag = "12")]
    bytes: Option<u64>,
    #[prost(uint64, tag = "13")]
    first: u64,
    /// After the first.
    #[prost(uint64, tag = "14")]
    lasted: u64,
}

/// Things by their place, each once.
struct Places<K, V> {
    list: Vec<V>,
    known: FxHashMap<K, u32>,
}

impl<K: Hash + Eq, V> Places<K, V> {
    fn new() -> Self {
        Self { list: Vec::new(), known: FxHashMap::default() }
    }

    fn of(&mut self, key: K, make: impl FnOnce() -> V) -> u32 {
        let next = u32::try_from(self.list.len()).expect("a frame has fewer than 2^32 rows");
        *self.known.entry(key).or_insert_with(|| {
            self.list.push(make());
            next
        })
    }
}

/// One frame, which ends where it says.
pub fn encode(flows: &[Flow]) -> Vec<u8> {
    let (mut ends, mut words) = (Places::new(), Places::new());
    let mut rows = Vec::with_capacity(flows.len());
    for flow in flows {
        let kind = &flow.kind;
        let mut end = |end: &Arc<End>| ends.of(Arc::clone(end), || stored_end(end));
        let (from, to) = (end(&kind.from), end(&kind.to));
        let mut word = |word: &Arc<str>| words.of(Arc::clone(word), || word.to_string());
        rows.push(StoredRow {
            node: word(&kind.node),
            verdict: kind.verdict as u32,
            direction: kind.direction as u32,
            from,
            to,
            protocol: kind.protocol.into(),
            port: kind.port.map(u32::from),
            service: octets(kind.service.map(|service| service.ip())),
            service_port: kind.service.map_or(0, |service| service.port().into()),
            rule: word(&kind.rule),
            count: flow.count,
            bytes: flow.bytes,
            first: flow.first,
            lasted: flow.last.saturating_sub(flow.first),
        });
    }
    let first = flows.iter().map(|flow| flow.first).min().unwrap_or_default();
    let last = flows.iter().map(|flow| flow.last).max().unwrap_or_default();
    let frame = StoredFrame { ends: ends.list, words: words.list, rows };
    let mut content = [first.to_le_bytes(), last.to_le_bytes()].concat();
    content.reserve(frame.encoded_len());
    frame.encode(&mut content).expect("a vector takes everything");
    let length = u32::try_from(content.len()).expect("what comes at once is far below 4 GiB");
    let mut bytes = [length.to_le_bytes(), crc32fast::hash(&content).to_le_bytes()].concat();
    bytes.extend(content);
    bytes
}

fn stored_end(end: &End) -> StoredEnd {
    StoredEnd {
        address: octets(end.address),
        workload: end.workload.clone(),
        labels: end.labels.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect(),
        tags: end.tags.clone(),
    }
}

fn octets(address: Option<IpAddr>) -> Vec<u8> {
    match address {
        Some(IpAddr::V4(address)) => address.octets().to_vec(),
        Some(IpAddr::V6(address)) => address.octets().to_vec(),
        None => Vec::new(),
    }
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

/// The whole frames that bytes begin with.
pub struct Frames<'a> {
    rest: &'a [u8],
    /// Bytes of whole frames until here.
    pub whole: usize,
}

impl<'a> Frames<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, whole: 0 }
    }
}

/// A frame that is whole.
pub struct Frame<'a> {
    pub first: u64,
    pub last: u64,
    content: &'a [u8],
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let number = |at: usize| Some(u32::from_le_bytes(*self.rest.get(at..)?.first_chunk()?));
        let (length, sum) = (usize::try_from(number(0)?).ok()?, number(4)?);
        let content = self.rest.get(HEADER..).filter(|_| length <= MAX)?.get(..length)?;
        if crc32fast::hash(content) != sum {
            return None;
        }
        let time = |at: usize| Some(u64::from_le_bytes(*content.get(at..)?.first_chunk()?));
        let frame = Frame { first: time(0)?, last: time(8)?, content: content.get(TIMES..)? };
        self.rest = &self.rest[HEADER + length..];
        self.whole += HEADER + length;
        Some(frame)
    }
}

impl Frame<'_> {
    /// Its flows. What cannot be read, as from a newer version, is left out.
    pub fn flows(&self) -> Vec<Flow> {
        let Ok(frame) = StoredFrame::decode(self.content) else { return Vec::new() };
        let ends: Vec<Arc<End>> = frame.ends.into_iter().map(|end| Arc::new(end_of(end))).collect();
        let words: Vec<Arc<str>> = frame.words.into_iter().map(Arc::from).collect();
        frame.rows.into_iter().filter_map(|row| flow(row, &ends, &words)).collect()
    }
}

fn end_of(end: StoredEnd) -> End {
    let mut labels = Vec::with_capacity(end.labels.len() / 2);
    let mut texts = end.labels.into_iter();
    while let (Some(key), Some(value)) = (texts.next(), texts.next()) {
        labels.push((key, value));
    }
    End { address: address(&end.address), workload: end.workload, labels, tags: end.tags }
}

fn flow(row: StoredRow, ends: &[Arc<End>], words: &[Arc<str>]) -> Option<Flow> {
    let end = |place: u32| ends.get(usize::try_from(place).ok()?).cloned();
    let word = |place: u32| words.get(usize::try_from(place).ok()?).cloned();
    let port = u16::try_from(row.service_port).ok()?;
    Some(Flow {
        kind: Kind {
            node: word(row.node)?,
            verdict: match row.verdict {
                0 => Verdict::Allowed,
                1 => Verdict::Denied,
                2 => Verdict::Observed,
                _ => return None,
            },
            direction: match row.direction {
                0 => Direction::In,
                1 => Direction::Out,
                2 => Direction::Through,
                _ => return None,
            },
            from: end(row.from)?,
            to: end(row.to)?,
            protocol: u8::try_from(row.protocol).ok()?,
            port: row.port.map(u16::try_from).transpose().ok()?,
            service: address(&row.service).map(|ip| SocketAddr::new(ip, port)),
            rule: word(row.rule)?,
        },
        count: row.count,
        bytes: row.bytes,
        first: row.first,
        last: row.first.saturating_add(row.lasted),
    })
}
