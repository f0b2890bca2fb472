//! How far the clouds are from what is wanted, as the last plan found it: for those who told what policies say.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{Address, ResourceName, Segment};
use tokio::sync::watch;

use super::Orchestrator;
use crate::plan::{Intent, Phase, Plan, Problem, Verdicts};

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
