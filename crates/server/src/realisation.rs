//! How far nodes are with each policy, whichever way they speak: stock agents report each policy to the watch API, clouds
//! do as they do, and agents of the node protocol acknowledge revisions and name what they could not. A node that is
//! connected here is asked here; of the others is known what their controllers tell.

use std::{collections::HashMap, sync::Arc};

use ::transport::{Hub, SessionView};
use drivers::{
    peers::{NodeElsewhere, Peers, is_caught_up, millis},
    policy::Policy,
    transport::objects,
};
use model::policy::{
    Kind, ObjectId,
    output::{Identifier, Problem},
};
use tonic::Code;
use watch::{Cache, Millis, Others, Outcome, Phase, Realisation};
use wire::trestle::v1::{
    NodeFailure, ObjectKind, PolicyDetail, PolicyPlace, PolicyProblem, PolicyRequest, PolicyState,
};

use crate::failure::Failure;

/// Who knows how far nodes are.
#[derive(Clone)]
pub struct Realisations {
    pub hub: Arc<Hub>,
    pub peers: Arc<Peers>,
    pub watch: Arc<Cache>,
}

impl Realisations {
    /// By the object that the policy was made from.
    pub fn all(&self) -> HashMap<ObjectId, Realisation> {
        let sessions = self.hub.sessions();
        let elsewhere = self.peers.nodes();
        let told = Told::new(&self.peers, &sessions, &elsewhere);
        let realisations = self.watch.realisations(&told).into_iter();
        realisations.map(|realisation| (realisation.source.clone(), realisation)).collect()
    }

    /// Every policy, sorted by kind, namespace and name; with the names of its places only if they are asked for.
    pub fn policies(&self, policy: &Policy, places: bool) -> Vec<PolicyState> {
        let mut realisations = self.all();
        let policies = policy.list().into_iter().map(|(id, state)| {
            let told = realisations.remove(&id);
            policy_state(id, state, told, places)
        });
        policies.collect()
    }

    /// The same, as callers name it.
    pub fn named(&self, policy: &Policy, request: &PolicyRequest) -> Result<PolicyDetail, Failure> {
        let PolicyRequest { kind: asked, namespace, name } = request;
        let kind = Kind::from_name(asked).filter(|kind| kind.is_policy()).ok_or_else(|| {
            let all: Vec<_> =
                Kind::ALL.iter().filter(|kind| kind.is_policy()).map(|kind| kind.as_str()).collect();
            let text = format!("{asked:?} is not a kind of policies; there are {}", all.join(", "));
            Failure::new(Code::InvalidArgument, text)
        })?;
        let namespace = match (kind.is_namespaced(), namespace.is_empty()) {
            (true, true) => "default".to_owned(),
            (true, false) => namespace.clone(),
            (false, _) => String::new(),
        };
        let id = ObjectId { kind, namespace, name: name.clone() };
        let text = format!("there is no {id}; list policies to see which there are");
        self.policy(policy, id).ok_or_else(|| Failure::new(Code::NotFound, text))
    }

    /// One policy, and since when each place has it; none if there is none.
    pub fn policy(&self, policy: &Policy, id: ObjectId) -> Option<PolicyDetail> {
        let (state, uid) = policy.get(&id)?;
        let sessions = self.hub.sessions();
        let elsewhere = self.peers.nodes();
        let told = Told::new(&self.peers, &sessions, &elsewhere);
        let realisation = uid.as_ref().and_then(|uid| self.watch.realisation(uid, &told));
        let place = |name: &Arc<str>| match &uid {
            Some(uid) => self.place(&told, uid, state.generation, name),
            None => PolicyPlace { place: name.to_string(), state: PENDING.to_owned(), ..Default::default() },
        };
        let realization = state.span.iter().map(place).collect();
        Some(PolicyDetail {
            policy: Some(policy_state(id, state, realisation, true)),
            realization,
            rules: Vec::new(),
        })
    }

