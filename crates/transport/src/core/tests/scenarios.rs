//! Named cases, each list of edits in every order that means the same.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;

use super::plain::{FakeNode, Plain, Said, policy_key, set_key};
use crate::{Change, Core, DialectId, Key, Kind, Member, Revision, SpanChange, core::From};

const D: DialectId = DialectId(0);

fn core() -> (Core, Arc<Plain>) {
    let dialect = Plain::new();
    (Core::new(7, vec![dialect.clone()]), dialect)
}

fn nodes(names: &[&str]) -> SpanChange {
    SpanChange::Nodes(names.iter().map(|name| Arc::from(*name)).collect())
}

fn member(name: &str) -> Member {
    Member { id: Bytes::copy_from_slice(name.as_bytes()), rest: Bytes::new() }
}

fn put_set(name: &str, members: &[&str], span: SpanChange) -> Change {
    Change::PutSet { key: set_key(name), members: members.iter().map(|name| member(name)).collect(), span }
}

fn put_policy(name: &str, payload: &'static str, span: SpanChange) -> Change {
    Change::Put { key: policy_key(name), payload: Bytes::from(payload), span }
}

fn add(set: &str, name: &str) -> Change {
    Change::Members { key: set_key(set), put: vec![member(name)], removed: vec![], span: SpanChange::Keep }
}

fn take(set: &str, name: &str) -> Change {
    let removed = vec![Bytes::copy_from_slice(name.as_bytes())];
    Change::Members { key: set_key(set), put: vec![], removed, span: SpanChange::Keep }
}

fn remove(key: Key) -> Change {
    Change::Remove { key }
}

#[test]
fn what_is_published_again_makes_no_revision_and_no_bytes() {
    let (mut core, _) = core();
    let node = core.pin("a");
    let all = || [put_set("s", &["x", "y"], nodes(&["a"])), put_policy("p", "1", SpanChange::Everyone)];
    let at = core.publish(all());
    core.take_touched();
    assert_eq!(core.publish(all()), at);
    assert_eq!(core.publish([add("s", "x"), take("s", "z"), remove(policy_key("q"))]), at);
    assert!(core.next_plan(node, at, D).is_none());
    assert_eq!(core.take_touched(), Default::default());
}

