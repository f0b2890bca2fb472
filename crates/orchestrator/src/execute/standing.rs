//! How far the clouds are from what is wanted, as the last plan found it: for those who told what policies say.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    Address, Member, PermitRule, ResourceName, Segment, TagName,
    allow::{End, Permission},
};
use tokio::sync::watch;

use super::{Orchestrator, OrchestratorError, holders::resources_in};
use crate::plan::{Intent, Phase, Plan, Problem, Verdicts, given};

/// What the last plan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// What policies said when the plan was made; none before the first plan.
    pub verdicts: Option<Arc<BTreeMap<ResourceName, Verdicts>>>,
    /// Resources that are not yet as wanted, each with what went wrong, if anything did.
    pub waiting: BTreeMap<ResourceName, Option<String>>,
    pub problems: Vec<Problem>,
}

impl Orchestrator {
    /// Tells what network policies say about resources. The same again changes nothing.
    pub fn set_verdicts(&self, verdicts: Arc<BTreeMap<ResourceName, Verdicts>>) {
        let mut told = self.verdicts.lock();
        if told.as_ref() != Some(&verdicts) {
            *told = Some(verdicts);
            self.shared.wake.notify_one();
        }
    }

    /// Resources that are there and shall stay, with their region and address.
    pub fn placed(&self) -> Vec<(ResourceName, Segment, Address)> {
        let (intent, inventory) = {
            let state = self.state.lock();
            (Arc::clone(&state.intent), Arc::clone(&state.inventory))
        };
        let placed = inventory.resources.iter().filter_map(|(name, record)| {
            let stays = record.phase == Phase::Ready && intent.resources.contains_key(name);
            let state = record.state.as_ref().filter(|_| stays)?;
            Some((name.clone(), record.network.region.clone(), state.address))
        });
        placed.collect()
    }

    /// Resources that are not as wanted now, each with what is in its way as far as that is known.
    pub fn waiting(&self) -> Result<BTreeMap<ResourceName, Option<String>>, OrchestratorError> {
        let plan = self.plan()?;
        let failures = self.failures.lock();
        let trouble = |steps: &BTreeSet<usize>| {
            let failed = steps.iter().find_map(|step| failures.get(&plan.steps[*step].action.object()));
            failed.map(|failure| failure.message.clone())
        };
        let mut waiting: BTreeMap<_, _> =
            plan.waiting.iter().map(|(resource, steps)| (resource.clone(), trouble(steps))).collect();
        for problem in &plan.problems {
            waiting
                .entry(problem.resource.clone())
                .or_insert(None)
                .get_or_insert_with(|| problem.to_string());
        }
        Ok(waiting)
    }

    /// Resources of a cloud that policies say something about.
    pub fn guarded(&self, cloud: &str) -> BTreeSet<ResourceName> {
        let verdicts = self.verdicts.lock();
        let all = verdicts.iter().flat_map(|verdicts| verdicts.keys());
        all.filter(|name| name.cloud.as_str() == cloud).cloned().collect()
    }

    /// Resources whose permit lists depend on what a tag resolves to, or who is in it.
    pub fn concerned_by_tag(&self, tag: &TagName) -> BTreeSet<ResourceName> {
        let Some(graph) = self.tags.graph() else { return BTreeSet::new() };
        let mut above: BTreeSet<&TagName> = graph.ancestors(tag).unwrap_or_default().into_iter().collect();
        above.insert(tag);
        let intent = Arc::clone(&self.state.lock().intent);
        let names = |rule: &PermitRule| {
            rule.peers.iter().any(|peer| matches!(peer, Member::Tag(tag) if above.contains(tag)))
        };
        let own = intent.rules.iter().filter(|(_, rules)| rules.values().any(names));
        let own = own.map(|(resource, _)| resource.clone());
        let inherited = intent.tag_rules.iter();
        let inherited = inherited.filter(|(on, rules)| above.contains(on) || rules.values().any(names));
        let inherited = inherited.flat_map(|(on, _)| resources_in(&graph, on).unwrap_or_default());
        let ends = self.given_where(&intent, |end| matches!(end, End::Tag(tag) if above.contains(tag)));
        own.chain(inherited).chain(ends).filter(|name| intent.resources.contains_key(name)).collect()
    }

    /// Resources that permissions give something to which depends on the workloads of a cluster.
    pub fn concerned_by_workloads(&self) -> BTreeSet<ResourceName> {
        let intent = Arc::clone(&self.state.lock().intent);
        self.given_where(&intent, |end| matches!(end, End::Pod { .. } | End::Namespace(_) | End::Host(_)))
    }

    fn given_where(&self, intent: &Arc<Intent>, is_meant: impl Fn(&End) -> bool) -> BTreeSet<ResourceName> {
        let meant = |permission: &&Permission| permission.ends().into_iter().any(&is_meant);
        if !intent.permissions.values().any(|permission| meant(&permission)) {
            return BTreeSet::new();
        }
        let Some(complete) = self.complete(intent) else { return BTreeSet::new() };
        let all = intent.permissions.values().filter(meant);
        all.flat_map(|permission| given(&complete, permission)).map(|(resource, _)| resource).collect()
    }

    pub fn standing(&self) -> watch::Receiver<Arc<Standing>> {
        self.standing.subscribe()
    }

    pub(super) fn tell_standing(&self, intent: &Intent, plan: &Plan) {
        let failures = self.failures.lock();
        let trouble = |steps: &BTreeSet<usize>| {
            steps.iter().find_map(|step| {
                let failure = failures.get(&plan.steps[*step].action.object())?;
                Some(failure.message.clone())
            })
        };
        let waiting =
            plan.waiting.iter().map(|(resource, steps)| (resource.clone(), trouble(steps))).collect();
        let standing = Standing {
            verdicts: Some(Arc::clone(&intent.verdicts)),
            waiting,
            problems: plan.problems.clone(),
        };
        self.standing.send_if_modified(|before| {
            // The verdicts are compared by where they are: equal ones elsewhere are told again, at no harm.
            let same_verdicts = match (&before.verdicts, &standing.verdicts) {
                (Some(before), Some(now)) => Arc::ptr_eq(before, now),
                _ => false,
            };
            let is_same =
                same_verdicts && before.waiting == standing.waiting && before.problems == standing.problems;
            if !is_same {
                *before = Arc::new(standing);
            }
            !is_same
        });
    }
}