    fn place(&self, told: &Told, uid: &Identifier, generation: i64, name: &str) -> PolicyPlace {
        let place = |state: &str| PolicyPlace {
            place: name.to_owned(),
            state: state.to_owned(),
            ..PolicyPlace::default()
        };
        let own = self.watch.reported(name, uid);
        let other = told.reported(name, uid, generation);
        let reported = [own, other].into_iter().flatten().max_by_key(|(at, _)| *at);
        let (since, outcome) = match reported {
            Some((at, outcome)) => (Some((at, true)), Some(outcome)),
            None => {
                let had = self.hub.has_since(name, &objects::key(ObjectKind::Policy, &uid.to_string()));
                let since = had.map(|had| {
                    (millis().saturating_sub(had.applied.elapsed().as_millis() as u64), had.is_exact)
                });
                (since, told.acknowledged(name, uid).or_else(|| had.map(|_| Ok(()))))
            }
        };
        match (outcome, since) {
            (None, _) => place(PENDING),
            (Some(Err(message)), _) => PolicyPlace { message, ..place("failed") },
            (Some(Ok(())), None) => place("in force"),
            (Some(Ok(())), Some((at, is_exact))) => {
                PolicyPlace { since: i64::try_from(at).ok(), at_latest: !is_exact, ..place("in force") }
            }
        }
    }
}

/// A place that has not said that it has a policy.
const PENDING: &str = "pending";

fn policy_state(
    id: ObjectId,
    state: drivers::policy::PolicyState,
    told: Option<Realisation>,
    places: bool,
) -> PolicyState {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let failures = told.iter().flat_map(|told| &told.failures);
    let failures =
        failures.map(|(node, message)| NodeFailure { node: node.to_string(), message: message.clone() });
    let named = if places { state.span.iter().map(ToString::to_string).collect() } else { Vec::new() };
    PolicyState {
        phase: told.as_ref().map_or(Phase::Pending, |told| told.phase).as_str().to_owned(),
        realized: told.as_ref().map_or(0, |told| count(told.current)),
        failures: failures.collect(),
        kind: id.kind.as_str().to_owned(),
        namespace: id.namespace,
        name: id.name,
        generation: state.generation,
        span: count(state.span.len()),
        places: named,
        problems: problems(state.problems, told.as_ref())
            .into_iter()
            .map(|problem| PolicyProblem { path: problem.path, message: problem.message })
            .collect(),
        ..PolicyState::default()
    }
}

/// What is wrong with a policy: what the engine says, and what it met on its way to nodes.
pub fn problems(of_state: Vec<Problem>, told: Option<&Realisation>) -> Vec<Problem> {
    let mut problems = of_state;
    for problem in told.iter().flat_map(|told| &told.problems) {
        if !problems.contains(problem) {
            problems.push(problem.clone());
        }
    }
    problems
}

/// Who is asked about each node.
struct Told<'a> {
    peers: &'a Peers,
    here: HashMap<&'a str, &'a SessionView>,
    elsewhere: HashMap<&'a str, &'a NodeElsewhere>,
}

impl<'a> Told<'a> {
    fn new(peers: &'a Peers, sessions: &'a [SessionView], elsewhere: &'a [NodeElsewhere]) -> Self {
        let mut elsewhere: HashMap<&str, _> =
            elsewhere.iter().map(|node| (node.name.as_str(), node)).collect();
        let mut here = HashMap::new();
        for session in sessions {
            if elsewhere.get(&*session.name).is_some_and(|node| node.knows_better(session)) {
                continue;
            }
            elsewhere.remove(&*session.name);
            here.insert(&*session.name, session);
        }
        Self { peers, here, elsewhere }
    }
}

impl Others for Told<'_> {
    fn reported(&self, node: &str, policy: &Identifier, generation: i64) -> Option<(Millis, Outcome)> {
        let is_here = self.here.get(node).is_some_and(|session| session.connected);
        if is_here { None } else { self.peers.reported(node, policy, generation) }
    }

    fn acknowledged(&self, node: &str, policy: &Identifier) -> Option<Outcome> {
        match self.here.get(node) {
            Some(session) => acknowledged(session, policy),
            None => acknowledged_elsewhere(self.elsewhere.get(node)?, policy),
        }
    }
}

/// A node that has applied all that concerns it has this policy too, unless it said that it could not. One that is behind
/// may have it already; that is known when it has caught up, a moment later.
fn acknowledged(session: &SessionView, policy: &Identifier) -> Option<Outcome> {
    if !session.errors.is_empty() {
        let key = objects::key(ObjectKind::Policy, &policy.to_string());
        if let Some((_, message)) = session.errors.iter().find(|(of, _)| *of == key) {
            return Some(Err(message.clone()));
        }
    }
    is_caught_up(session).then_some(Ok(()))
}

fn acknowledged_elsewhere(node: &NodeElsewhere, policy: &Identifier) -> Option<Outcome> {
    if !node.word.errors.is_empty()
        && let Some(message) = node.error(ObjectKind::Policy.into(), &policy.to_string())
    {
        return Some(Err(message.to_owned()));
    }
    node.has_all.then_some(Ok(()))
}
