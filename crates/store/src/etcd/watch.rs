//! One watch: the state in pages, then etcd's watch stream, resumed by itself after any disconnect.
//!
//! In: a prefix and where to begin. Out: events. Holds: the revision up to which all changes were received, the open
//! stream if there is one, and the events of one response.
//! Invariant: `at` moves only over whole revisions, so a resumed stream repeats nothing and skips nothing.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{
    client::{Client, Failure},
    keys::{Namespace, revision as to_revision, signed},
    pb::{
        etcdserverpb::{
            RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse, watch_request::RequestUnion,
        },
        mvccpb::{Event as PbEvent, event::EventType},
    },
    read::{self, parse},
};
use crate::api::{Entry, Event, Line, Prefix, ReadError, Revision, Snapshot, Watch, WatchError, WatchFrom};

/// etcd answers the creation of a watch at once.
const CREATION: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

struct Cursor {
    client: Arc<Client>,
    namespace: Namespace,
    prefix: Prefix,
    phase: Phase,
    at: Revision,
    events: VecDeque<Event>,
    /// The parts of a response that came in fragments, until the last of them is there.
    parts: Vec<PbEvent>,
    open: Option<Open>,
    backoff: common::Backoff,
    line: Line,
}

enum Phase {
    Begin(WatchFrom),
    Initial { snapshot: Snapshot, page: std::vec::IntoIter<Entry> },
    Live,
}

struct Open {
    responses: Streaming<WatchResponse>,
    member: usize,
    /// Keeps the request side of the stream open, and the watch with it.
    _requests: mpsc::Sender<WatchRequest>,
}

pub(super) fn watch(client: Arc<Client>, namespace: Namespace, prefix: Prefix, from: WatchFrom) -> Watch {
    let line = Line::default();
    let cursor = Cursor {
        client,
        namespace,
        prefix,
        phase: Phase::Begin(from),
        at: Revision(0),
        events: VecDeque::new(),
        parts: Vec::new(),
        open: None,
        backoff: common::Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        line: line.clone(),
    };
    Watch::on(
        line,
        stream::unfold(cursor, |mut cursor| async move {
            let event = cursor.next().await;
            Some((event, cursor))
        }),
    )
}

impl Cursor {
    async fn next(&mut self) -> Result<Event, WatchError> {
        loop {
            match &mut self.phase {
                Phase::Begin(WatchFrom::Start) => return self.begin_initial().await,
                Phase::Begin(WatchFrom::After(revision)) => {
                    self.at = *revision;
                    self.phase = Phase::Live;
                }
                Phase::Initial { snapshot, page } => {
                    if let Some(entry) = page.next() {
                        return Ok(Event::Apply(entry));
                    }
                    let revision = snapshot.revision;
                    match snapshot.pages.next().await {
                        Some(entries) => {
                            *page = entries.map_err(|error| initial_error(error, revision))?.into_iter()
                        }
                        None => {
                            self.phase = Phase::Live;
                            return Ok(Event::InitDone { revision });
                        }
                    }
                }
                Phase::Live => {
                    if let Some(event) = self.events.pop_front() {
                        return Ok(event);
                    }
                    self.receive().await?;
                }
            }
        }
    }

    async fn begin_initial(&mut self) -> Result<Event, WatchError> {
        let snapshot = loop {
            match read::snapshot(&self.client, &self.namespace, &self.prefix).await {
                Ok(snapshot) => break snapshot,
                Err(ReadError::Unavailable { .. }) => self.wait().await,
                Err(error) => return Err(WatchError::Read(error)),
            }
        };
        self.connected();
        let revision = snapshot.revision;
        self.at = revision;
        self.phase = Phase::Initial { snapshot, page: Vec::new().into_iter() };
        Ok(Event::Init { revision })
    }

    /// Takes in one response of the stream, opening it first if need be.
    async fn receive(&mut self) -> Result<(), WatchError> {
        let Some(open) = &mut self.open else { return self.open().await };
        match open.responses.message().await {
            Ok(Some(response)) => self.take_in(response),
            Ok(None) => {
                self.disconnected(&Failure::from(tonic::Status::unavailable("the stream ended"))).await;
                Ok(())
            }
            Err(status) => {
                let failure = Failure::from(status);
                if !failure.is_passing() {
                    return Err(WatchError::Read(self.client.read_error(failure)));
                }
                self.disconnected(&failure).await;
                Ok(())
            }
        }
    }