#[test]
fn a_step_applies_sets_then_policies_and_removes_them_the_other_way() {
    let (mut core, dialect) = core();
    let node = core.pin("a");
    let every = || SpanChange::Everyone;
    let at = core.publish([put_policy("old", "1", every()), put_set("old", &[], every())]);
    core.publish([
        remove(set_key("old")),
        put_policy("new", "1", every()),
        remove(policy_key("old")),
        put_set("new", &["x"], every()),
        Change::PutSet { key: Key::new(Kind(2), "new"), members: vec![], span: every() },
    ]);
    let step = dialect.read(&core.next_plan(node, at, D).unwrap());
    let order: Vec<_> = step
        .iter()
        .map(|said| match said {
            Said::Set { key, .. } => format!("set{}", key.kind.0),
            Said::Whole { .. } => "policy".to_owned(),
            Said::Remove { key } => format!("remove{}", key.kind.0),
            Said::Flush { .. } => "flush".to_owned(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(order, ["set1", "set2", "policy", "remove3", "remove1", "flush"]);
}

#[test]
fn a_member_costs_a_delta_and_a_node_far_behind_gets_the_set_once() {
    let (mut core, dialect) = core();
    let node = core.pin("a");
    let start = core.publish([put_set("s", &["a", "b", "c"], SpanChange::Everyone)]);
    let one = core.publish([add("s", "d"), take("s", "a")]);
    let step = dialect.read(&core.next_plan(node, start, D).unwrap());
    assert!(
        matches!(&step[..], [Said::Delta { put, removed, .. }, Said::Flush { .. }]
        if put.len() == 1 && removed.len() == 1),
        "{step:?}"
    );
    for round in 0..1000 {
        core.publish([if round % 2 == 0 { add("s", "z") } else { take("s", "z") }]);
    }
    let step = dialect.read(&core.next_plan(node, one, D).unwrap());
    assert!(
        matches!(&step[..], [Said::Set { members, .. }, Said::Flush { .. }] if members.len() == 3),
        "{step:?}"
    );
}

#[test]
fn an_object_that_changed_often_is_sent_once_and_as_it_is_now() {
    let (mut core, dialect) = core();
    let node = core.pin("a");
    let at = core.publish([put_policy("p", "0", SpanChange::Everyone)]);
    for payload in ["1", "2", "3", "4"] {
        core.publish([put_policy("p", payload, SpanChange::Everyone)]);
    }
    let step = dialect.read(&core.next_plan(node, at, D).unwrap());
    assert!(
        matches!(&step[..], [Said::Whole { payload, .. }, Said::Flush { .. }] if payload == "4"),
        "{step:?}"
    );
}

#[test]
fn a_set_that_becomes_empty_is_sent_empty() {
    let (mut core, dialect) = core();
    let index = core.pin("a");
    let mut node = FakeNode::default();
    core.publish([put_set("s", &["x"], SpanChange::Everyone)]);
    let first = core.first_plan(index, &From::Nothing, D);
    node.replay(7, &dialect.read(&first));
    core.publish([take("s", "x")]);
    node.replay(7, &dialect.read(&core.next_plan(index, first.to, D).unwrap()));
    assert!(matches!(&node.objects[&set_key("s")].1, super::plain::Held::Set(members) if members.is_empty()));
}

#[test]
fn only_nodes_in_the_span_are_woken() {
    let (mut core, _) = core();
    let (a, b) = (core.pin("a"), core.pin("b"));
    core.publish([put_set("s", &["x"], nodes(&["a"]))]);
    assert_eq!(core.take_touched().nodes, [a]);
    core.publish([add("s", "y")]);
    assert_eq!(core.take_touched().nodes, [a]);
    let moved = SpanChange::Move { gained: vec!["b".into()], lost: vec!["a".into()] };
    core.publish([Change::Members { key: set_key("s"), put: vec![], removed: vec![], span: moved }]);
    assert_eq!(core.take_touched().nodes, [a, b]);
    core.publish([put_set("all", &[], SpanChange::Everyone)]);
    assert!(core.take_touched().everyone);
}

#[test]
fn a_node_that_resumes_hears_what_it_lost_and_beyond_the_horizon_it_is_compared() {
    let dialect = Plain::new();
    let mut core = Core::new(7, vec![dialect.clone()]).with_kept_losses(3);
    let index = core.pin("a");
    let mut node = FakeNode::default();
    let names = ["a", "b", "c", "d", "e", "f"];
    core.publish(names.map(|name| put_policy(name, "1", nodes(&["a"]))));
    let first = core.first_plan(index, &From::Nothing, D);
    node.replay(7, &dialect.read(&first));
    core.publish([remove(policy_key("a"))]);
    assert_eq!(core.locate(index, node.token, None), From::At(first.to));
    let step = dialect.read(&core.next_plan(index, first.to, D).unwrap());
    assert!(matches!(&step[..], [Said::Remove { .. }, Said::Flush { .. }]));
    for name in &names[1..5] {
        core.publish([remove(policy_key(name))]);
    }
    let from = core.locate(index, node.token, Some(node.digest()));
    assert!(matches!(from, From::Digest(_)));
    node.replay(7, &dialect.read(&core.first_plan(index, &from, D)));
    assert_eq!(node.objects.keys().collect::<Vec<_>>(), [&policy_key("f")]);
    // A stream that was open all along, and slow, starts over by itself.
    let step = dialect.read(&core.next_plan(index, first.to, D).unwrap());
    assert!(matches!(step[0], Said::Start { mode: 1, .. }), "{step:?}");
}

#[test]
fn an_unchanged_restart_sends_nothing_but_start_and_flush() {
    let all =
        || (0..500).map(|n| put_set(&format!("s{n}"), &["x", "y"], nodes(&["a", "b"]))).collect::<Vec<_>>();
    let (mut before, dialect) = core();
    let index = before.pin("a");
    let mut node = FakeNode::default();
    before.publish(all());
    node.replay(7, &dialect.read(&before.first_plan(index, &From::Nothing, D)));

    let mut after = Core::new(8, vec![dialect.clone()]);
    after.publish(all().into_iter().rev());
    let index = after.pin("a");
    let from = after.locate(index, node.token, Some(node.digest()));
    let step = dialect.read(&after.first_plan(index, &from, D));
    assert_eq!(step.len(), 2, "{step:?}");
    node.replay(8, &step);

    // One object changed while the controller was away: its two buckets are resent, not the rest.
    let mut after = Core::new(9, vec![dialect.clone()]);
    after.publish(all().into_iter().chain([add("s7", "z")]));
    let index = after.pin("a");
    let from = after.locate(index, node.token, Some(node.digest()));
    let step = dialect.read(&after.first_plan(index, &from, D));
    assert!((3..30).contains(&step.len()), "{}", step.len());
    node.replay(9, &step);
    assert_eq!(node.digest(), after.digest(index));
}

#[test]
fn nodes_that_need_the_same_share_the_bytes_of_a_snapshot() {
    let (mut core, _) = core();
    let (a, b, c) = (core.pin("a"), core.pin("b"), core.pin("c"));
    core.publish((0..100).map(|n| put_set(&format!("s{n}"), &["x"], nodes(&["a", "b"]))));
    core.publish([put_set("all", &["x"], SpanChange::Everyone), put_set("c", &["x"], nodes(&["c"]))]);
    let plans = [a, b, c].map(|node| core.first_plan(node, &From::Nothing, D));
    assert_eq!(core.snapshot_counts(), (2, 1));
    assert_eq!(plans[0].frames[1].as_ptr(), plans[1].frames[1].as_ptr());
    assert_ne!(plans[0].frames[1].as_ptr(), plans[2].frames[1].as_ptr());
    drop(plans);
    core.first_plan(a, &From::Nothing, D);
    assert_eq!(core.snapshot_counts(), (3, 1), "a snapshot nobody is sent is not kept");
}

#[test]
fn a_dialect_without_sweeps_is_told_of_what_was_removed_lately() {
    let dialect = Arc::new(Plain::default());
    let mut core = Core::new(7, vec![dialect.clone()]);
    let node = core.pin("a");
    core.publish([put_set("s", &["x"], nodes(&["a"])), put_policy("p", "1", SpanChange::Everyone)]);
    core.publish([remove(policy_key("p")), add("s", "y")]);
    let step = dialect.read(&core.first_plan(node, &From::Nothing, D));
    assert!(
        matches!(&step[..], [Said::Set { .. }, Said::Remove { .. }, Said::Flush { first: true, .. }]),
        "{step:?}"
    );
    core.publish([take("s", "y")]);
    let step = dialect.read(&core.next_plan(node, core.head().before(), D).unwrap());
    assert!(matches!(&step[..], [Said::Set { .. }, Said::Flush { first: false, .. }]), "{step:?}");
}

#[test]
fn names_that_come_and_go_do_not_add_up() {
    let dialect = Plain::new();
    let mut core = Core::new(7, vec![dialect]).with_kept_losses(10);
    for n in 0..1000 {
        let name = format!("node-{n}");
        let node = core.pin(&name);
        core.publish([put_set(&format!("s{n}"), &["x"], nodes(&[&name]))]);
        core.unpin(node);
        core.publish([remove(set_key(&format!("s{n}")))]);
    }
    let size = core.size();
    assert!(size.nodes <= 11 && size.objects == 0 && size.losses <= 10, "{size:?}");
    // A name that was forgotten cannot resume from before.
    let node = core.pin("node-1");
    assert_eq!(core.locate(node, Some((7, Revision(3))), None), From::Nothing);
}

#[test]
fn the_same_end_by_any_order_is_the_same_state() {
    let edits = [
        vec![put_set("s", &["x"], nodes(&["a"]))],
        vec![put_policy("p", "1", nodes(&["a", "b"]))],
        vec![add("s", "y")],
        vec![put_policy("q", "1", SpanChange::Everyone)],
    ];
    let mut ends = BTreeSet::new();
    for order in permutations(edits.len()) {
        for squash in [false, true] {
            let (mut core, dialect) = core();
            let index = core.pin("a");
            let mut node = FakeNode::default();
            let first = core.first_plan(index, &From::Nothing, D);
            node.replay(7, &dialect.read(&first));
            let mut at = first.to;
            // The set must be put before members are added to it, or it has these members alone.
            let batches: Vec<_> = order.iter().map(|place| edits[*place].clone()).collect();
            if order.iter().position(|p| *p == 0) > order.iter().position(|p| *p == 2) {
                continue;
            }
            let batches = if squash { vec![batches.concat()] } else { batches };
            for batch in batches {
                core.publish(batch);
                if let Some(plan) = core.next_plan(index, at, D) {
                    node.replay(7, &dialect.read(&plan));
                    at = plan.to;
                }
            }
            ends.insert(format!("{:?}", node.objects));
        }
    }
    assert_eq!(ends.len(), 1);
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![vec![]];
    }
    let shorter = permutations(n - 1);
    let insert = |rest: &Vec<usize>, at: usize| {
        let mut order = rest.clone();
        order.insert(at, n - 1);
        order
    };
    shorter.iter().flat_map(|rest| (0..n).map(move |at| insert(rest, at)).collect::<Vec<_>>()).collect()
}

impl Revision {
    fn before(self) -> Self {
        Self(self.0 - 1)
    }
}
