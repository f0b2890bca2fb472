//! Publishing: a batch of changes becomes one revision.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;

use super::{Core, NodeIndex, Object, Presence, Slot};
use crate::{
    few::Few,
    key::{Hash, Key, Revision},
    object::{Content, Frameset, Member, Set, empty_set_hash, object_hash},
};

/// One change of one object. All changes of a batch reach a node in the same step.
#[derive(Clone, Debug)]
pub enum Change {
    /// Puts or replaces an object that is one piece.
    Put {
        key: Key,
        payload: Bytes,
        span: SpanChange,
    },
    /// Puts a set, or makes its members these.
    PutSet {
        key: Key,
        members: Vec<Member>,
        span: SpanChange,
    },
    /// Puts and takes members. A set that does not exist is made, with these members alone.
    Members {
        key: Key,
        put: Vec<Member>,
        removed: Vec<Bytes>,
        span: SpanChange,
    },
    Remove {
        key: Key,
    },
    /// Says of an object that is not there that it was: nodes that start from nothing, and cannot be told to drop what
    /// they are not sent, are told of its removal.
    Gone {
        key: Key,
    },
}

/// What becomes of the nodes that need an object.
#[derive(Clone, Debug)]
pub enum SpanChange {
    Keep,
    /// Every node, also those that come later.
    Everyone,
    /// These and no others.
    Nodes(BTreeSet<Arc<str>>),
    /// Some more, some fewer. Without effect on an object that everyone needs.
    Move {
        gained: Vec<Arc<str>>,
        lost: Vec<Arc<str>>,
    },
}

impl Core {
    /// Applies a batch as one step. A batch that changes nothing makes no revision.
    pub fn publish(&mut self, changes: impl IntoIterator<Item = Change>) -> Revision {
        let had = std::mem::take(&mut self.touched);
        let mut step = Step { core: self, changed: false };
        for change in changes {
            step.apply(change);
        }
        if step.changed {
            self.head = self.next();
            self.note_wave();
            self.forget_losses();
        }
        self.touched.everyone |= had.everyone;
        self.touched.nodes.extend(had.nodes);
        self.head
    }

    /// Remembers whom this publish concerned, and no other.
    fn note_wave(&mut self) {
        self.touched.nodes.sort_unstable();
        self.touched.nodes.dedup();
        let names = self.touched.nodes.iter().filter_map(|node| self.nodes.name(*node)).collect();
        self.waves.note(self.head, self.touched.everyone, names);
    }

    fn next(&self) -> Revision {
        Revision(self.head.0 + 1)
    }

    fn forget_losses(&mut self) {
        while self.losses.len() > self.kept_losses {
            let Some((at, slot, node)) = self.losses.pop_front() else { break };
            // The node may have got the object back since, or lost it again.
            if self.objects[slot as usize].as_ref().is_some_and(|object| object.lost_at(node) == Some(at)) {
                self.horizon = at;
                self.object_mut(slot).presence.remove(&node);
                let view = &mut self.views[node.0 as usize];
                view.unmark(slot, at);
                view.horizon = at;
                self.free_if_unknown(slot);
                self.release(node);
            }
        }
    }

    fn free_if_unknown(&mut self, slot: Slot) {
        let object = self.object(slot);
        if object.content.is_none() && object.presence.is_empty() {
            let key = object.key.clone();
            self.slots.remove(&key);
            self.objects[slot as usize] = None;
            self.free.push(slot);
        }
    }

    fn slot_for(&mut self, key: &Key) -> Slot {
        if let Some(slot) = self.slots.get(key) {
            return *slot;
        }
        let object = Some(Box::new(Object {
            key: key.clone(),
            content: None,
            hash: Hash::default(),
            revision: self.head,
            presence: Few::default(),
            made: Frameset::default(),
        }));
        let slot = match self.free.pop() {
            Some(slot) => {
                self.objects[slot as usize] = object;
                slot
            }
            None => {
                self.objects.push(object);
                Slot::try_from(self.objects.len() - 1).expect("there are fewer objects than addresses")
            }
        };
        self.slots.insert(key.clone(), slot);
        slot
    }
}

impl Object {
    fn lost_at(&self, node: NodeIndex) -> Option<Revision> {
        match self.presence.get(&node) {
            Some(Presence::Lost { at }) => Some(*at),
            Some(Presence::Held { .. }) | None => None,
        }
    }

    fn holders(&self) -> Vec<(NodeIndex, Revision)> {
        let held = |(node, presence): (&NodeIndex, &Presence)| match presence {
            Presence::Held { since } => Some((*node, *since)),
            Presence::Lost { .. } => None,
        };
        self.presence.iter().filter_map(held).collect()
    }
}

/// One publish under way. Everything it does happens at the revision after the head.
struct Step<'a> {
    core: &'a mut Core,
    changed: bool,
}

