use std::{collections::BTreeMap, net::IpAddr};

use proptest::prelude::*;

use super::*;
use crate::{
    FrontendKind, Protocol, ServiceKind, SliceEndpoint, SlicePort,
    known::{KnownEndpoint, KnownPort},
    testing::{Event, endpoint, events, ip, name, node, service, slice},
};

/// What planes would have after the patches they were told.
type Model = BTreeMap<PortId, (ServicePortInfo, BTreeMap<(IpAddr, u16), EndpointInfo>)>;

fn follow(model: &mut Model, patches: Vec<ServiceEndpointsPatch>) {
    for patch in patches {
        assert!(!patch.is_empty());
        let known = model.remove(&patch.id);
        assert_eq!(known.as_ref().map(|(info, _)| info), patch.service.before.as_deref(), "{}", patch.id);
        let mut endpoints = known.map(|(_, endpoints)| endpoints).unwrap_or_default();
        for one in patch.endpoints {
            let known = match one.op {
                Operation::Delete => endpoints.remove(&one.endpoint.socket()),
                Operation::NoOp | Operation::Create | Operation::Update => {
                    endpoints.insert(one.endpoint.socket(), one.endpoint)
                }
            };
            assert_eq!(known.is_some(), one.op != Operation::Create);
        }
        match patch.service.after {
            Some(info) => drop(model.insert(patch.id, ((*info).clone(), endpoints))),
            None => assert!(endpoints.is_empty(), "endpoints outlive their service"),
        }
    }
}

/// A slice that the store keeps like this.
fn told(service: &ServiceName, slice: &KnownSlice) -> Slice {
    let port = |one: &KnownPort| SlicePort {
        name: Some(one.name.to_string()),
        protocol: one.protocol,
        port: Some(one.port),
    };
    let endpoint = |one: &KnownEndpoint| SliceEndpoint {
        addresses: vec![one.address],
        ready: Some(one.ready),
        serving: Some(one.serving),
        terminating: Some(one.terminating),
        node: one.node().map(str::to_owned),
        zone_hints: one.zone_hints().to_vec(),
        node_hints: one.node_hints().to_vec(),
    };
    Slice {
        service: service.clone(),
        ports: slice.ports.iter().map(port).collect(),
        endpoints: slice.endpoints.iter().map(endpoint).collect(),
        labels: BTreeMap::new(),
        triggered: None,
    }
}

/// The same state by one full callback into an empty store.
fn from_scratch(store: &Store) -> Model {
    let mut fresh = Store::new(store.node.clone());
    for (name, entry) in &store.services {
        if let Some(service) = &entry.service {
            fresh.set_service(name.clone(), service.clone());
        }
        for (key, slice) in &entry.slices {
            fresh.set_slice(key, told(name, slice));
        }
    }
    let mut model = Model::new();
    follow(&mut model, fresh.patches());
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn patches_lead_to_the_state_that_a_full_callback_gives(events in events()) {
        let mut store = Store::new(node());
        let mut model = Model::new();
        for event in events {
            let flush = matches!(event, Event::Flush);
            event.apply(&mut store);
            if flush {
                follow(&mut model, store.patches());
                prop_assert_eq!(&model, &from_scratch(&store));
            }
        }
        follow(&mut model, store.patches());
        prop_assert_eq!(&model, &from_scratch(&store));
        prop_assert!(store.patches().is_empty());
    }

    #[test]
    fn a_repeated_full_state_yields_nothing(events in events()) {
        let mut store = Store::new(node());
        events.into_iter().for_each(|event| event.apply(&mut store));
        store.patches();
        let services: Vec<_> = store.services.iter()
            .filter_map(|(name, entry)| Some((name.clone(), entry.service.clone()?))).collect();
        let known = store.services.iter()
            .flat_map(|(name, entry)| entry.slices.iter().map(move |(key, slice)| (name, key, slice)));
        let slices: Vec<_> =
            known.map(|(name, key, slice)| (key.to_string(), told(name, slice))).collect();
        store.replace(services, slices);
        prop_assert!(store.patches().is_empty());
    }
}

fn ops(store: &mut Store) -> Vec<(String, Operation, Vec<Operation>)> {
    let patches = store.patches();
    patches
        .into_iter()
        .map(|patch| {
            let endpoints = patch.endpoints.iter().map(|one| one.op).collect();
            (patch.id.service.name.to_string(), patch.service.op, endpoints)
        })
        .collect()
}

