//! A node with three Pods of its own and a host elsewhere, and policies about them.
//!
//! ```text
//!   Pods a, b, c: 10.77.0.1 to .3, fd77::1 to ::3, each behind a link of its own       x: 192.0.2.9, 2001:db8::9
//!   all serve TCP and UDP on 80 and 81
//! ```

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    thread,
};

use model::policy::{
    Kind,
    output::{
        Action, Direction, Identifier, IpBlock, Member, MemberKind, NamedPort, NetworkPolicy, PolicySource,
        PortRef, Protocol, Rule, RuleDetail, Service,
    },
};
use node_policy::{
    Change, Decision, L4, LocalChange, ObjectKind, Packet, SetKind, Workload, WorkloadId, naive::Naive,
};

use super::{
    lab::{Lab, within},
    probe::{Fate, Probe, listen_sctp, patience, saw_sctp, send_sctp},
};

pub const PODS: [&str; 3] = ["a", "b", "c"];
pub const HOSTS: [&str; 4] = ["a", "b", "c", "x"];

pub fn addresses(host: &str) -> [&'static str; 2] {
    match host {
        "a" => ["10.77.0.1", "fd77::1"],
        "b" => ["10.77.0.2", "fd77::2"],
        "c" => ["10.77.0.3", "fd77::3"],
        _ => ["192.0.2.9", "2001:db8::9"],
    }
}

pub fn ip(host: &str, ipv6: bool) -> IpAddr {
    addresses(host)[usize::from(ipv6)].parse().expect("an address")
}

/// The lab, and the local registry of its node.
pub fn lab() -> (Lab, Vec<LocalChange>) {
    let mut lab = Lab::new();
    let mut local = Vec::new();
    for host in HOSTS {
        lab.host(&addresses(host), &[80, 81]);
        if host == "x" {
            continue;
        }
        let mut workload = Workload::new(id(host), [ip(host, false), ip(host, true)]);
        workload.interface = Some(lab.interface());
        local.push(LocalChange::Put(workload));
    }
    (lab, local)
}

pub fn id(pod: &str) -> WorkloadId {
    WorkloadId::pod("n", pod)
}

pub fn member(host: &str) -> Member {
    let ports: &[(&str, u16, Protocol)] = match host {
        "a" => &[("web", 80, Protocol::Tcp)],
        "b" => &[("web", 81, Protocol::Tcp), ("web", 80, Protocol::Udp)],
        _ => &[],
    };
    let port = |(name, port, protocol): &(&str, u16, Protocol)| NamedPort {
        name: Arc::from(*name),
        port: *port,
        protocol: *protocol,
    };
    Member {
        kind: MemberKind::Pod,
        enforced: true,
        namespace: "n".into(),
        name: host.into(),
        addresses: [ip(host, false), ip(host, true)].into_iter().collect(),
        ports: ports.iter().map(port).collect(),
        node: None,
    }
}

pub fn address_set(name: &str, hosts: &[&str]) -> Change {
    let put = hosts.iter().map(|host| member(host)).collect();
    Change::PutSet { kind: SetKind::Address, name: name.into(), replace: true, put, removed: Vec::new() }
}

pub fn applied_set(name: &str, pods: &[&str]) -> Change {
    let put = pods.iter().map(|pod| Member { addresses: [].into_iter().collect(), ..member(pod) }).collect();
    Change::PutSet { kind: SetKind::AppliedTo, name: name.into(), replace: true, put, removed: Vec::new() }
}

pub fn remove_policy(name: &str) -> Change {
    Change::Remove { kind: ObjectKind::Policy, name: name.into() }
}

pub fn rule(
    direction: Direction,
    action: Option<Action>,
    sets: &[&str],
    blocks: &[(&str, &[&str])],
    services: &[Service],
) -> Rule {
    let block = |(cidr, except): &(&str, &[&str])| IpBlock {
        cidr: cidr.parse().expect("a prefix"),
        except: except.iter().map(|text| text.parse().expect("a prefix")).collect(),
    };
    Rule {
        direction,
        action,
        priority: -1,
        enable_logging: false,
        address_groups: sets.iter().map(|set| Identifier::parse(set)).collect(),
        applied_to_groups: Vec::new(),
        detail: RuleDetail {
            ip_blocks: blocks.iter().map(block).collect(),
            services: services.to_vec(),
            ..RuleDetail::default()
        }
        .into(),
    }
}

pub fn port(protocol: Protocol, first: u16, last: u16) -> Service {
    Service { port: Some(PortRef::Number(first)), end_port: Some(last), ..Service::any(protocol) }
}

