//! A controller that says its state in every way the protocol allows, and a node that must end up with it.

use proptest::{collection::vec, prelude::*, sample::select};
use wire::trestle::v1::{NodePolicy, SetMember, SetUpdate};

use super::*;

const SET: i32 = 2;
const POLICY: i32 = 3;
const FUTURE: i32 = 99;

/// What the controller has: members of sets by number, generations of policies.
type State = BTreeMap<Key, Vec<u8>>;

fn hash(key: &Key, content: &[u8]) -> u64 {
    let mut sum = 1469598103934665603_u64;
    for byte in key.name.bytes().chain(content.iter().copied()).chain([key.kind as u8]) {
        sum = (sum ^ u64::from(byte)).wrapping_mul(1099511628211);
    }
    sum
}

fn member(number: u8) -> SetMember {
    SetMember { name: format!("m{number}"), addresses: vec![vec![10, 0, 0, number]], ..SetMember::default() }
}

fn say(message: to_node::Message) -> ToNode {
    ToNode { message: Some(message) }
}

fn start(epoch: u64, mode: Mode, buckets: Vec<u32>) -> ToNode {
    say(to_node::Message::Start(NodeStart { epoch, mode: mode.into(), buckets, tells_pods: true }))
}

fn flush(revision: u64) -> ToNode {
    say(to_node::Message::Flush(NodeFlush { revision, synced: false }))
}

fn remove(key: &Key) -> ToNode {
    say(to_node::Message::Remove(NodeRemove { kind: key.kind, name: key.name.clone() }))
}

fn set_update(replace: bool, put: &[u8], removed: &[u8]) -> Option<node_apply::Body> {
    let members = |numbers: &[u8]| numbers.iter().map(|number| member(*number)).collect();
    Some(node_apply::Body::Set(SetUpdate { replace, put: members(put), removed: members(removed) }))
}

fn apply(key: &Key, content: &[u8], body: Option<node_apply::Body>) -> ToNode {
    let hash = hash(key, content);
    say(to_node::Message::Apply(NodeApply { kind: key.kind, name: key.name.clone(), hash, body }))
}

/// An object said whole, sets in one or two pieces.
fn whole(key: &Key, content: &[u8]) -> Vec<ToNode> {
    match key.kind {
        SET => {
            let (first, second) = content.split_at(content.len() / 2);
            vec![
                apply(key, content, set_update(true, first, &[])),
                apply(key, content, set_update(false, second, &[])),
            ]
        }
        POLICY => {
            let generation = content.iter().map(|byte| i64::from(*byte)).sum();
            let policy = NodePolicy { generation, ..NodePolicy::default() };
            vec![apply(key, content, Some(node_apply::Body::Policy(policy)))]
        }
        _ => vec![apply(key, content, None)],
    }
}

fn difference(from: &State, to: &State) -> Vec<ToNode> {
    let mut messages = Vec::new();
    for (key, content) in to {
        match from.get(key) {
            Some(had) if had == content => {}
            Some(had) if key.kind == SET => {
                let only = |a: &[u8], b: &[u8]| {
                    a.iter().copied().filter(|number| !b.contains(number)).collect::<Vec<_>>()
                };
                let body = set_update(false, &only(content, had), &only(had, content));
                messages.push(apply(key, content, body));
            }
            _ => messages.extend(whole(key, content)),
        }
    }
    messages.extend(from.keys().filter(|key| !to.contains_key(*key)).map(remove));
    messages
}

