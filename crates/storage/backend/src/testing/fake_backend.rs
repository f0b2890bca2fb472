//! A backend in memory that can be told to fail, before or after it did what it was asked.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use storage_provider::{
    ConnectionItem, ConsumerId, Found, Mark, Observed, ObservedStorage, VaultId, VolumeId,
};
use uuid::Uuid;

use crate::backend::{Backend, BackendError, Usage};

/// What happens at the n-th call from now (0 is the next).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call does nothing and fails, and so do all after it until the fault is lifted.
    DownFrom(usize),
    /// The call does its work and still fails, as when the answer is lost.
    LostAnswer(usize),
}

pub struct FakeBackend {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    capacity: u64,
    consumers: BTreeMap<ConsumerId, Kept>,
    fault: Option<Fault>,
    calls: Vec<&'static str>,
    secrets: u64,
}

#[derive(Clone, Default)]
struct Kept {
    storage: Option<ObservedStorage>,
    mark: Option<Mark>,
    secret: Option<u64>,
    sessions: u32,
    trash: bool,
}

impl FakeBackend {
    pub fn new(capacity: u64) -> Self {
        Self { state: Mutex::new(State { capacity, ..State::default() }) }
    }

    pub fn set_fault(&self, fault: Option<Fault>) {
        let mut state = self.state.lock();
        state.fault = fault;
        state.calls.clear();
    }

    /// Calls that change something, since the last [`Self::set_fault`].
    pub fn calls(&self) -> Vec<&'static str> {
        self.state.lock().calls.clone()
    }

    pub fn set_used(&self, consumer: ConsumerId, used: u64) {
        if let Some(storage) = self.state.lock().consumers.entry(consumer).or_default().storage.as_mut() {
            storage.used = used;
        }
    }

    /// Opens a session if the secret is good; it lives until it is revoked.
    pub fn connect(&self, consumer: ConsumerId, secret: &str) -> bool {
        let mut state = self.state.lock();
        let kept = state.consumers.entry(consumer).or_default();
        let good = kept.storage.is_some() && kept.secret.is_some_and(|known| known.to_string() == secret);
        kept.sessions += u32::from(good);
        good
    }

    pub fn sessions(&self, consumer: ConsumerId) -> u32 {
        self.state.lock().consumers.get(&consumer).map_or(0, |kept| kept.sessions)
    }

    /// Somebody deletes the storage behind our back.
    pub fn lose_storage(&self, consumer: ConsumerId) {
        let mut state = self.state.lock();
        let kept = state.consumers.entry(consumer).or_default();
        (kept.storage, kept.mark) = (None, None);
    }

    /// Somebody takes the limit away.
    pub fn forget_quota(&self, consumer: ConsumerId) {
        if let Some(storage) = self.state.lock().consumers.entry(consumer).or_default().storage.as_mut() {
            storage.quota = None;
        }
    }

    /// Somebody puts other storage in its place.
    pub fn replace_storage(&self, consumer: ConsumerId, mark: Option<Mark>) {
        let mut state = self.state.lock();
        let kept = state.consumers.entry(consumer).or_default();
        let storage = ObservedStorage { quota: Some(1 << 20), used: 7, in_shape: true };
        (kept.storage, kept.mark) = (Some(storage), mark);
    }

    pub fn mark(&self, consumer: ConsumerId) -> Option<Mark> {
        self.state.lock().consumers.get(&consumer)?.mark
    }

    fn change<T>(
        &self,
        call: &'static str,
        consumer: ConsumerId,
        work: impl FnOnce(&mut Kept, &mut u64) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let mut state = self.state.lock();
        let number = state.calls.len();
        state.calls.push(call);
        let down = || BackendError::failed(call, "injected");
        if matches!(state.fault, Some(Fault::DownFrom(first)) if number >= first) {
            return Err(down());
        }
        let State { consumers, secrets, fault, .. } = &mut *state;
        let done = work(consumers.entry(consumer).or_default(), secrets);
        if *fault == Some(Fault::LostAnswer(number)) { Err(down()) } else { done }
    }
}

impl Kept {
    fn observed(&self) -> Observed {
        let found = match (self.mark, self.storage) {
            (Some(mark), _) => Some(Found::Whole(mark)),
            (None, Some(_)) => Some(Found::Unmarked { size: 0 }),
            (None, None) => None,
        };
        Observed {
            found: found.map(|found| ("data".to_owned(), found)).into_iter().collect(),
            trouble: None,
            storage: self.storage,
            credentials: self.secret.is_some(),
            trash: self.trash,
            ..Observed::default()
        }
    }
}

/// Where all of it is.
pub const VAULT: VaultId = VaultId(Uuid::from_u128(0xfa4e));

