//! The room that storage is kept in: whatever is wrong in there, it is known at once outside, and nobody waits.
//!
//! In: a way to open the backend. Out: the same backend, whose answers come in time or not at all; since when and why it
//! does not answer. Holds: the backend once it is open, and the trouble there is. Not here: what storage is.
//!
//! ```text
//!   opening ──────► open ◄───────────────┐
//!      │ ▲           │ no answer in time │ it answers a probe
//!      ▼ │ later     ▼                   │
//!    degraded      silent: calls fail at once
//! ```
//! Everything else of the controller serves meanwhile.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use life::Life;
use parking_lot::RwLock;
use storage_backend::{Backend, BackendError, Fill, Piece, Usage, VolumeFigures};
use storage_provider::{ConnectionItem, ConsumerId, Observed, Rates, VaultId, VolumeStep, Volumes};
use tokio::{sync::Notify, time::timeout};
use tracing::{info, warn};

use super::{StorageError, open::RunningNbd};

/// A call that asks the storage ends within this time.
const ANSWER: Duration = Duration::from_millis(1500);
/// A limit that is set is on disk, or in the monitors' quorum, when it is done.
const CHANGE: Duration = Duration::from_secs(10);
/// Between two probes of storage that fell silent, and how long each may take.
const PROBES: Duration = Duration::from_secs(1);
const PROBE: Duration = Duration::from_secs(20);
/// Between two tries to open it: doubles from the first to the second.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// What is wrong with storage as a whole.
#[derive(Clone, Debug)]
pub struct Trouble {
    pub since: SystemTime,
    pub why: String,
}

/// A backend that is open.
pub(super) struct Opened {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) nbd: Option<RunningNbd>,
}

pub(super) struct Room {
    opened: ArcSwapOption<Opened>,
    trouble: RwLock<Option<Trouble>>,
    silent: Notify,
    /// It answers again.
    recovered: Notify,
}

impl Room {
    /// An empty room: storage is being opened.
    pub(super) fn new() -> Self {
        let opening = Trouble { since: SystemTime::now(), why: "it is being opened".to_owned() };
        Self {
            opened: ArcSwapOption::empty(),
            trouble: RwLock::new(Some(opening)),
            silent: Notify::new(),
            recovered: Notify::new(),
        }
    }

    pub(super) fn opened(&self) -> Option<Arc<Opened>> {
        self.opened.load_full()
    }

    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.trouble.read().clone()
    }

    /// Opens the backend, as often as it takes; then looks after it until the process stops. Returns when the first try
    /// is over, or when it has taken `patience`.
    pub(super) async fn run<F>(
        self: &Arc<Self>,
        patience: Duration,
        life: &Life,
        open: impl Fn() -> F + Send + 'static,
    ) where
        F: Future<Output = Result<Opened, StorageError>> + Send,
    {
        let tried = Arc::new(Notify::new());
        let (room, first) = (Arc::clone(self), Arc::clone(&tried));
        life.spawn("storage: room", async move {
            let mut wait = FIRST_WAIT;
            loop {
                match open().await {
                    Ok(opened) => {
                        room.opened.store(Some(Arc::new(opened)));
                        room.recovered();
                        break;
                    }
                    Err(err) => room.in_trouble(common::chain(&err)),
                }
                first.notify_one();
                tokio::time::sleep(wait).await;
                wait = LONGEST_WAIT.min(wait * 2);
            }
            first.notify_one();
            room.probe().await;
        });
        let _ = timeout(patience, tried.notified()).await;
    }

    /// Asks storage that fell silent until it answers.
    async fn probe(&self) {
        loop {
            self.silent.notified().await;
            let Some(opened) = self.opened() else { continue };
            while self.trouble().is_some() {
                match timeout(PROBE, opened.backend.capacity()).await {
                    Ok(Ok(_)) => self.recovered(),
                    Ok(Err(err)) => self.in_trouble(common::chain(&err)),
                    Err(_) => {}
                }
                if self.trouble().is_some() {
                    tokio::time::sleep(PROBES).await;
                }
            }
        }
    }

    /// Returns when storage that was in trouble is not any more.
    pub(super) async fn until_recovered(&self) {
        self.recovered.notified().await;
    }

    fn in_trouble(&self, why: String) {
        let mut trouble = self.trouble.write();
        let since = trouble.as_ref().map_or_else(SystemTime::now, |trouble| trouble.since);
        if trouble.as_ref().is_none_or(|trouble| trouble.why != why) {
            warn!(why, "storage is degraded; everything else is served");
        }
        *trouble = Some(Trouble { since, why });
    }

    fn recovered(&self) {
        if self.trouble.write().take().is_some() {
            info!("storage answers");
            self.recovered.notify_one();
        }
    }

    /// The backend, unless there is trouble.
    fn backend(&self) -> Result<Arc<dyn Backend>, BackendError> {
        if let Some(Trouble { why, .. }) = self.trouble() {
            return Err(BackendError::Degraded { reason: why });
        }
        let opened = self
            .opened()
            .ok_or_else(|| BackendError::Degraded { reason: "it is being opened".to_owned() })?;
        Ok(Arc::clone(&opened.backend))
    }

    /// An answer in time, or none.
    async fn ask<T, F>(
        &self,
        what: &str,
        within: Duration,
        ask: impl FnOnce(Arc<dyn Backend>) -> F + Send,
    ) -> Result<T, BackendError>
    where
        F: Future<Output = Result<T, BackendError>> + Send,
    {
        match timeout(within, ask(self.backend()?)).await {
            Ok(answer) => answer,
            Err(_) => {
                let reason = format!("it did not answer within {} s when {what}", within.as_secs_f32());
                self.in_trouble(reason.clone());
                self.silent.notify_one();
                Err(BackendError::Degraded { reason })
            }
        }
    }
}

