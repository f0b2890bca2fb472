//! What a backend must do, in types.

use std::{fmt, ops::Deref, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

/// A point in the store's history. 0 is before the first write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// One stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub value: Bytes,
    /// Revision of the transaction that created the key (again).
    pub created: Revision,
    /// Revision of the transaction that wrote this value.
    pub modified: Revision,
    pub lease: Option<LeaseId>,
}

/// All entries below a prefix, at one revision, sorted by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub entries: Vec<Entry>,
    pub revision: Revision,
}
