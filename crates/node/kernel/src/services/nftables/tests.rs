use std::collections::BTreeMap;

use node_nft::{Data, SetSchema, fake::FakeKernel};
use node_services::{Protocol, Service, ServiceName, ServicePort, Slice, SliceEndpoint, SlicePort};

use super::*;
use crate::netlink::Refusal;

/// A kernel in memory that refuses whatever has to do with certain bytes.
struct Faulty {
    kernel: FakeKernel,
    /// An operation is refused if one of its elements has this in its key.
    hated: Vec<Vec<u8>>,
    /// A chain of this name is refused.
    hated_chain: Option<String>,
    commits: usize,
}

impl Faulty {
    fn new() -> Self {
        let kernel = FakeKernel::new(&Plane::new(false, Config::default()).table());
        Self { kernel, hated: Vec::new(), hated_chain: None, commits: 0 }
    }

    fn hates(&self, op: &Op) -> bool {
        let keys = op.elements().iter().map(|(key, _)| &**key);
        let holds = |key: &[u8], bytes: &[u8]| key.windows(bytes.len()).any(|window| window == bytes);
        let chain = matches!(op, Op::AddChain { name, .. } if Some(name) == self.hated_chain.as_ref());
        chain || keys.into_iter().any(|key| self.hated.iter().any(|bytes| holds(key, bytes)))
    }
}

impl Tables for Faulty {
    fn glance(&mut self, _: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        Ok(self.kernel.table.clone())
    }

    fn read(&mut self, _: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        Ok(self.kernel.table.clone())
    }

    fn read_set(&mut self, _: &TableId, _: &str, _: &SetSchema) -> Result<Elements, ReadError> {
        Ok(Elements::new())
    }

    fn commit(&mut self, table: &TableId, transaction: &Transaction) -> Result<Applied, CommitError> {
        self.commits += 1;
        let refused = transaction.ops.iter().position(|op| self.hates(op));
        let done = match refused {
            Some(index) => Err((Some(index), "injected".to_owned())),
            None => self.kernel.commit(transaction).map_err(|text| (None, text)),
        };
        done.map_err(|(index, text)| CommitError::Refused {
            table: table.clone(),
            operation: index.map_or("commit".into(), |index| transaction.ops[index].describe()),
            index,
            refusal: Refusal { errno: 22, seq: 0, text: Some(text) },
        })?;
        Ok(Applied { transactions: 1, operations: transaction.ops.len(), ..Applied::default() })
    }

    fn delete(&mut self, _: &TableId) -> Result<bool, ReconcileError> {
        Ok(self.kernel.table.take().is_some())
    }
}

fn name(number: u8) -> ServiceName {
    ServiceName::new("default", format!("s{number:03}"))
}

fn service(number: u8) -> Service {
    let port = ServicePort { name: "http".into(), protocol: Protocol::Tcp, port: 80, node_port: 0 };
    Service { cluster_ips: vec![[172, 30, 0, number].into()], ports: vec![port], ..Service::default() }
}

fn sticky(number: u8) -> Service {
    Service {
        affinity: Some(60),
        external_ips: vec![[50, 60, 70, 100 + number].into()],
        external_local: true,
        ..service(number)
    }
}

fn slice(number: u8, endpoints: &[u8]) -> Slice {
    let endpoints = endpoints.iter().map(|last| SliceEndpoint {
        addresses: vec![[10, 0, number, *last].into()],
        node: Some("there".into()),
        ..SliceEndpoint::default()
    });
    Slice {
        service: name(number),
        ports: vec![SlicePort { name: Some("http".into()), protocol: Protocol::Tcp, port: Some(8080) }],
        endpoints: endpoints.collect(),
        labels: BTreeMap::new(),
        triggered: None,
    }
}

fn store(numbers: impl Iterator<Item = u8>) -> Store {
    let mut store = Store::default();
    for number in numbers {
        store.set_service(name(number), service(number));
        store.set_slice(&format!("s{number}"), slice(number, &[1, 2]));
    }
    store.patches();
    store
}

