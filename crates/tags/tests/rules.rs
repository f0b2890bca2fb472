//! What a user may rely on, case by case. `t1` to `t10` are the cases the original's own tests cover, `b7` to `b23`
//! are bugs it has.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{collections::BTreeSet, sync::Arc};

use model::{Leaf, Member, Subscriber, TagName, TagValue};
use tags::{
    Batch, Change, Difference, Fact, Graph, Key, Kind, NotFound, Plan, Request, RequestError, ResolvedMember,
    Write,
};

#[test]
fn a_leaf_is_read_back_as_it_was_set() {
    let mut world = World::default();
    world.leaf("web-1", "10.0.0.1");
    assert_eq!(world.graph.get(&tag("web-1")).unwrap().to_value(), TagValue::Leaf(ip("10.0.0.1")));
}

#[test]
fn a_leaf_set_again_takes_the_new_value_and_an_equal_one_is_nothing_to_do() {
    let mut world = World::default();
    world.leaf("web-1", "10.0.0.1");
    world.leaf("web-1", "10.0.0.2");
    assert_eq!(world.resolved("web-1"), ["web-1=10.0.0.2"]);
    let again = Request::SetLeaf { tag: tag("web-1"), leaf: ip("10.0.0.2") };
    assert_eq!(world.graph.plan(&again), Ok(Plan::default()));
}

#[test]
fn a_tag_is_a_leaf_or_a_group_and_stays_what_it_is() {
    let mut world = World::default();
    world.leaf("web-1", "10.0.0.1");
    world.group("web", &["web-1"]);
    let kind = |name, current, requested| RequestError::Kind { tag: tag(name), current, requested };
    assert_eq!(world.refused(set_leaf("web", "10.0.0.9")), kind("web", Kind::Group, Kind::Leaf));
    assert_eq!(world.refused(set_group("web-1", &["10.0.0.9"])), kind("web-1", Kind::Leaf, Kind::Group));
    assert_eq!(world.refused(delete_members("web-1", &["web"])), kind("web-1", Kind::Leaf, Kind::Group));
    assert_eq!(
        kind("web", Kind::Group, Kind::Leaf).to_string(),
        "web is a group, and the request treats it as a leaf; to change its kind delete it first"
    );
    let neither = Request::SetLeaf { tag: tag("nothing"), leaf: Leaf { uri: None, ip: None } };
    assert_eq!(world.refused(neither), RequestError::EmptyLeaf { tag: tag("nothing") });
}

#[test]
fn members_are_merged_into_those_a_group_has() {
    let mut world = World::default();
    world.leaf("web-1", "10.0.0.1");
    world.leaf("web-2", "10.0.0.2");
    world.group("web", &["web-1"]);
    world.group("web", &["web-1", "web-2", "192.0.2.0/24"]);
    let expected = ["192.0.2.0/24", "web-1", "web-2"].map(member).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(world.graph.get(&tag("web")).unwrap().to_value(), TagValue::Group(expected));
    assert_eq!(
        world.graph.plan(&set_group("web", &["web-2", "198.51.100.1"])).unwrap().writes,
        [Write::Put(Fact::Membership(tag("web"), member("198.51.100.1")))],
        "only what is new is written"
    );
}

#[test]
fn a_cycle_is_refused_and_the_message_shows_the_way_round() {
    let mut world = World::default();
    world.group("c", &[]);
    world.group("b", &["c"]);
    world.group("a", &["b"]);
    let err = world.refused(set_group("c", &["a", "10.0.0.1"]));
    assert_eq!(
        err.to_string(),
        "a cannot be a member of c, because c would then contain itself: c > a > b > c"
    );
    assert_eq!(world.resolved("c"), [""; 0], "nothing of a refused request is kept");
}

#[test]
fn of_several_cycles_the_first_by_name_is_shown_by_its_shortest_way() {
    let mut world = World::default();
    world.group("c", &[]);
    world.group("x", &["c"]);
    world.group("n", &["x"]);
    world.group("m", &["n", "x"]);
    assert_eq!(
        world.refused(set_group("c", &["x", "m", "n"])).to_string(),
        "m cannot be a member of c, because c would then contain itself: c > m > x > c"
    );
}

#[test]
fn a_group_resolves_to_its_leaves_and_its_literals() {
    let mut world = World::default();
    world.leaf("web-1", "10.0.0.1");
    world.group("web", &["web-1", "192.0.2.7", "192.0.2.0/24", "2001:db8::/32"]);
    assert_eq!(world.resolved("web"), ["192.0.2.0/24", "192.0.2.7", "2001:db8::/32", "web-1=10.0.0.1"]);
}

