//! What every backend must do alike, checked from outside with the consumer's own means.

use async_trait::async_trait;
use storage_provider::{ConnectionItem, ConsumerId, Observed, connection_json};
use uuid::Builder;

use crate::backend::{Backend, BackendError};

/// A backend under test, and a consumer's way to use it.
#[async_trait]
pub trait Subject: Send + Sync {
    type Backend: Backend;

    fn backend(&self) -> &Self::Backend;

    /// Connects with these details and stores `bytes` bytes that were not stored before. `false` when refused.
    async fn store(&self, consumer: ConsumerId, details: &[ConnectionItem], bytes: u64) -> bool;
}

/// Small enough for any test cluster, large enough for any block size.
const GRANT: u64 = 16 << 20;
const STORED: u64 = 1 << 20;

/// Panics at the first difference.
pub async fn conforms(subject: &impl Subject) {
    let (a, b) = (fresh_id(), fresh_id());
    nothing_is_there_at_first(subject, a).await;
    making_storage_is_idempotent(subject, a).await;
    making_storage_is_idempotent(subject, b).await;
    let details = usage_is_seen_and_bounds_the_quota(subject, a).await;
    both_are_listed(subject, a, b).await;
    revoked_credentials_open_nothing(subject, a, &details).await;
    removal_leaves_nothing_and_harms_nobody_else(subject, a, b).await;
    the_place_can_be_used_again(subject, a, &details).await;
    for consumer in [a, b] {
        remove(subject.backend(), consumer).await;
    }
}

async fn nothing_is_there_at_first(subject: &impl Subject, id: ConsumerId) {
    let backend = subject.backend();
    assert_eq!(backend.observe(id).await, Ok(Observed::default()));
    assert!(
        backend.capacity().await.expect("capacity is known") > 2 * GRANT,
        "the suite needs room for two grants"
    );
    assert!(backend.usage(id).await.is_err(), "what is not there has no usage");
    assert!(backend.connection_details(id).await.is_err(), "what is not there cannot be connected to");
    for done in [backend.revoke(id).await, backend.trash(id).await, backend.purge(id).await] {
        assert_eq!(done, Ok(()), "removing nothing succeeds");
    }
    assert_eq!(backend.observe(id).await, Ok(Observed::default()));
}

async fn make(backend: &impl Backend, id: ConsumerId) {
    for _ in 0..2 {
        assert_eq!(backend.ensure_storage(id, GRANT, false).await, Ok(()));
        assert_eq!(backend.set_quota(id, GRANT).await, Ok(()));
        assert_eq!(backend.ensure_credentials(id).await, Ok(()));
    }
}

async fn making_storage_is_idempotent(subject: &impl Subject, id: ConsumerId) {
    let backend = subject.backend();
    make(backend, id).await;
    let observed = backend.observe(id).await.expect("it can be observed");
    let storage = observed.storage.expect("storage is seen");
    assert!(storage.in_shape && observed.credentials && !observed.trash, "{observed:?}");
    assert_eq!(storage.quota, Some(GRANT));
    let details = backend.connection_details(id).await.expect("details are there");
    assert_eq!(
        backend.connection_details(id).await.as_ref(),
        Ok(&details),
        "details do not change by asking"
    );
    assert!(connection_json(&details).starts_with(b"[{"));
}

async fn usage_is_seen_and_bounds_the_quota(subject: &impl Subject, id: ConsumerId) -> Vec<ConnectionItem> {
    let backend = subject.backend();
    let details = backend.connection_details(id).await.expect("details are there");
    assert!(subject.store(id, &details, STORED).await, "the consumer can store");
    let usage = backend.usage(id).await.expect("usage is known");
    assert!(usage.used >= STORED && usage.used < GRANT, "{usage:?}");
    assert_eq!(usage.limit, GRANT);
    match backend.set_quota(id, STORED / 2).await {
        Err(BackendError::BelowUse { bytes, used }) => assert!(bytes == STORED / 2 && used >= STORED),
        other => panic!("a quota below use must be refused, got {other:?}"),
    }
    assert_eq!(
        backend.usage(id).await.map(|usage| usage.limit),
        Ok(GRANT),
        "a refused quota changes nothing"
    );
    assert_eq!(backend.set_quota(id, GRANT * 2).await, Ok(()));
    assert_eq!(backend.set_quota(id, GRANT).await, Ok(()));
    details
}

async fn both_are_listed(subject: &impl Subject, a: ConsumerId, b: ConsumerId) {
    let all = subject.backend().observe_all().await.expect("all can be observed");
    for id in [a, b] {
        assert_eq!(all.get(&id).cloned(), subject.backend().observe(id).await.ok());
    }
    let usage = subject.backend().usage_all().await.expect("usage of all is known");
    for id in [a, b] {
        assert_eq!(usage.get(&id).cloned(), subject.backend().usage(id).await.ok());
    }
}

async fn revoked_credentials_open_nothing(
    subject: &impl Subject,
    id: ConsumerId,
    details: &[ConnectionItem],
) {
    for _ in 0..2 {
        assert_eq!(subject.backend().revoke(id).await, Ok(()));
    }
    assert!(!subject.store(id, details, 1).await, "revoked credentials must not open");
    let observed = subject.backend().observe(id).await.expect("it can be observed");
    assert!(observed.storage.is_some() && !observed.credentials, "revoking keeps the data: {observed:?}");
}

async fn remove(backend: &impl Backend, id: ConsumerId) {
    for _ in 0..2 {
        assert_eq!(backend.revoke(id).await, Ok(()));
        assert_eq!(backend.trash(id).await, Ok(()));
        assert_eq!(backend.purge(id).await, Ok(()));
    }
    assert_eq!(backend.observe(id).await, Ok(Observed::default()));
}

async fn removal_leaves_nothing_and_harms_nobody_else(subject: &impl Subject, a: ConsumerId, b: ConsumerId) {
    let backend = subject.backend();
    let before = backend.observe(b).await;
    remove(backend, a).await;
    assert!(!backend.observe_all().await.expect("all can be observed").contains_key(&a));
    assert_eq!(backend.observe(b).await, before);
    let details = backend.connection_details(b).await.expect("details are there");
    assert!(subject.store(b, &details, STORED).await, "the other consumer goes on");
}

async fn the_place_can_be_used_again(subject: &impl Subject, id: ConsumerId, old: &[ConnectionItem]) {
    let backend = subject.backend();
    make(backend, id).await;
    let used = backend.usage(id).await.expect("usage is known").used;
    assert!(used < STORED, "new storage is empty, not {used} bytes full");
    assert!(!subject.store(id, old, 1).await, "old credentials must not open new storage");
    let details = backend.connection_details(id).await.expect("details are there");
    assert!(subject.store(id, &details, STORED).await);
}

pub(crate) fn fresh_id() -> ConsumerId {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has randomness");
    ConsumerId::new(Builder::from_random_bytes(bytes).into_uuid())
}
