//! The OCS design's four calls: read, decide, write, retry when somebody else wrote first.

use std::collections::BTreeMap;

use storage_provider::{
    Capacity, CapacityForm, Consumer, ConsumerId, Floor, Holdings, Offboard, Onboard, OnboardRequest,
    OnboardView, Refusal, Resize, Sources, TicketText, connection_json, decide_config, decide_keep,
    decide_labels, decide_name, decide_offboard, decide_onboard, decide_resize, settle_resize,
};
use uuid::Builder;

use super::{Caller, Details, Onboarded, Provider, Resized, TRIES, provider_fault};
use crate::{
    backend::{Backend, BackendError},
    records::{Change, CommitError, Records, Stored, Version},
};

/// The transaction lost every race.
#[derive(Debug, thiserror::Error)]
#[error("the records changed under every one of {TRIES} tries; the provider is overloaded, try again")]
pub(super) struct Overtaken;

/// Who asks for another capacity.
#[derive(Clone, Copy)]
enum Asker {
    /// Bound by the provider's terms where its ticket says nothing.
    Itself,
    Administrator {
        force: bool,
    },
}

impl<R: Records, B: Backend> Provider<R, B> {
    /// OnBoardConsumer: the ticket, the capacity field as it came over the wire, and where the consumer says it comes
    /// from.
    pub async fn onboard(
        &self,
        token: &str,
        capacity: &[u8],
        sources: &[String],
        caller: Caller<'_>,
    ) -> Result<Onboarded, Refusal> {
        let ticket = TicketText::parse(token)?;
        let capacity = Capacity::decode(capacity)?;
        let request = OnboardRequest {
            ticket: &ticket,
            capacity: Some(capacity),
            says: None,
            sources: Sources::parse(sources)?,
            client: caller.client,
        };
        let consumer = self.onboarded(&request).await?;
        self.answer(&consumer, &capacity)
    }

    /// What was granted, in the form and the words of the request.
    pub(super) fn answer(&self, consumer: &Consumer, capacity: &Capacity) -> Result<Onboarded, Refusal> {
        let granted = if consumer.requested == capacity.quantity() {
            capacity.answer(consumer.granted)
        } else {
            storage_provider::Quantity::from_bytes(consumer.granted, capacity.quantity().format())
        };
        Ok(Onboarded {
            id: self.sealed(consumer)?,
            granted: capacity.form().encode(granted),
            consumer: consumer.id,
        })
    }

    pub(super) async fn onboarded(&self, request: &OnboardRequest<'_>) -> Result<Consumer, Refusal> {
        let hash = request.ticket.hash();
        let total = self.backend.capacity().await.map_err(provider_fault)?;
        let _books = self.books.lock().await;
        for _ in 0..TRIES {
            let ticket = self.records.ticket(&hash).await.map_err(provider_fault)?;
            let known = ticket.as_ref().and_then(|ticket| ticket.value.consumer());
            let consumer = match known {
                Some(id) => self.records.consumer(id).await.map_err(provider_fault)?,
                None => None,
            };
            let ledger = self.records.ledger().await.map_err(provider_fault)?;
            let fresh = fresh_id()?;
            let decision = {
                let keys = self.keys.read();
                let view = OnboardView {
                    ticket: ticket.as_ref().map(|ticket| &ticket.value),
                    consumer: consumer.as_ref().map(|consumer| &consumer.value),
                    holdings: Holdings { total, ledger: ledger.value },
                    terms: self.terms,
                    keys: &keys,
                    now: self.now(),
                };
                decide_onboard(request, &view, fresh, self.sealer.current())?
            };
            let (consumer, record, books) = match decision {
                Onboard::Existing(consumer) => return Ok(consumer),
                Onboard::Create { consumer, ticket, ledger } => (consumer, *ticket, ledger),
            };
            let changes = vec![
                Change::PutConsumer { expected: Version::ABSENT, value: consumer.clone() },
                Change::PutTicket {
                    expected: ticket.map_or(Version::ABSENT, |ticket| ticket.version),
                    value: record,
                },
                Change::PutLedger { expected: ledger.version, value: books },
            ];
            match self.records.commit(changes).await {
                Ok(()) => {
                    self.wake(consumer.id);
                    return Ok(consumer);
                }
                Err(CommitError::Conflict) => {}
                Err(error @ CommitError::Failed { .. }) => return Err(provider_fault(error)),
            }
        }
        Err(provider_fault(Overtaken))
    }

