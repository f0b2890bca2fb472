//! The kernel's table of connections: removes flows that lead to endpoints which are no more, or that a policy forbids.

use std::net::IpAddr;

use node_services::conntrack::{Cleanup, Flow};

use crate::netlink::{ACK, Attrs, DUMP, Header, Message, MessageWriter, NetlinkError, REQUEST, Socket};

pub(crate) const NETLINK_NETFILTER: isize = 12;
pub(crate) const SUBSYSTEM: u16 = 1;
const GET: u16 = 1;
pub(crate) const DELETE: u16 = 2;
pub(crate) const FIXED: usize = 4;
const NO_ENTRY: i32 = 2;

const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;

/// A connection, seen from who opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    pub protocol: u8,
    pub source: IpAddr,
    /// As the client wrote it, before any translation.
    pub destination: IpAddr,
    /// Who answers: the destination after translation.
    pub answered_by: IpAddr,
    /// Whom answers are sent to: the source after translation.
    pub answered_to: IpAddr,
    /// Ports of the client, of the destination and of who answers; for ICMP the first is type × 256 + code.
    pub source_port: Option<u16>,
    pub destination_port: Option<u16>,
    pub answering_port: Option<u16>,
    /// The client's port after translation.
    pub answered_port: Option<u16>,
}

impl Connection {
    fn flow(&self) -> Option<Flow> {
        let destination = (self.destination, self.destination_port?);
        let answered_by = (self.answered_by, self.answering_port?);
        Some(Flow { protocol: self.protocol, destination, answered_by })
    }

    /// The port that was asked for, where somebody else than who was asked for answers.
    pub fn published(&self) -> Option<u16> {
        let asked = (self.destination, self.destination_port);
        (asked != (self.answered_by, self.answering_port)).then(|| asked.1.unwrap_or_default())
    }

