//! The tags of hosts, made to follow their records.
//!
//! A host's own tag is a group of its addresses, always. Of the tags it joined with it is made a member once: whoever takes it out of
//! one later meant it. What is so already is no change, so any controller may do this, and all of them do.

use std::{collections::BTreeSet, time::Duration};

use ::tags::{Request, RequestError, TagView};
use model::{Address, Member, TagName};
use store::TransactError;
use tracing::warn;

use super::{HostRecord, Hosts, HostsError, plan};
use crate::tags::TagError;

/// Pause before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(10);

impl Hosts {
    /// Keeps the tags of all hosts, for ever.
    pub(super) async fn keep_tags(&self) {
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            let mut is_done = true;
            for (_, record) in self.mirror.list() {
                if let Err(err) = self.keep(&record).await {
                    is_done = false;
                    let error = common::chain(&err);
                    warn!(host = %record.host.name, error, "the tags of a host do not follow it yet");
                }
            }
            let changed = async {
                // The sender lives in self, so the wait cannot fail.
                let _ = changes.changed().await;
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(PAUSE), if !is_done => {}
            }
        }
    }

    async fn keep(&self, record: &HostRecord) -> Result<(), HostsError> {
        if record.leaving {
            return self.finish_removal(record).await;
        }
        self.keep_tag(record).await?;
        if record.tagged { Ok(()) } else { self.join_tags(record).await }
    }

    /// Makes the host's own tag hold its addresses and nothing else.
    pub(super) async fn keep_tag(&self, record: &HostRecord) -> Result<(), HostsError> {
        let _turn = self.keeping.lock().await;
        // Removed meanwhile: then the tag goes with the record.
        let Some(record) = self.get(&record.host.name) else { return Ok(()) };
        let record = &*record;
        let tag = record.host.tag();
        let wanted: BTreeSet<Member> =
            record.host.addresses.iter().map(|address| Member::Literal(Address::from(*address))).collect();
        let has = self.members(&tag).map_err(|err| failed(record, err))?;
        if has.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let stale: BTreeSet<Member> =
            has.into_iter().flatten().filter(|member| !wanted.contains(member)).collect();
        // First what is new: a host that moves is never without an address in its tag.
        self.ask(record, Request::SetGroup { tag: tag.clone(), members: wanted }).await?;
        if stale.is_empty() {
            return Ok(());
        }
        match self.tags.request_as_owner(Request::DeleteMembers { tag, members: stale }).await {
            // Another controller was first.
            Ok(_) | Err(TagError::Refused(RequestError::NotAMember { .. })) => Ok(()),
            Err(err) => Err(failed(record, err)),
        }
    }

    /// Makes the host a member of the tags it joined with, and notes that it is.
    pub async fn join_tags(&self, record: &HostRecord) -> Result<(), HostsError> {
        self.keep_tag(record).await?;
        let own = BTreeSet::from([Member::Tag(record.host.tag())]);
        for tag in &record.host.tags {
            self.ask(record, Request::SetGroup { tag: tag.clone(), members: own.clone() }).await?;
        }
        loop {
            match self.newest(&record.host.name).await? {
                Some((found, at))
                    if !found.leaving && !found.tagged && found.host.joined == record.host.joined =>
                {
                    match self.commit(plan::replace(&HostRecord { tagged: true, ..found }, at)).await {
                        Ok(_) => return Ok(()),
                        Err(TransactError::Conflict { .. }) => {}
                        Err(err) => return Err(HostsError::Write(err)),
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Deletes the tag of a host that was removed, and then its record.
    pub async fn finish_removal(&self, record: &HostRecord) -> Result<(), HostsError> {
        let _turn = self.keeping.lock().await;
        // What was read before may be old: a host that has joined anew keeps its tag.
        let name = &record.host.name;
        let Some((_, at)) = self.newest(name).await?.filter(|(found, _)| found.leaving) else {
            return Ok(());
        };
        match self.tags.request_as_owner(Request::DeleteTag { tag: record.host.tag() }).await {
            Ok(_) | Err(TagError::Refused(RequestError::NotFound(_))) => {}
            Err(err) => return Err(failed(record, err)),
        }
        match self.commit(plan::forget(name, at)).await {
            // Another controller was first.
            Ok(_) | Err(TransactError::Conflict { .. }) => Ok(()),
            Err(err) => Err(HostsError::Write(err)),
        }
    }

    async fn ask(&self, record: &HostRecord, request: Request) -> Result<(), HostsError> {
        self.tags.request_as_owner(request).await.map(drop).map_err(|err| failed(record, err))
    }

    /// What a group holds; none if there is no such tag. A leaf is refused when it is written.
    fn members(&self, tag: &TagName) -> Result<Option<BTreeSet<Member>>, TagError> {
        let snapshot = self.tags.snapshot()?;
        Ok(match snapshot.graph.get(tag) {
            Ok(TagView::Group(members)) => Some(members.iter().cloned().collect()),
            Ok(TagView::Leaf(_)) | Err(_) => None,
        })
    }
}

fn failed(record: &HostRecord, err: TagError) -> HostsError {
    HostsError::Tags { name: record.host.name.clone(), err }
}
