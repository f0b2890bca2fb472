//! Network and storage as one grant: rules at the storage's endpoints that let consumers through.
//!
//! ```text
//!   consumer 7f…, sources 10.1.0.0/16 ─► rule `storage-7f…-10809` on the endpoint: inbound TCP 10809 from 10.1.0.0/16
//! ```
//!
//! In: what the provider wants permitted. Out: rules of the orchestrator, which stores them as intent and keeps clouds
//! to them. Holds: nothing; what is permitted is read from the orchestrator each time. A rule belongs to us by its
//! name and is put back when somebody changes it. Not here: who may come from where (`storage-provider`).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use model::{Direction, Member, PermitRule, Ports, Protocol, ResourceName, Segment, TagName, Traffic};
use orchestrator::execute::{JobOrPlan, JobState, Orchestrator, OrchestratorError, RuleHolder};
use serde::{Deserialize, Deserializer};
use storage_backend::{Network, NetworkError};
use storage_provider::{ConsumerId, Sources};
use tracing::{info, warn};

/// Names of our rules begin so.
const PREFIX: &str = "storage-";
/// How long one try waits for the clouds. The orchestrator goes on by itself, and the next try sees what came of it.
const WAIT: Duration = Duration::from_secs(15);

/// What consumers are let through to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermitConfig {
    pub endpoint: EndpointConfig,
    /// Ports and ranges such as `6800-7300`; default: those of the backend.
    #[serde(default, deserialize_with = "ports")]
    pub ports: Vec<Ports>,
}

/// Where the storage is, as the orchestrator knows it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointConfig {
    Resource(ResourceName),
    /// Every resource in it.
    Tag(TagName),
}

fn ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Ports>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Text {
        Number(u16),
        Text(String),
    }
    let ports = Vec::<Text>::deserialize(deserializer)?.into_iter().map(|port| match port {
        Text::Number(port) => Ok(Ports::one(port)),
        Text::Text(text) => text.parse().map_err(serde::de::Error::custom),
    });
    ports.collect()
}

/// The rules of one provider.
pub(super) struct Permits {
    orchestrator: Arc<Orchestrator>,
    endpoint: RuleHolder,
    ports: Vec<Ports>,
}

impl Permits {
    pub(super) fn new(orchestrator: Arc<Orchestrator>, config: &PermitConfig, default: Vec<Ports>) -> Self {
        let endpoint = match &config.endpoint {
            EndpointConfig::Resource(name) => RuleHolder::Resource(name.clone()),
            EndpointConfig::Tag(tag) => RuleHolder::Tag(tag.clone()),
        };
        let ports = if config.ports.is_empty() { default } else { config.ports.clone() };
        Self { orchestrator, endpoint, ports }
    }

    fn name(consumer: ConsumerId, ports: Ports) -> Segment {
        format!("{PREFIX}{consumer}-{ports}").parse().expect("letters, digits and dashes are a legal name")
    }

    /// The rules that let a consumer through; none if it comes from nowhere.
    fn rules(&self, consumer: ConsumerId, sources: &Sources) -> Vec<PermitRule> {
        let peers: BTreeSet<Member> = sources.iter().map(Member::Literal).collect();
        let rule = |ports: &Ports| {
            let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, *ports);
            let traffic = traffic.expect("TCP has ports");
            // Fails for no peers only: nothing is permitted then.
            PermitRule::new(Some(Self::name(consumer, *ports)), traffic, peers.clone()).ok()
        };
        self.ports.iter().filter_map(rule).collect()
    }

    fn failed(&self, sources: &Sources, reason: impl ToString) -> NetworkError {
        let attempt = match sources.is_empty() {
            true => format!("closing the network to the storage at {}", self.endpoint),
            false => format!("letting {sources} through to the storage at {}", self.endpoint),
        };
        NetworkError { attempt, reason: reason.to_string() }
    }

    /// Waits until a change is in force, for as long as a try may take.
    async fn settle(&self, asked: JobOrPlan) -> Result<(), String> {
        let Some(job) = asked.job() else { return Ok(()) };
        match tokio::time::timeout(WAIT, self.orchestrator.wait(&job.id)).await {
            Ok(Ok(job)) if job.state == JobState::Done => Ok(()),
            Ok(Ok(job)) => Err(format!("job {} {}: {}", job.id, job.state, job.message)),
            Ok(Err(err)) => Err(common::chain(&err)),
            Err(_) => Err(self.pending()),
        }
    }

    fn pending(&self) -> String {
        "it is stored and not yet in force; `trestle job list` shows what it waits for".to_owned()
    }

    async fn open(&self, rules: Vec<PermitRule>) -> Result<(), String> {
        let wanted = |rule: &PermitRule| self.orchestrator.rule_on(&self.endpoint, &rule.name);
        if rules.iter().all(|rule| wanted(rule).as_ref() == Some(rule)) {
            // An earlier try asked for it, and the orchestrator is at work.
            return Err(self.pending());
        }
        let asked = self.orchestrator.put_rules_on(&self.endpoint, rules, false).await;
        self.settle(asked.map_err(|err| common::chain(&err))?).await
    }

    async fn close(&self, consumer: ConsumerId) -> Result<(), String> {
        let names = self.ports.iter().map(|ports| Self::name(consumer, *ports));
        let held: Vec<Segment> =
            names.filter(|name| self.orchestrator.rule_on(&self.endpoint, name).is_some()).collect();
        if held.is_empty() {
            return Err(self.pending());
        }
        match self.orchestrator.delete_rules_on(&self.endpoint, held, false).await {
            Ok(asked) => self.settle(asked).await,
            // With the resource its rules are gone.
            Err(OrchestratorError::UnknownResource { .. } | OrchestratorError::UnknownRule { .. }) => Ok(()),
            Err(err) => Err(common::chain(&err)),
        }
    }
}

