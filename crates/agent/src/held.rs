//! What a node holds: the controller's messages in, whole steps out. Pure.
//!
//! Messages gather until a flush; only then, and only if all of them make sense, does the step take place. So a stream
//! that breaks at any message leaves the state of the last flush, with the token and the digest that name it.
//!
//! ```text
//!   wait start apply remove … ──► pending ── flush ──► objects ──► Step: which keys changed
//!                                    │ broken, or does not fit
//!                                    └──► forgotten
//! ```
//!
//! Not here: what objects mean (the parts), the stream (`feed`), the disk (`journal`, which replays through here).

mod gathered;
mod object;

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use transport::{Digest, bucket};
use wire::trestle::v1::{
    NodeApply, NodeFlush, NodeRemove, NodeStart, ToNode, node_apply, node_start::Mode, to_node,
};

pub use gathered::Gathered;
pub use object::{Content, Difference, Encoded, Key, Members, Object, member_id};

/// The moment of a controller that a node's state is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub epoch: u64,
    pub revision: u64,
}

/// A message that a correct controller would not have sent. The stream it came on is of no more use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    #[error("a step without a start at the beginning of the stream")]
    NoStart,
    #[error("a start of unknown mode {0}")]
    UnknownMode(i32),
    #[error("a resume from a state of epoch {theirs}, and the state held is of {ours:?}")]
    OtherEpoch { theirs: u64, ours: Option<u64> },
    #[error("a flush of revision {to} after one of {from}")]
    Backwards { from: u64, to: u64 },
    #[error("a change of set {0}, of which nothing is held")]
    NoBase(String),
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Taken {
    /// Part of a step that is not whole yet.
    Pending,
    /// The controller is not in sync with these sources; everything stays as it is.
    Wait(Vec<String>),
    /// A message of a kind this version does not know.
    Skipped,
    /// What the step changed, and the messages that made it.
    Step(Step, Gathered),
}

/// How objects differ from before.
pub type Differences = BTreeMap<Key, Difference>;

/// What a flush changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Objects that are new, differ from before, or are gone.
    pub changed: Differences,
    /// Whether this step brought the node from wherever it was to the controller's present.
    pub synced: bool,
}

impl Step {
    /// Two steps as one.
    pub fn join(&mut self, later: Self) {
        for (key, difference) in later.changed {
            note(&mut self.changed, key, difference);
        }
        self.synced |= later.synced;
    }
}

/// The objects of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    objects: BTreeMap<Key, Object>,
    token: Option<Token>,
    pending: Gathered,
    /// Whether the stream has said where it starts from.
    started: bool,
    tells_pods: bool,
}

impl Held {
    /// Whether the controller tells which Pods it covers.
    pub fn tells_pods(&self) -> bool {
        self.tells_pods
    }

    pub fn token(&self) -> Option<Token> {
        self.token
    }

    pub fn get(&self, key: &Key) -> Option<&Object> {
        self.objects.get(key)
    }

    pub fn objects(&self) -> impl Iterator<Item = (&Key, &Object)> {
        self.objects.iter()
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The sums that tell a controller what is held, without naming it. O(objects), once per stream.
    pub fn digest(&self) -> Digest {
        let mut digest = Digest::default();
        self.objects.values().for_each(|object| digest.add(object.hash));
        digest
    }

    /// A stream begins: whatever an earlier one left unfinished is forgotten.
    pub fn begin(&mut self) {
        self.pending = Gathered::default();
        self.started = false;
    }

    /// Forgets which moment the state is of, so that the next controller compares digests.
    pub fn distrust(&mut self) {
        self.token = None;
    }

    /// Forgets objects that a version which did not know their kind left without content. The next controller finds
    /// them missing by their digest.
    pub fn forget_unknown(&mut self) {
        let before = self.objects.len();
        self.objects.retain(|_, object| object.content != Content::Unknown);
        if self.objects.len() != before {
            self.distrust();
        }
    }

    /// Takes the next message of the stream. After nonsense the state is that of the last flush.
    pub fn take(&mut self, message: ToNode) -> Result<Taken, Nonsense> {
        match &message.message {
            None => Ok(Taken::Skipped),
            Some(to_node::Message::Wait(wait)) => Ok(Taken::Wait(wait.sources.clone())),
            Some(to_node::Message::Flush(flush)) => {
                let mut pending = std::mem::take(&mut self.pending);
                let step = self.flush(&pending, *flush)?;
                pending.push(&message);
                Ok(Taken::Step(step, pending))
            }
            Some(_) => {
                self.pending.push(&message);
                Ok(Taken::Pending)
            }
        }
    }

    /// The messages that make this state out of nothing; none if there is no state.
    pub fn messages(&self) -> Option<impl Iterator<Item = ToNode> + '_> {
        let Token { epoch, revision } = self.token?;
        let say = |message| ToNode { message: Some(message) };
        let mode = Mode::Snapshot.into();
        let start = to_node::Message::Start(NodeStart {
            epoch,
            mode,
            buckets: Vec::new(),
            tells_pods: self.tells_pods,
        });
        let applies = self.objects.iter().map(|(key, object)| to_node::Message::Apply(object.apply(key)));
        let flush = to_node::Message::Flush(NodeFlush { revision, synced: true });
        Some(std::iter::once(start).chain(applies).chain([flush]).map(say))
    }