impl Step<'_> {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Put { key, payload, span } => {
                let slot = self.core.slot_for(&key);
                self.put_whole(slot, payload);
                self.place(slot, span);
            }
            Change::PutSet { key, members, span } => {
                let slot = self.core.slot_for(&key);
                let surplus = match &self.core.object(slot).content {
                    Some(Content::Set(set)) => set.surplus(&members),
                    Some(Content::Whole(_)) | None => Vec::new(),
                };
                self.put_members(slot, members, surplus);
                self.place(slot, span);
            }
            Change::Members { key, put, removed, span } => {
                let slot = self.core.slot_for(&key);
                self.put_members(slot, put, removed);
                self.place(slot, span);
            }
            Change::Remove { key } => {
                if let Some(slot) = self.core.slots.get(&key).copied() {
                    self.remove(slot);
                }
            }
            Change::Gone { key } => {
                let slot = self.core.slot_for(&key);
                if self.core.object(slot).content.is_none() {
                    self.miss(slot);
                }
            }
        }
    }

    fn put_whole(&mut self, slot: Slot, payload: Bytes) {
        let object = self.core.object_mut(slot);
        if matches!(&object.content, Some(Content::Whole(had)) if *had == payload) {
            return;
        }
        let (was, hash) = (object.hash, object_hash(&object.key, &payload));
        object.content = Some(Content::Whole(payload));
        object.hash = hash;
        self.content_changed(slot, was);
    }

    fn put_members(&mut self, slot: Slot, put: Vec<Member>, removed: Vec<Bytes>) {
        let (next, dialects) = (self.core.next(), self.core.dialects.len());
        let object = self.core.object_mut(slot);
        let (was, from) = (object.hash, object.revision);
        if let Some(Content::Set(set)) = &mut object.content {
            let difference = set.change(&mut object.hash, put, removed);
            if difference.is_empty() {
                return;
            }
            // A set that was made in this very step has no earlier state to differ from.
            if from < next || set.has_deltas() {
                set.remember(from, next, object.hash, difference, dialects);
            }
        } else {
            let mut hash = empty_set_hash(&object.key);
            let set = Set::new(&mut hash, put);
            (object.content, object.hash) = (Some(Content::Set(set)), hash);
        }
        self.content_changed(slot, was);
    }

    /// Moves the object to the next revision in the view of each who holds it.
    fn content_changed(&mut self, slot: Slot, was: Hash) {
        self.changed = true;
        let next = self.core.next();
        let object = self.core.object_mut(slot);
        object.made.forget_images();
        let (before, hash, holders) = (object.revision, object.hash, object.holders());
        object.revision = next;
        for (node, since) in holders {
            let view = &mut self.core.views[node.0 as usize];
            view.unmark(slot, since.max(before));
            view.mark(slot, next);
            view.drop_held(was);
            view.hold(hash);
            self.touch(node);
        }
    }

    fn remove(&mut self, slot: Slot) {
        if self.core.object(slot).content.is_none() {
            return;
        }
        self.changed = true;
        for (node, _) in self.core.object(slot).holders() {
            self.lose(slot, node);
        }
        let object = self.core.object_mut(slot);
        object.content = None;
        object.made.forget_images();
        self.core.free_if_unknown(slot);
    }

    fn place(&mut self, slot: Slot, span: SpanChange) {
        let holders = self.core.object(slot).holders();
        let is_everyones = holders.first().is_some_and(|(node, _)| *node == NodeIndex::EVERYONE);
        match span {
            SpanChange::Keep => {}
            SpanChange::Everyone if is_everyones => {}
            SpanChange::Everyone => {
                // Everyone first: nobody who has it is told to drop it in between.
                self.gain(slot, NodeIndex::EVERYONE);
                holders.into_iter().for_each(|(node, _)| self.lose(slot, node));
            }
            SpanChange::Nodes(names) => {
                let nodes: BTreeSet<_> = names.iter().map(|name| self.core.intern(name)).collect();
                for (node, _) in holders.iter().filter(|(node, _)| !nodes.contains(node)) {
                    self.lose(slot, *node);
                }
                nodes.into_iter().for_each(|node| self.gain(slot, node));
            }
            SpanChange::Move { .. } if is_everyones => {}
            SpanChange::Move { gained, lost } => {
                for node in lost.iter().filter_map(|name| self.core.node(name)).collect::<Vec<_>>() {
                    self.lose(slot, node);
                }
                for name in gained {
                    let node = self.core.intern(&name);
                    self.gain(slot, node);
                }
            }
        }
    }

    fn gain(&mut self, slot: Slot, node: NodeIndex) {
        let next = self.core.next();
        let object = self.core.object_mut(slot);
        let hash = object.hash;
        let was = object.presence.insert(node, Presence::Held { since: next });
        if let Some(held @ Presence::Held { .. }) = was {
            object.presence.insert(node, held);
            return;
        }
        self.changed = true;
        let view = &mut self.core.views[node.0 as usize];
        if let Some(Presence::Lost { at }) = was {
            view.unmark(slot, at);
        }
        view.mark(slot, next);
        view.hold(hash);
        self.touch(node);
    }

    fn lose(&mut self, slot: Slot, node: NodeIndex) {
        let next = self.core.next();
        let object = self.core.object_mut(slot);
        let Some(Presence::Held { since }) = object.presence.get(&node).copied() else { return };
        object.presence.insert(node, Presence::Lost { at: next });
        let (marked_at, hash) = (since.max(object.revision), object.hash);
        self.changed = true;
        let view = &mut self.core.views[node.0 as usize];
        view.unmark(slot, marked_at);
        view.mark(slot, next);
        view.drop_held(hash);
        self.core.losses.push_back((next, slot, node));
        self.touch(node);
    }

    /// Everyone lost it before this core began.
    fn miss(&mut self, slot: Slot) {
        let (next, everyone) = (self.core.next(), NodeIndex::EVERYONE);
        let object = self.core.object_mut(slot);
        if object.presence.get(&everyone).is_some() {
            return;
        }
        object.presence.insert(everyone, Presence::Lost { at: next });
        self.changed = true;
        self.core.views[everyone.0 as usize].mark(slot, next);
        self.core.losses.push_back((next, slot, everyone));
    }

    fn touch(&mut self, node: NodeIndex) {
        match node {
            NodeIndex::EVERYONE => self.core.touched.everyone = true,
            node => self.core.touched.nodes.push(node),
        }
    }
}
