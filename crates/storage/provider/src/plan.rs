//! Plans: from what a consumer should have and what storage holds to the steps between them.
//!
//! In: one consumer's record, what the backend sees of it, and how the network stands. Out: steps in the order they must run; none when all
//! is right. Every step is idempotent, and a plan made anew after any of them finds only the rest, so a crash
//! between two steps costs nothing but the time to plan again.
//!
//! Data that is not what was made for the consumer is left alone: no step touches it.
//!
//! ```text
//!   keep:    (mark ─►) storage ─► quota ─► credentials ─► permit        (nobody can connect before the quota holds)
//!   remove:  revoke ─► withdraw ─► trash ─► purge ─► forget   (nobody is connected when data moves; the record goes last)
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    consumer::{Consumer, Phase},
    identity::{Data, Found, Loss, Mark, VaultId, Verdict, VolumeId, judge},
    rates::Rates,
};

/// What a backend sees of one consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Its volumes by name, with what proves which they are.
    pub found: BTreeMap<String, Found>,
    /// Volumes that were deleted on purpose.
    pub gone: BTreeSet<VolumeId>,
    /// A volume's grace time is over, or what nobody needs is still there.
    pub untidy: bool,
    /// Why what the backend keeps beside the data cannot be used.
    pub trouble: Option<String>,
    pub storage: Option<ObservedStorage>,
    /// How much it is served in a second; `None` where that cannot be bounded.
    pub rates: Option<Rates>,
    /// Credentials exist and work.
    pub credentials: bool,
    /// Data of it waits to be deleted.
    pub trash: bool,
}

impl Observed {
    /// What is there, as the record remembers it.
    pub fn data(&self) -> Data {
        let marks = self.found.iter().filter_map(|(name, found)| match found {
            Found::Whole(mark) => Some((name.clone(), *mark)),
            _ => None,
        });
        Data::Made(marks.collect::<BTreeMap<String, Mark>>())
    }
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
    /// Write down beside the data what it is. Once, for data from before there were marks.
    MarkStorage,
    /// Make the pool or volume, or finish making it.
    EnsureStorage {
        bytes: u64,
        encrypted: bool,
    },
    /// Put the shape of what was made before right, and make nothing.
    KeepStorage {
        bytes: u64,
    },
    SetQuota {
        bytes: u64,
    },
    /// Serve it so much in a second and no more.
    SetRates {
        rates: Rates,
    },
    EnsureCredentials,
    /// Remove volumes whose grace time is over, and what nobody needs any more.
    TidyVolumes,
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

impl Step {
    /// Whether it can change which data there is.
    pub fn touches_data(self) -> bool {
        matches!(
            self,
            Self::MarkStorage
                | Self::EnsureStorage { .. }
                | Self::KeepStorage { .. }
                | Self::SetQuota { .. }
                | Self::TidyVolumes
        )
    }
}

/// What to do, and what is true of the consumer once it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub then: Reached,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    Ready,
    Gone,
    /// It leaves, nobody reaches its data, and that is kept for a while.
    Kept,
    /// Its data is not what was made for it.
    Lost(Loss),
}

/// `vault` is where the backend keeps data.
pub fn plan(
    consumer: &Consumer,
    vault: VaultId,
    observed: &Observed,
    network: NetworkState,
    now: u64,
) -> Plan {
    let Consumer { data, phase, granted, encrypted, .. } = consumer;
    if consumer.is_deleting() {
        return match data.elsewhere(vault) {
            Some(loss) => Plan { steps: Vec::new(), then: Reached::Lost(loss) },
            None if consumer.is_kept_at(now) => keeping(observed, network),
            None => removal(observed, network),
        };
    }
    let never_ready = *phase == Phase::Configuring;
    match judge(data, never_ready, vault, &observed.found, &observed.gone, observed.trouble.as_deref()) {
        Verdict::Lost(loss) => Plan { steps: Vec::new(), then: Reached::Lost(loss) },
        Verdict::Fresh => {
            let make = Step::EnsureStorage { bytes: *granted, encrypted: *encrypted };
            upkeep(consumer, Vec::new(), make, observed, network)
        }
        Verdict::Same => {
            upkeep(consumer, Vec::new(), Step::KeepStorage { bytes: *granted }, observed, network)
        }
        Verdict::Unmarked => {
            let mark = vec![Step::MarkStorage];
            upkeep(consumer, mark, Step::KeepStorage { bytes: *granted }, observed, network)
        }
    }
}