pub fn named(protocol: Protocol, name: &str) -> Service {
    Service { port: Some(PortRef::Name(name.into())), ..Service::any(protocol) }
}

/// Kubernetes' own if there is no tier.
pub fn policy(name: &str, tier: Option<(i32, f64)>, applied: &str, rules: Vec<Rule>) -> Change {
    let rules = rules.into_iter().enumerate().map(|(index, rule)| {
        let priority = if tier.is_some() { i32::try_from(index).expect("few rules") } else { -1 };
        Rule { priority, ..rule }
    });
    let policy = NetworkPolicy {
        uid: Identifier::parse(name),
        generation: 1,
        source: PolicySource {
            kind: if tier.is_some() { Kind::AntreaNetworkPolicy } else { Kind::NetworkPolicy },
            namespace: "n".into(),
            name: name.into(),
            uid: Identifier::parse(name),
        },
        tier_priority: tier.map(|(tier, _)| tier),
        priority: tier.map(|(_, priority)| priority),
        rules: rules.collect(),
        applied_to_groups: vec![Identifier::parse(applied)],
        applied_to_per_rule: false,
    };
    Change::PutPolicy { name: name.into(), policy: Box::new(policy) }
}

static MARKS: AtomicU16 = AtomicU16::new(20_000);

const PROBES: [Probe; 7] = [
    Probe::Tcp(80),
    Probe::Tcp(81),
    Probe::Udp(80),
    Probe::Udp(81),
    Probe::Sctp(80),
    Probe::Sctp(81),
    Probe::Ping,
];

/// Sends everything to everybody at once, and says what differs from what the naive reading expects.
pub fn differences(lab: &Lab, naive: &Naive) -> Vec<String> {
    let mut cells = Vec::new();
    for ipv6 in [false, true] {
        for (from, to) in HOSTS.iter().flat_map(|from| HOSTS.iter().map(move |to| (*from, *to))) {
            if from == to {
                continue;
            }
            for probe in PROBES {
                // Of its own, or it would go on with the association of an earlier scenario.
                let mark = MARKS.fetch_add(1, Ordering::Relaxed);
                let expected = expected(naive, ip(from, ipv6), ip(to, ipv6), probe, mark);
                let cell = Cell { from: ip(from, ipv6), to: ip(to, ipv6), probe, expected, mark };
                let namespaces =
                    [cell.from, cell.to].map(|ip| lab.namespace_of(ip).expect("a host").to_owned());
                let label = format!("{from} to {to} {probe:?} IPv{}", if ipv6 { 6 } else { 4 });
                cells.push((label, thread::spawn(move || (expected, cell.send(&namespaces)))));
            }
        }
    }
    let mut differences = Vec::new();
    for (label, thread) in cells {
        let (expected, seen) = thread.join().expect("a probe does not fall");
        if expected != seen {
            differences.push(format!("{label}: expected {expected:?}, seen {seen:?}"));
        }
    }
    differences
}

struct Cell {
    from: IpAddr,
    to: IpAddr,
    probe: Probe,
    expected: Fate,
    mark: u16,
}

impl Cell {
    fn send(self, [from_namespace, to_namespace]: &[String; 2]) -> Fate {
        let Self { from, to, probe, expected, mark } = self;
        let patience = patience(expected);
        let Probe::Sctp(port) = probe else {
            return within(from_namespace, move || probe.send(from, to, patience));
        };
        let listener = within(to_namespace, move || listen_sctp(to));
        within(from_namespace, move || send_sctp(from, to, port, mark));
        match saw_sctp(&listener, to.is_ipv6(), mark, patience) {
            true => Fate::Passed,
            // Nobody is told of a refusal here.
            false if expected == Fate::Refused => Fate::Refused,
            false => Fate::Dropped,
        }
    }
}

fn expected(naive: &Naive, source: IpAddr, destination: IpAddr, probe: Probe, mark: u16) -> Fate {
    let l4 = match probe {
        Probe::Tcp(port) => L4 { protocol: 6, first: 40_000, second: port },
        Probe::Udp(port) => L4 { protocol: 17, first: 40_000, second: port },
        Probe::Sctp(port) => L4 { protocol: 132, first: mark, second: port },
        Probe::Ping if source.is_ipv6() => L4 { protocol: 58, first: 128 << 8, second: 0 },
        Probe::Ping => L4 { protocol: 1, first: 8 << 8, second: 0 },
    };
    match naive.decide(&Packet { source, destination, l4 }) {
        Decision::Permit => Fate::Passed,
        Decision::Drop => Fate::Dropped,
        Decision::Reject => Fate::Refused,
    }
}
