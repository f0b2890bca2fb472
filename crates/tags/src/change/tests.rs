use proptest::prelude::*;

use super::*;
use crate::graph::tests::writes;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn ascent_and_descent_find_the_same(first in writes(0..40), second in writes(1..12)) {
        let mut graph = Graph::default();
        graph.apply(first);
        let change = graph.apply(second);
        let seeds = change.seeds();
        let affected = change.affected(&seeds);
        let ascent = change.by_ascent(&seeds, &affected, &mut Budget::unlimited()).unwrap();
        let descent = change.by_descent(&affected, &mut Budget::unlimited()).unwrap();
        prop_assert_eq!(sorted(ascent), sorted(descent));
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
