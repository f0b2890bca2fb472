//! A node with Pods and clients around it, as network namespaces, and probes that tell where packets go.
//!
//! ```text
//!   the test's own namespace = the node          each host: a namespace, one veth, its address as /32
//!   192.168.0.2 on lo            169.254.N.1 ─── 169.254.N.2
//! ```
//!
//! Every host answers on TCP, UDP and SCTP with its own address, the port, and the client as it sees it.

use std::{
    collections::BTreeSet,
    io::{ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use testkit::namespaces::{run, spawn_within};

use super::sctp;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Long enough for a busy machine to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Silence for this long is taken for a dropped packet.
const SILENCE: Duration = Duration::from_millis(350);

pub struct Lab {
    hosts: Vec<(IpAddr, String)>,
    links: usize,
}

/// Where a packet went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Endpoints that answered, and whether they saw another source than the client's.
    Answered(BTreeSet<String>, bool),
    Refused,
    Silent,
    /// Somebody on the way says that there is no way.
    NoRoute,
}

pub fn answered(endpoints: &[&str], masqueraded: bool) -> Fate {
    Fate::Answered(endpoints.iter().map(|one| (*one).to_owned()).collect(), masqueraded)
}

impl Lab {
    /// Call it within a namespace of the test's own. Every refusal is to be seen there: neither one a second, nor fifty at
    /// once from the whole node.
    pub fn new() -> Self {
        run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 \
                net.ipv4.conf.default.rp_filter=0 net.ipv4.icmp_ratemask=0 net.ipv6.icmp.ratemask=
             ip addr add 192.168.0.2/32 dev lo; ip addr add fd00:168::2/128 dev lo nodad
             ip addr add fd00::c0a8:2/128 dev lo nodad");
        Self { hosts: Vec::new(), links: 0 }
    }

    /// Adds a host that serves these ports.
    pub fn host(&mut self, addresses: &[&str], ports: &[u16]) -> &mut Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        self.links += 1;
        let link = self.links;
        let namespace = format!("lab{}-{number}", process::id());
        run(&format!(
            "ip netns add {namespace}
             ip link add v{link} type veth peer name eth0 netns {namespace}
             ip addr add 169.254.{link}.1/30 dev v{link}; ip link set v{link} up
             ip -n {namespace} link set lo up; ip -n {namespace} link set eth0 up
             ip -n {namespace} addr add 169.254.{link}.2/30 dev eth0
             ip addr add fd00:ffff:{link}::1/64 dev v{link} nodad
             ip -n {namespace} addr add fd00:ffff:{link}::2/64 dev eth0 nodad"
        ));
        for (index, address) in addresses.iter().enumerate() {
            let (len, net, nodad) = match address.contains(':') {
                true => (128, format!("fd00:ffff:{link}::"), "nodad"),
                false => (32, format!("169.254.{link}."), ""),
            };
            run(&format!(
                "ip -n {namespace} addr add {address}/{len} dev eth0 {nodad}; ip route add {address}/{len} via {net}2"
            ));
            let same_family = |other: &&str| other.contains(':') == address.contains(':');
            if addresses.iter().position(same_family) == Some(index) {
                run(&format!("ip -n {namespace} route add default via {net}1 src {address}"));
            }
            let address = address.parse().expect("an address");
            ports.iter().for_each(|port| serve(&namespace, address, *port));
            if !ports.is_empty() {
                sctp::serve(within(&namespace, move || sctp::listen(address)), address, ports.to_vec());
            }
            self.hosts.push((address, namespace.clone()));
        }
        self
    }

    /// The node's end of the link to the host that was added last.
    pub fn interface(&self) -> String {
        format!("v{}", self.links)
    }

    /// The last host is the way to everything else, and says that there is none.
    pub fn gateway(&self) {
        let (_, namespace) = self.hosts.last().expect("there is a host");
        run(&format!(
            "ip route add default via 169.254.{0}.2; ip route add default via fd00:ffff:{0}::2
             ip netns exec {namespace} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
             ip -n {namespace} rule add iif eth0 unreachable; ip -n {namespace} -6 rule add iif eth0 unreachable",
            self.links
        ));
    }

    /// Sends TCP connections from an address to another until `count` were answered, or one was not.
    pub fn tcp(&self, from: &str, to: &str, count: usize, expect: &Fate) -> Fate {
        self.probe(from, to, count, expect, tcp)
    }

    pub fn udp(&self, from: &str, to: &str, count: usize, expect: &Fate) -> Fate {
        self.probe(from, to, count, expect, udp)
    }

    pub fn sctp(&self, from: &str, to: &str, count: usize, expect: &Fate) -> Fate {
        self.probe(from, to, count, expect, sctp::ask)
    }

    fn probe(&self, from: &str, to: &str, count: usize, expect: &Fate, send: Send) -> Fate {
        let (from, to) = (from.parse().expect("an address"), to.parse().expect("a socket"));
        let patience = if *expect == Fate::Silent { SILENCE } else { PATIENCE };
        let probe = move || {
            let (mut endpoints, mut masqueraded) = (BTreeSet::new(), false);
            for _ in 0..count {
                match send(from, to, patience) {
                    Ok(text) => {
                        let (endpoint, client) = text.split_once(' ').expect("endpoint and client");
                        endpoints.insert(endpoint.to_owned());
                        masqueraded |= client != from.to_string();
                    }
                    Err(ErrorKind::ConnectionRefused) => return Fate::Refused,
                    Err(ErrorKind::TimedOut | ErrorKind::WouldBlock) => return Fate::Silent,
                    Err(ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => return Fate::NoRoute,
                    Err(kind) => panic!("{from} to {to}: {kind}"),
                }
            }
            Fate::Answered(endpoints, masqueraded)
        };
        match self.namespace_of(from) {
            Some(namespace) => within(namespace, probe),
            None => probe(),
        }
    }

    /// Connects again and again until told to stop. Yields the number of answers, and what failed.
    pub fn keep_connecting(
        &self,
        from: &str,
        to: &str,
        done: Arc<AtomicBool>,
    ) -> thread::JoinHandle<(usize, Vec<String>)> {
        let (from, to): (IpAddr, SocketAddr) =
            (from.parse().expect("an address"), to.parse().expect("a socket"));
        let namespace = self.namespace_of(from).expect("a host of the lab").to_owned();
        thread::spawn(move || {
            within(&namespace, move || {
                let (mut connected, mut failed) = (0, Vec::new());
                while !done.load(Ordering::Relaxed) {
                    match tcp(from, to, PATIENCE) {
                        Ok(_) => connected += 1,
                        Err(kind) => failed.push(kind.to_string()),
                    }
                }
                (connected, failed)
            })
        })
    }

    /// A server on a host that says everything back.
    pub fn echo(&self, address: &str, port: u16) {
        let address: IpAddr = address.parse().expect("an address");
        let namespace = self.namespace_of(address).expect("a host of the lab");
        let listener =
            within(namespace, move || TcpListener::bind((address, port)).expect("the port is free"));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let (mut reader, mut writer) = (&stream, &stream);
                    std::io::copy(&mut reader, &mut writer)
                });
            }
        });
    }

    /// Talks over one connection until told to stop. Yields the number of answers, and what failed.
    pub fn keep_talking(
        &self,
        from: &str,
        to: &str,
        done: Arc<AtomicBool>,
    ) -> thread::JoinHandle<(usize, Option<String>)> {
        let (from, to): (IpAddr, SocketAddr) =
            (from.parse().expect("an address"), to.parse().expect("a socket"));
        let namespace = self.namespace_of(from).expect("a host of the lab").to_owned();
        thread::spawn(move || {
            within(&namespace, move || {
                let mut answers = 0;
                let talk = |answers: &mut usize| -> std::io::Result<()> {
                    let mut socket = bound(from, Type::STREAM)?;
                    socket.connect_timeout(&to.into(), PATIENCE)?;
                    socket.set_read_timeout(Some(PATIENCE))?;
                    while !done.load(Ordering::Relaxed) {
                        socket.write_all(b"?")?;
                        socket.read_exact(&mut [0])?;
                        *answers += 1;
                        thread::sleep(Duration::from_millis(2));
                    }
                    Ok(())
                };
                let failed = talk(&mut answers).err().map(|error| error.to_string());
                (answers, failed)
            })
        })
    }

    /// `None`: the node itself.
    pub fn namespace_of(&self, address: IpAddr) -> Option<&str> {
        self.hosts.iter().find(|(known, _)| *known == address).map(|(_, namespace)| namespace.as_str())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let namespaces: BTreeSet<_> = self.hosts.iter().map(|(_, namespace)| namespace).collect();
        for namespace in namespaces {
            // Sockets that serve in it keep the namespace alive, but no longer reachable by name.
            let _ = process::Command::new("ip").args(["netns", "del", namespace]).status();
        }
    }
}

