//! The policy plane with a kernel that refuses, or whose answers get lost. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod support;

use std::net::IpAddr;

use model::policy::output::{Action, Direction, Member};
use node_kernel::{
    netlink::{NetlinkError, Refusal},
    nft::{Applied, CommitError, Nft, ReadError, ReconcileError, TableId},
    policy::{PolicyError, PolicyExecutor, Tables},
};
use node_nft::{CurrentTable, Family, Key, Op, Transaction};
use node_policy::{Change, LocalChange, ObjectId, ObjectKind, Options, SetKind, TABLE, Workload};
use support::pods::{address_set, applied_set, id, ip, member, policy, rule};
use testkit::namespaces::in_namespace;

/// What goes wrong between the executor and the kernel.
#[derive(Default)]
struct Faults {
    /// A transaction with an element whose key begins so, in a set whose name does, is refused.
    refuse: Option<(&'static str, Vec<u8>)>,
    refuse_all: bool,
    /// This many commits are carried out, and their answers lost.
    lose: usize,
    commits: usize,
}

struct Faulty {
    nft: Nft,
    faults: Faults,
}

const NO_MEMORY: i32 = 12;

impl Faulty {
    fn refuses(&self, transaction: &Transaction) -> bool {
        let begins = |op: &Op| match (op, &self.faults.refuse) {
            (
                Op::AddElements { set, elements, .. } | Op::DeleteElements { set, elements, .. },
                Some((name, start)),
            ) => set.starts_with(name) && elements.iter().any(|(key, _)| key.starts_with(start)),
            _ => false,
        };
        self.faults.refuse_all || transaction.ops.iter().any(begins)
    }
}

impl Tables for Faulty {
    fn generation(&mut self) -> Result<u32, NetlinkError> {
        self.nft.generation()
    }

    fn glance(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        self.nft.glance(table)
    }

    fn read(&mut self, table: &TableId) -> Result<Option<CurrentTable>, ReadError> {
        self.nft.read(table)
    }

    fn commit(&mut self, table: &TableId, transaction: &Transaction) -> Result<Applied, CommitError> {
        self.faults.commits += 1;
        if self.refuses(transaction) {
            let refusal = Refusal { errno: NO_MEMORY, seq: 0, text: None };
            let operation = "add what the test refuses".into();
            return Err(CommitError::Refused { table: table.clone(), operation, index: None, refusal });
        }
        let applied = self.nft.commit(table, transaction)?;
        if self.faults.lose > 0 {
            self.faults.lose -= 1;
            return Err(CommitError::Netlink { table: table.clone(), source: NetlinkError::Silent });
        }
        Ok(applied)
    }