/// What a controller would answer to this node's hello.
fn opening(node: &Held, epoch: u64, now: &State, history: &[State]) -> Vec<ToNode> {
    let digest = |state: &State| {
        let mut digest = Digest::default();
        state.iter().for_each(|(key, content)| digest.add(hash(key, content)));
        digest
    };
    let mut messages = Vec::new();
    match node.token() {
        Some(token) if token.epoch == epoch => {
            messages.push(start(epoch, Mode::Resume, vec![]));
            messages.extend(difference(&history[token.revision as usize], now));
        }
        _ if !node.is_empty() => {
            let buckets = digest(now).differing(&node.digest());
            let named: Vec<_> = buckets.iter().collect();
            messages.push(start(epoch, Mode::Buckets, named.clone()));
            let within = now.iter().filter(|(key, content)| {
                let bucket = bucket(hash(key, content)) as u32;
                named.contains(&bucket)
            });
            messages.extend(within.flat_map(|(key, content)| whole(key, content)));
        }
        _ => {
            messages.push(start(epoch, Mode::Snapshot, vec![]));
            messages.extend(now.iter().flat_map(|(key, content)| whole(key, content)));
        }
    }
    messages.push(flush(history.len() as u64 - 1));
    messages
}

#[derive(Clone, Debug)]
enum Event {
    Put(Key, Vec<u8>),
    Remove(Key),
    /// The stream breaks after so many messages of the next step, and a new one begins.
    Break(usize),
    /// The controller is another one, with the same objects.
    Restart,
    /// The node writes itself down and reads itself back.
    Reboot,
    /// Each message of the next step comes twice, and one that nobody knows in between.
    Stutter,
}

fn event() -> impl Strategy<Value = Event> {
    let key = || {
        (select(vec![SET, POLICY, FUTURE]), 0..6_u8)
            .prop_map(|(kind, number)| Key::new(kind, &format!("o{number}")))
    };
    prop_oneof![
        6 => (key(), proptest::collection::btree_set(0..20_u8, 0..6))
            .prop_map(|(key, content)| Event::Put(key, content.into_iter().collect())),
        3 => key().prop_map(Event::Remove),
        2 => (0..6_usize).prop_map(Event::Break),
        1 => Just(Event::Restart),
        1 => Just(Event::Reboot),
        1 => Just(Event::Stutter),
    ]
}

fn holds(node: &Held) -> BTreeMap<Key, Object> {
    node.objects().map(|(key, object)| (key.clone(), object.clone())).collect()
}

/// Members that a difference names turn the set before into the set after.
fn check_members(before: &BTreeMap<Key, Object>, after: &BTreeMap<Key, Object>, changed: &Differences) {
    for (key, difference) in changed {
        let Difference::Members { put, removed } = difference else { continue };
        let set = |objects: &BTreeMap<Key, Object>| match &objects[key].content {
            Content::Set(members) => members.clone(),
            other => panic!("{other:?} is no set"),
        };
        let (mut members, after) = (set(before), set(after));
        members.retain(|id, _| !removed.contains_key(id));
        members.extend(put.iter().map(|id| (id.clone(), after[id].clone())));
        assert_eq!(members, after);
    }
}