    /// GetStorageConfig: connection details, as the client reads them.
    pub async fn storage_config(&self, id: &str, caller: Caller<'_>) -> Result<Details, Refusal> {
        let consumer = self.find(id).await?;
        decide_config(Some(&consumer.value), caller.client)?;
        let items = self.backend.connection_details(consumer.value.id).await.map_err(provider_fault)?;
        Ok(match consumer.value.client {
            Some(_) => Details::Items(items),
            None => Details::Document(connection_json(&items)),
        })
    }

    /// UpdateCapacity: the capacity field as it came, and the answer's in the same form.
    pub async fn update_capacity(
        &self,
        id: &str,
        capacity: &[u8],
        caller: Caller<'_>,
    ) -> Result<Vec<u8>, Refusal> {
        let consumer = self.find(id).await?.value.id;
        let capacity = Capacity::decode(capacity)?;
        let resized = self.resized(consumer, &capacity, caller, Asker::Itself).await?;
        Ok(capacity.form().encode(resized.granted))
    }

    /// The same by an administrator, who names the consumer openly.
    pub async fn resize(
        &self,
        consumer: ConsumerId,
        capacity: &str,
        force: bool,
    ) -> Result<Resized, Refusal> {
        let capacity = Capacity::parse(capacity, CapacityForm::Text)?;
        let bound =
            self.records.consumer(consumer).await.map_err(provider_fault)?.and_then(|c| c.value.bound_to);
        self.resized(consumer, &capacity, Caller { client: bound.as_deref() }, Asker::Administrator { force })
            .await
    }

    async fn resized(
        &self,
        id: ConsumerId,
        capacity: &Capacity,
        caller: Caller<'_>,
        asker: Asker,
    ) -> Result<Resized, Refusal> {
        let total = self.backend.capacity().await.map_err(provider_fault)?;
        let _worker = self.work_on(id).await;
        let _books = self.books.lock().await;
        for _ in 0..TRIES {
            let stored = self.records.consumer(id).await.map_err(provider_fault)?;
            let ledger = self.records.ledger().await.map_err(provider_fault)?;
            let floor = match &stored {
                Some(stored) if stored.value.phase == storage_provider::Phase::Ready => {
                    let usage = self.backend.usage(id).await.map_err(provider_fault)?;
                    Floor { used: usage.used, volumes: usage.volumes }
                }
                Some(_) | None => Floor::default(),
            };
            let consumer = stored.as_ref().map(|stored| &stored.value);
            let ticket = consumer.and_then(|consumer| consumer.ticket_limit);
            let (limit, force) = match asker {
                Asker::Itself => (self.terms.limit(ticket, total), false),
                Asker::Administrator { force } => (ticket, force),
            };
            let holdings = Holdings { total, ledger: ledger.value };
            let decision = decide_resize(consumer, caller.client, capacity, limit, holdings, floor, force)?;
            let stored = stored.ok_or(Refusal::UnknownConsumer)?;
            let to = match decision {
                Resize::Unchanged { bytes } => return Ok(resized(capacity, bytes)),
                Resize::Grow { to } => to,
                Resize::Shrink { to } => {
                    self.backend.set_quota(id, to).await.map_err(quota_refusal)?;
                    to
                }
            };
            let (consumer, books) = settle_resize(&stored.value, capacity, to, ledger.value)?;
            let changes = vec![
                Change::PutConsumer { expected: stored.version, value: consumer },
                Change::PutLedger { expected: ledger.version, value: books },
            ];
            match self.records.commit(changes).await {
                Ok(()) => {}
                Err(CommitError::Conflict) => continue,
                Err(error @ CommitError::Failed { .. }) => {
                    // The limit may be in force while the record keeps the old grant: the reconciler puts it back.
                    self.wake(id);
                    return Err(provider_fault(error));
                }
            }
            if let Resize::Grow { to } = decision {
                // Promised and written; if the backend fails now, the reconciler keeps trying.
                self.backend.set_quota(id, to).await.map_err(|error| {
                    self.wake(id);
                    quota_refusal(error)
                })?;
            }
            // The shape of the storage (a volume's size) may follow the grant.
            self.wake(id);
            return Ok(resized(capacity, to));
        }
        self.wake(id);
        Err(provider_fault(Overtaken))
    }

    /// OffboardConsumer. `Ok` means: written down. The data goes, and the sessions end, soon after.
    pub async fn offboard(&self, id: &str, caller: Caller<'_>) -> Result<(), Refusal> {
        let consumer = self.find(id).await?.value.id;
        self.change(consumer, |consumer| accepted(decide_offboard(consumer, caller.client, None)?)).await
    }

