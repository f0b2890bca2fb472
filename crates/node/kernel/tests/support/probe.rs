//! One packet, or the first of a connection, from one host of the lab to another: what becomes of it.

use std::{
    io::{ErrorKind, Read},
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use testkit::packets as packet;

/// Long enough for a busy machine to answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// Silence for this long is taken for a dropped packet.
const SILENCE: Duration = Duration::from_millis(500);

static PINGS: AtomicU16 = AtomicU16::new(1);
static UDP_PORTS: AtomicU16 = AtomicU16::new(10_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passed,
    Refused,
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Tcp(u16),
    Udp(u16),
    /// Arrives or not; nobody answers.
    Sctp(u16),
    Ping,
}

/// How long to wait: not for what is expected to be dropped.
pub fn patience(expected: Fate) -> Duration {
    if expected == Fate::Dropped { SILENCE } else { PATIENCE }
}

impl Probe {
    /// From within the namespace of `from`. SCTP needs the listener of [`listen_sctp`].
    pub fn send(self, from: IpAddr, to: IpAddr, patience: Duration) -> Fate {
        let sent = match self {
            Self::Tcp(port) => tcp(from, SocketAddr::new(to, port), patience),
            Self::Udp(port) => udp(from, SocketAddr::new(to, port), patience),
            Self::Ping => ping(from, to, patience),
            Self::Sctp(_) => unreachable!("sent by send_sctp"),
        };
        match sent {
            Ok(()) => Fate::Passed,
            Err(ErrorKind::TimedOut | ErrorKind::WouldBlock) => Fate::Dropped,
            Err(_) => Fate::Refused,
        }
    }
}

/// SOCK_RAW.
fn raw() -> Type {
    Type::from(3)
}

fn domain(address: IpAddr) -> Domain {
    if address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 }
}

fn bound(from: IpAddr, kind: Type, protocol: Option<Protocol>) -> std::io::Result<Socket> {
    let socket = Socket::new(domain(from), kind, protocol)?;
    socket.bind(&SockAddr::from(SocketAddr::new(from, 0)))?;
    Ok(socket)
}

fn tcp(from: IpAddr, to: SocketAddr, patience: Duration) -> Result<(), ErrorKind> {
    let attempt = || {
        let socket = bound(from, Type::STREAM, None)?;
        socket.connect_timeout(&to.into(), patience)?;
        socket.set_read_timeout(Some(patience))?;
        (&socket).read_to_string(&mut String::new()).map(drop)
    };
    attempt().map_err(|error: std::io::Error| error.kind())
}

fn udp(from: IpAddr, to: SocketAddr, patience: Duration) -> Result<(), ErrorKind> {
    let attempt = || {
        // Of its own: with a port that chance has chosen before, it would go on with what was permitted then.
        let port = UDP_PORTS.fetch_add(1, Ordering::Relaxed);
        let socket = Socket::new(domain(from), Type::DGRAM, None)?;
        socket.bind(&SockAddr::from(SocketAddr::new(from, port)))?;
        socket.connect(&to.into())?;
        socket.set_read_timeout(Some(patience))?;
        socket.send(b"who")?;
        (&socket).read(&mut [0; 64]).map(drop)
    };
    attempt().map_err(|error: std::io::Error| error.kind())
}

fn ping(from: IpAddr, to: IpAddr, patience: Duration) -> Result<(), ErrorKind> {
    let ipv6 = to.is_ipv6();
    let attempt = || {
        let protocol = if ipv6 { Protocol::ICMPV6 } else { Protocol::ICMPV4 };
        let socket = bound(from, raw(), Some(protocol))?;
        socket.connect(&SocketAddr::new(to, 0).into())?;
        socket.set_read_timeout(Some(patience))?;
        // Of its own, or it would go on with the connection of an earlier one.
        let number = PINGS.fetch_add(1, Ordering::Relaxed);
        socket.send(&packet::echo(ipv6, number))?;
        let started = Instant::now();
        while started.elapsed() < patience {
            let mut buffer = [0; 256];
            let len = (&socket).read(&mut buffer)?;
            // Before it was connected, the socket may have heard answers to others.
            match packet::answered(&buffer[..len], ipv6, number) {
                Some(true) => return Ok(()),
                Some(false) => return Err(ErrorKind::ConnectionRefused.into()),
                None => {}
            }
        }
        Err(ErrorKind::TimedOut.into())
    };
    attempt().map_err(|error: std::io::Error| error.kind())
}

const SCTP: i32 = 132;

/// A socket that sees all SCTP that comes to this namespace.
pub fn listen_sctp(at: IpAddr) -> Socket {
    Socket::new(domain(at), raw(), Some(Protocol::from(SCTP))).expect("root may open raw sockets")
}

/// The first packet of an association, with a port of its own to be recognised by.
pub fn send_sctp(from: IpAddr, to: IpAddr, port: u16, mark: u16) {
    let socket = bound(from, raw(), Some(Protocol::from(SCTP))).expect("root may open raw sockets");
    let packet = packet::write(mark, port, 0, packet::INIT, &[]);
    socket.send_to(&packet, &SocketAddr::new(to, 0).into()).expect("there is a route");
}

/// Whether a packet with this source port has arrived.
pub fn saw_sctp(socket: &Socket, ipv6: bool, mark: u16, patience: Duration) -> bool {
    let started = Instant::now();
    let mut buffer = [0; 256];
    while let Some(left) = patience.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
        socket.set_read_timeout(Some(left)).expect("a timeout above zero");
        let mut socket: &Socket = socket;
        let Ok(len) = socket.read(&mut buffer) else { return false };
        let header = if ipv6 { &buffer[..len] } else { &buffer[usize::from(buffer[0] & 15) * 4..len] };
        if header.starts_with(&mark.to_be_bytes()) {
            return true;
        }
    }
    false
}
