//! Random publishes, connects, breaks and controller restarts against ten lines of model.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use proptest::prelude::*;

use super::plain::{FakeNode, Held, Plain};
use crate::{Change, Core, DialectId, Key, Kind, Member, Revision, SpanChange, core::NodeIndex};

const NODES: usize = 4;

#[derive(Clone, Debug)]
enum Operation {
    Publish(Vec<Edit>),
    /// One node is sent its next step, if it is connected and there is one.
    Step(usize),
    /// One node loses its stream; it keeps its state, or forgets it, or only its token.
    Break(usize, Keeps),
    Connect(usize),
    /// The controller starts over with the same objects.
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum Keeps {
    All,
    Nothing,
    State,
}

#[derive(Clone, Debug)]
enum Edit {
    Put(u8, u8, Place),
    PutSet(u8, BTreeMap<u8, u8>, Place),
    Members(u8, BTreeMap<u8, u8>, BTreeSet<u8>, Place),
    Remove(u8, u8),
}

#[derive(Clone, Debug)]
enum Place {
    Keep,
    Everyone,
    Nodes(BTreeSet<u8>),
    Move(BTreeSet<u8>, BTreeSet<u8>),
}

/// The model: every object with its members or payload, and who needs it.
#[derive(Clone, Debug, Default)]
struct Model(BTreeMap<Key, (Held, Option<BTreeSet<u8>>)>);

impl Model {
    fn seen_by(&self, node: usize) -> BTreeMap<Key, Held> {
        let needs =
            |span: &Option<BTreeSet<u8>>| span.as_ref().is_none_or(|span| span.contains(&(node as u8)));
        self.0
            .iter()
            .filter(|(_, (_, span))| needs(span))
            .map(|(key, (held, _))| (key.clone(), held.clone()))
            .collect()
    }

    fn place(&mut self, key: &Key, held: Held, place: &Place) {
        let span = self.0.get(key).map_or(Some(BTreeSet::new()), |(_, span)| span.clone());
        let span = match (place, span) {
            (Place::Keep, span) => span,
            (Place::Everyone, _) | (Place::Move(..), None) => None,
            (Place::Nodes(nodes), _) => Some(nodes.clone()),
            (Place::Move(gained, lost), Some(span)) => Some(&(&span - lost) | gained),
        };
        self.0.insert(key.clone(), (held, span));
    }

    fn members(&self, key: &Key) -> BTreeMap<Bytes, Bytes> {
        match self.0.get(key) {
            Some((Held::Set(members), _)) => members.clone(),
            _ => BTreeMap::new(),
        }
    }

    fn edit(&mut self, edit: &Edit) -> Change {
        match edit {
            Edit::Put(name, payload, place) => {
                let (key, payload) = (Key::new(Kind(3), format!("p{name}")), Bytes::from(vec![*payload]));
                self.place(&key, Held::Whole(payload.clone()), place);
                Change::Put { key, payload, span: span(place) }
            }
            Edit::PutSet(name, members, place) => {
                let key = Key::new(Kind(1 + name % 2), format!("s{name}"));
                self.place(&key, Held::Set(members.iter().map(member).collect()), place);
                let members = members.iter().map(member).map(|(id, rest)| Member { id, rest }).collect();
                Change::PutSet { key, members, span: span(place) }
            }
            Edit::Members(name, put, removed, place) => {
                let key = Key::new(Kind(1 + name % 2), format!("s{name}"));
                let mut members = self.members(&key);
                members.retain(|id, _| !removed.contains(&id[0]));
                members.extend(put.iter().map(member));
                self.place(&key, Held::Set(members), place);
                Change::Members {
                    key,
                    put: put.iter().map(member).map(|(id, rest)| Member { id, rest }).collect(),
                    removed: removed.iter().map(|id| Bytes::from(vec![*id])).collect(),
                    span: span(place),
                }
            }
            Edit::Remove(kind, name) => {
                let key = match kind {
                    0 => Key::new(Kind(3), format!("p{name}")),
                    _ => Key::new(Kind(1 + name % 2), format!("s{name}")),
                };
                self.0.remove(&key);
                Change::Remove { key }
            }
        }
    }

    /// Everything, as a controller publishes it that starts with this state.
    fn all(&self) -> Vec<Change> {
        let change = |(key, (held, span)): (&Key, &(Held, Option<BTreeSet<u8>>))| {
            let span =
                span.as_ref().map_or(SpanChange::Everyone, |nodes| SpanChange::Nodes(names(nodes).collect()));
            match held.clone() {
                Held::Whole(payload) => Change::Put { key: key.clone(), payload, span },
                Held::Set(members) => {
                    let members = members.into_iter().map(|(id, rest)| Member { id, rest }).collect();
                    Change::PutSet { key: key.clone(), members, span }
                }
            }
        };
        self.0.iter().map(change).collect()
    }
}

fn member((id, rest): (&u8, &u8)) -> (Bytes, Bytes) {
    (Bytes::from(vec![*id]), Bytes::from(vec![*rest]))
}

fn names(nodes: &BTreeSet<u8>) -> impl Iterator<Item = Arc<str>> + '_ {
    nodes.iter().map(|node| Arc::from(format!("node-{node}")))
}