#[test]
fn a_member_that_does_not_exist_is_refused_by_name_and_resolves_to_nothing_if_stored_by_others() {
    let mut world = World::default();
    world.leaf("web-1", "10.0.0.1");
    let missing = RequestError::MemberNotFound { tag: tag("web"), member: tag("web-2") };
    assert_eq!(world.refused(set_group("web", &["web-1", "web-2"])), missing);
    assert_eq!(world.graph.resolve(&tag("web")), Err(NotFound { tag: tag("web") }), "never silently empty");

    world.group("web", &["web-1"]);
    world.graph.apply([Write::Put(Fact::Membership(tag("web"), member("web-2")))]);
    assert_eq!(world.resolved("web"), ["web-1=10.0.0.1"]);
    assert_eq!(world.refused(set_group("web", &["web-2"])), missing, "not even if the membership is there");
}

#[test]
fn leaves_groups_and_members_can_be_deleted() {
    let mut world = World::default();
    world.leaf("web-1", "10.0.0.1");
    world.group("web", &["web-1", "192.0.2.7"]);
    let not_a_member = RequestError::NotAMember { tag: tag("web"), member: member("192.0.2.8") };
    assert_eq!(world.refused(delete_members("web", &["192.0.2.7", "192.0.2.8"])), not_a_member);
    assert_eq!(world.resolved("web").len(), 2, "nothing is removed then");

    world.ask(delete_members("web", &["192.0.2.7", "web-1"]));
    assert_eq!(world.resolved("web"), [""; 0], "a group without members stays, and resolves to nothing");
    world.ask(delete_tag("web"));
    world.ask(delete_tag("web-1"));
    assert_eq!(world.graph, Graph::default());
    assert_eq!(world.refused(delete_tag("web")), RequestError::NotFound(NotFound { tag: tag("web") }));
    assert_eq!(
        world.refused(delete_members("web", &["web-1"])),
        RequestError::NotFound(NotFound { tag: tag("web") })
    );
}

#[test]
fn subscriptions_are_set_listed_and_removed_and_repeats_are_harmless() {
    let mut world = World::default();
    world.leaf("web-1", "10.0.0.1");
    world.subscribe("web-1", "s2");
    world.subscribe("web-1", "s1");
    assert!(world.graph.plan(&subscribe("web-1", "s1")).unwrap().is_empty());
    assert_eq!(world.subscribers("web-1"), ["s1", "s2"]);
    world.ask(unsubscribe("web-1", "s1"));
    assert!(world.graph.plan(&unsubscribe("web-1", "s1")).unwrap().is_empty());
    assert_eq!(world.subscribers("web-1"), ["s2"]);
    let unknown = NotFound { tag: tag("unknown") };
    assert_eq!(world.refused(subscribe("unknown", "s")), RequestError::NotFound(unknown.clone()));
    assert_eq!(world.graph.subscribers(&tag("unknown")).err(), Some(unknown));
    assert!(world.graph.plan(&unsubscribe("unknown", "s")).unwrap().is_empty());
}

#[test]
fn descendants_and_ancestors_are_found_over_several_levels() {
    let mut world = World::default();
    world.leaf("leaf", "10.0.0.1");
    world.group("low", &["leaf"]);
    world.group("middle", &["low"]);
    world.group("high", &["middle", "leaf"]);
    assert_eq!(world.resolved("high"), ["leaf=10.0.0.1"]);
    assert_eq!(world.graph.ancestors(&tag("leaf")).unwrap(), [&tag("high"), &tag("low"), &tag("middle")]);
    assert!(matches!(world.refused(set_group("low", &["high"])), RequestError::Cycle { .. }));
}

