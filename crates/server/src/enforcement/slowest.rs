//! Which nodes take longest. Pure: time is an argument.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;
use wire::trestle::v1::SlowNode;

use super::change::Kind;

/// Nodes told of.
const SLOWEST: usize = 5;
/// What is longer ago is history.
const LATELY: Duration = Duration::from_secs(300);
/// Nodes remembered: many more than are told, so that one which gets better gives way to the next.
const REMEMBERED: usize = 64;

/// The longest that each of the slowest nodes took lately.
#[derive(Debug, Default)]
pub struct Slowest(HashMap<Arc<str>, Taken>);

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
