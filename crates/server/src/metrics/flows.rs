//! Numbers of the record of flows, taken from it when somebody asks.

use drivers::flows::FlowStats;

use super::figures::Figure;

pub(super) const FIGURES: &[Figure<FlowStats>] = &[
    ("flows_allowed", "Connections that nodes have told of, and that were allowed", |stats| stats.allowed),
    ("flows_denied", "Packets that nodes have told of, and that were denied", |stats| stats.denied),
    ("flows_observed", "Packets that would have been denied, of nodes that only observe", |stats| {
        stats.observed
    }),
    ("flows_rows", "Rows of flows recorded", |stats| stats.rows),
    ("flows_failures", "Reports of flows that could not be recorded, and are told again", |stats| {
        stats.failures
    }),
    ("flows_lost", "Messages of kernels that nodes say they have lost", |stats| stats.lost),
    ("flows_unread", "Messages of kernels that were counted like the next one that was read", |stats| {
        stats.unread
    }),
    ("flows_exported", "Rows of flows that collectors have taken", |stats| stats.exported),
    ("flows_export_lost", "Rows of flows that found no room, or that a collector would not take", |stats| {
        stats.export_lost
    }),
    ("flows_export_failures", "Calls of collectors that failed, and are made again", |stats| {
        stats.export_failures
    }),
    ("flows_bytes", "Size of the record of flows on disk", |stats| stats.bytes),
];
