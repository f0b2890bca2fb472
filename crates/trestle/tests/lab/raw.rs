//! SCTP and echoes over raw sockets, with packets made by hand: not every kernel has SCTP sockets, but every one tracks
//! and filters it.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{net::UdpSocket, time::sleep};

use testkit::packets::{INIT, INIT_ACK, answered, echo, read, write};

pub const SCTP: i32 = 132;
/// SOCK_RAW, which the crate names with all its features only.
const RAW: i32 = 3;

/// A port or number for each question: an answer to an earlier one is none.
static NUMBER: AtomicU16 = AtomicU16::new(20_000);

/// Loudly, so that nobody takes it for more than it is.
pub fn say_what_sctp_is_proven_by() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(SCTP)));
    let sockets = if socket.is_ok() { "has" } else { "HAS NO" };
    eprintln!(
        "SCTP: this kernel {sockets} SCTP sockets; it is proven with INIT and INIT ACK made by hand, over raw sockets"
    );
}

/// It is no UDP socket, but can be asked for packets like one. In the namespace of the calling thread.
pub fn socket(ipv6: bool, protocol: i32) -> io::Result<UdpSocket> {
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::from(RAW), Some(Protocol::from(protocol)))?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}

pub async fn answer_sctp(socket: UdpSocket, ipv6: bool, ports: Vec<u16>) {
    let mut buffer = [0; 2048];
    while let Ok((len, peer)) = socket.recv_from(&mut buffer).await {
        let Some(packet) = read(&buffer[..len], ipv6) else { continue };
        if packet.kind == INIT && ports.contains(&packet.to) {
            let answer = write(packet.to, packet.from, packet.tag, INIT_ACK, b"cookie");
            let _ = socket.send_to(&answer, SocketAddr::new(peer.ip(), 0)).await;
        }
    }
}

pub async fn sctp(address: SocketAddr, patience: Duration) -> io::Result<()> {
    let (ipv6, port) = (address.is_ipv6(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let socket = socket(ipv6, SCTP)?;
    socket.connect(SocketAddr::new(address.ip(), 0)).await?;
    ask(&socket, &write(port, address.port(), 0, INIT, &[]), patience, |bytes| {
        let packet = read(bytes, ipv6).filter(|packet| packet.kind == INIT_ACK && packet.to == port)?;
        Some(packet.from == address.port())
    })
    .await
}

pub async fn ping(address: IpAddr, patience: Duration) -> io::Result<()> {
    let (ipv6, number) = (address.is_ipv6(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let socket = socket(ipv6, if ipv6 { 58 } else { 1 })?;
    socket.connect(SocketAddr::new(address, 0)).await?;
    ask(&socket, &echo(ipv6, number), patience, |bytes| answered(bytes, ipv6, number)).await
}

/// Until `answer` is sure.
async fn ask(
    socket: &UdpSocket,
    question: &[u8],
    patience: Duration,
    answer: impl Fn(&[u8]) -> Option<bool>,
) -> io::Result<()> {
    let mut buffer = [0; 2048];
    loop {
        socket.send(question).await?;
        let heard = async {
            loop {
                let len = socket.recv(&mut buffer).await?;
                if let Some(good) = answer(&buffer[..len]) {
                    return if good { Ok(()) } else { Err(io::ErrorKind::ConnectionRefused.into()) };
                }
            }
        };
        tokio::select! {
            result = heard => return result,
            // A packet may get lost on a busy machine.
            () = sleep(patience / 3) => {}
        }
    }
}
