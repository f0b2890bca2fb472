//! Links, addresses and routes over route netlink: the interface that holds the addresses of services, and the links that
//! lead to other network namespaces.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use crate::netlink::{
    ACK, CREATE, DUMP, EXCLUSIVE, Header, Message, MessageWriter, NetlinkError, REQUEST, Refusal, Socket,
};

const NETLINK_ROUTE: isize = 0;
const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DEL_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
const GET_ROUTE: u16 = 26;
const GET_NAMESPACE: u16 = 90;

const LINK_FIXED: usize = 16;
const ADDRESS_FIXED: usize = 8;
const LINK_NAME: u16 = 3;
const LINK_MASTER: u16 = 10;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const LINK_NAMESPACE: u16 = 37;
const ROUTE_FIXED: usize = 12;
const ROUTE_TO: u16 = 1;
const ROUTE_LINK: u16 = 4;
const NAMESPACE_FIXED: usize = 4;
const NAMESPACE_ID: u16 = 1;
const NAMESPACE_FD: u16 = 3;
const UNICAST: u8 = 1;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;

const NO_DEVICE: i32 = 19;
const EXISTS: i32 = 17;
const NOT_AVAILABLE: i32 = 99;
const NET_UNREACHABLE: i32 = 101;
const HOST_UNREACHABLE: i32 = 113;
/// Duplicate address detection would leave an IPv6 address unusable for a second.
const NO_DAD: u8 = 0x02;

const CHUNK: usize = 64;

pub struct Links {
    socket: Socket,
}

/// A link as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// One end of a pair whose other end is in another network namespace.
    pub leads_elsewhere: bool,
    /// That namespace, as this one numbers it.
    pub namespace: Option<i32>,
    /// What passes between its ports is no business of the node's routes, nor of what is filtered there.
    pub is_bridge: bool,
    /// The number of the link that it is a port of, as of a bridge.
    pub master: Option<u32>,
}

