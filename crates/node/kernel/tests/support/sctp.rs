//! SCTP as far as a first packet and its answer: not every kernel has SCTP sockets, but all track and translate it.
//!
//! A client sends INIT, a server answers INIT ACK with its text as the cookie. Both over raw sockets.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::{
    io::{self, ErrorKind, Read as _},
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use socket2::{Protocol, Socket, Type};

use super::lab::bound_to;

/// SOCK_RAW and IPPROTO_SCTP, which the crate names with all its features only.
const RAW: i32 = 3;
const SCTP: i32 = 132;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const COOKIE: u16 = 7;

static PORT: AtomicU16 = AtomicU16::new(20_000);

struct Packet {
    from: u16,
    to: u16,
    kind: u8,
    tag: u32,
    text: Vec<u8>,
}

/// Call it in the server's namespace.
pub fn listen(address: IpAddr) -> Socket {
    bound_to(address, Type::from(RAW), Some(Protocol::from(SCTP))).expect("root may open raw sockets")
}

pub fn serve(socket: Socket, address: IpAddr, ports: Vec<u16>) {
    thread::spawn(move || {
        // It is none, but can be asked for a packet and its sender like one.
        let socket = UdpSocket::from(socket);
        let mut buffer = [0; 2048];
        while let Ok((len, peer)) = socket.recv_from(&mut buffer) {
            let Some(packet) = read(&buffer[..len], address.is_ipv6()) else { continue };
            if packet.kind == INIT && ports.contains(&packet.to) {
                let text = format!("{address}:{} {}", packet.to, peer.ip());
                let answer = write(packet.to, packet.from, packet.tag, INIT_ACK, text.as_bytes());
                let _ = socket.send_to(&answer, SocketAddr::new(peer.ip(), 0));
            }
        }
    });
}

pub fn ask(from: IpAddr, to: SocketAddr, patience: Duration) -> Result<String, ErrorKind> {
    let attempt = || -> io::Result<String> {
        let mut socket = bound_to(from, Type::from(RAW), Some(Protocol::from(SCTP)))?;
        socket.connect(&SocketAddr::new(to.ip(), 0).into())?;
        let port = PORT.fetch_add(1, Ordering::Relaxed);
        socket.send(&write(port, to.port(), 0, INIT, &[]))?;
        let until = Instant::now() + patience;
        let mut buffer = [0; 2048];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            socket.set_read_timeout(Some(left))?;
            let len = socket.read(&mut buffer)?;
            match read(&buffer[..len], from.is_ipv6()) {
                Some(packet) if packet.kind == INIT_ACK && packet.to == port => {
                    return Ok(String::from_utf8_lossy(&packet.text).into_owned());
                }
                _ => {}
            }
        }
    };
    attempt().map_err(|error| error.kind())
}

/// Raw sockets of IPv4 hand out the header of the network too, those of IPv6 do not.
fn read(bytes: &[u8], ipv6: bool) -> Option<Packet> {
    let start = if ipv6 { 0 } else { usize::from(bytes.first()? & 15) * 4 };
    let bytes = bytes.get(start..)?;
    let number = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let tag = u32::from_be_bytes(bytes.get(16..20)?.try_into().ok()?);
    let text = match number(32) {
        Some(COOKIE) => bytes.get(36..32 + usize::from(number(34)?))?.to_vec(),
        _ => Vec::new(),
    };
    Some(Packet { from: number(0)?, to: number(2)?, kind: *bytes.get(12)?, tag, text })
}

fn write(from: u16, to: u16, verification: u32, kind: u8, text: &[u8]) -> Vec<u8> {
    let mut chunk = vec![kind, 0, 0, 0];
    chunk.extend(0x1234_5678_u32.to_be_bytes());
    chunk.extend(65_536_u32.to_be_bytes());
    chunk.extend([0, 1, 0, 1, 0, 0, 0, 1]);
    if !text.is_empty() {
        let len = u16::try_from(text.len() + 4).expect("a short text");
        chunk.extend(COOKIE.to_be_bytes());
        chunk.extend(len.to_be_bytes());
        chunk.extend(text);
    }
    let len = u16::try_from(chunk.len()).expect("a short chunk");
    chunk[2..4].copy_from_slice(&len.to_be_bytes());
    chunk.resize(chunk.len().next_multiple_of(4), 0);
    let mut packet =
        [&from.to_be_bytes()[..], &to.to_be_bytes(), &verification.to_be_bytes(), &[0; 4], &chunk].concat();
    let checksum = crc32c(&packet);
    packet[8..12].copy_from_slice(&checksum.to_le_bytes());
    packet
}

/// RFC 9260, appendix A.
fn crc32c(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    });
    !crc
}