#[test]
fn a_service_lives_through_its_operations() {
    use Operation::{Create, Delete, NoOp, Update};
    let mut store = Store::new(node());
    store.set_service(name("web"), service("172.30.0.1"));
    assert_eq!(ops(&mut store), [("web".into(), Create, vec![])]);
    store.set_slice("web-1", slice("web", vec![endpoint("10.0.0.1", "here"), endpoint("10.0.0.2", "there")]));
    assert_eq!(ops(&mut store), [("web".into(), Update, vec![Create, Create])], "it has endpoints now");
    store
        .set_slice("web-1", slice("web", vec![endpoint("10.0.0.1", "there"), endpoint("10.0.0.3", "there")]));
    assert_eq!(ops(&mut store), [("web".into(), NoOp, vec![Update, Delete, Create])]);
    store.set_service(name("web"), Service { affinity: Some(10), ..service("172.30.0.1") });
    assert_eq!(ops(&mut store), [("web".into(), Update, vec![])], "an attribute changes in place");
    store.delete_service(&name("web"));
    assert_eq!(ops(&mut store), [("web".into(), Delete, vec![Delete, Delete])]);
    store.delete_slice("web-1");
    assert_eq!(ops(&mut store), []);
    assert!(store.services.is_empty() && store.slices.is_empty());
}

#[test]
fn of_two_services_with_one_address_and_port_the_first_by_name_wins_whoever_came_first() {
    for order in [["a", "b"], ["b", "a"]] {
        let mut store = Store::new(node());
        for one in order {
            store.set_service(name(one), service("172.30.0.1"));
            store.patches();
        }
        let held = |store: &Store, service: &str| {
            let mut found = store.ports().filter(|(id, ..)| *id.service.name == *service);
            found.next().is_some_and(|(_, info, _)| !info.frontends.is_empty())
        };
        assert!(held(&store, "a") && !held(&store, "b"));
        store.delete_service(&name("a"));
        assert_eq!(ops(&mut store).len(), 2, "the loser takes over");
        assert!(held(&store, "b"));
    }
}

#[test]
fn of_two_services_with_one_node_port_the_loser_keeps_all_else_and_protocols_do_not_meet() {
    let on = |cluster_ip: &str, protocol| {
        let port = ServicePort { name: "x".into(), protocol, port: 53, node_port: 30_053 };
        Service { kind: ServiceKind::NodePort, ports: vec![port], ..service(cluster_ip) }
    };
    let kinds = |store: &Store, service: &str| -> Vec<FrontendKind> {
        let mine = store.ports().filter(|(id, ..)| *id.service.name == *service);
        mine.flat_map(|(_, info, _)| &info.frontends).map(|one| one.kind).collect()
    };
    let (cluster, node_port) = (FrontendKind::ClusterIp, FrontendKind::NodePort);
    let mut store = Store::new(node());
    store.set_service(name("b"), on("172.30.0.2", Protocol::Tcp));
    store.set_service(name("udp"), on("172.30.0.3", Protocol::Udp));
    store.patches();
    store.set_service(name("a"), on("172.30.0.1", Protocol::Tcp));
    store.patches();
    assert_eq!(kinds(&store, "a"), [cluster, node_port]);
    assert_eq!(kinds(&store, "b"), [cluster], "its cluster address is nobody else's");
    assert_eq!(kinds(&store, "udp"), [cluster, node_port]);
    let conflicts: Vec<_> = store.conflicts().collect();
    assert!(matches!(&conflicts[..], [one] if one.loser == name("b") && one.winner == name("a")));
    store.delete_service(&name("a"));
    store.patches();
    assert_eq!(kinds(&store, "b"), [cluster, node_port]);
    assert_eq!(store.conflicts().count(), 0);
}

#[test]
fn what_is_not_for_this_proxy_is_passed_over() {
    let label = |key: &str| BTreeMap::from([(key.to_owned(), "x".to_owned())]);
    for other in [
        Service { labels: label(model::service::PROXY_NAME_LABEL), ..service("172.30.0.1") },
        Service { labels: label(model::service::HEADLESS_LABEL), ..service("172.30.0.1") },
        Service { kind: ServiceKind::ExternalName, ..service("172.30.0.1") },
        Service { cluster_ips: Vec::new(), ..service("172.30.0.1") },
    ] {
        let mut store = Store::new(node());
        store.set_service(name("other"), other);
        assert_eq!(ops(&mut store), []);
        store.set_service(name("other"), service("172.30.0.1"));
        assert_eq!(ops(&mut store).len(), 1, "and taken up when that changes");
    }
}

