//! Random permit lists and random packets: the kernel lets through what the evaluator of permit lists says, which is what
//! `explain` and the matrix ask. Needs root, iproute2 and nftables.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::{
    collections::BTreeSet,
    fs::File,
    io::Read as _,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
    thread,
    time::{Duration, Instant},
};

use cloud_api::{
    prelude::*,
    twin::{twin, twins},
};
use ipnet::IpNet;
use model::{
    Address, Direction, EntryName, Packet, PermitEntry, Ports, Protocol, ProtocolClass, ResourceState,
    Traffic, permit_list, protocol,
};
use proptest::{
    prelude::*,
    sample::select,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, Socket, Type};
use support::{Site, at, inside, make, require_tools, segment};
use testkit::packets;

const CASES: usize = 12;
const SPACE: &str = "10.213.0.0/24";
/// A protocol without a name, which nothing on the machine speaks.
const NAMELESS: u8 = 99;
/// How long packets may take that are let through, on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long is waited for those that are not.
const GRACE: Duration = Duration::from_millis(40);

/// A packet from one resource to the other; those without ports have a tag there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flow {
    ipv6: bool,
    protocol: u8,
    src_port: u16,
    dst_port: u16,
}

fn has_ports(flow: &Flow) -> bool {
    protocol::has_ports(flow.protocol)
}

/// Does something inside a resource.
fn within<T: Send + 'static>(resource: &ResourceState, act: impl FnOnce() -> T + Send + 'static) -> T {
    let file = File::open(format!("/run/netns/{}", inside(resource))).unwrap();
    let thread = thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        act()
    });
    thread.join().unwrap()
}

fn domain(ipv6: bool) -> Domain {
    if ipv6 { Domain::IPV6 } else { Domain::IPV4 }
}

/// `SOCK_RAW`, everywhere.
const RAW: i32 = 3;

fn raw(ipv6: bool, number: u8) -> Socket {
    Socket::new(domain(ipv6), Type::from(RAW), Some(i32::from(number).into())).unwrap()
}

/// An echo request with this tag; the kernel adds the checksum of IPv6.
fn echo(ipv6: bool, tag: u16) -> Vec<u8> {
    let [high, low] = tag.to_be_bytes();
    let mut echo = vec![if ipv6 { 128 } else { 8 }, 0, 0, 0, high, low, 0, 1];
    if !ipv6 {
        let sum: u32 = echo.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        echo[2..4].copy_from_slice(&(!sum).to_be_bytes());
    }
    echo
}

fn send(flow: &Flow, from: IpAddr, to: IpAddr) {
    let socket = match flow.protocol {
        protocol::TCP => Socket::new(domain(flow.ipv6), Type::STREAM, None).unwrap(),
        protocol::UDP => Socket::new(domain(flow.ipv6), Type::DGRAM, None).unwrap(),
        number => raw(flow.ipv6, number),
    };
    socket.set_nonblocking(true).unwrap();
    let is_raw = ![protocol::TCP, protocol::UDP].contains(&flow.protocol);
    let port = |port| if is_raw { 0 } else { port };
    socket.bind(&SocketAddr::new(from, port(flow.src_port)).into()).unwrap();
    let to = SocketAddr::new(to, port(flow.dst_port)).into();
    match flow.protocol {
        // Under way when it returns.
        protocol::TCP => drop(socket.connect(&to)),
        protocol::UDP => drop(socket.send_to(b"x", &to)),
        protocol::ICMP | protocol::ICMPV6 => drop(socket.send_to(&echo(flow.ipv6, flow.dst_port), &to)),
        // Not every kernel has sockets for it; all track it.
        protocol::SCTP => {
            let first = packets::write(flow.src_port, flow.dst_port, 0, packets::INIT, &[]);
            drop(socket.send_to(&first, &to));
        }
        _ => drop(socket.send_to(&flow.dst_port.to_be_bytes(), &to)),
    }
}

/// Sees every packet that reaches a resource.
struct Watcher(Vec<(bool, u8, Socket)>);

impl Watcher {
    fn new(of: &ResourceState) -> Self {
        let sockets = within(of, || {
            let mut sockets = Vec::new();
            for ipv6 in [false, true] {
                let icmp = protocol::in_family(protocol::ICMP, ipv6);
                for number in [protocol::TCP, protocol::UDP, protocol::SCTP, icmp, NAMELESS] {
                    let socket = raw(ipv6, number);
                    socket.set_nonblocking(true).unwrap();
                    socket.set_recv_buffer_size(1 << 20).unwrap();
                    sockets.push((ipv6, number, socket));
                }
            }
            sockets
        });
        Self(sockets)
    }

