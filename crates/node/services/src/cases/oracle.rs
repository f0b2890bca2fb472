//! Every small combination against a naive reading of the rules: which endpoints, and whose source is hidden.
//!
//! The reading is written from the reference, in its order and words, and shares nothing with the code under test.

use std::collections::{BTreeMap, BTreeSet};

use super::{CLIENT, LOCAL, NODE, POD, REMOTE, http, ip, name, node, rules, slice};
use crate::{
    Ingress, IngressMode, Node, Protocol, Service, ServiceKind, SliceEndpoint, Store,
    evaluate::{self, Fate, Memory, Probe},
    ipvs::{self, guard},
    nftables::{self, Config},
};

const CLUSTER_IP: &str = "172.30.0.41";
const EXTERNAL: &[(&str, u16)] = &[("50.60.70.81", 80), ("1.2.3.4", 80), (NODE, 3001)];
const OTHER: &str = "10.180.2.2";

#[derive(Clone, Copy, Debug)]
struct One {
    address: &'static str,
    local: bool,
    ready: bool,
    serving: bool,
    terminating: bool,
    /// Whether it has hints for nodes and for zones, and whether they mean us.
    for_node: Option<bool>,
    for_zone: Option<bool>,
}

impl One {
    fn slice(self) -> SliceEndpoint {
        let hint = |hint: Option<bool>, us: &str, others: &str| -> Vec<String> {
            hint.map(|mine| if mine { us.to_owned() } else { others.to_owned() }).into_iter().collect()
        };
        SliceEndpoint {
            addresses: vec![ip(self.address)],
            ready: Some(self.ready),
            serving: Some(self.serving),
            terminating: Some(self.terminating),
            node: Some(if self.local { "here" } else { "there" }.into()),
            node_hints: hint(self.for_node, "here", "there"),
            zone_hints: hint(self.for_zone, "a", "b"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Categories {
    cluster: BTreeSet<&'static str>,
    local: BTreeSet<&'static str>,
    any: bool,
}

/// The reference, section 3.1, sentence by sentence.
fn categorize(endpoints: &[One], uses_cluster: bool, uses_local: bool) -> Categories {
    let ready: Vec<_> = endpoints.iter().filter(|one| one.ready).collect();
    let of = |pick: &dyn Fn(&One) -> bool| -> BTreeSet<&'static str> {
        endpoints.iter().filter(|one| pick(one)).map(|one| one.address).collect()
    };
    let mut result = Categories::default();
    if uses_cluster {
        let all_node = ready.iter().all(|one| one.for_node.is_some());
        let all_zone = ready.iter().all(|one| one.for_zone.is_some());
        let same_node = all_node && ready.iter().any(|one| one.for_node == Some(true));
        let same_zone = !same_node && all_zone && ready.iter().any(|one| one.for_zone == Some(true));
        result.cluster = of(&|one| {
            one.ready
                && (!same_node || one.for_node == Some(true))
                && (!same_zone || one.for_zone == Some(true))
        });
        if result.cluster.is_empty() {
            result.cluster = of(&|one| one.serving && one.terminating);
        }
        result.any = !result.cluster.is_empty();
    }
    if uses_local {
        result.any |= endpoints.iter().any(|one| one.ready || one.serving && one.terminating);
        result.local = of(&|one| one.local && one.ready);
        if result.local.is_empty() {
            result.local = of(&|one| one.local && one.serving && one.terminating);
        }
    }
    result
}

/// All states that matter, with these hints.
fn states(address: &'static str, hints: &[(Option<bool>, Option<bool>)]) -> Vec<One> {
    let mut all = Vec::new();
    for bits in 0..16_u8 {
        let bit = |place: u8| bits >> place & 1 == 1;
        for &(for_node, for_zone) in hints {
            let (local, ready, serving, terminating) = (bit(0), bit(1), bit(2), bit(3));
            all.push(One { address, local, ready, serving, terminating, for_node, for_zone });
        }
    }
    all
}

fn service(internal_local: bool, external_local: bool, external: bool) -> Service {
    let plain = http(CLUSTER_IP, if external { 3001 } else { 0 });
    let mut service = Service { internal_local, external_local, ..plain };
    if external {
        service.kind = ServiceKind::LoadBalancer;
        service.external_ips = vec![ip(EXTERNAL[0].0)];
        service.load_balancers = vec![Ingress { address: ip(EXTERNAL[1].0), mode: IngressMode::Vip }];
    }
    service
}

fn store(service: &Service, endpoints: &[One]) -> Store {
    let mut store = Store::new(node());
    store.set_service(name("web"), service.clone());
    let endpoints = endpoints.iter().map(|one| one.slice()).collect();
    store.set_slice("web", slice("web", endpoints, &[("http", Protocol::Tcp, 80)]));
    store
}

fn assert_selected(service: &Service, external: bool, endpoints: &[One]) {
    let mut store = store(service, endpoints);
    store.patches();
    let (_, info, selected) = store.ports().next().expect("the service has a port");
    let selected: Vec<_> = selected.collect();
    let pool = |used: fn(&crate::EndpointInfo) -> bool| {
        let used = selected.iter().filter(|one| used(one)).map(|one| one.address.to_string());
        used.collect::<BTreeSet<_>>()
    };
    let uses_cluster = !service.internal_local || external;
    let uses_local = service.internal_local || service.external_local && external;
    let wanted = categorize(endpoints, uses_cluster, uses_local);
    let owned = |set: &BTreeSet<&str>| set.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let got = (pool(|one| one.in_cluster_pool), pool(|one| one.in_local_pool), info.has_endpoints);
    assert_eq!(
        got,
        (owned(&wanted.cluster), owned(&wanted.local), wanted.any),
        "{service:?}\n{endpoints:#?}"
    );
}

#[test]
fn every_pair_of_endpoints_under_every_policy_is_selected_as_the_reference_says() {
    let hint = [None, Some(false), Some(true)];
    let hints: Vec<_> = hint.iter().flat_map(|node| hint.iter().map(|zone| (*node, *zone))).collect();
    let (first, second) = (states(LOCAL, &hints), states(REMOTE, &hints));
    for policy in 0..8_u8 {
        let (internal, external_local, external) = (policy & 1 != 0, policy & 2 != 0, policy & 4 != 0);
        let service = service(internal, external_local, external);
        assert_selected(&service, external, &[]);
        for one in &first {
            assert_selected(&service, external, &[*one]);
            for two in &second {
                assert_selected(&service, external, &[*one, *two]);
            }
        }
    }
}

#[test]
fn three_endpoints_of_every_condition_are_selected_as_the_reference_says() {
    let none = [(None, None)];
    let zones = [(None, None), (None, Some(true)), (None, Some(false))];
    for (internal, external_local, external) in
        [(false, false, false), (true, true, true), (false, true, true)]
    {
        let service = service(internal, external_local, external);
        for one in &states(LOCAL, &none) {
            for two in &states(REMOTE, &none) {
                for three in &states(OTHER, &zones) {
                    assert_selected(&service, external, &[*one, *two, *three]);
                }
            }
        }
    }
}

/// What becomes of a packet, in the words of the evaluator.
fn fate(by: &BTreeSet<&str>, any: bool, client: &str, hidden: bool) -> Fate {
    if by.is_empty() {
        return if any { Fate::Dropped } else { Fate::Rejected };
    }
    // Whoever is sent to itself is hidden from itself.
    let each = by.iter().map(|address| ((ip(address), 80), hidden || *address == client));
    Fate::Balanced(each.collect())
}

struct Packet<'a> {
    service: &'a Service,
    config: &'a Config,
    found: &'a Categories,
    client: &'a str,
    external: bool,
    ipvs: bool,
}

/// The table of docs/services.md.
fn expected(packet: &Packet<'_>) -> Fate {
    let Packet { service, config, found, client, external, ipvs } = *packet;
    let is_pod = config.pod_prefixes.iter().any(|prefix| prefix.contains(&ip(client)));
    let is_node = client == NODE;
    if !external {
        let by = if service.internal_local { &found.local } else { &found.cluster };
        let hidden = config.masquerade_all || !config.pod_prefixes.is_empty() && !is_pod;
        return fate(by, service.internal_local && found.any, client, hidden);
    }
    if !service.external_local {
        return fate(&found.cluster, false, client, true);
    }
    if !ipvs && (is_pod || is_node) && !found.cluster.is_empty() {
        return fate(&found.cluster, found.any, client, !is_pod);
    }
    fate(&found.local, found.any, client, false)
}

fn ask(table: &node_nft::Table, probe: Probe) -> Fate {
    let local = |address| address == ip(NODE);
    evaluate::nftables(&[table], probe, &local, &Memory::new()).expect("it is understood").fate
}

#[test]
fn every_client_of_every_frontend_under_every_policy_is_sent_and_hidden_as_the_table_says() {
    let plain = [(None, None)];
    let pick = |one: &One| one.serving || !one.ready;
    let local: Vec<_> = states(LOCAL, &plain).into_iter().filter(|one| one.local && pick(one)).collect();
    let remote: Vec<_> = states(REMOTE, &plain).into_iter().filter(|one| !one.local && pick(one)).collect();
    let mut sets = vec![Vec::new()];
    sets.extend(local.iter().map(|one| vec![*one]));
    sets.extend(remote.iter().map(|one| vec![*one]));
    sets.extend(local.iter().flat_map(|one| remote.iter().map(|two| vec![*one, *two])));
    let unknown = Config { pod_prefixes: Vec::new(), ..rules() };
    let all = Config { masquerade_all: true, ..rules() };
    let mut asked = 0;
    for config in [&rules(), &unknown, &all] {
        for policy in 0..4_u8 {
            let service = service(policy & 1 != 0, policy & 2 != 0, true);
            for endpoints in &sets {
                let found = categorize(endpoints, true, service.internal_local || service.external_local);
                let mut store = store(&service, endpoints);
                let patches = store.patches();
                let mut plane = nftables::Plane::new(false, config.clone());
                plane.apply(&patches);
                let table = plane.table();
                let hosts = BTreeSet::from([ip(NODE)]);
                let mut servers =
                    ipvs::Plane::new(ipvs::Config { host_addresses: hosts, ..Default::default() });
                servers.apply(&patches);
                let guard = guard::table(false, config, &store, &BTreeSet::new());
                let bound: BTreeSet<_> = servers.addresses().chain([ip(NODE)]).collect();
                for client in [POD, LOCAL, CLIENT, NODE] {
                    let frontends = [(CLUSTER_IP, 80, false)];
                    let outside = EXTERNAL.iter().map(|(address, port)| (*address, *port, true));
                    for (address, port, external) in frontends.into_iter().chain(outside) {
                        let probe =
                            Probe { protocol: Protocol::Tcp, from: ip(client), to: (ip(address), port) };
                        let wanted = |ipvs| {
                            let (service, found) = (&service, &found);
                            expected(&Packet { service, config, found, client, external, ipvs })
                        };
                        let said = ask(&table, probe);
                        assert_eq!(said, wanted(false), "{probe:?}\n{service:?}\n{config:?}\n{endpoints:#?}");
                        let said =
                            evaluate::ipvs(servers.servers(), &[&guard], probe, &|one| bound.contains(&one));
                        let said = said.expect("it is understood").fate;
                        assert_eq!(
                            said,
                            wanted(true),
                            "IPVS: {probe:?}\n{service:?}\n{config:?}\n{endpoints:#?}"
                        );
                        asked += 1;
                    }
                }
            }
        }
    }
    assert!(asked > 5_000, "{asked} packets");
}

#[test]
fn a_node_without_a_zone_follows_no_hint_for_zones() {
    let hints = [(None, Some(true))];
    let endpoints = [states(LOCAL, &hints)[0b0110], states(REMOTE, &hints)[0b0110]];
    let mut store = store(&service(false, false, false), &endpoints);
    store.set_node(Node { zone: None, ..node() });
    store.patches();
    let (_, _, selected) = store.ports().next().expect("the service has a port");
    let used: BTreeMap<_, _> = selected.map(|one| (one.address, one.in_cluster_pool)).collect();
    assert_eq!(used, [(ip(LOCAL), true), (ip(REMOTE), true)].into());
}
