//! What the kernel tells of connections, against what was sent: every one is told, once, as what it was. Needs root.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may fail where it stands, and say why")]

mod support;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use model::policy::output::{Action, Direction, Protocol};
use node_kernel::{
    conntrack::{Connection, Conntrack},
    conntrack_events::{ConntrackEvents, Event},
    log_group::{LogGroup, rules_may_log},
    policy::PolicyExecutor,
};
use node_policy::{L4, Options, Subject, layout::Refusal};
use support::{
    lab::{Lab, within},
    pods::{address_set, applied_set, ip, lab, policy, port, rule},
};
use testkit::namespaces::{in_namespace, run};

const GROUP: u16 = 7411;
/// For what has been sent to be told; a busy machine needs some of it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Source, destination and destination port of what was opened; of what was refused, with the direction.
type Opened = BTreeMap<(IpAddr, IpAddr, Option<u16>), usize>;
type Refused = BTreeMap<(IpAddr, IpAddr, Option<u16>, bool), usize>;

struct Ear {
    events: ConntrackEvents,
    log: LogGroup,
    opened: Opened,
    refused: Refused,
    translated: Vec<Connection>,
    bytes: Option<u64>,
    lost: u64,
}

impl Ear {
    fn new() -> Self {
        let (opened, refused) = (Opened::new(), Refused::new());
        Self {
            events: ConntrackEvents::open().unwrap(),
            log: LogGroup::open(GROUP).unwrap(),
            opened,
            refused,
            translated: Vec::new(),
            bytes: None,
            lost: 0,
        }
    }

    fn listen(&mut self) {
        let Self { events, log, opened, refused, translated, bytes, lost } = self;
        *lost += events
            .read(
                |_| Some(1),
                |_, event| match event {
                    Event::Opened(connection) => {
                        let Connection { source, answered_by, answering_port, .. } = connection;
                        *opened.entry((source, answered_by, answering_port)).or_default() += 1;
                        if connection.destination != answered_by {
                            translated.push(connection);
                        }
                    }
                    Event::Ended(_, counted) => {
                        *bytes = counted.map(|more| more + bytes.unwrap_or(0)).or(*bytes)
                    }
                },
            )
            .unwrap();
        *lost += log
            .read(
                || Some(1),
                |_, prefix, connection| {
                    let refusal = Refusal::parse(prefix).unwrap();
                    let is_in = refusal.direction == Direction::In;
                    let Connection { source, answered_by, answering_port, .. } = connection;
                    *refused.entry((source, answered_by, answering_port, is_in)).or_default() += 1;
                },
            )
            .unwrap();
    }

    /// Listens until what is told is as it should be; what is not by then is shown.
    fn hear(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(self) {
            self.listen();
            assert!(
                Instant::now() < until,
                "{what}: opened {:#?}, refused {:#?}, lost {}",
                self.opened,
                self.refused,
                self.lost
            );
            thread::sleep(Duration::from_millis(10));
        }
        // Nor is anything told twice.
        thread::sleep(Duration::from_millis(200));
        self.listen();
        assert!(is_so(self), "{what}: opened {:#?}, refused {:#?}", self.opened, self.refused);
    }
}

/// Sends one datagram to each of these ports, each from a socket of its own.
fn send(lab: &Lab, from: IpAddr, to: IpAddr, ports: impl IntoIterator<Item = u16>) {
    let ports: Vec<u16> = ports.into_iter().collect();
    within(lab.namespace_of(from).unwrap(), move || {
        for port in ports {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            socket.send_to(b"x", SocketAddr::new(to, port)).unwrap();
        }
    });
}

fn executor() -> PolicyExecutor {
    assert!(rules_may_log(GROUP), "the kernel needs nft_log: without it refused connections are not told");
    PolicyExecutor::open(Options { log_refused: Some(GROUP), ..Options::default() }).unwrap()
}

