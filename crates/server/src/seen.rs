//! Connections that were seen: what they would meet after a change, and policies written from them.
//!
//! In: connections as callers tell them ([`SeenFlow`]), or as they are on record (`recorded`). Out: those that would be decided
//! otherwise; policies. Not here: how they are generalised (`policy::suggest`).

mod recorded;

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use drivers::objects::Validation;
use model::{
    Open, ProtocolClass, Share,
    policy::{
        Object,
        output::{Direction, MemberKind, Protocol},
    },
};
use policy::{
    Engine,
    explain::Endpoint,
    suggest::{self, Known, Seen, SeenEnd as End},
    survey::{Party, TooManyPairs},
};
use tonic::Code;
use wire::trestle::v1::{
    ExplainRequest, ReplayRequest, ReplayResponse, ReplayedFlow, SeenEnd, SeenFlow, SuggestRequest,
    SuggestResponse, SuggestedPolicy,
};

use crate::{
    explain::{Ends, Explainer, Question, answer, words},
    failure::Failure,
    objects::{Changing, documents},
    pairs::{self, Pairs, chosen},
    turns::in_turn,
    what_if::Change,
};

pub use recorded::{Recorded, recorded};

/// Connections of one request.
const MOST_FLOWS: usize = 100_000;

/// What connections would meet if documents were stored.
pub async fn replay(changing: &Changing, request: ReplayRequest) -> Result<ReplayResponse, Failure> {
    let ReplayRequest { flows, documents: texts, staged, since } = request;
    let Recorded { flows, notes, .. } = given(changing, flows, &since, true).await?;
    let flows = read(flows)?;
    let documents = drivers::blocking(move || documents(&texts, Validation::Strict)).await?;
    let change = Change::of_documents(&documents);
    let change = if staged { changing.tests.staged().await?.then(change) } else { change };
    let explainer = changing.tests.explainer.clone();
    let told = in_turn(move || {
        let mut replay = Replay::new(explainer, flows)?;
        let then = change.on(replay.now.clone());
        replay.against(&then, Order::Frequent, MOST_FLOWS)
    });
    Ok(ReplayResponse { notes, ..told.await? })
}

/// Those of a request, or what nodes have told since a time.
async fn given(
    changing: &Changing,
    flows: Vec<SeenFlow>,
    since: &str,
    with_denied: bool,
) -> Result<Recorded, Failure> {
    match (flows.is_empty(), since.is_empty()) {
        (_, true) => Ok(Recorded { flows, ..Recorded::default() }),
        (true, false) => recorded(&changing.flows, since, with_denied).await,
        (false, false) => {
            let text = "give connections, or since when nodes have seen them, and not both";
            Err(Failure::new(Code::InvalidArgument, text))
        }
    }
}

/// Which are told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Frequent,
    Newest,
}

/// Connections, held against what is in force, and then against what might be.
pub struct Replay {
    explainer: Explainer,
    pub now: Engine,
    flows: Vec<(SeenFlow, Question)>,
    /// Of each who is at its ends, and what it meets now.
    ends: Vec<[Arc<Vec<pairs::End>>; 2]>,
    before: Vec<Verdict>,
}

/// Who has some labels, or an address.
type Found = HashMap<(String, Vec<(String, String)>, String), Arc<Vec<pairs::End>>>;

impl Replay {
    pub fn new(explainer: Explainer, flows: Vec<(SeenFlow, Question)>) -> Result<Self, TooManyPairs> {
        let now = explainer.policy.ask(Clone::clone);
        let mut found = Found::new();
        let (mut ends, mut before) = (Vec::with_capacity(flows.len()), Vec::with_capacity(flows.len()));
        for (flow, question) in &flows {
            let both = [&flow.from, &flow.to].map(|end| those(&now, &mut found, end.as_ref()));
            before.push(verdict(&now, &Pairs::new(&both[0], &both[1]), question)?);
            ends.push(both);
        }
        Ok(Self { explainer, now, flows, ends, before })
    }

