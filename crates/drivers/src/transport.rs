//! The transport as a part of the controller: what sources publish, and what becomes of connected nodes.
//!
//! In: the policy engine's updates, and [`objects`] of other sources by [`Transport::source`]. Out: frames for the streams
//! that somebody serves from the hub. Holds: the hub, with its three dialects.
//! Not here: fan-out itself (the crate `transport`), what policies mean (`policy`).

mod node_dialect;
mod npm_dialect;
mod npm_later;
pub mod objects;
mod policy_consumer;
mod told;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ::transport::{Core, DialectId, Duplicate, Hub, Options, Source};
use life::Life;

pub use self::{node_dialect::NodeDialect, npm_dialect::NpmDialect, npm_later::NpmLaterDialect};

use crate::{
    config::{DuplicateNode, NodesConfig},
    policy::Consumer,
    random,
};

/// The dialects, by their place in the hub's list.
pub const NODE: DialectId = DialectId(0);
pub const SEED: DialectId = DialectId(1);
pub const LATER: DialectId = DialectId(2);

/// The source that the policy engine's updates come from.
const POLICY_SOURCE: &str = "policy";
/// The source that services and their endpoints come from.
const SERVICES_SOURCE: &str = "services";

/// Handle on the fan-out.
pub struct Transport {
    pub hub: Arc<Hub>,
    told: PathBuf,
}

impl Transport {
    /// Nodes are told nothing until the policy engine, the services and all of `sources` are in sync.
    /// In `data_dir` is written down what they were told.
    pub fn start(config: &NodesConfig, data_dir: &Path, sources: &[&str], life: &Life) -> Arc<Self> {
        let core =
            Core::new(epoch(), vec![Arc::new(NodeDialect), Arc::new(NpmDialect), Arc::new(NpmLaterDialect)]);
        let options = Options {
            duplicate: match config.duplicate {
                DuplicateNode::Newest => Duplicate::Newest,
                DuplicateNode::Existing => Duplicate::Existing,
            },
            stall: Duration::from_secs(config.stall_seconds),
            max_large: config.max_snapshots,
            ..Options::default()
        };
        let sources: Vec<_> = sources.iter().copied().chain([POLICY_SOURCE, SERVICES_SOURCE]).collect();
        let hub = Hub::start(core, &sources, options, life);
        Arc::new(Self { hub, told: data_dir.join("told") })
    }

    /// Who the policy engine's driver tells.
    pub fn policy_consumer(&self) -> Box<dyn Consumer> {
        let source = self.source(POLICY_SOURCE).expect("the hub was started with it");
        Box::new(policy_consumer::PolicyConsumer { source, told: told::Told::open(self.told.clone()) })
    }

    /// What services and their endpoints are published through.
    pub fn services_source(&self) -> Source {
        self.source(SERVICES_SOURCE).expect("the hub was started with it")
    }

    /// The handle a driver publishes through; none if there is no source of this name.
    pub fn source(&self, name: &str) -> Option<Source> {
        self.hub.source(name)
    }
}

/// Tells the revisions of this run from those of every other.
fn epoch() -> u64 {
    u64::from_le_bytes(random::bytes())
}
