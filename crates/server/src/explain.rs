//! Explain, between the words of callers and those of the engine; for gRPC and REST alike.
//!
//! Where no policy decides, a Pod is open; a resource of a cloud has its permit list, which is looked at here.

mod permit;

use std::{sync::Arc, time::Duration};

use drivers::{policy::Policy, span};
use model::{
    ResourceName,
    policy::output::{Action, MemberKind, Protocol},
};
use orchestrator::execute::Orchestrator;
use policy::explain::{
    End, Endpoint, ExplainError, Explanation, Miss, Outcome, Query, RuleRef, Side, Stage, Step,
};
use tokio::sync::watch;
use tonic::Code;
use wire::trestle::v1::{ExplainRequest, ExplainResponse, ExplainedEnd, ExplainedSide, ExplainedStep};

use crate::failure::Failure;

/// How long a resource that has just been made may take to be known to the engine.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who knows what decides.
#[derive(Clone)]
pub struct Explainer {
    pub orchestrator: Arc<Orchestrator>,
    pub policy: Arc<Policy>,
    /// How far the policy engine knows the resources, in the orchestrator's count of changes.
    pub enforced: watch::Receiver<u64>,
}

impl Explainer {
    pub async fn explain(&self, request: &ExplainRequest) -> Result<ExplainResponse, Failure> {
        let mut query = query(request)?;
        let mut blocks = [None; 2];
        for (end, block) in [&mut query.source, &mut query.destination].into_iter().zip(&mut blocks) {
            if let Some((of_it, first)) = permit::of_cluster(&self.orchestrator, end) {
                *block = Some(of_it);
                *end = Endpoint::Address(first);
            }
        }
        let is_entity =
            |end: &Endpoint| matches!(end, Endpoint::Workload { kind: MemberKind::ExternalEntity, .. });
        if is_entity(&query.source) || is_entity(&query.destination) {
            let now = *self.orchestrator.changes().borrow();
            let mut enforced = self.enforced.clone();
            // Late or not: what the engine knows then is explained.
            let _ = tokio::time::timeout(PATIENCE, enforced.wait_for(|reached| *reached >= now)).await;
        }
        match self.policy.explain(&query) {
            Ok(explanation) => {
                let mut response = reply(&explanation);
                response.notes.extend(hosts(&explanation));
                permit::decide(&self.orchestrator, &query, blocks, &explanation, &mut response);
                Ok(response)
            }
            Err(err @ ExplainError::Unknown(_)) => Err(Failure::from_error(Code::NotFound, &err)),
        }
    }
}

/// `tcp`, `udp`, `sctp` or `icmp`; tcp if empty.
pub fn protocol(text: &str) -> Result<Protocol, Failure> {
    let found = Protocol::parse(&text.to_uppercase()).filter(|protocol| *protocol != Protocol::Igmp);
    found.ok_or_else(|| {
        Failure::new(Code::InvalidArgument, format!("{text:?} is not one of tcp, udp, sctp, icmp"))
    })
}

pub fn port(number: Option<u32>) -> Result<Option<u16>, Failure> {
    match number.map(|number| (number, u16::try_from(number))) {
        None => Ok(None),
        Some((_, Ok(port))) if port > 0 => Ok(Some(port)),
        Some((number, _)) => Err(Failure::new(Code::InvalidArgument, format!("{number} is not a port"))),
    }
}

fn query(request: &ExplainRequest) -> Result<Query, Failure> {
    Ok(Query {
        source: endpoint(&request.source)?,
        destination: endpoint(&request.destination)?,
        protocol: protocol(&request.protocol)?,
        port: port(request.port)?,
        source_port: None,
        icmp: None,
        family: None,
    })
}

