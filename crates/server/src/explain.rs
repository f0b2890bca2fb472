//! Explain, between the words of callers and those of the engine; for gRPC and REST alike.
//!
//! An end may also be a resource: then its permit list decides on its side, and policies see its address.

mod resource;

use std::{net::IpAddr, sync::Arc};

use model::{
    Direction,
    policy::output::{Action, MemberKind, Protocol},
};
use orchestrator::execute::{Orchestrator, ResourceView};
use policy::explain::{
    End, Endpoint, ExplainError, Explanation, Miss, Outcome, Query, RuleRef, Side, Stage, Step,
};
use resource::AtResource;
use tonic::Code;
use wire::trestle::v1::{ExplainRequest, ExplainResponse, ExplainedEnd, ExplainedSide, ExplainedStep};

use crate::{failure::Failure, policy::Policy};

/// What explain asks of the rooms.
#[derive(Clone)]
pub struct Explainer {
    pub policy: Arc<Policy>,
    pub orchestrator: Arc<Orchestrator>,
}

impl Explainer {
    pub fn explain(&self, request: &ExplainRequest) -> Result<ExplainResponse, Failure> {
        let [source, destination] =
            [&request.source, &request.destination].map(|text| self.resource(text).transpose());
        let (source, destination) = (source?, destination?);
        let query = query(request, source.as_ref(), destination.as_ref())?;
        let mut explained = match self.policy.explain(&query) {
            Ok(explanation) => reply(&explanation),
            Err(err @ ExplainError::Unknown(_)) => return Err(Failure::from_error(Code::NotFound, &err)),
        };
        let at = |resource, direction, peer: &Option<ExplainedEnd>, peer_name| AtResource {
            resource,
            direction,
            peer: peer.as_ref().and_then(|end| end.address.parse().ok()),
            peer_name,
            protocol: query.protocol,
            port: query.port,
        };
        if let Some(source) = &source {
            let here = at(source, Direction::Outbound, &explained.destination, request.destination.as_str());
            overlay(&here, &mut explained.egress, &mut explained.remedies);
        }
        if let Some(destination) = &destination {
            let here = at(destination, Direction::Inbound, &explained.source, request.source.as_str());
            overlay(&here, &mut explained.ingress, &mut explained.remedies);
        }
        explained.source = source.as_ref().map(resource::end).or(explained.source);
        explained.destination = destination.as_ref().map(resource::end).or(explained.destination);
        let is_allowed = |side: &Option<ExplainedSide>| side.as_ref().is_some_and(|side| side.allowed);
        explained.allowed = is_allowed(&explained.egress) && is_allowed(&explained.ingress);
        Ok(explained)
    }

    /// The resource that a text names; an error if it is none of ours.
    fn resource(&self, text: &str) -> Option<Result<ResourceView, Failure>> {
        let name = resource::name(text)?;
        let found = self.orchestrator.resource(&name).map_err(Failure::from);
        Some(found.and_then(|resource| match resource.ip {
            Some(_) => Ok(resource),
            None => {
                let text = format!("{name} is {} and has no address yet", resource.state);
                Err(Failure::new(Code::FailedPrecondition, text))
            }
        }))
    }
}

/// Puts what a permit list says in the place of what policies say of an address nobody enforces them for.
fn overlay(here: &AtResource<'_>, side: &mut Option<ExplainedSide>, remedies: &mut Vec<String>) {
    let decided = here.side();
    if !decided.allowed {
        remedies.push(here.remedy());
    }
    *side = Some(decided);
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

fn query(
    request: &ExplainRequest,
    source: Option<&ResourceView>,
    destination: Option<&ResourceView>,
) -> Result<Query, Failure> {
    let end = |text: &str, resource: Option<&ResourceView>| {
        let address = resource.and_then(|resource| resource.ip.as_deref()?.parse::<IpAddr>().ok());
        address.map_or_else(|| endpoint(text), |address| Ok(Endpoint::Address(address)))
    };
    Ok(Query {
        source: end(&request.source, source)?,
        destination: end(&request.destination, destination)?,
        protocol: protocol(&request.protocol)?,
        port: port(request.port)?,
        source_port: None,
        icmp: None,
        family: None,
    })
}

/// `10.0.0.1`, `namespace/name` of a Pod, or `pod/…`, `entity/…`, `node/name`. Resources were looked at before.
fn endpoint(text: &str) -> Result<Endpoint, Failure> {
    if let Ok(address) = text.parse() {
        return Ok(Endpoint::Address(address));
    }
    let parts: Vec<&str> = text.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        ["node", name] => (MemberKind::Node, "", *name),
        ["pod", namespace, name] | [namespace, name] => (MemberKind::Pod, *namespace, *name),
        ["entity" | "externalentity", namespace, name] => (MemberKind::ExternalEntity, *namespace, *name),
        _ => {
            let text = format!(
                "{text:?} is neither an address, a resource (namespace.cloud.name) nor namespace/name, pod/…, entity/… or node/name"
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