fn start(nft: Faulty, store: &Store) -> NftablesProxy<Faulty> {
    NftablesProxy::start_on(nft, false, Config::default(), Limits::default(), store).expect("it starts").0
}

fn update(proxy: &mut NftablesProxy<Faulty>, store: &mut Store) {
    let patches = store.patches();
    proxy.update(store, &patches).expect("only ports are refused");
}

fn held(proxy: &NftablesProxy<Faulty>) -> Vec<String> {
    proxy.refused().map(|(id, _)| id.service.name.to_string()).collect()
}

/// Cluster addresses that lead somewhere, by their last byte.
fn served(proxy: &NftablesProxy<Faulty>) -> Vec<u8> {
    let table = proxy.nft.kernel.table.as_ref().expect("there is a table");
    table.sets["services"].elements.keys().map(|key| key[3]).collect()
}

fn endpoints(proxy: &NftablesProxy<Faulty>, number: u8) -> Vec<u8> {
    let table = proxy.nft.kernel.table.as_ref().expect("there is a table");
    let mine = table.sets["endpoints"].elements.iter().filter(|(key, _)| key[3] == number);
    let mut last: Vec<_> = mine
        .map(|(_, element)| match &element.data {
            Data::Value(value) => value[3],
            other => panic!("{other:?}"),
        })
        .collect();
    last.sort_unstable();
    last
}

/// The kernel holds what the plane says, and a restart would find nothing to do.
fn assert_agrees(proxy: &NftablesProxy<Faulty>) {
    let current = proxy.nft.kernel.table.as_ref();
    let plan = Plan::new(&proxy.plane.table(), current, Live::Chunked, Limits::default()).expect("ours");
    assert!(plan.is_empty(), "{plan:#?}");
}

#[test]
fn one_refused_port_of_hundreds_is_found_and_the_others_are_served() {
    let store = store(0..200);
    let mut nft = Faulty::new();
    nft.hated = vec![vec![172, 30, 0, 77]];
    let proxy = start(nft, &store);
    assert_eq!(held(&proxy), ["s077"]);
    assert_eq!(served(&proxy), (0..200).filter(|number| *number != 77).collect::<Vec<_>>());
    assert!(proxy.nft.commits < 40, "{} commits: it is found by halving", proxy.nft.commits);
    let (_, why) = proxy.refused().next().expect("one is held");
    assert!(why.reason.contains("injected"), "{}", why.reason);
    assert_agrees(&proxy);
}

#[test]
fn a_refused_change_leaves_the_port_as_it_was_and_others_go_on() {
    let mut store = store(0..5);
    let mut proxy = start(Faulty::new(), &store);
    // An endpoint that the kernel does not take stands for any change: here it hates the third place of s2.
    proxy.nft.hated = vec![vec![172, 30, 0, 2, 6, 0, 0, 0, 0, 80, 0, 0, 2, 0, 0, 0]];
    for number in 0..5 {
        store.set_slice(&format!("s{number}"), slice(number, &[2, 3, 4]));
    }
    update(&mut proxy, &mut store);
    assert_eq!(held(&proxy), ["s002"]);
    assert_eq!(endpoints(&proxy, 2), [1, 2], "as it was");
    assert_eq!(endpoints(&proxy, 3), [2, 3, 4]);
    assert_agrees(&proxy);
    // More changes of it and of others: it is not touched before its time, and costs nothing.
    for last in 5..9 {
        store.set_slice("s2", slice(2, &[2, 3, last]));
        store.set_slice("s3", slice(3, &[2, 3, last]));
        let commits = proxy.nft.commits;
        update(&mut proxy, &mut store);
        assert_eq!(proxy.nft.commits, commits + 1);
        assert_eq!(endpoints(&proxy, 3), [2, 3, last]);
    }
    assert_eq!(endpoints(&proxy, 2), [1, 2]);
    let refusals =
        |proxy: &NftablesProxy<Faulty>| proxy.refused().map(|(_, held)| held.refusals).sum::<u32>();
    let before = refusals(&proxy);
    proxy.retry(&store, Instant::now()).expect("nothing is due");
    assert_eq!(refusals(&proxy), before);
    let later = Instant::now() + std::time::Duration::from_secs(3);
    proxy.retry(&store, later).expect("only the port is refused");
    assert_eq!(refusals(&proxy), before + 1, "tried, and refused again");
    proxy.nft.hated.clear();
    proxy.retry(&store, later + std::time::Duration::from_secs(600)).expect("nothing is refused");
    assert_eq!(held(&proxy), Vec::<String>::new());
    assert_eq!(endpoints(&proxy, 2), [2, 3, 8], "the latest state, not the one that was refused first");
    assert_agrees(&proxy);
}

