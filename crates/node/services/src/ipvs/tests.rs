use proptest::prelude::*;

use super::*;
use crate::{
    Node, Service, Store,
    testing::{Event, endpoint, events, ip, name, node, service, slice},
};

/// IPVS and the dummy interface, refusing what the kernel would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FakeKernel {
    servers: BTreeMap<ServerId, ServerState>,
    bound: BTreeSet<IpAddr>,
}

impl FakeKernel {
    fn execute(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::AddServer(id, server) => {
                    let state = ServerState { server: server.clone(), destinations: BTreeMap::new() };
                    assert!(self.servers.insert(*id, state).is_none(), "{id:?} exists");
                }
                Op::UpdateServer(id, server) => self.server(id).server = server.clone(),
                Op::RemoveServer(id) => assert!(self.servers.remove(id).is_some()),
                Op::AddDestination(id, socket) => {
                    assert!(self.server(id).destinations.insert(*socket, 1).is_none(), "{socket:?} exists");
                }
                Op::SetWeight(id, socket, weight) => {
                    assert!(self.server(id).destinations.insert(*socket, *weight).is_some(), "no {socket:?}");
                }
                Op::RemoveDestination(id, socket) => {
                    assert!(self.server(id).destinations.remove(socket).is_some(), "no {socket:?}");
                }
                Op::Bind(address) => assert!(self.bound.insert(*address)),
                Op::Unbind(address) => assert!(self.bound.remove(address)),
            }
        }
    }

    fn server(&mut self, id: &ServerId) -> &mut ServerState {
        self.servers.get_mut(id).expect("the server exists")
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn increments_lead_where_reconciling_leads(events in events()) {
        let mut store = Store::new(node());
        let (mut plane, mut kernel) = (Plane::new(Config::default()), FakeKernel::default());
        for event in events.into_iter().chain([Event::Flush]) {
            let flush = matches!(event, Event::Flush);
            event.apply(&mut store);
            if !flush {
                continue;
            }
            kernel.execute(&plane.apply(&store.patches()));
            let mut settled = kernel.clone();
            settled.execute(&plane.clone().drained(|_, _| Some(0)));
            prop_assert_eq!(&settled.servers, plane.servers());
            prop_assert_eq!(&settled.bound, &plane.addresses().collect());

            let mut fresh = Plane::new(Config::default());
            fresh.apply(&store.all_as_new().collect::<Vec<_>>());
            prop_assert!(fresh.reconcile(&settled.servers, &settled.bound).is_empty(), "a restart has nothing to do");
            let mut empty = FakeKernel::default();
            empty.execute(&fresh.reconcile(&BTreeMap::new(), &BTreeSet::new()));
            prop_assert_eq!(&empty, &settled);
        }
    }
}

proptest! {
    #[test]
    fn killed_between_any_two_operations_the_next_run_finds_its_way(events in events(), cut in 0_usize..40) {
        let mut store = Store::new(node());
        let (mut plane, mut kernel) = (Plane::new(Config::default()), FakeKernel::default());
        for event in events.into_iter().chain([Event::Flush]) {
            let flush = matches!(event, Event::Flush);
            event.apply(&mut store);
            if !flush {
                continue;
            }
            let ops = plane.apply(&store.patches());
            kernel.execute(&ops[..ops.len().min(cut)]);
            // Whoever comes next knows only what the store says and what the kernel holds.
            plane = Plane::new(Config::default());
            plane.apply(&store.all_as_new().collect::<Vec<_>>());
            kernel.execute(&plane.reconcile(&kernel.servers.clone(), &kernel.bound.clone()));
            kernel.execute(&plane.drained(|_, _| Some(0)));
            prop_assert_eq!(&kernel.servers, plane.servers());
            prop_assert_eq!(&kernel.bound, &plane.addresses().collect());
        }
    }
}

fn id(address: &str, port: u16) -> ServerId {
    ServerId { address: ip(address), port, protocol: Protocol::Tcp }
}

