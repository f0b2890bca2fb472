//! What becomes of policies, told where they were written: the status of those kinds that have one, and Events on what is not enforced.
//!
//! In: how far nodes are with each policy, and what is wrong with it; the status that a cluster has. Out: patches, for what differs; an
//! Event for each thing that is wrong, once. Holds: which Events were made. One of several controllers writes, the one that leads.
//! Not here: how an API server is written to (`kubernetes`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use aws_lc_rs::digest;
use common::chain;
use drivers::{clusters::Clusters, policy::Policy};
use jiff::Timestamp;
use kubernetes::{Cluster, Event, WriteError};
use model::policy::{Kind, ObjectId, output::Problem};
use orchestrator::execute::Orchestrator;
use serde_json::{Value, json};
use tracing::warn;
use wire::trestle::v1::PolicyState;

use crate::realisation::Realisations;

const LOOK: Duration = Duration::from_secs(2);
/// Writes in one look: an API server is not stormed.
const MOST: usize = 50;
/// What is wrong with one policy, in one status or Event.
const PROBLEMS_TOLD: usize = 5;

pub struct Writer {
    pub clusters: Arc<Clusters>,
    pub policy: Arc<Policy>,
    pub realisations: Realisations,
    pub orchestrator: Arc<Orchestrator>,
}

impl Writer {
    pub async fn run(self) {
        let mut told = Told::default();
        loop {
            self.orchestrator.until_leads(true).await;
            tokio::time::sleep(LOOK).await;
            if !self.policy.is_synced() {
                // Before everything is known, nobody seems to be selected.
                continue;
            }
            for (cluster, due) in self.due(Timestamp::now()) {
                told.write(&cluster, due).await;
            }
            let faulty = self.policy.faulty();
            told.events.retain(|(id, _)| faulty.iter().any(|(faulty, _)| faulty == id));
            for cluster in self.clusters.with_statuses(|cluster, _| Arc::clone(cluster)) {
                told.report(&cluster, &faulty).await;
            }
        }
    }

    /// Statuses that are not as they should be.
    fn due(&self, now: Timestamp) -> Vec<(Arc<Cluster>, Statuses)> {
        let some = self.clusters.with_statuses(|_, statuses| !statuses.is_empty()).contains(&true);
        let states = some.then(|| self.realisations.policies(&self.policy, false));
        let of_id = |state: PolicyState| Some((id_of(&state)?, state));
        let states: BTreeMap<_, _> = states.into_iter().flatten().filter_map(of_id).collect();
        self.clusters.with_statuses(|cluster, statuses| {
            let due = |(id, there): (&ObjectId, &Value)| {
                Some((id.clone(), wanted(id.kind, states.get(id)?, there, now)?))
            };
            (Arc::clone(cluster), statuses.iter().filter_map(due).collect())
        })
    }
}

/// What each object's status should be.
type Statuses = Vec<(ObjectId, Value)>;

/// What was written, so that it is written once: an API server may keep less of it than it was told.
#[derive(Default)]
struct Told {
    statuses: BTreeMap<ObjectId, Value>,
    events: BTreeSet<(ObjectId, String)>,
}

impl Told {
    async fn write(&mut self, cluster: &Cluster, due: Statuses) {
        let new = |(id, status): &(ObjectId, Value)| self.statuses.get(id) != Some(status);
        let due: Vec<_> = due.into_iter().filter(new).take(MOST).collect();
        for (id, status) in due {
            match cluster.write_status(&id, &status).await {
                Ok(()) => drop(self.statuses.insert(id, status)),
                // That is heard of, and then nothing is due.
                Err(WriteError::Gone) => {}
                Err(err) => {
                    warn!(%id, error = chain(&err), "the status of a policy could not be written; trying again");
                    return;
                }
            }
        }
    }