    fn flush(&mut self, pending: &Gathered, flush: NodeFlush) -> Result<Step, Nonsense> {
        let start = self.check(pending, flush)?;
        let mut step = Step { synced: start.is_some(), ..Step::default() };
        let mut sent = BTreeSet::new();
        for message in pending.messages() {
            match message.message {
                Some(to_node::Message::Apply(apply)) => {
                    sent.insert(Key::new(apply.kind, &apply.name));
                    self.apply(apply, &mut step.changed);
                }
                Some(to_node::Message::Remove(NodeRemove { kind, name })) => {
                    let key = Key { kind, name };
                    if self.objects.remove(&key).is_some() {
                        note(&mut step.changed, key, Difference::Gone);
                    }
                }
                _ => {}
            }
        }
        if let Some(start) = start {
            self.sweep(&start, &sent, &mut step.changed);
            self.token = Some(Token { epoch: start.epoch, revision: flush.revision });
            self.started = true;
            self.tells_pods = start.tells_pods;
        } else if let Some(token) = &mut self.token {
            token.revision = flush.revision;
        }
        Ok(step)
    }

    /// The start that a step holds, if the step makes sense. Nothing is changed.
    fn check(&self, pending: &Gathered, flush: NodeFlush) -> Result<Option<NodeStart>, Nonsense> {
        let mut start = None;
        // Whether an object is a set by now, for those that the step has touched.
        let mut sets = BTreeMap::new();
        for message in pending.messages() {
            match message.message {
                Some(to_node::Message::Start(found)) => start = Some(found),
                Some(to_node::Message::Apply(apply)) => {
                    let key = Key::new(apply.kind, &apply.name);
                    let is_set = || sets.get(&key).copied().unwrap_or_else(|| self.is_set(&key));
                    let becomes_set = match &apply.body {
                        Some(node_apply::Body::Set(set)) if !set.replace && !is_set() => {
                            return Err(Nonsense::NoBase(key.name));
                        }
                        body => matches!(body, Some(node_apply::Body::Set(_))),
                    };
                    sets.insert(key, becomes_set);
                }
                Some(to_node::Message::Remove(remove)) => {
                    sets.insert(Key::new(remove.kind, &remove.name), false);
                }
                _ => {}
            }
        }
        let epoch = self.token.map(|token| token.epoch);
        let continues = match &start {
            None if !self.started => return Err(Nonsense::NoStart),
            None => true,
            Some(start) => match start.mode() {
                Mode::Unspecified => return Err(Nonsense::UnknownMode(start.mode)),
                Mode::Resume if epoch != Some(start.epoch) => {
                    return Err(Nonsense::OtherEpoch { theirs: start.epoch, ours: epoch });
                }
                Mode::Resume => true,
                Mode::Snapshot | Mode::Buckets => false,
            },
        };
        match self.token {
            Some(Token { revision, .. }) if continues && flush.revision < revision => {
                Err(Nonsense::Backwards { from: revision, to: flush.revision })
            }
            _ => Ok(start),
        }
    }

    fn is_set(&self, key: &Key) -> bool {
        matches!(self.objects.get(key), Some(Object { content: Content::Set(_), .. }))
    }

    fn apply(&mut self, apply: NodeApply, changed: &mut Differences) {
        let NodeApply { kind, name, hash, body } = apply;
        let key = Key { kind, name };
        let object = self.objects.entry(key.clone()).or_insert_with(|| {
            // An object that was not there is changed even if it is empty.
            note(changed, key.clone(), Difference::Whole);
            Object { hash, content: Content::Unknown }
        });
        object.hash = hash;
        if let Some(difference) = object.content.update(body) {
            note(changed, key, difference);
        }
    }

    /// Drops what the start says is gone: what was held in the places it names, and was not sent.
    fn sweep(&mut self, start: &NodeStart, sent: &BTreeSet<Key>, changed: &mut Differences) {
        let is_swept = |hash: u64| match start.mode() {
            Mode::Snapshot => true,
            Mode::Buckets => start.buckets.contains(&(bucket(hash) as u32)),
            Mode::Resume | Mode::Unspecified => false,
        };
        self.objects.retain(|key, object| {
            let stays = sent.contains(key) || !is_swept(object.hash);
            if !stays {
                note(changed, key.clone(), Difference::Gone);
            }
            stays
        });
    }
}

fn note(changed: &mut Differences, key: Key, difference: Difference) {
    match changed.entry(key) {
        Entry::Vacant(entry) => drop(entry.insert(difference)),
        Entry::Occupied(mut entry) => entry.get_mut().join(difference),
    }
}

#[cfg(test)]
mod tests;