#[test]
fn making_comes_before_breaking() {
    let mut store = Store::new(node());
    let mut plane = Plane::new(Config::default());
    store.set_service(name("web"), service("172.30.0.1"));
    store.set_slice("web", slice("web", vec![endpoint("10.0.0.1", "there")]));
    let (old, one, two) = (id("172.30.0.1", 80), (ip("10.0.0.1"), 8080), (ip("10.0.0.2"), 8080));
    let server = Server { scheduler: "rr".into(), affinity: None };
    assert_eq!(
        plane.apply(&store.patches()),
        [Op::AddServer(old, server.clone()), Op::AddDestination(old, one), Op::Bind(old.address)]
    );
    store.set_slice("web", slice("web", vec![endpoint("10.0.0.2", "there")]));
    assert_eq!(plane.apply(&store.patches()), [Op::AddDestination(old, two), Op::SetWeight(old, one, 0)]);
    let new = id("172.30.0.2", 80);
    store.set_service(name("web"), service("172.30.0.2"));
    assert_eq!(
        plane.apply(&store.patches()),
        [
            Op::AddServer(new, server),
            Op::AddDestination(new, two),
            Op::Bind(new.address),
            Op::RemoveServer(old),
            Op::Unbind(old.address)
        ]
    );
}

#[test]
fn a_destination_goes_when_its_connections_are_over_and_returns_if_it_is_wanted_again() {
    let mut store = Store::new(node());
    let mut plane = Plane::new(Config::default());
    store.set_service(name("web"), service("172.30.0.1"));
    let both = slice("web", vec![endpoint("10.0.0.1", "there"), endpoint("10.0.0.2", "there")]);
    store.set_slice("web", both.clone());
    plane.apply(&store.patches());
    let (server, one) = (id("172.30.0.1", 80), (ip("10.0.0.1"), 8080));
    store.set_slice("web", slice("web", vec![endpoint("10.0.0.2", "there")]));
    plane.apply(&store.patches());
    assert_eq!(plane.drained(|_, _| Some(3)), []);
    store.set_slice("web", both.clone());
    assert_eq!(plane.apply(&store.patches()), [Op::SetWeight(server, one, 1)]);
    store.set_slice("web", slice("web", vec![endpoint("10.0.0.2", "there")]));
    plane.apply(&store.patches());
    assert_eq!(plane.drained(|_, _| Some(0)), [Op::RemoveDestination(server, one)]);
    assert_eq!(plane.drained(|_, _| Some(0)), []);
}

#[test]
fn a_destination_that_an_earlier_run_left_at_weight_0_takes_connections_again() {
    let mut store = Store::new(node());
    store.set_service(name("web"), service("172.30.0.1"));
    store.set_slice("web", slice("web", vec![endpoint("10.0.0.1", "there")]));
    let mut plane = Plane::new(Config::default());
    plane.apply(&store.patches());
    let (server, one) = (id("172.30.0.1", 80), (ip("10.0.0.1"), 8080));
    let mut left = plane.servers().clone();
    left.get_mut(&server).expect("the server").destinations.insert(one, 0);
    assert_eq!(plane.reconcile(&left, &[server.address].into()), [Op::SetWeight(server, one, 1)]);
}

#[test]
fn ports_that_share_an_address_bind_it_once_and_the_last_one_unbinds_it() {
    let mut store = Store::new(node());
    let mut plane = Plane::new(Config::default());
    let mut two = service("172.30.0.1");
    two.ports.push(crate::testing::port("dns", Protocol::Udp, 53));
    store.set_service(name("web"), two);
    let binds = |ops: Vec<Op>| ops.into_iter().filter(|op| matches!(op, Op::Bind(_) | Op::Unbind(_))).count();
    assert_eq!(binds(plane.apply(&store.patches())), 1);
    store.set_service(name("web"), service("172.30.0.1"));
    assert_eq!(binds(plane.apply(&store.patches())), 0);
    store.delete_service(&name("web"));
    assert_eq!(binds(plane.apply(&store.patches())), 1);
}

#[test]
fn the_table_of_policies_and_node_ports() {
    let mut store = Store::new(Node { addresses: vec![ip("100.101.102.103")], ..node() });
    let mut plane = Plane::new(Config::default());
    let mut web = Service { external_local: true, affinity: Some(10_800), ..service("10.20.30.41") };
    web.ports[0].node_port = 3001;
    store.set_service(name("web"), web);
    store.set_slice(
        "web",
        slice("web", vec![endpoint("10.180.0.1", "here"), endpoint("10.180.2.1", "there")]),
    );
    let ops = plane.apply(&store.patches());
    let counts: Vec<_> =
        plane.servers().iter().map(|(id, state)| (id.port, state.destinations.len())).collect();
    assert_eq!(counts, [(80, 2), (3001, 1)]);
    assert!(plane.servers().values().all(|state| state.server.affinity == Some(10_800)));
    assert!(!ops.contains(&Op::Bind(ip("100.101.102.103"))), "the node's address is not ours to bind");
}
