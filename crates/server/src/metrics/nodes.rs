//! Numbers of the node streams, taken from the hub when somebody asks.

use ::transport::Stats;
use prometheus_client::metrics::gauge::Gauge;

/// One gauge per figure. Those that only grow are gauges too: the hub counts, this only shows.
pub(super) struct NodeMetrics(Vec<(Gauge, Read)>);

type Read = fn(&Stats) -> u64;
type Figure = (&'static str, &'static str, Read);

const FIGURES: &[Figure] = &[
    ("nodes_connected", "Nodes with an open stream", |stats| stats.sessions as u64),
    ("nodes_known", "Nodes that some object is or was lately meant for", |stats| stats.nodes as u64),
    ("node_objects", "Objects handed out to nodes", |stats| stats.objects as u64),
    ("node_revision", "Newest revision of the objects handed out", |stats| stats.head.0),
    ("node_losses", "Removals remembered for nodes that resume", |stats| stats.losses as u64),
    ("node_bytes_sent", "Bytes given to node streams", |stats| stats.bytes_sent),
    ("node_writes", "Writes given to node streams", |stats| stats.frames_sent),
    ("node_steps", "Steps given to node streams", |stats| stats.steps),
    ("node_snapshots_made", "Snapshots made", |stats| stats.snapshots_made),
    ("node_snapshots_shared", "Snapshots taken from another node's", |stats| stats.snapshots_shared),
    ("node_large_waiting", "Nodes that wait for their turn to be sent a large step", |stats| {
        stats.large_waiting
    }),
    ("node_superseded", "Streams ended by a newer one of the same node", |stats| stats.superseded),
    ("node_stalled", "Nodes cut because they took no bytes", |stats| stats.stalled),
    ("node_refused", "Streams refused because the node was connected", |stats| stats.refused),
    ("node_unapplied_milliseconds", "Age of the oldest step a node was sent and has not applied", |stats| {
        stats.oldest_unapplied.as_millis() as u64
    }),
];

impl NodeMetrics {
    pub fn new(gauge: &mut impl FnMut(&'static str, &'static str) -> Gauge) -> Self {
        Self(FIGURES.iter().map(|(name, help, read)| (gauge(name, help), *read)).collect())
    }

    pub fn observe(&self, stats: &Stats) {
        for (gauge, read) in &self.0 {
            gauge.set(i64::try_from(read(stats)).unwrap_or(i64::MAX));
        }
    }
}
