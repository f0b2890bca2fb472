//! What an administrator does: tickets, keys, lists.

use std::collections::{BTreeMap, BTreeSet};

use storage_provider::{
    Consumer, ConsumerId, KeyError, KeyId, KeyRing, MintRequest, MintedTicket, Rates, Refusal, SigningKey,
    Sources, TicketRecord, decide_permit, decide_rates,
};

use super::{Provider, TRIES, calls::Overtaken, provider_fault};
use crate::{
    backend::{Backend, BackendError, Usage},
    records::{Change, CommitError, Records, RecordsError, Version},
};

impl<R: Records, B: Backend> Provider<R, B> {
    /// Mints a ticket and remembers its hash. The text is in the answer and nowhere else.
    pub async fn create_ticket(
        &self,
        lifetime: u64,
        limit: Option<u64>,
        sources: Sources,
        rates: Rates,
        encrypted: bool,
    ) -> Result<MintedTicket, Refusal> {
        let mut id = [0; 16];
        aws_lc_rs::rand::fill(&mut id).map_err(provider_fault)?;
        let id = uuid::Builder::from_random_bytes(id).into_uuid().to_string();
        let request = MintRequest { id, now: self.now(), lifetime, limit, sources, rates, encrypted };
        let minted = self.keys.read().mint(&request).map_err(provider_fault)?;
        let change = Change::PutTicket { expected: Version::ABSENT, value: minted.record.clone() };
        self.records.commit(vec![change]).await.map_err(provider_fault)?;
        Ok(minted)
    }

    pub async fn tickets(&self) -> Result<Vec<TicketRecord>, RecordsError> {
        Ok(self.records.tickets().await?.into_iter().map(|stored| stored.value).collect())
    }

    /// Revokes a ticket by its public id. `false` when there is none of that id.
    pub async fn revoke_ticket(&self, id: &str) -> Result<bool, Refusal> {
        for _ in 0..TRIES {
            let tickets = self.records.tickets().await.map_err(provider_fault)?;
            let now = self.now();
            // Tickets minted elsewhere choose their own ids, which may repeat: all of them are meant.
            let changes: Vec<_> = tickets
                .into_iter()
                .filter(|stored| stored.value.id == id)
                .map(|stored| Change::PutTicket {
                    expected: stored.version,
                    value: stored.value.revoked(now),
                })
                .collect();
            if changes.is_empty() {
                return Ok(false);
            }
            match self.records.commit(changes).await {
                Ok(()) => return Ok(true),
                Err(CommitError::Conflict) => {}
                Err(error @ CommitError::Failed { .. }) => return Err(provider_fault(error)),
            }
        }
        Err(provider_fault(Overtaken))
    }

    /// Drops the records of tickets that expired unused. Returns how many went.
    pub async fn forget_expired_tickets(&self) -> Result<usize, Refusal> {
        let now = self.now();
        let tickets = self.records.tickets().await.map_err(provider_fault)?;
        let mut gone = 0;
        for stored in tickets.into_iter().filter(|stored| stored.value.may_be_forgotten_at(now)) {
            let change = Change::DeleteTicket { expected: stored.version, hash: stored.value.hash };
            match self.records.commit(vec![change]).await {
                Ok(()) => gone += 1,
                Err(CommitError::Conflict) => {}
                Err(error @ CommitError::Failed { .. }) => return Err(provider_fault(error)),
            }
        }
        Ok(gone)
    }

    /// Changes the ring of ticket keys: rotate, trust, withdraw. Keeping it is the caller's.
    pub fn with_keys<T>(&self, change: impl FnOnce(&mut KeyRing) -> T) -> T {
        change(&mut self.keys.write())
    }

    /// Signs with a new random key from now on; the old one verifies for `overlap` more seconds.
    pub fn rotate_key(&self, overlap: u64) -> Result<KeyId, KeyError> {
        let mut seed = [0; 32];
        aws_lc_rs::rand::fill(&mut seed).map_err(|_| KeyError::Seed)?;
        let key = SigningKey::from_seed(&seed)?;
        let id = key.id().clone();
        self.keys.write().rotate(key, self.now(), overlap);
        Ok(id)
    }

    pub async fn consumers(&self) -> Result<Vec<Consumer>, RecordsError> {
        Ok(self.records.consumers().await?.into_iter().map(|stored| stored.value).collect())
    }

    pub async fn consumer(&self, id: ConsumerId) -> Result<Option<Consumer>, RecordsError> {
        Ok(self.records.consumer(id).await?.map(|stored| stored.value))
    }

    /// Whether the network before the storage is opened and closed with the grants.
    pub fn manages_network(&self) -> bool {
        self.network.is_some()
    }

    /// Lets a consumer come from these addresses and no others. `Ok` means: written down.
    pub async fn permit(&self, id: ConsumerId, sources: &Sources) -> Result<(), Refusal> {
        self.change(id, |consumer| decide_permit(consumer, sources.clone()).map(Some)).await
    }

    /// Serves a consumer so much in a second from now on. `Ok` means: written down.
    pub async fn limit(&self, id: ConsumerId, rates: Rates) -> Result<(), Refusal> {
        self.change(id, |consumer| decide_rates(consumer, rates).map(Some)).await
    }

    pub async fn usage(&self, id: ConsumerId) -> Result<Usage, BackendError> {
        self.backend.usage(id).await
    }

    /// Bytes that can be promised in all.
    pub async fn capacity(&self) -> Result<u64, BackendError> {
        self.backend.capacity().await
    }

    pub async fn usage_all(&self) -> Result<BTreeMap<ConsumerId, Usage>, BackendError> {
        self.backend.usage_all().await
    }

    /// Storage without a consumer. It is never deleted unasked: its record may have been lost, not its owner.
    pub async fn orphans(&self) -> Result<Vec<ConsumerId>, Refusal> {
        // Storage first: a consumer onboarded in between is then in the records for sure.
        let observed = self.backend.observe_all().await.map_err(provider_fault)?;
        let consumers = self.records.consumers().await.map_err(provider_fault)?;
        let known: BTreeSet<_> = consumers.into_iter().map(|stored| stored.value.id).collect();
        Ok(observed.into_keys().filter(|id| !known.contains(id)).collect())
    }
}
