//! `lint`, between the words of callers and those of the engine; and rules that decide nothing, as nodes tell.

use std::{collections::BTreeSet, sync::Arc};

use drivers::{
    flows::now,
    objects::{Document, Validation},
};
use model::policy::ObjectId;
use policy::{
    Engine,
    lint::{Finding, RulePath},
};
use wire::trestle::v1::{LintFinding, LintRequest, LintResponse};

use crate::{
    failure::Failure,
    flows_view::{self as view, time},
    objects::{Changing, documents},
    turns::in_turn,
    uses::{self, Unused},
    what_if::Change,
};

/// Looks at what is in force, as if documents were stored.
pub async fn lint(changing: &Changing, request: LintRequest) -> Result<LintResponse, Failure> {
    let LintRequest { documents: texts, only_documents, unused_since } = request;
    let documents = drivers::blocking(move || documents(&texts, Validation::Strict)).await?;
    let change = Change::of_documents(&documents);
    let asked: BTreeSet<ObjectId> = documents.iter().map(Document::id).cloned().collect();
    let mut response = LintResponse::default();
    if let Some(since) = time("unused_since", &unused_since, now())? {
        let flows = view::recorded(&changing.flows)?;
        let Unused { rules, notes } = uses::unused(&flows.uses().await, &changing.policy, since);
        let rules = rules.into_iter().filter(|(id, ..)| !only_documents || asked.contains(id));
        response.findings.extend(rules.map(|(id, path, proof)| not_used(id, path, proof)));
        response.notes = notes;
    }
    let (policy, first) = (Arc::clone(&changing.policy), asked.clone());
    let findings = in_turn(move || {
        let engine: Engine = change.on(policy.ask(Clone::clone));
        Ok(engine.lint(&first))
    });
    let findings = findings.await?.into_iter().filter(|one| !only_documents || asked.contains(&one.policy));
    response.findings.extend(findings.map(told));
    // Of one rule, that it does nothing comes before that it has done nothing.
    response.findings.sort_by(|a, b| {
        let place = |one: &LintFinding| {
            let is_seen = one.problem == uses::NOT_USED;
            (one.kind.clone(), one.namespace.clone(), one.name.clone(), one.path.clone(), is_seen)
        };
        place(a).cmp(&place(b))
    });
    Ok(response)
}

fn told(finding: Finding) -> LintFinding {
    let path = finding.rule.map(|rule| rule.to_string()).unwrap_or_default();
    found(finding.policy, path, finding.problem.to_string(), finding.proof)
}

fn not_used(policy: ObjectId, path: RulePath, proof: String) -> LintFinding {
    found(policy, path.to_string(), uses::NOT_USED.to_owned(), vec![proof])
}

fn found(policy: ObjectId, path: String, problem: String, proof: Vec<String>) -> LintFinding {
    let ObjectId { kind, namespace, name } = policy;
    LintFinding { kind: kind.as_str().to_owned(), namespace, name, path, problem, proof }
}
