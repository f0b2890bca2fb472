//! The four calls of the OCS design and the report of later clients, decided: from a request and the records it concerns to new records and an answer.
//!
//! In: requests and the records read for them. Out: records to write in one transaction with the versions that were
//! read, or a refusal. Not here: reading and writing them, and retrying on conflict (`storage-backend`).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use model::policy::check_labels;

use crate::{
    capacity::Capacity,
    client::Client,
    consumer::{Consumer, Event, Phase},
    grant::{Ledger, grant},
    id::{ConsumerId, SealKeyId},
    identity::Data,
    rates::Rates,
    refusal::Refusal,
    sources::Sources,
    terms::{Holdings, Terms},
    ticket::{KeyRing, TicketError, TicketRecord, TicketState, TicketText},
};

/// What a consumer-to-be sends.
pub struct OnboardRequest<'a> {
    pub ticket: &'a TicketText,
    /// Nothing: what the ticket is good for.
    pub capacity: Option<Capacity>,
    /// What it says of itself, if it is a client of one of OCS's releases.
    pub says: Option<Client>,
    /// Where it says it comes from; nothing: from wherever its ticket allows.
    pub sources: Sources,
    /// The client certificate's identity, when there is one.
    pub client: Option<&'a str>,
}

/// What is known when it asks.
pub struct OnboardView<'a> {
    /// The record under the ticket's hash.
    pub ticket: Option<&'a TicketRecord>,
    /// The consumer that record names, if it still exists.
    pub consumer: Option<&'a Consumer>,
    pub holdings: Holdings,
    pub terms: Terms,
    pub keys: &'a KeyRing,
    pub now: u64,
}

/// What becomes of an onboarding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Onboard {
    /// The ticket was used before: the same consumer again.
    Existing(Consumer),
    /// All three records are written together or not at all.
    Create { consumer: Consumer, ticket: Box<TicketRecord>, ledger: Ledger },
}

/// Decides an onboarding. `fresh` and `seal_key` are used if a consumer is made.
pub fn decide_onboard(
    request: &OnboardRequest<'_>,
    view: &OnboardView<'_>,
    fresh: ConsumerId,
    seal_key: SealKeyId,
) -> Result<Onboard, Refusal> {
    match view.ticket.map(|record| &record.state) {
        Some(TicketState::Revoked { .. }) => return Err(TicketError::Revoked.into()),
        // Who shows a ticket that was accepted once is its consumer, even when the ticket or its key is past its time.
        Some(TicketState::Used { .. }) => return repeated(request, view.consumer),
        Some(TicketState::Issued) | None => {}
    }
    let ticket = request.ticket.verify(view.keys, view.now)?;
    ticket.check_at(view.now)?;
    let sources = Sources::granted(&request.sources, &ticket.sources)?;
    let Holdings { total, ledger } = view.holdings;
    let limit = view.terms.limit(ticket.limit, total);
    let capacity =
        request.capacity.unwrap_or_else(|| Capacity::of(ticket.limit.unwrap_or(view.terms.capacity)));
    let granted = grant(capacity.bytes(), total, ledger, 0, limit)?;
    let name = request.says.as_ref().map_or("", |client| &client.name);
    let consumer = Consumer {
        id: fresh,
        ticket: ticket.hash.clone(),
        requested: capacity.quantity(),
        granted,
        ticket_limit: ticket.limit,
        sources,
        phase: Phase::Configuring,
        seal_key,
        bound_to: request.client.map(str::to_owned),
        created_at: view.now,
        name: if is_name(name) { name.to_owned() } else { String::new() },
        rates: ticket.rates,
        encrypted: ticket.encrypted || view.terms.encrypted,
        labels: BTreeMap::new(),
        kept_until: None,
        data: Data::Nothing,
        client: request.says.clone().map(Box::new),
    };
    let ledger = ledger.moved(0, granted)?;
    let ticket = Box::new(TicketRecord::used(&ticket, view.ticket, fresh));
    Ok(Onboard::Create { consumer, ticket, ledger })
}

