//! Plans: from what a consumer should have and what storage holds to the steps between them.
//!
//! In: one consumer's record, what the backend sees of it, and how the network stands. Out: steps in the order they must run; none when all
//! is right. Every step is idempotent, and a plan made anew after any of them finds only the rest, so a crash
//! between two steps costs nothing but the time to plan again.
//!
//! ```text
//!   keep:    storage ─► quota ─► credentials ─► permit        (nobody can connect before the quota holds)
//!   remove:  revoke ─► withdraw ─► trash ─► purge ─► forget   (nobody is connected when data moves; the record goes last)
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

/// What the network lets through to the storage on behalf of one consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkState {
    /// It is not ours to open and close.
    Unmanaged,
    /// Exactly what [`Consumer::permitted`] says, and in force.
    AsPermitted,
    /// Something else.
    Differs,
}

/// One thing to do to a backend, or to the network before it.
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
    /// Let the consumer's addresses through to the storage, and no others on its behalf.
    Permit,
    /// Refuse new sessions and end the open ones.
    Revoke,
    /// Let nobody through on its behalf.
    Withdraw,
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

pub fn plan(consumer: &Consumer, observed: &Observed, network: NetworkState) -> Plan {
    if consumer.is_deleting() {
        removal(observed, network)
    } else {
        upkeep(consumer.granted, observed, network)
    }
}

fn upkeep(granted: u64, observed: &Observed, network: NetworkState) -> Plan {
    let mut steps = Vec::new();
    let limited = observed.storage.is_some_and(|storage| storage.quota == Some(granted));
    // The shape may follow the quota (a volume's size does), so what is in shape now need not be under another.
    if !limited || !observed.storage.is_some_and(|storage| storage.in_shape) {
        steps.push(Step::EnsureStorage { bytes: granted });
    }
    if !limited {
        steps.push(Step::SetQuota { bytes: granted });
    }
    if !observed.credentials {
        steps.push(Step::EnsureCredentials);
    }
    if network == NetworkState::Differs {
        steps.push(Step::Permit);
    }
    Plan { steps, then: Outcome::Ready }
}

fn removal(observed: &Observed, network: NetworkState) -> Plan {
    let mut steps = Vec::new();
    // Sessions can outlive their credentials, so while there is storage to reach there is something to revoke.
    if observed.credentials || observed.storage.is_some() {
        steps.push(Step::Revoke);
    }
    if network == NetworkState::Differs {
        steps.push(Step::Withdraw);
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
        assert_eq!(
            plan(&example(1, 10), &observed, NetworkState::Unmanaged),
            Plan { steps: vec![], then: Outcome::Ready }
        );
    }

    #[test]
    fn everything_is_planned_when_nothing_is_there_and_credentials_come_last() {
        let steps = plan(&example(1, 10), &Observed::default(), NetworkState::Unmanaged).steps;
        assert_eq!(
            steps,
            [Step::EnsureStorage { bytes: 10 }, Step::SetQuota { bytes: 10 }, Step::EnsureCredentials]
        );
    }

    #[test]
    fn a_lost_quota_is_set_again_and_the_shape_with_it() {
        let observed = Observed { storage: storage(None, 3), credentials: true, trash: false };
        assert_eq!(
            plan(&example(1, 10), &observed, NetworkState::Unmanaged).steps,
            [Step::EnsureStorage { bytes: 10 }, Step::SetQuota { bytes: 10 }]
        );
    }

    #[test]
    fn removal_cuts_access_before_it_touches_data() {
        let mut consumer = example(1, 10);
        consumer.handle(Event::Offboarded).unwrap();
        let full = Observed { storage: storage(Some(10), 3), credentials: true, trash: false };
        assert_eq!(
            plan(&consumer, &full, NetworkState::Unmanaged).steps,
            [Step::Revoke, Step::Trash, Step::Purge]
        );
        // Killed after the credentials went, before the sessions did: the sessions are ended again.
        let headless = Observed { credentials: false, ..full };
        assert_eq!(
            plan(&consumer, &headless, NetworkState::Unmanaged).steps,
            [Step::Revoke, Step::Trash, Step::Purge]
        );
        let trashed = Observed { storage: None, credentials: false, trash: true };
        assert_eq!(plan(&consumer, &trashed, NetworkState::Unmanaged).steps, [Step::Purge]);
        assert_eq!(
            plan(&consumer, &Observed::default(), NetworkState::Unmanaged),
            Plan { steps: vec![], then: Outcome::Gone }
        );
    }

    #[test]
    fn the_network_opens_last_and_closes_before_data_moves() {
        let mut consumer = example(1, 10);
        let steps = plan(&consumer, &Observed::default(), NetworkState::Differs).steps;
        assert_eq!(steps.last(), Some(&Step::Permit));
        let full = Observed { storage: storage(Some(10), 3), credentials: true, trash: false };
        assert_eq!(plan(&consumer, &full, NetworkState::Differs).steps, [Step::Permit]);
        assert!(plan(&consumer, &full, NetworkState::AsPermitted).steps.is_empty());
        consumer.handle(Event::Offboarded).unwrap();
        let steps = plan(&consumer, &full, NetworkState::Differs).steps;
        assert_eq!(steps, [Step::Revoke, Step::Withdraw, Step::Trash, Step::Purge]);
        // Storage that is gone already does not leave the network open.
        assert_eq!(plan(&consumer, &Observed::default(), NetworkState::Differs).steps, [Step::Withdraw]);
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
            let whole = plan(&consumer, &observed, NetworkState::Differs).steps;
            for stop in 0..=whole.len() {
                let (mut seen, mut network) = (observed, NetworkState::Differs);
                whole[..stop].iter().for_each(|step| apply(&mut seen, &mut network, *step));
                let rest = plan(&consumer, &seen, network).steps;
                rest.iter().for_each(|step| apply(&mut seen, &mut network, *step));
                assert!(plan(&consumer, &seen, network).steps.is_empty(), "stopped after {stop}");
            }
        }
    }

    /// The model of a backend and a network.
    fn apply(seen: &mut Observed, network: &mut NetworkState, step: Step) {
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
            Step::Permit | Step::Withdraw => *network = NetworkState::AsPermitted,
            Step::Trash => seen.trash |= seen.storage.take().is_some(),
            Step::Purge => seen.trash = false,
        }
    }
}