#[test]
fn a_refused_port_that_is_deleted_goes_at_once() {
    let mut store = store(0..3);
    let mut proxy = start(Faulty::new(), &store);
    proxy.nft.hated = vec![vec![172, 30, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0, 2, 0, 0, 0]];
    store.set_slice("s1", slice(1, &[1, 2, 3]));
    update(&mut proxy, &mut store);
    assert_eq!(held(&proxy), ["s001"]);
    store.delete_service(&name(1));
    update(&mut proxy, &mut store);
    assert_eq!((held(&proxy), served(&proxy)), (Vec::new(), vec![0, 2]));
    assert_agrees(&proxy);
}

#[test]
fn what_several_ports_share_survives_the_refusal_of_its_first_user() {
    let mut store = store(0..1);
    let mut proxy = start(Faulty::new(), &store);
    let both = Service {
        ports: [("alt", 81), ("http", 80)]
            .map(|(name, port)| ServicePort {
                name: name.into(),
                protocol: Protocol::Tcp,
                port,
                node_port: 0,
            })
            .to_vec(),
        ..service(9)
    };
    // The port 81 comes first, brings the address, and is refused.
    proxy.nft.hated = vec![vec![172, 30, 0, 9, 6, 0, 0, 0, 0, 81]];
    store.set_service(name(9), both);
    store.set_slice("s9", slice(9, &[1]));
    update(&mut proxy, &mut store);
    let addresses = |proxy: &NftablesProxy<Faulty>| {
        let table = proxy.nft.kernel.table.as_ref().expect("there is a table");
        table.sets["cluster-ips"].elements.keys().map(|key| key[3]).collect::<Vec<_>>()
    };
    assert_eq!((held(&proxy), addresses(&proxy)), (vec!["s009".to_owned()], vec![0, 9]));
    assert_agrees(&proxy);
    store.delete_service(&name(9));
    update(&mut proxy, &mut store);
    assert_eq!((held(&proxy), addresses(&proxy)), (Vec::new(), vec![0]));
    assert_agrees(&proxy);
}

#[test]
fn a_refused_class_holds_back_those_that_need_it_only() {
    let mut nft = Faulty::new();
    nft.hated_chain = Some("pick-3".to_owned());
    let mut store = store(0..4);
    let mut proxy = start(nft, &store);
    store.set_slice("s1", slice(1, &[1, 2, 3]));
    store.set_slice("s2", slice(2, &[1]));
    update(&mut proxy, &mut store);
    assert_eq!(held(&proxy), ["s001"]);
    assert_eq!((endpoints(&proxy, 1), endpoints(&proxy, 2)), (vec![1, 2], vec![1]));
    proxy.nft.hated_chain = None;
    proxy.retry(&store, Instant::now() + std::time::Duration::from_secs(60)).expect("nothing is refused");
    assert_eq!((held(&proxy), endpoints(&proxy, 1)), (Vec::new(), vec![1, 2, 3]));
    assert_agrees(&proxy);
}

