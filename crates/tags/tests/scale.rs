//! Deep and wide graphs: no recursion, no quadratic walks, and small changes stay small.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::collections::BTreeSet;

use model::{Leaf, Member, TagName};
use tags::{Fact, Graph, Key, Request, RequestError, Write};

const DEEP: usize = 100_000;
const WIDE: usize = 1_000_000;

#[test]
fn a_chain_of_100_000_groups_is_walked_changed_and_dropped_without_a_deep_stack() {
    // A stack far too small for one frame per level.
    std::thread::Builder::new().stack_size(256 << 10).spawn(deep).unwrap().join().unwrap();
}

fn deep() {
    let mut graph = chain();
    let (top, bottom) = (tag("t", 0), tag("t", DEEP - 1));
    graph.apply([Write::Put(Fact::Subscription(top.clone(), "s".parse().unwrap()))]);
    assert_eq!(graph.resolve(&top).unwrap().len(), 1);
    assert_eq!(graph.ancestors(&bottom).unwrap().len(), DEEP - 1);

    let heard = change(&mut graph, &Request::SetLeaf { tag: bottom.clone(), leaf: leaf(2) });
    assert_eq!(heard, 1);

    let above = tag("t", DEEP - 2);
    let back = Request::SetGroup { tag: above.clone(), members: [Member::Tag(top.clone())].into() };
    let Err(RequestError::Cycle { cycle, .. }) = graph.plan(&back) else { panic!("a cycle was accepted") };
    assert_eq!(cycle.path.len(), DEEP);
    assert_eq!(
        cycle.to_string(),
        "t99998 > t0 > t1 > t2 > (99992 more) > t99995 > t99996 > t99997 > t99998",
        "readable whatever the length"
    );

    // One leaf at every level, all at once: no walk per leaf.
    let side = |level| {
        let name = tag("side", level);
        [Write::Put(Fact::Leaf(name.clone(), leaf(1))), join(&tag("t", level), Member::Tag(name))]
    };
    let attached = graph.apply((0..DEEP - 1).flat_map(side));
    assert_eq!(attached.differences()[0].added.len(), DEEP - 1);

    // Others close the chain to a ring; then it is cut in the middle.
    graph.apply([join(&above, Member::Tag(top.clone()))]);
    assert_eq!(graph.resolve(&above).unwrap().len(), DEEP);
    change(&mut graph, &Request::DeleteTag { tag: tag("t", DEEP / 2) });
    drop(attached);
    drop(graph);
}

#[test]
fn a_group_of_1_000_000_members_is_resolved_once_each_and_one_change_in_it_is_cheap() {
    let mut graph = Graph::default();
    let wide = tag("wide", 0);
    graph.apply([Write::Put(Fact::Group(wide.clone()))]);
    graph.apply((0..WIDE).flat_map(|number| {
        let name = tag("leaf", number);
        [Write::Put(Fact::Leaf(name.clone(), leaf(1))), join(&wide, Member::Tag(name))]
    }));
    graph.apply([Write::Put(Fact::Subscription(wide.clone(), "s".parse().unwrap()))]);

    let resolved = graph.resolve(&wide).unwrap();
    assert_eq!(resolved.len(), WIDE);
    assert!(resolved.iter().is_sorted());

    for number in 0..1_000 {
        assert_eq!(change(&mut graph, &Request::SetLeaf { tag: tag("leaf", number), leaf: leaf(2) }), 1);
    }

    let gone: BTreeSet<Member> = (0..10).map(|number| Member::Tag(tag("leaf", number))).collect();
    change(&mut graph, &Request::DeleteMembers { tag: wide.clone(), members: gone });
    assert_eq!(graph.resolve(&wide).unwrap().len(), WIDE - 10);

    let deleted = graph.plan(&Request::DeleteTag { tag: wide }).unwrap();
    assert_eq!(deleted.writes.len(), 1 + (WIDE - 10) + 1);
    let gone = graph.apply(deleted.writes);
    assert_eq!(gone.differences()[0].removed.len(), WIDE - 10);
}

