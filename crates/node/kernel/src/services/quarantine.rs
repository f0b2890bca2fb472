//! Ports that the kernel refuses, and when each is tried again.
//!
//! In: refusals and successes. Out: which are due. Holds: one entry per refused port; the pause between two tries
//! doubles with each refusal.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use common::Backoff;
use node_services::PortId;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

/// A port that is not as it should be.
#[derive(Clone, Debug)]
pub struct Held {
    pub reason: String,
    /// Tries that were refused.
    pub refusals: u32,
    /// The plane does not know what the kernel has of it.
    pub(super) withdrawn: bool,
    pause: Pause,
}

/// The time until the next try, twice as long after each that fails.
#[derive(Clone, Debug)]
pub struct Pause {
    backoff: Backoff,
    until: Option<Instant>,
}

impl Default for Pause {
    fn default() -> Self {
        Self { backoff: Backoff::new(FIRST, LONGEST), until: None }
    }
}

impl Pause {
    pub fn lengthen(&mut self, now: Instant) {
        self.until = Some(now + self.backoff.pause());
    }

    /// There is something new to try: no later than after the first pause.
    pub fn shorten(&mut self, now: Instant) {
        let soon = now + FIRST;
        self.until = Some(self.until.map_or(soon, |until| until.min(soon)));
    }

    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

#[derive(Debug, Default)]
pub struct Quarantine {
    held: BTreeMap<PortId, Held>,
}

impl Quarantine {
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub fn contains(&self, id: &PortId) -> bool {
        self.held.contains_key(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&PortId, &Held)> {
        self.held.iter()
    }

    pub fn refuse(&mut self, id: PortId, reason: String, now: Instant) {
        let held = self.held.entry(id).or_insert_with(|| Held {
            reason: String::new(),
            refusals: 0,
            withdrawn: false,
            pause: Pause::default(),
        });
        (held.reason, held.refusals) = (reason, held.refusals + 1);
        held.pause.lengthen(now);
    }

    /// Refused by a comparison of all.
    pub fn withdraw(&mut self, id: PortId, reason: String, now: Instant) {
        self.refuse(id.clone(), reason, now);
        self.held.entry(id).and_modify(|held| held.withdrawn = true);
    }

    /// Whether there is a port of which the kernel has something that the plane does not.
    pub fn has_withdrawn(&self) -> bool {
        self.iter().any(|(_, held)| held.withdrawn)
    }

    pub fn is_withdrawn(&self, id: &PortId) -> bool {
        self.held.get(id).is_some_and(|held| held.withdrawn)
    }

    pub fn release(&mut self, id: &PortId) {
        self.held.remove(id);
    }

    /// There is a new reason to try it.
    pub fn hasten(&mut self, id: &PortId, now: Instant) {
        if let Some(held) = self.held.get_mut(id) {
            held.pause.until = Some(now);
        }
    }

    pub fn due(&self, now: Instant) -> Vec<PortId> {
        self.held.iter().filter(|(_, held)| held.pause.is_over(now)).map(|(id, _)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use node_services::{Protocol, ServiceName};

    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_end_with_the_refusals() {
        let id = PortId {
            service: ServiceName::new("default", "web"),
            port_name: "http".into(),
            protocol: Protocol::Tcp,
            ipv6: false,
        };
        let (mut held, start) = (Quarantine::default(), Instant::now());
        for (refusals, pause) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
            held.refuse(id.clone(), "no".into(), start);
            assert_eq!(held.iter().next().map(|(_, held)| held.refusals), Some(refusals));
            assert!(held.due(start + Duration::from_millis(pause * 1_000 - 1)).is_empty());
            assert_eq!(held.due(start + Duration::from_secs(pause)).len(), 1);
        }
        (0..40).for_each(|_| held.refuse(id.clone(), "no".into(), start));
        assert_eq!(held.due(start + LONGEST).len(), 1);
        held.release(&id);
        held.refuse(id.clone(), "no".into(), start);
        assert_eq!(held.due(start + FIRST), [id]);
    }
}
