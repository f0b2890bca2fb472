//! The Pods of the node, beyond what attach and detach say: who is covered, who waits, and links that nobody has attached.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tracing::{info, warn};
use wire::trestle::v1::ObjectKind;

use super::{Unnamed, Worker, note, view};
use crate::{
    endpoints::{Attachment, Endpoint, Endpoints},
    held::{Held, Key},
    part::{Link, Part},
    registry::Registry,
    status::{PodProblem, at},
};

/// Between two looks at the node's links.
const SURVEY: Duration = Duration::from_secs(2);
/// A link or a Pod is told of after this: whoever makes it may be about to attach it, and its object on its way.
const SETTLED: Duration = Duration::from_secs(3);

/// For how long a Pod waits for a controller to cover it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Then it is overdue, which is told.
    pub limit: Duration,
    /// Then it is opened, covered or not.
    pub then_open: bool,
}

impl Default for Patience {
    fn default() -> Self {
        Self { limit: Duration::from_secs(30), then_open: false }
    }
}

impl Patience {
    fn is_over(self, endpoint: &Endpoint, now: i64) -> bool {
        let waited = u64::try_from(now.saturating_sub(endpoint.since)).unwrap_or(0);
        endpoint.closed && waited >= self.limit.as_secs()
    }
}

/// What was found when it was last looked for links.
#[derive(Debug, Default)]
pub struct Survey {
    at: Option<Instant>,
    /// Links that look like Pods' and are not attached.
    loose: BTreeMap<String, Loose>,
    /// Opened because their time was over.
    opened: BTreeSet<String>,
}

#[derive(Debug)]
struct Loose {
    addresses: BTreeSet<IpAddr>,
    guarded: bool,
    since: (Instant, i64),
}

pub fn now() -> i64 {
    Timestamp::now().as_second()
}

/// Whether an object says who is covered.
pub fn tells_of_pods(held: &Held, key: &Key) -> bool {
    let kind = if held.tells_pods() { ObjectKind::NodeFacts } else { ObjectKind::AppliedToSet };
    key.kind == i32::from(kind)
}

/// There is no directory to know anything from.
pub fn close_all(node: &str, parts: &mut [Box<dyn Part>]) {
    let mut pods = Registry::default();
    pods.unnamed.extend(
        parts
            .iter_mut()
            .find_map(|part| part.survey(&Endpoints::default()))
            .into_iter()
            .flatten()
            .filter_map(unnamed),
    );
    let held = Held::default();
    for part in parts {
        if let Some(failure) = part.hold(&view(node, &held, &pods)).outcome.failure {
            warn!(part = part.name(), error = failure, "Pods could not be closed");
        }
    }
}

fn unnamed(link: Link) -> Option<(String, BTreeSet<IpAddr>)> {
    link.is_a_pods.then_some((link.name, link.addresses))
}

impl Worker {
    /// Leaves what is in the kernel, and closes what that does not know.
    pub(super) fn hold(&mut self) {
        let mut left = None;
        for (part, outcome) in self.parts.iter_mut().zip(&mut self.outcomes) {
            let holding = part.hold(&view(&self.node, &self.held, &self.pods));
            note(part.name(), &holding.outcome, &self.metrics);
            *outcome = holding.outcome;
            left = left.or(holding.left);
        }
        if self.registry_lost && self.adopt(left) {
            self.hold();
        }
        self.plan_retry();
    }

    /// Takes over the links that an earlier run has left in the kernel. If it has left none and there was a registry, those
    /// that look like Pods'. Whether there were any that were not known.
    fn adopt(&mut self, left: Option<Unnamed>) -> bool {
        let found = match left {
            Some(left) => left,
            None if self.lost.is_empty() => Unnamed::new(),
            None => {
                let links = self.parts.iter_mut().find_map(|part| part.survey(&self.pods.endpoints));
                links.into_iter().flatten().filter_map(unnamed).collect()
            }
        };
        let before = self.pods.unnamed.len();
        let is_new = |name: &String| self.pods.endpoints.by_interface(name).is_none();
        self.pods.unnamed.extend(found.into_iter().filter(|(name, _)| is_new(name)));
        self.pods.unnamed.len() > before
    }

    /// A controller has said what should be true.
    pub(super) fn learn(&mut self) {
        self.known = true;
        if !self.lost.is_empty() {
            info!("a controller has made up for what was lost");
            self.lost.clear();
        }
        self.registry_lost = false;
        self.endpoints_due = true;
        self.keep_or_warn();
    }

    /// Opens Pods that are covered, closes those that are not, and names links by their addresses.
    pub(super) fn judge(&mut self) {
        if !self.stream.synced {
            // Nobody is here to say more than was said.
            return;
        }
        let now = now();
        let mut changed = self.name_links(now);
        let Self { pods, coverage, patience, survey, .. } = self;
        changed |= pods.endpoints.judge(now, |endpoint| {
            let over = patience.then_open && patience.is_over(endpoint, now);
            let name = endpoint.pod.to_string();
            let covered = coverage.covers(endpoint);
            if covered {
                survey.opened.remove(&name);
            } else if over && survey.opened.insert(name.clone()) {
                warn!(
                    pod = name,
                    "no controller covers it; it is opened because its time is over (--open-pending)"
                );
            }
            covered || survey.opened.contains(&name)
        });
        if changed {
            self.endpoints_due = true;
            self.keep_or_warn();
        }
    }

