//! What explain says, against the matrix and against the entries of permit lists.

use std::{collections::BTreeSet, net::IpAddr};

use model::{
    Address, Direction, EntryName, Packet, PermitEntry, Ports, Protocol, ProtocolClass, Traffic,
    policy::TypeMeta, protocol as numbers,
};
use orchestrator::execute::ResourceView;
use policy::Event;
use proptest::prelude::*;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::*;
use crate::reach;

const A: [&str; 2] = ["10.1.0.1", "2001:db8::a"];
const B: [&str; 2] = ["10.2.0.1", "2001:db8::b"];

fn entry(text: (Direction, Protocol, Ports, Ports), target: &str) -> PermitEntry {
    let (direction, protocol, src_ports, dst_ports) = text;
    let traffic = Traffic::new(direction, protocol, src_ports, dst_ports).unwrap();
    let targets: BTreeSet<Address> = [target.parse().unwrap()].into();
    PermitEntry::new(EntryName::reported(traffic.to_string()), traffic, targets, BTreeSet::new()).unwrap()
}

fn resource(cloud: &str, ip: &str, permit_list: Vec<PermitEntry>) -> ResourceView {
    ResourceView {
        name: format!("default.{cloud}.vm").parse().unwrap(),
        region: "west".parse().unwrap(),
        state: "ready",
        uri: None,
        ip: Some(ip.to_owned()),
        permit_list,
        message: String::new(),
    }
}

fn asked(protocol: &str, port: Option<u32>, source_port: Option<u32>) -> Question {
    let request = ExplainRequest { protocol: protocol.to_owned(), port, source_port, ..Default::default() };
    Question::new(&request).unwrap()
}

fn at(address: &str) -> Endpoint {
    Endpoint::Address(address.parse().unwrap())
}

/// Two resources with these lists, the first asked to reach the second.
struct Pair {
    engine: Engine,
    a: ResourceView,
    b: ResourceView,
}

impl Pair {
    fn new(six: bool, a: Vec<PermitEntry>, b: Vec<PermitEntry>) -> Self {
        let family = usize::from(six);
        Self { engine: Engine::new(), a: resource("a", A[family], a), b: resource("b", B[family], b) }
    }

    fn explain(&self, question: &Question) -> ExplainResponse {
        let end = |resource: &ResourceView| at(resource.ip.as_deref().unwrap());
        let ends = Ends::new([end(&self.a), end(&self.b)], [Some(self.a.clone()), Some(self.b.clone())]);
        answer(&self.engine, &ends, question, &HostReports::default()).unwrap()
    }

    fn cell(&self, protocol: Option<ProtocolClass>, port: Option<u16>) -> reach::Cell {
        let ends = reach::ends(Vec::new(), vec![self.a.clone(), self.b.clone()]);
        let mut from = reach::groups(&ends, reach::Level::End, Some("default.a.vm"));
        let mut to = reach::groups(&ends, reach::Level::End, Some("default.b.vm"));
        let parties = reach::parties(&ends, [&mut from, &mut to]);
        let survey = self.engine.survey(&parties);
        let traffic = reach::Traffic { protocol, port };
        reach::matrix(&survey, &from, &to, traffic).unwrap().remove(0).remove(0)
    }
}

fn both(protocol: Protocol, src: Ports, dst: Ports, six: bool) -> Pair {
    let family = usize::from(six);
    let list = |direction, peer: &str| vec![entry((direction, protocol, src, dst), peer)];
    Pair::new(six, list(Direction::Outbound, B[family]), list(Direction::Inbound, A[family]))
}

/// Explain took ICMP for that of IPv4, the matrix did not.
#[test]
fn a_ping_of_ipv6_is_permitted_by_either_name() {
    for protocol in [Protocol::ICMP, Protocol::ICMPV6] {
        let pair = both(protocol, Ports::Any, Ports::Any, true);
        assert!(pair.explain(&asked("icmp", None, None)).allowed, "{protocol}");
        assert_eq!(pair.cell(Some(ProtocolClass::Icmp), None).open, 1, "{protocol}");
    }
}