#[test]
fn a_leaf_at_the_bottom_of_a_deep_graph_and_a_large_group_at_its_top_are_both_added_cheaply() {
    let mut graph = chain();
    let low = tag("t", DEEP - 2);
    graph.apply([Write::Put(Fact::Group(tag("top", 0))), Write::Put(Fact::Group(tag("low", 0)))]);
    for _ in 0..1_000 {
        let at_the_bottom =
            Request::SetGroup { tag: low.clone(), members: [Member::Tag(tag("low", 0))].into() };
        let at_the_top = Request::SetGroup { tag: tag("top", 0), members: [Member::Tag(tag("t", 0))].into() };
        assert_eq!(graph.plan(&at_the_bottom).unwrap().writes.len(), 1);
        assert_eq!(graph.plan(&at_the_top).unwrap().writes.len(), 1);
    }
}

#[test]
fn a_grid_with_more_paths_than_atoms_resolves_at_once() {
    // Two groups per level, each holding both of the next: 2^5000 paths to one leaf.
    let mut graph = Graph::default();
    for level in 0..5_000 {
        for (side, below) in [("l", "l"), ("l", "r"), ("r", "l"), ("r", "r")] {
            let group = tag(side, level);
            graph.apply([
                Write::Put(Fact::Group(group.clone())),
                join(&group, Member::Tag(tag(below, level + 1))),
            ]);
        }
    }
    graph.apply(["l", "r"].map(|side| Write::Put(Fact::Leaf(tag(side, 5_000), leaf(1)))));
    assert_eq!(graph.resolve(&tag("l", 0)).unwrap().len(), 2);
    assert_eq!(graph.ancestors(&tag("l", 5_000)).unwrap().len(), 10_000);
    let change = graph.apply([Write::Delete(Key::Membership(tag("l", 0), Member::Tag(tag("l", 1))))]);
    assert_eq!(change.after().resolve(&tag("l", 0)).unwrap().len(), 2);
}

#[test]
fn a_few_of_many_and_most_of_many_come_in_the_same_order() {
    let mut graph = Graph::default();
    let groups = ["even", "odd", "all", "few"].map(|stem| tag(stem, 0));
    graph.apply(groups.iter().cloned().map(|group| Write::Put(Fact::Group(group))));
    let [even, odd, all, few] = groups;
    graph.apply([&even, &odd].map(|group| join(&all, Member::Tag(group.clone()))));
    graph.apply((0..10_000).rev().flat_map(|number| {
        let name = tag("leaf", number);
        let group = if number % 2 == 0 { &even } else { &odd };
        [Write::Put(Fact::Leaf(name.clone(), leaf(1))), join(group, Member::Tag(name))]
    }));
    let nested = tag("nested", 0);
    graph.apply([Write::Put(Fact::Group(nested.clone())), join(&few, Member::Tag(nested.clone()))]);
    graph.apply([7, 70, 700].map(|number| join(&nested, Member::Tag(tag("leaf", number)))));
    graph.apply([8, 80, 800].map(|number| join(&few, Member::Tag(tag("leaf", number)))));
    for (group, count) in [(all, 10_000), (few, 6)] {
        let resolved = graph.resolve(&group).unwrap();
        assert_eq!(resolved.len(), count);
        assert!(resolved.iter().is_sorted(), "{group} is out of order");
    }
}

/// `t0 > t1 > … > t99999`, the last a leaf.
fn chain() -> Graph {
    let mut graph = Graph::default();
    graph.apply((0..DEEP - 1).flat_map(|level| {
        let group = tag("t", level);
        [Write::Put(Fact::Group(group.clone())), join(&group, Member::Tag(tag("t", level + 1)))]
    }));
    graph.apply([Write::Put(Fact::Leaf(tag("t", DEEP - 1), leaf(1)))]);
    graph
}

/// Plans and applies a request; the number of subscribers that hear of it.
fn change(graph: &mut Graph, request: &Request) -> usize {
    let plan = graph.plan(request).unwrap();
    graph.apply(plan.writes).by_subscriber().len()
}

fn join(parent: &TagName, member: Member) -> Write {
    Write::Put(Fact::Membership(parent.clone(), member))
}

fn tag(stem: &str, number: usize) -> TagName {
    format!("{stem}{number}").parse().unwrap()
}

fn leaf(version: usize) -> Leaf {
    Leaf { uri: Some(format!("uri-{version}").into()), ip: None }
}
