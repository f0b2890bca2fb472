//! Figures of the provider at one moment, for metrics.

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
}

impl Storage {
    /// What can be read of it now; what cannot stays 0.
    pub async fn stats(&self) -> StorageStats {
        let mut stats = StorageStats::default();
        for consumer in self.provider.consumers().await.unwrap_or_default() {
            *match consumer.phase {
                Phase::Configuring => &mut stats.configuring,
                Phase::Ready => &mut stats.ready,
                Phase::Failed { .. } => &mut stats.failed,
                Phase::Deleting { .. } => &mut stats.deleting,
            } += 1;
            stats.granted_bytes = stats.granted_bytes.saturating_add(consumer.granted);
        }
        let usage = self.provider.usage_all().await.unwrap_or_default();
        stats.used_bytes = usage.values().map(|usage| usage.used).sum();
        stats.capacity_bytes = self.provider.capacity().await.unwrap_or_default();
        let opened = self.room.opened();
        if let Some(nbd) = opened.as_ref().and_then(|opened| opened.nbd.as_ref()) {
            (stats.nbd_connections, stats.nbd_refused) = (nbd.connections.open(), nbd.connections.refused());
        }
        stats
    }
}
