//! Planning: the frames that bring a node from where it stands to the present.
//!
//! ```text
//!   start?  apply kind 1, 2, 3 …   remove kind … 3, 2, 1   flush
//! ```

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::{Bytes, BytesMut};

use super::{Core, NodeIndex, Slot};
use crate::{
    dialect::{DialectId, Start, StartMode},
    digest::{Buckets, Digest},
    key::{Hash, Key, Revision},
    object::{Content, frames_since},
};

/// Size a snapshot's pieces are merged to: few writes, and a small share of a client's 4 MiB.
const CHUNK: usize = 256 << 10;

/// Where a node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// It holds nothing, or nothing that is known.
    Nothing,
    /// It holds something that this core did not send.
    Digest(Box<Digest>),
    /// It holds what this core had at a revision.
    At(Revision),
}

/// One step for one node.
#[derive(Clone, Debug)]
pub struct Plan {
    pub frames: Vec<Bytes>,
    /// Bytes in all frames.
    pub bytes: usize,
    /// Where the node stands afterwards.
    pub to: Revision,
    /// Keeps a snapshot findable for others while it is sent.
    _shared: Option<Arc<Snapshot>>,
}

/// The objects of one view, as frames merged into chunks.
#[derive(Debug)]
struct Snapshot(Vec<Bytes>);

/// Snapshots that are being sent, by what is in them: nodes that need the same get the same bytes.
#[derive(Default)]
pub(super) struct Snapshots {
    sent: HashMap<(usize, Hash, usize), Weak<Snapshot>>,
    pub made: u64,
    pub shared: u64,
}

/// An object a node is meant to hold, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldObject {
    pub key: Key,
    pub revision: Revision,
    pub members: Option<usize>,
}

impl Core {
    /// Where a node stands that says it holds a revision of an epoch, or something with this digest.
    pub fn locate(&self, node: NodeIndex, token: Option<(u64, Revision)>, digest: Option<Digest>) -> From {
        match (token, digest) {
            (Some((epoch, at)), _) if epoch == self.epoch && self.reaches(node, at) => From::At(at),
            (_, Some(digest)) => From::Digest(Box::new(digest)),
            (_, None) => From::Nothing,
        }
    }

    /// The first step of a stream: always one, if only to say that nothing is missing.
    pub fn first_plan(&self, node: NodeIndex, from: &From, dialect: DialectId) -> Plan {
        let mut plan = Draft::new(self, node, dialect);
        let mode = match from {
            From::At(_) => StartMode::Resume,
            From::Nothing => StartMode::Snapshot,
            From::Digest(theirs) => StartMode::Buckets(self.digest(node).differing(theirs)),
        };
        let start = Start { epoch: self.epoch, mode };
        plan.frames.extend(self.dialects[dialect.0].start(&start));
        match (start.mode, from) {
            (StartMode::Resume, From::At(at)) => plan.add_touched(*at),
            (StartMode::Buckets(buckets), _) => plan.add_held(buckets),
            (StartMode::Snapshot | StartMode::Resume, _) => plan.add_snapshot(),
        }
        plan.finish(true)
    }

    /// The next step for a node that stands at `at`; none if nothing concerns it. A node so slow that it missed a
    /// loss which is forgotten starts over, on the same stream.
    pub fn next_plan(&self, node: NodeIndex, at: Revision, dialect: DialectId) -> Option<Plan> {
        if !self.reaches(node, at) {
            return Some(self.first_plan(node, &From::Nothing, dialect));
        }
        if self.newest_for(node) <= at {
            return None;
        }
        let mut plan = Draft::new(self, node, dialect);
        plan.add_touched(at);
        Some(plan.finish(false))
    }

    /// Whether everything that happened to a node after `at` is still known.
    fn reaches(&self, node: NodeIndex, at: Revision) -> bool {
        at >= self.views[0].horizon.max(self.view(node).horizon) && at <= self.head
    }

    /// The digest of what a node is meant to hold.
    pub fn digest(&self, node: NodeIndex) -> Digest {
        let everyone = self.views[0].digest().cloned().unwrap_or_default();
        match self.view(node).digest() {
            Some(own) => everyone.plus(own),
            None => everyone,
        }
    }

    /// What a node is meant to hold, in the order it is applied.
    pub fn held(&self, node: NodeIndex) -> Vec<HeldObject> {
        let mut held: Vec<_> = self.views[0]
            .all()
            .chain(self.view(node).all())
            .filter(|(_, slot)| self.object(*slot).is_held_by(node))
            .map(|(revision, slot)| {
                let object = self.object(slot);
                let members = match &object.content {
                    Some(Content::Set(set)) => Some(set.members.len()),
                    Some(Content::Whole(_)) | None => None,
                };
                HeldObject { key: object.key.clone(), revision, members }
            })
            .collect();
        held.sort_by(|a, b| (&a.key, Reverse(a.revision)).cmp(&(&b.key, Reverse(b.revision))));
        held.dedup_by(|a, b| a.key == b.key);
        held
    }

    /// How many snapshots were made, and how often one was shared instead.
    pub fn snapshot_counts(&self) -> (u64, u64) {
        let snapshots = lock(&self.snapshots);
        (snapshots.made, snapshots.shared)
    }
}

fn lock(snapshots: &Mutex<Snapshots>) -> std::sync::MutexGuard<'_, Snapshots> {
    snapshots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A plan being made.
struct Draft<'a> {
    core: &'a Core,
    node: NodeIndex,
    dialect: DialectId,
    frames: Vec<Bytes>,
    shared: Option<Arc<Snapshot>>,
}

