//! IPVS over generic netlink: virtual servers and destinations.

use std::{collections::BTreeMap, net::IpAddr};

use node_services::{
    Protocol,
    ipvs::{Op, Server, ServerId, ServerState, Socket as Destination},
};

use crate::netlink::{
    ACK, Attrs, DUMP, Header, Message, MessageWriter, NetlinkError, REQUEST, Refusal, Socket, Writer,
};

const NETLINK_GENERIC: isize = 16;
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Command, version and padding.
const FIXED: usize = 4;

const NEW_SERVICE: u8 = 1;
const SET_SERVICE: u8 = 2;
const DEL_SERVICE: u8 = 3;
const GET_SERVICE: u8 = 4;
const NEW_DEST: u8 = 5;
const SET_DEST: u8 = 6;
const DEL_DEST: u8 = 7;
const GET_DEST: u8 = 8;
const SET_CONFIG: u8 = 12;

const SERVICE: u16 = 1;
const DEST: u16 = 2;
const PERSISTENT: u32 = 1;
/// Source ports take part in the hash of `mh`, as kube-proxy sets it.
const MH_PORT: u32 = 0x10;

const NO_ENTRY: i32 = 2;
const NO_SUCH_SERVICE: i32 = 3;
const EXISTS: i32 = 17;

/// Messages per send: the kernel works them off in one go, and answers only what it refuses and the last one.
const CHUNK: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum IpvsOpenError {
    #[error("this kernel has no IPVS (module ip_vs is not there): use `--services nftables`")]
    Missing,
    #[error("cannot ask for IPVS")]
    Netlink(#[source] NetlinkError),
}

/// One operation that the kernel refused. The others were carried out.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the kernel refused {op:?}: {refusal}")]
pub struct Refused {
    pub op: Op,
    pub refusal: Refusal,
}

/// Seconds; 0 leaves a timeout as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    pub tcp: u32,
    pub tcp_fin: u32,
    pub udp: u32,
}

pub struct Ipvs {
    socket: Socket,
    family: u16,
}

impl Ipvs {
    /// Acts in the network namespace of the calling thread. Asking for the family makes the kernel load the module
    /// if it can.
    pub fn open() -> Result<Self, IpvsOpenError> {
        let mut socket = Socket::open(NETLINK_GENERIC, "generic").map_err(IpvsOpenError::Netlink)?;
        let mut request = MessageWriter::new();
        let header = Header { kind: CONTROL, flags: REQUEST, seq: socket.next_seq() };
        request.message(header, &[GET_FAMILY, 1, 0, 0], |out| out.text(FAMILY_NAME, "IPVS"));
        let family = socket.get(request.as_bytes(), |message| message.attrs(FIXED)?.get(FAMILY_ID)?.u16());
        match family {
            Ok(family) => Ok(Self { socket, family }),
            Err(error) if error.errno() == Some(NO_ENTRY) => Err(IpvsOpenError::Missing),
            Err(error) => Err(IpvsOpenError::Netlink(error)),
        }
    }

    pub fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<(), NetlinkError> {
        let seq = self.socket.next_seq();
        let mut request = MessageWriter::new();
        let header = Header { kind: self.family, flags: REQUEST | ACK, seq };
        request.message(header, &[SET_CONFIG, 1, 0, 0], |out| {
            out.u32(4, timeouts.tcp);
            out.u32(5, timeouts.tcp_fin);
            out.u32(6, timeouts.udp);
        });
        self.socket.execute(request.as_bytes(), seq)
    }

    /// All virtual servers known by address, without their destinations. Those of firewall marks are not among them.
    pub fn servers(&mut self) -> Result<BTreeMap<ServerId, Server>, NetlinkError> {
        let mut servers = BTreeMap::new();
        self.dump(
            GET_SERVICE,
            |_| {},
            |attrs| {
                match attrs {
                    Some(attrs) => servers.extend(server(&attrs.get(SERVICE)?.nested())?),
                    None => servers.clear(),
                }
                Ok(())
            },
        )?;
        Ok(servers)
    }

