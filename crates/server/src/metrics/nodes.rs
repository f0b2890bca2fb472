//! Numbers of the node streams, taken from the hub when somebody asks.

use ::transport::Stats;

use super::figures::Figure;

pub(super) const FIGURES: &[Figure<Stats>] = &[
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