#[test]
fn a_change_deep_below_reaches_the_subscriber_of_the_top_once_whatever_the_paths() {
    let mut world = World::default();
    world.leaf("leaf", "10.0.0.1");
    world.group("left", &["leaf"]);
    world.group("right", &["leaf"]);
    world.group("top", &["left", "right", "leaf"]);
    world.subscribe("top", "both");
    world.subscribe("left", "both");
    world.subscribe("top", "other");
    let heard = world.ask(set_leaf("leaf", "10.0.0.2")).by_subscriber();
    let difference = |name| Difference {
        tag: tag(name),
        added: vec![resolved_leaf("leaf", "10.0.0.2")],
        removed: vec![resolved_leaf("leaf", "10.0.0.1")],
        deleted: false,
    };
    let both = heard.get(&who("both")).unwrap();
    assert_eq!(**both, [Arc::new(difference("left")), Arc::new(difference("top"))]);
    assert_eq!(heard.get(&who("other")).unwrap(), &[Arc::new(difference("top"))]);

    let nothing = world.ask(delete_members("right", &["leaf"]));
    assert_eq!(
        nothing.by_subscriber().len(),
        0,
        "the leaf is still below the top, so nothing effective happened"
    );
}

#[test]
fn each_leaf_comes_once_however_many_groups_hold_it() {
    let mut world = World::default();
    world.leaf("leaf", "10.0.0.1");
    let mut siblings = Vec::new();
    for sibling in 0..20 {
        siblings.push(format!("group-{sibling}"));
        world.group(&siblings[sibling], &["leaf", "10.0.0.1", "10.0.0.1/32"]);
    }
    world.group("all", &siblings.iter().map(String::as_str).collect::<Vec<_>>());
    // The literal and the leaf share the address and are two things all the same.
    assert_eq!(world.resolved("all"), ["10.0.0.1", "leaf=10.0.0.1"]);
}

#[test]
fn a_tag_cannot_hold_itself_and_one_that_others_made_so_hangs_nothing() {
    let mut world = World::default();
    assert_eq!(
        world.refused(set_group("a", &["a"])).to_string(),
        "a cannot be a member of a, because a would then contain itself: a > a"
    );
    world.leaf("leaf", "10.0.0.1");
    world.group("b", &["leaf"]);
    world.group("a", &["b"]);
    world.subscribe("a", "s");
    let loops = [("b", "a"), ("b", "b")];
    world.graph.apply(loops.map(|(parent, child)| Write::Put(Fact::Membership(tag(parent), member(child)))));
    assert_eq!(world.resolved("a"), ["leaf=10.0.0.1"]);
    assert_eq!(world.graph.ancestors(&tag("leaf")).unwrap(), [&tag("a"), &tag("b")]);
    assert_eq!(world.ask(set_leaf("leaf", "10.0.0.2")).by_subscriber().len(), 1);
    assert!(matches!(world.refused(set_group("b", &["b"])), RequestError::Cycle { .. }));
    world.ask(delete_tag("b"));
    assert_eq!(world.resolved("a"), [""; 0]);
    world.ask(delete_tag("a"));
    assert_eq!(world.graph.facts().count(), 1, "the leaf is all that is left");
}

#[test]
fn two_concurrent_requests_cannot_make_a_cycle_together() {
    let mut world = World::default();
    world.group("a", &[]);
    world.group("b", &[]);
    let mut batch = Batch::new(&world.graph);
    assert_eq!(batch.add(&set_group("a", &["b"])), Ok(()));
    assert!(matches!(batch.add(&set_group("b", &["a"])), Err(RequestError::Cycle { .. })));
    assert_eq!(batch.finish().writes, [Write::Put(Fact::Membership(tag("a"), member("b")))]);
}

#[test]
fn dots_in_names_and_arrows_in_subscribers_mix_nothing_up() {
    let mut world = World::default();
    world.leaf("ns.azure.vm", "10.0.0.1");
    world.leaf("ns.azure2.vm", "10.0.0.2");
    world.leaf("ns.azure", "10.0.0.3");
    let listed = |prefix| world.graph.list(prefix).map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    assert_eq!(listed("ns.azure."), ["ns.azure.vm"]);
    assert_eq!(listed("ns.azure"), ["ns.azure", "ns.azure.vm", "ns.azure2.vm"]);
    assert_eq!(listed("SUB:"), [""; 0], "subscriptions are not tags");
    world.subscribe("ns.azure.vm", "ns>gcp>projects/p>q");
    assert_eq!(world.subscribers("ns.azure.vm"), ["ns>gcp>projects/p>q"]);
    assert_eq!(world.subscribers("ns.azure"), [""; 0]);
}

