//! Flows as collectors of IPFIX take them (RFC 7011): by address, for who was at an end has no element there.
//!
//! In: flows. Out: messages of at most so many bytes, each with how many flows it has. Holds: how many were told, which every message says,
//! so that a collector knows what it has missed. Not here: who sends them (`drivers`).
//!
//! ```text
//!   152 153  first and last, ms     8 12 or 27 28  addresses     4   protocol      11  port        32 or 139  ICMP type and code
//!   61  0 in and through, 1 out     233  1 allowed, 3 denied     3   count         1   bytes, or 0
//!   335  the rule                   300  the node
//! ```

use std::net::IpAddr;

use crate::{Direction, Flow, Verdict};

const VERSION: u16 = 10;
const HEADER: usize = 16;
const TEMPLATES: u16 = 2;
/// The templates of both families.
const V4: u16 = 256;
const V6: u16 = 257;
/// A length that stands before each value.
const VARIABLE: u16 = u16::MAX;
/// Of a text; below 255, so that its length is one byte.
const TEXT: usize = 250;
const ICMP: [u8; 2] = [1, 58];

/// Elements by number and length.
fn template(ipv6: bool) -> [(u16, u16); 13] {
    let (from, to, icmp, octets) = if ipv6 { (27, 28, 139, 16) } else { (8, 12, 32, 4) };
    [
        (152, 8),
        (153, 8),
        (from, octets),
        (to, octets),
        (4, 1),
        (11, 2),
        (icmp, 2),
        (61, 1),
        (233, 1),
        (3, 8),
        (1, 8),
        (335, VARIABLE),
        (300, VARIABLE),
    ]
}

/// The words that flows are told in.
#[derive(Debug, Default)]
pub struct Exporter {
    told: u32,
}

/// Bytes, and how many flows are in them.
pub type Message = (Vec<u8>, usize);

impl Exporter {
    /// What both templates are, for a collector that has just been found, or may have missed them. `now` in seconds since 1970.
    pub fn templates(&self, now: u32) -> Vec<u8> {
        let mut set = Vec::new();
        for (id, ipv6) in [(V4, false), (V6, true)] {
            let fields = template(ipv6);
            let count = u16::try_from(fields.len()).expect("there are a few");
            set.extend([id.to_be_bytes(), count.to_be_bytes()].concat());
            fields.iter().for_each(|(element, length)| {
                set.extend([element.to_be_bytes(), length.to_be_bytes()].concat());
            });
        }
        self.message(now, TEMPLATES, &set)
    }

    /// Flows in messages of at most `most` bytes, which is several hundred.
    pub fn messages(&mut self, flows: &[Flow], now: u32, most: usize) -> Vec<Message> {
        let mut messages = Vec::new();
        for (id, ipv6) in [(V4, false), (V6, true)] {
            let (mut set, mut count) = (Vec::new(), 0);
            for flow in flows.iter().filter(|flow| is_ipv6(flow) == ipv6) {
                let record = record(flow, ipv6);
                if count > 0 && HEADER + 4 + set.len() + record.len() > most {
                    messages.push(self.told(now, id, &set, count));
                    (set, count) = (Vec::new(), 0);
                }
                set.extend(record);
                count += 1;
            }
            if count > 0 {
                messages.push(self.told(now, id, &set, count));
            }
        }
        messages
    }

    fn told(&mut self, now: u32, id: u16, set: &[u8], count: usize) -> Message {
        let message = self.message(now, id, set);
        self.told = self.told.wrapping_add(u32::try_from(count).expect("a message has a few"));
        (message, count)
    }

    fn message(&self, now: u32, id: u16, set: &[u8]) -> Vec<u8> {
        let length = |bytes: usize| u16::try_from(bytes).expect("a message is below 64 KiB").to_be_bytes();
        let domain = 1_u32;
        let mut message = VERSION.to_be_bytes().to_vec();
        message.extend(length(HEADER + 4 + set.len()));
        message.extend([now, self.told, domain].map(u32::to_be_bytes).concat());
        message.extend(id.to_be_bytes());
        message.extend(length(4 + set.len()));
        message.extend(set);
        message
    }
}

fn is_ipv6(flow: &Flow) -> bool {
    flow.kind.from.address.or(flow.kind.to.address).is_some_and(|address| address.is_ipv6())
}

fn record(flow: &Flow, ipv6: bool) -> Vec<u8> {
    let kind = &flow.kind;
    let is_icmp = ICMP.contains(&kind.protocol);
    let port = kind.port.unwrap_or_default();
    let mut record = [flow.first, flow.last].map(u64::to_be_bytes).concat();
    address(&mut record, kind.from.address, ipv6);
    address(&mut record, kind.to.address, ipv6);
    record.push(kind.protocol);
    record.extend(if is_icmp { [0, 0] } else { port.to_be_bytes() });
    record.extend(if is_icmp { port.to_be_bytes() } else { [0, 0] });
    record.push(match kind.direction {
        Direction::In | Direction::Through => 0,
        Direction::Out => 1,
    });
    record.push(match kind.verdict {
        Verdict::Allowed | Verdict::Observed => 1,
        Verdict::Denied => 3,
    });
    record.extend(flow.count.to_be_bytes());
    record.extend(flow.bytes.unwrap_or_default().to_be_bytes());
    text(&mut record, &kind.rule);
    text(&mut record, &kind.node);
    record
}