/// Explain guessed a source port, the matrix took the rule for none.
#[test]
fn source_ports_are_said_and_not_guessed() {
    let pair = both(Protocol::TCP, Ports::Range { first: 40_000, last: 60_000 }, Ports::one(80), false);
    let told = pair.explain(&asked("tcp", Some(80), None));
    assert_eq!((told.allowed, told.verdict.as_str()), (false, "some"));
    assert_eq!(told.openings[0].ports, "80 from 40000-60000");
    assert!(told.notes.iter().any(|note| note.contains("from source port 1")), "{:?}", told.notes);
    for (port, is_open) in [(40_000, true), (60_000, true), (60_001, false), (1, false)] {
        let verdict = pair.explain(&asked("tcp", Some(80), Some(port))).verdict;
        assert_eq!(verdict, if is_open { "allowed" } else { "denied" }, "{port}");
    }
    let cell = pair.cell(Some(ProtocolClass::Tcp), Some(80));
    assert_eq!((cell.open, cell.partly, cell.ports.as_deref()), (0, 1, Some("80 from 40000-60000")));
}

/// Without a port it said denied, and advised to open all of TCP.
#[test]
fn without_a_port_every_port_is_answered_for() {
    let pair = both(Protocol::TCP, Ports::Any, Ports::one(5432), false);
    let told = pair.explain(&asked("tcp", None, None));
    assert_eq!((told.verdict.as_str(), told.openings[0].ports.as_str()), ("some", "5432"));
    assert!(told.openings[0].because.iter().any(|why| why.contains("tcp any>5432")), "{told:?}");
    assert_eq!(told.remedies, [""; 0], "nobody should open all of TCP");
    let told = pair.explain(&asked("", None, None));
    let openings: Vec<(&str, &str)> =
        told.openings.iter().map(|one| (one.protocol.as_str(), one.ports.as_str())).collect();
    let none = ["udp", "sctp", "icmp", "other"].map(|protocol| (protocol, "none"));
    assert_eq!(openings, [&[("tcp", "5432")][..], &none].concat());
    // About one port there is one thing to say.
    let told = pair.explain(&asked("tcp", Some(22), None));
    assert_eq!(told.verdict, "denied");
    assert_eq!(
        told.remedies[0],
        "trestle rule add default.a.vm --out --protocol tcp --port 22 --peer default.b.vm"
    );
}

fn apply(engine: &mut Engine, json: &Value) {
    let object = TypeMeta::deserialize(json).unwrap().kind().unwrap().deserialize(json).unwrap();
    engine.handle_event(Event::Apply(&object));
    while engine.poll_update().is_some() {}
}

/// The same between Pods, where policies decide.
#[test]
fn policies_are_asked_about_every_port_too() {
    let mut engine = Engine::new();
    for (name, ip) in [("web", "10.9.0.1"), ("db", "10.9.0.2")] {
        apply(
            &mut engine,
            &json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": "shop", "name": name, "labels": { "app": name } },
            "spec": { "nodeName": "n1" }, "status": { "podIP": ip } }),
        );
    }
    apply(
        &mut engine,
        &json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "namespace": "shop", "name": "db" },
        "spec": { "podSelector": { "matchLabels": { "app": "db" } }, "policyTypes": ["Ingress"],
            "ingress": [{ "from": [{ "podSelector": {} }], "ports": [{ "port": 5432 }] }] } }),
    );
    let ends = |a: &str, b: &str| Ends::new([a, b].map(|end| endpoint(end).unwrap()), [None, None]);
    let ask =
        |a, b, question: &Question| answer(&engine, &ends(a, b), question, &HostReports::default()).unwrap();
    let told = ask("shop/web", "shop/db", &asked("", None, None));
    assert_eq!((told.verdict.as_str(), told.openings[0].ports.as_str()), ("some", "5432"));
    assert!(told.openings[0].because.iter().any(|why| why.contains("shop/db")), "{told:?}");
    assert_eq!(told.remedies, [""; 0]);
    assert!(told.ingress.is_some_and(|side| !side.allowed), "the steps are those of a closed port");
    assert_eq!(ask("shop/db", "shop/web", &asked("", None, None)).verdict, "allowed");
    assert!(ask("shop/web", "shop/db", &asked("tcp", Some(5432), None)).allowed);
    assert!(!ask("shop/web", "shop/db", &asked("udp", Some(5432), None)).remedies.is_empty());
}