pub type Send = fn(IpAddr, SocketAddr, Duration) -> Result<String, ErrorKind>;

/// Runs on a thread that has moved into a namespace.
pub fn within<T: std::marker::Send + 'static>(
    namespace: &str,
    act: impl FnOnce() -> T + std::marker::Send + 'static,
) -> T {
    spawn_within(namespace, act).join().expect("the probe does not fall")
}

fn serve(namespace: &str, address: IpAddr, port: u16) {
    let (listener, socket) = within(namespace, move || {
        let listener = TcpListener::bind((address, port)).expect("the port is free");
        let socket = UdpSocket::bind((address, port)).expect("the port is free");
        (listener, socket)
    });
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let Ok(peer) = stream.peer_addr() else { continue };
            let _ = write!(stream, "{address}:{port} {}", peer.ip());
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, peer)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(format!("{address}:{port} {}", peer.ip()).as_bytes(), peer);
        }
    });
}

fn tcp(from: IpAddr, to: SocketAddr, patience: Duration) -> Result<String, ErrorKind> {
    let attempt = || {
        let socket = bound(from, Type::STREAM)?;
        socket.connect_timeout(&to.into(), patience)?;
        socket.set_read_timeout(Some(patience))?;
        let mut text = String::new();
        (&socket).read_to_string(&mut text)?;
        Ok(text)
    };
    attempt().map_err(|error: std::io::Error| error.kind())
}

fn udp(from: IpAddr, to: SocketAddr, patience: Duration) -> Result<String, ErrorKind> {
    let attempt = || {
        let socket = bound(from, Type::DGRAM)?;
        socket.connect(&to.into())?;
        socket.set_read_timeout(Some(patience))?;
        socket.send(b"who")?;
        let mut buffer = [0; 64];
        let len = (&socket).read(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..len]).into_owned())
    };
    attempt().map_err(|error: std::io::Error| error.kind())
}

fn bound(from: IpAddr, kind: Type) -> std::io::Result<Socket> {
    bound_to(from, kind, None)
}

pub fn bound_to(from: IpAddr, kind: Type, protocol: Option<Protocol>) -> std::io::Result<Socket> {
    let socket = Socket::new(if from.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 }, kind, protocol)?;
    socket.bind(&SockAddr::from(SocketAddr::new(from, 0)))?;
    Ok(socket)
}