impl<'a> Draft<'a> {
    fn new(core: &'a Core, node: NodeIndex, dialect: DialectId) -> Self {
        Self { core, node, dialect, frames: Vec::new(), shared: None }
    }

    /// What was touched after `at`, as it is now.
    fn add_touched(&mut self, at: Revision) {
        let core = self.core;
        let slots = core.views[0].since(at).chain(core.view(self.node).since(at));
        let (held, lost): (Vec<_>, Vec<_>) = slots.partition(|slot| core.object(*slot).is_held_by(self.node));
        self.add_applies(held, Some(at));
        self.add_removals(lost);
    }

    /// Everything the node is meant to hold in some buckets.
    fn add_held(&mut self, buckets: Buckets) {
        let core = self.core;
        let slots = core.views[0].all().chain(core.view(self.node).all()).map(|(_, slot)| slot);
        let held = slots.filter(|slot| {
            let object = core.object(*slot);
            object.is_held_by(self.node) && buckets.holds(object.hash)
        });
        self.add_applies(held.collect(), None);
    }

    fn add_snapshot(&mut self) {
        let (core, dialect) = (self.core, &self.core.dialects[self.dialect.0]);
        let (everyone, own) = (&core.views[0], core.view(self.node));
        let mut fingerprint = everyone.fingerprint();
        fingerprint.add(own.fingerprint());
        let id = (self.dialect.0, fingerprint, everyone.held() + own.held());
        let found = lock(&core.snapshots).find(&id);
        let snapshot = match found {
            Some(snapshot) => snapshot,
            None => {
                let mut objects = Draft::new(core, self.node, self.dialect);
                objects.add_held(Buckets::ALL);
                let snapshot = Arc::new(Snapshot(merge(objects.frames, CHUNK)));
                lock(&core.snapshots).keep(id, &snapshot);
                snapshot
            }
        };
        self.frames.extend(snapshot.0.iter().cloned());
        self.shared = Some(snapshot);
        if !dialect.sweeps() {
            let touched = everyone.all().chain(own.all()).map(|(_, slot)| slot);
            self.add_removals(touched.filter(|slot| !core.object(*slot).is_held_by(self.node)).collect());
        }
    }

    fn add_applies(&mut self, mut slots: Vec<Slot>, at: Option<Revision>) {
        let core = self.core;
        sort_by_key(&mut slots, core);
        let dialect = (self.dialect.0, &*core.dialects[self.dialect.0]);
        for slot in slots {
            let object = core.object(slot);
            let (Some(content), Some(since)) = (&object.content, object.held_since(self.node)) else {
                continue;
            };
            let held_at = at.filter(|at| since <= *at);
            let made = object.made.of(self.dialect.0, core.dialects.len());
            frames_since(&mut self.frames, (&object.key, object.hash, content, made), held_at, dialect);
        }
    }

    fn add_removals(&mut self, mut slots: Vec<Slot>) {
        sort_by_key(&mut slots, self.core);
        // Kinds downwards; names in any order that is always the same.
        for slot in slots.into_iter().rev() {
            let object = self.core.object(slot);
            let (dialect, dialects) = (self.dialect.0, &self.core.dialects);
            let made = object.made.of(dialect, dialects.len());
            self.frames.extend(made.removal(&object.key, &*dialects[dialect]).cloned());
        }
    }

    fn finish(mut self, first: bool) -> Plan {
        let to = self.core.head;
        self.frames.push(self.core.dialects[self.dialect.0].flush(to, first));
        let bytes = self.frames.iter().map(Bytes::len).sum();
        Plan { frames: self.frames, bytes, to, _shared: self.shared }
    }
}

/// Sorts by kind and name, each once: a slot may be in everyone's view and in the node's own.
fn sort_by_key(slots: &mut Vec<Slot>, core: &Core) {
    let mut seen = BTreeSet::new();
    slots.retain(|slot| seen.insert(*slot));
    slots.sort_by(|a, b| core.object(*a).key.cmp(&core.object(*b).key));
}

/// Joins small frames into chunks of at most `size`; a larger frame stays alone.
pub(crate) fn merge(frames: Vec<Bytes>, size: usize) -> Vec<Bytes> {
    let mut chunks = Vec::new();
    let mut chunk: Vec<Bytes> = Vec::new();
    let mut length = 0;
    for frame in frames {
        if length + frame.len() > size && !chunk.is_empty() {
            chunks.push(join(&mut chunk, length));
            length = 0;
        }
        length += frame.len();
        chunk.push(frame);
    }
    if !chunk.is_empty() {
        chunks.push(join(&mut chunk, length));
    }
    chunks
}

fn join(frames: &mut Vec<Bytes>, length: usize) -> Bytes {
    if let [one] = frames.as_slice() {
        let one = one.clone();
        frames.clear();
        return one;
    }
    let mut joined = BytesMut::with_capacity(length);
    for frame in frames.drain(..) {
        joined.extend_from_slice(&frame);
    }
    joined.freeze()
}

impl Snapshots {
    fn find(&mut self, id: &(usize, Hash, usize)) -> Option<Arc<Snapshot>> {
        let snapshot = self.sent.get(id)?.upgrade()?;
        self.shared += 1;
        Some(snapshot)
    }

    fn keep(&mut self, id: (usize, Hash, usize), snapshot: &Arc<Snapshot>) {
        self.made += 1;
        self.sent.retain(|_, snapshot| snapshot.strong_count() > 0);
        self.sent.insert(id, Arc::downgrade(snapshot));
    }
}
