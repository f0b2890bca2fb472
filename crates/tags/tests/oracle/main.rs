//! Random requests, batches and foreign writes: after every step the graph agrees with the naive oracle.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod naive;

use std::collections::BTreeSet;

use model::{Leaf, Member, Subscriber, TagName};
use naive::Naive;
use proptest::{collection, prelude::*, sample};
use tags::{Batch, Change, Cycle, Difference, Fact, Graph, Key, Request, RequestError, Write};

#[derive(Clone, Debug)]
enum Step {
    Request(Request),
    /// Requests judged one on top of the other and stored at once.
    Batch(Vec<Request>),
    /// A transaction of somebody who keeps no rules.
    Foreign(Vec<Write>),
}

fn tag() -> impl Strategy<Value = TagName> {
    sample::select(vec!["a", "a.b", "b", "c", "d", "e"]).prop_map(|name| name.parse().unwrap())
}

fn member() -> impl Strategy<Value = Member> {
    let literal = sample::select(vec!["10.0.0.1", "10.0.0.0/8"]).prop_map(|text| text.parse().unwrap());
    prop_oneof![1 => literal, 4 => tag().prop_map(Member::Tag)]
}

fn members() -> impl Strategy<Value = BTreeSet<Member>> {
    collection::btree_set(member(), 0..4)
}

fn subscriber() -> impl Strategy<Value = Subscriber> {
    sample::select(vec!["s", "ns>gcp>t"]).prop_map(|who| who.parse().unwrap())
}

fn leaf() -> impl Strategy<Value = Leaf> {
    sample::select(vec!["10.0.0.1", "10.0.0.2"])
        .prop_map(|ip| Leaf { uri: None, ip: Some(ip.parse().unwrap()) })
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        4 => (tag(), leaf()).prop_map(|(tag, leaf)| Request::SetLeaf { tag, leaf }),
        6 => (tag(), members()).prop_map(|(tag, members)| Request::SetGroup { tag, members }),
        2 => (tag(), members()).prop_map(|(tag, members)| Request::DeleteMembers { tag, members }),
        2 => tag().prop_map(|tag| Request::DeleteTag { tag }),
        3 => (tag(), subscriber()).prop_map(|(tag, subscriber)| Request::Subscribe { tag, subscriber }),
        1 => (tag(), subscriber()).prop_map(|(tag, subscriber)| Request::Unsubscribe { tag, subscriber }),
    ]
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        2 => (tag(), leaf()).prop_map(|(tag, leaf)| Write::Put(Fact::Leaf(tag, leaf))),
        2 => tag().prop_map(|tag| Write::Put(Fact::Group(tag))),
        4 => (tag(), member()).prop_map(|(tag, member)| Write::Put(Fact::Membership(tag, member))),
        2 => (tag(), subscriber()).prop_map(|(tag, who)| Write::Put(Fact::Subscription(tag, who))),
        2 => tag().prop_map(|tag| Write::Delete(Key::Tag(tag))),
        3 => (tag(), member()).prop_map(|(tag, member)| Write::Delete(Key::Membership(tag, member))),
        1 => (tag(), subscriber()).prop_map(|(tag, who)| Write::Delete(Key::Subscription(tag, who))),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => request().prop_map(Step::Request),
        1 => collection::vec(request(), 2..6).prop_map(Step::Batch),
        2 => collection::vec(write(), 1..6).prop_map(Step::Foreign),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn the_graph_agrees_with_the_oracle_after_every_step(steps in collection::vec(step(), 1..40)) {
        let (mut graph, mut naive) = (Graph::default(), Naive::default());
        for step in steps {
            let snapshot = graph.clone();
            let was = naive.clone();
            let change = take(&mut graph, &mut naive, step)?;
            agree(&graph, &naive)?;
            prop_assert_eq!(heard(&change), was.by_subscriber(&naive));
            agree(&snapshot, &was)?;
        }
    }

    #[test]
    fn facts_give_the_same_graph_in_any_order(
        writes in collection::vec(write(), 0..30),
        order in any::<sample::Index>(),
        seed in any::<u64>(),
    ) {
        let mut graph = Graph::default();
        graph.apply(writes.clone());
        let mut facts: Vec<Fact> = graph.facts().collect();
        shuffle(&mut facts, seed);
        let split = order.index(facts.len() + 1);

        // Through some other history first, then in another order, and in two transactions.
        let mut other = Graph::default();
        other.apply(writes.iter().rev().cloned());
        other.apply(writes.iter().map(|write| Write::Delete(write.key())));
        prop_assert_eq!(&other, &Graph::default());
        let (first, second) = facts.split_at(split);
        other.apply(first.iter().cloned().map(Write::Put));
        other.apply(second.iter().cloned().map(Write::Put));
        prop_assert_eq!(&other, &graph);

        let mut one_by_one = Graph::default();
        for fact in facts {
            one_by_one.apply([Write::Put(fact)]);
        }
        prop_assert_eq!(&one_by_one, &graph);
        for (name, _) in graph.list("") {
            prop_assert_eq!(one_by_one.resolve(name).unwrap(), graph.resolve(name).unwrap());
            prop_assert_eq!(one_by_one.ancestors(name).unwrap(), graph.ancestors(name).unwrap());
        }
    }
}

