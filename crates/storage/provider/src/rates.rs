//! How much a consumer is served in a second.

use serde::{Deserialize, Serialize};

/// Over all its volumes and connections; what is more waits. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A rate at which nobody would be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rate of 0 would serve nothing at all; leave it out for no limit")]
pub struct RatesError;

impl Rates {
    pub fn new(operations: Option<u64>, bytes: Option<u64>) -> Result<Self, RatesError> {
        match (operations, bytes) {
            (Some(0), _) | (_, Some(0)) => Err(RatesError),
            (operations, bytes) => Ok(Self { operations, bytes }),
        }
    }

    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}
