//! Connections that were seen: what they would meet after a change, and policies written from them.
//!
//! In: connections as callers tell them ([`SeenFlow`]), from a file or from whoever sums them up. Out: those that would be decided
//! otherwise; policies. Not here: how they are generalised (`policy::suggest`).

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use drivers::{objects::Validation, policy::Policy};
use model::{
    Open, ProtocolClass, Share,
    policy::{
        Object,
        output::{MemberKind, Protocol},
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
    objects::documents,
    pairs::{self, Pairs, chosen},
    policy_tests::PolicyTests,
    turns::in_turn,
    what_if::Change,
};

/// Connections of one request.
const MOST_FLOWS: usize = 100_000;

/// What connections would meet if documents were stored.
pub async fn replay(tests: &PolicyTests, request: ReplayRequest) -> Result<ReplayResponse, Failure> {
    let ReplayRequest { flows, documents: texts, staged } = request;
    let flows = read(flows)?;
    let documents = drivers::blocking(move || documents(&texts, Validation::Strict)).await?;
    let change = Change::of_documents(&documents);
    let change = if staged { tests.staged().await?.then(change) } else { change };
    let explainer = tests.explainer.clone();
    in_turn(move || {
        let now = explainer.policy.ask(Clone::clone);
        let then = change.on(now.clone());
        Replay { explainer, now, then, found: HashMap::new() }.run(&flows)
    })
    .await
}

struct Replay {
    explainer: Explainer,
    now: Engine,
    then: Engine,
    /// Who has some labels, or an address.
    found: HashMap<SeenKey, Arc<Vec<pairs::End>>>,
}

type SeenKey = (String, Vec<(String, String)>, String);

impl Replay {
    fn run(mut self, flows: &[(SeenFlow, Question)]) -> Result<ReplayResponse, TooManyPairs> {
        let mut response = ReplayResponse::default();
        for (flow, question) in flows {
            let count = flow.count.max(1);
            let [from, to] = [&flow.from, &flow.to].map(|end| self.those(end.as_ref()));
            let pairs = Pairs::new(&from, &to);
            let [before, after] = [&self.now, &self.then].map(|engine| verdict(engine, &pairs, question));
            let (Some((before, was)), Some((after, is))) = (before?, after?) else {
                response.unknown += count;
                continue;
            };
            if before == after {
                response.same += count;
                continue;
            }
            let name = |end: &Option<SeenEnd>| end.as_ref().map(name).unwrap_or_default();
            response.changed.push(ReplayedFlow {
                from: name(&flow.from),
                to: name(&flow.to),
                traffic: question.name(),
                count,
                before: words::verdict(before).to_owned(),
                after: words::verdict(after).to_owned(),
                decided_before: self.decided(&self.now, was.as_ref().or(is.as_ref()), question),
                decided_after: self.decided(&self.then, is.as_ref().or(was.as_ref()), question),
            });
        }
        response
            .changed
            .sort_by(|a, b| b.count.cmp(&a.count).then_with(|| (&a.from, &a.to).cmp(&(&b.from, &b.to))));
        Ok(response)
    }

    fn those(&mut self, end: Option<&SeenEnd>) -> Arc<Vec<pairs::End>> {
        let Some(end) = end else { return Arc::default() };
        let labels = end.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
        let labels = suggest::lasting(&labels.collect());
        let pairs: Vec<(String, String)> =
            labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let key = (end.namespace.clone(), pairs, end.address.clone());
        let engine = &self.now;
        let found = self.found.entry(key).or_insert_with(|| {
            if let Ok(address) = end.address.parse::<IpAddr>() {
                let party = Party { endpoint: Endpoint::Address(address), resource: None };
                return Arc::new(vec![pairs::End { name: end.address.clone(), party }]);
            }
            let wanted = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            Arc::new(chosen(engine, &end.namespace, &wanted))
        });
        Arc::clone(found)
    }

    fn decided(&self, engine: &Engine, pair: Option<&[Endpoint; 2]>, question: &Question) -> Vec<String> {
        let Some(pair) = pair else { return Vec::new() };
        let ends = Ends::find(&self.explainer.orchestrator, pair.clone());
        let told = answer(engine, &ends, question, &self.explainer.hosts);
        told.map(|response| words::reasons(&response)).unwrap_or_default()
    }
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
fn read(flows: Vec<SeenFlow>) -> Result<Vec<(SeenFlow, Question)>, Failure> {
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
pub async fn suggest(policy: &Arc<Policy>, request: SuggestRequest) -> Result<SuggestResponse, Failure> {
    let SuggestRequest { flows, namespace } = request;
    let seen: Vec<Seen> = read(flows)?.iter().map(seen).collect();
    let workloads = policy.workloads();
    let suggestion = in_turn(move || {
        let pods = workloads.iter().filter(|workload| workload.member.kind == MemberKind::Pod);
        let known: Vec<Known> = pods
            .map(|pod| Known {
                namespace: pod.member.namespace.to_string(),
                labels: pod.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            })
            .collect();
        Ok(suggest::suggest(&known, &seen, Some(namespace.as_str()).filter(|name| !name.is_empty())))
    });
    let suggestion = suggestion.await?;
    let told = |one: suggest::Suggested| SuggestedPolicy {
        document: document(Object::NetworkPolicy(one.policy)),
        because: one.because,
    };
    let policies = suggestion.policies.into_iter().map(told).collect();
    Ok(SuggestResponse { policies, notes: suggestion.notes })
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
