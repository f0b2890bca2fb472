//! What a plan undertakes that takes long or costs something, told before it begins.
//!
//! In: a plan, and what plugins say of their clouds. Out: what is built, how long that takes, and whether it costs.

use std::collections::{BTreeMap, BTreeSet};

use model::{CloudTraits, Cost, Effort, LinkName, Segment, Site};

use super::{Action, Plan};

/// Gateways and links that a plan makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undertaking {
    pub gateways: BTreeSet<Site>,
    pub links: BTreeSet<LinkName>,
    /// How long all of it usually takes; none if a plugin does not say.
    pub seconds: Option<u32>,
    /// The dearest of it; none if a plugin does not say.
    pub cost: Option<Cost>,
}

impl Undertaking {
    pub fn is_empty(&self) -> bool {
        self.gateways.is_empty() && self.links.is_empty()
    }

    /// What this one has beyond another.
    #[must_use]
    pub fn beyond(mut self, other: &Self) -> Self {
        self.gateways.retain(|gateway| !other.gateways.contains(gateway));
        self.links.retain(|link| !other.links.contains(link));
        if self.is_empty() {
            self = Self::default();
        }
        self
    }
}

/// What a plan builds between clouds. Steps that do not wait for each other go on at once: the longest chain counts.
pub fn undertaking(plan: &Plan, clouds: &BTreeMap<Segment, CloudTraits>) -> Undertaking {
    let mut told = Undertaking { seconds: Some(0), cost: Some(Cost::Free), ..Undertaking::default() };
    let mut ends: Vec<Option<u32>> = Vec::with_capacity(plan.steps.len());
    for step in &plan.steps {
        let efforts: Vec<Option<Effort>> = match &step.action {
            Action::CreateGateway { gateway, .. } => {
                told.gateways.insert(gateway.clone());
                vec![clouds.get(&gateway.cloud).and_then(|traits| traits.gateway)]
            }
            Action::CreateLink { link, .. } => {
                told.links.insert(link.clone());
                let of_end = |site: &Site| clouds.get(&site.cloud).and_then(|traits| traits.connection);
                link.ends().into_iter().map(of_end).collect()
            }
            // Everything else is a matter of seconds, or no part of what is told here.
            _ => vec![Some(Effort { seconds: 0, cost: Cost::Free })],
        };
        let began =
            step.after.iter().map(|before| ends[*before]).try_fold(0, |longest, end| Some(longest.max(end?)));
        let longest =
            efforts.iter().try_fold(0, |longest, effort| Some(effort.as_ref()?.seconds.max(longest)));
        let end = began.zip(longest).map(|(began, longest): (u32, u32)| began.saturating_add(longest));
        ends.push(end);
        told.seconds = told.seconds.zip(end).map(|(longest, end)| longest.max(end));
        let dearest =
            efforts.iter().try_fold(Cost::Free, |dearest, effort| Some(effort.as_ref()?.cost.max(dearest)));
        told.cost = told.cost.zip(dearest).map(|(one, other)| one.max(other));
    }
    told
}
