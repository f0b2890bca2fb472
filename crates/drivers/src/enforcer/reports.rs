//! How far clouds are with each policy, told as nodes tell it.

use std::collections::{BTreeMap, BTreeSet};

use model::{ResourceName, Segment, policy::output::Identifier};
use orchestrator::execute::Standing;
use watch::Report;

use super::Running;
use crate::{peers::millis, span::span_key};

/// The generation of each policy that clouds have.
pub type Generations = BTreeMap<Identifier, i64>;
/// What was last told, so that it is told once.
pub type Told = BTreeMap<(Segment, Identifier), Report>;

impl Running {
    pub(super) fn report(&mut self, standing: &Standing) {
        let is_planned = standing.verdicts.as_ref().is_some_and(|planned| *planned == self.verdicts);
        if !is_planned {
            return;
        }
        let mut told = Told::default();
        for (policy, resources) in &self.meaning.selected {
            let Some(generation) = self.generations.get(policy) else { continue };
            for (cloud, resources) in by_cloud(resources) {
                let Some(failure) = self.outcome(standing, policy, &resources) else { continue };
                let report = Report {
                    generation: *generation,
                    is_failure: failure.is_some(),
                    message: failure.unwrap_or_default(),
                };
                let key = (cloud, policy.clone());
                if self.told.get(&key) != Some(&report) {
                    self.rooms.watch.report(&span_key(&key.0), policy, report.clone(), millis());
                }
                told.insert(key, report);
            }
        }
        self.told = told;
    }

    /// None while the work is under way; then what went wrong, if anything did.
    fn outcome(
        &self,
        standing: &Standing,
        policy: &Identifier,
        resources: &BTreeSet<&ResourceName>,
    ) -> Option<Option<String>> {
        let mut is_waiting = false;
        for resource in resources {
            match standing.waiting.get(*resource) {
                Some(Some(failure)) => return Some(Some(format!("{resource}: {failure}"))),
                Some(None) => is_waiting = true,
                None => {}
            }
        }
        if is_waiting {
            return None;
        }
        let entries = format!("_policy.{policy}.");
        let of_policy = |rule: &Option<String>| rule.as_ref().is_none_or(|rule| rule.starts_with(&entries));
        let problem =
            standing.problems.iter().find(|p| resources.contains(&p.resource) && of_policy(&p.rule));
        let fault = self.meaning.faults.iter().find(|fault| fault.policy == *policy);
        let fault = fault.map(|fault| fault.message.clone());
        Some(fault.or_else(|| problem.map(|problem| format!("{}: {}", problem.resource, problem.kind))))
    }
}

fn by_cloud(resources: &BTreeSet<ResourceName>) -> BTreeMap<Segment, BTreeSet<&ResourceName>> {
    let mut by_cloud: BTreeMap<Segment, BTreeSet<&ResourceName>> = BTreeMap::new();
    for resource in resources {
        by_cloud.entry(resource.cloud.clone()).or_default().insert(resource);
    }
    by_cloud
}