    /// Weight and connections of each destination of a server.
    pub fn destinations(&mut self, id: &ServerId) -> Result<BTreeMap<Destination, (u32, u64)>, NetlinkError> {
        let mut destinations = BTreeMap::new();
        let ipv6 = id.address.is_ipv6();
        let write = |out: &mut Writer<'_>| out.nest(SERVICE, |out| write_id(out, id));
        self.dump(GET_DEST, write, |attrs| {
            match attrs {
                Some(attrs) => destinations.extend([destination(&attrs.get(DEST)?.nested(), ipv6)?]),
                None => destinations.clear(),
            }
            Ok(())
        })?;
        Ok(destinations)
    }

    /// Servers with their destinations, of those that `wanted` picks. One dump for each.
    pub fn read(
        &mut self,
        wanted: impl Fn(&ServerId) -> bool,
    ) -> Result<BTreeMap<ServerId, ServerState>, NetlinkError> {
        let servers = self.servers()?;
        let mut states = BTreeMap::new();
        for (id, server) in servers.into_iter().filter(|(id, _)| wanted(id)) {
            let destinations = self.destinations(&id)?;
            let destinations =
                destinations.into_iter().map(|(socket, (weight, _))| (socket, weight)).collect();
            states.insert(id, ServerState { server, destinations });
        }
        Ok(states)
    }

    /// Carries out operations on servers and destinations in their order, and returns those that were refused.
    /// Adding what is there and removing what is not there are no refusals. Addresses are passed over.
    pub fn execute(&mut self, ops: &[Op]) -> Result<Vec<Refused>, NetlinkError> {
        let mut refused = Vec::new();
        let kernel_ops: Vec<_> = ops.iter().filter(|op| !matches!(op, Op::Bind(_) | Op::Unbind(_))).collect();
        for chunk in kernel_ops.chunks(CHUNK) {
            let mut out = MessageWriter::new();
            let first = self.socket.next_seq();
            let mut seq = first;
            for (index, op) in chunk.iter().enumerate() {
                if index > 0 {
                    seq = self.socket.next_seq();
                }
                let flags = if index + 1 == chunk.len() { REQUEST | ACK } else { REQUEST };
                self.write_op(&mut out, Header { kind: self.family, flags, seq }, op);
            }
            for refusal in self.socket.execute_each(out.as_bytes(), seq)? {
                let op = chunk.get(refusal.seq.wrapping_sub(first) as usize);
                refused.extend(
                    op.filter(|op| !is_done(op, refusal.errno))
                        .map(|op| Refused { op: (*op).clone(), refusal }),
                );
            }
        }
        Ok(refused)
    }

    fn write_op(&self, out: &mut MessageWriter, header: Header, op: &Op) {
        let mut command =
            |command, id: &ServerId, spec: Option<&Server>, dest: Option<(&Destination, Option<u32>)>| {
                out.message(header, &[command, 1, 0, 0], |out| {
                    out.nest(SERVICE, |out| {
                        write_id(out, id);
                        spec.iter().for_each(|server| write_server(out, id, server));
                    });
                    if let Some((socket, weight)) = dest {
                        out.nest(DEST, |out| write_destination(out, socket, weight));
                    }
                });
            };
        match op {
            Op::AddServer(id, server) => command(NEW_SERVICE, id, Some(server), None),
            Op::UpdateServer(id, server) => command(SET_SERVICE, id, Some(server), None),
            Op::RemoveServer(id) => command(DEL_SERVICE, id, None, None),
            Op::AddDestination(id, socket) => command(NEW_DEST, id, None, Some((socket, Some(1)))),
            Op::SetWeight(id, socket, weight) => command(SET_DEST, id, None, Some((socket, Some(*weight)))),
            Op::RemoveDestination(id, socket) => command(DEL_DEST, id, None, Some((socket, None))),
            Op::Bind(_) | Op::Unbind(_) => {}
        }
    }

