//! Whether callers are served: not before everything stored is read, and not once the store cannot be read any more.
//!
//! In: reads of the store, made for this alone, and how far the drivers follow it. Out: a refusal for the gate, the reasons
//! why the controller is not ready, and a token that ends streams. Holds: when the store was last read.
//!
//! ```text
//!   Loading ── everything is read ──► Serving ── nothing read for longer than the bound ──► Stale: streams end
//!                                        ▲                                                     │
//!                                        └──────────────── the store is read again ◄───────────┘
//! ```
//!
//! A controller that is cut off from its store would go on telling its nodes what was true long ago: a deny given elsewhere
//! would never arrive, and a revoked token would still open. So its nodes and callers are sent elsewhere. Whether the bound
//! has passed is asked anew at every call, by the monotonic clock: a process that was halted finds out before it answers.

use std::{sync::Arc, time::Duration};

use drivers::policy::Policy;
use jiff::{SignedDuration, Timestamp};
use life::Life;
use parking_lot::Mutex;
use store::{Revision, Store, follow::Progress};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use tracing::{info, warn};
use transport::{End, Hub};

use crate::{audit::Audit, failure::Failure};

/// How often the store is read, and what was read is judged: a fraction of the bound.
const SHARE: u32 = 8;
/// How often a start that takes long tells how far it is.
const TELL: Duration = Duration::from_secs(5);
/// What a caller who may not be served may still ask while everything is read.
const WHILE_LOADING: &[&str] = &["trestle.v1.Admin/GetStatus", "GET /status", "GET /metrics"];

/// gRPC's code for it.
const UNAVAILABLE: u8 = 14;

/// What readers of a stream are told when it ends.
pub fn ended() -> Status {
    Status::unavailable(
        "this controller serves no longer: it stops, or cannot read its store; watch again, here or at another",
    )
}

/// What is looked at.
pub struct Rooms {
    pub store: Store,
    pub policy: Arc<Policy>,
    pub audit: Arc<Audit>,
    pub hub: Arc<Hub>,
    /// How far those who follow the store are.
    pub followers: Vec<Progress>,
}

pub struct Serving {
    rooms: Rooms,
    life: Life,
    /// How old the last read may be; none if nobody else can use the store.
    bound: Option<Duration>,
    state: Mutex<State>,
}

struct State {
    loaded: bool,
    /// When the last read that was answered began.
    read: Instant,
    /// Why the newest read was not answered.
    trouble: Option<String>,
    /// Ends when streams must.
    streams: CancellationToken,
}

/// How callers are served.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Loading,
    Serving,
    /// For how long nothing was read.
    Stale(Duration),
}

/// How callers are served, from when the last read began and for how long followers have missed changes.
fn standing(loaded: bool, unread: Duration, missed: Duration, bound: Duration) -> Standing {
    match unread.max(missed) {
        since if since > bound => Standing::Stale(since),
        _ if loaded => Standing::Serving,
        _ => Standing::Loading,
    }
}

impl Serving {
    pub fn start(rooms: Rooms, bound: Option<Duration>, life: &Life) -> Arc<Self> {
        let state = State {
            loaded: false,
            read: Instant::now(),
            trouble: None,
            streams: life.stopping().child_token(),
        };
        let serving = Arc::new(Self { rooms, life: life.clone(), bound, state: Mutex::new(state) });
        if let Some(bound) = bound {
            let (reading, watching) = (Arc::clone(&serving), Arc::clone(&serving));
            life.spawn("serving: reads of the store", async move { reading.read(bound).await });
            life.spawn("serving: watch over staleness", async move { watching.watch(bound / SHARE).await });
        }
        serving
    }

    /// Waits until everything stored is read, however long that takes, and tells how far it is.
    pub async fn load(&self) {
        let loaded = async {
            for follower in &self.rooms.followers {
                follower.reach(Revision(0)).await;
            }
        };
        let tell = async {
            loop {
                tokio::time::sleep(TELL).await;
                info!(objects = self.rooms.policy.objects_read(), "still reading what is stored");
            }
        };
        tokio::select! {
            () = loaded => {}
            () = tell => {}
        }
    }

    /// Everything is read and runs: callers are served from now on.
    pub fn begin(&self) {
        self.state.lock().loaded = true;
    }

    /// Ends when the controller stops, or may not speak for its store any more.
    pub fn streams(&self) -> CancellationToken {
        self.state.lock().streams.clone()
    }

