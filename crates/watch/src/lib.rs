//! The watch: the engine's state as stock Antrea agents and kubectl read it, `controlplane.antrea.io/v1beta2`.
//!
//! In: the engine's [`Update`](model::policy::output::Update)s ([`Cache::apply`]), nodes' reports ([`Cache::report`]).
//! Out: frames ([`Cache::watch`]), bodies of replies ([`Cache::list`], [`Cache::get`]), the documents of
//! [`discovery`], how far nodes are ([`Cache::realisations`]), what they counted ([`Cache::statistics`]). Holds: the present version of every object, and per
//! watcher what it has still to learn. Not here: HTTP, who may ask (`server`), what a policy means (`policy`).
//!
//! Frames are encoded when first needed, once per encoding, and shared. A reader that stops reading costs one entry per
//! object it is behind on and delays nobody. No I/O, no clock: time and randomness belong to the caller.

pub mod asked;
mod cache;
mod convert;
pub mod discovery;
mod encode;
mod encoding;
mod members;
mod objects;
mod oversize;
pub mod proto;
mod query;
mod realisation;
mod resource;
mod spans;
mod statistics;
mod version;
mod watcher;

pub use cache::{Cache, NotSynced, View, WatchError};
pub use convert::{action_name, direction_name, source_kind};
pub use encode::{API_VERSION, GROUP, MAGIC, VERSION, document, frames};
pub use encoding::Encoding;
pub use objects::{Expired, Start};
pub use query::{BodyError, Query, QueryError, encoding_for, read_body};
pub use realisation::{Millis, Others, Outcome, Phase, Realisation, Report, ReportsOf, Taken};
pub use resource::Resource;
pub use statistics::StatsResource;
pub use watcher::Watch;
