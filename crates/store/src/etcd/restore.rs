//! Restoring a backup into a namespace of etcd, entry by entry while nobody else should use it.
//!
//! etcd cannot swap a whole namespace at once. A marker key is set first and removed last; while it is there,
//! [`super::Options::connect`] refuses the namespace, so a restore that was cut off is never taken for a store.

use std::path::Path;

use bytes::Bytes;

use super::{
    Etcd, Options,
    pb::etcdserverpb::{DeleteRangeRequest, PutRequest, RequestOp, TxnRequest, request_op::Request},
};
use crate::{
    api::{Outcome, Prefix, Revision, Transaction},
    backup::{BackupFile, RestoreError, Restored},
};

/// Restores a backup file. Without `replace`, a namespace that holds any key is refused.
pub async fn restore(options: Options, backup: &Path, replace: bool) -> Result<Restored, RestoreError> {
    let path = backup.to_owned();
    let verified = tokio::task::spawn_blocking(move || BackupFile::verify(path)).await;
    let backup = verified.map_err(|error| RestoreError::Target(error.into()))??;
    let etcd = Etcd::new(options).map_err(|error| RestoreError::Target(error.into()))?;
    let target = |error: crate::api::ReadError| RestoreError::Target(error.into());
    let half = etcd.get_raw(etcd.namespace.restore_marker()).await.map_err(target)?.is_some();
    let used = super::read::any(&etcd.client, &etcd.namespace).await.map_err(target)?;
    if (used || half) && !replace {
        return Err(RestoreError::NotEmpty {
            place: format!("{} in {}", etcd.options.namespace, etcd.client.place()),
        });
    }
    etcd.mark_restoring(backup.header.revision).await?;
    etcd.send(Transaction::new().delete_prefix(Prefix::all())).await?;
    let mut batch = Transaction::new();
    for entry in backup.entries()? {
        let entry = entry?;
        let next = batch.clone().put(entry.key.clone(), entry.value.clone());
        if super::transact::check_size(&next, &etcd.options).is_err() && !batch.operations.is_empty() {
            etcd.send(batch).await?;
            batch = Transaction::new().put(entry.key, entry.value);
        } else {
            batch = next;
        }
    }
    etcd.send(batch).await?;
    let revision = etcd.unmark_restoring().await?;
    Ok(Restored { entries: backup.trailer.entries, revision })
}

impl Etcd {
    async fn send(&self, transaction: Transaction) -> Result<(), RestoreError> {
        super::transact::check_size(&transaction, &self.options)
            .map_err(|error| RestoreError::Target(error.into()))?;
        // Repeating is safe here: only puts and deletes without compares, from one writer.
        let mut tries = 3;
        loop {
            match super::transact::transact(
                &self.client,
                &self.namespace,
                &transaction,
                self.options.max_operations,
            )
            .await
            {
                Ok(_) => return Ok(()),
                Err(error) if tries > 1 => {
                    tracing::warn!(%error, "restore repeats a batch");
                    tries -= 1;
                }
                Err(error) => return Err(RestoreError::Target(error.into())),
            }
        }
    }

    async fn mark_restoring(&self, revision: Revision) -> Result<(), RestoreError> {
        let value = Bytes::from(revision.to_string());
        let put = PutRequest { key: self.namespace.restore_marker(), value, lease: 0 };
        self.raw(Request::RequestPut(put)).await.map(drop)
    }

    async fn unmark_restoring(&self) -> Result<Revision, RestoreError> {
        let delete =
            DeleteRangeRequest { key: self.namespace.restore_marker(), ..DeleteRangeRequest::default() };
        self.raw(Request::RequestDeleteRange(delete)).await
    }

    async fn raw(&self, request: Request) -> Result<Revision, RestoreError> {
        let request =
            TxnRequest { success: vec![RequestOp { request: Some(request) }], ..TxnRequest::default() };
        let sent = self.client.read(|mut member| {
            let request = request.clone();
            async move { member.kv.txn(request).await }
        });
        let response = sent.await.map_err(|failure| {
            RestoreError::Target(self.client.write_error(failure, Outcome::Unknown).into())
        })?;
        Ok(super::keys::revision(response.header.map_or(0, |header| header.revision)))
    }
}