    fn dump(
        &mut self,
        command: u8,
        write: impl FnOnce(&mut Writer<'_>),
        mut each: impl FnMut(Option<Attrs<'_>>) -> Result<(), NetlinkError>,
    ) -> Result<(), NetlinkError> {
        let mut request = MessageWriter::new();
        let header = Header { kind: self.family, flags: REQUEST | DUMP, seq: self.socket.next_seq() };
        request.message(header, &[command, 1, 0, 0], write);
        self.socket.dump(request.as_bytes(), |message: Option<&Message<'_>>| match message {
            Some(message) => each(Some(message.attrs(FIXED)?)),
            None => each(None),
        })
    }
}

/// The kernel is already as the operation would make it.
fn is_done(op: &Op, errno: i32) -> bool {
    match op {
        Op::AddServer(..) | Op::AddDestination(..) => errno == EXISTS,
        Op::RemoveServer(_) | Op::RemoveDestination(..) => errno == NO_SUCH_SERVICE || errno == NO_ENTRY,
        Op::UpdateServer(..) | Op::SetWeight(..) | Op::Bind(_) | Op::Unbind(_) => false,
    }
}

fn write_id(out: &mut Writer<'_>, id: &ServerId) {
    out.u16(1, if id.address.is_ipv6() { 10 } else { 2 });
    out.u16(2, id.protocol.number().into());
    write_address(out, 3, id.address);
    out.be16(4, id.port);
}

fn write_server(out: &mut Writer<'_>, id: &ServerId, server: &Server) {
    let persistent = if server.affinity.is_some() { PERSISTENT } else { 0 };
    let flags = persistent | if server.scheduler == "mh" { MH_PORT } else { 0 };
    out.text(6, &server.scheduler);
    out.bytes(7, &[flags.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat());
    out.u32(8, server.affinity.unwrap_or(0));
    out.u32(9, if id.address.is_ipv6() { 128 } else { u32::MAX });
}

fn write_destination(out: &mut Writer<'_>, (address, port): &Destination, weight: Option<u32>) {
    write_address(out, 1, *address);
    out.be16(2, *port);
    out.u16(11, if address.is_ipv6() { 10 } else { 2 });
    if let Some(weight) = weight {
        // Masquerading, and no limits of connections.
        out.u32(3, 0);
        out.u32(4, weight);
        out.u32(5, 0);
        out.u32(6, 0);
    }
}

fn write_address(out: &mut Writer<'_>, kind: u16, address: IpAddr) {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes = address.octets(),
    }
    out.bytes(kind, &bytes);
}

/// `None` for servers of firewall marks and of protocols that are not ours.
pub(crate) fn server(attrs: &Attrs<'_>) -> Result<Option<(ServerId, Server)>, NetlinkError> {
    let (Some(address), Some(port)) = (attrs.find(3)?, attrs.find(4)?) else { return Ok(None) };
    let ipv6 = attrs.get(1)?.u16()? == 10;
    let number = attrs.get(2)?.u16()?;
    let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    let Some(protocol) = protocols.into_iter().find(|one| u16::from(one.number()) == number) else {
        return Ok(None);
    };
    let id = ServerId { address: read_address(address.value, ipv6)?, port: port.be16()?, protocol };
    let flags = attrs.get(7)?.u32()?;
    let affinity = if flags & PERSISTENT != 0 { Some(attrs.get(8)?.u32()?) } else { None };
    Ok(Some((id, Server { scheduler: attrs.get(6)?.text(), affinity })))
}

pub(crate) fn destination(attrs: &Attrs<'_>, ipv6: bool) -> Result<(Destination, (u32, u64)), NetlinkError> {
    let family = attrs.find(11)?.map(|attr| attr.u16()).transpose()?;
    let ipv6 = family.map_or(ipv6, |family| family == 10);
    let address = read_address(attrs.get(1)?.value, ipv6)?;
    let count = |kind| -> Result<u64, NetlinkError> {
        Ok(attrs.find(kind)?.map(|attr| attr.u32()).transpose()?.unwrap_or(0).into())
    };
    Ok(((address, attrs.get(2)?.be16()?), (attrs.get(4)?.u32()?, count(7)? + count(8)?)))
}

fn read_address(bytes: &[u8], ipv6: bool) -> Result<IpAddr, NetlinkError> {
    if ipv6 {
        bytes.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes)).ok_or(NetlinkError::Malformed)
    } else {
        bytes.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)).ok_or(NetlinkError::Malformed)
    }
}
