//! Dialects: how objects and steps become messages. Implemented by whoever knows the schema.

use std::{collections::BTreeSet, sync::Arc};

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::{
    digest::Buckets,
    few::Members,
    key::{Hash, Key, Revision},
};

/// One or more gRPC frames.
pub type Frames = Arc<[Bytes]>;

/// Which of a [`Core`](crate::Core)'s dialects, by its place in the list it was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DialectId(pub usize);

/// How a stream starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub epoch: u64,
    pub mode: StartMode,
}

/// What follows a start, and what the node may drop after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// Everything follows; whatever else the node holds is dropped.
    Snapshot,
    /// What is in these buckets follows; whatever else the node holds in them is dropped.
    Buckets(Buckets),
    /// What changed follows.
    Resume,
}

/// How objects and steps are said. Every frame is small enough for any client: well below 4 MiB.
pub trait Dialect: Send + Sync {
    /// An object that is one piece.
    fn whole(&self, key: &Key, hash: Hash, payload: &Bytes) -> Frames;

    /// A set with all its members.
    fn set(&self, key: &Key, hash: Hash, members: &Members) -> Frames;

    /// What changed in a set; none if the dialect always says the whole set.
    fn delta(&self, key: &Key, hash: Hash, put: &Members, removed: &BTreeSet<Bytes>) -> Option<Frames>;

    /// None if the dialect has no word for objects of this kind; then [`Dialect::whole`] has no frames either.
    fn removal(&self, key: &Key) -> Option<Bytes>;

    /// Said once, before the first step; none if the dialect has no word for it.
    fn start(&self, start: &Start) -> Option<Bytes>;

    /// Ends a step; `first` of the stream, after which the node is in sync.
    fn flush(&self, revision: Revision, first: bool) -> Bytes;

    /// Said instead of a start while sources are not in sync.
    fn wait(&self, sources: &[String]) -> Option<Bytes>;

    /// Whether a node that starts from nothing can be told to drop what it was not sent. If not, it is told of
    /// everything that was removed lately.
    fn sweeps(&self) -> bool;
}

/// An uncompressed gRPC frame around a message.
pub fn frame(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("messages are cut into small pieces");
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(length);
    frame.put_slice(message);
    frame.freeze()
}