fn expected(now: &State) -> BTreeMap<Key, Object> {
    let mut fresh = Held::default();
    let messages = now.iter().flat_map(|(key, content)| whole(key, content));
    let all = std::iter::once(start(1, Mode::Snapshot, vec![])).chain(messages).chain([flush(0)]);
    all.for_each(|message| drop(fresh.take(message).unwrap()));
    holds(&fresh)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// However streams break, restart, resume and repeat themselves: after a flush the node holds what the controller
    /// has, and before it what it held.
    #[test]
    fn a_node_follows_its_controller(events in vec(event(), 1..60)) {
        let (mut epoch, mut now, mut history) = (1, State::new(), vec![State::new()]);
        let mut node = Held::default();
        let mut stutter = false;
        let feed = |node: &mut Held, messages: Vec<ToNode>, stutter: bool| {
            let before = holds(node);
            let mut changed = None;
            for message in messages {
                let is_flush = matches!(message.message, Some(to_node::Message::Flush(_)));
                if stutter && !is_flush {
                    assert_eq!(node.take(message.clone()), Ok(Taken::Pending));
                    assert_eq!(node.take(ToNode { message: None }), Ok(Taken::Skipped));
                }
                match node.take(message).unwrap() {
                    Taken::Step(step, _) => changed = Some(step.changed),
                    _ => assert_eq!(holds(node), before, "nothing takes place before the flush"),
                }
            }
            if let Some(changed) = changed {
                let after = holds(node);
                check_members(&before, &after, &changed);
                let changed: BTreeSet<Key> = changed.into_keys().collect();
                let differs: BTreeSet<Key> = before.keys().chain(after.keys())
                    .filter(|key| before.get(*key).map(|o| &o.content) != after.get(*key).map(|o| &o.content))
                    .cloned().collect();
                assert_eq!(changed, differs, "a step names what changed, and nothing else");
            }
        };
        node.begin();
        {
                        let opening = opening(&node, epoch, &now, &history);
                        feed(&mut node, opening, false);
                    }
        for event in events {
            match event {
                Event::Put(key, content) => {
                    now.insert(key, content);
                }
                Event::Remove(key) => {
                    now.remove(&key);
                }
                Event::Break(after) => {
                    let mut step = difference(history.last().unwrap(), &now);
                    step.truncate(after);
                    feed(&mut node, step, false);
                    node.begin();
                    {
                        let opening = opening(&node, epoch, history.last().unwrap(), &history);
                        feed(&mut node, opening, stutter);
                    }
                }
                Event::Restart => {
                    (epoch, history) = (epoch + 1, vec![now.clone()]);
                    node.begin();
                    {
                        let opening = opening(&node, epoch, &now, &history);
                        feed(&mut node, opening, stutter);
                    }
                }
                Event::Reboot => {
                    let mut read = Held::default();
                    for message in node.messages().unwrap() {
                        read.take(message).unwrap();
                    }
                    prop_assert_eq!(&holds(&read), &holds(&node));
                    prop_assert_eq!(read.token(), node.token());
                    read.begin();
                    node = read;
                    {
                        let opening = opening(&node, epoch, history.last().unwrap(), &history);
                        feed(&mut node, opening, false);
                    }
                }
                Event::Stutter => stutter = true,
            }
            let step = difference(history.last().unwrap(), &now);
            history.push(now.clone());
            let flush = flush(history.len() as u64 - 1);
            feed(&mut node, step.into_iter().chain([flush]).collect(), stutter);
            stutter = false;
            prop_assert_eq!(holds(&node), expected(&now));
        }
    }

    /// Any messages in any order: never a panic, and after nonsense exactly the state of the last flush.
    #[test]
    fn nonsense_changes_nothing(messages in vec(any_message(), 0..60)) {
        let mut node = Held::default();
        for message in messages {
            let before = node.clone();
            if node.take(message).is_err() {
                prop_assert_eq!(holds(&node), holds(&before));
                prop_assert_eq!(node.token(), before.token());
                node.begin();
            }
        }
    }
}

fn any_message() -> impl Strategy<Value = ToNode> {
    let key = || (select(vec![0, SET, POLICY, FUTURE]), "[ab]").prop_map(|(kind, name)| Key { kind, name });
    let body = prop_oneof![
        Just(None),
        (any::<bool>(), vec(any::<u8>(), 0..3), vec(any::<u8>(), 0..3))
            .prop_map(|(replace, put, removed)| set_update(replace, &put, &removed)),
        Just(Some(node_apply::Body::Policy(NodePolicy::default()))),
    ];
    prop_oneof![
        (0..3_u64, 0..5_i32, vec(0..200_u32, 0..3)).prop_map(|(epoch, mode, buckets)| say(
            to_node::Message::Start(NodeStart { epoch, mode, buckets, tells_pods: true })
        )),
        (key(), any::<u64>(), body).prop_map(|(Key { kind, name }, hash, body)| say(
            to_node::Message::Apply(NodeApply { kind, name, hash, body })
        )),
        key().prop_map(|key| remove(&key)),
        (0..4_u64).prop_map(flush),
        Just(ToNode { message: None }),
    ]
}