impl Links {
    /// Acts in the network namespace of the calling thread.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { socket: Socket::open(NETLINK_ROUTE, "route")? })
    }

    /// The number of a dummy interface of this name, which is made if there is none. It stays down: an address
    /// attracts packets all the same, and nothing is announced through it.
    pub fn ensure_dummy(&mut self, name: &str) -> Result<u32, NetlinkError> {
        if let Some(index) = self.find(name)? {
            return Ok(index);
        }
        let seq = self.socket.next_seq();
        let mut out = MessageWriter::new();
        let header = Header { kind: NEW_LINK, flags: REQUEST | ACK | CREATE | EXCLUSIVE, seq };
        out.message(header, &[0; LINK_FIXED], |out| {
            out.text(LINK_NAME, name);
            out.nest(LINK_INFO, |out| out.text(INFO_KIND, "dummy"));
        });
        match self.socket.execute(out.as_bytes(), seq) {
            Err(error) if error.errno() != Some(EXISTS) => return Err(error),
            _ => {}
        }
        self.find(name)?.ok_or(NetlinkError::Silent)
    }

    /// The number of an interface, or `None` if there is none of that name.
    pub fn find(&mut self, name: &str) -> Result<Option<u32>, NetlinkError> {
        let mut out = MessageWriter::new();
        let header = Header { kind: GET_LINK, flags: REQUEST, seq: self.socket.next_seq() };
        out.message(header, &[0; LINK_FIXED], |out| out.text(LINK_NAME, name));
        let found = self.socket.get(out.as_bytes(), index);
        match found {
            Ok(index) => Ok(Some(index)),
            Err(error) if error.errno() == Some(NO_DEVICE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn delete(&mut self, index: u32) -> Result<(), NetlinkError> {
        let seq = self.socket.next_seq();
        let mut fixed = [0; LINK_FIXED];
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        let mut out = MessageWriter::new();
        out.message(Header { kind: DEL_LINK, flags: REQUEST | ACK, seq }, &fixed, |_| {});
        self.socket.execute(out.as_bytes(), seq)
    }

    /// All links. One dump.
    pub fn list(&mut self) -> Result<Vec<Link>, NetlinkError> {
        self.collect(GET_LINK, LINK_FIXED, |message| read_link(message).map(Some))
    }

    /// The number that this network namespace has for another one, which is open here; none: no link leads there.
    pub fn namespace_id(&mut self, namespace: BorrowedFd<'_>) -> Result<Option<i32>, NetlinkError> {
        let mut out = MessageWriter::new();
        let header = Header { kind: GET_NAMESPACE, flags: REQUEST, seq: self.socket.next_seq() };
        let number = namespace.as_raw_fd().cast_unsigned();
        out.message(header, &[0; NAMESPACE_FIXED], |out| out.u32(NAMESPACE_FD, number));
        let read = |message: &Message<'_>| {
            let id = message.attrs(NAMESPACE_FIXED)?.get(NAMESPACE_ID)?.u32()?.cast_signed();
            Ok((id >= 0).then_some(id))
        };
        self.socket.get(out.as_bytes(), read)
    }

    /// Single addresses that are routed through one link, each with the number of that link. One dump.
    pub fn routes(&mut self) -> Result<Vec<(u32, IpAddr)>, NetlinkError> {
        self.collect(GET_ROUTE, ROUTE_FIXED, read_route)
    }

    /// The link over which the node sends to an address. `None`: there is no way.
    pub fn way_to(&mut self, address: IpAddr) -> Result<Option<u32>, NetlinkError> {
        let mut fixed = [0; ROUTE_FIXED];
        (fixed[0], fixed[1]) = if address.is_ipv6() { (10, 128) } else { (2, 32) };
        let mut out = MessageWriter::new();
        let header = Header { kind: GET_ROUTE, flags: REQUEST, seq: self.socket.next_seq() };
        out.message(header, &fixed, |out| match address {
            IpAddr::V4(address) => out.bytes(ROUTE_TO, &address.octets()),
            IpAddr::V6(address) => out.bytes(ROUTE_TO, &address.octets()),
        });
        let link = |message: &Message<'_>| {
            message.attrs(ROUTE_FIXED)?.find(ROUTE_LINK)?.map(|link| link.u32()).transpose()
        };
        match self.socket.get(out.as_bytes(), link) {
            Err(error) if matches!(error.errno(), Some(NET_UNREACHABLE | HOST_UNREACHABLE)) => Ok(None),
            found => found,
        }
    }

    fn collect<T>(
        &mut self,
        kind: u16,
        fixed: usize,
        read: impl Fn(&Message<'_>) -> Result<Option<T>, NetlinkError>,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut out = MessageWriter::new();
        let header = Header { kind, flags: REQUEST | DUMP, seq: self.socket.next_seq() };
        out.message(header, &[0; LINK_FIXED][..fixed], |_| {});
        let mut all = Vec::new();
        self.socket.dump(out.as_bytes(), |message: Option<&Message<'_>>| {
            match message {
                Some(message) => all.extend(read(message)?),
                None => all.clear(),
            }
            Ok::<_, NetlinkError>(())
        })?;
        Ok(all)
    }

    /// All addresses, each with the number of its interface. One dump.
    pub fn addresses(&mut self) -> Result<BTreeSet<(u32, IpAddr)>, NetlinkError> {
        let mut out = MessageWriter::new();
        let header = Header { kind: GET_ADDRESS, flags: REQUEST | DUMP, seq: self.socket.next_seq() };
        out.message(header, &[0; ADDRESS_FIXED], |_| {});
        let mut addresses = BTreeSet::new();
        self.socket.dump(out.as_bytes(), |message: Option<&Message<'_>>| {
            match message {
                Some(message) => addresses.extend(read_address(message)?),
                None => addresses.clear(),
            }
            Ok::<_, NetlinkError>(())
        })?;
        Ok(addresses)
    }

    /// Adds or removes addresses of an interface, and returns those that were refused. What is already so is not.
    pub fn change(
        &mut self,
        index: u32,
        add: bool,
        addresses: &[IpAddr],
    ) -> Result<Vec<(IpAddr, Refusal)>, NetlinkError> {
        let mut refused = Vec::new();
        for chunk in addresses.chunks(CHUNK) {
            let mut out = MessageWriter::new();
            let first = self.socket.next_seq();
            let mut seq = first;
            for (number, address) in chunk.iter().enumerate() {
                if number > 0 {
                    seq = self.socket.next_seq();
                }
                let ack = if number + 1 == chunk.len() { ACK } else { 0 };
                let (kind, flags) = if add { (NEW_ADDRESS, CREATE | EXCLUSIVE) } else { (DEL_ADDRESS, 0) };
                write_address(&mut out, Header { kind, flags: REQUEST | flags | ack, seq }, index, *address);
            }
            for refusal in self.socket.execute_each(out.as_bytes(), seq)? {
                if refusal.errno == if add { EXISTS } else { NOT_AVAILABLE } {
                    continue;
                }
                let address = chunk.get(refusal.seq.wrapping_sub(first) as usize);
                refused.extend(address.map(|address| (*address, refusal)));
            }
        }
        Ok(refused)
    }
}

