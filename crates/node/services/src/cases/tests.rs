use std::collections::BTreeMap;

use node_nft::Table;

use super::*;
use crate::{
    evaluate::{self, Answer, Fate, Memory, Probe},
    ipvs::{self, guard},
    nftables,
};

fn probe(row: &Row) -> Probe {
    Probe { protocol: row.protocol, from: row.from, to: row.to }
}

/// What an answer is in the words of the rows.
fn seen(answer: &Answer, expected: &Expected, again: impl Fn(&Memory) -> Answer) -> Expected {
    match &answer.fate {
        Fate::Rejected => Expected::Refused,
        Fate::Dropped => Expected::Silent,
        Fate::Passed => Expected::Passed,
        Fate::Balanced(endpoints) => {
            let by: Vec<_> = endpoints.keys().copied().collect();
            if matches!(expected, Expected::Sticky(_)) {
                // Whoever got the first connection gets the next one too.
                let stays = by.iter().all(|socket| {
                    let next = again(&answer.remembered[socket]);
                    matches!(next.fate, Fate::Balanced(all) if all.keys().eq([socket]))
                });
                assert!(stays, "the client is not bound");
                return Expected::Sticky(by);
            }
            Expected::Answered { by, hidden: endpoints.values().any(|hidden| *hidden) }
        }
    }
}

fn is_own(own: &[IpAddr], address: IpAddr) -> bool {
    own.contains(&address)
}

fn play_nftables(case: &Case, node: &Node, config: &Config) {
    let mut store = Store::new(node.clone());
    let ipv6 = node.addresses[0].is_ipv6();
    let mut plane = nftables::Plane::new(ipv6, config.clone());
    for (index, stage) in case.stages.iter().enumerate() {
        stage.fill(&mut store);
        plane.apply(&store.patches());
        let table = plane.table();
        for row in &stage.rows {
            let ask = |memory: &Memory| {
                let local = |address| is_own(&node.addresses, address);
                evaluate::nftables(&[&table], probe(row), &local, memory).expect("it is understood")
            };
            let answer = ask(&Memory::new());
            let seen = seen(&answer, &row.expected, ask);
            assert_eq!(seen, row.expected, "{}, stage {index}: {row:?}\n{:?}", case.name, answer.steps);
        }
    }
}

fn play_ipvs(case: &Case, node: &Node, config: &Config) {
    let mut store = Store::new(node.clone());
    let mut plane = ipvs::Plane::new(ipvs::Config {
        host_addresses: node.addresses.iter().copied().collect(),
        ..ipvs::Config::default()
    });
    for (index, stage) in case.stages.iter().enumerate() {
        stage.fill(&mut store);
        plane.apply(&store.patches());
        let guards: Vec<Table> =
            [false, true].map(|ipv6| guard::table(ipv6, config, &store, &Default::default())).into();
        let guards: Vec<&Table> = guards.iter().collect();
        let bound: Vec<_> = plane.addresses().chain(node.addresses.iter().copied()).collect();
        for row in &stage.rows {
            let expected = row.with_ipvs.as_ref().unwrap_or(&row.expected);
            let local = |address| is_own(&bound, address);
            let answer =
                evaluate::ipvs(plane.servers(), &guards, probe(row), &local).expect("it is understood");
            let seen = match expected {
                Expected::Sticky(_) => {
                    let id = ipvs::ServerId { address: row.to.0, port: row.to.1, protocol: row.protocol };
                    assert!(plane.servers()[&id].server.affinity.is_some(), "IPVS itself keeps clients");
                    let Fate::Balanced(endpoints) = &answer.fate else { panic!("{answer:?}") };
                    Expected::Sticky(endpoints.keys().copied().collect())
                }
                expected => seen(&answer, expected, |_| unreachable!("IPVS remembers by itself")),
            };
            assert_eq!(seen, *expected, "{}, stage {index}: {row:?}\n{:?}", case.name, answer.steps);
        }
    }
}

#[test]
fn nftables_passes_every_case() {
    for case in all() {
        play_nftables(&case, &node(), &rules());
        play_nftables(&case.in_ipv6(), &six::node(), &six::rules());
    }
}

#[test]
fn ipvs_passes_every_case() {
    for case in all() {
        play_ipvs(&case, &node(), &rules());
        play_ipvs(&case.in_ipv6(), &six::node(), &six::rules());
    }
}

#[test]
fn a_packet_into_a_service_of_ten_thousand_endpoints_may_reach_each_of_them() {
    let mut store = Store::new(node());
    let endpoints: Vec<_> = (0..10_000_u32)
        .map(|number| SliceEndpoint {
            addresses: vec![IpAddr::from((0x0ab4_1000 + number).to_be_bytes())],
            node: Some("there".into()),
            ..SliceEndpoint::default()
        })
        .collect();
    store.set_service(name("web"), http("172.30.0.41", 0));
    store.set_slice("web", slice("web", endpoints, &[("http", Protocol::Tcp, 80)]));
    let mut plane = nftables::Plane::new(false, rules());
    let work = plane.apply(&store.patches());
    assert!(!work.is_empty());
    let table = plane.table();
    let probe = Probe { protocol: Protocol::Tcp, from: ip(POD), to: (ip("172.30.0.41"), 80) };
    let answer =
        evaluate::nftables(&[&table], probe, &|_| false, &BTreeMap::new()).expect("it is understood");
    let Fate::Balanced(endpoints) = answer.fate else { panic!("{:?}", answer.fate) };
    assert_eq!(endpoints.len(), 10_000);
}
