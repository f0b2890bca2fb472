use proptest::{collection, prelude::*};

use super::*;
use crate::{Fact, Key, Write};

fn tag(number: u8) -> TagName {
    format!("t{number}").parse().unwrap()
}

/// A write from three small numbers, so that proptest can shrink it.
fn write((what, one, two): (u8, u8, u8)) -> Write {
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

fn sorted(effects: difference::Effects) -> Vec<(Id, Vec<Id>, Vec<Id>)> {
    effects
        .into_iter()
        .map(|(tag, mut effect)| {
            effect.added.sort();
            effect.removed.sort();
            (tag, effect.added, effect.removed)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn ascent_and_descent_find_the_same(
        first in collection::vec((0_u8..=10, 0_u8..8, 0_u8..8), 0..40),
        second in collection::vec((0_u8..=10, 0_u8..8, 0_u8..8), 1..12),
    ) {
        let mut graph = Graph::default();
        graph.apply(first.into_iter().map(write));
        let change = graph.apply(second.into_iter().map(write));
        let seeds = change.seeds();
        let affected = change.affected(&seeds);
        let ascent = change.by_ascent(&seeds, &affected, &mut Budget::unlimited()).unwrap();
        let descent = change.by_descent(&affected, &mut Budget::unlimited()).unwrap();
        prop_assert_eq!(sorted(ascent), sorted(descent));
    }
}