#[test]
fn a_deleted_tag_leaves_nothing_dangling_and_its_subscribers_are_told() {
    let mut world = World::default();
    world.leaf("leaf", "10.0.0.1");
    world.group("middle", &["leaf", "192.0.2.7"]);
    world.group("top", &["middle"]);
    world.subscribe("middle", "s");
    world.subscribe("top", "s");
    let heard = world.ask(delete_tag("middle")).by_subscriber();
    let removed =
        || vec![ResolvedMember::Literal("192.0.2.7".parse().unwrap()), resolved_leaf("leaf", "10.0.0.1")];
    let difference =
        |name, deleted| Arc::new(Difference { tag: tag(name), added: vec![], removed: removed(), deleted });
    assert_eq!(heard[&who("s")], [difference("middle", true), difference("top", false)]);
    assert_eq!(
        world.graph.facts().collect::<Vec<_>>(),
        [
            Fact::Leaf(tag("leaf"), ip("10.0.0.1")),
            Fact::Group(tag("top")),
            Fact::Subscription(tag("top"), who("s"))
        ]
    );
}

#[test]
fn an_empty_group_that_is_deleted_is_heard_of() {
    let mut world = World::default();
    world.group("empty", &[]);
    world.subscribe("empty", "s");
    let heard = world.ask(delete_tag("empty")).by_subscriber();
    let gone = Difference { tag: tag("empty"), added: vec![], removed: vec![], deleted: true };
    assert_eq!(heard[&who("s")], [Arc::new(gone)]);
}

#[test]
fn a_new_tag_does_not_inherit_what_others_left_behind_under_its_name() {
    let mut world = World::default();
    world.leaf("leaf", "10.0.0.1");
    world.group("trusted", &[]);
    world.graph.apply([
        Write::Put(Fact::Membership(tag("trusted"), member("new"))),
        Write::Put(Fact::Membership(tag("new"), member("trusted"))),
        Write::Put(Fact::Membership(tag("new"), member("leaf"))),
        Write::Put(Fact::Subscription(tag("new"), who("ghost"))),
    ]);
    let before = world.graph.clone();
    world.leaf("new", "10.0.0.66");
    assert_eq!(world.resolved("trusted"), [""; 0]);
    assert_eq!(world.subscribers("new"), [""; 0]);

    world.graph = before;
    world.group("new", &["leaf", "192.0.2.7"]);
    assert_eq!(world.resolved("new"), ["192.0.2.7", "leaf=10.0.0.1"]);
    assert_eq!(world.resolved("trusted"), [""; 0]);
}

#[test]
fn what_a_transaction_does_and_undoes_is_not_heard() {
    let mut world = World::default();
    world.leaf("leaf", "10.0.0.1");
    world.group("web", &["leaf"]);
    world.subscribe("web", "s");
    let membership = Key::Membership(tag("web"), member("leaf"));
    let change = world.graph.apply([
        Write::Delete(membership.clone()),
        Write::Put(Fact::Leaf(tag("leaf"), ip("10.0.0.2"))),
        Write::Put(Fact::Membership(tag("web"), member("leaf"))),
        Write::Put(Fact::Leaf(tag("leaf"), ip("10.0.0.1"))),
    ]);
    assert_eq!(change.differences(), []);

    let mut batch = Batch::new(&world.graph);
    for request in [set_group("web", &["192.0.2.7"]), delete_members("web", &["192.0.2.7"])] {
        batch.add(&request).unwrap();
    }
    assert_eq!(batch.finish(), Plan::default());
}

#[test]
fn a_leaf_that_moves_between_groups_is_heard_of_only_where_it_matters() {
    let mut world = World::default();
    world.leaf("leaf", "10.0.0.1");
    world.group("left", &["leaf"]);
    world.group("right", &[]);
    world.group("top", &["left", "right"]);
    for name in ["left", "right", "top"] {
        world.subscribe(name, "s");
    }
    let mut batch = Batch::new(&world.graph);
    batch.add(&delete_members("left", &["leaf"])).unwrap();
    batch.add(&set_group("right", &["leaf"])).unwrap();
    let heard = world.graph.apply(batch.finish().writes).by_subscriber();
    let leaf = || vec![resolved_leaf("leaf", "10.0.0.1")];
    let difference =
        |name, added, removed| Arc::new(Difference { tag: tag(name), added, removed, deleted: false });
    assert_eq!(heard[&who("s")], [difference("left", vec![], leaf()), difference("right", leaf(), vec![])]);
}

#[test]
fn a_snapshot_stays_as_it_was_and_crosses_threads() {
    fn crosses<T: Send + Sync + 'static>(_: &T) {}
    let mut world = World::default();
    world.leaf("leaf", "10.0.0.1");
    world.group("web", &["leaf"]);
    let snapshot = world.graph.clone();
    crosses(&snapshot);
    world.ask(delete_tag("leaf"));
    assert_eq!(snapshot.resolve(&tag("web")).unwrap().len(), 1);
    assert_eq!(world.resolved("web"), [""; 0]);
}