fn upkeep(
    &Consumer { granted, rates, .. }: &Consumer,
    mut steps: Vec<Step>,
    shape: Step,
    observed: &Observed,
    network: NetworkState,
) -> Plan {
    let limited = observed.storage.is_some_and(|storage| storage.quota == Some(granted));
    // The shape may follow the quota (a volume's size does), so what is in shape now need not be under another.
    if !limited || !observed.storage.is_some_and(|storage| storage.in_shape) {
        steps.push(shape);
    }
    if !limited {
        steps.push(Step::SetQuota { bytes: granted });
    }
    if observed.rates.is_some_and(|observed| observed != rates) {
        steps.push(Step::SetRates { rates });
    }
    if !observed.credentials {
        steps.push(Step::EnsureCredentials);
    }
    if observed.untidy {
        steps.push(Step::TidyVolumes);
    }
    if network == NetworkState::Differs {
        steps.push(Step::Permit);
    }
    Plan { steps, then: Reached::Ready }
}

/// The first half of a removal. Sessions are ended at each look: they may outlive their credentials.
fn keeping(observed: &Observed, network: NetworkState) -> Plan {
    let Plan { mut steps, .. } = removal(observed, network);
    steps.retain(|step| matches!(step, Step::Revoke | Step::Withdraw));
    Plan { steps, then: Reached::Kept }
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
    Plan { steps, then: Reached::Gone }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::consumer::{Event, tests::example};

    const HERE: VaultId = VaultId(Uuid::from_u128(1));

    fn plan(consumer: &Consumer, observed: &Observed, network: NetworkState) -> Plan {
        super::plan(consumer, HERE, observed, network, 100)
    }

    fn storage(quota: Option<u64>, used: u64) -> Option<ObservedStorage> {
        Some(ObservedStorage { quota, used, in_shape: true })
    }

    #[test]
    fn nothing_is_planned_when_all_is_right() {
        let observed = Observed { storage: storage(Some(10), 3), credentials: true, ..Observed::default() };
        assert_eq!(
            plan(&example(1, 10), &observed, NetworkState::Unmanaged),
            Plan { steps: vec![], then: Reached::Ready }
        );
    }

    #[test]
    fn a_pace_is_set_where_it_can_be_and_is_another() {
        let rates = Rates { operations: Some(100), bytes: None };
        let consumer = Consumer { rates, ..example(1, 10) };
        let mut observed =
            Observed { storage: storage(Some(10), 3), credentials: true, ..Observed::default() };
        assert!(plan(&consumer, &observed, NetworkState::Unmanaged).steps.is_empty());
        observed.rates = Some(Rates::default());
        assert_eq!(plan(&consumer, &observed, NetworkState::Unmanaged).steps, [Step::SetRates { rates }]);
        observed.rates = Some(rates);
        assert!(plan(&consumer, &observed, NetworkState::Unmanaged).steps.is_empty());
    }

    #[test]
    fn everything_is_planned_when_nothing_is_there_and_credentials_come_last() {
        let steps = plan(&example(1, 10), &Observed::default(), NetworkState::Unmanaged).steps;
        assert_eq!(
            steps,
            [
                Step::EnsureStorage { bytes: 10, encrypted: false },
                Step::SetQuota { bytes: 10 },
                Step::EnsureCredentials
            ]
        );
        let encrypted = Consumer { encrypted: true, ..example(1, 10) };
        let steps = plan(&encrypted, &Observed::default(), NetworkState::Unmanaged).steps;
        assert_eq!(steps[0], Step::EnsureStorage { bytes: 10, encrypted: true });
    }

    #[test]
    fn a_lost_quota_is_set_again_and_the_shape_with_it() {
        let observed = Observed { storage: storage(None, 3), credentials: true, ..Observed::default() };
        assert_eq!(
            plan(&example(1, 10), &observed, NetworkState::Unmanaged).steps,
            [Step::EnsureStorage { bytes: 10, encrypted: false }, Step::SetQuota { bytes: 10 }]
        );
    }

    #[test]
    fn removal_cuts_access_before_it_touches_data() {
        let mut consumer = example(1, 10);
        consumer.handle(Event::Offboarded).unwrap();
        let full = Observed { storage: storage(Some(10), 3), credentials: true, ..Observed::default() };
        assert_eq!(
            plan(&consumer, &full, NetworkState::Unmanaged).steps,
            [Step::Revoke, Step::Trash, Step::Purge]
        );
        // Killed after the credentials went, before the sessions did: the sessions are ended again.
        let headless = Observed { credentials: false, ..full.clone() };
        assert_eq!(
            plan(&consumer, &headless, NetworkState::Unmanaged).steps,
            [Step::Revoke, Step::Trash, Step::Purge]
        );
        let trashed = Observed { trash: true, ..Observed::default() };
        assert_eq!(plan(&consumer, &trashed, NetworkState::Unmanaged).steps, [Step::Purge]);
        assert_eq!(
            plan(&consumer, &Observed::default(), NetworkState::Unmanaged),
            Plan { steps: vec![], then: Reached::Gone }
        );
    }

    #[test]
    fn data_of_who_leaves_is_out_of_reach_and_kept_until_its_time() {
        let mut consumer = example(1, 10);
        consumer.handle(Event::Offboarded).unwrap();
        let full = Observed { storage: storage(Some(10), 3), credentials: true, ..Observed::default() };
        consumer.kept_until = Some(101);
        let kept = plan(&consumer, &full, NetworkState::Differs);
        assert_eq!((&kept.steps[..], kept.then), (&[Step::Revoke, Step::Withdraw][..], Reached::Kept));
        consumer.kept_until = Some(100);
        assert!(plan(&consumer, &full, NetworkState::Unmanaged).steps.contains(&Step::Purge));
    }

    #[test]
    fn the_network_opens_last_and_closes_before_data_moves() {
        let mut consumer = example(1, 10);
        let steps = plan(&consumer, &Observed::default(), NetworkState::Differs).steps;
        assert_eq!(steps.last(), Some(&Step::Permit));
        let full = Observed { storage: storage(Some(10), 3), credentials: true, ..Observed::default() };
        assert_eq!(plan(&consumer, &full, NetworkState::Differs).steps, [Step::Permit]);
        assert!(plan(&consumer, &full, NetworkState::AsPermitted).steps.is_empty());
        consumer.handle(Event::Offboarded).unwrap();
        let steps = plan(&consumer, &full, NetworkState::Differs).steps;
        assert_eq!(steps, [Step::Revoke, Step::Withdraw, Step::Trash, Step::Purge]);
        // Storage that is gone already does not leave the network open.
        assert_eq!(plan(&consumer, &Observed::default(), NetworkState::Differs).steps, [Step::Withdraw]);
    }

    #[test]
    fn data_that_is_not_what_was_made_is_left_alone() {
        let mark =
            Mark { vault: HERE, volume: VolumeId(Uuid::from_u128(2)), generation: 1, size: 10, key: None };
        let mut consumer = example(1, 10);
        consumer.data = Data::Made([("data".to_owned(), mark)].into());
        consumer.phase = Phase::Ready;
        let lost = plan(&consumer, &Observed::default(), NetworkState::Differs);
        assert!(lost.steps.is_empty() && matches!(lost.then, Reached::Lost(Loss::Everything)), "{lost:?}");
        // What is there is kept and put in shape, never made.
        let found =
            Observed { found: [("data".to_owned(), Found::Whole(mark))].into(), ..Observed::default() };
        assert_eq!(
            plan(&consumer, &found, NetworkState::Unmanaged).steps[0],
            Step::KeepStorage { bytes: 10 }
        );
        // Data of another vault is not taken down here either, when its owner leaves.
        let away = Mark { vault: VaultId(Uuid::from_u128(9)), ..mark };
        consumer.data = Data::Made([("data".to_owned(), away)].into());
        consumer.handle(Event::Offboarded).unwrap();
        let left = plan(&consumer, &found, NetworkState::Differs);
        assert!(left.steps.is_empty() && matches!(left.then, Reached::Lost(Loss::Elsewhere { .. })));
    }

    #[test]
    fn data_from_before_marks_is_marked_first() {
        let consumer = Consumer { data: Data::Unmarked, phase: Phase::Ready, ..example(1, 10) };
        let found = [("data".to_owned(), Found::Unmarked { size: 10 })].into();
        let observed =
            Observed { found, storage: storage(Some(10), 3), credentials: true, ..Observed::default() };
        assert_eq!(plan(&consumer, &observed, NetworkState::Unmanaged).steps, [Step::MarkStorage]);
    }

    #[test]
    fn a_plan_interrupted_anywhere_is_finished_by_the_next() {
        for deleting in [false, true] {
            let mut consumer = example(1, 10);
            let mut observed = Observed::default();
            if deleting {
                consumer.handle(Event::Offboarded).unwrap();
                observed =
                    Observed { storage: storage(Some(10), 3), credentials: true, ..Observed::default() };
            }
            let whole = plan(&consumer, &observed, NetworkState::Differs).steps;
            for stop in 0..=whole.len() {
                let (mut seen, mut network) = (observed.clone(), NetworkState::Differs);
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
            Step::MarkStorage => {}
            Step::EnsureStorage { .. } | Step::KeepStorage { .. } => {
                seen.storage
                    .get_or_insert(ObservedStorage { quota: None, used: 0, in_shape: true })
                    .in_shape = true;
            }
            Step::SetQuota { bytes } => {
                seen.storage.as_mut().expect("storage comes first").quota = Some(bytes)
            }
            Step::EnsureCredentials => seen.credentials = true,
            Step::TidyVolumes => seen.untidy = false,
            Step::SetRates { rates } => seen.rates = Some(rates),
            Step::Revoke => seen.credentials = false,
            Step::Permit | Step::Withdraw => *network = NetworkState::AsPermitted,
            Step::Trash => seen.trash |= seen.storage.take().is_some(),
            Step::Purge => seen.trash = false,
        }
    }
}
