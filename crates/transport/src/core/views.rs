//! A view: which objects were touched for a node, by revision, and a digest of those it holds.

use std::collections::BTreeSet;

use super::Slot;
use crate::{
    digest::Digest,
    key::{Hash, Revision},
};

/// What an object is to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Held { since: Revision },
    Lost { at: Revision },
}

/// What concerns one node, or everyone.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Each slot once.
    by_revision: BTreeSet<(Revision, Slot)>,
    held: usize,
    /// Absent while nothing is held: most of a kibibyte for nodes that come and go.
    digest: Option<Box<Digest>>,
    /// The sum of the hashes of all objects held.
    fingerprint: Hash,
    /// A node that stands before this may have missed a loss that is forgotten.
    pub horizon: Revision,
}

impl View {
    pub fn is_empty(&self) -> bool {
        self.by_revision.is_empty()
    }

    pub fn newest(&self) -> Revision {
        self.by_revision.last().map_or(Revision(0), |(revision, _)| *revision)
    }

    pub fn held(&self) -> usize {
        self.held
    }

    pub fn fingerprint(&self) -> Hash {
        self.fingerprint
    }

    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_deref()
    }

    /// Slots touched after a revision, oldest first.
    pub fn since(&self, revision: Revision) -> impl Iterator<Item = Slot> {
        self.by_revision.range((Revision(revision.0 + 1), 0)..).map(|(_, slot)| *slot)
    }

    pub fn all(&self) -> impl Iterator<Item = (Revision, Slot)> {
        self.by_revision.iter().copied()
    }

    pub fn mark(&mut self, slot: Slot, at: Revision) {
        self.by_revision.insert((at, slot));
    }

    pub fn unmark(&mut self, slot: Slot, at: Revision) {
        let had = self.by_revision.remove(&(at, slot));
        debug_assert!(had, "a touch is unmarked where it was marked");
    }

    pub fn hold(&mut self, hash: Hash) {
        self.held += 1;
        self.fingerprint.add(hash);
        self.digest.get_or_insert_default().add(hash.short());
    }

    pub fn drop_held(&mut self, hash: Hash) {
        self.held -= 1;
        self.fingerprint.subtract(hash);
        if let Some(digest) = &mut self.digest {
            digest.subtract(hash.short());
        }
        if self.held == 0 {
            self.digest = None;
        }
    }
}