#[test]
fn what_is_sent_is_told_and_what_decides_has_a_name() {
    in_namespace(|| {
        let (lab, local) = lab();
        let mut executor = executor();
        let web = rule(Direction::In, Some(Action::Allow), &["c"], &[], &[port(Protocol::Udp, 80, 80)]);
        let out = rule(Direction::Out, Some(Action::Reject), &[], &[("192.0.2.0/24", &[])], &[]);
        let changes = [
            address_set("c", &["c"]),
            applied_set("on-a", &["a"]),
            applied_set("on-b", &["b"]),
            policy("web", None, "on-a", vec![web]),
            policy("nothing-out", Some((250, 1.0)), "on-b", vec![out]),
        ];
        executor.apply(changes, local).unwrap();
        let mut ear = Ear::new();
        let [a, b, c, x] = ["a", "b", "c", "x"].map(|host| ip(host, false));
        for round in 0..50 {
            send(&lab, c, a, [80]);
            send(&lab, b, a, [80, 81]);
            if round % 2 == 0 {
                send(&lab, b, x, [81]);
            }
        }
        ear.hear("datagrams", |ear| {
            ear.opened.get(&(c, a, Some(80))) == Some(&50)
                && ear.refused.get(&(b, a, Some(80), true)) == Some(&50)
                && ear.refused.get(&(b, a, Some(81), true)) == Some(&50)
                && ear.refused.get(&(b, x, Some(81), false)) == Some(&25)
        });
        assert_eq!((ear.opened.len(), ear.refused.len(), ear.lost), (1, 3, 0), "{:#?}", ear.opened);
        let plane = executor.plane();
        let asked = |subject, peer, direction, port| {
            let l4 = L4 { protocol: 17, first: 40_000, second: port };
            plane.ruling(Subject::Workload(subject), peer, direction, l4).map(|ruling| ruling.by)
        };
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(asked(a, c, Direction::In, 80), told("ingress rule 0 of NetworkPolicy n/web"));
        assert_eq!(asked(a, b, Direction::In, 80), told("isolated by NetworkPolicy n/web"));
        assert_eq!(
            asked(b, x, Direction::Out, 81),
            told("egress rule 0 of AntreaNetworkPolicy n/nothing-out")
        );
        assert_eq!(asked(b, a, Direction::Out, 80), None, "nothing is said of it");
    });
}

#[test]
fn a_scan_of_all_ports_is_told_packet_by_packet_and_translation_is_told() {
    in_namespace(|| {
        let (lab, local) = lab();
        let mut executor = executor();
        let changes = [
            applied_set("on-a", &["a"]),
            policy("closed", None, "on-a", vec![rule(Direction::In, None, &[], &[], &[])]),
        ];
        executor.apply(changes, local).unwrap();
        run("nft 'add table ip nat; add chain ip nat pre { type nat hook prerouting priority -100; }
             add rule ip nat pre ip daddr 10.96.0.1 udp dport 53 dnat to 10.77.0.3:80'
             sysctl -qw net.netfilter.nf_conntrack_acct=1");
        let mut ear = Ear::new();
        let [a, b, c] = ["a", "b", "c"].map(|host| ip(host, false));
        let began = Instant::now();
        send(&lab, b, a, 1..=20_000);
        send(&lab, b, "10.96.0.1".parse().unwrap(), [53; 7]);
        ear.hear("a scan", |ear| {
            ear.refused.len() == 20_000 && ear.opened.get(&(b, c, Some(80))) == Some(&7)
        });
        eprintln!("20,000 refused packets sent and heard in {:?}", began.elapsed());
        assert!(ear.refused.values().all(|count| *count == 1) && ear.lost == 0, "{}", ear.lost);
        let first = ear.translated.first().unwrap();
        assert_eq!(
            (first.destination.to_string(), first.destination_port),
            ("10.96.0.1".to_owned(), Some(53))
        );
        Conntrack::open().unwrap().delete_if(false, |_| true).unwrap();
        ear.hear("the kernel's counts", |ear| ear.bytes.is_some());
    });
}

/// Whoever listens too late has not heard all, and knows how much that was.
#[test]
fn what_is_lost_is_counted() {
    in_namespace(|| {
        let (lab, local) = lab();
        let mut executor = executor();
        let changes = [
            applied_set("on-a", &["a"]),
            policy("closed", None, "on-a", vec![rule(Direction::In, None, &[], &[], &[])]),
        ];
        executor.apply(changes, local).unwrap();
        let mut ear = Ear::new();
        ear.log.set_receive_buffer(16 << 10).unwrap();
        let [a, b] = ["a", "b"].map(|host| ip(host, false));
        send(&lab, b, a, 1..=1);
        ear.hear("one", |ear| ear.refused.len() == 1);
        send(&lab, b, a, 2..=5_001);
        thread::sleep(Duration::from_millis(500));
        // The first that is told afterwards tells how many were not.
        send(&lab, b, a, 5_002..=5_002);
        ear.hear("those that are left", |ear| ear.refused.len() as u64 + ear.lost == 5_002);
        assert!(ear.lost > 0, "the socket held more than it should");
    });
}