    /// What a caller is told instead of being served. What anyone may ask is answered always.
    pub fn refusal(&self, operation: &str, anyone: bool) -> Option<Failure> {
        let text = match self.standing() {
            Standing::Serving => return None,
            _ if anyone => return None,
            Standing::Loading if WHILE_LOADING.contains(&operation) => return None,
            Standing::Loading => self.loading(),
            Standing::Stale(since) => self.stale(since),
        };
        Some(Failure::new(Code::Unavailable, text))
    }

    /// Why the controller cannot serve; empty if it can.
    pub async fn not_ready(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        match self.life.fault() {
            Some(fault) => reasons.push(format!("the controller cannot go on: {fault}")),
            None if self.life.is_stopping() => reasons.push("the controller is stopping".to_owned()),
            None => {}
        }
        // A store that is slow to be read is slow to say how it is, and whoever asks here waits for a second at most.
        match self.standing() {
            Standing::Loading => reasons.push(self.loading()),
            Standing::Stale(since) => reasons.push(self.stale(since)),
            Standing::Serving => {}
        }
        if !reasons.is_empty() {
            return reasons;
        }
        reasons.extend(self.rooms.audit.trouble());
        match self.rooms.store.health().await {
            Ok(health) => reasons.extend(health.refusing_writes),
            Err(err) => reasons.push(common::chain(&err)),
        }
        reasons
    }

    fn standing(&self) -> Standing {
        let Some(bound) = self.bound else {
            return if self.state.lock().loaded { Standing::Serving } else { Standing::Loading };
        };
        let missed = self.rooms.followers.iter().filter_map(Progress::broken_since).min();
        let missed = missed.map(|since| since.elapsed()).unwrap_or_default();
        let state = self.state.lock();
        standing(state.loaded, state.read.elapsed(), missed, bound)
    }

    fn loading(&self) -> String {
        let objects = self.rooms.policy.objects_read();
        format!("what is stored is still being read ({objects} objects so far); try again in a second")
    }

    fn stale(&self, since: Duration) -> String {
        let ago = SignedDuration::try_from(since).unwrap_or_default();
        let at = Timestamp::now().saturating_sub(ago).unwrap_or_default();
        let trouble = self.state.lock().trouble.clone();
        let trouble = trouble.map(|trouble| format!(": {trouble}")).unwrap_or_default();
        format!(
            "this controller cannot speak for its store: it has not read it since {at:.0} ({}s ago){trouble}; ask another \
             controller, or look at the store",
            since.as_secs()
        )
    }

    /// Reads the store again and again.
    async fn read(&self, bound: Duration) {
        loop {
            let began = Instant::now();
            let answer = tokio::time::timeout(bound, self.rooms.store.revision()).await;
            {
                let mut state = self.state.lock();
                match answer {
                    Ok(Ok(_)) => (state.read, state.trouble) = (began, None),
                    Ok(Err(err)) => state.trouble = Some(common::chain(&err)),
                    Err(_) => state.trouble = Some(format!("no answer within {bound:?}")),
                }
            }
            tokio::time::sleep(bound / SHARE).await;
        }
    }

    /// Ends streams when the bound has passed.
    async fn watch(&self, every: Duration) {
        let mut was_stale = false;
        loop {
            tokio::time::sleep(every).await;
            let standing = self.standing();
            let is_stale = matches!(standing, Standing::Stale(_));
            if let Standing::Stale(since) = standing {
                let text = self.stale(since);
                if !was_stale {
                    warn!("{text}; nodes and callers are sent elsewhere");
                    self.state.lock().streams.cancel();
                }
                // Again and again: one that was let in just before may have begun just after.
                self.rooms.hub.end_where(|_| Some(End { code: UNAVAILABLE, message: text.clone() }));
            }
            if was_stale && !is_stale {
                info!("the store can be read again; callers are served");
                self.state.lock().streams = self.life.stopping().child_token();
            }
            was_stale = is_stale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(5);

    fn at(loaded: bool, unread: u64, missed: u64) -> Standing {
        standing(loaded, Duration::from_secs(unread), Duration::from_secs(missed), BOUND)
    }

    #[test]
    fn nobody_is_served_before_all_is_read_nor_on_what_is_old() {
        assert_eq!(at(false, 0, 0), Standing::Loading);
        assert_eq!(at(true, 5, 5), Standing::Serving);
        assert_eq!(at(true, 6, 0), Standing::Stale(Duration::from_secs(6)));
        assert_eq!(at(true, 0, 7), Standing::Stale(Duration::from_secs(7)));
        assert_eq!(at(false, 9, 0), Standing::Stale(Duration::from_secs(9)));
    }
}
