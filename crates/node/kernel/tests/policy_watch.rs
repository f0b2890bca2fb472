//! The policy plane among others who commit to nftables: theirs cause no reading, damage is found, and a kernel that has
//! more to tell than the socket holds is made up for by reading. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use node_kernel::{
    nft::{Monitor, Nft, TableId},
    policy::{PolicyExecutor, Tables, Watched},
};
use node_nft::{Element, Family, FieldType, Key, Limits, Live, Op, Plan, Set, SetSchema, Table, Transaction};
use node_policy::{Options, TABLE};
use testkit::namespaces::{in_namespace, run};
use testkit::planes::{Dice, local_change, policy_change, set_change};

const MINE: &str = "inet trestle-policy";

/// Somebody else's table, with a set.
struct Other {
    nft: Nft,
    id: TableId,
    schema: SetSchema,
}

impl Other {
    fn new() -> Self {
        let schema = SetSchema::set([FieldType::Ipv4]);
        let mut table = Table::new(Family::Inet, "other");
        table.set("members", Set::new(schema.clone()));
        let mut nft = Nft::open().unwrap();
        nft.reconcile(&table, Live::Atomic, Limits::default()).unwrap();
        Self { nft, id: TableId::of(&table), schema }
    }

    fn add(&mut self, numbers: std::ops::Range<u32>) {
        let key = |number: u32| Key::new().address(IpAddr::V4(Ipv4Addr::from(number))).into_boxed();
        let elements = numbers.map(|number| (key(number), Element::member())).collect();
        let op = Op::AddElements { set: "members".into(), schema: self.schema.clone(), elements };
        self.nft.commit(&self.id, &Transaction { ops: vec![op] }).unwrap();
    }
}

fn executor() -> PolicyExecutor {
    let mut executor = PolicyExecutor::open(Options { node: "here".into(), ..Options::default() }).unwrap();
    executor.apply([], []).unwrap();
    executor
}

/// The kernel holds what the plane thinks.
fn is_true<K: Tables>(executor: &PolicyExecutor<K>) -> bool {
    let current = Nft::open().unwrap().read(&TableId::new(Family::Inet, TABLE)).unwrap();
    let table = executor.plane().table();
    Plan::new(&table, current.as_ref(), Live::Atomic, Limits::default()).unwrap().is_empty()
}

fn damage() {
    run(&format!("nft add element {MINE} closed4 {{ 192.0.2.1 }}"));
}

#[test]
fn commits_to_other_tables_cause_no_reading() {
    in_namespace(|| {
        let (mut executor, mut other, mut dice) = (executor(), Other::new(), Dice::new(7));
        run("nft add table ip trestle-policy");
        executor.verify().unwrap();
        for round in 0..30 {
            other.add(round * 10..round * 10 + 10);
            // A table of another family, and of a name that begins as ours does, is another table.
            run("nft add set ip trestle-policy s '{ type ipv4_addr; }'; nft delete set ip trestle-policy s
                 nft add table inet trestle-policy2; nft delete table inet trestle-policy2");
            if round % 3 == 0 {
                let outcome = executor.apply([policy_change(&mut dice), set_change(&mut dice)], []).unwrap();
                assert!(!outcome.compared, "round {round}");
            }
            assert!(!executor.verify().unwrap().compared, "round {round}: somebody else's commit");
        }
        damage();
        let outcome = executor.verify().unwrap();
        assert!(outcome.compared && outcome.applied.transactions == 1, "{outcome:?}");
        run(&format!("nft delete table {MINE}"));
        assert!(executor.verify().unwrap().compared);
        assert!(is_true(&executor));
        assert!(!executor.verify().unwrap().compared, "its own repair is no news");
    });
}

#[test]
fn damage_is_found_among_commits_of_others_and_its_own() {
    in_namespace(|| {
        let (mut executor, mut other, mut dice) = (executor(), Other::new(), Dice::new(11));
        // Somebody commits all the time.
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let busy = thread::spawn(move || {
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                other.add(number..number + 20);
                number += 20;
                thread::sleep(std::time::Duration::from_millis(5));
            }
            number
        });
        let mut damaged = 0;
        for round in 0..60 {
            let mut before = false;
            if dice.one_in(3) {
                damage();
                before = true;
            }
            let (change, local) = (policy_change(&mut dice), local_change(&mut dice));
            executor.apply([change, set_change(&mut dice)], [local]).unwrap();
            if dice.one_in(3) {
                damage();
                before = true;
            }
            executor.verify().unwrap();
            damaged += u32::from(before);
            assert!(is_true(&executor), "round {round}, damaged: {before}");
        }
        stop.store(true, Ordering::Relaxed);
        assert!(busy.join().unwrap() > 100, "somebody was busy");
        assert!(damaged > 10, "{damaged}");
    });
}

#[test]
fn a_real_overrun_of_the_socket_is_made_up_for_by_reading() {
    in_namespace(|| {
        let monitor = Monitor::with_buffer(4 << 10).unwrap();
        let kernel = Watched::new(Nft::open().unwrap(), monitor);
        let mut executor =
            PolicyExecutor::with_kernel(kernel, Options { node: "here".into(), ..Options::default() });
        let (mut other, mut dice) = (Other::new(), Dice::new(3));
        let changes: Vec<_> =
            (0..10).flat_map(|_| [policy_change(&mut dice), set_change(&mut dice)]).collect();
        let local: Vec<_> = (0..4).map(|_| local_change(&mut dice)).collect();
        executor.apply(changes, local).unwrap();
        other.add(0..5);
        assert!(!executor.verify().unwrap().compared, "a few fit");
        assert_eq!(executor.kernel().monitor().overruns(), 0);

        // More than the socket holds, then damage whose news do not fit any more.
        other.add(5..20_000);
        run(&format!("nft flush map {MINE} peers4"));
        damage();
        let outcome = executor.verify().unwrap();
        assert!(executor.kernel().monitor().overruns() > 0, "the kernel said ENOBUFS");
        assert!(outcome.compared && outcome.applied.transactions > 0, "{outcome:?}");
        assert!(is_true(&executor));

        other.add(20_000..20_005);
        assert!(!executor.verify().unwrap().compared, "it hears again");
        damage();
        assert!(executor.verify().unwrap().compared);
        assert!(is_true(&executor));
    });
}