#[test]
fn facts_may_come_in_every_order_even_a_cycle_among_them() {
    let facts = [
        Fact::Group(tag("a")),
        Fact::Group(tag("b")),
        Fact::Leaf(tag("leaf"), ip("10.0.0.1")),
        Fact::Membership(tag("a"), member("b")),
        Fact::Membership(tag("b"), member("a")),
        Fact::Membership(tag("b"), member("leaf")),
        Fact::Subscription(tag("a"), who("s")),
    ];
    let mut expected = Graph::default();
    expected.apply(facts.iter().cloned().map(Write::Put));
    let mut orders = 0;
    permute(&mut (0..facts.len()).collect(), 0, &mut |order| {
        let mut graph = Graph::default();
        for index in order {
            graph.apply([Write::Put(facts[*index].clone())]).by_subscriber();
        }
        assert_eq!(graph, expected, "{order:?}");
        assert_eq!(graph.resolve(&tag("a")).unwrap().len(), 1);
        orders += 1;
    });
    assert_eq!(orders, 5040);
}

#[derive(Default)]
struct World {
    graph: Graph,
}

impl World {
    /// Plans and applies a request that is accepted.
    fn ask(&mut self, request: Request) -> Change {
        let plan = self.graph.plan(&request).unwrap();
        self.graph.apply(plan.writes)
    }

    fn refused(&self, request: Request) -> RequestError {
        self.graph.plan(&request).unwrap_err()
    }

    fn leaf(&mut self, name: &str, address: &str) {
        self.ask(set_leaf(name, address));
    }

    fn group(&mut self, name: &str, members: &[&str]) {
        self.ask(set_group(name, members));
    }

    fn subscribe(&mut self, name: &str, subscriber: &str) {
        self.ask(subscribe(name, subscriber));
    }

    fn subscribers(&self, name: &str) -> Vec<&str> {
        self.graph.subscribers(&tag(name)).unwrap().map(Subscriber::as_str).collect()
    }

    /// What a tag resolves to, as `literal` and `leaf=address`.
    fn resolved(&self, name: &str) -> Vec<String> {
        let resolved = self.graph.resolve(&tag(name)).unwrap();
        resolved
            .iter()
            .map(|member| match member {
                ResolvedMember::Literal(address) => address.to_string(),
                ResolvedMember::Leaf { name, leaf } => format!("{name}={}", leaf.ip.unwrap()),
            })
            .collect()
    }
}

fn permute(order: &mut Vec<usize>, fixed: usize, each: &mut impl FnMut(&[usize])) {
    if fixed == order.len() {
        return each(order);
    }
    for next in fixed..order.len() {
        order.swap(fixed, next);
        permute(order, fixed + 1, each);
        order.swap(fixed, next);
    }
}

fn tag(name: &str) -> TagName {
    name.parse().unwrap()
}

fn member(text: &str) -> Member {
    text.parse().unwrap()
}

fn who(text: &str) -> Subscriber {
    text.parse().unwrap()
}

fn ip(address: &str) -> Leaf {
    Leaf { uri: None, ip: Some(address.parse().unwrap()) }
}

fn resolved_leaf(name: &str, address: &str) -> ResolvedMember {
    ResolvedMember::Leaf { name: tag(name), leaf: ip(address) }
}

fn set_leaf(name: &str, address: &str) -> Request {
    Request::SetLeaf { tag: tag(name), leaf: ip(address) }
}

fn set_group(name: &str, members: &[&str]) -> Request {
    Request::SetGroup { tag: tag(name), members: members.iter().map(|text| member(text)).collect() }
}

fn delete_members(name: &str, members: &[&str]) -> Request {
    Request::DeleteMembers { tag: tag(name), members: members.iter().map(|text| member(text)).collect() }
}

fn delete_tag(name: &str) -> Request {
    Request::DeleteTag { tag: tag(name) }
}

fn subscribe(name: &str, subscriber: &str) -> Request {
    Request::Subscribe { tag: tag(name), subscriber: who(subscriber) }
}

fn unsubscribe(name: &str, subscriber: &str) -> Request {
    Request::Unsubscribe { tag: tag(name), subscriber: who(subscriber) }
}
