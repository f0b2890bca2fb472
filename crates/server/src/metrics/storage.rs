//! Numbers of the storage provider.

use drivers::storage::StorageStats;

use super::figures::Figure;

pub(super) const FIGURES: &[Figure<StorageStats>] = &[
    ("storage_consumers_configuring", "Consumers whose storage is being made", |stats| stats.configuring),
    ("storage_consumers_ready", "Consumers that can use their storage", |stats| stats.ready),
    ("storage_consumers_failed", "Consumers whose storage or network does not follow", |stats| stats.failed),
    ("storage_consumers_deleting", "Consumers that are being removed", |stats| stats.deleting),
    ("storage_granted_bytes", "Bytes promised to consumers", |stats| stats.granted_bytes),
    ("storage_used_bytes", "Bytes in use by consumers", |stats| stats.used_bytes),
    ("storage_capacity_bytes", "Bytes that can be promised in all", |stats| stats.capacity_bytes),
    ("nbd_connections", "Open connections to the NBD server", |stats| stats.nbd_connections),
    ("nbd_refused", "NBD connections closed at once: too many open", |stats| stats.nbd_refused),
];
