//! The hosts of the case list, and its rows sent as real packets.

use std::{
    net::{IpAddr, SocketAddr},
    thread,
};

pub use node_services::cases::{CLIENT, LOCAL, POD, REMOTE, http, http_slice, ip, name, node, rules, six};
use node_services::{
    Node, Protocol, Service, Slice, Store,
    cases::{self, BLOCKED, Case, Expected, Row},
    nftables::Config,
};

use super::lab::{Fate, Lab};

/// Connections per row: enough that both of two endpoints are seen.
const CONNECTIONS: usize = 20;

/// All hosts, each with its address in both families.
pub fn lab() -> Lab {
    let mut lab = Lab::new();
    let both = |addresses: &[&str]| -> Vec<String> {
        let v6 = addresses.iter().map(|address| six(ip(address)).to_string());
        addresses.iter().map(|address| (*address).to_owned()).chain(v6).collect()
    };
    for (addresses, ports) in
        [(&[LOCAL][..], cases::PORTS), (&[REMOTE], cases::PORTS), (&[POD], &[]), (&[CLIENT, BLOCKED], &[])]
    {
        let addresses = both(addresses);
        lab.host(&addresses.iter().map(String::as_str).collect::<Vec<_>>(), ports);
    }
    lab.gateway();
    lab
}

pub fn store() -> Store {
    Store::new(node())
}

/// A balancer at 1.2.3.4, an external address 50.60.70.81 and node port 3001.
pub fn everywhere(cluster_ip: &str) -> Service {
    use node_services::{Ingress, IngressMode};
    Service {
        external_ips: vec![ip("50.60.70.81")],
        load_balancers: vec![Ingress { address: ip("1.2.3.4"), mode: IngressMode::Vip }],
        ..http(cluster_ip, 3001)
    }
}

pub fn slice(service: &str, endpoints: &[&str], ports: &[(&str, Protocol, u16)]) -> Slice {
    cases::slice(service, endpoints.iter().map(|one| cases::endpoint(one)).collect(), ports)
}

/// Rows of source, destination and fate over TCP.
pub fn check(lab: &Lab, rows: &[(&str, &str, Fate)]) {
    for (from, to, fate) in rows {
        assert_eq!(lab.tcp(from, to, CONNECTIONS, fate), *fate, "{from} to {to}");
    }
}

/// A data plane that is told of each stage.
pub trait Plane {
    fn follow(&mut self, store: &mut Store);
}

/// Plays a case: each stage is filled in, carried out, and its packets are sent, all at once: a silence takes its time.
pub fn play(lab: &Lab, case: &Case, node: Node, plane: &mut dyn Plane, expected: fn(&Row) -> &Expected) {
    let mut store = Store::new(node);
    for (index, stage) in case.stages.iter().enumerate() {
        stage.fill(&mut store);
        plane.follow(&mut store);
        thread::scope(|rows| {
            // A thread starts in the namespace of the one that starts it.
            let sent: Vec<_> = stage
                .rows
                .iter()
                .map(|row| (row, rows.spawn(move || send(lab, row, expected(row)))))
                .collect();
            for (row, seen) in sent {
                let (wanted, seen) = (expected(row), seen.join().expect("a probe does not fall"));
                assert!(agrees(&seen, wanted), "{}, stage {index}: {row:?}\nseen: {seen:?}", case.name);
            }
        });
    }
}

fn send(lab: &Lab, row: &Row, expected: &Expected) -> Fate {
    let patience = match expected {
        Expected::Silent | Expected::Passed => Fate::Silent,
        _ => Fate::Refused,
    };
    let (from, to) = (row.from.to_string(), SocketAddr::from(row.to).to_string());
    let count = match expected {
        Expected::Answered { by, .. } if by.len() == 1 => 4,
        _ => CONNECTIONS,
    };
    match row.protocol {
        Protocol::Tcp => lab.tcp(&from, &to, count, &patience),
        Protocol::Udp => lab.udp(&from, &to, count, &patience),
        Protocol::Sctp => lab.sctp(&from, &to, count, &patience),
    }
}

fn agrees(seen: &Fate, expected: &Expected) -> bool {
    let text = |by: &[(IpAddr, u16)]| by.iter().map(|(address, port)| format!("{address}:{port}")).collect();
    match (seen, expected) {
        (Fate::Answered(by, hidden), Expected::Answered { by: wanted, hidden: hide }) => {
            let wanted: std::collections::BTreeSet<String> = text(wanted);
            *by == wanted && hidden == hide
        }
        (Fate::Answered(by, _), Expected::Sticky(among)) => {
            let among: std::collections::BTreeSet<String> = text(among);
            by.len() == 1 && by.is_subset(&among)
        }
        (Fate::Refused, Expected::Refused) | (Fate::Silent, Expected::Silent) => true,
        // Nobody of ours answers: the host itself refuses, or the packet is lost behind the gateway.
        (Fate::Refused | Fate::Silent | Fate::NoRoute, Expected::Passed) => true,
        _ => false,
    }
}

/// The cases of a family, on which node, under which rules, and whether it is IPv6.
pub type Family = (Vec<Case>, Node, Config, bool);

pub fn in_both_families() -> [Family; 2] {
    let v6 = cases::all().into_iter().map(Case::in_ipv6).collect();
    [(cases::all(), node(), rules(), false), (v6, cases::node_in_ipv6(), cases::rules_in_ipv6(), true)]
}

pub const BOTH: &[&str] = &["10.180.0.1:80", "10.180.2.1:80"];
pub const ONLY_LOCAL: &[&str] = &["10.180.0.1:80"];