    /// Attaches links that nobody has attached and whose addresses are those of a Pod that is covered.
    fn name_links(&mut self, now: i64) -> bool {
        let loose = self.survey.loose.iter().map(|(name, loose)| (name, &loose.addresses));
        let named: Vec<_> = self
            .pods
            .unnamed
            .iter()
            .chain(loose)
            .filter_map(|(name, addresses)| {
                let (pod, uid) = self.coverage.find(addresses)?;
                let addresses = addresses.iter().copied().collect();
                Some((pod.clone(), Attachment { interface: name.clone(), addresses, uid, container: None }))
            })
            .filter(|(pod, _)| self.pods.endpoints.get(pod).is_none())
            .collect();
        for (pod, attachment) in &named {
            info!(%pod, interface = attachment.interface, "found by its address");
            self.pods.unnamed.remove(&attachment.interface);
            self.survey.loose.remove(&attachment.interface);
            if let Err(error) = self.pods.endpoints.find(pod.clone(), attachment.clone(), now) {
                warn!(%pod, %error, "cannot be attached");
            }
        }
        !named.is_empty()
    }

    /// Looks for links of Pods, now and then.
    pub(super) fn look_around(&mut self, now: Instant) {
        if self.survey.at.is_some_and(|at| now.saturating_duration_since(at) < SURVEY) {
            return;
        }
        self.survey.at = Some(now);
        let Some(links) = self.parts.iter_mut().find_map(|part| part.survey(&self.pods.endpoints)) else {
            return;
        };
        let there: BTreeSet<&str> = links.iter().map(|link| &*link.name).collect();
        let before = self.pods.unnamed.len();
        self.pods.unnamed.retain(|name, _| there.contains(&**name));
        let mut changed = self.pods.unnamed.len() != before;
        changed |= self.pods.endpoints.forget_gone(|name| there.contains(name));
        let is_known = |link: &Link| {
            self.pods.unnamed.contains_key(&link.name)
                || self.pods.endpoints.by_interface(&link.name).is_some()
        };
        let mut was = std::mem::take(&mut self.survey.loose);
        for link in links.iter().filter(|link| link.is_a_pods && !is_known(link)) {
            let since = was.remove(&link.name).map_or((now, self::now()), |loose| loose.since);
            let loose = Loose { addresses: link.addresses.clone(), guarded: link.guarded, since };
            self.survey.loose.insert(link.name.clone(), loose);
        }
        if changed {
            self.endpoints_due = true;
            self.keep_or_warn();
        }
        self.judge();
    }

    #[cfg(test)]
    pub(super) fn survey_loose(&self) -> impl Iterator<Item = &str> {
        self.survey.loose.keys().map(String::as_str)
    }

    pub(super) fn keep_or_warn(&self) {
        if let Err(err) = self.keep_registry() {
            // Closed after a restart, until the controller is heard: safe, and tried again with the next change.
            warn!(error = %err, "cannot keep the local registry");
        }
    }

    /// Pods that wait, and links that nobody has attached.
    pub(super) fn pod_problems(&self) -> Vec<PodProblem> {
        let now = now();
        let settled = i64::try_from(SETTLED.as_secs()).unwrap_or(0);
        let waiting = self.pods.endpoints.iter().filter(|one| one.closed && now - one.since >= settled);
        let waiting = waiting.map(|endpoint| {
            let over = match self.patience.is_over(endpoint, now) {
                true => "for longer than the limit of",
                false => "the limit is",
            };
            let limit = self.patience.limit.as_secs();
            PodProblem {
                subject: format!("Pod {}", endpoint.pod),
                message: format!(
                    "closed since {}, {over} {limit} s: no controller covers it (is its object applied, with spec.nodeName {}, and a controller connected?)",
                    at(endpoint.since),
                    self.node
                ),
            }
        });
        let unnamed = self.pods.unnamed.keys().map(|name| PodProblem {
            subject: format!("interface {name}"),
            message:
                "closed: a Pod's link, and whose is not known since the registry was lost; attach it again"
                    .to_owned(),
        });
        let loose = self.survey.loose.iter().filter(|(_, loose)| loose.since.0.elapsed() >= SETTLED);
        let loose = loose.map(|(name, loose)| PodProblem {
            subject: format!("interface {name}"),
            message: match loose.guarded {
                true => format!("closed by --guard since {}: nobody has attached it", at(loose.since.1)),
                false => format!(
                    "unguarded since {}: it looks like a Pod's link, and nobody has attached it; attach it, or close such links with --guard",
                    at(loose.since.1)
                ),
            },
        });
        waiting.chain(unnamed).chain(loose).collect()
    }
}
