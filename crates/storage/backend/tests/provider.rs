//! The provider over a backend that fails where it hurts most.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use storage_backend::{
    Backend as _, Caller, Change, Details, Provider, ProviderConfig, Reconciled, Records as _,
    testing::{FakeBackend, FakeNetwork, Fault, MemoryRecords, NetworkFault, Subject, conforms},
};
use storage_provider::{
    Client, Code, ConnectionItem, ConsumerId, Data, IdSealer, KeyRing, Mark, Observed, Phase, Rates, Refusal,
    SealKey, SealKeyId, SigningKey, Sources, Terms, TicketStatus, VolumeId,
};

type Fake = Arc<Provider<Arc<MemoryRecords>, Arc<FakeBackend>>>;

const ANYBODY: Caller<'static> = Caller { client: None };

struct World {
    provider: Fake,
    backend: Arc<FakeBackend>,
    records: Arc<MemoryRecords>,
    network: Arc<FakeNetwork>,
    now: Arc<AtomicU64>,
}

fn world(capacity: u64) -> World {
    started(Arc::new(MemoryRecords::default()), Arc::new(FakeBackend::new(capacity)), Arc::default())
}

/// A provider process over what an earlier one left.
fn started(records: Arc<MemoryRecords>, backend: Arc<FakeBackend>, network: Arc<FakeNetwork>) -> World {
    let now = Arc::new(AtomicU64::new(1_000_000));
    let clock = Arc::clone(&now);
    let config = ProviderConfig {
        keys: KeyRing::new(Some(SigningKey::from_seed(&[1; 32]).unwrap()), vec![]),
        sealer: IdSealer::new([SealKey { id: SealKeyId(1), secret: [7; 32].into() }]).unwrap(),
        clock: Arc::new(move || clock.load(Ordering::SeqCst)),
        resync: Duration::from_secs(3600),
        grace: 1000,
        network: Some(Arc::clone(&network) as Arc<dyn storage_backend::Network>),
        terms: Terms::unbounded(),
    };
    let provider = Arc::new(Provider::new(Arc::clone(&records), Arc::clone(&backend), config));
    World { provider, backend, records, network, now }
}

impl World {
    async fn ticket(&self) -> String {
        self.provider
            .create_ticket(100, None, Sources::default(), Rates::default(), false)
            .await
            .unwrap()
            .text
            .expose()
            .to_owned()
    }

    /// A consumer that is Ready: its sealed id and its open one.
    async fn consumer(&self, capacity: &str) -> (String, ConsumerId) {
        let onboarded =
            self.provider.onboard(&self.ticket().await, capacity.as_bytes(), &[], ANYBODY).await.unwrap();
        self.provider.reconcile(onboarded.consumer).await.unwrap();
        (onboarded.id.expose().to_owned(), onboarded.consumer)
    }

    async fn phase(&self, id: ConsumerId) -> Option<Phase> {
        self.records.consumer(id).await.unwrap().map(|stored| stored.value.phase)
    }

    async fn granted(&self) -> u64 {
        self.records.ledger().await.unwrap().value.granted
    }
}

