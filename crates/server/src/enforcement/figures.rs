//! How long changes take: histograms for Prometheus, and which nodes take longest.

use std::{collections::HashMap, sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;
use wire::trestle::v1::SlowNode;

use super::change::Kind;

/// Nodes told of.
const SLOWEST: usize = 5;
/// What is longer ago is history.
const LATELY: Duration = Duration::from_secs(300);
/// Nodes remembered: many more than are told, so that one which gets better gives way to the next.
const REMEMBERED: usize = 64;

/// How far a change is. Every time is from the beginning of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Stored,
    /// Everything that follows from it is ready to be handed out.
    Computed,
    /// A node was told: one for each.
    Sent,
    /// A node, or a resource, has it in force: one for each.
    Enforced,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct At {
    kind: &'static str,
    stage: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Of {
    kind: &'static str,
}

/// What `/metrics` has of changes.
#[derive(Clone)]
pub struct EnforcementFigures {
    seconds: Family<At, Histogram>,
    late: Family<Of, Counter>,
    waiting: Gauge,
}

impl Stage {
    fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Computed => "computed",
            Self::Sent => "sent",
            Self::Enforced => "enforced",
        }
    }
}

impl EnforcementFigures {
    pub fn register(registry: &mut Registry) -> Self {
        let seconds = Family::<At, Histogram>::new_with_constructor(|| {
            Histogram::new([
                1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
            ])
        });
        let (late, waiting) = (Family::<Of, Counter>::default(), Gauge::default());
        // Declared before the first one: what is not there yet cannot grow.
        for kind in Kind::ALL {
            late.get_or_create(&Of { kind: kind.as_str() });
            seconds.get_or_create(&At { kind: kind.as_str(), stage: Stage::Enforced.as_str() });
        }
        registry.register(
            "enforcement_seconds",
            "From the call that changed something until it was stored, computed, sent to a node, and in force there",
            seconds.clone(),
        );
        registry.register(
            "enforcement_late",
            "Places that did not have a change in force a minute after the call",
            late.clone(),
        );
        registry.register(
            "enforcement_pending",
            "Changes of the last ten minutes that some place does not have in force",
            waiting.clone(),
        );
        Self { seconds, late, waiting }
    }

    pub(super) fn observe(&self, kind: Kind, stage: Stage, took: Duration) {
        let at = At { kind: kind.as_str(), stage: stage.as_str() };
        self.seconds.get_or_create(&at).observe(took.as_secs_f64());
    }

    pub(super) fn late(&self, kind: Kind, places: usize) {
        self.late.get_or_create(&Of { kind: kind.as_str() }).inc_by(places as u64);
    }

    pub(super) fn waiting(&self, changes: usize) {
        self.waiting.set(i64::try_from(changes).unwrap_or(i64::MAX));
    }
}

/// The longest that each of the slowest nodes took lately. Pure: time is an argument.
#[derive(Debug, Default)]
pub(super) struct Slowest(HashMap<Arc<str>, Taken>);

#[derive(Clone, Copy, Debug)]
struct Taken {
    took: Duration,
    kind: Kind,
    at: Instant,
}

impl Slowest {
    pub fn took(&mut self, node: &Arc<str>, kind: Kind, took: Duration, now: Instant) {
        let taken = Taken { took, kind, at: now };
        if let Some(known) = self.0.get_mut(node) {
            if known.took <= took || is_past(known, now) {
                *known = taken;
            }
            return;
        }
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, known| !is_past(known, now));
        }
        if self.0.len() >= REMEMBERED {
            let quickest = self.0.iter().min_by_key(|(_, known)| known.took);
            match quickest.map(|(name, known)| (Arc::clone(name), known.took)) {
                Some((name, quickest)) if quickest < took => drop(self.0.remove(&name)),
                _ => return,
            }
        }
        self.0.insert(Arc::clone(node), taken);
    }

    pub fn told(&self, now: Instant) -> Vec<SlowNode> {
        let mut lately: Vec<_> = self.0.iter().filter(|(_, taken)| !is_past(taken, now)).collect();
        lately.sort_by(|(a, one), (b, other)| other.took.cmp(&one.took).then(a.cmp(b)));
        let node = |(name, taken): (&Arc<str>, &Taken)| SlowNode {
            name: name.to_string(),
            seconds: taken.took.as_secs_f64(),
            kind: taken.kind.as_str().to_owned(),
        };
        lately.into_iter().take(SLOWEST).map(node).collect()
    }
}

fn is_past(taken: &Taken, now: Instant) -> bool {
    now.saturating_duration_since(taken.at) > LATELY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_lately_are_told_and_no_more_are_remembered_than_needed() {
        let (begin, mut slowest) = (Instant::now(), Slowest::default());
        let name = |number: u64| Arc::<str>::from(format!("node-{number}"));
        for number in 0..1_000 {
            slowest.took(&name(number), Kind::Policy, Duration::from_millis(number), begin);
        }
        slowest.took(&name(999), Kind::Tag, Duration::from_millis(1), begin);
        let told = |slowest: &Slowest, now| -> Vec<String> {
            slowest.told(now).into_iter().map(|node| node.name).collect()
        };
        assert_eq!(told(&slowest, begin), ["node-999", "node-998", "node-997", "node-996", "node-995"]);
        assert!(slowest.0.len() <= REMEMBERED);
        let later = begin + LATELY + Duration::from_secs(1);
        assert!(told(&slowest, later).is_empty());
        slowest.took(&name(3), Kind::Policy, Duration::from_millis(3), later);
        assert_eq!(told(&slowest, later), ["node-3"]);
    }
}
