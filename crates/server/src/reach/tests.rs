//! The matrix against the question asked of every pair.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Address, Direction, EntryName, PermitEntry, Ports, ResourceName, Traffic as PermitTraffic,
    policy::TypeMeta,
};
use policy::{Engine, Event};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::*;

fn apply(engine: &mut Engine, json: &Value) {
    let types = TypeMeta::deserialize(json).unwrap();
    let object = types.kind().unwrap().deserialize(json).unwrap();
    engine.handle_event(Event::Apply(&object));
    while engine.poll_update().is_some() {}
}

fn pod(namespace: &str, name: &str, app: &str, ip: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "labels": { "app": app } },
        "spec": { "nodeName": "n1" }, "status": { "podIP": ip } })
}

fn shop() -> Engine {
    let mut engine = Engine::new();
    for n in 0..3 {
        apply(&mut engine, &pod("shop", &format!("web-{n}"), "web", &format!("10.9.0.{}", n + 1)));
        apply(&mut engine, &pod("shop", &format!("db-{n}"), "db", &format!("10.9.1.{}", n + 1)));
    }
    apply(
        &mut engine,
        &json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "namespace": "shop", "name": "db" },
        "spec": { "podSelector": { "matchLabels": { "app": "db" } }, "policyTypes": ["Ingress"],
            "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": "web" } } },
                { "ipBlock": { "cidr": "10.9.1.1/32" } }], "ports": [{ "port": 5432 }] }] } }),
    );
    engine
}

fn resource(name: &str, ip: &str, entries: &[(Direction, &str, Ports)]) -> ResourceView {
    let entry = |(at, (direction, peer, ports)): (usize, &(Direction, &str, Ports))| {
        let traffic = PermitTraffic::new(*direction, model::Protocol::TCP, Ports::Any, *ports).unwrap();
        let targets: BTreeSet<Address> = [peer.parse().unwrap()].into();
        PermitEntry::new(EntryName::reported(format!("r{at}")), traffic, targets, BTreeSet::new()).unwrap()
    };
    ResourceView {
        name: name.parse::<ResourceName>().unwrap(),
        region: "west".parse().unwrap(),
        state: "ready",
        uri: None,
        ip: Some(ip.to_owned()),
        permit_list: entries.iter().enumerate().map(entry).collect(),
        message: String::new(),
    }
}

fn world() -> (Engine, Vec<End>) {
    let engine = shop();
    let a = resource("default.a.vm", "10.1.0.1", &[(Direction::Outbound, "10.9.1.0/24", Ports::one(5432))]);
    let b = resource("default.b.vm", "10.2.0.1", &[(Direction::Inbound, "10.9.0.0/16", Ports::Any)]);
    let ends = ends(engine.workloads().collect(), vec![a, b]);
    (engine, ends)
}

fn matrix(level: Level, port: Option<u16>) -> BTreeMap<(String, String), Cell> {
    let (engine, ends) = world();
    let groups = groups(&ends, level, None);
    cells(&engine, &ends, groups, Traffic { protocol: Some(ProtocolClass::Tcp), port })
}

fn cells(
    engine: &Engine,
    ends: &[End],
    mut groups: Vec<Group>,
    traffic: Traffic,
) -> BTreeMap<(String, String), Cell> {
    let mut others = groups.clone();
    let parties = parties(ends, [&mut groups, &mut others]);
    let rows = super::matrix(&engine.survey(&parties), &groups, &others, traffic).unwrap();
    let mut cells = BTreeMap::new();
    for (from, row) in groups.iter().zip(rows) {
        for (to, cell) in others.iter().zip(row) {
            cells.insert((from.id.clone(), to.id.clone()), cell);
        }
    }
    cells
}

#[test]
fn groups_say_how_many_of_their_pairs_are_open() {
    let cells = matrix(Level::Group, None);
    let cell = |from: &str, to: &str| {
        let cell = &cells[&(from.to_owned(), to.to_owned())];
        let ports = cell.ports.clone().unwrap_or_default();
        (cell.pairs, cell.open, cell.partly, ports)
    };
    let (web, db) = ("namespace:shop/web", "namespace:shop/db");
    assert_eq!(cell(web, web), (6, 6, 0, "all".into()));
    assert_eq!(cell(db, web), (9, 9, 0, "all".into()));
    assert_eq!(cell(web, db), (9, 0, 9, "5432".into()));
    // Among databases only the one in the block may connect: to the two others.
    assert_eq!(cell(db, db), (6, 0, 2, "5432".into()));
    // The permit list opens the way, the policy at the other end does not.
    assert_eq!(cell("site:default.a/vm", db), (3, 0, 0, String::new()));
    assert_eq!(cell("site:default.a/vm", web), (3, 0, 0, String::new()));
    assert_eq!(cell(web, "site:default.b/vm"), (3, 3, 0, "all".into()));
    assert_eq!(cell("site:default.b/vm", web), (3, 0, 0, String::new()));
    assert_eq!(cell("site:default.a/vm", "site:default.a/vm"), (0, 0, 0, String::new()));
}