#[async_trait]
impl Network for Permits {
    async fn permits_exactly(&self, consumer: ConsumerId, sources: &Sources) -> Result<bool, NetworkError> {
        if sources.is_empty() {
            let gone = |ports: &Ports| {
                let name = Self::name(consumer, *ports);
                self.orchestrator.rule_on(&self.endpoint, &name).is_none()
                    && self.orchestrator.is_withdrawn(&self.endpoint, &name)
            };
            return Ok(self.ports.iter().all(gone));
        }
        for rule in self.rules(consumer, sources) {
            let wanted = self.orchestrator.rule_on(&self.endpoint, &rule.name).as_ref() == Some(&rule);
            let in_force = self.orchestrator.is_in_force(&self.endpoint, &rule);
            if !(wanted && in_force.map_err(|err| self.failed(sources, common::chain(&err)))?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn permit(&self, consumer: ConsumerId, sources: &Sources) -> Result<(), NetworkError> {
        let done = match sources.is_empty() {
            true => self.close(consumer).await,
            false => self.open(self.rules(consumer, sources)).await,
        };
        done.map_err(|reason| self.failed(sources, reason))
    }
}

/// Deletes what an earlier configuration permitted and this one does not know: another endpoint, other ports, or the
/// switch turned off. Rules of consumers that are gone go too.
pub(super) async fn sweep(
    orchestrator: &Orchestrator,
    permits: Option<&Permits>,
    consumers: &BTreeSet<ConsumerId>,
) {
    for (holder, name) in orchestrator.rules_beginning(PREFIX) {
        let Some((consumer, ports)) = parse(&name) else { continue };
        let ours = |permits: &Permits| permits.endpoint == holder && permits.ports.contains(&ports);
        if permits.is_some_and(ours) && consumers.contains(&consumer) {
            continue;
        }
        match orchestrator.delete_rules_on(&holder, vec![name.clone()], false).await {
            Ok(_) => {
                info!(rule = %name, on = %holder, "a rule for storage is withdrawn: nothing asks for it")
            }
            Err(err) => {
                warn!(rule = %name, on = %holder, error = common::chain(&err), "a rule stays that should go")
            }
        }
    }
}

/// The consumer and the ports a rule of ours is about.
fn parse(name: &Segment) -> Option<(ConsumerId, Ports)> {
    const UUID: usize = 36;
    let rest = name.as_str().strip_prefix(PREFIX)?;
    let (id, ports) = rest.split_at_checked(UUID)?;
    Some((id.parse().ok()?, ports.strip_prefix('-')?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_rules_are_known_by_their_names() {
        let consumer = ConsumerId::new(uuid::Uuid::from_u128(7));
        for ports in [Ports::one(10809), Ports::Range { first: 6800, last: 7300 }, Ports::Any] {
            assert_eq!(parse(&Permits::name(consumer, ports)), Some((consumer, ports)));
        }
        for other in
            ["storage", "storage-", "storage-box-80", "web", "storage-00000000-0000-0000-0000-000000000007"]
        {
            assert_eq!(parse(&other.parse().unwrap()), None, "{other}");
        }
    }

    #[test]
    fn ports_are_numbers_or_ranges() {
        let config = |text: &str| serde_json::from_str::<PermitConfig>(text);
        let some =
            config(r#"{"endpoint":{"resource":"default.a.nbd"},"ports":[10809,"6800-7300"]}"#).unwrap();
        assert_eq!(some.ports, [Ports::one(10809), Ports::Range { first: 6800, last: 7300 }]);
        assert!(config(r#"{"endpoint":{"tag":"storage"}}"#).unwrap().ports.is_empty());
        for bad in [
            r#"{"ports":[1]}"#,
            r#"{"endpoint":{"resource":"web"}}"#,
            r#"{"endpoint":{"tag":"t"},"ports":[70000]}"#,
        ] {
            assert!(config(bad).is_err(), "{bad}");
        }
    }
}