    /// What they would meet. Of those that would be decided otherwise not more than so many are told.
    pub fn against(
        &mut self,
        then: &Engine,
        order: Order,
        most: usize,
    ) -> Result<ReplayResponse, TooManyPairs> {
        let mut response = ReplayResponse::default();
        let mut changed = Vec::new();
        for (at, ((flow, question), [from, to])) in self.flows.iter().zip(&self.ends).enumerate() {
            let count = flow.count.max(1);
            let after = verdict(then, &Pairs::new(from, to), question)?;
            match (&self.before[at], after) {
                (Some((before, _)), Some((after, _))) if *before == after => response.same += count,
                (Some(before), Some(after)) => changed.push((flow, question, before, after)),
                _ => response.unknown += count,
            }
        }
        let by_name = |flow: &SeenFlow| [&flow.from, &flow.to].map(|end| end.as_ref().map(name));
        changed.sort_by(|(a, ..), (b, ..)| {
            let ranked = match order {
                Order::Frequent => b.count.cmp(&a.count),
                Order::Newest => b.last.cmp(&a.last),
            };
            ranked.then_with(|| by_name(a).cmp(&by_name(b)))
        });
        response.left_out = changed.len().saturating_sub(most) as u64;
        for (flow, question, (before, was), (after, is)) in changed.into_iter().take(most) {
            let name = |end: &Option<SeenEnd>| end.as_ref().map(name).unwrap_or_default();
            response.changed.push(ReplayedFlow {
                from: name(&flow.from),
                to: name(&flow.to),
                traffic: question.name(),
                count: flow.count.max(1),
                before: words::verdict(*before).to_owned(),
                after: words::verdict(after).to_owned(),
                decided_before: self.decided(&self.now, was.as_ref().or(is.as_ref()), question),
                decided_after: self.decided(then, is.as_ref().or(was.as_ref()), question),
                last: flow.last.clone(),
            });
        }
        Ok(response)
    }

    fn decided(&self, engine: &Engine, pair: Option<&[Endpoint; 2]>, question: &Question) -> Vec<String> {
        let Some(pair) = pair else { return Vec::new() };
        let ends = Ends::find(&self.explainer.orchestrator, pair.clone());
        let told = answer(engine, &ends, question, &self.explainer.hosts);
        told.map(|response| words::reasons(&response)).unwrap_or_default()
    }
}

fn those(engine: &Engine, found: &mut Found, end: Option<&SeenEnd>) -> Arc<Vec<pairs::End>> {
    let Some(end) = end else { return Arc::default() };
    let labels = end.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
    let labels = suggest::lasting(&labels.collect());
    let pairs: Vec<(String, String)> =
        labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let key = (end.namespace.clone(), pairs, end.address.clone());
    let found = found.entry(key).or_insert_with(|| {
        if let Ok(address) = end.address.parse::<IpAddr>() {
            let party = Party { endpoint: Endpoint::Address(address), resource: None };
            return Arc::new(vec![pairs::End { name: end.address.clone(), party }]);
        }
        let wanted = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        Arc::new(chosen(engine, &end.namespace, &wanted))
    });
    Arc::clone(found)
}

type Verdict = Option<(Share, Option<[Endpoint; 2]>)>;

/// Of all pairs together, and a pair that is not let through; none where there is no pair.
fn verdict(engine: &Engine, pairs: &Pairs<'_>, question: &Question) -> Result<Verdict, TooManyPairs> {
    let survey = engine.survey(&pairs.parties);
    let is_closed = |open: &Open| question.share(open) != Share::All;
    let (all, closed) = pairs.count(&survey, is_closed)?;
    let (_, shut) = pairs.count(&survey, |open| question.share(open) == Share::None)?;
    let share = match (closed, shut) {
        _ if all == 0 => return Ok(None),
        (0, _) => Share::All,
        (_, shut) if shut == all => Share::None,
        _ => Share::Some,
    };
    let example = pairs.example(&survey, is_closed);
    Ok(Some((share, example.map(|(a, b, _)| [&a.party, &b.party].map(|party| party.endpoint.clone())))))
}

fn name(end: &SeenEnd) -> String {
    let labels: Vec<String> = end.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    match end.address.as_str() {
        "" => format!("{}/{}", end.namespace, labels.join(",")),
        address => address.to_owned(),
    }
}