    fn look(&self, seen: &mut BTreeSet<Flow>) {
        for (ipv6, number, socket) in &self.0 {
            let (mut buffer, mut socket) = ([0; 256], socket);
            while let Ok(length) = socket.read(&mut buffer) {
                seen.extend(read(*ipv6, *number, &buffer[..length]));
            }
        }
    }
}

/// Raw sockets of IPv4 hand out the header of the network too, those of IPv6 do not.
fn read(ipv6: bool, protocol: u8, bytes: &[u8]) -> Option<Flow> {
    let start = if ipv6 { 0 } else { usize::from(bytes.first()? & 15) * 4 };
    let number =
        |at: usize| Some(u16::from_be_bytes(bytes.get(start + at..start + at + 2)?.try_into().ok()?));
    let flow = |src_port, dst_port| Some(Flow { ipv6, protocol, src_port, dst_port });
    match protocol {
        protocol::TCP | protocol::UDP | protocol::SCTP => flow(number(0)?, number(2)?),
        // Echo requests; neighbours are looked for by other messages.
        protocol::ICMP | protocol::ICMPV6 if [8, 128].contains(bytes.get(start)?) => flow(0, number(4)?),
        NAMELESS => flow(0, number(0)?),
        _ => None,
    }
}

fn ports() -> impl Strategy<Value = Ports> {
    prop_oneof![
        1 => Just(Ports::Any),
        2 => (4000..4012_u16, 0..6_u16).prop_map(|(first, more)| Ports::Range { first, last: first + more }),
    ]
}

/// Entries about one peer: by its address, its twin, prefixes of either, or so many addresses that they become a set.
fn entries(direction: Direction, peer: IpAddr) -> impl Strategy<Value = Vec<PermitEntry>> {
    let IpAddr::V4(four) = peer else { unreachable!("resources have addresses of IPv4") };
    let many: Vec<String> = (1..12).map(|low| format!("10.213.0.{}", low * 2)).collect();
    let targets = vec![
        vec![four.to_string()],
        vec![twin(four).to_string()],
        vec![SPACE.to_owned()],
        vec!["::/0".to_owned()],
        vec!["192.0.2.0/24".to_owned(), "2001:db8::/32".to_owned()],
        many,
    ];
    let protocol = prop_oneof![
        1 => Just(Protocol::Any),
        8 => select(vec![1, 58, 6, 6, 6, 17, 17, protocol::SCTP, protocol::SCTP, NAMELESS]).prop_map(Protocol::Number),
    ];
    let one = (protocol, ports(), ports(), select(targets)).prop_map(move |(protocol, src, dst, targets)| {
        let (src, dst) = if protocol.has_ports() { (src, dst) } else { (Ports::Any, Ports::Any) };
        (Traffic::new(direction, protocol, src, dst).unwrap(), targets)
    });
    proptest::collection::vec(one, 0..6).prop_map(move |list| {
        let entry = |(at, (traffic, targets)): (usize, (Traffic, Vec<String>))| {
            let targets = targets.iter().map(|target| target.parse().unwrap()).collect();
            let name = EntryName::reported(format!("{direction}-{at}"));
            PermitEntry::new(name, traffic, targets, BTreeSet::new()).unwrap()
        };
        list.into_iter().enumerate().map(entry).collect()
    })
}

/// One of each kind without ports, and many with.
fn flows() -> impl Strategy<Value = Vec<Flow>> {
    let with_ports = (
        any::<bool>(),
        select(vec![protocol::TCP, protocol::UDP, protocol::SCTP]),
        3998..4020_u16,
        3998..4020_u16,
    )
        .prop_map(|(ipv6, protocol, src_port, dst_port)| Flow { ipv6, protocol, src_port, dst_port });
    proptest::collection::vec(with_ports, 60).prop_map(|mut flows| {
        for ipv6 in [false, true] {
            for protocol in [protocol::in_family(protocol::ICMP, ipv6), NAMELESS] {
                flows.push(Flow { ipv6, protocol, src_port: 0, dst_port: 7 });
            }
        }
        // The same twice is once.
        flows.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
    })
}

