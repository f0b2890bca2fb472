//! One kind at one API server: its first state, what changes, and how to go on after a break.
//!
//! ```text
//!   ┌─► first state ─ stream (or pages) ─► Complete ─► watch from there ─┬─ ends, breaks ─► watch from where it was
//!   │                                                                    └─ 410: too far behind ─┐
//!   └────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A watch is asked for a minute at a time and the API server closes it; nothing heard for longer than that is a break too, so
//! that a server behind a cut cable is missed within it.

use std::{sync::Arc, time::Duration};

use common::Backoff;
use futures::StreamExt as _;
use kube::{
    Client,
    api::{ListParams, WatchParams},
    core::{Request, WatchEvent},
};
use model::policy::Kind;
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use crate::{
    fault::Fault,
    resource::Resource,
    standing::{Standing, Standings},
};

/// What the API server is asked to end a watch after.
const WATCH_SECONDS: u32 = 60;
/// Without a word for so long a watch is broken.
const SILENCE: Duration = Duration::from_secs(75);
/// For one page of a list, or the headers of a watch.
const ANSWER: Duration = Duration::from_secs(60);
const PAGE: u32 = 500;
/// Between two questions for a kind that is not installed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Between two looks whether a kind that was there is really gone.
const LOOK_CLOSER: Duration = Duration::from_secs(1);
/// How often a kind that was there must be missing before it is gone: a server that starts may not know all its kinds yet.
const SURELY_ABSENT: u32 = 3;
/// A watch that ends sooner is worth a pause before the next.
const TOO_SHORT: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// On the bookmark that ends a streamed first state.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What is told of a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// The whole state follows.
    Begin(Kind),
    Apply(Kind, Value),
    /// As it was last.
    Delete(Kind, Value),
    /// That was all: what was there before and was not told again is gone.
    Complete(Kind),
}

/// Nobody listens any more.
struct Ended;

pub(crate) struct Follow {
    pub client: Client,
    pub resource: Resource,
    pub streaming: bool,
    pub told: mpsc::Sender<Told>,
    pub standings: Arc<Standings>,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMeta,
    /// An empty one is `null` at some servers.
    items: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: VersionedMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionedMeta {
    resource_version: String,
}

/// Where a kind's watch is.
#[derive(Default)]
struct Place {
    /// None: the first state is to be read.
    version: Option<String>,
    /// Something was told, or that there is nothing.
    known: bool,
    missing: u32,
}

impl Follow {
    /// Until nobody listens.
    pub(crate) async fn run(mut self) {
        let mut place = Place::default();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let began = Instant::now();
            let round = self.round(&mut place).await;
            let Ok(round) = round else { return };
            let pause = match round {
                Ok(()) if began.elapsed() >= TOO_SHORT => {
                    backoff.reset();
                    continue;
                }
                Ok(()) => backoff.pause(),
                Err(Fault::Absent) => match self.absent(&mut place).await {
                    Ok(pause) => pause,
                    Err(Ended) => return,
                },
                Err(Fault::Expired) => {
                    place.version = None;
                    backoff.pause()
                }
                Err(Fault::NoStreaming) => {
                    self.streaming = false;
                    continue;
                }
                Err(Fault::Other(why)) => {
                    let name = self.resource.name();
                    tracing::warn!(
                        name,
                        why,
                        "a watch of an API server broke; what is known stays, and it is tried again"
                    );
                    self.standings.set(self.resource.kind, Standing::Failed(why));
                    backoff.pause()
                }
            };
            if self.told.is_closed() {
                return;
            }
            sleep(pause).await;
        }
    }

    /// From where the watch is until it ends.
    async fn round(&self, place: &mut Place) -> Result<Result<(), Fault>, Ended> {
        match (&place.version, self.streaming) {
            (Some(_), _) => self.watch(place, false).await,
            (None, true) => self.watch(place, true).await,
            (None, false) => match self.list(place).await? {
                Ok(()) => self.watch(place, false).await,
                Err(fault) => Ok(Err(fault)),
            },
        }
    }

    /// What becomes of a kind that the API server does not have.
    async fn absent(&self, place: &mut Place) -> Result<Duration, Ended> {
        place.missing += 1;
        let (kind, name) = (self.resource.kind, self.resource.name());
        if self.resource.always {
            let why = format!("the API server has no {name}; is it one of Kubernetes?");
            self.standings.set(kind, Standing::Failed(why));
        } else if !place.known || place.missing >= SURELY_ABSENT {
            if !place.known || place.version.is_some() {
                self.tell(Told::Begin(kind)).await?;
                self.tell(Told::Complete(kind)).await?;
            }
            (place.known, place.version) = (true, None);
            self.standings.set(kind, Standing::Absent);
        }
        Ok(if place.version.is_some() { LOOK_CLOSER } else { LOOK_AGAIN })
    }

