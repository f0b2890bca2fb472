//! SCTP as far as a first packet and its answer: not every kernel has SCTP sockets, but all track and translate it.
//!
//! A client sends INIT, a server answers INIT ACK with its text as the cookie. Both over raw sockets.

use std::{
    io::{self, ErrorKind, Read as _},
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use socket2::{Protocol, Socket, Type};

use testkit::packets::{INIT, INIT_ACK, read, write};

use super::lab::bound_to;

/// SOCK_RAW and IPPROTO_SCTP, which the crate names with all its features only.
const RAW: i32 = 3;
const SCTP: i32 = 132;

static PORT: AtomicU16 = AtomicU16::new(20_000);

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
