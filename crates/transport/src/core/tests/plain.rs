//! A dialect that a test can read back, and a node that replays it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;

use crate::{
    Buckets, Dialect, Digest, Hash, Key, Kind, Members, Plan, Revision, Start, StartMode, dialect::Frames,
    digest::bucket,
};

/// Members, as a map.
type Told = BTreeMap<Bytes, Bytes>;

fn told(members: &Members) -> Told {
    members.iter().map(|(id, rest)| (id.clone(), rest.clone())).collect()
}

/// What a frame of this dialect says. Frames are debug text on the outside and looked up by content here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Said {
    Start { mode: u8, buckets: Vec<u32> },
    Whole { key: Key, hash: u64, payload: Bytes },
    Set { key: Key, hash: u64, members: Told },
    Delta { key: Key, hash: u64, put: Told, removed: BTreeSet<Bytes> },
    Remove { key: Key },
    Flush { revision: Revision, first: bool },
}

/// Remembers what each frame says.
#[derive(Default)]
pub struct Plain {
    said: std::sync::Mutex<Vec<Said>>,
    pub deltas: bool,
    pub sweeps: bool,
}

impl Plain {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { deltas: true, sweeps: true, ..Self::default() })
    }

    fn say(&self, what: Said) -> Bytes {
        let mut said = self.said.lock().unwrap();
        said.push(what);
        crate::frame(&(said.len() as u64 - 1).to_le_bytes())
    }

    /// The sayings of a plan; snapshots are merged, so frames are cut apart first.
    pub fn read(&self, plan: &Plan) -> Vec<Said> {
        let bytes = plan.frames.concat();
        assert_eq!(bytes.len(), plan.bytes);
        let said = self.said.lock().unwrap();
        bytes
            .chunks(13)
            .map(|f| said[u64::from_le_bytes(f[5..].try_into().unwrap()) as usize].clone())
            .collect()
    }
}

impl Dialect for Plain {
    fn whole(&self, key: &Key, hash: Hash, payload: &Bytes) -> Frames {
        [self.say(Said::Whole { key: key.clone(), hash: hash.short(), payload: payload.clone() })].into()
    }

    fn set(&self, key: &Key, hash: Hash, members: &Members) -> Frames {
        [self.say(Said::Set { key: key.clone(), hash: hash.short(), members: told(members) })].into()
    }

    fn delta(&self, key: &Key, hash: Hash, put: &Members, removed: &BTreeSet<Bytes>) -> Option<Frames> {
        let (put, removed) = (told(put), removed.clone());
        self.deltas
            .then(|| [self.say(Said::Delta { key: key.clone(), hash: hash.short(), put, removed })].into())
    }

    fn removal(&self, key: &Key) -> Option<Bytes> {
        Some(self.say(Said::Remove { key: key.clone() }))
    }

    fn start(&self, start: &Start) -> Option<Bytes> {
        let (mode, buckets) = match start.mode {
            StartMode::Snapshot => (1, Buckets::default()),
            StartMode::Buckets(buckets) => (2, buckets),
            StartMode::Resume => (3, Buckets::default()),
        };
        self.sweeps.then(|| self.say(Said::Start { mode, buckets: buckets.iter().collect() }))
    }

    fn flush(&self, revision: Revision, first: bool) -> Bytes {
        self.say(Said::Flush { revision, first })
    }

    fn wait(&self, _: &[String]) -> Option<Bytes> {
        None
    }

    fn sweeps(&self) -> bool {
        self.sweeps
    }
}

/// What a node holds of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    Whole(Bytes),
    Set(Told),
}

/// A node that does what it is told, and nothing else.
#[derive(Clone, Debug, Default)]
pub struct FakeNode {
    pub objects: BTreeMap<Key, (u64, Held)>,
    pub token: Option<(u64, Revision)>,
    pub received: usize,
}

impl FakeNode {
    pub fn digest(&self) -> Digest {
        let mut digest = Digest::default();
        self.objects.values().for_each(|(hash, _)| digest.add(*hash));
        digest
    }

    /// Replays one step and checks that its order never leaves a dangling name.
    pub fn replay(&mut self, epoch: u64, step: &[Said]) {
        let mut sweep = None;
        let mut seen = BTreeSet::new();
        let mut order = Vec::new();
        let (last, rest) = step.split_last().expect("a step has a flush");
        for said in rest {
            self.received += 1;
            match said.clone() {
                Said::Start { mode, buckets } => sweep = Some((mode, buckets)),
                Said::Whole { key, hash, payload } => {
                    order.push((0, i32::from(key.kind.0)));
                    seen.insert(key.clone());
                    self.objects.insert(key, (hash, Held::Whole(payload)));
                }
                Said::Set { key, hash, members } => {
                    order.push((0, i32::from(key.kind.0)));
                    seen.insert(key.clone());
                    self.objects.insert(key, (hash, Held::Set(members)));
                }
                Said::Delta { key, hash, put, removed } => {
                    order.push((0, i32::from(key.kind.0)));
                    seen.insert(key.clone());
                    let (had, Held::Set(members)) = self.objects.get_mut(&key).expect("a delta has a base")
                    else {
                        panic!("a delta of {key:?}, which is no set");
                    };
                    members.retain(|id, _| !removed.contains(id));
                    members.extend(put);
                    *had = hash;
                }
                Said::Remove { key } => {
                    order.push((1, -i32::from(key.kind.0)));
                    self.objects.remove(&key);
                }
                Said::Flush { .. } => panic!("a flush inside a step"),
            }
        }
        assert!(order.is_sorted(), "the order of a step: {order:?}");
        match sweep {
            Some((1, _)) => self.objects.retain(|key, _| seen.contains(key)),
            Some((2, buckets)) => self
                .objects
                .retain(|key, (hash, _)| seen.contains(key) || !buckets.contains(&(bucket(*hash) as u32))),
            _ => {}
        }
        let Said::Flush { revision, .. } = last else { panic!("a step without a flush: {step:?}") };
        assert!(
            self.token.is_none_or(|(had, at)| had != epoch || at <= *revision),
            "revisions never go back"
        );
        self.token = Some((epoch, *revision));
    }

    pub fn state(&self) -> BTreeMap<Key, Held> {
        self.objects.iter().map(|(key, (_, held))| (key.clone(), held.clone())).collect()
    }
}

pub fn set_key(name: &str) -> Key {
    Key::new(Kind(1), name)
}

pub fn policy_key(name: &str) -> Key {
    Key::new(Kind(3), name)
}

/// Unused modes would hide a mistake in the test itself.
#[test]
fn a_fake_node_sweeps_only_what_it_was_told_to() {
    let mut node = FakeNode::default();
    node.objects.insert(set_key("a"), (5, Held::Whole(Bytes::new())));
    node.objects.insert(set_key("b"), (6, Held::Whole(Bytes::new())));
    let flush = Said::Flush { revision: Revision(1), first: true };
    node.replay(1, &[Said::Start { mode: 2, buckets: vec![5] }, flush.clone()]);
    assert_eq!(node.objects.keys().collect::<Vec<_>>(), [&set_key("b")]);
    node.replay(1, &[Said::Start { mode: 3, buckets: vec![] }, flush.clone()]);
    assert_eq!(node.objects.len(), 1);
    node.replay(1, &[Said::Start { mode: 1, buckets: vec![] }, flush]);
    assert!(node.objects.is_empty());
}