/// What asks is bounded in time. Steps of the reconciler take as long as they take: nobody waits for them.
#[async_trait]
impl Backend for Room {
    async fn vault(&self) -> Result<VaultId, BackendError> {
        self.ask("asked which it is", ANSWER, |backend| async move { backend.vault().await }).await
    }

    async fn capacity(&self) -> Result<u64, BackendError> {
        self.ask("measured", ANSWER, |backend| async move { backend.capacity().await }).await
    }

    async fn observe(&self, id: ConsumerId) -> Result<Observed, BackendError> {
        self.ask("looked at", ANSWER, |backend| async move { backend.observe(id).await }).await
    }

    async fn observe_all(&self) -> Result<BTreeMap<ConsumerId, Observed>, BackendError> {
        self.ask("looked at as a whole", CHANGE, |backend| async move { backend.observe_all().await }).await
    }

    async fn ensure_storage(&self, id: ConsumerId, bytes: u64, encrypted: bool) -> Result<(), BackendError> {
        self.backend()?.ensure_storage(id, bytes, encrypted).await
    }

    async fn keep_storage(&self, id: ConsumerId, bytes: u64) -> Result<(), BackendError> {
        self.backend()?.keep_storage(id, bytes).await
    }

    async fn withhold(&self, id: ConsumerId) -> Result<(), BackendError> {
        self.backend()?.withhold(id).await
    }

    async fn adopt_storage(&self, id: ConsumerId, generation: u64) -> Result<(), BackendError> {
        self.backend()?.adopt_storage(id, generation).await
    }

    async fn set_quota(&self, id: ConsumerId, bytes: u64) -> Result<(), BackendError> {
        self.ask("given a limit", CHANGE, |backend| async move { backend.set_quota(id, bytes).await }).await
    }

    async fn set_rates(&self, id: ConsumerId, rates: Rates) -> Result<(), BackendError> {
        self.backend()?.set_rates(id, rates).await
    }

    async fn ensure_credentials(&self, id: ConsumerId) -> Result<(), BackendError> {
        self.backend()?.ensure_credentials(id).await
    }

    async fn connection_details(&self, id: ConsumerId) -> Result<Vec<ConnectionItem>, BackendError> {
        self.ask("asked for a consumer's credentials", ANSWER, |backend| async move {
            backend.connection_details(id).await
        })
        .await
    }

    async fn usage(&self, id: ConsumerId) -> Result<Usage, BackendError> {
        self.ask("asked what a consumer uses", ANSWER, |backend| async move { backend.usage(id).await }).await
    }

    async fn usage_all(&self) -> Result<BTreeMap<ConsumerId, Usage>, BackendError> {
        self.ask("asked what consumers use", ANSWER, |backend| async move { backend.usage_all().await }).await
    }

    async fn revoke(&self, id: ConsumerId) -> Result<(), BackendError> {
        self.backend()?.revoke(id).await
    }

    async fn trash(&self, id: ConsumerId) -> Result<(), BackendError> {
        self.backend()?.trash(id).await
    }

    async fn purge(&self, id: ConsumerId) -> Result<(), BackendError> {
        self.backend()?.purge(id).await
    }

    async fn volumes(&self, id: ConsumerId) -> Result<Volumes, BackendError> {
        self.ask("asked for a consumer's volumes", ANSWER, |backend| async move { backend.volumes(id).await })
            .await
    }

    /// A snapshot waits until what was written is on disk.
    async fn change_volume(&self, id: ConsumerId, step: VolumeStep) -> Result<(), BackendError> {
        self.backend()?.change_volume(id, step).await
    }

    async fn read_volume(
        &self,
        id: ConsumerId,
        name: String,
        from: u64,
    ) -> Result<Option<Piece>, BackendError> {
        self.backend()?.read_volume(id, name, from).await
    }

    async fn fill_volume(&self, id: ConsumerId, name: String, fill: Fill) -> Result<(), BackendError> {
        self.backend()?.fill_volume(id, name, fill).await
    }

    async fn tidy_volumes(&self, id: ConsumerId) -> Result<(), BackendError> {
        self.backend()?.tidy_volumes(id).await
    }

    fn admits(&self, id: ConsumerId, certificate: &[u8; 32]) -> bool {
        self.backend().is_ok_and(|backend| backend.admits(id, certificate))
    }

