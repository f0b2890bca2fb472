//! What becomes of data that is not what was made for its consumer: an administrator's word, and nobody else's.
//!
//! In: a consumer, and whether what is there is to be taken or given up. Out: the record says so, and the reconciler
//! follows. Not here: what is wrong with it (`storage_provider::judge`).

use storage_provider::{Consumer, ConsumerId, Data, Found, Mark, Phase, Refusal, Verdict, judge};

use super::{Provider, TRIES, calls::Overtaken, provider_fault};
use crate::{
    backend::Backend,
    records::{Change, CommitError, Records, Stored},
};

const ADOPTING: &str = "adopting";
const RECREATING: &str = "recreating";

impl<R: Records, B: Backend> Provider<R, B> {
    /// Takes what is there as the consumer's data, whatever was known of it before.
    ///
    /// The marks are written before the record: killed in between, the data is another one still, and the command can
    /// be given again.
    pub async fn adopt(&self, id: ConsumerId) -> Result<(), Refusal> {
        let _worker = self.work_on(id).await;
        for _ in 0..TRIES {
            let stored = self.lost(id, ADOPTING).await?;
            let generation = match &stored.value.data {
                Data::Made(made) => made.values().map(|mark| mark.generation).max().unwrap_or(0) + 1,
                Data::Nothing | Data::Unmarked => Mark::FIRST_GENERATION,
            };
            let seen = self.backend.observe(id).await.map_err(provider_fault)?;
            if !seen.found.values().any(|found| !matches!(found, Found::Missing)) {
                return Err(Refusal::NothingToAdopt);
            }
            self.backend.adopt_storage(id, generation).await.map_err(provider_fault)?;
            let data = self.backend.observe(id).await.map_err(provider_fault)?.data();
            if self.replaced(stored, data).await? {
                return Ok(());
            }
        }
        Err(provider_fault(Overtaken))
    }

    /// Gives up the consumer's data, and makes new and empty storage. Its credentials are made anew too, so that no
    /// client mounts what it takes for its old disk.
    ///
    /// What is there goes out of reach before the record says so: killed in between, the data is missing, and the
    /// command can be given again.
    pub async fn recreate(&self, id: ConsumerId) -> Result<(), Refusal> {
        let _worker = self.work_on(id).await;
        for _ in 0..TRIES {
            let stored = self.lost(id, RECREATING).await?;
            self.backend.revoke(id).await.map_err(provider_fault)?;
            self.backend.trash(id).await.map_err(provider_fault)?;
            if self.replaced(stored, Data::Nothing).await? {
                return self.backend.purge(id).await.map_err(provider_fault);
            }
        }
        Err(provider_fault(Overtaken))
    }

    /// The consumer's record, if its data is lost. What is whole is not replaced by mistake.
    async fn lost(&self, id: ConsumerId, what: &'static str) -> Result<Stored<Consumer>, Refusal> {
        let stored = self.records.consumer(id).await.map_err(provider_fault)?;
        let stored = stored.ok_or(Refusal::UnknownConsumer)?;
        let Consumer { data, phase, .. } = &stored.value;
        let vault = self.backend.vault().await.map_err(provider_fault)?;
        let gone_elsewhere = data.elsewhere(vault).is_some();
        if stored.value.is_deleting() && !gone_elsewhere {
            return Err(Refusal::UnknownConsumer);
        }
        let seen = self.backend.observe(id).await.map_err(provider_fault)?;
        let never_ready = *phase == Phase::Configuring;
        match judge(data, never_ready, vault, &seen.found, &seen.gone, seen.trouble.as_deref()) {
            Verdict::Lost(_) => Ok(stored),
            // Nobody was given it yet: what is left of a failed try can be thrown away.
            Verdict::Fresh if what == RECREATING && matches!(phase, Phase::Failed { .. }) => Ok(stored),
            Verdict::Fresh | Verdict::Same | Verdict::Unmarked => Err(Refusal::DataIsWhole { what }),
        }
    }

    /// Writes down what the data is from now on. `false` when somebody else wrote first.
    async fn replaced(&self, stored: Stored<Consumer>, data: Data) -> Result<bool, Refusal> {
        let Stored { mut value, version: expected } = stored;
        value.data = data;
        if !value.is_deleting() {
            value.phase = Phase::Configuring;
        }
        let id = value.id;
        match self.records.commit(vec![Change::PutConsumer { expected, value }]).await {
            Ok(()) => {
                self.wake(id);
                Ok(true)
            }
            Err(CommitError::Conflict) => Ok(false),
            Err(error @ CommitError::Failed { .. }) => Err(provider_fault(error)),
        }
    }
}
