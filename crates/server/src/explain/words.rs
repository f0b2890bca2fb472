//! The engine's words as callers read them.

use model::{Share, policy::output::Action};
use policy::explain::{End, Explanation, Miss, Outcome, RuleRef, Side, Stage, Step};
use wire::trestle::v1::{ExplainResponse, ExplainedEnd, ExplainedSide, ExplainedStep};

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
