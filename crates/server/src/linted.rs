//! `lint`, between the words of callers and those of the engine.

use std::{collections::BTreeSet, sync::Arc};

use drivers::{objects::Validation, policy::Policy};
use model::policy::ObjectId;
use policy::lint::Finding;
use wire::trestle::v1::{LintFinding, LintRequest, LintResponse};

use crate::{failure::Failure, objects::documents, turns::in_turn, what_if::Change};

/// Looks at what is in force, as if documents were stored.
pub async fn lint(policy: &Arc<Policy>, request: LintRequest) -> Result<LintResponse, Failure> {
    let LintRequest { documents: texts, only_documents } = request;
    let documents = drivers::blocking(move || documents(&texts, Validation::Strict)).await?;
    let change = Change::of_documents(&documents);
    let asked: BTreeSet<ObjectId> = documents.iter().map(|document| document.id().clone()).collect();
    let (policy, first) = (Arc::clone(policy), asked.clone());
    let findings = in_turn(move || Ok(change.on(policy.ask(Clone::clone)).lint(&first))).await?;
    let findings = findings.into_iter().filter(|one| !only_documents || asked.contains(&one.policy));
    Ok(LintResponse { findings: findings.map(told).collect() })
}

fn told(finding: Finding) -> LintFinding {
    LintFinding {
        kind: finding.policy.kind.as_str().to_owned(),
        namespace: finding.policy.namespace,
        name: finding.policy.name,
        path: finding.rule.map(|rule| rule.to_string()).unwrap_or_default(),
        problem: finding.problem.to_string(),
        proof: finding.proof,
    }
}