    /// Whether who answers knows the client under another address.
    pub fn is_hidden(&self) -> bool {
        let is_other_port = self.answered_port.is_some_and(|port| Some(port) != self.source_port);
        self.answered_to != self.source || is_other_port
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConntrackError {
    #[error("cannot read the table of connections: is connection tracking built into this kernel?")]
    Read(#[source] NetlinkError),
    #[error("cannot delete a stale connection")]
    Delete(#[source] NetlinkError),
}

pub struct Conntrack {
    socket: Socket,
}

/// What names a flow to the kernel: its attributes as they were dumped.
struct Found {
    original: Vec<u8>,
    id: Option<Vec<u8>>,
    zone: Option<Vec<u8>>,
}

impl Conntrack {
    /// Acts in the network namespace of the calling thread.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { socket: Socket::open(NETLINK_NETFILTER, "netfilter")? })
    }

    /// Deletes the stale flows of a family and returns how many there were. O(flows in the table).
    pub fn clean(&mut self, ipv6: bool, cleanup: &Cleanup) -> Result<usize, ConntrackError> {
        if cleanup.is_empty() {
            return Ok(0);
        }
        self.delete_if(ipv6, |connection| connection.flow().is_some_and(|flow| cleanup.is_stale(&flow)))
    }

    /// Deletes the connections that are meant and returns how many there were. O(flows in the table).
    pub fn delete_if(
        &mut self,
        ipv6: bool,
        is_meant: impl FnMut(&Connection) -> bool,
    ) -> Result<usize, ConntrackError> {
        let found = self.find(ipv6, is_meant).map_err(ConntrackError::Read)?;
        for flow in &found {
            match self.delete(ipv6, flow) {
                // It ended by itself.
                Err(error) if error.errno() == Some(NO_ENTRY) => {}
                done => done.map_err(ConntrackError::Delete)?,
            }
        }
        Ok(found.len())
    }

    fn find(
        &mut self,
        ipv6: bool,
        mut is_meant: impl FnMut(&Connection) -> bool,
    ) -> Result<Vec<Found>, NetlinkError> {
        let mut request = MessageWriter::new();
        let header =
            Header { kind: SUBSYSTEM << 8 | GET, flags: REQUEST | DUMP, seq: self.socket.next_seq() };
        request.message(header, &fixed(ipv6), |_| {});
        let mut found = Vec::new();
        self.socket.dump(request.as_bytes(), |message: Option<&Message<'_>>| {
            let Some(message) = message else {
                found.clear();
                return Ok::<_, NetlinkError>(());
            };
            let attrs = message.attrs(FIXED)?;
            if connection(&attrs)?.is_some_and(|connection| is_meant(&connection)) {
                let copy = |kind| -> Result<Option<Vec<u8>>, NetlinkError> {
                    Ok(attrs.find(kind)?.map(|attr| attr.value.to_vec()))
                };
                let original = attrs.get(ORIGINAL)?.value.to_vec();
                found.push(Found { original, id: copy(ID)?, zone: copy(ZONE)? });
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn delete(&mut self, ipv6: bool, flow: &Found) -> Result<(), NetlinkError> {
        let mut request = MessageWriter::new();
        let seq = self.socket.next_seq();
        let header = Header { kind: SUBSYSTEM << 8 | DELETE, flags: REQUEST | ACK, seq };
        request.message(header, &fixed(ipv6), |out| {
            out.nest(ORIGINAL, |out| out.raw(&flow.original));
            // The same addresses and ports may be a new flow by now; its number is another.
            flow.id.iter().for_each(|id| out.bytes(ID, id));
            flow.zone.iter().for_each(|zone| out.bytes(ZONE, zone));
        });
        self.socket.execute(request.as_bytes(), seq)
    }
}

fn fixed(ipv6: bool) -> [u8; FIXED] {
    [if ipv6 { 10 } else { 2 }, 0, 0, 0]
}

/// `None` if the kernel left the addresses out.
pub(crate) fn connection(attrs: &Attrs<'_>) -> Result<Option<Connection>, NetlinkError> {
    let (original, reply) = (attrs.get(ORIGINAL)?.nested(), attrs.get(REPLY)?.nested());
    let protocol = original.get(TUPLE_PROTO)?.nested().get(1)?.value.first().copied().unwrap_or(0);
    let (Some(source), Some(destination)) = (address(&original, 1, 3)?, address(&original, 2, 4)?) else {
        return Ok(None);
    };
    let (Some(answered_by), Some(answered_to)) = (address(&reply, 1, 3)?, address(&reply, 2, 4)?) else {
        return Ok(None);
    };
    Ok(Some(Connection {
        protocol,
        source,
        destination,
        answered_by,
        answered_to,
        source_port: port(&original, 2)?.or(icmp(&original)?),
        destination_port: port(&original, 3)?,
        answering_port: port(&reply, 2)?,
        answered_port: port(&reply, 3)?,
    }))
}

/// Type and code, of either family.
fn icmp(tuple: &Attrs<'_>) -> Result<Option<u16>, NetlinkError> {
    let protocol = tuple.get(TUPLE_PROTO)?.nested();
    let byte = |kinds: [u16; 2]| -> Result<Option<u8>, NetlinkError> {
        let attr = match protocol.find(kinds[0])? {
            None => protocol.find(kinds[1])?,
            found => found,
        };
        Ok(attr.and_then(|attr| attr.value.first().copied()))
    };
    Ok(byte([5, 8])?.zip(byte([6, 9])?).map(|(kind, code)| u16::from_be_bytes([kind, code])))
}

fn address(tuple: &Attrs<'_>, ipv4: u16, ipv6: u16) -> Result<Option<IpAddr>, NetlinkError> {
    let addresses = tuple.get(TUPLE_IP)?.nested();
    if let Some(attr) = addresses.find(ipv4)? {
        return Ok(attr.value.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)));
    }
    Ok(addresses
        .find(ipv6)?
        .and_then(|attr| attr.value.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes))))
}

fn port(tuple: &Attrs<'_>, kind: u16) -> Result<Option<u16>, NetlinkError> {
    tuple.get(TUPLE_PROTO)?.nested().find(kind)?.map(|attr| attr.be16()).transpose()
}