#[tokio::test]
async fn a_consumer_goes_through_its_whole_life() {
    let world = world(100 << 30);
    let ticket = world.ticket().await;
    let onboarded = world.provider.onboard(&ticket, b"1.5Gi", &[], ANYBODY).await.unwrap();
    assert_eq!(onboarded.granted, b"1536Mi");
    let id = onboarded.id.expose();
    let refusal = world.provider.storage_config(id, ANYBODY).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Unavailable);
    assert_eq!(world.provider.reconcile(onboarded.consumer).await.unwrap(), Reconciled::Ready { steps: 3 });
    assert_eq!(world.provider.reconcile(onboarded.consumer).await.unwrap(), Reconciled::Ready { steps: 0 });
    let details = world.provider.storage_config(id, ANYBODY).await.unwrap();
    let Details::Document(details) = details else { panic!("the design's clients read one document") };
    assert!(details.starts_with(br#"[{"name":"fake","kind":"Secret""#));
    assert!(world.backend.connect(onboarded.consumer, "1"));

    let message = [&[0x0a, 3][..], b"3Gi"].concat();
    assert_eq!(world.provider.update_capacity(id, &message, ANYBODY).await.unwrap(), message);
    assert_eq!(world.provider.usage(onboarded.consumer).await.unwrap().limit, 3 << 30);
    world.backend.set_used(onboarded.consumer, 2 << 30);
    let refusal = world.provider.update_capacity(id, b"1Gi", ANYBODY).await.unwrap_err();
    assert_eq!(refusal, Refusal::BelowUse { requested: 1 << 30, used: 2 << 30 });
    assert_eq!(world.provider.update_capacity(id, b"2Gi", ANYBODY).await.unwrap(), b"2Gi");
    assert_eq!(world.granted().await, 2 << 30);

    world.provider.offboard(id, ANYBODY).await.unwrap();
    world.provider.offboard(id, ANYBODY).await.unwrap();
    assert_eq!(world.provider.storage_config(id, ANYBODY).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(world.provider.reconcile(onboarded.consumer).await.unwrap(), Reconciled::Gone { steps: 3 });
    assert_eq!(world.backend.sessions(onboarded.consumer), 0);
    assert_eq!((world.granted().await, world.phase(onboarded.consumer).await), (0, None));
    assert_eq!(world.provider.offboard(id, ANYBODY).await.unwrap_err(), Refusal::UnknownConsumer);
    assert_eq!(
        world.provider.onboard(&ticket, b"1Gi", &[], ANYBODY).await.unwrap_err().code(),
        Code::InvalidArgument
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_calls_with_one_ticket_make_one_consumer() {
    let world = world(100 << 30);
    let ticket = world.ticket().await;
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let (provider, ticket) = (Arc::clone(&world.provider), ticket.clone());
            tokio::spawn(async move {
                provider.onboard(&ticket, b"10Gi", &[], ANYBODY).await.unwrap().id.expose().to_owned()
            })
        })
        .collect();
    let mut ids = Vec::new();
    for call in calls {
        ids.push(call.await.unwrap());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(world.provider.consumers().await.unwrap().len(), 1);
    assert_eq!(world.granted().await, 10 << 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_consumers_at_once_never_get_more_than_there_is() {
    let world = world(100);
    let mut calls = Vec::new();
    for _ in 0..30 {
        let (provider, ticket) = (Arc::clone(&world.provider), world.ticket().await);
        calls.push(tokio::spawn(async move { provider.onboard(&ticket, b"7", &[], ANYBODY).await }));
    }
    let mut refused = 0;
    for call in calls {
        refused += u32::from(call.await.unwrap().is_err_and(|refusal| refusal.code() == Code::Internal));
    }
    let grants: Vec<u64> = world.provider.consumers().await.unwrap().iter().map(|c| c.granted).collect();
    assert_eq!(grants.iter().sum::<u64>(), 100);
    assert_eq!((grants.len(), refused), (15, 15), "14 times 7 and the last 2");
    assert_eq!(world.granted().await, 100);
}

#[tokio::test]
async fn failure_shows_its_cause_and_recovery_makes_ready() {
    let world = world(1 << 30);
    let onboarded = world.provider.onboard(&world.ticket().await, b"1Mi", &[], ANYBODY).await.unwrap();
    for broken in 0..3 {
        world.backend.set_fault(Some(Fault::DownFrom(broken)));
        let result = world.provider.reconcile(onboarded.consumer).await.unwrap();
        assert!(
            matches!(&result, Reconciled::Failed { reason } if reason.contains("injected")),
            "{result:?}"
        );
        let refusal = world.provider.storage_config(onboarded.id.expose(), ANYBODY).await.unwrap_err();
        assert_eq!(refusal.code(), Code::Internal);
        assert!(refusal.message().contains("injected"));
        world.backend.set_fault(None);
        world.backend.lose_storage(onboarded.consumer);
    }
    assert!(matches!(world.provider.reconcile(onboarded.consumer).await.unwrap(), Reconciled::Ready { .. }));
    assert_eq!(world.phase(onboarded.consumer).await, Some(Phase::Ready));
}

/// Every point at which a provider can die: before step n, after step n with its effect, and before or after the
/// phase is written. A new process over the same records and storage must end in the same place.
#[tokio::test]
async fn killed_at_any_point_a_new_process_finishes_the_work() {
    for leaving in [false, true] {
        for fault in (0..4).flat_map(|n| [Fault::DownFrom(n), Fault::LostAnswer(n)]) {
            for lost_write in [0, 1] {
                let world = world(1 << 30);
                let onboarded =
                    world.provider.onboard(&world.ticket().await, b"1Mi", &[], ANYBODY).await.unwrap();
                let id = onboarded.consumer;
                if leaving {
                    world.provider.reconcile(id).await.unwrap();
                    world.provider.offboard(onboarded.id.expose(), ANYBODY).await.unwrap();
                }
                world.backend.set_fault(Some(fault));
                world.records.failing_commits.store(lost_write, Ordering::SeqCst);
                let _ = world.provider.reconcile(id).await;
                world.backend.set_fault(None);
                let next = started(
                    Arc::new(world.records.snapshot()),
                    Arc::clone(&world.backend),
                    Arc::clone(&world.network),
                );
                next.provider.reconcile_all().await.unwrap();
                let expected = if leaving { None } else { Some(Phase::Ready) };
                assert_eq!(
                    next.phase(id).await,
                    expected,
                    "{fault:?}, leaving {leaving}, lost writes {lost_write}"
                );
                let observed = next.backend.observe(id).await.unwrap();
                assert_eq!(observed == Observed::default(), leaving);
                assert_eq!(next.granted().await, if leaving { 0 } else { 1 << 20 });
                assert!(next.provider.orphans().await.unwrap().is_empty());
            }
        }
    }
}

#[tokio::test]
async fn a_call_whose_write_fails_promises_nothing() {
    let world = world(100);
    let ticket = world.ticket().await;
    world.records.failing_commits.store(1, Ordering::SeqCst);
    assert_eq!(world.provider.onboard(&ticket, b"7", &[], ANYBODY).await.unwrap_err().code(), Code::Internal);
    assert_eq!((world.granted().await, world.provider.consumers().await.unwrap().len()), (0, 0));
    let (sealed, id) = world.consumer("50").await;
    world.backend.set_used(id, 10);
    // The shrink reached the backend, its record did not: the reconciler restores what the record says.
    world.records.failing_commits.store(1, Ordering::SeqCst);
    assert_eq!(
        world.provider.update_capacity(&sealed, b"20", ANYBODY).await.unwrap_err().code(),
        Code::Internal
    );
    assert_eq!(world.provider.usage(id).await.unwrap().limit, 20);
    world.provider.reconcile(id).await.unwrap();
    assert_eq!(world.provider.usage(id).await.unwrap().limit, 50);
    assert_eq!(world.granted().await, 50);
}

#[tokio::test]
async fn storage_deleted_by_hand_is_failed_and_never_made_again() {
    let world = world(1 << 30);
    let (sealed, id) = world.consumer("1Mi").await;
    world.backend.connect(id, "1");
    world.backend.lose_storage(id);
    world.backend.set_fault(None);
    for _ in 0..2 {
        world.provider.reconcile_all().await.unwrap();
        let Some(Phase::Failed { reason }) = world.phase(id).await else { panic!("it is Failed") };
        assert!(reason.contains("recreate --data-is-lost"), "{reason}");
    }
    assert!(world.backend.calls().iter().all(|call| *call == "withhold"), "{:?}", world.backend.calls());
    assert_eq!(world.backend.sessions(id), 0);
    assert_eq!(world.provider.storage_config(&sealed, ANYBODY).await.unwrap_err().code(), Code::Internal);
    // Nothing can be adopted; given up, it is made anew, with other credentials and another mark.
    assert_eq!(world.provider.adopt(id).await, Err(Refusal::NothingToAdopt));
    world.provider.recreate(id).await.unwrap();
    world.provider.reconcile_all().await.unwrap();
    assert_eq!(world.phase(id).await, Some(Phase::Ready));
    assert!(!world.backend.connect(id, "1"), "the old credential opens no empty disk");
    assert!(matches!(world.provider.recreate(id).await, Err(Refusal::DataIsWhole { .. })));
    assert!(matches!(world.provider.adopt(id).await, Err(Refusal::DataIsWhole { .. })));
}

#[tokio::test]
async fn other_storage_in_its_place_is_failed_until_it_is_adopted_or_put_back() {
    let world = world(1 << 30);
    let (_, id) = world.consumer("1Mi").await;
    let own = world.backend.mark(id).unwrap();
    let other = Mark { volume: VolumeId(uuid::Uuid::from_u128(77)), ..own };
    for foreign in [None, Some(other)] {
        world.backend.replace_storage(id, foreign);
        world.provider.reconcile_all().await.unwrap();
        assert!(matches!(world.phase(id).await, Some(Phase::Failed { .. })), "{foreign:?}");
        assert_eq!(world.backend.mark(id), foreign, "it is left alone");
        world.backend.replace_storage(id, Some(own));
        world.provider.reconcile_all().await.unwrap();
        assert_eq!(world.phase(id).await, Some(Phase::Ready), "{foreign:?}: put back");
    }
    world.backend.replace_storage(id, Some(other));
    world.provider.reconcile_all().await.unwrap();
    world.provider.adopt(id).await.unwrap();
    world.provider.reconcile_all().await.unwrap();
    assert_eq!(world.phase(id).await, Some(Phase::Ready));
    let Data::Made(made) = world.provider.consumer(id).await.unwrap().unwrap().data else { panic!("made") };
    assert!(made["data"].generation > own.generation);
}

#[tokio::test]
async fn the_record_says_what_was_made_before_it_says_ready() {
    let world = world(1 << 30);
    let onboarded = world.provider.onboard(&world.ticket().await, b"1Mi", &[], ANYBODY).await.unwrap();
    let data = || async { world.provider.consumer(onboarded.consumer).await.unwrap().unwrap().data };
    assert_eq!(data().await, Data::Nothing);
    world.provider.reconcile(onboarded.consumer).await.unwrap();
    let mark = world.backend.mark(onboarded.consumer).unwrap();
    assert_eq!(data().await, Data::Made([("data".to_owned(), mark)].into()));
}

#[tokio::test]
async fn who_was_put_off_by_mistake_is_taken_back_with_its_data() {
    let world = world(1 << 30);
    let (sealed, id) = world.consumer("1Mi").await;
    let mark = world.backend.mark(id);
    world.provider.put_off(id, false).await.unwrap();
    assert_eq!(world.provider.reconcile(id).await.unwrap(), Reconciled::Kept { steps: 1 });
    assert!(!world.backend.connect(id, "1"), "nobody reaches it");
    assert_eq!(world.provider.storage_config(&sealed, ANYBODY).await.unwrap_err(), Refusal::UnknownConsumer);
    assert_eq!(world.granted().await, 1 << 20, "what is kept is not granted to others");
    world.provider.keep(id).await.unwrap();
    world.provider.reconcile(id).await.unwrap();
    assert_eq!((world.phase(id).await, world.backend.mark(id)), (Some(Phase::Ready), mark));
    world.provider.storage_config(&sealed, ANYBODY).await.unwrap();

    world.provider.put_off(id, false).await.unwrap();
    world.provider.reconcile(id).await.unwrap();
    world.now.fetch_add(1000, Ordering::SeqCst);
    assert!(matches!(world.provider.keep(id).await, Err(Refusal::NotKept { .. })));
    world.provider.reconcile_all().await.unwrap();
    assert_eq!((world.phase(id).await, world.granted().await), (None, 0));
    // Now means now.
    let (_, id) = world.consumer("1Mi").await;
    world.provider.put_off(id, false).await.unwrap();
    world.provider.put_off(id, true).await.unwrap();
    assert!(matches!(world.provider.reconcile(id).await.unwrap(), Reconciled::Gone { .. }));
}

#[tokio::test]
async fn a_clock_that_jumps_back_takes_nothing_from_anybody() {
    let world = world(1 << 30);
    let ticket = world.ticket().await;
    let (sealed, id) = world.consumer("1Mi").await;
    let (_, left) = world.consumer("1Mi").await;
    world.provider.put_off(left, false).await.unwrap();
    world.provider.reconcile_all().await.unwrap();
    world.now.fetch_sub(900_000, Ordering::SeqCst);
    world.provider.reconcile_all().await.unwrap();
    assert_eq!(world.phase(id).await, Some(Phase::Ready));
    world.provider.storage_config(&sealed, ANYBODY).await.unwrap();
    world.provider.update_capacity(&sealed, b"2Mi", ANYBODY).await.unwrap();
    world.provider.onboard(&ticket, b"1Mi", &[], ANYBODY).await.unwrap();
    world.provider.keep(left).await.unwrap();
    world.provider.reconcile(left).await.unwrap();
    assert_eq!(world.phase(left).await, Some(Phase::Ready), "what is kept is kept longer, not less");
    // Put right again, it is as if nothing had been.
    world.now.fetch_add(900_000, Ordering::SeqCst);
    world.provider.reconcile_all().await.unwrap();
    for id in [id, left] {
        assert_eq!(world.phase(id).await, Some(Phase::Ready));
    }
}

#[tokio::test]
async fn consumers_from_before_marks_are_adopted_once() {
    let world = world(1 << 30);
    let (_, id) = world.consumer("1Mi").await;
    let (_, gone) = world.consumer("1Mi").await;
    for id in [id, gone] {
        let mut stored = world.records.consumer(id).await.unwrap().unwrap();
        stored.value.data = Data::Unmarked;
        let change = Change::PutConsumer { expected: stored.version, value: stored.value };
        world.records.commit(vec![change]).await.unwrap();
    }
    world.backend.replace_storage(id, None);
    world.backend.lose_storage(gone);
    world.backend.set_fault(None);
    world.provider.reconcile_all().await.unwrap();
    assert_eq!(world.phase(id).await, Some(Phase::Ready));
    assert!(world.backend.mark(id).is_some());
    assert!(matches!(world.phase(gone).await, Some(Phase::Failed { .. })), "nothing of it is there");
    world.backend.set_fault(None);
    world.provider.reconcile_all().await.unwrap();
    assert!(!world.backend.calls().contains(&"adopt_storage"), "once");
}

#[tokio::test]
async fn storage_without_a_record_is_reported_and_left_alone() {
    let world = world(1 << 30);
    let stray = ConsumerId::new(uuid::Uuid::from_u128(99));
    world.backend.ensure_storage(stray, 1, false).await.unwrap();
    world.provider.reconcile_all().await.unwrap();
    assert_eq!(world.provider.orphans().await.unwrap(), [stray]);
    assert!(world.backend.observe(stray).await.unwrap().storage.is_some());
}

#[tokio::test]
async fn forged_ids_and_bad_capacities_are_invalid_arguments() {
    let world = world(1 << 30);
    let (sealed, id) = world.consumer("1Mi").await;
    for bad in ["", "nonsense", &id.to_string(), &sealed[1..]] {
        for refusal in [
            world.provider.storage_config(bad, ANYBODY).await.unwrap_err(),
            world.provider.update_capacity(bad, b"1Mi", ANYBODY).await.unwrap_err(),
            world.provider.offboard(bad, ANYBODY).await.unwrap_err(),
        ] {
            assert_eq!(refusal.code(), Code::InvalidArgument, "{bad}: {refusal}");
        }
    }
    let ticket = world.ticket().await;
    for bad in ["", "abc", "1i", " 1", "0", "-1Gi"] {
        let refusal = world.provider.onboard(&ticket, bad.as_bytes(), &[], ANYBODY).await.unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{bad}");
        assert_eq!(
            world.provider.update_capacity(&sealed, bad.as_bytes(), ANYBODY).await.unwrap_err().code(),
            Code::InvalidArgument
        );
    }
}

#[tokio::test]
async fn tickets_are_listed_revoked_and_forgotten() {
    let world = world(1 << 30);
    let kept =
        world.provider.create_ticket(100, None, Sources::default(), Rates::default(), false).await.unwrap();
    let dropped =
        world.provider.create_ticket(100, None, Sources::default(), Rates::default(), false).await.unwrap();
    assert!(world.provider.revoke_ticket(&dropped.record.id).await.unwrap());
    assert!(!world.provider.revoke_ticket("nobody").await.unwrap());
    let refusal = world.provider.onboard(dropped.text.expose(), b"1", &[], ANYBODY).await.unwrap_err();
    assert_eq!(refusal.code(), Code::InvalidArgument);
    world.provider.onboard(kept.text.expose(), b"1", &[], ANYBODY).await.unwrap();
    let status = |now| {
        let world = &world;
        async move {
            let mut all: Vec<_> =
                world.provider.tickets().await.unwrap().iter().map(|t| t.status_at(now)).collect();
            all.sort_by_key(|status| *status as u8);
            all
        }
    };
    assert_eq!(status(1_000_000).await, [TicketStatus::Used, TicketStatus::Revoked]);
    world.now.store(2_000_000, Ordering::SeqCst);
    assert_eq!(world.provider.forget_expired_tickets().await.unwrap(), 1);
    assert_eq!(status(2_000_000).await, [TicketStatus::Used]);
}

#[tokio::test(start_paused = true)]
async fn the_loop_retries_until_the_backend_is_back() {
    let world = world(1 << 30);
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&world.provider).run(stop.clone()));
    world.backend.set_fault(Some(Fault::DownFrom(0)));
    let onboarded = world.provider.onboard(&world.ticket().await, b"1Mi", &[], ANYBODY).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(matches!(world.phase(onboarded.consumer).await, Some(Phase::Failed { .. })));
    world.backend.set_fault(None);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(world.phase(onboarded.consumer).await, Some(Phase::Ready));
    stop.cancel();
    running.await.unwrap();
}

fn sources(texts: &[&str]) -> Sources {
    Sources::parse(texts).unwrap()
}

#[tokio::test]
async fn the_network_opens_with_the_grant_and_closes_after_it() {
    let world = world(1 << 30);
    let ticket = world
        .provider
        .create_ticket(100, None, sources(&["10.1.0.0/16"]), Rates::default(), false)
        .await
        .unwrap();
    let onboard = |said: &'static str| {
        let (provider, text) = (Arc::clone(&world.provider), ticket.text.expose().to_owned());
        async move { provider.onboard(&text, b"1Mi", &[said.to_owned()], ANYBODY).await }
    };
    assert_eq!(onboard("10.0.0.0/8").await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(onboard("nonsense").await.unwrap_err().code(), Code::InvalidArgument);
    let onboarded = onboard("10.1.7.7").await.unwrap();
    let id = onboarded.consumer;
    assert_eq!(world.provider.reconcile(id).await.unwrap(), Reconciled::Ready { steps: 4 });
    assert_eq!(world.network.open_for(id), sources(&["10.1.7.7"]));
    // The same ticket again changes nothing, whatever it says now.
    assert_eq!(onboard("10.1.9.9").await.unwrap().consumer, id);
    assert_eq!(world.provider.reconcile(id).await.unwrap(), Reconciled::Ready { steps: 0 });

    // Closed by hand, it is opened again; an administrator may say otherwise.
    world.network.lose(id);
    world.provider.reconcile_all().await.unwrap();
    assert_eq!(world.network.open_for(id), sources(&["10.1.7.7"]));
    world.provider.permit(id, &sources(&["192.0.2.0/24"])).await.unwrap();
    world.provider.reconcile(id).await.unwrap();
    assert_eq!(world.network.open_for(id), sources(&["192.0.2.0/24"]));

    world.provider.offboard(onboarded.id.expose(), ANYBODY).await.unwrap();
    assert_eq!(world.provider.reconcile(id).await.unwrap(), Reconciled::Gone { steps: 4 });
    assert!(world.network.open_for(id).is_empty());
    assert!(world.provider.permit(id, &sources(&["192.0.2.1"])).await.is_err());
}

#[tokio::test]
async fn a_network_that_does_not_follow_shows_and_is_tried_again() {
    for fault in [NetworkFault::Down, NetworkFault::LostAnswer] {
        let world = world(1 << 30);
        let ticket = world
            .provider
            .create_ticket(100, None, sources(&["10.1.0.0/16"]), Rates::default(), false)
            .await
            .unwrap();
        *world.network.fault.lock() = fault;
        let onboarded = world.provider.onboard(ticket.text.expose(), b"1Mi", &[], ANYBODY).await.unwrap();
        let id = onboarded.consumer;
        assert!(matches!(world.provider.reconcile(id).await.unwrap(), Reconciled::Failed { .. }));
        let refusal = world.provider.storage_config(onboarded.id.expose(), ANYBODY).await.unwrap_err();
        assert!(refusal.message().contains("permitting 10.1.0.0/16: injected"), "{}", refusal.message());
        *world.network.fault.lock() = NetworkFault::None;
        assert!(matches!(world.provider.reconcile(id).await.unwrap(), Reconciled::Ready { .. }));

        // On the way out: access is gone at once, the data and the record stay until the network is closed.
        *world.network.fault.lock() = NetworkFault::Down;
        world.provider.offboard(onboarded.id.expose(), ANYBODY).await.unwrap();
        assert!(matches!(world.provider.reconcile(id).await.unwrap(), Reconciled::Failed { .. }));
        assert!(matches!(world.phase(id).await, Some(Phase::Deleting { reason: Some(_) })));
        assert!(!world.backend.observe(id).await.unwrap().credentials);
        *world.network.fault.lock() = NetworkFault::None;
        assert!(matches!(world.provider.reconcile(id).await.unwrap(), Reconciled::Gone { .. }));
        assert!(world.network.open_for(id).is_empty());
    }
}

#[tokio::test]
async fn a_resync_does_nothing_where_nothing_is_to_do() {
    let world = world(1 << 30);
    let (_, kept) = world.consumer("1Mi").await;
    let (_, broken) = world.consumer("1Mi").await;
    world.backend.forget_quota(broken);
    world.backend.set_fault(None);
    world.provider.reconcile_all().await.unwrap();
    assert_eq!(world.backend.calls(), ["keep_storage", "set_quota"]);
    for id in [kept, broken] {
        assert_eq!(world.phase(id).await, Some(Phase::Ready));
    }
}

struct FakeSubject(FakeBackend);

#[async_trait]
impl Subject for FakeSubject {
    type Backend = FakeBackend;

    fn backend(&self) -> &FakeBackend {
        &self.0
    }

    async fn store(&self, consumer: ConsumerId, details: &[ConnectionItem], bytes: u64) -> bool {
        let connected = self.0.connect(consumer, &details[0].data["secret"]);
        if connected {
            self.0.set_used(consumer, bytes);
        }
        connected
    }
}

#[tokio::test]
async fn the_fake_conforms() {
    conforms(&FakeSubject(FakeBackend::new(1 << 30))).await;
}

fn client(id: &str) -> Client {
    Client {
        name: "shop".into(),
        id: id.into(),
        operator_namespace: "storage-client".into(),
        ..Client::default()
    }
}

#[tokio::test]
async fn a_later_client_is_given_its_state_and_told_when_it_changes() {
    let world = world(100 << 30);
    let provider = &world.provider;
    let ticket = provider
        .create_ticket(100, Some(3 << 30), Sources::default(), Rates::default(), false)
        .await
        .unwrap()
        .text
        .expose()
        .to_owned();
    let onboard = |third: &'static str, id: &'static str| {
        let (provider, ticket) = (Arc::clone(provider), ticket.clone());
        async move { provider.onboard_client(&ticket, third, client(id), &[], ANYBODY).await }
    };
    let onboarded = onboard("4.19.0", "u").await.unwrap();
    assert_eq!(onboarded.granted, b"3Gi");
    let id = onboarded.id.expose();
    // Nothing to be had yet: that is the hash of nothing.
    let early = provider.report_status(id, client("u"), 0.0, ANYBODY).await.unwrap();
    assert_eq!((early.hash.as_str(), early.channel.as_str(), early.changed), ("", "stable-4.19", false));
    assert_eq!(provider.desired_state(id, ANYBODY).await.err(), Some(Refusal::Configuring));
    provider.reconcile(onboarded.consumer).await.unwrap();

    let state = provider.desired_state(id, ANYBODY).await.unwrap();
    assert_eq!(state.objects.len(), 1);
    let newer = Client { operator_version: "4.20.1".into(), ..client("") };
    let reported = provider.report_status(id, newer.clone(), 0.5, ANYBODY).await.unwrap();
    assert_eq!((&reported.hash, reported.changed), (&state.hash, true));
    assert_eq!(reported.channel, "stable-4.20");
    assert!(!provider.report_status(id, newer, f64::NAN, ANYBODY).await.unwrap().changed);
    assert_eq!(provider.report_of(onboarded.consumer).unwrap().used, None);
    let Ok(Details::Items(items)) = provider.claim(id, false, ANYBODY).await else { panic!("block storage") };
    assert_eq!(items[0].name, "fake");
    assert_eq!(provider.claim(id, true, ANYBODY).await.err(), Some(Refusal::NoFileSystems));

    // Again with the same ticket: the same client is the same consumer, another one is nobody.
    assert_eq!(onboard("4.20.1", "u").await.unwrap().consumer, onboarded.consumer);
    assert_eq!(onboard("4.20.1", "v").await.err(), Some(Refusal::OtherClient));
    for (third, id) in [("new", "u"), ("-1Gi", "u"), ("4.20.1", "a\nb")] {
        assert_eq!(onboard(third, id).await.unwrap_err().code(), Code::InvalidArgument, "{third}");
    }
    provider.offboard(id, ANYBODY).await.unwrap();
    assert_eq!(
        provider.report_status(id, client("u"), 0.0, ANYBODY).await.err(),
        Some(Refusal::UnknownConsumer)
    );
    provider.reconcile(onboarded.consumer).await.unwrap();
    assert_eq!(provider.report_of(onboarded.consumer), None);
}

#[tokio::test]
async fn a_client_that_has_not_said_where_its_operator_runs_is_told_so() {
    let world = world(100 << 30);
    let nowhere = Client { name: "storageconsumer-1".into(), ..Client::default() };
    let onboarded =
        world.provider.onboard_client(&world.ticket().await, "1Gi", nowhere, &[], ANYBODY).await.unwrap();
    assert_eq!(onboarded.granted, b"1Gi");
    world.provider.reconcile(onboarded.consumer).await.unwrap();
    let id = onboarded.id.expose();
    let refusal = world.provider.desired_state(id, ANYBODY).await.err().unwrap();
    assert_eq!(refusal.code(), Code::FailedPrecondition);
    let reported = world.provider.report_status(id, client("u"), 0.0, ANYBODY).await.unwrap();
    assert_eq!(reported.hash, world.provider.desired_state(id, ANYBODY).await.unwrap().hash);
}
