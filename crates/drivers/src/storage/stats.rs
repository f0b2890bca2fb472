//! Figures of the provider at one moment, for metrics.

use storage_backend::{Backend as _, VolumeFigures};
use storage_provider::Phase;

use super::Storage;

/// What an operator watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageStats {
    pub configuring: u64,
    pub ready: u64,
    pub failed: u64,
    pub deleting: u64,
    pub granted_bytes: u64,
    pub used_bytes: u64,
    /// What could be granted in all.
    pub capacity_bytes: u64,
    pub nbd_connections: u64,
    pub nbd_refused: u64,
    /// Each consumer with what it was granted and uses.
    pub consumers: Vec<ConsumerStats>,
    /// What clients did with each volume.
    pub volumes: Vec<VolumeFigures>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStats {
    pub id: String,
    pub name: String,
    pub granted_bytes: u64,
    pub used_bytes: u64,
    /// Seconds since 1970.
    pub last_seen: Option<u64>,
}

impl Storage {
    /// What can be read of it now; what cannot stays 0.
    pub async fn stats(&self) -> StorageStats {
        let mut stats = StorageStats::default();
        let usage = self.provider.usage_all().await.unwrap_or_default();
        for consumer in self.provider.consumers().await.unwrap_or_default() {
            *match consumer.phase {
                Phase::Configuring => &mut stats.configuring,
                Phase::Ready => &mut stats.ready,
                Phase::Failed { .. } => &mut stats.failed,
                Phase::Deleting { .. } => &mut stats.deleting,
            } += 1;
            stats.granted_bytes = stats.granted_bytes.saturating_add(consumer.granted);
            let used = usage.get(&consumer.id);
            stats.consumers.push(ConsumerStats {
                id: consumer.id.to_string(),
                granted_bytes: consumer.granted,
                used_bytes: used.map_or(0, |usage| usage.used),
                last_seen: self.provider.last_heard(consumer.id).max(used.and_then(|usage| usage.last_used)),
                name: consumer.name,
            });
        }
        stats.volumes = self.room.figures();
        stats.used_bytes = usage.values().map(|usage| usage.used).sum();
        stats.capacity_bytes = self.provider.capacity().await.unwrap_or_default();
        let opened = self.room.opened();
        if let Some(nbd) = opened.as_ref().and_then(|opened| opened.nbd.as_ref()) {
            (stats.nbd_connections, stats.nbd_refused) = (nbd.connections.open(), nbd.connections.refused());
        }
        stats
    }
}