/// A cluster is reached where all of its block is.
#[test]
fn a_cluster_is_an_end_like_a_machine() {
    let engine = shop();
    let some = (Direction::Outbound, "10.3.0.0/24", Ports::Any);
    let all = (Direction::Outbound, "10.3.0.0/16", Ports::one(443));
    let machine = resource("default.a.vm", "10.1.0.1", &[some, all]);
    let cluster = resource("default.b.k", "10.3.0.0/16", &[(Direction::Inbound, "10.1.0.1", Ports::Any)]);
    let ends = ends(Vec::new(), vec![machine, cluster]);
    let groups = groups(&ends, Level::End, None);
    let (cluster, machine) = (groups[1].id.clone(), groups[0].id.clone());
    let cells = cells(&engine, &ends, groups, Traffic { protocol: Some(ProtocolClass::Tcp), port: None });
    let there = &cells[&(machine.clone(), cluster.clone())];
    assert_eq!((there.pairs, there.partly, there.ports.as_deref()), (1, 1, Some("443")));
    let back = &cells[&(cluster, machine)];
    assert_eq!((back.pairs, back.open, back.partly), (1, 0, 0));
}

/// What is no TCP is open too, and the cell says so.
#[test]
fn every_protocol_is_told() {
    let engine = shop();
    let of = |direction, peer: &str, protocol: model::Protocol, port| {
        let traffic = PermitTraffic::new(direction, protocol, Ports::Any, port).unwrap();
        let targets: BTreeSet<Address> = [peer.parse().unwrap()].into();
        PermitEntry::new(EntryName::reported(format!("{protocol}")), traffic, targets, BTreeSet::new())
            .unwrap()
    };
    let both = |peer: &str, direction| {
        vec![
            of(direction, peer, model::Protocol::ICMP, Ports::Any),
            of(direction, peer, model::Protocol::UDP, Ports::one(53)),
            of(direction, peer, model::Protocol::Number(47), Ports::Any),
        ]
    };
    let mut a = resource("default.a.vm", "10.1.0.1", &[]);
    a.permit_list = both("10.2.0.1", Direction::Outbound);
    let mut b = resource("default.b.vm", "10.2.0.1", &[]);
    b.permit_list = both("10.1.0.1", Direction::Inbound);
    let ends = ends(Vec::new(), vec![a, b]);
    let level = groups(&ends, Level::End, None);
    let (from, to) = (level[0].id.clone(), level[1].id.clone());
    let cell = |protocol| {
        let cells = cells(&engine, &ends, level.clone(), Traffic { protocol, port: None });
        let cell = cells[&(from.clone(), to.clone())].clone();
        (cell.open, cell.partly, cell.ports.unwrap_or_default())
    };
    assert_eq!(cell(None), (0, 1, "udp 53; icmp; other 47".into()));
    assert_eq!(cell(Some(ProtocolClass::Tcp)), (0, 0, String::new()));
    assert_eq!(cell(Some(ProtocolClass::Icmp)), (1, 0, "all".into()));
    assert_eq!(cell(Some(ProtocolClass::Other)), (0, 1, "47".into()));
}

#[test]
fn every_level_counts_the_same_pairs() {
    for port in [None, Some(5432), Some(22)] {
        let total = |level| {
            let cells = matrix(level, port);
            let sum = |of: fn(&Cell) -> u64| cells.values().map(of).sum::<u64>();
            (sum(|cell| cell.pairs), sum(|cell| cell.open), sum(|cell| cell.partly))
        };
        assert_eq!(total(Level::Place), total(Level::End), "{port:?}");
        assert_eq!(total(Level::Group), total(Level::End), "{port:?}");
        assert_eq!(total(Level::End).0, 8 * 7);
    }
}

#[test]
fn a_group_is_taken_apart_by_its_id() {
    let (_, ends) = world();
    let inside = groups(&ends, Level::End, Some("namespace:shop/db"));
    let names: Vec<&str> = inside.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["db-0", "db-1", "db-2"]);
    assert_eq!(groups(&ends, Level::Group, Some("site:default.a")).len(), 1);
    assert!(groups(&ends, Level::End, Some("namespace:nowhere")).is_empty());
    assert_eq!(overview(&ends), Level::Group);
}
