//! When a node was told what, and when it had it. Pure.
//!
//! In: the steps of one node's stream and its acknowledgements, each with the moment. Out: since when it has what a revision
//! brought. Holds: the last steps exactly, and of older ones fewer the older they are: of those is known when they were there
//! at the latest.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::key::Revision;

/// Steps kept of a node.
const KEPT: usize = 32;
/// Of these, the newest that are never thinned out.
const RECENT: usize = 16;

/// Since when a node has what a revision brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Had {
    /// When it was told.
    pub sent: Instant,
    /// When it said that it has it.
    pub applied: Instant,
    /// False: it may have had it before; that is forgotten.
    pub is_exact: bool,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    to: Revision,
    sent: Instant,
    applied: Option<Instant>,
    /// Where the node stood before.
    from: Revision,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Steps {
    kept: VecDeque<Step>,
    /// Where the node stands once all is applied.
    told: Revision,
}

impl Steps {
    /// Of a node that goes on where it was: what it had, it still has. What it had not said to have is told again.
    pub fn resumed(&self) -> Self {
        let mut steps = self.clone();
        steps.kept.retain(|step| step.applied.is_some());
        steps.told = steps.kept.back().map_or(Revision(0), |step| step.to);
        steps
    }

    pub fn sent(&mut self, to: Revision, now: Instant) {
        if self.kept.len() == KEPT {
            self.thin(now);
        }
        self.kept.push_back(Step { to, sent: now, applied: None, from: self.told });
        self.told = to;
    }

    pub fn applied(&mut self, upto: Revision, now: Instant) {
        // Newest first: all that are older were noted before.
        let unnoted = self.kept.iter_mut().rev().skip_while(|step| step.to > upto);
        unnoted.take_while(|step| step.applied.is_none()).for_each(|step| step.applied = Some(now));
    }

    /// Since when the node has what came with `revision`; none while it has not said so.
    pub fn had(&self, revision: Revision) -> Option<Had> {
        let place = self.kept.partition_point(|step| step.to < revision);
        let step = self.kept.get(place)?;
        Some(Had { sent: step.sent, applied: step.applied?, is_exact: step.from < revision })
    }

    /// Takes the step out, among the older ones, whose neighbours are nearest each other for its age.
    fn thin(&mut self, now: Instant) {
        let density = |at: &usize| {
            let gap = self.kept[at + 1].sent.saturating_duration_since(self.kept[at - 1].sent);
            let age = now.saturating_duration_since(self.kept[*at].sent);
            gap.as_nanos().saturating_mul(1_000) / age.as_nanos().max(1)
        };
        let dense = (1..KEPT - RECENT).min_by_key(density);
        self.kept.remove(dense.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(begin: Instant, millis: u64) -> Instant {
        begin + Duration::from_millis(millis)
    }

    #[test]
    fn a_node_has_what_the_first_step_that_reached_it_brought() {
        let (begin, mut steps) = (Instant::now(), Steps::default());
        steps.sent(Revision(5), at(begin, 10));
        steps.sent(Revision(9), at(begin, 20));
        assert_eq!(steps.had(Revision(4)), None);
        steps.applied(Revision(5), at(begin, 15));
        steps.applied(Revision(9), at(begin, 40));
        let had = |revision| steps.had(Revision(revision)).map(|had| (had.sent, had.applied, had.is_exact));
        assert_eq!(had(3), Some((at(begin, 10), at(begin, 15), true)));
        assert_eq!(had(6), Some((at(begin, 20), at(begin, 40), true)));
        assert_eq!(had(10), None);
    }

    #[test]
    fn one_word_acknowledges_all_that_went_before_and_changes_nothing_that_was_said() {
        let (begin, mut steps) = (Instant::now(), Steps::default());
        (1..=3).for_each(|step| steps.sent(Revision(step), at(begin, step)));
        steps.applied(Revision(2), at(begin, 100));
        steps.applied(Revision(3), at(begin, 200));
        let applied = |revision| steps.had(Revision(revision)).map(|had| had.applied);
        assert_eq!(applied(1), Some(at(begin, 100)));
        assert_eq!(applied(2), Some(at(begin, 100)));
        assert_eq!(applied(3), Some(at(begin, 200)));
    }

    #[test]
    fn many_steps_are_thinned_out_and_what_is_forgotten_is_not_made_earlier() {
        let (begin, mut steps) = (Instant::now(), Steps::default());
        for step in 1..=10_000 {
            steps.sent(Revision(step), at(begin, step * 10));
            steps.applied(Revision(step), at(begin, step * 10 + 5));
        }
        assert!(steps.kept.len() <= KEPT);
        for step in 1..=10_000_u64 {
            let had = steps.had(Revision(step)).unwrap();
            let true_time = at(begin, step * 10 + 5);
            assert!(had.applied >= true_time, "{step}");
            assert_eq!(had.is_exact, had.applied == true_time, "{step}");
        }
        assert!(steps.had(Revision(9_990)).unwrap().is_exact);
        // What is old is known to within a part of its age, not only to be older than all that is kept.
        let old = steps.had(Revision(5_000)).unwrap().applied;
        assert!(old < at(begin, 90_000), "{:?}", old - begin);
    }

    #[test]
    fn who_comes_back_keeps_what_it_had_and_not_what_was_on_its_way() {
        let (begin, mut steps) = (Instant::now(), Steps::default());
        steps.sent(Revision(1), at(begin, 1));
        steps.applied(Revision(1), at(begin, 2));
        steps.sent(Revision(2), at(begin, 3));
        let mut steps = steps.resumed();
        assert_eq!(steps.had(Revision(1)).map(|had| had.applied), Some(at(begin, 2)));
        assert_eq!(steps.had(Revision(2)), None);
        steps.sent(Revision(4), at(begin, 9));
        steps.applied(Revision(4), at(begin, 10));
        assert_eq!(
            steps.had(Revision(2)).map(|had| (had.applied, had.is_exact)),
            Some((at(begin, 10), true))
        );
    }
}