fn index(message: &Message<'_>) -> Result<u32, NetlinkError> {
    let bytes = message.body.get(4..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(NetlinkError::Malformed)
}

pub(crate) fn read_link(message: &Message<'_>) -> Result<Link, NetlinkError> {
    let attrs = message.attrs(LINK_FIXED)?;
    let kind = match attrs.find(LINK_INFO)? {
        Some(info) => info.nested().find(INFO_KIND)?.map(|kind| kind.text()),
        None => None,
    };
    let kind = kind.unwrap_or_default();
    let is_pair = matches!(&*kind, "veth" | "netkit");
    let namespace = attrs.find(LINK_NAMESPACE)?.map(|namespace| namespace.u32()).transpose()?;
    let namespace = namespace.map(u32::cast_signed);
    Ok(Link {
        index: index(message)?,
        name: attrs.get(LINK_NAME)?.text(),
        leads_elsewhere: is_pair && namespace.is_some(),
        namespace,
        is_bridge: kind == "bridge",
        master: attrs.find(LINK_MASTER)?.map(|master| master.u32()).transpose()?,
    })
}

/// A single address that is routed through one link, and the number of that link; none if it is another route.
pub(crate) fn read_route(message: &Message<'_>) -> Result<Option<(u32, IpAddr)>, NetlinkError> {
    let [family, length, .., kind, _, _, _, _] =
        message.body.first_chunk::<ROUTE_FIXED>().ok_or(NetlinkError::Malformed)?;
    let is_single = matches!((family, length), (2, 32) | (10, 128)) && *kind == UNICAST;
    let attrs = message.attrs(ROUTE_FIXED)?;
    let (Some(to), Some(link)) = (attrs.find(ROUTE_TO)?, attrs.find(ROUTE_LINK)?) else {
        return Ok(None);
    };
    let to = to
        .value
        .first_chunk::<16>()
        .map(|bytes| IpAddr::from(*bytes))
        .or_else(|| to.value.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)));
    to.filter(|_| is_single).map(|to| Ok((link.u32()?, to))).transpose()
}

fn write_address(out: &mut MessageWriter, header: Header, index: u32, address: IpAddr) {
    let (family, len) = if address.is_ipv6() { (10, 128) } else { (2, 32) };
    let [a, b, c, d] = index.to_ne_bytes();
    out.message(header, &[family, len, NO_DAD, 0, a, b, c, d], |out| match address {
        IpAddr::V4(address) => {
            out.bytes(LOCAL, &address.octets());
            out.bytes(ADDRESS, &address.octets());
        }
        IpAddr::V6(address) => out.bytes(LOCAL, &address.octets()),
    });
}

pub(crate) fn read_address(message: &Message<'_>) -> Result<Option<(u32, IpAddr)>, NetlinkError> {
    let index = message.body.get(4..8).and_then(|bytes| bytes.first_chunk());
    let index = index.map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(NetlinkError::Malformed)?;
    let attrs = message.attrs(ADDRESS_FIXED)?;
    let Some(address) = attrs.find(LOCAL)?.or(attrs.find(ADDRESS)?) else { return Ok(None) };
    let ipv6 = message.body.first() == Some(&10);
    let address = if ipv6 {
        address.value.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes))
    } else {
        address.value.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes))
    };
    Ok(address.map(|address| (index, address)))
}