/// Each with what is asked of it.
pub fn read(flows: Vec<SeenFlow>) -> Result<Vec<(SeenFlow, Question)>, Failure> {
    if flows.len() > MOST_FLOWS {
        let text = format!(
            "{} connections are more than the {MOST_FLOWS} that are looked at: sum them up",
            flows.len()
        );
        return Err(Failure::new(Code::ResourceExhausted, text));
    }
    let question = |(at, flow): (usize, SeenFlow)| {
        let fault = |text: String| Failure::new(Code::InvalidArgument, format!("flow {}: {text}", at + 1));
        for (what, end) in [("from", &flow.from), ("to", &flow.to)] {
            let end = end.as_ref().ok_or_else(|| fault(format!("it has no `{what}`")))?;
            match (end.namespace.is_empty(), end.address.is_empty()) {
                (true, true) => return Err(fault(format!("`{what}` has neither namespace nor address"))),
                (false, false) => return Err(fault(format!("`{what}` has a namespace and an address"))),
                (true, false) if end.address.parse::<IpAddr>().is_err() => {
                    return Err(fault(format!("{:?} is not an address", end.address)));
                }
                _ => {}
            }
        }
        let protocol = if flow.protocol.is_empty() { "tcp".to_owned() } else { flow.protocol.clone() };
        let port = Some(flow.port).filter(|port| *port > 0);
        let request = ExplainRequest { protocol, port, ..ExplainRequest::default() };
        let question = Question::new(&request).map_err(|failure| fault(failure.message))?;
        if !question.is_one() {
            return Err(fault("it has no port".to_owned()));
        }
        Ok((flow, question))
    };
    flows.into_iter().enumerate().map(question).collect()
}

/// Policies for connections.
pub async fn suggest(changing: &Changing, request: SuggestRequest) -> Result<SuggestResponse, Failure> {
    let SuggestRequest { flows, namespace, since, egress } = request;
    let Recorded { flows, mut notes, .. } = given(changing, flows, &since, false).await?;
    if flows.is_empty() {
        notes.push("there is no connection to write policies for; see `trestle flows`".to_owned());
        return Ok(SuggestResponse { policies: Vec::new(), notes });
    }
    let seen: Vec<Seen> = read(flows)?.iter().map(seen).collect();
    let workloads = changing.policy.workloads();
    let suggestion = in_turn(move || {
        let pods = workloads.iter().filter(|workload| workload.member.kind == MemberKind::Pod);
        let known: Vec<Known> = pods
            .map(|pod| Known {
                namespace: pod.member.namespace.to_string(),
                labels: pod.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            })
            .collect();
        let only = Some(namespace.as_str()).filter(|name| !name.is_empty());
        let mut suggestion = suggest::suggest(&known, &seen, only, Direction::In);
        if egress {
            let mut out = suggest::suggest(&known, &seen, only, Direction::Out);
            suggestion.policies.append(&mut out.policies);
            suggestion.notes.retain(|note| !note.ends_with(suggest::LEFT_OPEN));
            out.notes.retain(|note| !suggestion.notes.contains(note));
            suggestion.notes.append(&mut out.notes);
        }
        Ok(suggestion)
    });
    let suggestion = suggestion.await?;
    let told = |one: suggest::Suggested| SuggestedPolicy {
        document: document(Object::NetworkPolicy(one.policy)),
        because: one.because,
    };
    let policies = suggestion.policies.into_iter().map(told).collect();
    notes.extend(suggestion.notes);
    Ok(SuggestResponse { policies, notes })
}

/// As people write it.
fn document(policy: Object) -> String {
    let mut json = serde_json::to_value(&policy).expect("policies have no odd keys");
    if let Some(metadata) = json["metadata"].as_object_mut() {
        metadata.remove("generation");
    }
    let fields = json.as_object_mut().expect("an object is a map");
    fields.insert("apiVersion".to_owned(), "networking.k8s.io/v1".into());
    fields.insert("kind".to_owned(), "NetworkPolicy".into());
    json.to_string()
}

fn seen((flow, question): &(SeenFlow, Question)) -> Seen {
    let end = |end: &Option<SeenEnd>| {
        let end = end.clone().unwrap_or_default();
        match end.address.parse() {
            Ok(address) => End::Address(address),
            Err(_) => {
                End::Labelled(Known { namespace: end.namespace, labels: end.labels.into_iter().collect() })
            }
        }
    };
    let protocol = match question.classes.first() {
        Some(ProtocolClass::Tcp) => Some(Protocol::Tcp),
        Some(ProtocolClass::Udp) => Some(Protocol::Udp),
        Some(ProtocolClass::Sctp) => Some(Protocol::Sctp),
        Some(ProtocolClass::Icmp | ProtocolClass::Other) | None => None,
    };
    let port = question.port.unwrap_or_default();
    Seen { from: end(&flow.from), to: end(&flow.to), protocol, port, count: flow.count.max(1) }
}
