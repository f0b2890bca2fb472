//! Probes: whether a packet from one Pod is answered by another.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, UdpSocket},
    task::JoinSet,
    time::{sleep, timeout},
};

use testkit::namespaces::Namespace;

use super::raw;

static UDP_PORTS: AtomicU16 = AtomicU16::new(10_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
    /// Echo, by ICMP or ICMPv6.
    Icmp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
            Self::Icmp => "icmp",
        })
    }
}

/// `tcp/80`, or `icmp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    pub protocol: Protocol,
    pub number: u16,
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "icmp" {
            return Ok(Self { protocol: Protocol::Icmp, number: 0 });
        }
        let (protocol, number) = text.split_once('/').ok_or(format!("{text}: write tcp/80"))?;
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "sctp" => Protocol::Sctp,
            _ => return Err(format!("{text}: tcp, udp, sctp and icmp are probed")),
        };
        Ok(Self { protocol, number: number.parse().map_err(|err| format!("{text}: {err}"))? })
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Protocol::Icmp => write!(f, "icmp"),
            protocol => write!(f, "{protocol}/{}", self.number),
        }
    }
}

/// Answers on all of these ports, for as long as the process lives or the namespace does.
pub fn serve(namespace: &Namespace, ports: &[Port]) {
    let ports = ports.to_vec();
    let (ready, started) = std::sync::mpsc::channel();
    let serving = namespace.within(move || {
        block_on(async {
            let mut tasks = JoinSet::new();
            let of_sctp = ports.iter().filter(|port| port.protocol == Protocol::Sctp);
            let sctp: Vec<u16> = of_sctp.map(|port| port.number).collect();
            if !sctp.is_empty() {
                for ipv6 in [false, true] {
                    tasks.spawn(raw::answer_sctp(raw::socket(ipv6, raw::SCTP).unwrap(), ipv6, sctp.clone()));
                }
            }
            for port in ports {
                // Both families at once.
                let address: SocketAddr = ("::".parse::<IpAddr>().unwrap(), port.number).into();
                match port.protocol {
                    Protocol::Tcp => {
                        let listener = TcpListener::bind(address).await.unwrap();
                        tasks.spawn(answer_tcp(listener));
                    }
                    Protocol::Udp => {
                        let socket = UdpSocket::bind(address).await.unwrap();
                        tasks.spawn(answer_udp(socket));
                    }
                    // All ports at once above; echoes are the kernel's to answer.
                    Protocol::Sctp | Protocol::Icmp => {}
                }
            }
            ready.send(()).unwrap();
            while tasks.join_next().await.is_some() {}
        });
    });
    started.recv().expect("the servers start");
    drop(serving);
}

async fn answer_tcp(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            // Echoes, so that a connection can be kept and used.
            let mut buffer = [0; 64];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn answer_udp(socket: UdpSocket) {
    let mut buffer = [0; 64];
    while let Ok((count, peer)) = socket.recv_from(&mut buffer).await {
        let _ = socket.send_to(&buffer[..count], peer).await;
    }
}

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub address: IpAddr,
    pub port: Port,
}

/// Asks all targets at once from a namespace; which answered.
pub fn ask(
    namespace: &Namespace,
    targets: Vec<Target>,
    patience: Duration,
) -> thread::JoinHandle<BTreeMap<Target, bool>> {
    namespace.within(move || {
        block_on(async {
            let mut tasks = JoinSet::new();
            for target in targets {
                tasks.spawn(async move { (target, answers(target, patience).await) });
            }
            tasks.join_all().await.into_iter().collect()
        })
    })
}

pub async fn answers(target: Target, patience: Duration) -> bool {
    let address = SocketAddr::new(target.address, target.port.number);
    let asked = async {
        match target.port.protocol {
            Protocol::Tcp => tcp(address).await,
            Protocol::Udp => udp(address, patience).await,
            Protocol::Sctp => raw::sctp(address, patience).await,
            Protocol::Icmp => raw::ping(address.ip(), patience).await,
        }
    };
    matches!(timeout(patience, asked).await, Ok(Ok(())))
}

async fn tcp(address: SocketAddr) -> std::io::Result<()> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    let mut stream = socket.connect(address).await?;
    stream.write_all(b"who").await?;
    stream.read_exact(&mut [0; 3]).await?;
    // A reset instead of a quiet end: thousands of probes must not leave as many sockets waiting.
    stream.set_zero_linger()
}

async fn udp(address: SocketAddr, patience: Duration) -> std::io::Result<()> {
    let any: IpAddr = if address.is_ipv6() { "::".parse().unwrap() } else { "0.0.0.0".parse().unwrap() };
    let socket = loop {
        // Of its own: with a port that chance has chosen before, it would go on with what was permitted then.
        let port = UDP_PORTS.fetch_add(1, Ordering::Relaxed);
        match UdpSocket::bind((any, port.max(1024))).await {
            Err(err) if err.kind() == std::io::ErrorKind::AddrInUse => {}
            bound => break bound?,
        }
    };
    socket.connect(address).await?;
    let mut buffer = [0; 8];
    loop {
        socket.send(b"who").await?;
        tokio::select! {
            received = socket.recv(&mut buffer) => return received.map(drop),
            // A datagram may get lost on a busy machine.
            () = sleep(patience / 3) => {}
        }
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime needs only memory").block_on(future)
}
