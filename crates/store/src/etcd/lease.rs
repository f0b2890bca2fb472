//! Leases: granted, kept and ended by etcd.

use std::time::Duration;

use super::{
    client::{Client, Failure},
    keys::signed,
    pb::etcdserverpb::{LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest},
};
use crate::api::{Lease, LeaseError, LeaseId, Outcome, check_ttl};

pub(super) async fn grant(client: &Client, ttl: Duration) -> Result<Lease, LeaseError> {
    let request = LeaseGrantRequest { ttl: signed(check_ttl(ttl)?.as_secs()), id: 0 };
    // Repeating is safe: a lease nobody knows of ends by itself.
    let granted = client.read(|mut member| async move { member.lease.lease_grant(request).await }).await;
    let granted = granted.map_err(|failure| write_error(client, failure))?;
    Ok(Lease { id: LeaseId(granted.id.cast_unsigned()), ttl: seconds(granted.ttl) })
}

pub(super) async fn keep_alive(client: &Client, lease: LeaseId) -> Result<Lease, LeaseError> {
    let request = LeaseKeepAliveRequest { id: lease.0.cast_signed() };
    let kept = client.read(|mut member| async move {
        let once = tokio_stream::once(request);
        let mut answers = member.lease.lease_keep_alive(once).await?.into_inner();
        let answer = answers.message().await?;
        answer.map(tonic::Response::new).ok_or_else(|| tonic::Status::unavailable("the stream ended"))
    });
    let kept = kept.await.map_err(|failure| write_error(client, failure))?;
    if kept.ttl <= 0 {
        return Err(LeaseError::NotFound { lease });
    }
    Ok(Lease { id: lease, ttl: seconds(kept.ttl) })
}

pub(super) async fn revoke(client: &Client, lease: LeaseId) -> Result<(), LeaseError> {
    let request = LeaseRevokeRequest { id: lease.0.cast_signed() };
    let revoked = client.write(|mut member| async move { member.lease.lease_revoke(request).await }).await;
    match revoked {
        Ok(_) => Ok(()),
        Err(failure) if failure.is_lease_not_found() => Err(LeaseError::NotFound { lease }),
        Err(failure) => Err(write_error(client, failure)),
    }
}

fn write_error(client: &Client, failure: Failure) -> LeaseError {
    LeaseError::Write(client.write_error(failure, Outcome::Unknown))
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}
