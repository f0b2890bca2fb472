use node_nft::{Limits, Live, Plan, Transaction, fake::FakeKernel};
use proptest::prelude::*;

use super::*;
use crate::{
    Service, Store,
    evaluate::{self, Answer, Fate, Memory, Probe},
    testing::{Event, endpoint, events, ip, name, node, service, slice},
};

fn commit(kernel: &mut FakeKernel, transactions: &[Transaction]) {
    transactions.iter().for_each(|transaction| kernel.commit(transaction).expect("the kernel takes it"));
}

fn reconcile(kernel: &mut FakeKernel, table: &Table) {
    let plan = Plan::new(table, kernel.table.as_ref(), Live::Chunked, Limits::default()).expect("our table");
    commit(kernel, &plan.transactions);
}

fn started(config: Config) -> (Plane, FakeKernel) {
    let plane = Plane::new(false, config);
    let table = plane.table();
    let mut kernel = FakeKernel::new(&table);
    reconcile(&mut kernel, &table);
    (plane, kernel)
}

fn assert_agrees(plane: &Plane, kernel: &FakeKernel) {
    let plan = Plan::new(&plane.table(), kernel.table.as_ref(), Live::Chunked, Limits::default())
        .expect("our table");
    assert!(plan.is_empty(), "{plan:#?}");
}