    /// The same by an administrator, who names the consumer openly: its data is kept for the grace time, unless it is
    /// to go now.
    pub async fn put_off(&self, consumer: ConsumerId, at_once: bool) -> Result<(), Refusal> {
        let kept_until = (!at_once && self.grace > 0).then(|| self.now().saturating_add(self.grace));
        self.change(consumer, |consumer| {
            accepted(decide_offboard(consumer, consumer.and_then(|c| c.bound_to.as_deref()), kept_until)?)
        })
        .await
    }

    /// Takes a consumer back that was put off, while its data is kept. It gets new credentials.
    pub async fn keep(&self, consumer: ConsumerId) -> Result<(), Refusal> {
        // Not while its data is being taken away.
        let _worker = self.work_on(consumer).await;
        self.change(consumer, |consumer| decide_keep(consumer, self.now()).map(Some)).await
    }

    /// Calls a consumer something.
    pub async fn name(&self, consumer: ConsumerId, name: &str) -> Result<(), Refusal> {
        self.change(consumer, |consumer| decide_name(consumer, name).map(Some)).await
    }

    /// Labels a consumer with these and no others.
    pub async fn label(
        &self,
        consumer: ConsumerId,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        self.change(consumer, |consumer| decide_labels(consumer, labels).map(Some)).await
    }

    /// Replaces one consumer's record by what `decide` makes of it, and has the reconciler follow; `None` leaves it.
    pub(super) async fn change(
        &self,
        id: ConsumerId,
        decide: impl Fn(Option<&Consumer>) -> Result<Option<Consumer>, Refusal> + Send,
    ) -> Result<(), Refusal> {
        for _ in 0..TRIES {
            let stored = self.records.consumer(id).await.map_err(provider_fault)?;
            let Some(consumer) = decide(stored.as_ref().map(|stored| &stored.value))? else { return Ok(()) };
            let expected = stored.map_or(Version::ABSENT, |stored| stored.version);
            match self.records.commit(vec![Change::PutConsumer { expected, value: consumer }]).await {
                Ok(()) => {
                    self.wake(id);
                    return Ok(());
                }
                Err(CommitError::Conflict) => {}
                Err(error @ CommitError::Failed { .. }) => return Err(provider_fault(error)),
            }
        }
        Err(provider_fault(Overtaken))
    }

    /// Whether a ticket is one that could be onboarded with, as far as it says itself.
    pub fn is_good(&self, token: &str) -> bool {
        let Ok(ticket) = TicketText::parse(token) else { return false };
        let now = self.now();
        ticket.verify(&self.keys.read(), now).is_ok_and(|ticket| ticket.check_at(now).is_ok())
    }

    /// Whose sealed id it is.
    pub async fn consumer_of(&self, id: &str) -> Result<ConsumerId, Refusal> {
        Ok(self.find(id).await?.value.id)
    }

    /// The consumer a sealed id names. An id that opens but names nobody is as unknown as one that does not open.
    pub(super) async fn find(&self, id: &str) -> Result<Stored<Consumer>, Refusal> {
        let id = self.sealer.open(id)?;
        let stored =
            self.records.consumer(id).await.map_err(provider_fault)?.ok_or(Refusal::UnknownConsumer)?;
        self.heard_from(id);
        Ok(stored)
    }
}

fn resized(capacity: &Capacity, bytes: u64) -> Resized {
    Resized { requested: capacity.bytes(), bytes, granted: capacity.answer(bytes) }
}

fn accepted(offboard: Offboard) -> Result<Option<Consumer>, Refusal> {
    Ok(match offboard {
        Offboard::Accepted(consumer) => Some(*consumer),
        Offboard::Repeated => None,
    })
}

fn quota_refusal(error: BackendError) -> Refusal {
    match error {
        BackendError::BelowUse { bytes, used } => Refusal::BelowUse { requested: bytes, used },
        error @ (BackendError::NoStorage { .. }
        | BackendError::NotOurs { .. }
        | BackendError::NoVolumes
        | BackendError::Full
        | BackendError::Degraded { .. }
        | BackendError::Failed { .. }) => provider_fault(error),
    }
}

fn fresh_id() -> Result<ConsumerId, Refusal> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(provider_fault)?;
    Ok(ConsumerId::new(Builder::from_random_bytes(bytes).into_uuid()))
}
