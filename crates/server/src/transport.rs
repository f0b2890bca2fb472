//! The transport as a part of the controller: what sources publish, and what becomes of connected nodes.
//!
//! In: [`objects`] from the sources' drivers, by [`Transport::source`]. Out: streams, through `grpc::node_feed` and
//! `grpc::dataplane_events`. Holds: the hub, with its two dialects, and the watch that ends the streams of nodes
//! whose certificate is no longer good.
//! Not here: fan-out itself (`transport`), policies (`policy`).

mod node_dialect;
pub mod objects;
mod seed_dialect;

use std::{sync::Arc, time::Duration};

use ::transport::{Core, DialectId, Duplicate, End, Hub, Options, Source};
use aws_lc_rs::rand;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

pub use self::{node_dialect::NodeDialect, seed_dialect::SeedDialect};
use crate::{
    access::Credentials,
    config::{DuplicateNode, NodesConfig},
};

/// The dialects, by their place in the hub's list.
pub const NODE: DialectId = DialectId(0);
pub const SEED: DialectId = DialectId(1);

/// The source that the policy engine's driver publishes as.
pub const POLICY_SOURCE: &str = "policy";
/// All sources. Nodes are told nothing until every one of them is in sync.
const SOURCES: &[&str] = &[POLICY_SOURCE];
/// Certificates also end by the clock.
const EXPIRY_CHECK: Duration = Duration::from_secs(60);

/// Handle on the fan-out.
pub struct Transport {
    pub hub: Arc<Hub>,
}

impl Transport {
    pub fn start(config: &NodesConfig, credentials: &Arc<Credentials>, stop: &CancellationToken) -> Arc<Self> {
        let core = Core::new(epoch(), vec![Arc::new(NodeDialect), Arc::new(SeedDialect)]);
        let options = Options {
            duplicate: match config.duplicate {
                DuplicateNode::Newest => Duplicate::Newest,
                DuplicateNode::Existing => Duplicate::Existing,
            },
            stall: Duration::from_secs(config.stall_seconds),
            max_large: config.max_snapshots,
            ..Options::default()
        };
        let hub = Hub::start(core, SOURCES, options, stop.clone());
        let (watched, credentials, stop) = (Arc::clone(&hub), Arc::clone(credentials), stop.clone());
        tokio::spawn(async move { stop.run_until_cancelled(end_revoked(&watched, &credentials)).await });
        Arc::new(Self { hub })
    }

    /// The handle a driver publishes through; none if there is no source of this name.
    pub fn source(&self, name: &str) -> Option<Source> {
        self.hub.source(name)
    }
}

/// Ends the streams of nodes whose certificate was revoked or has expired.
async fn end_revoked(hub: &Hub, credentials: &Credentials) {
    let mut changes = credentials.certificate_changes();
    loop {
        // Either the certificates changed, or time went by; both are looked at in the same way.
        let _ = tokio::time::timeout(EXPIRY_CHECK, changes.changed()).await;
        let now = Timestamp::now();
        hub.end_where(|session| {
            let serial = session.credential.as_deref()?;
            let end = || End { code: 16, message: "the node's certificate was revoked or has expired".to_owned() };
            (!credentials.is_usable(serial, now)).then(end)
        });
    }
}

/// Tells the revisions of this run from those of every other.
fn epoch() -> u64 {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).expect("the system's random source works");
    u64::from_le_bytes(bytes)
}