fn fresh_mark(generation: u64) -> Mark {
    static MADE: AtomicU64 = AtomicU64::new(1);
    let volume = VolumeId(Uuid::from_u128(MADE.fetch_add(1, Ordering::Relaxed).into()));
    Mark { vault: VAULT, volume, generation, size: 0, key: None }
}

#[async_trait]
impl Backend for FakeBackend {
    async fn vault(&self) -> Result<VaultId, BackendError> {
        Ok(VAULT)
    }

    async fn capacity(&self) -> Result<u64, BackendError> {
        Ok(self.state.lock().capacity)
    }

    async fn observe(&self, consumer: ConsumerId) -> Result<Observed, BackendError> {
        Ok(self.state.lock().consumers.get(&consumer).map(Kept::observed).unwrap_or_default())
    }

    async fn observe_all(&self) -> Result<BTreeMap<ConsumerId, Observed>, BackendError> {
        let state = self.state.lock();
        let all = state.consumers.iter().map(|(id, kept)| (*id, kept.observed()));
        Ok(all.filter(|(_, observed)| *observed != Observed::default()).collect())
    }

    async fn ensure_storage(
        &self,
        consumer: ConsumerId,
        _bytes: u64,
        _encrypted: bool,
    ) -> Result<(), BackendError> {
        self.change("ensure_storage", consumer, |kept, _| {
            kept.storage.get_or_insert(ObservedStorage { quota: None, used: 0, in_shape: true });
            kept.mark.get_or_insert_with(|| fresh_mark(1));
            Ok(())
        })
    }

    async fn keep_storage(&self, consumer: ConsumerId, _bytes: u64) -> Result<(), BackendError> {
        self.change("keep_storage", consumer, |kept, _| {
            kept.storage.map(|_| ()).ok_or(BackendError::NoStorage { consumer })
        })
    }

    async fn withhold(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        self.change("withhold", consumer, |kept, _| {
            kept.sessions = 0;
            Ok(())
        })
    }

    async fn adopt_storage(&self, consumer: ConsumerId, generation: u64) -> Result<(), BackendError> {
        self.change("adopt_storage", consumer, |kept, _| {
            kept.storage.ok_or(BackendError::NoStorage { consumer })?;
            kept.mark = Some(fresh_mark(generation));
            Ok(())
        })
    }

    async fn set_quota(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError> {
        self.change("set_quota", consumer, |kept, _| {
            let storage = kept.storage.as_mut().ok_or(BackendError::NoStorage { consumer })?;
            if bytes < storage.used {
                return Err(BackendError::BelowUse { bytes, used: storage.used });
            }
            storage.quota = Some(bytes);
            Ok(())
        })
    }

    async fn ensure_credentials(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        self.change("ensure_credentials", consumer, |kept, secrets| {
            kept.storage.ok_or(BackendError::NoStorage { consumer })?;
            kept.secret.get_or_insert_with(|| {
                *secrets += 1;
                *secrets
            });
            Ok(())
        })
    }

    async fn connection_details(&self, consumer: ConsumerId) -> Result<Vec<ConnectionItem>, BackendError> {
        let secret = self.state.lock().consumers.get(&consumer).and_then(|kept| kept.secret);
        let secret = secret.ok_or(BackendError::NoStorage { consumer })?;
        Ok(vec![ConnectionItem::new("fake", "Secret", [("secret", secret.to_string())])])
    }

    async fn usage(&self, consumer: ConsumerId) -> Result<Usage, BackendError> {
        let storage = self.state.lock().consumers.get(&consumer).and_then(|kept| kept.storage);
        let storage = storage.ok_or(BackendError::NoStorage { consumer })?;
        Ok(Usage { used: storage.used, limit: storage.quota.unwrap_or(0), ..Usage::default() })
    }

    async fn usage_all(&self) -> Result<BTreeMap<ConsumerId, Usage>, BackendError> {
        let ids: Vec<ConsumerId> = self.state.lock().consumers.keys().copied().collect();
        let mut all = BTreeMap::new();
        for id in ids {
            if let Ok(usage) = self.usage(id).await {
                all.insert(id, usage);
            }
        }
        Ok(all)
    }

    async fn revoke(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        self.change("revoke", consumer, |kept, _| {
            kept.secret = None;
            kept.sessions = 0;
            Ok(())
        })
    }

    async fn trash(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        self.change("trash", consumer, |kept, _| {
            kept.trash |= kept.storage.take().is_some();
            kept.mark = None;
            Ok(())
        })
    }

    async fn purge(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        self.change("purge", consumer, |kept, _| {
            kept.trash = false;
            Ok(())
        })
    }
}
