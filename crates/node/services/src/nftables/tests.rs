use node_nft::{CurrentChain, CurrentRule, CurrentSet, Element, Live, Plan};
use proptest::prelude::*;

use super::*;
use crate::{
    Service, Store,
    testing::{Event, endpoint, events, name, node, service, slice},
};

/// The sets and chains of a kernel that refuses what a real one would.
#[derive(Clone, Debug)]
struct FakeKernel {
    table: CurrentTable,
    writes: usize,
}

impl FakeKernel {
    fn new(table: &Table) -> Self {
        let table = CurrentTable {
            family: table.family,
            name: table.name.clone(),
            owned: true,
            chains: Default::default(),
            sets: Default::default(),
        };
        Self { table, writes: 0 }
    }

    fn commit(&mut self, transactions: &[Transaction]) {
        for op in transactions.iter().flat_map(|transaction| &transaction.ops) {
            self.writes += 1;
            self.operation(op);
        }
    }

    fn operation(&mut self, op: &Op) {
        match op {
            Op::AddTable | Op::DeleteTable => {}
            Op::AddChain { name, base } => {
                let chain = CurrentChain { base: *base, rules: Vec::new() };
                assert!(self.table.chains.insert(name.clone(), chain).is_none(), "chain {name} exists");
            }
            Op::DeleteChain { name } => assert!(self.table.chains.remove(name).is_some()),
            Op::FlushChain { name } => self.table.chains.get_mut(name).expect("the chain").rules.clear(),
            Op::AddRule { chain, rule } => {
                for set in rule.exprs.iter().filter_map(|expr| expr.set_name()) {
                    assert!(self.table.sets.contains_key(set), "rule names set {set}, which is not there");
                }
                for target in rule.exprs.iter().filter_map(|expr| expr.chain_name()) {
                    assert!(
                        self.table.chains.contains_key(target),
                        "rule leads to chain {target}, which is not there"
                    );
                }
                let rules = &mut self.table.chains.get_mut(chain).expect("the chain").rules;
                rules.push(CurrentRule { fingerprint: Some(rule.fingerprint()) });
            }
            Op::AddSet { name, schema } => {
                let set = CurrentSet { schema: Some(schema.clone()), elements: Default::default() };
                assert!(self.table.sets.insert(name.clone(), set).is_none(), "set {name} exists");
            }
            Op::DeleteSet { name } => assert!(self.table.sets.remove(name).is_some()),
            Op::AddElements { set, elements, .. } => {
                elements.iter().for_each(|(key, element)| self.add(set, key, element));
            }
            Op::DeleteElements { set, elements, .. } => {
                let known = &mut self.table.sets.get_mut(set).expect("the set").elements;
                for (key, _) in elements {
                    assert!(known.remove(key).is_some(), "{set} has no {key:?}");
                }
            }
        }
    }

    fn add(&mut self, set: &str, key: &[u8], element: &Element) {
        if let Data::Verdict(verdict) = &element.data
            && let Some(chain) = verdict.chain_name()
        {
            assert!(
                self.table.chains.contains_key(chain),
                "{set} leads to chain {chain}, which is not there"
            );
        }
        let known = &mut self.table.sets.get_mut(set).expect("the set").elements;
        let before = known.insert(key.into(), element.clone());
        assert!(before.is_none_or(|before| before == *element), "{set} has {key:?} with another value");
    }

    fn reconcile(&mut self, table: &Table, limits: Limits) {
        let current = Some(&self.table).filter(|table| !table.sets.is_empty());
        let plan = Plan::new(table, current, Live::Chunked, limits).expect("our table");
        self.commit(&plan.transactions);
    }
}

fn started(config: Config) -> (Plane, FakeKernel) {
    let plane = Plane::new(false, config);
    let table = plane.table();
    let mut kernel = FakeKernel::new(&table);
    kernel.reconcile(&table, Limits::default());
    (plane, kernel)
}

fn assert_agrees(plane: &Plane, kernel: &FakeKernel) {
    let plan =
        Plan::new(&plane.table(), Some(&kernel.table), Live::Chunked, Limits::default()).expect("our table");
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
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn increments_lead_where_the_whole_table_leads(events in events(), chunk in 1_usize..20) {
        let limits = Limits { elements: chunk };
        let mut store = Store::new(node());
        let (mut plane, mut kernel) = started(config());
        for event in events.into_iter().chain([Event::Flush]) {
            let flush = matches!(event, Event::Flush);
            event.apply(&mut store);
            if flush {
                kernel.commit(&plane.apply(&store.patches(), limits).transactions);
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
            kernel.commit(&plane.apply(&store.patches(), Limits::default()).transactions);
        }
        let writes = kernel.writes;
        restart(&store, &mut kernel);
        prop_assert_eq!(kernel.writes, writes);
    }
}

/// A new process with the same state finds the kernel as it is.
fn restart(store: &Store, kernel: &mut FakeKernel) {
    let mut fresh = store.clone();
    let told = fresh.patches();
    assert!(told.is_empty());
    let mut plane = Plane::new(false, config());
    plane.adopt(&kernel.table);
    let all: Vec<_> = fresh.all_as_new();
    plane.apply(&all, Limits::default());
    plane.align(&kernel.table);
    kernel.reconcile(&plane.table(), Limits::default());
}

#[test]
fn one_endpoint_that_replaces_another_is_one_element_each_way() {
    let mut store = Store::new(node());
    let (mut plane, mut kernel) = started(config());
    store.set_service(name("web"), service("172.30.0.1"));
    let with = |last: &str| slice("web", vec![endpoint("10.0.0.1", "there"), endpoint(last, "there")]);
    store.set_slice("web", with("10.0.0.2"));
    kernel.commit(&plane.apply(&store.patches(), Limits::default()).transactions);
    store.set_slice("web", with("10.0.0.3"));
    let work = plane.apply(&store.patches(), Limits::default());
    assert_eq!(work.transactions.len(), 1);
    assert_eq!(work.transactions[0].ops.iter().map(Op::weight).sum::<usize>(), 2);
    kernel.commit(&work.transactions);
    assert_agrees(&plane, &kernel);
}

#[test]
fn the_place_that_a_smaller_pool_leaves_is_swept_after_the_switch() {
    let mut store = Store::new(node());
    let (mut plane, mut kernel) = started(config());
    store.set_service(name("web"), service("172.30.0.1"));
    store.set_slice("web", slice("web", vec![endpoint("10.0.0.1", "there"), endpoint("10.0.0.2", "there")]));
    kernel.commit(&plane.apply(&store.patches(), Limits::default()).transactions);
    store.set_slice("web", slice("web", vec![endpoint("10.0.0.2", "there")]));
    let work = plane.apply(&store.patches(), Limits::default());
    let [switch, sweep] = &work.transactions[..] else { panic!("{work:#?}") };
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
    assert!(plane.apply(&store.patches(), Limits::default()).forget.is_empty());
    store.set_slice("web", slice("web", vec![endpoint("10.0.0.2", "there")]));
    let forget = plane.apply(&store.patches(), Limits::default()).forget;
    assert_eq!(forget.len(), 1);
    assert_eq!(forget[0].endpoint.as_deref(), Some(&[10, 0, 0, 1, 0x1f, 0x90, 0, 0][..]));
    store.set_service(name("web"), service("172.30.0.1"));
    let forget = plane.apply(&store.patches(), Limits::default()).forget;
    assert!(matches!(&forget[..], [Forget { endpoint: None, .. }]), "{forget:?}");
}