#[test]
fn frontends_are_of_the_familys_own_addresses() {
    let mut store = Store::new(Node { addresses: vec![ip("192.168.0.2"), ip("fd00::2")], ..node() });
    let mut dual = service("172.30.0.1");
    dual.cluster_ips.push(ip("fd00:1::1"));
    dual.external_ips = vec![ip("50.60.70.81"), ip("2012::51"), ip("127.0.0.1")];
    dual.load_balancers = vec![
        crate::Ingress { address: ip("1.2.3.4"), mode: crate::IngressMode::Vip },
        crate::Ingress { address: ip("1.2.3.5"), mode: crate::IngressMode::Proxy },
    ];
    dual.ports[0].node_port = 30_080;
    store.set_service(name("dual"), dual);
    let frontends: Vec<_> = store
        .patches()
        .iter()
        .filter_map(|patch| patch.service.after.clone())
        .map(|info| {
            info.frontends.iter().map(|one| format!("{} {}", one.address, one.port)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(
        frontends,
        [
            vec!["1.2.3.4 80", "50.60.70.81 80", "127.0.0.1 80", "172.30.0.1 80", "192.168.0.2 30080"],
            vec!["2012::51 80", "fd00::2 30080", "fd00:1::1 80"]
        ]
    );
}

#[test]
fn a_range_of_everything_restricts_nobody_and_ranges_are_of_the_family() {
    let ranges = |list: &[&str]| {
        let parsed = list.iter().filter_map(|text| crate::parse_prefix(text)).collect();
        source_ranges(&Service { source_ranges: parsed, ..service("172.30.0.1") }, false).len()
    };
    assert_eq!(ranges(&["192.168.0.0/24", " 203.0.113.0/25", "fd00::/8"]), 2);
    assert_eq!(ranges(&["192.168.0.0/24", "0.0.0.0/0"]), 0);
}

#[test]
fn health_is_the_number_of_ready_endpoint_addresses_here() {
    let mut store = Store::new(node());
    let checked = Service { external_local: true, health_check_node_port: 30_000, ..service("172.30.0.1") };
    store.set_service(name("web"), checked);
    assert_eq!(store.health_checks()[0].local_endpoints, 0);
    let terminating =
        SliceEndpoint { ready: Some(false), terminating: Some(true), ..endpoint("10.0.0.3", "here") };
    store.set_slice(
        "web-1",
        slice("web", vec![endpoint("10.0.0.1", "here"), endpoint("10.0.0.2", "there"), terminating]),
    );
    assert_eq!(store.health_checks()[0].local_endpoints, 1);
    store.set_service(name("web"), service("172.30.0.1"));
    assert!(store.health_checks().is_empty());
}

#[test]
fn one_name_and_two_protocols_are_two_ports() {
    let mut store = Store::new(node());
    let mut dns = service("172.30.0.1");
    dns.ports =
        vec![crate::testing::port("dns", Protocol::Udp, 53), crate::testing::port("dns", Protocol::Tcp, 53)];
    store.set_service(name("dns"), dns);
    assert_eq!(store.patches().len(), 2);
}

#[test]
fn ports_that_a_local_policy_leaves_unanswered_are_counted() {
    let unanswered = |internal: bool, external: bool, on: &[&str]| {
        let mut store = Store::new(node());
        let ports =
            vec![crate::ServicePort { node_port: 30_080, ..crate::testing::port("http", Protocol::Tcp, 80) }];
        let (internal_local, external_local) = (internal, external);
        let web = Service { internal_local, external_local, ports, ..service("172.30.0.1") };
        store.set_service(name("web"), web);
        let endpoints = on.iter().enumerate().map(|(place, on)| endpoint(&format!("10.0.0.{place}"), on));
        store.set_slice("web", slice("web", endpoints.collect()));
        store.patches();
        let counted = store.unanswered();
        store.delete_service(&name("web"));
        store.patches();
        assert_eq!(store.unanswered(), (0, 0), "what is gone is not counted");
        counted
    };
    assert_eq!(unanswered(true, false, &["there"]), (1, 0));
    assert_eq!(unanswered(false, true, &["there"]), (0, 1));
    assert_eq!(unanswered(true, true, &["there", "there"]), (1, 1));
    assert_eq!(unanswered(true, true, &["there", "here"]), (0, 0));
    assert_eq!(unanswered(true, true, &[]), (0, 0), "nobody answers anywhere");
    assert_eq!(unanswered(false, false, &["there"]), (0, 0));
}
