use proptest::prelude::*;

use super::*;
use crate::graph::tests::writes;

proptest! {
    #[test]
    fn picking_from_all_names_gives_the_order_that_sorting_gives(writes in writes(1..60)) {
        let mut graph = Graph::default();
        graph.apply(writes);
        for id in graph.ids_in_order() {
            let mut sorted = Vec::new();
            let visited = graph.descend([id], &mut Budget::unlimited(), |_, _, node| {
                if let Content::Terminal(member) = &node.content {
                    sorted.push(member);
                }
                ControlFlow::Continue(())
            });
            sorted.sort();
            prop_assert_eq!(graph.terminals_in_order(&visited.unwrap()), sorted);
        }
    }
}