fn take(graph: &mut Graph, naive: &mut Naive, step: Step) -> Result<Change, TestCaseError> {
    Ok(match step {
        Step::Request(request) => {
            let plan = graph.plan(&request);
            let expected = naive.request(&request);
            match (plan, expected) {
                (Ok(plan), Ok(next)) => {
                    prop_assert_eq!(
                        plan.is_empty(),
                        next == *naive,
                        "a plan is empty iff nothing is to be done"
                    );
                    *naive = next;
                    let change = graph.apply(plan.writes);
                    prop_assert!(graph.plan(&request).map_or(true, |again| again.is_empty()));
                    change
                }
                (Err(err), Err(expected)) => {
                    same_error(naive, err, expected)?;
                    graph.apply([])
                }
                (plan, expected) => {
                    return Err(TestCaseError::fail(format!("{plan:?} instead of {expected:?}")));
                }
            }
        }
        Step::Batch(requests) => {
            let mut batch = Batch::new(graph);
            for request in requests {
                match (batch.add(&request), naive.request(&request)) {
                    (Ok(()), Ok(next)) => *naive = next,
                    (Err(err), Err(expected)) => same_error(naive, err, expected)?,
                    (plan, expected) => {
                        return Err(TestCaseError::fail(format!("{plan:?} instead of {expected:?}")));
                    }
                }
            }
            let ahead = batch.graph().clone();
            let change = graph.apply(batch.finish().writes);
            prop_assert_eq!(&ahead, &*graph);
            change
        }
        Step::Foreign(writes) => {
            writes.iter().for_each(|write| naive.write(write.clone()));
            graph.apply(writes)
        }
    })
}

/// Equal errors; of a cycle, the path is a real one.
fn same_error(naive: &Naive, err: RequestError, expected: RequestError) -> Result<(), TestCaseError> {
    let RequestError::Cycle { tag, member, cycle } = err else {
        prop_assert_eq!(err, expected);
        return Ok(());
    };
    let path = cycle.path;
    prop_assert_eq!((path.first(), path.get(1), path.last()), (Some(&tag), Some(&member), Some(&tag)));
    for step in path[1..].windows(2) {
        prop_assert!(
            naive.members(&step[0]).any(|member| *member == Member::Tag(step[1].clone())),
            "{:?}",
            path
        );
    }
    let distinct: BTreeSet<_> = path[1..].iter().collect();
    prop_assert_eq!(distinct.len(), path.len() - 1, "{:?} goes in circles before it closes", &path);
    prop_assert_eq!(RequestError::Cycle { tag, member, cycle: Cycle { path: vec![] } }, expected);
    Ok(())
}

fn agree(graph: &Graph, naive: &Naive) -> Result<(), TestCaseError> {
    let facts: Vec<Fact> = graph.facts().collect();
    prop_assert_eq!(facts.iter().cloned().collect::<BTreeSet<_>>(), naive.facts());
    prop_assert_eq!(facts.len(), naive.facts().len());
    for name in ["a", "a.b", "b", "c", "d", "e", "unknown"] {
        let name: TagName = name.parse().unwrap();
        let resolved =
            graph.resolve(&name).ok().map(|resolved| resolved.into_iter().cloned().collect::<Vec<_>>());
        prop_assert_eq!(resolved, naive.resolve(&name).map(|set| set.into_iter().collect::<Vec<_>>()));
        prop_assert_eq!(graph.ancestors(&name).ok(), naive.ancestors(&name));
        let subscribers = graph.subscribers(&name).ok().map(|all| all.collect::<Vec<_>>());
        prop_assert_eq!(subscribers, naive.tags.get(&name).map(|_| naive.subscribers(&name)));
    }
    for prefix in ["", "a", "a.", "z"] {
        let listed: Vec<_> = graph.list(prefix).map(|(name, _)| name).collect();
        let expected: Vec<_> = naive.tags.keys().filter(|name| name.as_str().starts_with(prefix)).collect();
        prop_assert_eq!(listed, expected);
    }
    Ok(())
}

fn heard(change: &Change) -> std::collections::BTreeMap<Subscriber, Vec<Difference>> {
    let plain = |all: Vec<std::sync::Arc<Difference>>| all.iter().map(|one| (**one).clone()).collect();
    change.by_subscriber().into_iter().map(|(who, differences)| (who, plain(differences))).collect()
}

fn shuffle<T>(items: &mut [T], mut seed: u64) {
    for end in (1..items.len()).rev() {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        items.swap(end, (seed >> 33) as usize % (end + 1));
    }
}
