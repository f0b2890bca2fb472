use node_nft::{Limits, Live, Plan, Transaction, fake::FakeKernel};
use proptest::prelude::*;

use super::*;
use crate::{
    Service, Store,
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

/// Bound elsewhere, a client from outside would leave the node with its own source for as long as it keeps connecting.
#[test]
fn clients_are_unbound_from_what_a_local_policy_closes_to_them() {
    let sticky = Service { affinity: Some(60), external_ips: vec![ip("5.6.7.8")], ..service("172.30.0.1") };
    let mut store = Store::new(node());
    let (mut plane, mut kernel) = started(config());
    store.set_service(name("web"), sticky.clone());
    store.set_slice("web-0", slice("web", vec![endpoint("10.0.0.1", "here"), endpoint("10.0.1.1", "there")]));
    let mut told = |plane: &mut Plane, service: Service| {
        store.set_service(name("web"), service);
        let work = plane.apply(&store.patches());
        let forget = work.forget.clone();
        commit(&mut kernel, &work.transactions(Limits::default()));
        assert_agrees(plane, &kernel);
        let layout = Layout { ipv6: false };
        let told = forget.into_iter().map(|one| {
            let endpoint = one.endpoint.and_then(|endpoint| layout.socket(&endpoint));
            (IpAddr::from(*one.frontend.first_chunk::<4>().expect("an address")), endpoint.map(|one| one.0))
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(told(&mut plane, sticky.clone()), []);
    let external = Service { external_local: true, ..sticky.clone() };
    assert_eq!(told(&mut plane, external.clone()), [(ip("5.6.7.8"), Some(ip("10.0.1.1")))]);
    assert_eq!(told(&mut plane, external), []);
    let internal = Service { internal_local: true, ..sticky };
    assert_eq!(told(&mut plane, internal), [(ip("172.30.0.1"), Some(ip("10.0.1.1")))]);
}
