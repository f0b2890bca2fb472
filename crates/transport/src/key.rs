//! Names, revisions and content hashes of objects.

use std::{fmt, sync::Arc};

use aws_lc_rs::digest::{Context, SHA256};

/// What sort of object a key names. Lower kinds are named by higher ones: they are applied first and removed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub u8);

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub kind: Kind,
    pub name: Arc<str>,
}

impl Key {
    pub fn new(kind: Kind, name: impl Into<Arc<str>>) -> Self {
        Self { kind, name: name.into() }
    }
}

/// A moment of one [`Core`](crate::Core): the number of its publishes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Stands for an object's name and content: equal in every controller that has the same content.
///
/// Hashes are added (modulo 2^128), so that a set's changes by its members' and a digest by its objects'. They are
/// cut from SHA-256, so that nobody who writes objects can make two states look alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub u128);

impl Hash {
    /// Of parts that are told apart by their lengths.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut context = Context::new(&SHA256);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut first = [0; 16];
        first.copy_from_slice(&context.finish().as_ref()[..16]);
        Self(u128::from_le_bytes(first))
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    pub(crate) fn subtract(&mut self, other: Self) {
        self.0 = self.0.wrapping_sub(other.0);
    }

    /// The part that nodes are told. Never 0, which messages leave out.
    pub fn short(self) -> u64 {
        (self.0 as u64).max(1)
    }
}
