//! The network before the storage, where it is managed together with the grant.

use async_trait::async_trait;
use storage_provider::{ConsumerId, Sources};

/// Why the network could not be looked at or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{attempt}: {reason}")]
pub struct NetworkError {
    pub attempt: String,
    pub reason: String,
}

/// Lets consumers through to the storage. Both methods may be called again after they succeeded, failed or were cut
/// off; neither touches what was not permitted through here.
#[async_trait]
pub trait Network: Send + Sync + 'static {
    /// Whether exactly these addresses reach the storage on behalf of a consumer, as far as is known to be in force.
    async fn permits_exactly(&self, consumer: ConsumerId, sources: &Sources) -> Result<bool, NetworkError>;

    /// Permits exactly these addresses; none: nobody comes through on its behalf. When this returns, it is in force.
    async fn permit(&self, consumer: ConsumerId, sources: &Sources) -> Result<(), NetworkError>;
}