/// Many are no address at all.
fn address(record: &mut Vec<u8>, address: Option<IpAddr>, ipv6: bool) {
    match (address, ipv6) {
        (Some(IpAddr::V4(address)), false) => record.extend(address.octets()),
        (Some(IpAddr::V6(address)), true) => record.extend(address.octets()),
        (_, false) => record.extend([0; 4]),
        (_, true) => record.extend([0; 16]),
    }
}

fn text(record: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(TEXT)];
    record.push(u8::try_from(text.len()).expect("it was cut"));
    record.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, sync::Arc};

    use super::*;
    use crate::{End, Kind};

    fn flow(from: &str, to: &str, number: u16) -> Flow {
        let end = |text: &str| Arc::new(End { address: text.parse().ok(), ..End::default() });
        let kind = Kind {
            node: "n1".into(),
            verdict: if number.is_multiple_of(2) { Verdict::Denied } else { Verdict::Allowed },
            direction: Direction::Out,
            from: end(from),
            to: end(to),
            protocol: 6,
            port: Some(number),
            service: None,
            rule: "é".repeat(200).into(),
        };
        Flow { kind, count: number.into(), bytes: Some(7), first: 1_000, last: 2_000 }
    }

    /// Read as a collector does, by the templates alone.
    fn read(
        bytes: &[u8],
        templates: &mut HashMap<u16, Vec<(u16, u16)>>,
    ) -> (u32, Vec<HashMap<u16, Vec<u8>>>) {
        let u16_at = |at: usize| u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap());
        assert_eq!((u16_at(0), usize::from(u16_at(2))), (10, bytes.len()));
        let sequence = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
        let (id, end) = (u16_at(16), 16 + usize::from(u16_at(18)));
        assert_eq!(end, bytes.len(), "one set in each");
        let (mut at, mut records) = (20, Vec::new());
        while at < end {
            if id == 2 {
                let (id, count) = (u16_at(at), usize::from(u16_at(at + 2)));
                let fields = (0..count).map(|field| (u16_at(at + 4 + 4 * field), u16_at(at + 6 + 4 * field)));
                templates.insert(id, fields.collect());
                at += 4 + 4 * count;
                continue;
            }
            let mut record = HashMap::new();
            for (element, length) in &templates[&id] {
                let length = match *length {
                    VARIABLE => {
                        at += 1;
                        usize::from(bytes[at - 1])
                    }
                    length => usize::from(length),
                };
                record.insert(*element, bytes[at..at + length].to_vec());
                at += length;
            }
            records.push(record);
        }
        (sequence, records)
    }

    #[test]
    fn what_a_collector_reads_by_the_templates_is_what_was_told() {
        let mut exporter = Exporter::default();
        let mut templates = HashMap::new();
        read(&exporter.templates(9), &mut templates);
        let flows: Vec<Flow> = (0..50)
            .map(|number| match number % 3 {
                0 => flow("10.0.0.1", "10.0.0.2", number),
                1 => flow("fd00::1", "", number),
                _ => flow("", "10.0.0.2", number),
            })
            .collect();
        let mut ports = Vec::new();
        for round in 0..2 {
            for (bytes, count) in exporter.messages(&flows, 9, 1_400) {
                assert!(bytes.len() <= 1_400);
                let (sequence, records) = read(&bytes, &mut templates);
                assert_eq!(
                    (usize::try_from(sequence).unwrap(), records.len()),
                    (ports.len(), count),
                    "round {round}"
                );
                for record in records {
                    let port = u16::from_be_bytes(record[&11].as_slice().try_into().unwrap());
                    assert_eq!(record[&233], [if port.is_multiple_of(2) { 3 } else { 1 }]);
                    assert_eq!(record[&335].len(), 250, "é has two bytes");
                    assert_eq!((record[&300].as_slice(), record[&61].as_slice()), (&b"n1"[..], &[1][..]));
                    assert_eq!(record.contains_key(&27), port % 3 == 1);
                    ports.push(port);
                }
            }
        }
        ports.sort_unstable();
        let expected: Vec<u16> = (0..50).flat_map(|port| [port, port]).collect();
        assert_eq!(ports, expected, "each of them, twice");
        let mut ping = flow("10.0.0.1", "10.0.0.2", 8 << 8);
        ping.kind.protocol = 1;
        let (_, records) = read(&exporter.messages(&[ping], 9, 1_400)[0].0, &mut templates);
        assert_eq!((records[0][&11].as_slice(), records[0][&32].as_slice()), (&[0, 0][..], &[8, 0][..]));
    }
}