    fn figures(&self) -> Vec<VolumeFigures> {
        self.backend().map(|backend| backend.figures()).unwrap_or_default()
    }

    fn attention(&self) -> Vec<String> {
        self.backend().map(|backend| backend.attention()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use storage_backend::testing::FakeBackend;
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;

    fn opened(backend: impl Backend) -> Opened {
        Opened { backend: Arc::new(backend), nbd: None }
    }

    fn failed() -> StorageError {
        StorageError::Unreachable { reason: "nobody there".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn storage_that_cannot_be_opened_is_told_and_tried_again() {
        let (room, life, tries) = (Arc::new(Room::new()), Life::default(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&tries);
        room.run(Duration::from_secs(5), &life, move || {
            let tried = counted.fetch_add(1, Ordering::SeqCst);
            async move { if tried < 3 { Err(failed()) } else { Ok(opened(FakeBackend::new(7))) } }
        })
        .await;
        let trouble = room.trouble().unwrap();
        assert!(trouble.why.contains("nobody there"), "{trouble:?}");
        assert!(matches!(room.capacity().await, Err(BackendError::Degraded { .. })));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(room.trouble().is_none());
        assert_eq!(room.capacity().await, Ok(7));
        assert!(life.end().await.is_ok());
    }

    /// Answers nothing while it is stuck.
    struct Stuck(FakeBackend, tokio::sync::watch::Receiver<bool>);

    #[async_trait]
    impl Backend for Stuck {
        async fn vault(&self) -> Result<VaultId, BackendError> {
            self.0.vault().await
        }
        async fn capacity(&self) -> Result<u64, BackendError> {
            let mut stuck = self.1.clone();
            let _ = stuck.wait_for(|stuck| !stuck).await;
            self.0.capacity().await
        }
        async fn observe(&self, id: ConsumerId) -> Result<Observed, BackendError> {
            self.0.observe(id).await
        }
        async fn observe_all(&self) -> Result<BTreeMap<ConsumerId, Observed>, BackendError> {
            self.0.observe_all().await
        }
        async fn ensure_storage(
            &self,
            id: ConsumerId,
            bytes: u64,
            encrypted: bool,
        ) -> Result<(), BackendError> {
            self.0.ensure_storage(id, bytes, encrypted).await
        }
        async fn keep_storage(&self, id: ConsumerId, bytes: u64) -> Result<(), BackendError> {
            self.0.keep_storage(id, bytes).await
        }
        async fn withhold(&self, id: ConsumerId) -> Result<(), BackendError> {
            self.0.withhold(id).await
        }
        async fn adopt_storage(&self, id: ConsumerId, generation: u64) -> Result<(), BackendError> {
            self.0.adopt_storage(id, generation).await
        }
        async fn set_quota(&self, id: ConsumerId, bytes: u64) -> Result<(), BackendError> {
            self.0.set_quota(id, bytes).await
        }
        async fn ensure_credentials(&self, id: ConsumerId) -> Result<(), BackendError> {
            self.0.ensure_credentials(id).await
        }
        async fn connection_details(&self, id: ConsumerId) -> Result<Vec<ConnectionItem>, BackendError> {
            self.0.connection_details(id).await
        }
        async fn usage(&self, id: ConsumerId) -> Result<Usage, BackendError> {
            self.0.usage(id).await
        }
        async fn usage_all(&self) -> Result<BTreeMap<ConsumerId, Usage>, BackendError> {
            self.0.usage_all().await
        }
        async fn revoke(&self, id: ConsumerId) -> Result<(), BackendError> {
            self.0.revoke(id).await
        }
        async fn trash(&self, id: ConsumerId) -> Result<(), BackendError> {
            self.0.trash(id).await
        }
        async fn purge(&self, id: ConsumerId) -> Result<(), BackendError> {
            self.0.purge(id).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn storage_that_falls_silent_keeps_nobody_waiting_and_comes_back() {
        let (room, life) = (Arc::new(Room::new()), Life::default());
        let (stuck, seen) = tokio::sync::watch::channel(false);
        room.run(Duration::from_secs(5), &life, move || {
            let backend = Stuck(FakeBackend::new(7), seen.clone());
            async move { Ok(opened(backend)) }
        })
        .await;
        assert_eq!(room.capacity().await, Ok(7));
        stuck.send_replace(true);
        let began = Instant::now();
        assert!(matches!(room.capacity().await, Err(BackendError::Degraded { .. })));
        assert!(began.elapsed() <= Duration::from_secs(2));
        // From then on nobody waits at all, whatever is asked.
        let (began, id) = (Instant::now(), ConsumerId::new(Uuid::from_u128(1)));
        assert!(matches!(room.usage(id).await, Err(BackendError::Degraded { .. })));
        assert!(matches!(room.set_quota(id, 1).await, Err(BackendError::Degraded { .. })));
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(room.trouble().unwrap().why.contains("did not answer"));
        stuck.send_replace(false);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(room.trouble().is_none());
        assert_eq!(room.capacity().await, Ok(7));
        assert!(life.end().await.is_ok());
    }
}