#[test]
fn each_kind_of_nonsense_has_its_name() {
    let key = Key::new(SET, "s");
    let mut node = Held::default();
    assert_eq!(node.take(flush(1)), Err(Nonsense::NoStart));
    node.take(start(7, Mode::Resume, vec![])).unwrap();
    assert_eq!(node.take(flush(1)), Err(Nonsense::OtherEpoch { theirs: 7, ours: None }));
    node.take(start(7, Mode::Unspecified, vec![])).unwrap();
    assert_eq!(node.take(flush(1)), Err(Nonsense::UnknownMode(0)));
    node.take(start(7, Mode::Snapshot, vec![])).unwrap();
    node.take(flush(5)).unwrap();
    node.take(apply(&key, &[1], set_update(false, &[1], &[]))).unwrap();
    assert_eq!(node.take(flush(6)), Err(Nonsense::NoBase("s".into())));
    assert_eq!(node.take(flush(4)), Err(Nonsense::Backwards { from: 5, to: 4 }));
    // What is taken away within a step is no base in it.
    node.take(apply(&key, &[1], set_update(true, &[1], &[]))).unwrap();
    node.take(flush(6)).unwrap();
    node.take(remove(&key)).unwrap();
    node.take(apply(&key, &[2], set_update(false, &[2], &[]))).unwrap();
    assert_eq!(node.take(flush(7)), Err(Nonsense::NoBase("s".into())));
    assert_eq!(node.token(), Some(Token { epoch: 7, revision: 6 }));
}

#[test]
fn objects_of_kinds_that_were_unknown_are_asked_for_again() {
    let mut node = Held::default();
    for message in [start(7, Mode::Snapshot, vec![]), apply(&Key::new(FUTURE, "x"), &[], None), flush(5)] {
        node.take(message).unwrap();
    }
    let mut same = node.clone();
    node.forget_unknown();
    assert_eq!((node.len(), node.token()), (0, None));
    same.objects.clear();
    same.forget_unknown();
    assert!(same.token().is_some(), "nothing was forgotten");
}

proptest! {
    /// Differences joined, whatever the steps between, are the difference of the ends.
    #[test]
    fn joined_steps_turn_the_first_state_into_the_last(
        states in vec(proptest::collection::btree_map(0..3_u8, proptest::collection::btree_set(0..6_u8, 0..4), 0..3), 2..6),
    ) {
        let state = |state: &BTreeMap<u8, BTreeSet<u8>>| -> State {
            state.iter().map(|(name, members)| (Key::new(SET, &name.to_string()), members.iter().copied().collect())).collect()
        };
        let states: Vec<State> = states.iter().map(state).collect();
        let mut node = Held::default();
        let mut first = vec![start(1, Mode::Snapshot, vec![])];
        first.extend(states[0].iter().flat_map(|(key, content)| whole(key, content)));
        first.push(flush(0));
        first.into_iter().for_each(|message| drop(node.take(message).unwrap()));
        let before = holds(&node);
        let mut joined = Step::default();
        for (number, pair) in states.windows(2).enumerate() {
            let [from, to] = pair else { unreachable!() };
            for message in difference(from, to).into_iter().chain([flush(number as u64 + 1)]) {
                if let Taken::Step(step, _) = node.take(message).unwrap() {
                    joined.join(step);
                }
            }
        }
        let after = holds(&node);
        let mut rebuilt = before.clone();
        for (key, difference) in &joined.changed {
            match difference {
                Difference::Gone => drop(rebuilt.remove(key)),
                Difference::Whole => drop(rebuilt.insert(key.clone(), after[key].clone())),
                Difference::Members { put, removed } => {
                    let (Content::Set(now), Some(Object { content: Content::Set(members), .. })) =
                        (&after[key].content, rebuilt.get_mut(key)) else { panic!("{key:?} is no set") };
                    members.retain(|id, _| !removed.contains_key(id));
                    members.extend(put.iter().map(|id| (id.clone(), now[id].clone())));
                }
            }
        }
        let contents = |objects: &BTreeMap<Key, Object>| -> Vec<_> {
            objects.iter().map(|(key, object)| (key.clone(), object.content.clone())).collect()
        };
        prop_assert_eq!(contents(&rebuilt), contents(&after));
    }
}