fn repeated(request: &OnboardRequest<'_>, consumer: Option<&Consumer>) -> Result<Onboard, Refusal> {
    let Some(consumer) = consumer.filter(|consumer| !consumer.is_deleting()) else {
        return Err(TicketError::Spent.into());
    };
    check_client(consumer, request.client)?;
    match (&consumer.client, &request.says) {
        (Some(known), Some(says)) if !known.may_be(says) => Err(Refusal::OtherClient),
        _ => Ok(Onboard::Existing(consumer.clone())),
    }
}

/// The record of a consumer whose client says this of itself; `None` if it is known already.
pub fn decide_report(
    consumer: Option<&Consumer>,
    client: Option<&str>,
    says: &Client,
) -> Result<Option<Consumer>, Refusal> {
    let consumer = consumer.filter(|consumer| !consumer.is_deleting()).ok_or(Refusal::UnknownConsumer)?;
    check_client(consumer, client)?;
    let known = consumer.client.clone().unwrap_or_default();
    if !known.may_be(says) {
        return Err(Refusal::OtherClient);
    }
    let told = Some(Box::new(known.told(says)));
    Ok((told != consumer.client).then(|| Consumer { client: told, ..consumer.clone() }))
}

/// A consumer that onboarded with a certificate answers to that certificate only.
fn check_client(consumer: &Consumer, client: Option<&str>) -> Result<(), Refusal> {
    match &consumer.bound_to {
        Some(bound) if client != Some(bound) => Err(Refusal::ForeignClient),
        Some(_) | None => Ok(()),
    }
}

/// Whether connection details may be handed out.
pub fn decide_config(consumer: Option<&Consumer>, client: Option<&str>) -> Result<(), Refusal> {
    let consumer = consumer.ok_or(Refusal::UnknownConsumer)?;
    check_client(consumer, client)?;
    match &consumer.phase {
        Phase::Ready => Ok(()),
        Phase::Configuring => Err(Refusal::Configuring),
        Phase::Failed { reason } => Err(Refusal::Failed { reason: reason.clone() }),
        Phase::Deleting { .. } => Err(Refusal::UnknownConsumer),
    }
}

/// What becomes of a new capacity.
///
/// A larger grant is promised first and given then; a smaller one is taken first, where the backend can refuse it,
/// and freed then. Killed in between, the next reconcile restores what the record says, which nobody was told to be
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    Unchanged {
        bytes: u64,
    },
    /// Write the records, then tell the backend.
    Grow {
        to: u64,
    },
    /// Tell the backend, then write the records.
    Shrink {
        to: u64,
    },
}

/// How far down a grant can go, as the backend sees it now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    pub used: u64,
    /// The size of the largest volume that cannot be made smaller: whoever mounted it relies on all of it.
    pub volumes: u64,
}

/// Decides a new capacity, of which `limit` is the most. `force` lets the grant go below what the volumes promise, never
/// below what is in use.
pub fn decide_resize(
    consumer: Option<&Consumer>,
    client: Option<&str>,
    capacity: &Capacity,
    limit: Option<u64>,
    Holdings { total, ledger }: Holdings,
    floor: Floor,
    force: bool,
) -> Result<Resize, Refusal> {
    let consumer = consumer.ok_or(Refusal::UnknownConsumer)?;
    check_client(consumer, client)?;
    match &consumer.phase {
        Phase::Ready => {}
        Phase::Deleting { .. } => return Err(Refusal::UnknownConsumer),
        phase @ (Phase::Configuring | Phase::Failed { .. }) => {
            return Err(Refusal::NotReady { phase: phase.name() });
        }
    }
    let (requested, granted) = (capacity.bytes(), consumer.granted);
    if requested < floor.used {
        return Err(Refusal::BelowUse { requested, used: floor.used });
    }
    if requested < granted {
        // What is taken back is what was asked, however much is promised to others.
        return match floor.volumes {
            volumes if requested < volumes && !force => Err(Refusal::BelowVolumes { requested, volumes }),
            _ => Ok(Resize::Shrink { to: requested }),
        };
    }
    // Storage that shrank under its promises, or a ticket's limit, must not turn a wish for more into less.
    let to = grant(requested, total, ledger, granted, limit).unwrap_or(0).max(granted);
    Ok(if to > granted { Resize::Grow { to } } else { Resize::Unchanged { bytes: granted } })
}

