//! Explain, between the words of callers and those of the engine; for gRPC and REST alike.
//!
//! What is open between the two ends is asked first (`policy::survey`, as the matrix does), over every port that the
//! question leaves open. Then the reasons: of the question as it was asked, or, where the answer is not the same for all of
//! it, of one packet that is not let through. Where no policy decides, a Pod is open; a resource of a cloud has its permit
//! list.

mod permit;
mod question;
pub(crate) mod words;

use std::{sync::Arc, time::Duration};

use drivers::{objects::Objects, policy::Policy};
use model::{Open, ProtocolClass, ResourceName, Share, policy::output::MemberKind};
use orchestrator::execute::Orchestrator;
use policy::{
    Engine,
    explain::{Endpoint, ExplainError},
    survey::Party,
};
use tokio::sync::watch;
use tonic::Code;
use wire::trestle::v1::{ExplainRequest, ExplainResponse, Opening};

use crate::{failure::Failure, host_reports::HostReports, turns::in_turn, what_if::Change};
pub(crate) use permit::Ends;
use question::Place;
pub(crate) use question::Question;

/// How long a resource that has just been made may take to be known to the engine.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who knows what decides.
#[derive(Clone)]
pub struct Explainer {
    pub orchestrator: Arc<Orchestrator>,
    pub policy: Arc<Policy>,
    /// What is staged.
    pub objects: Objects,
    /// How far the policy engine knows the resources, in the orchestrator's count of changes.
    pub enforced: watch::Receiver<u64>,
    /// What hosts say of themselves.
    pub hosts: Arc<HostReports>,
}

impl Explainer {
    pub async fn explain(&self, request: &ExplainRequest) -> Result<ExplainResponse, Failure> {
        let question = Question::new(request)?;
        let asked = [endpoint(&request.source)?, endpoint(&request.destination)?];
        let is_entity =
            |end: &Endpoint| matches!(end, Endpoint::Workload { kind: MemberKind::ExternalEntity, .. });
        if asked.iter().any(is_entity) {
            let now = *self.orchestrator.changes().borrow();
            let mut enforced = self.enforced.clone();
            // Late or not: what the engine knows then is explained.
            let _ = tokio::time::timeout(PATIENCE, enforced.wait_for(|reached| *reached >= now)).await;
        }
        let ends = Ends::find(&self.orchestrator, asked);
        let unknown = |err: ExplainError| Failure::from_error(Code::NotFound, &err);
        if !request.staged.unwrap_or_default() {
            // One look, so that all of the answer is about the same state.
            return self.policy.ask(|engine| answer(engine, &ends, &question, &self.hosts)).map_err(unknown);
        }
        let staged = Change::of_staged(&self.objects.staged().await?);
        let (policy, hosts) = (Arc::clone(&self.policy), Arc::clone(&self.hosts));
        let is_resource = ends.parties().iter().any(|party| party.resource.is_some());
        let told = in_turn(move || {
            let engine = staged.on(policy.ask(Clone::clone));
            Ok(answer(&engine, &ends, &question, &hosts))
        });
        let mut told = told.await?.map_err(unknown)?;
        told.notes.push("as if all that is staged were in force".to_owned());
        if is_resource {
            let note = "permit lists of resources are those in force: they are worked out anew when staged policies are promoted";
            told.notes.push(note.to_owned());
        }
        Ok(told)
    }
}

pub(crate) fn answer(
    engine: &Engine,
    ends: &Ends,
    question: &Question,
    hosts: &HostReports,
) -> Result<ExplainResponse, ExplainError> {
    let explained = |question: &Question, place| explained(engine, ends, question, place, hosts);
    let [source, destination] = ends.endpoints();
    let parties: &[Party; 2] = ends.parties();
    let Some(open) = engine.survey(parties).between(0, 1) else {
        // It names the end that is not known.
        engine.explain(&question.query(source, destination))?;
        return Err(ExplainError::Unknown(source.clone()));
    };
    let share = question.share(&open);
    let as_asked = explained(question, None)?;
    let mut response = match share {
        Share::Some => None,
        Share::All | Share::None => Some(as_asked).filter(|told| told.allowed == (share == Share::All)),
    };
    if response.is_none()
        && let Some(place) = question.example(&open, share == Share::All)
    {
        let mut told = explained(question, Some(place))?;
        told.notes.push(format!("the steps are those of {}", place.name(&open)));
        response = Some(told);
    }
    let mut response = response.unwrap_or_default();
    response.allowed = share == Share::All;
    response.verdict = words::verdict(share).to_owned();
    for class in &question.classes {
        response.openings.push(opening(explained, question, &open, *class)?);
    }
    if !question.is_one() && share != Share::All {
        // What would permit all of it is not what anybody should do.
        response.remedies.clear();
        response.notes.push("ask about one port to be told what would permit it".to_owned());
    }
    Ok(response)
}

/// The steps of the question as it was asked, or of one packet.
fn explained(
    engine: &Engine,
    ends: &Ends,
    question: &Question,
    place: Option<Place>,
    hosts: &HostReports,
) -> Result<ExplainResponse, ExplainError> {
    let [source, destination] = ends.endpoints();
    let query = match place {
        Some(place) => place.query(source, destination),
        None => question.query(source, destination),
    };
    let explanation = engine.explain(&query)?;
    let mut response = words::reply(&explanation);
    response.notes.extend(words::hosts(&explanation, |host| hosts.of(host)));
    let permits = |open: &Open| match place {
        Some(place) => place.is_in(open),
        None => question.share(open) == Share::All,
    };
    ends.decide(&explanation, question, permits, &mut response);
    Ok(response)
}

fn opening(
    explained: impl Fn(&Question, Option<Place>) -> Result<ExplainResponse, ExplainError>,
    question: &Question,
    open: &Open,
    class: ProtocolClass,
) -> Result<Opening, ExplainError> {
    let share = question.share_of(open, class);
    let one = Question { classes: vec![class], ..question.clone() };
    let mut because = Vec::new();
    if let Some(place) = one.example(open, true).filter(|_| share == Share::Some) {
        because = words::reasons(&explained(&one, Some(place))?);
    }
    let ports = question.of(open, class).to_string();
    Ok(Opening { protocol: class.to_string(), verdict: words::verdict(share).to_owned(), ports, because })
}

/// `tcp`, `udp`, `sctp`, `icmp` or `other`.
pub fn protocol(text: &str) -> Result<ProtocolClass, Failure> {
    text.parse().map_err(|err| Failure::from_error(Code::InvalidArgument, &err))
}

pub fn port(number: Option<u32>) -> Result<Option<u16>, Failure> {
    match number.map(|number| (number, u16::try_from(number))) {
        None => Ok(None),
        Some((_, Ok(port))) if port > 0 => Ok(Some(port)),
        Some((number, _)) => Err(Failure::new(Code::InvalidArgument, format!("{number} is not a port"))),
    }
}

/// `10.0.0.1`, `namespace.cloud.name` of a resource, `namespace/name` of a Pod, or `pod/…`, `entity/…`, `node/name`.
pub(crate) fn endpoint(text: &str) -> Result<Endpoint, Failure> {
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

#[cfg(test)]
mod tests;
