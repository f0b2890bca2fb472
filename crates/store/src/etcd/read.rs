//! Reads: one key, or a range in pages of one revision.

use std::{collections::VecDeque, sync::Arc};

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{StreamExt as _, stream};

use super::{
    Etcd,
    client::{Client, Failure},
    keys::{Namespace, revision as to_revision, signed},
    pb::{
        etcdserverpb::{RangeRequest, RangeResponse},
        mvccpb::KeyValue,
    },
};
use crate::api::{Entry, Listing, Prefix, ReadError, Revision, Snapshot};

/// Entries per page. etcd's values are at most 1.5 MiB by default, and small in practice.
const PAGE: i64 = 500;
/// A listing that a compaction overtakes begins anew, so often.
const TRIES: usize = 5;

impl Etcd {
    pub(super) async fn get_raw(&self, key: Bytes) -> Result<Option<KeyValue>, ReadError> {
        let request = RangeRequest { key, limit: 1, ..RangeRequest::default() };
        let response =
            range(&self.client, request).await.map_err(|failure| self.client.read_error(failure))?;
        Ok(response.kvs.into_iter().next())
    }
}

pub(super) async fn range(client: &Client, request: RangeRequest) -> Result<RangeResponse, Failure> {
    client
        .read(|mut member| {
            let request = request.clone();
            async move { member.kv.range(request).await }
        })
        .await
}

pub(super) async fn revision(client: &Client, namespace: &Namespace) -> Result<Revision, ReadError> {
    let request = RangeRequest { key: namespace.restore_marker(), limit: 1, ..RangeRequest::default() };
    let response = range(client, request).await.map_err(|failure| client.read_error(failure))?;
    Ok(header_revision(&response))
}

/// Whether the namespace holds any key.
pub(super) async fn any(client: &Client, namespace: &Namespace) -> Result<bool, ReadError> {
    let (key, range_end) = namespace.range(&Prefix::all());
    let request = RangeRequest { key, range_end, limit: 1, keys_only: true, ..RangeRequest::default() };
    let response = range(client, request).await.map_err(|failure| client.read_error(failure))?;
    Ok(!response.kvs.is_empty())
}

fn header_revision(response: &RangeResponse) -> Revision {
    to_revision(response.header.as_ref().map_or(0, |header| header.revision))
}

pub(super) async fn list(
    client: &Client,
    namespace: &Namespace,
    prefix: &Prefix,
) -> Result<Listing, ReadError> {
    let mut overtaken = None;
    for _ in 0..TRIES {
        match list_once(client, namespace, prefix).await {
            Err(failure) if failure.is_compacted() => overtaken = Some(failure),
            Err(failure) => return Err(client.read_error(failure)),
            Ok((entries, revision)) => {
                let entries = entries.into_iter().filter_map(|kv| parse(namespace, kv)).collect();
                return Ok(Listing { entries, revision });
            }
        }
    }
    Err(client.read_error(overtaken.unwrap_or(Failure::Timeout(std::time::Duration::ZERO))))
}

async fn list_once(
    client: &Client,
    namespace: &Namespace,
    prefix: &Prefix,
) -> Result<(Vec<KeyValue>, Revision), Failure> {
    let mut pages = Pages::new(namespace, prefix);
    let mut entries = pages.next(client).await?.unwrap_or_default();
    while let Some(page) = pages.next(client).await? {
        entries.extend(page);
    }
    Ok((entries, pages.revision))
}

/// The first page is read at once: it fixes the revision.
pub(super) async fn snapshot(
    client: &Arc<Client>,
    namespace: &Namespace,
    prefix: &Prefix,
) -> Result<Snapshot, ReadError> {
    let mut pages = Pages::new(namespace, prefix);
    let first = pages.next(client).await.map_err(|failure| client.read_error(failure))?;
    let revision = pages.revision;
    let (client, namespace) = (Arc::clone(client), namespace.clone());
    let ready: VecDeque<_> = first.into_iter().collect();
    let pages = stream::unfold(Some((pages, ready)), move |state| {
        let (client, namespace) = (Arc::clone(&client), namespace.clone());
        async move {
            let (mut pages, mut ready) = state?;
            let page = match ready.pop_front() {
                Some(page) => page,
                None => match pages.next(&client).await {
                    Ok(page) => page?,
                    Err(failure) => return Some((Err(client.read_error(failure)), None)),
                },
            };
            let entries = page.into_iter().filter_map(|kv| parse(&namespace, kv)).collect();
            Some((Ok(entries), Some((pages, ready))))
        }
    });
    Ok(Snapshot { revision, pages: pages.boxed() })
}

/// A foreign key in our namespace must not hide the others.
pub(super) fn parse(namespace: &Namespace, kv: KeyValue) -> Option<Entry> {
    match namespace.entry(kv) {
        Ok(entry) => Some(entry),
        Err(what) => {
            tracing::warn!(%what, "a key in etcd is not one of ours, skipped");
            None
        }
    }
}

/// A cursor over a range at one revision.
struct Pages {
    next: Option<Bytes>,
    end: Bytes,
    revision: Revision,
}

impl Pages {
    fn new(namespace: &Namespace, prefix: &Prefix) -> Self {
        let (begin, end) = namespace.range(prefix);
        Self { next: Some(begin), end, revision: Revision(0) }
    }

    async fn next(&mut self, client: &Client) -> Result<Option<Vec<KeyValue>>, Failure> {
        let Some(key) = self.next.take() else { return Ok(None) };
        let request = RangeRequest {
            key,
            range_end: self.end.clone(),
            limit: PAGE,
            // 0 is "now" for the first page, whose answer fixes it for the others.
            revision: signed(self.revision.0),
            ..RangeRequest::default()
        };
        let response = range(client, request).await?;
        if self.revision == Revision(0) {
            self.revision = header_revision(&response);
        }
        if response.more {
            self.next = response.kvs.last().map(|kv| successor(&kv.key));
        }
        Ok(Some(response.kvs))
    }
}

fn successor(key: &Bytes) -> Bytes {
    let mut next = BytesMut::with_capacity(key.len() + 1);
    next.put_slice(key);
    next.put_u8(0);
    next.freeze()
}