/// The records after a resize to `to` bytes.
pub fn settle_resize(
    consumer: &Consumer,
    capacity: &Capacity,
    to: u64,
    ledger: Ledger,
) -> Result<(Consumer, Ledger), Refusal> {
    let ledger = ledger.moved(consumer.granted, to)?;
    let mut consumer = Consumer { requested: capacity.quantity(), granted: to, ..consumer.clone() };
    consumer.handle(Event::Regranted)?;
    Ok((consumer, ledger))
}

/// The record of a consumer that may come from `sources` from now on, and from nowhere else. An administrator's
/// word: no ticket bounds it.
pub fn decide_permit(consumer: Option<&Consumer>, sources: Sources) -> Result<Consumer, Refusal> {
    let mut consumer = Consumer { sources, ..consumer.ok_or(Refusal::UnknownConsumer)?.clone() };
    consumer.handle(Event::Regranted)?;
    Ok(consumer)
}

/// What becomes of an offboarding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offboard {
    Accepted(Box<Consumer>),
    /// It is on its way out already.
    Repeated,
}

/// Its data is kept until `kept_until`, or goes at once. Who said "later" may say "now" afterwards, not the other way round.
pub fn decide_offboard(
    consumer: Option<&Consumer>,
    client: Option<&str>,
    kept_until: Option<u64>,
) -> Result<Offboard, Refusal> {
    let mut consumer = consumer.ok_or(Refusal::UnknownConsumer)?.clone();
    check_client(&consumer, client)?;
    let sooner = consumer.is_deleting() && consumer.kept_until.is_some() && kept_until.is_none();
    if !consumer.handle(Event::Offboarded)? && !sooner {
        return Ok(Offboard::Repeated);
    }
    consumer.kept_until = kept_until;
    Ok(Offboard::Accepted(Box::new(consumer)))
}

/// The record of a consumer that stays after all.
pub fn decide_keep(consumer: Option<&Consumer>, now: u64) -> Result<Consumer, Refusal> {
    let consumer = consumer.ok_or(Refusal::UnknownConsumer)?;
    if !consumer.is_kept_at(now) {
        return Err(Refusal::NotKept { phase: consumer.phase.name() });
    }
    Ok(Consumer { phase: Phase::Configuring, kept_until: None, ..consumer.clone() })
}

/// Longest name of a consumer, in bytes.
const NAME: usize = 63;

/// The record of a consumer that is called something else; an empty name takes the old one away.
pub fn decide_name(consumer: Option<&Consumer>, name: &str) -> Result<Consumer, Refusal> {
    let consumer = consumer.ok_or(Refusal::UnknownConsumer)?;
    if !is_name(name) {
        return Err(Refusal::Name);
    }
    Ok(Consumer { name: name.to_owned(), ..consumer.clone() })
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME && !name.chars().any(char::is_control) && name.trim() == name
}

/// The record of a consumer that is served so much in a second. An administrator's word: no ticket bounds it.
pub fn decide_rates(consumer: Option<&Consumer>, rates: Rates) -> Result<Consumer, Refusal> {
    let consumer = consumer.ok_or(Refusal::UnknownConsumer)?;
    Ok(Consumer { rates, ..consumer.clone() })
}

/// Most labels of a consumer.
const LABELS: usize = 64;

/// The record of a consumer with these labels and no others.
pub fn decide_labels(
    consumer: Option<&Consumer>,
    labels: &BTreeMap<String, String>,
) -> Result<Consumer, Refusal> {
    let consumer = consumer.ok_or(Refusal::UnknownConsumer)?;
    if labels.len() > LABELS {
        return Err(Refusal::Labels {
            why: format!("there are {}; at most {LABELS} are allowed", labels.len()),
        });
    }
    check_labels(labels).map_err(|why| Refusal::Labels { why })?;
    Ok(Consumer { labels: labels.clone(), ..consumer.clone() })
}
