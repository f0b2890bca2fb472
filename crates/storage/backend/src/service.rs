//! The provider: the OCS design's four calls, those of later clients, and what an administrator does beside them.
//!
//! In: calls, with who makes them. Out: answers or refusals with the OCS design's codes. Holds: the ticket keys, one lock
//! over the books (grants change one at a time in this process; other processes are kept out by record versions), one
//! lock per consumer being worked on. Not here: making storage match (`reconcile`).

mod admin;
mod calls;
mod clients;
mod data;
mod volumes;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use model::Secret;
use parking_lot::{Mutex, RwLock};
use storage_provider::{ConnectionItem, Consumer, ConsumerId, IdSealer, KeyRing, Quantity, Refusal, Terms};
use tokio::{
    sync::{Notify, OwnedMutexGuard},
    time::Instant,
};

pub use self::{
    clients::{ClientState, ConsumerState, Report, Reported},
    volumes::Granted,
};
use crate::{backend::Backend, network::Network, records::Records};

/// Seconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Tries of one transaction that other writers overtake. Within this process they queue, so only other processes
/// can; each try of theirs that wins is progress.
pub(crate) const TRIES: usize = 32;

/// Who calls, as far as the connection proves it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller<'a> {
    /// The identity in a verified client certificate.
    pub client: Option<&'a str>,
}

/// What the provider is made with.
pub struct ProviderConfig {
    pub keys: KeyRing,
    pub sealer: IdSealer,
    pub clock: Clock,
    /// Everything is looked at again this often, changed or not.
    pub resync: Duration,
    /// Seconds for which the data of a consumer that an administrator puts off is kept.
    pub grace: u64,
    /// The network before the storage, if it is opened and closed with the grants.
    pub network: Option<Arc<dyn Network>>,
    pub terms: Terms,
}

/// The answer to an onboarding.
#[derive(Clone, Debug)]
pub struct Onboarded {
    /// The sealed id.
    pub id: Secret,
    /// The granted capacity, encoded in the form of the request.
    pub granted: Vec<u8>,
    pub consumer: ConsumerId,
}

/// The answer to a new capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resized {
    pub requested: u64,
    pub bytes: u64,
    pub granted: Quantity,
}

/// Connection details, as the consumer's client reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Details {
    /// One JSON document, as the OCS design has it.
    Document(Vec<u8>),
    /// One by one, as later releases have them.
    Items(Vec<ConnectionItem>),
}

/// One storage provider, over its records and its backend.
pub struct Provider<R, B> {
    pub(crate) records: R,
    pub(crate) backend: B,
    pub(crate) keys: RwLock<KeyRing>,
    pub(crate) sealer: IdSealer,
    pub(crate) clock: Clock,
    pub(crate) resync: Duration,
    pub(crate) grace: u64,
    pub(crate) network: Option<Arc<dyn Network>>,
    terms: Terms,
    /// What clients said last of how they are. Said again every minute, so nobody misses it after a restart.
    pub(crate) reports: Mutex<HashMap<ConsumerId, Report>>,
    /// Held by whoever changes a grant.
    pub(crate) books: tokio::sync::Mutex<()>,
    working: Mutex<HashMap<ConsumerId, Arc<tokio::sync::Mutex<()>>>>,
    /// When each consumer called last.
    heard: Mutex<HashMap<ConsumerId, u64>>,
    /// Consumers to look at soon. A set: a consumer named twice is looked at once.
    pub(crate) due: Mutex<HashMap<ConsumerId, u32>>,
    /// Consumers to look at again: when, and how often that has failed.
    pub(crate) retries: Mutex<HashMap<ConsumerId, (Instant, u32)>>,
    pub(crate) wake: Notify,
    /// Everything is to be looked at soon.
    pub(crate) again: AtomicBool,
}

impl<R: Records, B: Backend> Provider<R, B> {
    pub fn new(records: R, backend: B, config: ProviderConfig) -> Self {
        let ProviderConfig { keys, sealer, clock, resync, grace, network, terms } = config;
        Self {
            records,
            backend,
            keys: RwLock::new(keys),
            sealer,
            clock,
            resync,
            grace,
            network,
            terms,
            reports: Mutex::default(),
            books: tokio::sync::Mutex::new(()),
            working: Mutex::default(),
            heard: Mutex::default(),
            due: Mutex::default(),
            retries: Mutex::default(),
            wake: Notify::new(),
            again: AtomicBool::new(false),
        }
    }

    pub fn backend(&self) -> &B {
        &self.backend
    }

    pub fn records(&self) -> &R {
        &self.records
    }

    /// Asks the reconciler to look at a consumer now.
    pub fn wake(&self, consumer: ConsumerId) {
        self.due.lock().insert(consumer, 0);
        self.wake.notify_one();
    }

    /// Asks the reconciler to look at everything now.
    pub fn wake_all(&self) {
        self.again.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// The consumer itself has called.
    pub fn heard_from(&self, consumer: ConsumerId) {
        self.heard.lock().insert(consumer, self.now());
    }

    pub(crate) fn forget_heard(&self, consumer: ConsumerId) {
        self.heard.lock().remove(&consumer);
    }

    /// When it called last, since this process started. Seconds since 1970.
    pub fn last_heard(&self, consumer: ConsumerId) -> Option<u64> {
        self.heard.lock().get(&consumer).copied()
    }

    /// One worker per consumer at a time. Locks nobody holds are dropped on the way.
    pub(crate) async fn work_on(&self, consumer: ConsumerId) -> OwnedMutexGuard<()> {
        let lock = {
            let mut working = self.working.lock();
            working.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(working.entry(consumer).or_default())
        };
        lock.lock_owned().await
    }

    pub(crate) fn now(&self) -> u64 {
        (self.clock)()
    }

    pub(crate) fn sealed(&self, consumer: &Consumer) -> Result<Secret, Refusal> {
        Ok(Secret::new(self.sealer.seal(consumer.id, consumer.seal_key)?))
    }
}

/// A failure of ours, told to a caller that can do nothing about it.
pub(crate) fn provider_fault(error: impl std::error::Error) -> Refusal {
    Refusal::Provider { reason: common::chain(&error) }
}