    async fn report(&mut self, cluster: &Cluster, faulty: &[(ObjectId, Vec<Problem>)]) {
        let mut made = 0;
        for (about, problems) in faulty {
            let message =
                told(problems.iter().map(|problem| (problem.path.as_str(), problem.message.as_str())));
            let key = key_of(about, &message);
            if made == MOST || self.events.contains(&(about.clone(), key.clone())) {
                continue;
            }
            let event = Event {
                about: about.clone(),
                reason: "NotEnforced",
                message,
                key: key.clone(),
                at: Timestamp::now(),
            };
            match cluster.report(&event).await {
                // Of what is stored here no API server knows.
                Ok(()) | Err(WriteError::Gone) => drop(self.events.insert((about.clone(), key))),
                Err(err) => {
                    warn!(id = %about, error = chain(&err), "an Event could not be made; trying again");
                    return;
                }
            }
            made += 1;
        }
    }
}

fn id_of(state: &PolicyState) -> Option<ObjectId> {
    let kind = Kind::from_name(&state.kind)?;
    Some(ObjectId { kind, namespace: state.namespace.clone(), name: state.name.clone() })
}

/// The same words of the same object are the same Event, whoever makes it.
fn key_of(about: &ObjectId, message: &str) -> String {
    let text = format!("{about} {message}");
    common::hex(&digest::digest(&digest::SHA256, text.as_bytes()).as_ref()[..8])
}

/// As one line, of as many as can be read.
fn told<'a>(problems: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let lines: Vec<String> = problems
        .map(
            |(path, message)| if path.is_empty() { message.to_owned() } else { format!("{path}: {message}") },
        )
        .collect();
    match lines.get(PROBLEMS_TOLD..) {
        None | Some([]) => lines.join("; "),
        Some(rest) => format!("{}; and {} more", lines[..PROBLEMS_TOLD].join("; "), rest.len()),
    }
}

/// One condition: its type, whether it holds, why, and in more words.
struct Condition {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

/// The status it should have, if that is another than is there.
fn wanted(kind: Kind, state: &PolicyState, there: &Value, now: Timestamp) -> Option<Value> {
    let problems =
        told(state.problems.iter().map(|problem| (problem.path.as_str(), problem.message.as_str())));
    let failures =
        told(state.failures.iter().map(|failure| (failure.node.as_str(), failure.message.as_str())));
    let understood = Condition {
        kind: if kind.is_cluster_policy() { "Accepted" } else { "Realizable" },
        holds: problems.is_empty(),
        reason: if problems.is_empty() { "Understood" } else { "NotUnderstood" },
        message: problems,
    };
    let mut conditions = vec![understood, enforced(state, &failures)];
    if !kind.is_cluster_policy() && !failures.is_empty() {
        conditions[0].holds = false;
        conditions[0].reason = "NetworkPolicyRealizationFailure";
        let own = std::mem::take(&mut conditions[0].message);
        conditions[0].message =
            [own, failures].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
    }
    // Antrea has the generation beside its conditions.
    let generation = kind.is_cluster_policy().then_some(state.generation);
    let mut status = json!({ "conditions": merged(there, &conditions, generation, now) });
    if !kind.is_cluster_policy() {
        status["phase"] = state.phase.as_str().into();
        status["observedGeneration"] = state.generation.into();
        status["currentNodesRealized"] = state.realized.into();
        status["desiredNodesRealized"] = state.span.into();
    }
    let differs = status.as_object()?.iter().any(|(field, value)| there.get(field) != Some(value));
    differs.then_some(status)
}

/// Whether all nodes that need it have this generation of it.
fn enforced(state: &PolicyState, failures: &str) -> Condition {
    let (holds, reason) = match state.phase.as_str() {
        "Realized" => (true, "OnAllNodes"),
        "Pending" => (true, "NobodySelected"),
        "Failed" => (false, "NodesFailed"),
        _ => (false, "Realizing"),
    };
    let on = format!("{} of {} nodes have it", state.realized, state.span);
    let message = if failures.is_empty() { on } else { format!("{on}; {failures}") };
    Condition { kind: "Enforced", holds, reason, message }
}

/// Conditions of others stay, and the time of ours moves when they turn.
fn merged(there: &Value, ours: &[Condition], generation: Option<i64>, now: Timestamp) -> Vec<Value> {
    let there = there["conditions"].as_array().cloned().unwrap_or_default();
    let is_ours = |condition: &&Value| ours.iter().any(|one| condition["type"] == one.kind);
    let mut merged: Vec<_> = there.iter().filter(|condition| !is_ours(condition)).cloned().collect();
    merged.extend(ours.iter().map(|one| {
        let before = there.iter().find(|condition| condition["type"] == one.kind);
        let word = if one.holds { "True" } else { "False" };
        let turned = match before {
            Some(before) if before["status"] == word => before["lastTransitionTime"].clone(),
            _ => format!("{now:.0}").into(),
        };
        let mut condition = json!({"type": one.kind, "status": word, "lastTransitionTime": turned, "reason": one.reason, "message": one.message});
        if let Some(generation) = generation {
            condition["observedGeneration"] = generation.into();
        }
        condition
    }));
    merged
}

#[cfg(test)]
mod tests {
    use wire::trestle::v1::{NodeFailure, PolicyProblem};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn state(phase: &str, realized: u32) -> PolicyState {
        PolicyState { phase: phase.to_owned(), generation: 3, span: 2, realized, ..PolicyState::default() }
    }

