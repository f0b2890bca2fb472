//! The policy plane while nothing is known, and beside a table of somebody else's that has its name. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{collections::BTreeSet, net::IpAddr, process::Command};

use node_kernel::policy::PolicyExecutor;
use node_policy::{LocalChange, Options, Workload, WorkloadId};
use testkit::namespaces::{in_namespace, run};

fn workload(number: u8, pending: bool) -> Workload {
    let id = WorkloadId::pod("x", format!("p{number}"));
    let mut workload = Workload::new(id, vec![IpAddr::from([10, 0, 0, number])]);
    workload.interface = Some(format!("veth{number}"));
    workload.pending = pending;
    workload
}

fn executor(guard: &[&str]) -> PolicyExecutor {
    let guarded_prefixes = guard.iter().map(|prefix| (*prefix).to_owned()).collect();
    PolicyExecutor::open(Options { node: "here".into(), guarded_prefixes, ..Options::default() }).unwrap()
}

fn listed(what: &str) -> Option<String> {
    let listed = Command::new("nft").args(["list"]).args(what.split(' ')).output().unwrap();
    listed.status.success().then(|| String::from_utf8(listed.stdout).unwrap())
}

#[test]
fn what_nobody_knows_of_is_closed_and_the_rest_stays() {
    in_namespace(|| {
        // Nothing known, nothing to close: nothing is touched.
        assert_eq!(executor(&[]).hold(&[], None).unwrap().homes, None);
        assert_eq!(listed("ruleset").unwrap(), "");
        // No table of an earlier run: everything is closed.
        let mut first = executor(&["veth"]);
        first.hold(&[workload(1, false)], None).unwrap();
        let closed = listed("table inet trestle-closed").unwrap();
        assert!(closed.contains("\"veth1\"") && closed.contains("10.0.0.1"), "{closed}");
        assert!(closed.contains("\"veth*\" iifname != @known drop"), "{closed}");
        assert!(listed("table inet trestle-policy").is_none());
        // Known at last: the shutter goes, after the table came.
        first.apply([], [LocalChange::Put(workload(1, false))]).unwrap();
        assert!(listed("table inet trestle-closed").is_none());
        let before = listed("table inet trestle-policy").unwrap();
        // Another run that knows nothing leaves it, and closes what it does not know.
        let mut second = executor(&["veth"]);
        let standing = second.hold(&[workload(1, false), workload(2, false)], None).unwrap();
        let homes = standing.homes.unwrap();
        assert_eq!(homes["veth1"], BTreeSet::from([IpAddr::from([10, 0, 0, 1])]));
        assert_eq!((homes.len(), standing.closed), (1, 1));
        assert_eq!(listed("table inet trestle-policy").unwrap(), before);
        let closed = listed("set inet trestle-closed known").unwrap();
        assert!(closed.contains("\"veth1\""), "{closed}");
        let again = second.hold(&[workload(1, false), workload(2, false)], None).unwrap();
        assert_eq!(again.applied.transactions, 0);
        // What comes anew is closed even where the table knows its interface.
        second.hold(&[workload(1, true)], None).unwrap();
        let closed = listed("set inet trestle-closed interfaces").unwrap();
        assert!(closed.contains("\"veth1\"") && !closed.contains("\"veth2\""), "{closed}");
        // Somebody deletes the table of the earlier run: nothing is known of it any more.
        run("nft delete table inet trestle-policy");
        assert_eq!(second.hold(&[workload(1, true)], None).unwrap().homes, None);
        run("nft delete table inet trestle-closed");
        second.hold(&[workload(1, true)], None).unwrap();
        assert!(listed("table inet trestle-closed").is_some());
    });
}

#[test]
fn a_table_of_somebody_elses_is_left_alone_and_policies_are_in_force_beside_it() {
    in_namespace(|| {
        run("nft add table inet trestle-policy; nft add chain inet trestle-policy theirs");
        let mut executor = executor(&[]);
        let outcome = executor.apply([], [LocalChange::Put(workload(1, true))]).unwrap();
        assert!(outcome.problem.unwrap().contains("inet trestle-policy was not made by trestle"));
        assert!(listed("table inet trestle-policy").unwrap().contains("theirs"));
        assert!(listed("table inet trestle-policy-spare").unwrap().contains("10.0.0.1"));
        assert!(!executor.verify().unwrap().compared, "nobody touched anything");
        // Also for a run that knows nothing.
        assert_eq!(self::executor(&[]).hold(&[], None).unwrap().homes.unwrap().len(), 1);
        // It goes: the usual table again.
        run("nft delete table inet trestle-policy");
        assert_eq!(executor.verify().unwrap().problem, None);
        assert!(listed("table inet trestle-policy").unwrap().contains("10.0.0.1"));
        assert!(listed("table inet trestle-policy-spare").is_none());
        // It comes back in place of ours.
        run("echo 'delete table inet trestle-policy; add table inet trestle-policy' | nft -f -");
        assert!(executor.verify().unwrap().problem.is_some());
        assert!(listed("table inet trestle-policy-spare").unwrap().contains("10.0.0.1"));
    });
}
