//! Many different ranges of ports: 10,000 of them on one node come at once, and one more comes and goes; beside it the
//! kernel alone with the same ranges, as borders in a tree (what the plane does) and as a concatenation of ranges (what
//! `nft` would make of them).

use std::time::{Duration, Instant};

use benches::report;
use model::policy::output::{Addresses, Identifier, Member, NetworkPolicy};
use node_kernel::{
    nft::{Nft, TableId},
    policy::PolicyExecutor,
};
use node_nft::{Element, Family, FieldType, Key, Limits, Live, Op, Plan, Set, SetSchema, Table, Transaction};
use node_policy::{Change, ObjectKind, Options, SetKind};

use super::{
    cpu_seconds, median, millis,
    policies::{Cost, PODS, member, peer, pod_ip, set, workloads},
    switch::{policy_of, range, rule},
};

const RANGES: u32 = 10_000;
const PEERS: u32 = 1_000;
const CHANGES: u32 = 50;

pub fn run() {
    plane();
    let fields = [FieldType::Ipv4, FieldType::Mark, FieldType::Proto, FieldType::Port];
    let tree = SetSchema::map([FieldType::joined(&fields)], [FieldType::Mark]).interval();
    kernel("nft.port_ranges.tree.floor", &tree);
    kernel("nft.port_ranges.concatenation.floor", &SetSchema::map(fields, [FieldType::Mark]).interval());
}

/// Each Pod has its part of as many policies as there are ranges.
fn plane() {
    let bench = "nft.port_ranges";
    let mut executor = PolicyExecutor::open(Options::default()).expect("the kernel has nftables");
    let mut changes: Vec<Change> = (0..PEERS).map(peers_of).collect();
    for pod in 0..PODS {
        let member = Member { addresses: Addresses::None, ..member(format!("pod{pod}"), None) };
        changes.push(set(SetKind::AppliedTo, format!("pod-{pod}"), vec![member]));
    }
    changes.extend((0..RANGES).map(policy));
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let outcome = executor.apply(changes, workloads()).expect("the kernel takes the policies");
    report(bench, "seconds", started.elapsed().as_secs_f64(), "s");
    report(bench, "cpu_seconds", cpu_seconds() - cpu, "s");
    report(bench, "lock_ms", millis(outcome.applied.longest), "ms");
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    report(bench, "elements", outcome.applied.weight as f64, "elements");
    report(&format!("{bench}.floor"), "seconds", outcome.applied.in_kernel.as_secs_f64(), "s");
    let (mut put, mut removed) = (Cost::default(), Cost::default());
    for number in RANGES..RANGES + CHANGES {
        put.apply(&mut executor, policy(number));
        let name = name(number);
        removed.apply(&mut executor, Change::Remove { kind: ObjectKind::Policy, name });
    }
    put.report(&format!("{bench}.put"));
    removed.report(&format!("{bench}.removed"));
    executor.stop().expect("the table can go");
}

fn peers_of(number: u32) -> Change {
    set(SetKind::Address, format!("peers-{number}"), vec![peer(number)])
}

fn name(number: u32) -> String {
    format!("ranges-{number}")
}

/// No two have the same range, and no two of one Pod have the same peers.
fn policy(number: u32) -> Change {
    let peers = format!("peers-{}", number / PODS % PEERS);
    let one = policy_of(&name(number), vec![rule(vec![peers], range(port(number), 20))]);
    let applied_to_groups = vec![Identifier::parse(&format!("pod-{}", number % PODS))];
    Change::PutPolicy { name: name(number), policy: Box::new(NetworkPolicy { applied_to_groups, ..one }) }
}

fn port(number: u32) -> u16 {
    u16::try_from(1_024 + number * 5).expect("below 65,536")
}

fn kernel(bench: &str, schema: &SetSchema) {
    let mut nft = Nft::open().expect("the kernel has nftables");
    let mut table = Table::new(Family::Ip, super::NAME);
    let mut whole = Set::new(schema.clone());
    for number in 0..RANGES {
        let (key, element) = element(number);
        whole.insert(key, element);
    }
    table.set("ranges", whole);
    let id = TableId::of(&table);
    let plan = Plan::new(&table, None, Live::Chunked, Limits::default()).expect("no table is there");
    let applied = nft.apply(&id, &plan).expect("the kernel takes the ranges");
    report(bench, "seconds", applied.in_kernel.as_secs_f64(), "s");
    let (mut put, mut removed): (Vec<Duration>, Vec<Duration>) = Default::default();
    for number in RANGES..RANGES + CHANGES {
        let (set, schema) = (String::from("ranges"), schema.clone());
        let elements = vec![element(number)];
        let add = Op::AddElements { set: set.clone(), schema: schema.clone(), elements: elements.clone() };
        for (op, took) in [(add, &mut put), (Op::DeleteElements { set, schema, elements }, &mut removed)] {
            let applied = nft.commit(&id, &Transaction { ops: vec![op] }).expect("the kernel takes it");
            took.push(applied.in_kernel);
        }
    }
    report(&format!("{bench}.put"), "ms", millis(median(put)), "ms");
    report(&format!("{bench}.removed"), "ms", millis(median(removed)), "ms");
    nft.delete(&id).expect("the table can go");
}

/// As the plane has it for policy `number`: the Pod, a class, TCP, and the ports.
fn element(number: u32) -> (Box<[u8]>, Element) {
    let border =
        |port| Key::new().address(pod_ip(number % PODS)).mark(1_000 + number / PODS).proto(6).port(port);
    let element = Element::value(Key::new().mark(1)).until(border(port(number) + 20));
    (border(port(number)).into_boxed(), element)
}