/// `10.0.0.1`, `namespace.cloud.name` of a resource, `namespace/name` of a Pod, or `pod/…`, `entity/…`, `node/name`.
fn endpoint(text: &str) -> Result<Endpoint, Failure> {
    if let Ok(address) = text.parse() {
        return Ok(Endpoint::Address(address));
    }
    if let Ok(resource) = text.parse::<ResourceName>() {
        return Ok(Endpoint::Workload {
            kind: MemberKind::ExternalEntity,
            namespace: resource.namespace.to_string(),
            name: format!("{}.{}", resource.cloud, resource.name),
        });
    }
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        ["node", name] => (MemberKind::Node, "", *name),
        ["pod", namespace, name] | [namespace, name] => (MemberKind::Pod, *namespace, *name),
        ["entity" | "externalentity", namespace, name] => (MemberKind::ExternalEntity, *namespace, *name),
        _ => {
            let text = format!(
                "{text:?} is neither an address, a resource (namespace.cloud.name), nor namespace/name, pod/…, entity/… or node/name"
            );
            return Err(Failure::new(Code::InvalidArgument, text));
        }
    };
    Ok(Endpoint::Workload { kind, namespace: namespace.to_owned(), name: name.to_owned() })
}

fn reply(explanation: &Explanation) -> ExplainResponse {
    ExplainResponse {
        allowed: explanation.allowed,
        source: Some(end(&explanation.source)),
        destination: Some(end(&explanation.destination)),
        egress: Some(side(&explanation.egress)),
        ingress: Some(side(&explanation.ingress)),
        notes: explanation.notes.clone(),
        remedies: explanation.remedies.clone(),
    }
}

/// Hosts and node ports whose policies no agent of ours enforces: what is decided for them may not be so.
fn hosts(explanation: &Explanation) -> Vec<String> {
    let sides =
        [(&explanation.source, &explanation.egress), (&explanation.destination, &explanation.ingress)];
    let decides = |side: &Side| {
        side.steps.iter().any(|step| !matches!(step.outcome, Outcome::NoMatch | Outcome::Permitted))
    };
    let is_pod = |name: &String| name.starts_with("Pod ");
    let is_host = |end: &End| {
        !end.workloads.iter().any(is_pod) && !end.enforced_on.iter().any(|key| span::is_cloud(key))
    };
    let hosts =
        sides.into_iter().filter(|(end, side)| !end.workloads.is_empty() && is_host(end) && decides(side));
    hosts
        .map(|(end, _)| {
            format!(
                "NOT ENFORCED by Trestle's agents: {} is no Pod, and they enforce policies for Pods only (`trestle policy list` says whose policies failed)",
                end.workloads.join(", ")
            )
        })
        .collect()
}

fn end(end: &End) -> ExplainedEnd {
    ExplainedEnd {
        workloads: end.workloads.clone(),
        address: end.address.map(|address| address.to_string()).unwrap_or_default(),
        enforced_on: end.enforced_on.clone(),
    }
}

fn side(side: &Side) -> ExplainedSide {
    ExplainedSide { allowed: side.allowed, steps: side.steps.iter().map(step).collect() }
}

fn step(step: &Step) -> ExplainedStep {
    let stage = match step.stage {
        Stage::Loopback => "loopback",
        Stage::Tiers => "tiers",
        Stage::Kubernetes => "kubernetes",
        Stage::Baseline => "baseline",
        Stage::Default => "default",
    };
    let (outcome, details) = match &step.outcome {
        Outcome::Rule(rule) => (action(rule), vec![rule.to_string()]),
        Outcome::Isolated { by, near_misses } => {
            let by = by.iter().map(|id| format!("isolated by {id}"));
            let misses = near_misses.iter().map(|miss| match miss.misses {
                Miss::Peer => format!("{} permits the port, not the peer", miss.rule),
                Miss::Port => format!("{} permits the peer, not the port", miss.rule),
            });
            ("isolated", by.chain(misses).collect())
        }
        Outcome::NoMatch => ("no match", Vec::new()),
        Outcome::Permitted => ("permitted", Vec::new()),
    };
    ExplainedStep { stage: stage.to_owned(), outcome: outcome.to_owned(), details }
}

fn action(rule: &RuleRef) -> &'static str {
    match rule.action {
        Action::Allow => "allow",
        Action::Drop => "drop",
        Action::Reject => "reject",
        Action::Pass => "pass",
    }
}