    async fn open(&mut self) -> Result<(), WatchError> {
        if let Err(failure) = self.check_position().await {
            if failure.is_compacted() {
                return Err(WatchError::Compacted { oldest: self.find_oldest().await });
            }
            if failure.is_future() {
                let current =
                    read::revision(&self.client, &self.namespace).await.map_err(WatchError::Read)?;
                // A read that overtook our knowledge: the position has become valid.
                if current >= self.at {
                    return Ok(());
                }
                return Err(WatchError::Future { asked: self.at, current });
            }
            if !failure.is_passing() {
                return Err(WatchError::Read(self.client.read_error(failure)));
            }
            self.disconnected(&failure).await;
            return Ok(());
        }
        match self.create(self.at.0 + 1).await {
            Ok(open) => {
                self.open = Some(open);
                self.connected();
            }
            Err(failure) => self.disconnected(&failure).await,
        }
        Ok(())
    }

    /// Whether everything after `at` is still there: a read at that revision fails if not. etcd would accept a watch
    /// from the compacted revision itself, where deletions may already be missing.
    async fn check_position(&mut self) -> Result<(), Failure> {
        let request = RangeRequest {
            key: self.namespace.restore_marker(),
            limit: 1,
            revision: signed(self.at.0.max(1)),
            ..RangeRequest::default()
        };
        read::range(&self.client, request).await.map(drop)
    }

    async fn create(&mut self, start_revision: u64) -> Result<Open, Failure> {
        let (key, range_end) = self.namespace.range(&self.prefix);
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: signed(start_revision),
            progress_notify: true,
            fragment: true,
        };
        // One request per stream; it fits without waiting.
        let (requests_tx, requests_rx) = mpsc::channel(1);
        let _ =
            requests_tx.try_send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) });
        let mut member = self.client.member();
        let opening = async {
            let mut responses = member.watch.watch(ReceiverStream::new(requests_rx)).await?.into_inner();
            match responses.message().await? {
                Some(response) if response.created && !response.canceled => Ok(responses),
                Some(response) => Err(tonic::Status::unavailable(response.cancel_reason)),
                None => Err(tonic::Status::unavailable("the stream ended")),
            }
        };
        let opened = match timeout(CREATION, opening).await {
            Ok(opened) => opened.map_err(Failure::from),
            Err(_) => Err(Failure::Timeout(CREATION)),
        };
        let responses = opened.inspect_err(|_| self.client.leave(member.index))?;
        Ok(Open { responses, member: member.index, _requests: requests_tx })
    }

    fn take_in(&mut self, response: WatchResponse) -> Result<(), WatchError> {
        if response.compact_revision > 0 {
            return Err(WatchError::Compacted { oldest: to_revision(response.compact_revision) });
        }
        if response.canceled {
            tracing::debug!(reason = %response.cancel_reason, "etcd cancelled the watch, opening it again");
            self.open = None;
            self.parts.clear();
            return Ok(());
        }
        let progress = response.events.is_empty() && !response.created && self.parts.is_empty();
        self.parts.extend(response.events);
        if response.fragment {
            return Ok(());
        }
        if progress {
            let told = to_revision(response.header.map_or(0, |header| header.revision));
            self.at = self.at.max(told);
        }
        for event in std::mem::take(&mut self.parts) {
            self.push(event);
        }
        if let Some(last) = self.events.back() {
            self.at = self.at.max(last.revision());
        }
        Ok(())
    }

    fn push(&mut self, event: PbEvent) {
        let kind = event.r#type();
        let Some(kv) = event.kv else { return };
        let revision = to_revision(kv.mod_revision);
        if revision <= self.at {
            return;
        }
        match kind {
            EventType::Put => self.events.extend(parse(&self.namespace, kv).map(Event::Apply)),
            EventType::Delete => match self.namespace.parse(&kv.key) {
                Ok(key) => self.events.push_back(Event::Delete { key, revision }),
                Err(what) => tracing::warn!(%what, "a key in etcd is not one of ours, skipped"),
            },
        }
    }

    async fn disconnected(&mut self, failure: &Failure) {
        tracing::info!(prefix = %self.prefix, after = %self.at, %failure, "watch lost etcd, resuming");
        if let Some(open) = self.open.take() {
            self.client.leave(open.member);
        }
        self.parts.clear();
        self.wait().await;
    }

    async fn wait(&mut self) {
        self.line.broke();
        sleep(self.backoff.pause()).await;
    }

    fn connected(&mut self) {
        self.line.mended();
        self.backoff.reset();
    }

    /// Asks for a watch that must fail, because only then etcd tells its compacted revision.
    async fn find_oldest(&mut self) -> Revision {
        let at_least = Revision(self.at.0 + 1);
        let Ok(mut open) = self.create(self.at.0.max(1)).await else { return at_least };
        match timeout(CREATION, open.responses.message()).await {
            Ok(Ok(Some(response))) => at_least.max(to_revision(response.compact_revision)),
            _ => at_least,
        }
    }
}

/// The pages of the initial state are of one revision; a compaction may overtake a slow reader.
fn initial_error(error: ReadError, revision: Revision) -> WatchError {
    let text = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    if text.contains("required revision has been compacted") {
        return WatchError::Compacted { oldest: revision };
    }
    WatchError::Read(error)
}
