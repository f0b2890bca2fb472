//! How long changes take until they are in force, for Prometheus.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

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
    /// `kinds` are declared before the first change of them: what is not there yet cannot grow.
    pub fn register(registry: &mut Registry, kinds: &[&'static str]) -> Self {
        let seconds = Family::<At, Histogram>::new_with_constructor(|| {
            Histogram::new([
                1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
            ])
        });
        let (late, waiting) = (Family::<Of, Counter>::default(), Gauge::default());
        for kind in kinds.iter().copied() {
            drop(late.get_or_create(&Of { kind }));
            drop(seconds.get_or_create(&At { kind, stage: Stage::Enforced.as_str() }));
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

    pub fn observe(&self, kind: &'static str, stage: Stage, took: Duration) {
        let at = At { kind, stage: stage.as_str() };
        self.seconds.get_or_create(&at).observe(took.as_secs_f64());
    }

    pub fn late(&self, kind: &'static str, places: usize) {
        self.late.get_or_create(&Of { kind }).inc_by(places as u64);
    }

    pub fn waiting(&self, changes: usize) {
        self.waiting.set(i64::try_from(changes).unwrap_or(i64::MAX));
    }
}