fn span(place: &Place) -> SpanChange {
    match place {
        Place::Keep => SpanChange::Keep,
        Place::Everyone => SpanChange::Everyone,
        Place::Nodes(nodes) => SpanChange::Nodes(names(nodes).collect()),
        Place::Move(gained, lost) => {
            SpanChange::Move { gained: names(gained).collect(), lost: names(lost).collect() }
        }
    }
}

struct World {
    core: Core,
    dialect: Arc<Plain>,
    kept: usize,
    model: Model,
    nodes: [FakeNode; NODES],
    streams: [Option<(NodeIndex, Revision)>; NODES],
}

impl World {
    fn new(kept: usize) -> Self {
        let dialect = Plain::new();
        let core = Core::new(1, vec![dialect.clone()]).with_kept_losses(kept);
        Self {
            core,
            dialect,
            kept,
            model: Model::default(),
            nodes: Default::default(),
            streams: Default::default(),
        }
    }

    fn run(&mut self, operation: Operation) {
        match operation {
            Operation::Publish(edits) => {
                let changes: Vec<_> = edits.iter().map(|edit| self.model.edit(edit)).collect();
                self.core.publish(changes);
            }
            Operation::Step(node) => self.step(node),
            Operation::Break(node, keeps) => self.break_stream(node, keeps),
            Operation::Connect(node) => self.connect(node),
            Operation::Restart => {
                for node in 0..NODES {
                    self.break_stream(node, Keeps::All);
                }
                let epoch = self.core.epoch() + 1;
                self.core = Core::new(epoch, vec![self.dialect.clone()]).with_kept_losses(self.kept);
                self.core.publish(self.model.all());
            }
        }
    }

    fn connect(&mut self, number: usize) {
        if self.streams[number].is_some() {
            return;
        }
        let (index, node) = (self.core.pin(&format!("node-{number}")), &mut self.nodes[number]);
        let from = self.core.locate(index, node.token, Some(node.digest()));
        let plan = self.core.first_plan(index, &from, DialectId(0));
        node.replay(self.core.epoch(), &self.dialect.read(&plan));
        self.streams[number] = Some((index, plan.to));
    }

    fn step(&mut self, number: usize) {
        let Some((index, at)) = self.streams[number] else { return };
        let at = match self.core.next_plan(index, at, DialectId(0)) {
            Some(plan) => {
                self.nodes[number].replay(self.core.epoch(), &self.dialect.read(&plan));
                plan.to
            }
            None => self.core.head(),
        };
        self.streams[number] = Some((index, at));
    }

    fn break_stream(&mut self, number: usize, keeps: Keeps) {
        if let Some((index, _)) = self.streams[number].take() {
            self.core.unpin(index);
        }
        match keeps {
            Keeps::All => {}
            Keeps::Nothing => self.nodes[number] = FakeNode::default(),
            Keeps::State => self.nodes[number].token = None,
        }
    }

    fn settle(&mut self) {
        for number in 0..NODES {
            self.connect(number);
            self.step(number);
            assert_eq!(self.nodes[number].state(), self.model.seen_by(number), "node {number}");
            let (index, _) = self.streams[number].unwrap();
            assert_eq!(self.nodes[number].digest(), self.core.digest(index), "the digest of node {number}");
            let held: Vec<_> = self.core.held(index).into_iter().map(|held| held.key).collect();
            assert_eq!(held, self.nodes[number].objects.keys().cloned().collect::<Vec<_>>());
            assert!(self.core.next_plan(index, self.core.head(), DialectId(0)).is_none());
        }
    }
}

fn place() -> impl Strategy<Value = Place> {
    let nodes = || prop::collection::btree_set(0..NODES as u8, 0..=NODES);
    prop_oneof![
        2 => Just(Place::Keep),
        1 => Just(Place::Everyone),
        3 => nodes().prop_map(Place::Nodes),
        3 => (nodes(), nodes()).prop_map(|(gained, lost)| Place::Move(gained.clone(), &lost - &gained)),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    let members = || prop::collection::btree_map(0..6u8, 0..3u8, 0..5);
    let removed = prop::collection::btree_set(0..6u8, 0..4);
    prop_oneof![
        (0..3u8, 0..3u8, place()).prop_map(|(name, payload, place)| Edit::Put(name, payload, place)),
        (0..4u8, members(), place()).prop_map(|(name, members, place)| Edit::PutSet(name, members, place)),
        (0..4u8, members(), removed, place())
            .prop_map(|(name, put, removed, place)| Edit::Members(name, put, removed, place)),
        (0..2u8, 0..4u8).prop_map(|(kind, name)| Edit::Remove(kind, name)),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let keeps = prop_oneof![Just(Keeps::All), Just(Keeps::Nothing), Just(Keeps::State)];
    prop_oneof![
        6 => prop::collection::vec(edit(), 1..5).prop_map(Operation::Publish),
        5 => (0..NODES).prop_map(Operation::Step),
        2 => (0..NODES).prop_map(Operation::Connect),
        1 => (0..NODES, keeps).prop_map(|(node, keeps)| Operation::Break(node, keeps)),
        1 => Just(Operation::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_any_interleaving_each_node_holds_what_the_model_says(
        kept in prop_oneof![Just(0usize), Just(2), Just(1000)],
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        let mut world = World::new(kept);
        for operation in operations {
            world.run(operation);
        }
        world.settle();
    }
}
