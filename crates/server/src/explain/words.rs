//! The engine's words as callers read them.

use drivers::span;
use model::{Share, policy::output::Action};
use policy::explain::{End, Explanation, Miss, Outcome, RuleRef, Side, Stage, Step};
use wire::trestle::v1::{ExplainResponse, ExplainedEnd, ExplainedSide, ExplainedStep, NodeHost};

pub fn verdict(share: Share) -> &'static str {
    match share {
        Share::All => "allowed",
        Share::Some => "some",
        Share::None => "denied",
    }
}

/// What decided, at either end.
pub fn reasons(response: &ExplainResponse) -> Vec<String> {
    let sides = [("egress", &response.egress), ("ingress", &response.ingress)];
    let reason = |(way, side): (&str, &Option<ExplainedSide>)| {
        let step = side.as_ref()?.steps.last()?;
        let what = if step.details.is_empty() { step.outcome.clone() } else { step.details.join("; ") };
        Some(format!("{way}: {} {what}", step.stage))
    };
    sides.into_iter().filter_map(reason).collect()
}

pub fn reply(explanation: &Explanation) -> ExplainResponse {
    ExplainResponse {
        allowed: explanation.allowed,
        source: Some(end(&explanation.source)),
        destination: Some(end(&explanation.destination)),
        egress: Some(side(&explanation.egress)),
        ingress: Some(side(&explanation.ingress)),
        notes: explanation.notes.clone(),
        remedies: explanation.remedies.clone(),
        verdict: String::new(),
        openings: Vec::new(),
    }
}

/// What is to be known of ends that are hosts, or neither hosts nor Pods: whether what is decided for them is so, and what passes
/// all the same. `report` has what the agent of a host says.
pub fn hosts(explanation: &Explanation, report: impl Fn(&str) -> Option<NodeHost>) -> Vec<String> {
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
    hosts.flat_map(|(end, _)| host(end, &report)).collect()
}

fn host(end: &End, report: impl Fn(&str) -> Option<NodeHost>) -> Vec<String> {
    let who = end.workloads.join(", ");
    if end.enforced_on.is_empty() {
        return vec![format!("NOT ENFORCED: {who} is on no node, so that nobody guards it")];
    }
    let told = |node: &String| match report(node) {
        None => format!(
            "NOT ENFORCED as far as this controller knows: no agent of {node} has told it that it guards {who} \
             (`trestle policy list` says where policies are in force)"
        ),
        Some(NodeHost { observed: Some(count), .. }) => format!(
            "NOT ENFORCED: the agent of {node} only observes; {count} packets would have been refused there until now"
        ),
        Some(host) if host.fail_safes.is_empty() => {
            format!(
                "{node} guards itself; established connections and controllers pass whatever policies say"
            )
        }
        Some(host) => format!(
            "{node} guards itself; established connections, controllers and its fail-safe ports pass whatever \
             policies say, but those of tiers with a priority below 5: {}",
            host.fail_safes.join(", ")
        ),
    };
    end.enforced_on.iter().map(told).collect()
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