#[test]
fn a_restart_over_a_table_of_which_one_element_is_refused_serves_the_others() {
    let mut store = store(0..20);
    let proxy = start(Faulty::new(), &store);
    let mut nft = proxy.nft;
    nft.hated = vec![vec![172, 30, 0, 5]];
    for number in 0..20 {
        store.set_slice(&format!("s{number}"), slice(number, &[7, 8, 9]));
    }
    store.patches();
    let mut proxy = start(nft, &store);
    assert_eq!(held(&proxy), ["s005"]);
    assert_eq!(
        (endpoints(&proxy, 5), endpoints(&proxy, 6)),
        (vec![1, 2], vec![7, 8, 9]),
        "as it was, and new"
    );
    // Comparing again leaves it as it is; when the kernel has changed its mind, it is replaced whole.
    proxy.reconcile(&store).expect("only the port is refused");
    assert_eq!((held(&proxy), endpoints(&proxy, 5)), (vec!["s005".to_owned()], vec![1, 2]));
    proxy.nft.hated.clear();
    proxy.retry(&store, Instant::now() + std::time::Duration::from_secs(600)).expect("nothing is refused");
    assert_eq!((held(&proxy), endpoints(&proxy, 5)), (Vec::new(), vec![7, 8, 9]));
    assert_agrees(&proxy);
}

#[test]
fn what_others_did_to_the_table_is_mended_before_a_port_is_blamed() {
    let mut store = store(0..4);
    let mut proxy = start(Faulty::new(), &store);
    // Somebody has taken an element away: its deletion is refused.
    let table = proxy.nft.kernel.table.as_mut().expect("there is a table");
    table.sets.get_mut("endpoints").expect("a set").elements.retain(|key, _| key[3] != 3);
    store.set_slice("s3", slice(3, &[3, 4]));
    update(&mut proxy, &mut store);
    assert_eq!((held(&proxy), endpoints(&proxy, 3)), (Vec::new(), vec![3, 4]));
    assert_agrees(&proxy);
}

/// A sequence of numbers that is the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[test]
fn whatever_is_refused_in_whatever_order_the_others_are_served_and_all_is_well_in_the_end() {
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let mut store = store(0..6);
        let mut proxy = start(Faulty::new(), &store);
        let mut now = Instant::now();
        for _ in 0..30 {
            let number = u8::try_from(numbers.below(6)).expect("below six");
            match numbers.below(9) {
                0 => _ = store.delete_service(&name(number)),
                1 => _ = store.set_service(name(number), service(number)),
                2 => _ = store.set_service(name(number), service(number + 6)),
                8 => _ = store.set_service(name(number), sticky(number)),
                3 => proxy.nft.hated = vec![vec![172, 30, 0, number]],
                4 => proxy.nft.hated.clear(),
                5 => {
                    now += std::time::Duration::from_secs(20);
                    proxy.retry(&store, now).expect("only ports are refused");
                }
                6 => proxy = start(proxy.nft, &store),
                _ => {
                    let count = u8::try_from(numbers.below(4)).expect("below four");
                    store
                        .set_slice(&format!("s{number}"), slice(number, &[1, 2, 3, 4][..usize::from(count)]));
                }
            }
            update(&mut proxy, &mut store);
            let (held, hated) = (held(&proxy), proxy.nft.hated.clone());
            if hated.is_empty() {
                continue;
            }
            for (id, info, _) in
                store.ports().filter(|(id, ..)| !held.iter().any(|one| **one == *id.service.name))
            {
                let endpoints = endpoints(
                    &proxy,
                    match info.frontends[0].address {
                        std::net::IpAddr::V4(address) => address.octets()[3],
                        std::net::IpAddr::V6(_) => unreachable!("all are IPv4"),
                    },
                );
                let wanted = store.port(id).expect("it is listed").1.count();
                assert_eq!(endpoints.len(), wanted, "seed {seed}: {id} is not held and not served");
            }
        }
        proxy.nft.hated.clear();
        proxy.retry(&store, now + std::time::Duration::from_secs(3_600)).expect("nothing is refused");
        proxy.reconcile(&store).expect("nothing is refused");
        assert_eq!(held(&proxy), Vec::<String>::new(), "seed {seed}");
        let fresh = start(Faulty::new(), &store);
        let all = |proxy: &NftablesProxy<Faulty>| (0..12).map(|n| endpoints(proxy, n)).collect::<Vec<_>>();
        assert_eq!((served(&proxy), all(&proxy)), (served(&fresh), all(&fresh)), "seed {seed}");
        assert_agrees(&proxy);
    }
}
