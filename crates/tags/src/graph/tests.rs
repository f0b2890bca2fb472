use std::collections::BTreeSet;

use proptest::{collection, prelude::*};

use super::*;

fn tag(number: u8) -> TagName {
    format!("t{number}").parse().unwrap()
}

/// A write from three small numbers, so that proptest can shrink it.
pub(crate) fn write((what, one, two): (u8, u8, u8)) -> Write {
    let member = match two {
        0 => "10.0.0.0/8".parse().unwrap(),
        _ => Member::Tag(tag(two)),
    };
    let leaf = model::Leaf { uri: Some(format!("uri-{two}").into()), ip: None };
    let subscriber = || "s".parse().unwrap();
    match what {
        0 => Write::Put(Fact::Leaf(tag(one), leaf)),
        1 | 2 => Write::Put(Fact::Group(tag(one))),
        3..=5 => Write::Put(Fact::Membership(tag(one), member)),
        6 | 7 => Write::Put(Fact::Subscription(tag(one), subscriber())),
        8 => Write::Delete(Key::Tag(tag(one))),
        9 => Write::Delete(Key::Membership(tag(one), member)),
        _ => Write::Delete(Key::Subscription(tag(one), subscriber())),
    }
}

pub(crate) fn writes(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Write>> {
    collection::vec((0_u8..=10, 0_u8..8, 0_u8..8).prop_map(write), count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn both_ends_of_a_membership_agree_and_no_name_outlives_its_facts(
        transactions in collection::vec(writes(1..12), 1..6),
    ) {
        let mut graph = Graph::default();
        for writes in transactions {
            graph.apply(writes);
            check(&graph)?;
        }
        let facts: Vec<Fact> = graph.facts().collect();
        graph.apply(facts.iter().map(|fact| Write::Delete(fact.key())));
        check(&graph)?;
        prop_assert_eq!(graph.vacant.len(), graph.nodes.len());
        prop_assert_eq!(graph.subscriptions, 0);

        let slots = graph.nodes.len();
        graph.apply(facts.into_iter().map(Write::Put));
        prop_assert_eq!(graph.nodes.len(), slots, "slots are used again");
    }
}

fn check(graph: &Graph) -> Result<(), TestCaseError> {
    let mut named = BTreeSet::new();
    for (name, id) in graph
        .tags
        .iter()
        .map(|(name, id)| (Member::Tag(name.clone()), *id))
        .chain(graph.literals.iter().map(|(address, id)| (Member::Literal(*address), *id)))
    {
        let node = graph.node(id).expect("a named node exists");
        prop_assert_eq!(&node.name, &name);
        prop_assert!(!node.is_bare(), "{} is kept for nothing", name);
        named.insert(id);
        for member in node.members.values() {
            prop_assert!(graph.node(*member).is_some_and(|node| node.parents.contains(id)));
        }
        for parent in node.parents.iter() {
            prop_assert_eq!(graph.node(parent).and_then(|node| node.members.get(&name)), Some(&id));
        }
    }
    let vacant: BTreeSet<Id> = graph.vacant.iter().copied().collect();
    prop_assert_eq!(vacant.len(), graph.vacant.len(), "no slot is free twice");
    prop_assert_eq!(vacant.len() + named.len(), graph.nodes.len());
    let subscriptions = graph.facts().filter(|fact| matches!(fact, Fact::Subscription(..))).count();
    prop_assert_eq!(subscriptions, graph.subscriptions);
    Ok(())
}
