//! A log group of the kernel: packets that rules tell of, with the prefix of the rule.
//!
//! The kernel gathers up to a hundred packets, or those of a tenth of a second, before it tells them, and numbers them, so that what
//! was lost is known exactly. Only the first bytes of each are told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use node_nft::{Chain, Family, Limits, Live, Plan, Rule, Table};

use crate::{
    conntrack::{Connection, NETLINK_NETFILTER, connection},
    netlink::{ACK, Attrs, Header, Message, MessageWriter, NetlinkError, REQUEST, Socket, Writer},
    nft::{Nft, TableId},
};

const SUBSYSTEM: u16 = 4;
const PACKET: u16 = 0;
const CONFIG: u16 = 1;
const FIXED: usize = 4;
/// As much of a packet as is read: addresses and ports, behind the longest IPv4 header.
const SNAP: u32 = 80;
/// Blocks that are read at once, of up to a hundred packets each.
const MOST: usize = 5_000;
/// Of a second.
const GATHER_HUNDREDTHS: u32 = 10;
const GATHER_PACKETS: u32 = 100;
const NUMBERED: u16 = 1;
const WITH_CONNECTION: u16 = 4;

mod config {
    pub const COMMAND: u16 = 1;
    pub const MODE: u16 = 2;
    pub const TIMEOUT: u16 = 4;
    pub const THRESHOLD: u16 = 5;
    pub const FLAGS: u16 = 6;
    pub const BIND: u8 = 1;
    pub const COPY_PACKET: u8 = 2;
}

mod packet {
    pub const PAYLOAD: u16 = 9;
    pub const PREFIX: u16 = 10;
    pub const NUMBER: u16 = 12;
    pub const CONNECTION: u16 = 18;
}

pub struct LogGroup {
    socket: Socket,
    /// The number of the next packet.
    next: Option<u32>,
}

impl LogGroup {
    /// Listens in the network namespace of the calling thread. Only one may listen to a group.
    pub fn open(group: u16) -> Result<Self, NetlinkError> {
        let mut socket = Socket::open(NETLINK_NETFILTER, "netfilter")?;
        configure(&mut socket, group, |out| out.bytes(config::COMMAND, &[config::BIND]))?;
        configure(&mut socket, group, |out| {
            let mut mode = SNAP.to_be_bytes().to_vec();
            mode.extend([config::COPY_PACKET, 0]);
            out.bytes(config::MODE, &mode);
            out.be32(config::TIMEOUT, GATHER_HUNDREDTHS);
            out.be32(config::THRESHOLD, GATHER_PACKETS);
            out.be16(config::FLAGS, NUMBERED);
        })?;
        // Where the kernel cannot tell the connection, packets are told as they are, after translation.
        configure(&mut socket, group, |out| out.be16(config::FLAGS, NUMBERED | WITH_CONNECTION)).ok();
        Ok(Self { socket, next: None })
    }

    /// How many bytes may wait to be read.
    pub fn set_receive_buffer(&self, bytes: usize) -> Result<(), NetlinkError> {
        self.socket.set_receive_buffer(bytes)
    }

    /// What was logged since, without waiting: the prefix of the rule and the packet's connection. How many were lost because too much
    /// was waiting. `next` says whether a packet is to be read, and for how many it stands.
    pub fn read(
        &mut self,
        mut next: impl FnMut() -> Option<u64>,
        mut each: impl FnMut(u64, &str, Connection),
    ) -> Result<u64, NetlinkError> {
        let (mut lost, expected) = (0, &mut self.next);
        self.socket.read_some_notifications(MOST, |message| {
            if message.header.kind != SUBSYSTEM << 8 | PACKET {
                return Ok(());
            }
            let attrs = message.attrs(FIXED)?;
            if let Some(number) = attrs.find(packet::NUMBER)? {
                let number = number.be32()?;
                lost += expected.map_or(0, |expected| u64::from(number.wrapping_sub(expected)));
                *expected = Some(number.wrapping_add(1));
            }
            let Some(weight) = next() else { return Ok(()) };
            let Some(connection) = told(message, &attrs)? else { return Ok(()) };
            let prefix = attrs.find(packet::PREFIX)?.map(|attr| attr.value).unwrap_or_default();
            let prefix = std::str::from_utf8(prefix.strip_suffix(&[0]).unwrap_or(prefix));
            each(weight, prefix.unwrap_or_default(), connection);
            Ok(())
        })?;
        Ok(lost)
    }
}