fn config() -> Config {
    Config {
        pod_prefixes: vec!["10.0.0.0/8".parse().expect("a prefix")],
        node_addresses: node().addresses,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn increments_lead_where_the_whole_table_leads(events in events(), chunk in 1_usize..20) {
        let limits = Limits { elements: chunk };
        let mut store = Store::new(node());
        let (mut plane, mut kernel) = started(config());
        for event in events.into_iter().chain([Event::Flush]) {
            let flush = matches!(event, Event::Flush);
            event.apply(&mut store);
            if flush {
                commit(&mut kernel, &plane.apply(&store.patches()).transactions(limits));
                assert_agrees(&plane, &kernel);
            }
        }
    }

    #[test]
    fn a_restart_over_what_an_earlier_run_left_writes_nothing(events in events()) {
        let mut store = Store::new(node());
        let (mut plane, mut kernel) = started(config());
        for event in events {
            event.apply(&mut store);
            commit(&mut kernel, &plane.apply(&store.patches()).transactions(Limits::default()));
        }
        let writes = kernel.writes;
        restart(&store, &mut kernel);
        prop_assert_eq!(kernel.writes, writes);
    }
}

proptest! {
    #[test]
    fn killed_between_any_two_transactions_the_next_run_finds_its_way(events in events(), cut in 0_usize..6) {
        let limits = Limits { elements: 3 };
        let mut store = Store::new(node());
        let (mut plane, mut kernel) = started(config());
        let half = events.len() / 2;
        for (index, event) in events.into_iter().enumerate() {
            event.apply(&mut store);
            if index == half {
                commit(&mut kernel, &plane.apply(&store.patches()).transactions(limits));
            }
        }
        let work = plane.apply(&store.patches()).transactions(limits);
        commit(&mut kernel, &work[..cut.min(work.len())]);
        let plane = restart(&store, &mut kernel);
        assert_agrees(&plane, &kernel);
    }
}

/// A new process with the same state finds the kernel as it is.
fn restart(store: &Store, kernel: &mut FakeKernel) -> Plane {
    let mut fresh = store.clone();
    let told = fresh.patches();
    assert!(told.is_empty());
    let mut plane = Plane::new(false, config());
    let found = kernel.table.clone().expect("an earlier run made it");
    plane.adopt(&found);
    let all: Vec<_> = fresh.all_as_new().collect();
    plane.apply(&all);
    plane.align(&found);
    reconcile(kernel, &plane.table());
    plane
}

#[test]
fn one_endpoint_that_replaces_another_is_one_element_each_way() {
    let mut store = Store::new(node());
    let (mut plane, mut kernel) = started(config());
    store.set_service(name("web"), service("172.30.0.1"));
    let with = |last: &str| slice("web", vec![endpoint("10.0.0.1", "there"), endpoint(last, "there")]);
    store.set_slice("web", with("10.0.0.2"));
    commit(&mut kernel, &plane.apply(&store.patches()).transactions(Limits::default()));
    store.set_slice("web", with("10.0.0.3"));
    let work = plane.apply(&store.patches()).transactions(Limits::default());
    assert_eq!(work.len(), 1);
    assert_eq!(work[0].ops.iter().map(Op::weight).sum::<usize>(), 2);
    commit(&mut kernel, &work);
    assert_agrees(&plane, &kernel);
}

#[test]
fn the_place_that_a_smaller_pool_leaves_is_swept_after_the_switch() {
    let mut store = Store::new(node());
    let (mut plane, mut kernel) = started(config());
    store.set_service(name("web"), service("172.30.0.1"));
    store.set_slice("web", slice("web", vec![endpoint("10.0.0.1", "there"), endpoint("10.0.0.2", "there")]));
    commit(&mut kernel, &plane.apply(&store.patches()).transactions(Limits::default()));
    store.set_slice("web", slice("web", vec![endpoint("10.0.0.2", "there")]));
    let work = plane.apply(&store.patches()).transactions(Limits::default());
    let [switch, sweep] = &work[..] else { panic!("{work:#?}") };
    assert!(switch.ops.iter().any(|op| matches!(op, Op::AddElements { set, .. } if set == layout::SERVICES)));
    assert!(
        matches!(&sweep.ops[..], [Op::DeleteElements { set, .. }] if set == layout::ENDPOINTS),
        "{sweep:?}"
    );
}

#[test]
fn clients_forget_an_endpoint_that_goes_and_all_when_affinity_ends() {
    let mut store = Store::new(node());
    let (mut plane, _) = started(config());
    store.set_service(name("web"), Service { affinity: Some(10), ..service("172.30.0.1") });
    store.set_slice("web", slice("web", vec![endpoint("10.0.0.1", "there"), endpoint("10.0.0.2", "there")]));
    assert!(plane.apply(&store.patches()).forget.is_empty());
    store.set_slice("web", slice("web", vec![endpoint("10.0.0.2", "there")]));
    let forget = plane.apply(&store.patches()).forget;
    assert_eq!(forget.len(), 1);
    assert_eq!(forget[0].endpoint.as_deref(), Some(&[10, 0, 0, 1, 0x1f, 0x90, 0, 0][..]));
    store.set_service(name("web"), service("172.30.0.1"));
    let forget = plane.apply(&store.patches()).forget;
    assert!(matches!(&forget[..], [Forget { endpoint: None, .. }]), "{forget:?}");
}

/// Where a client may go from the node, and what is remembered of it then.
fn ask(plane: &Plane, from: &str, to: (&str, u16), memory: &Memory) -> Answer {
    let probe = Probe { protocol: Protocol::Tcp, from: ip(from), to: (ip(to.0), to.1) };
    let local = |address| node().addresses.contains(&address);
    evaluate::nftables(&[&plane.table()], probe, &local, memory).expect("it is understood")
}

fn goes_to(answer: &Answer) -> Vec<IpAddr> {
    let Fate::Balanced(endpoints) = &answer.fate else { return Vec::new() };
    endpoints.keys().map(|(address, _)| *address).collect()
}

const OUTSIDE: [(&str, u16); 2] = [("5.6.7.8", 80), ("192.168.0.2", 30_080)];

fn sticky_everywhere() -> Service {
    let mut sticky =
        Service { affinity: Some(60), external_ips: vec![ip("5.6.7.8")], ..service("172.30.0.1") };
    sticky.ports[0].node_port = 30_080;
    sticky
}

fn plane_of(sticky: Service) -> Plane {
    let mut store = Store::new(node());
    let (mut plane, mut kernel) = started(config());
    store.set_service(name("web"), sticky);
    store.set_slice("web-0", slice("web", vec![endpoint("10.0.0.1", "here"), endpoint("10.0.1.1", "there")]));
    commit(&mut kernel, &plane.apply(&store.patches()).transactions(Limits::default()));
    assert_agrees(&plane, &kernel);
    plane
}

#[test]
fn a_client_has_one_endpoint_at_all_places_of_a_port() {
    let plane = plane_of(sticky_everywhere());
    let places = [OUTSIDE[0], OUTSIDE[1], ("172.30.0.1", 80)];
    for first in places {
        let answer = ask(&plane, "203.0.113.2", first, &Memory::new());
        assert_eq!(goes_to(&answer).len(), 2);
        for ((endpoint, _), memory) in &answer.remembered {
            for place in places {
                assert_eq!(
                    goes_to(&ask(&plane, "203.0.113.2", place, memory)),
                    [*endpoint],
                    "{first:?}, {place:?}"
                );
                assert_eq!(goes_to(&ask(&plane, "203.0.113.3", place, memory)).len(), 2, "somebody else");
            }
        }
    }
}

/// Bound elsewhere, a client from outside would leave the node with its own source for as long as it keeps connecting.
#[test]
fn a_local_policy_binds_clients_from_outside_to_this_node_only() {
    let anywhere = plane_of(sticky_everywhere());
    let bound = ask(&anywhere, "203.0.113.2", ("172.30.0.1", 80), &Memory::new());
    let external = plane_of(Service { external_local: true, ..sticky_everywhere() });
    let internal = plane_of(Service { internal_local: true, ..sticky_everywhere() });
    for ((endpoint, _), memory) in &bound.remembered {
        for place in OUTSIDE {
            let here = ask(&external, "203.0.113.2", place, memory);
            assert_eq!(goes_to(&here), [ip("10.0.0.1")]);
            // What it was bound to anywhere it keeps there.
            let both: Vec<Memory> = here
                .remembered
                .values()
                .map(|more| {
                    memory.iter().chain(more).map(|(key, value)| (key.clone(), value.clone())).collect()
                })
                .collect();
            for memory in both {
                assert_eq!(goes_to(&ask(&external, "203.0.113.2", ("172.30.0.1", 80), &memory)), [*endpoint]);
                assert_eq!(goes_to(&ask(&external, "203.0.113.2", place, &memory)), [ip("10.0.0.1")]);
            }
            // Pods go anywhere, and so are bound as at the cluster address.
            let pod = ask(&external, "10.0.9.9", place, &Memory::new());
            assert_eq!(goes_to(&pod).len(), 2);
            for ((endpoint, _), memory) in &pod.remembered {
                assert_eq!(goes_to(&ask(&external, "10.0.9.9", ("172.30.0.1", 80), memory)), [*endpoint]);
            }
        }
        assert_eq!(goes_to(&ask(&internal, "203.0.113.2", ("172.30.0.1", 80), memory)), [ip("10.0.0.1")]);
    }
}

#[test]
fn chains_of_a_port_with_affinity_go_with_it() {
    let mut store = Store::new(node());
    let (mut plane, mut kernel) = started(config());
    let own = |kernel: &FakeKernel| {
        let chains = kernel.table.as_ref().expect("it was made").chains.keys();
        chains.filter(|name| name.contains("172.30.0.1") || name.contains("5.6.7.8")).count()
    };
    store.set_slice("web-0", slice("web", vec![endpoint("10.0.0.1", "here")]));
    let mut told = |plane: &mut Plane, kernel: &mut FakeKernel, service: Option<Service>| {
        match service {
            Some(service) => drop(store.set_service(name("web"), service)),
            None => drop(store.delete_service(&name("web"))),
        }
        commit(kernel, &plane.apply(&store.patches()).transactions(Limits::default()));
        assert_agrees(plane, kernel);
        own(kernel)
    };
    assert_eq!(told(&mut plane, &mut kernel, Some(sticky_everywhere())), 3);
    let local = Service { external_local: true, ..sticky_everywhere() };
    assert_eq!(told(&mut plane, &mut kernel, Some(local)), 6);
    let longer = Service { affinity: Some(90), ..sticky_everywhere() };
    assert_eq!(told(&mut plane, &mut kernel, Some(longer)), 3);
    assert_eq!(told(&mut plane, &mut kernel, Some(service("172.30.0.1"))), 0);
    told(&mut plane, &mut kernel, Some(sticky_everywhere()));
    assert_eq!(told(&mut plane, &mut kernel, None), 0);
}