fn entries(direction: Direction, peers: [&'static str; 2]) -> impl Strategy<Value = Vec<PermitEntry>> {
    let protocol = prop_oneof![
        1 => Just(Protocol::Any),
        4 => prop::sample::select(vec![1_u8, 6, 6, 17, 47, 58, 132]).prop_map(Protocol::Number)
    ];
    let ports = || {
        prop_oneof![
            1 => Just(Ports::Any),
            2 => (1..9_u16, 0..3_u16).prop_map(|(first, more)| Ports::Range { first, last: first + more }),
        ]
    };
    let one = (protocol, ports(), ports(), prop::sample::select(peers.to_vec())).prop_map(move |one| {
        let (protocol, src, dst, peer) = one;
        let (src, dst) = if protocol.has_ports() { (src, dst) } else { (Ports::Any, Ports::Any) };
        entry((direction, protocol, src, dst), peer)
    });
    proptest::collection::vec(one, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Explain, the matrix and the entries, asked the same.
    #[test]
    fn explain_and_the_matrix_say_the_same(
        six: bool,
        out in entries(Direction::Outbound, ["0.0.0.0/0", "::/0"]),
        inward in entries(Direction::Inbound, ["0.0.0.0/0", "::/0"]),
    ) {
        let pair = Pair::new(six, out.clone(), inward.clone());
        let peer = |of: [&str; 2]| of[usize::from(six)].parse::<IpAddr>().unwrap();
        let permits = |packet: &Packet| {
            out.iter().any(|entry| entry.permits(Direction::Outbound, peer(B), packet))
                && inward.iter().any(|entry| entry.permits(Direction::Inbound, peer(A), packet))
        };
        for (text, number) in [("tcp", numbers::TCP), ("udp", numbers::UDP), ("sctp", numbers::SCTP)] {
            let class: ProtocolClass = text.parse().unwrap();
            for port in 1..12 {
                let told = pair.explain(&asked(text, Some(port.into()), None));
                let mut open = 0;
                for src_port in 1..12 {
                    let packet = Packet { protocol: number, src_port, dst_port: port };
                    let exact = pair.explain(&asked(text, Some(port.into()), Some(src_port.into())));
                    prop_assert_eq!(exact.allowed, permits(&packet), "{:?}", packet);
                    prop_assert_eq!(exact.verdict == "allowed", exact.allowed);
                    open += u32::from(exact.allowed);
                }
                // Above all ranges is a port that stands for the rest.
                let verdict = match open { 0 => "denied", 11 => "allowed", _ => "some" };
                prop_assert_eq!(&told.verdict, verdict);
                let cell = pair.cell(Some(class), Some(port));
                let share = match (cell.open, cell.partly) { (1, 0) => "allowed", (0, 1) => "some", _ => "denied" };
                prop_assert_eq!(&told.verdict, share);
                let ports = cell.ports.unwrap_or_else(|| "none".to_owned());
                prop_assert_eq!(&told.openings[0].ports, &ports);
            }
        }
        let ping = Packet { protocol: numbers::in_family(numbers::ICMP, six), src_port: 0, dst_port: 0 };
        prop_assert_eq!(pair.explain(&asked("icmp", None, None)).allowed, permits(&ping));
        let tunnel = Packet { protocol: 47, src_port: 0, dst_port: 0 };
        let other = pair.cell(Some(ProtocolClass::Other), None);
        prop_assert_eq!(other.open + other.partly > 0 || !permits(&tunnel), true);
        // Every protocol at once.
        let (told, cell) = (pair.explain(&asked("", None, None)), pair.cell(None, None));
        prop_assert_eq!(told.verdict == "allowed", cell.open == 1);
        prop_assert_eq!(told.verdict == "some", cell.partly == 1);
        prop_assert_eq!(told.remedies, [""; 0]);
    }
}