/// Whether rules may log here. A rule that the kernel cannot have would keep all others of its table out, so this is tried on a table
/// that nothing passes through, and that is gone afterwards.
pub fn rules_may_log(group: u16) -> bool {
    let id = TableId { family: Family::Inet, name: "trestle-trial".to_owned() };
    let mut table = Table::new(id.family, &id.name);
    table.chain("trial", Chain::regular().rule(Rule::new("may it log?").log("trestle", group)));
    let Ok(mut nft) = Nft::open() else { return false };
    let Ok(plan) = Plan::new(&table, None, Live::Atomic, Limits::default()) else { return false };
    let made = plan.transactions.iter().all(|one| nft.commit(&id, one).is_ok());
    // Whatever was made of it.
    nft.delete(&id).ok();
    made
}

fn configure(
    socket: &mut Socket,
    group: u16,
    attrs: impl FnOnce(&mut Writer<'_>),
) -> Result<(), NetlinkError> {
    let mut request = MessageWriter::new();
    let seq = socket.next_seq();
    let [high, low] = group.to_be_bytes();
    let header = Header { kind: SUBSYSTEM << 8 | CONFIG, flags: REQUEST | ACK, seq };
    request.message(header, &[0, 0, high, low], attrs);
    socket.execute(request.as_bytes(), seq)
}

/// The packet's connection, or as much of one as the packet says.
fn told(message: &Message<'_>, attrs: &Attrs<'_>) -> Result<Option<Connection>, NetlinkError> {
    if let Some(told) = attrs.find(packet::CONNECTION)?
        && let Some(connection) = connection(&told.nested())?
    {
        return Ok(Some(connection));
    }
    let ipv6 = message.body.first() == Some(&10);
    let payload = attrs.find(packet::PAYLOAD)?.map(|attr| attr.value).unwrap_or_default();
    Ok(if ipv6 { six(payload) } else { four(payload) })
}

fn four(packet: &[u8]) -> Option<Connection> {
    let address =
        |at: usize| packet.get(at..)?.first_chunk::<4>().map(|bytes| IpAddr::from(Ipv4Addr::from(*bytes)));
    let header = usize::from(packet.first()? & 0xf) * 4;
    Some(without_translation(*packet.get(9)?, address(12)?, address(16)?, packet.get(header..)?))
}

/// Extension headers are not looked behind.
fn six(packet: &[u8]) -> Option<Connection> {
    let address =
        |at: usize| packet.get(at..)?.first_chunk::<16>().map(|bytes| IpAddr::from(Ipv6Addr::from(*bytes)));
    Some(without_translation(*packet.get(6)?, address(8)?, address(24)?, packet.get(40..)?))
}

fn without_translation(protocol: u8, source: IpAddr, destination: IpAddr, header: &[u8]) -> Connection {
    let port = |at: usize| {
        let number = header.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
        number.filter(|_| matches!(protocol, 6 | 17 | 132))
    };
    let is_icmp = matches!(protocol, 1 | 58);
    let kind = || header.first_chunk().map(|bytes| u16::from_be_bytes(*bytes)).filter(|_| is_icmp);
    Connection {
        protocol,
        source,
        destination,
        answered_by: destination,
        answered_to: source,
        source_port: port(0).or_else(kind),
        destination_port: port(2),
        answering_port: port(2),
        answered_port: port(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_say_who_and_where_to() {
        let mut packet = vec![0x46, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1];
        packet.extend([0x9c, 0x40, 0, 80]);
        let found = four(&packet).unwrap();
        assert_eq!(
            (found.source.to_string(), found.destination.to_string()),
            ("10.0.0.1".into(), "10.0.0.2".into())
        );
        assert_eq!((found.source_port, found.destination_port), (Some(40_000), Some(80)));
        for cut in 0..packet.len() {
            // What is cut off is not known; nothing falls.
            let _ = (four(&packet[..cut]), six(&packet[..cut]));
        }
        packet[9] = 1;
        let found = four(&packet).unwrap();
        assert_eq!((found.source_port, found.destination_port), (Some(0x9c40), None));
    }
}
