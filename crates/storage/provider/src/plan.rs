//! Plans: from what a consumer should have and what storage holds to the steps between them.
//!
//! In: one consumer's record, and what the backend sees of it. Out: steps in the order they must run; none when all
//! is right. Every step is idempotent, and a plan made anew after any of them finds only the rest, so a crash
//! between two steps costs nothing but the time to plan again.
//!
//! ```text
//!   keep:    storage ─► quota ─► credentials            (nobody can connect before the quota holds)
//!   remove:  revoke ─► trash ─► purge ─► forget         (nobody is connected when data moves; the record goes last)
//! ```

use crate::consumer::Consumer;

/// What a backend sees of one consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    pub storage: Option<ObservedStorage>,
    /// Credentials exist and work.
    pub credentials: bool,
    /// Data of it waits to be deleted.
    pub trash: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedStorage {
    /// The limit in force; `None` when there is none, which is never right.
    pub quota: Option<u64>,
    pub used: u64,
    /// Everything but the quota is as it should be: size, application, replication.
    pub in_shape: bool,
}

/// One thing to do to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make the pool or volume, or put its shape right.
    EnsureStorage {
        bytes: u64,
    },
    SetQuota {
        bytes: u64,
    },
    EnsureCredentials,
    /// Refuse new sessions and end the open ones.
    Revoke,
    /// Take the data out of reach.
    Trash,
    /// Delete what is out of reach.
    Purge,
}

/// What to do, and what is true of the consumer once it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub then: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ready,
    Gone,
}

pub fn plan(consumer: &Consumer, observed: &Observed) -> Plan {
    if consumer.is_deleting() { removal(observed) } else { upkeep(consumer.granted, observed) }
}

fn upkeep(granted: u64, observed: &Observed) -> Plan {
    let mut steps = Vec::new();
    if !observed.storage.is_some_and(|storage| storage.in_shape) {
        steps.push(Step::EnsureStorage { bytes: granted });
    }
    if observed.storage.is_none_or(|storage| storage.quota != Some(granted)) {
        steps.push(Step::SetQuota { bytes: granted });
    }
    if !observed.credentials {
        steps.push(Step::EnsureCredentials);
    }
    Plan { steps, then: Outcome::Ready }
}

fn removal(observed: &Observed) -> Plan {
    let mut steps = Vec::new();
    // Sessions can outlive their credentials, so while there is storage to reach there is something to revoke.
    if observed.credentials || observed.storage.is_some() {
        steps.push(Step::Revoke);
    }
    if observed.storage.is_some() {
        steps.push(Step::Trash);
    }
    if observed.trash || observed.storage.is_some() {
        steps.push(Step::Purge);
    }
    Plan { steps, then: Outcome::Gone }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::{Event, tests::example};

    fn storage(quota: Option<u64>, used: u64) -> Option<ObservedStorage> {
        Some(ObservedStorage { quota, used, in_shape: true })
    }

    #[test]
    fn nothing_is_planned_when_all_is_right() {
        let observed = Observed { storage: storage(Some(10), 3), credentials: true, trash: false };
        assert_eq!(plan(&example(1, 10), &observed), Plan { steps: vec![], then: Outcome::Ready });
    }

    #[test]
    fn everything_is_planned_when_nothing_is_there_and_credentials_come_last() {
        let steps = plan(&example(1, 10), &Observed::default()).steps;
        assert_eq!(
            steps,
            [Step::EnsureStorage { bytes: 10 }, Step::SetQuota { bytes: 10 }, Step::EnsureCredentials]
        );
    }

    #[test]
    fn a_lost_quota_is_set_again() {
        let observed = Observed { storage: storage(None, 3), credentials: true, trash: false };
        assert_eq!(plan(&example(1, 10), &observed).steps, [Step::SetQuota { bytes: 10 }]);
    }

    #[test]
    fn removal_cuts_access_before_it_touches_data() {
        let mut consumer = example(1, 10);
        consumer.handle(Event::Offboarded).unwrap();
        let full = Observed { storage: storage(Some(10), 3), credentials: true, trash: false };
        assert_eq!(plan(&consumer, &full).steps, [Step::Revoke, Step::Trash, Step::Purge]);
        // Killed after the credentials went, before the sessions did: the sessions are ended again.
        let headless = Observed { credentials: false, ..full };
        assert_eq!(plan(&consumer, &headless).steps, [Step::Revoke, Step::Trash, Step::Purge]);
        let trashed = Observed { storage: None, credentials: false, trash: true };
        assert_eq!(plan(&consumer, &trashed).steps, [Step::Purge]);
        assert_eq!(plan(&consumer, &Observed::default()), Plan { steps: vec![], then: Outcome::Gone });
    }

    #[test]
    fn a_plan_interrupted_anywhere_is_finished_by_the_next() {
        for deleting in [false, true] {
            let mut consumer = example(1, 10);
            let mut observed = Observed::default();
            if deleting {
                consumer.handle(Event::Offboarded).unwrap();
                observed = Observed { storage: storage(Some(10), 3), credentials: true, trash: false };
            }
            let whole = plan(&consumer, &observed).steps;
            for stop in 0..=whole.len() {
                let mut seen = observed;
                whole[..stop].iter().for_each(|step| apply(&mut seen, *step));
                let rest = plan(&consumer, &seen).steps;
                rest.iter().for_each(|step| apply(&mut seen, *step));
                assert!(plan(&consumer, &seen).steps.is_empty(), "stopped after {stop}");
            }
        }
    }

    /// The model of a backend.
    fn apply(seen: &mut Observed, step: Step) {
        match step {
            Step::EnsureStorage { .. } => {
                seen.storage
                    .get_or_insert(ObservedStorage { quota: None, used: 0, in_shape: true })
                    .in_shape = true;
            }
            Step::SetQuota { bytes } => {
                seen.storage.as_mut().expect("storage comes first").quota = Some(bytes)
            }
            Step::EnsureCredentials => seen.credentials = true,
            Step::Revoke => seen.credentials = false,
            Step::Trash => seen.trash |= seen.storage.take().is_some(),
            Step::Purge => seen.trash = false,
        }
    }
}
