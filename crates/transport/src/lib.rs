//! Fan-out: one writer, many nodes, each kept at the present by a cursor.
//!
//! In: [`Change`]s from [`Source`]s: keyed objects with an encoded payload and a span, the nodes that need them.
//! Out: one stream of frames per node, made once and shared by all. Holds: the newest state of every object, a
//! by-revision index per span, and a small session per connected node; no queue and no encoding per node.
//!
//! ```text
//!   source ─ publish ─► Core ──────── plan(node, cursor) ──► FeedBody ─► HTTP/2 ─► node
//!   source ─ publish ─►  │ objects: hash, span, frames           ▲ cursor, the frames of one step
//!                        │ views:   revision ─► object           │
//!                        └ touched ─► pacer ─ wake ──────────────┘
//! ```
//!
//! [`core`] decides and is pure; [`Hub`] and [`FeedBody`] act. What a frame looks like is a [`Dialect`], a trait of
//! this room, so that it knows neither policies nor protobuf schemas. `docs/transport.md` has the invariants.
//! Not here: the messages (`wire`), who may connect (`server`).

mod body;
pub mod core;
mod deframe;
mod dialect;
mod digest;
mod few;
mod hub;
mod key;
mod object;
mod session;
mod steps;

pub use body::FeedBody;
pub use core::{Change, Concerned, Core, From, HeldObject, Plan, SpanChange};
pub use deframe::{Deframer, FrameError};
pub use dialect::{Dialect, DialectId, Frames, Start, StartMode, frame};
pub use digest::{BUCKETS, Buckets, Digest, bucket};
pub use few::Members;
pub use hub::{Hub, Options, Source, Standing, Stats};
pub use key::{Hash, Key, Kind, Revision};
pub use object::Member;
pub use session::{Duplicate, End, Opening, Refused, Session, SessionView};
pub use steps::Had;
