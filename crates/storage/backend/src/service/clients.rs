//! The calls that clients of OCS's releases make beside the design's: who they are, how they are, and what they are to have.

use storage_provider::{
    Capacity, CapacityForm, Client, ConsumerId, OnboardRequest, Refusal, Sources, Third, TicketText,
    decide_config, decide_report, desired_state,
};

use super::{Caller, Details, Onboarded, Provider, provider_fault};
use crate::{backend::Backend, records::Records};

/// How a client was when it said so last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Seconds since 1970.
    pub at: u64,
    /// The part of its quota that it uses, if it said a number.
    pub used: Option<f64>,
}

/// How a consumer's storage is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConsumerState {
    /// Why it is out of order.
    pub failed: Option<String>,
    /// The part of the grant that is in use; unknown while the storage does not say.
    pub used: Option<f64>,
}

/// The answer to a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    pub consumer: ConsumerId,
    pub channel: String,
    /// Of the desired state; empty while there is none to be had.
    pub hash: String,
    /// Whether the record of the consumer was changed by it.
    pub changed: bool,
}

/// What a client is to have, and which channel its operator is to be in.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientState {
    pub objects: Vec<Vec<u8>>,
    pub hash: String,
    pub channel: String,
}

impl<R: Records, B: Backend> Provider<R, B> {
    /// OnboardConsumer: the ticket, field 3 as it came, and what the client says of itself. Capacities are answered as
    /// text.
    pub async fn onboard_client(
        &self,
        token: &str,
        third: &str,
        client: Client,
        sources: &[String],
        caller: Caller<'_>,
    ) -> Result<Onboarded, Refusal> {
        let (capacity, operator_version) = match Third::read(third)? {
            Third::Nothing => (None, String::new()),
            Third::Capacity(capacity) => (Some(capacity), String::new()),
            Third::Version(version) => (None, version),
        };
        let client = Client { operator_version, ..client };
        client.check()?;
        let ticket = TicketText::parse(token)?;
        let request = OnboardRequest {
            ticket: &ticket,
            capacity,
            says: Some(client.clone()),
            sources: Sources::parse(sources)?,
            client: caller.client,
        };
        let consumer = self.onboarded(&request).await?;
        // Shown again, it may be a newer release.
        self.change(consumer.id, |consumer| decide_report(consumer, caller.client, &client)).await?;
        let asked = match capacity {
            Some(capacity) => capacity,
            None => Capacity::parse(&consumer.requested.to_string(), CapacityForm::Text)?,
        };
        self.answer(&consumer, &asked)
    }

    /// Whether a report would change what is known of the client.
    pub async fn is_news(&self, id: &str, client: &Client, caller: Caller<'_>) -> Result<bool, Refusal> {
        client.check()?;
        Ok(decide_report(Some(&self.find(id).await?.value), caller.client, client)?.is_some())
    }

    /// ReportStatus: how the client is. Its consumer's record is written only if it says something new of itself.
    pub async fn report_status(
        &self,
        id: &str,
        client: Client,
        used: f64,
        caller: Caller<'_>,
    ) -> Result<Reported, Refusal> {
        client.check()?;
        let consumer = self.find(id).await?.value;
        let changed = decide_report(Some(&consumer), caller.client, &client)?.is_some();
        if changed {
            self.change(consumer.id, |consumer| decide_report(consumer, caller.client, &client)).await?;
        }
        let used = (used.is_finite() && used >= 0.0).then_some(used);
        self.reports.lock().insert(consumer.id, Report { at: self.now(), used });
        let told = consumer.client.unwrap_or_default().told(&client);
        let hash = match self.desired_state(id, caller).await {
            Ok(state) => state.hash,
            // The client asks for its state when the hash is another one; then it is told why there is none.
            Err(_) => String::new(),
        };
        Ok(Reported { consumer: consumer.id, channel: told.channel(), hash, changed })
    }

    /// GetDesiredClientState.
    pub async fn desired_state(&self, id: &str, caller: Caller<'_>) -> Result<ClientState, Refusal> {
        let consumer = self.find(id).await?.value;
        decide_config(Some(&consumer), caller.client)?;
        let client = consumer.client.clone().unwrap_or_default();
        if client.operator_namespace.is_empty() {
            return Err(Refusal::NoNamespace);
        }
        let items = self.backend.connection_details(consumer.id).await.map_err(provider_fault)?;
        let state = desired_state(&consumer, &client, &items);
        Ok(ClientState { objects: state.objects, hash: state.hash, channel: client.channel() })
    }

    /// GetClientAlerts: how the consumer's storage is.
    pub async fn state_of(&self, id: &str, caller: Caller<'_>) -> Result<ConsumerState, Refusal> {
        let consumer = self.find(id).await?.value;
        match decide_config(Some(&consumer), caller.client) {
            Ok(()) => {
                let used = self.backend.usage(consumer.id).await.ok().map(|usage| usage.used);
                let used = used.map(|used| used as f64 / consumer.granted.max(1) as f64);
                Ok(ConsumerState { failed: None, used })
            }
            Err(Refusal::Failed { reason }) => Ok(ConsumerState { failed: Some(reason), used: None }),
            Err(Refusal::Configuring) => Ok(ConsumerState::default()),
            Err(refusal) => Err(refusal),
        }
    }

    /// The claims of releases 4.11 to 4.18: a consumer's storage is there when it is Ready, and a claim adds nothing to
    /// it. Answers what the claim is for.
    pub async fn claim(&self, id: &str, on_files: bool, caller: Caller<'_>) -> Result<Details, Refusal> {
        if on_files {
            return Err(Refusal::NoFileSystems);
        }
        self.storage_config(id, caller).await
    }

    /// How a consumer's client said last that it is.
    pub fn report_of(&self, consumer: ConsumerId) -> Option<Report> {
        self.reports.lock().get(&consumer).copied()
    }
}
