use node_nft::{Elements, Op, SetSchema, fake::FakeKernel};
use node_services::{
    Protocol, Service, ServiceKind, ServiceName, ServicePort, Slice, SliceEndpoint, SlicePort,
};

use super::*;
use crate::{netlink::Refusal, nft::Applied};

/// Both tables in memory; an element is refused if its set and its key are hated.
struct Faulty {
    kernels: Vec<(TableId, FakeKernel)>,
    hated: Vec<(&'static str, Vec<u8>)>,
    hated_chain: bool,
}

impl Faulty {
    fn new() -> Self {
        let kernel = |ipv6| {
            let table = guard::table(ipv6, &Config::default(), &Store::default(), &BTreeSet::new());
            (TableId::of(&table), FakeKernel::new(&table))
        };
        Self { kernels: vec![kernel(false), kernel(true)], hated: Vec::new(), hated_chain: false }
    }

    fn kernel(&mut self, id: &TableId) -> &mut FakeKernel {
        &mut self.kernels.iter_mut().find(|(known, _)| known == id).expect("one of the two").1
    }

    fn hates(&self, op: &Op) -> bool {
        let holds = |key: &[u8], bytes: &[u8]| key.windows(bytes.len()).any(|window| window == bytes);
        let hated =
            |key: &[u8]| self.hated.iter().any(|(set, bytes)| op.set() == Some(set) && holds(key, bytes));
        let chain = self.hated_chain && matches!(op, Op::AddChain { .. });
        chain || op.elements().iter().any(|(key, _)| hated(key))
    }
}

impl Tables for Faulty {
    fn glance(&mut self, id: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        self.read(id)
    }

    fn read(&mut self, id: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        Ok(self.kernel(id).table.clone())
    }

    fn read_set(&mut self, _: &TableId, _: &str, _: &SetSchema) -> Result<Elements, ReadError> {
        Ok(Elements::new())
    }

    fn commit(&mut self, id: &TableId, transaction: &Transaction) -> Result<Applied, CommitError> {
        let hated = transaction.ops.iter().any(|op| self.hates(op));
        let done = if hated { Err("injected".to_owned()) } else { self.kernel(id).commit(transaction) };
        done.map_err(|text| CommitError::Refused {
            table: id.clone(),
            operation: "commit".into(),
            index: None,
            refusal: Refusal { errno: 22, seq: 0, text: Some(text) },
        })?;
        Ok(Applied { transactions: 1, operations: transaction.ops.len(), ..Applied::default() })
    }

    fn delete(&mut self, id: &TableId) -> Result<bool, ReconcileError> {
        Ok(self.kernel(id).table.take().is_some())
    }
}

/// Services 1 to 9, each behind a balancer with a source range, with an endpoint on this node.
fn store() -> Store {
    let mut store = Store::new(node_services::Node { name: "here".into(), ..Default::default() });
    for number in 1..10_u8 {
        let name = ServiceName::new("default", format!("s{number}"));
        let port = ServicePort { name: "http".into(), protocol: Protocol::Tcp, port: 80, node_port: 0 };
        let balancer = node_services::Ingress {
            address: [1, 2, 3, number].into(),
            mode: node_services::IngressMode::Vip,
        };
        let service = Service {
            kind: ServiceKind::LoadBalancer,
            cluster_ips: vec![[172, 30, 0, number].into()],
            load_balancers: vec![balancer],
            source_ranges: vec!["10.0.0.0/8".parse().expect("a prefix")],
            ports: vec![port],
            ..Service::default()
        };
        let endpoint = SliceEndpoint {
            addresses: vec![[10, 0, 0, number].into()],
            node: Some("here".into()),
            ..SliceEndpoint::default()
        };
        let port = SlicePort { name: Some("http".into()), protocol: Protocol::Tcp, port: Some(8080) };
        store.set_service(name.clone(), service);
        let slice = Slice {
            service: name,
            ports: vec![port],
            endpoints: vec![endpoint],
            labels: BTreeMap::new(),
            triggered: None,
        };
        store.set_slice(&format!("s{number}"), slice);
    }
    store.patches();
    store
}

fn server(address: [u8; 4]) -> ServerId {
    ServerId { address: address.into(), port: 80, protocol: Protocol::Tcp }
}

fn follow(guard: &mut Guard<Faulty>, store: &Store) -> Vec<ServerId> {
    let none = BTreeSet::new();
    let lacking = guard.follow(store, &none, &none).expect("only elements are refused");
    assert!(lacking.values().all(|why| why.contains("injected")), "{lacking:?}");
    lacking.into_keys().collect()
}

#[test]
fn an_element_that_is_refused_costs_only_the_servers_that_need_it() {
    let store = store();
    let (balancer, cluster) = ([1, 2, 3, 4], [172, 30, 0, 4]);
    for (set, key, servers) in [
        ("servers", &balancer[..], vec![balancer]),
        ("firewall", &balancer, vec![balancer]),
        ("allowed-sources", &balancer, vec![balancer]),
        ("hidden", &balancer, vec![balancer]),
        ("bound", &cluster, vec![cluster]),
        ("cluster-ips", &cluster, vec![cluster]),
        // The endpoint is behind both.
        ("hairpin", &[10, 0, 0, 4], vec![balancer, cluster]),
    ] {
        let mut guard = Guard::new(Faulty::new(), Config::default());
        guard.nft.hated = vec![(set, key.to_vec())];
        let expected: Vec<_> = servers.into_iter().map(server).collect();
        assert_eq!(follow(&mut guard, &store), expected, "{set}");
        let owned = guard.owned().expect("it can be read");
        let missing = usize::from(set == "servers");
        assert_eq!(owned.len(), 2 * 9 - missing, "{set}: the others have theirs");
        // It is refused again, and taken when the kernel is of another mind.
        assert_eq!(follow(&mut guard, &store), expected, "{set}");
        guard.nft.hated.clear();
        assert_eq!(follow(&mut guard, &store), []);
        let writes = guard.nft.kernels[0].1.writes;
        assert_eq!(follow(&mut guard, &store), []);
        assert_eq!(guard.nft.kernels[0].1.writes, writes, "{set}: nothing is left to do");
        assert_eq!(guard.owned().expect("it can be read").len(), 2 * 9);
    }
}

#[test]
fn what_frames_the_elements_is_all_or_nothing() {
    let mut guard = Guard::new(Faulty::new(), Config::default());
    guard.nft.hated_chain = true;
    let none = BTreeSet::new();
    guard.follow(&store(), &none, &none).expect_err("without its chains the table guards nothing");
}