    fn delete(&mut self, table: &TableId) -> Result<bool, ReconcileError> {
        self.nft.delete(table)
    }
}

fn executor(faults: Faults) -> PolicyExecutor<Faulty> {
    PolicyExecutor::with_kernel(Faulty { nft: Nft::open().unwrap(), faults }, Options::default())
}

fn peer(number: u8) -> IpAddr {
    [10, 9, 0, number].into()
}

fn many(name: &str, numbers: std::ops::Range<u8>) -> Change {
    let put = numbers
        .map(|number| Member {
            name: format!("m{number}").into(),
            addresses: [peer(number)].into_iter().collect(),
            ..member("x")
        })
        .collect();
    Change::PutSet { kind: SetKind::Address, name: name.into(), replace: true, put, removed: Vec::new() }
}

fn allow(name: &str, set: &str) -> Change {
    policy(name, None, "on-a", vec![rule(Direction::In, Some(Action::Allow), &[set], &[], &[])])
}

fn start() -> (Vec<Change>, Vec<LocalChange>) {
    let changes = vec![address_set("b", &["b"]), applied_set("on-a", &["a"]), allow("p", "b")];
    (changes, vec![LocalChange::Put(Workload::new(id("a"), [ip("a", false)]))])
}

fn elements(set: &str) -> usize {
    let table = Nft::open().unwrap().read(&TableId::new(Family::Inet, TABLE)).unwrap().unwrap();
    table.sets[set].elements.len()
}

fn peers() -> usize {
    elements("peers4")
}

#[test]
fn what_the_kernel_refuses_is_reported_and_tried_again_and_the_rest_goes_on() {
    in_namespace(|| {
        let mut executor = executor(Faults::default());
        let (changes, local) = start();
        executor.apply(changes, local).unwrap();
        assert_eq!(peers(), 1);

        let key = Key::new().address(peer(7)).as_bytes().to_vec();
        executor.kernel_mut().faults.refuse = Some(("peers", key));
        let outcome = executor.apply([many("many", 0..100), allow("q", "many")], []).unwrap();
        let objects: Vec<_> = outcome.errors.iter().map(|error| error.object.clone()).collect();
        assert_eq!(objects, [ObjectId::new(ObjectKind::AddressSet, "many")], "{:?}", outcome.errors);
        assert_eq!(peers(), 100, "b, and all but one of the hundred");

        // Others are served meanwhile.
        let outcome = executor.apply([address_set("b", &["b", "c"])], []).unwrap();
        assert_eq!(outcome.errors.len(), 1);
        assert_eq!(peers(), 101);
        let commits = executor.kernel_mut().faults.commits;
        assert_eq!(executor.verify().unwrap().errors.len(), 1, "still refused");
        assert!(executor.kernel_mut().faults.commits - commits < 10, "only what was refused is tried again");

        executor.kernel_mut().faults.refuse = None;
        assert_eq!(executor.verify().unwrap().errors, []);
        assert_eq!(peers(), 102);
        assert!(!executor.verify().unwrap().compared, "sure again");
    });
}

#[test]
fn a_workload_that_the_kernel_refuses_is_closed_and_its_policies_are_reported() {
    in_namespace(|| {
        let key = Key::new().address(ip("a", false)).as_bytes().to_vec();
        let mut executor = executor(Faults::default());
        executor.apply([], []).unwrap();
        executor.kernel_mut().faults.refuse = Some(("in-", key));
        let (changes, local) = start();
        let outcome = executor.apply(changes, local).unwrap();
        let objects: Vec<_> = outcome.errors.iter().map(|error| error.object.clone()).collect();
        assert_eq!(objects, [ObjectId::new(ObjectKind::Policy, "p")], "{:?}", outcome.errors);
        assert_eq!(elements("peers4"), 1, "the rest is there");
        assert_eq!(elements("closed4"), 1);
        assert!(outcome.errors[0].message.contains("is closed meanwhile"), "{:?}", outcome.errors);
        assert_eq!(executor.verify().unwrap().errors.len(), 1, "still refused");
        assert_eq!((elements("closed4"), elements("in-subjects4")), (1, 0), "still closed");

        executor.kernel_mut().faults.refuse = None;
        assert_eq!(executor.verify().unwrap().errors, []);
        assert_eq!((elements("closed4"), elements("in-subjects4")), (0, 1));
    });
}

#[test]
fn who_is_led_to_what_the_kernel_refuses_is_closed() {
    in_namespace(|| {
        let mut executor = executor(Faults::default());
        executor.apply([], []).unwrap();
        executor.kernel_mut().faults.refuse = Some(("function-", Vec::new()));
        let (changes, local) = start();
        let outcome = executor.apply(changes, local).unwrap();
        let policy = ObjectId::new(ObjectKind::Policy, "p");
        assert!(!outcome.errors.is_empty(), "it is said");
        assert!(outcome.errors.iter().all(|error| error.object == policy), "{:?}", outcome.errors);
        assert!(outcome.errors[0].message.contains("is closed meanwhile"), "{:?}", outcome.errors);
        assert_eq!((elements("closed4"), elements("function-defaults")), (1, 0));

        executor.kernel_mut().faults.refuse = None;
        assert_eq!(executor.verify().unwrap().errors, []);
        assert_eq!(elements("closed4"), 0);
        assert!(elements("function-defaults") > 0 && elements("in-functions4") > 0);
    });
}

#[test]
fn lost_answers_are_made_up_for_by_reading() {
    in_namespace(|| {
        let mut executor = executor(Faults::default());
        let (changes, local) = start();
        executor.apply(changes, local).unwrap();
        executor.kernel_mut().faults.lose = 2;
        let outcome = executor.apply([many("many", 0..50), allow("q", "many")], []).unwrap();
        assert!(outcome.compared && outcome.errors.is_empty(), "{outcome:?}");
        assert_eq!(peers(), 51);
    });
}

#[test]
fn a_kernel_that_takes_nothing_leaves_what_is_there_and_gets_it_all_later() {
    in_namespace(|| {
        let mut executor = executor(Faults { refuse_all: true, ..Faults::default() });
        let (changes, local) = start();
        let error = executor.apply(changes, local).unwrap_err();
        assert!(matches!(error, PolicyError::Commit(CommitError::Refused { .. })), "{error}");
        executor.kernel_mut().faults.refuse_all = false;
        let outcome = executor.verify().unwrap();
        assert!(outcome.errors.is_empty() && outcome.applied.transactions > 0, "{outcome:?}");
        assert_eq!(peers(), 1);
    });
}