/// What the Linux cloud makes of an entry: its targets have twins.
fn twinned(entry: &PermitEntry) -> PermitEntry {
    let twins = entry.targets().iter().filter_map(|target| match target.net() {
        IpNet::V4(net) => Some(Address::from(IpNet::V6(twins(net)))),
        IpNet::V6(_) => None,
    });
    let targets = entry.targets().iter().copied().chain(twins).collect();
    PermitEntry::new(entry.name.clone(), entry.traffic, targets, BTreeSet::new()).unwrap()
}

/// As `explain` and the matrix would have it, and as the entries say of this packet.
fn is_open(list: &[PermitEntry], direction: Direction, peer: IpAddr, flow: &Flow) -> bool {
    let list: Vec<PermitEntry> = list.iter().map(twinned).collect();
    let class = ProtocolClass::of(flow.protocol, flow.ipv6);
    let (major, minor) = match class {
        ProtocolClass::Icmp => (8, 0),
        ProtocolClass::Other => (flow.protocol.into(), 0),
        _ => (flow.dst_port, flow.src_port),
    };
    let open = permit_list::permitted(&list, direction, peer.into()).of(class).contains(major, minor);
    let (src_port, dst_port) = if has_ports(flow) { (flow.src_port, flow.dst_port) } else { (0, 0) };
    let packet = Packet { protocol: flow.protocol, src_port, dst_port };
    assert_eq!(open, list.iter().any(|entry| entry.permits(direction, peer, &packet)), "{flow:?} {list:#?}");
    open
}

fn address(of: &ResourceState, ipv6: bool) -> IpAddr {
    match of.address.single().unwrap() {
        IpAddr::V4(four) if ipv6 => twin(four).into(),
        address => address,
    }
}

#[tokio::test]
async fn the_kernel_lets_through_what_the_lists_say() {
    require_tools(&[]);
    let site = Site::default();
    let cloud = site.open("lxrand").await;
    let at = at("ns", "lxrand");
    let (a, b) = (make(&cloud, &at, "a", "west", SPACE).await, make(&cloud, &at, "b", "west", SPACE).await);
    let watcher = Watcher::new(&b);
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let (mut passed, mut stopped) = (0, 0);
    for case in 0..CASES {
        let lists = (
            entries(Direction::Outbound, address(&b, false)),
            entries(Direction::Inbound, address(&a, false)),
            flows(),
        );
        let (out, inward, flows) = lists.new_tree(&mut runner).unwrap().current();
        cloud.put_list(&at, &a.uri, &[], &out).await.unwrap();
        cloud.put_list(&at, &b.uri, &[], &inward).await.unwrap();
        let expected: BTreeSet<Flow> = flows
            .iter()
            .filter(|flow| {
                is_open(&out, Direction::Outbound, address(&b, flow.ipv6), flow)
                    && is_open(&inward, Direction::Inbound, address(&a, flow.ipv6), flow)
            })
            .copied()
            .collect();
        // What came late to the case before is not of this one.
        watcher.look(&mut BTreeSet::new());
        let ends = [false, true].map(|ipv6| (address(&a, ipv6), address(&b, ipv6)));
        let sent = flows.clone();
        within(&a, move || {
            for flow in &sent {
                let (from, to) = ends[usize::from(flow.ipv6)];
                send(flow, from, to);
            }
        });
        let (mut seen, begun) = (BTreeSet::new(), Instant::now());
        while !expected.is_subset(&seen) && begun.elapsed() < PATIENCE {
            watcher.look(&mut seen);
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(GRACE);
        watcher.look(&mut seen);
        assert_eq!(seen, expected, "case {case}: {out:#?} {inward:#?}");
        (passed, stopped) = (passed + expected.len(), stopped + flows.len() - expected.len());
        cloud.put_list(&at, &a.uri, &out, &[]).await.unwrap();
        cloud.put_list(&at, &b.uri, &inward, &[]).await.unwrap();
    }
    assert!(passed > 40 && stopped > 40, "the lists are too much of one kind: {passed} {stopped}");
    for name in ["a", "b"] {
        cloud.delete_resource(&at, &segment(name)).await.unwrap();
    }
    cloud.delete_network(&at, &segment("west")).await.unwrap();
    assert_eq!(site.left(), [""; 0]);
}
