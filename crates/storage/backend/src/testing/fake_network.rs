//! A network in memory that can be told to fail, before or after it did what it was asked.

use std::collections::BTreeMap;

use async_trait::async_trait;
use parking_lot::Mutex;
use storage_provider::{ConsumerId, Sources};

use crate::network::{Network, NetworkError};

/// What happens to a change of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkFault {
    #[default]
    None,
    /// It does nothing and fails.
    Down,
    /// It does its work and still fails, as when the answer is lost.
    LostAnswer,
}

#[derive(Default)]
pub struct FakeNetwork {
    open: Mutex<BTreeMap<ConsumerId, Sources>>,
    pub fault: Mutex<NetworkFault>,
}

impl FakeNetwork {
    /// Who comes through on behalf of a consumer.
    pub fn open_for(&self, consumer: ConsumerId) -> Sources {
        self.open.lock().get(&consumer).cloned().unwrap_or_default()
    }

    /// Somebody closes it behind our back.
    pub fn lose(&self, consumer: ConsumerId) {
        self.open.lock().remove(&consumer);
    }
}

#[async_trait]
impl Network for FakeNetwork {
    async fn permits_exactly(&self, consumer: ConsumerId, sources: &Sources) -> Result<bool, NetworkError> {
        Ok(self.open_for(consumer) == *sources)
    }

    async fn permit(&self, consumer: ConsumerId, sources: &Sources) -> Result<(), NetworkError> {
        let fault = *self.fault.lock();
        if fault != NetworkFault::Down {
            self.open.lock().insert(consumer, sources.clone());
        }
        match fault {
            NetworkFault::None => Ok(()),
            NetworkFault::Down | NetworkFault::LostAnswer => {
                Err(NetworkError { attempt: format!("permitting {sources}"), reason: "injected".to_owned() })
            }
        }
    }
}