    #[test]
    fn a_status_is_written_once_and_its_times_move_when_it_turns() {
        let first = wanted(Kind::ClusterNetworkPolicy, &state("Realizing", 1), &Value::Null, at(1)).unwrap();
        let enforced = &first["conditions"][1];
        assert_eq!(
            (&enforced["status"], &enforced["message"]),
            (&json!("False"), &json!("1 of 2 nodes have it"))
        );
        assert_eq!(
            wanted(Kind::ClusterNetworkPolicy, &state("Realizing", 1), &first, at(2)),
            None,
            "nothing new"
        );
        let second = wanted(Kind::ClusterNetworkPolicy, &state("Realized", 2), &first, at(9)).unwrap();
        let times: Vec<_> = second["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["lastTransitionTime"].clone())
            .collect();
        assert_eq!(times, [json!("1970-01-01T00:00:01Z"), json!("1970-01-01T00:00:09Z")]);
    }

    #[test]
    fn conditions_of_others_stay() {
        let there = json!({"conditions": [{"type": "Theirs", "status": "True"}]});
        let status = wanted(Kind::ClusterNetworkPolicy, &state("Realized", 2), &there, at(1)).unwrap();
        assert_eq!(
            (status["conditions"].as_array().unwrap().len(), &status["conditions"][0]["type"]),
            (3, &json!("Theirs"))
        );
    }

    #[test]
    fn antreas_have_its_fields_and_say_what_is_wrong_and_where() {
        let mut state = state("Failed", 1);
        state.failures = vec![NodeFailure { node: "n2".to_owned(), message: "no".to_owned() }];
        state.problems = (0..7)
            .map(|at| PolicyProblem { path: format!("spec.ingress[{at}]"), message: "why".to_owned() })
            .collect();
        let status =
            wanted(Kind::AntreaClusterNetworkPolicy, &state, &json!({"phase": "Pending"}), at(1)).unwrap();
        assert_eq!(
            (&status["phase"], &status["currentNodesRealized"], &status["desiredNodesRealized"]),
            (&json!("Failed"), &json!(1), &json!(2))
        );
        let message = status["conditions"][0]["message"].as_str().unwrap();
        assert!(
            message.contains("spec.ingress[4]: why; and 2 more") && message.ends_with("n2: no"),
            "{message}"
        );
        let enforced = &status["conditions"][1];
        let told = [&enforced["type"], &enforced["status"], &enforced["message"]];
        assert_eq!(told, ["Enforced", "False", "1 of 2 nodes have it; n2: no"]);
        // The generation is beside the conditions: in them its kind has no place for it.
        assert_eq!((&status["observedGeneration"], enforced.get("observedGeneration")), (&json!(3), None));
    }
}