    /// The first state, page by page.
    async fn list(&self, place: &mut Place) -> Result<Result<(), Fault>, Ended> {
        let (request, kind) = (Request::new(self.resource.path()), self.resource.kind);
        let mut next = None;
        let mut begun = false;
        loop {
            let mut params = ListParams::default().limit(PAGE);
            params.continue_token = next;
            let asked = match request.list(&params) {
                Ok(asked) => asked,
                Err(err) => return Ok(Err(Fault::Other(err.to_string()))),
            };
            let page: List = match timeout(ANSWER, self.client.request(asked)).await {
                Ok(Ok(page)) => page,
                Ok(Err(err)) => return Ok(Err(Fault::of(&err))),
                Err(_) => return Ok(Err(no_answer())),
            };
            if !begun {
                begun = true;
                self.tell(Told::Begin(kind)).await?;
            }
            for mut item in page.items.into_iter().flatten() {
                // Said once, of the list.
                item["apiVersion"] = self.resource.api_version().into();
                self.tell(Told::Apply(kind, item)).await?;
            }
            next = page.metadata.next.filter(|token| !token.is_empty());
            if next.is_none() {
                return self.complete(place, page.metadata.resource_version).await.map(Ok);
            }
        }
    }

    async fn complete(&self, place: &mut Place, version: String) -> Result<(), Ended> {
        self.tell(Told::Complete(self.resource.kind)).await?;
        *place = Place { version: Some(version), known: true, missing: 0 };
        self.standings.set(self.resource.kind, Standing::InSync);
        Ok(())
    }

    /// Changes from where the watch is; with `initial`, the whole state before them.
    async fn watch(&self, place: &mut Place, mut initial: bool) -> Result<Result<(), Fault>, Ended> {
        let kind = self.resource.kind;
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let params = if initial { params.initial_events() } else { params };
        let version = place.version.clone().unwrap_or_default();
        let asked = match Request::new(self.resource.path()).watch(&params, &version) {
            Ok(asked) => asked,
            Err(err) => return Ok(Err(Fault::Other(err.to_string()))),
        };
        let mut events = match timeout(ANSWER, self.client.request_events::<Value>(asked)).await {
            Ok(Ok(events)) => Box::pin(events),
            Ok(Err(err)) if initial => return Ok(Err(Fault::of_streaming(&err))),
            Ok(Err(err)) => return Ok(Err(Fault::of(&err))),
            Err(_) => return Ok(Err(no_answer())),
        };
        if initial {
            self.tell(Told::Begin(kind)).await?;
        } else {
            place.missing = 0;
            self.standings.set(kind, Standing::InSync);
        }
        loop {
            let event = match timeout(SILENCE, events.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(err))) => return Ok(Err(Fault::of(&err))),
                Ok(None) if initial => {
                    return Ok(Err(Fault::Other("the first state ended before it was whole".to_owned())));
                }
                Ok(None) => return Ok(Ok(())),
                Err(_) => {
                    return Ok(Err(Fault::Other(format!("nothing was heard for {} s", SILENCE.as_secs()))));
                }
            };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let version = version_of(&object);
                    self.tell(Told::Apply(kind, object)).await?;
                    place.advance(version, initial);
                }
                WatchEvent::Deleted(object) => {
                    let version = version_of(&object);
                    self.tell(Told::Delete(kind, object)).await?;
                    place.advance(version, initial);
                }
                WatchEvent::Bookmark(bookmark) => {
                    let version = bookmark.metadata.resource_version;
                    if initial && bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                        initial = false;
                        self.complete(place, version).await?;
                    } else {
                        place.advance(Some(version), initial);
                    }
                }
                WatchEvent::Error(status) if initial => return Ok(Err(Fault::of_streaming_status(&status))),
                WatchEvent::Error(status) => return Ok(Err(Fault::of_status(&status))),
            }
        }
    }

    async fn tell(&self, told: Told) -> Result<(), Ended> {
        self.told.send(told).await.map_err(|_| Ended)
    }
}

impl Place {
    fn advance(&mut self, version: Option<String>, initial: bool) {
        if !initial && version.is_some() {
            self.version = version;
        }
    }
}

fn version_of(object: &Value) -> Option<String> {
    Versioned::deserialize(object).ok().map(|object| object.metadata.resource_version)
}

fn no_answer() -> Fault {
    Fault::Other(format!("no answer within {} s", ANSWER.as_secs()))
}
