//! The record of flows, driven: what nodes tell is named and kept, and read.
//!
//! ```text
//!   node ─► take ─► named by the engine and by tags ─► record ─► find, top
//!                                                        └─────► followers
//! ```
//!
//! In: reports of nodes, each once; which policies there are. Out: flows by question, and those that come; what rules have decided. Holds:
//! the record, in a directory of its own, and the number of each node's last report. What a report tells is on record when it is answered; a report that cannot be recorded is not
//! answered, and the node adds up until it can.
//! Every controller records what the nodes tell that are connected to it. Not here: who may tell and ask (`server`).

pub mod export;
mod named;

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use ::flows::{Ask, Flow, Found, Limits, Opened, Reading, Record, RecordError, Uses, Verdict, policy_of};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::{Semaphore, broadcast};
use tracing::{error, info, warn};
use wire::trestle::v1::NodeFlows;

use crate::{blocking, policy::Policy, tags::Tags};
use export::{ExportConfig, Exports};
use life::Life;
use named::Names;

/// Rows of one report that are taken; a node sends fewer.
const ROWS: usize = 10_000;
/// Reports that a follower may be behind.
const BEHIND: usize = 1_024;
/// Questions that read files at once.
const QUESTIONS: usize = 4;
const DAY: u64 = 24 * 3600 * 1000;
/// How old what the record knows of policies may be, in milliseconds; where a flow names one that it does not know.
const KNOWN: u64 = 5_000;
const UNKNOWN: u64 = 500;

/// How much is recorded.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlowsConfig {
    /// Off: nodes are told that nobody records.
    pub enabled: bool,
    /// On disk; the oldest go first.
    pub bytes: u64,
    pub days: u32,
    /// Where they are sent to besides.
    pub export: Vec<ExportConfig>,
}

impl Default for FlowsConfig {
    fn default() -> Self {
        Self { enabled: true, bytes: 1 << 30, days: 7, export: Vec::new() }
    }
}

/// The flows of one controller.
pub struct Flows {
    record: Mutex<Record>,
    policy: Arc<Policy>,
    /// When the record was told which policies there are.
    known_at: AtomicU64,
    names: Names,
    /// Of each node the run and the number of its last report, with what it had lost.
    nodes: Mutex<HashMap<String, Told>>,
    writing: Semaphore,
    asking: Semaphore,
    news: broadcast::Sender<Arc<Vec<Flow>>>,
    exports: Exports,
    figures: Figures,
}

#[derive(Clone, Copy, Debug, Default)]
struct Told {
    run: u64,
    number: u64,
    lost: u64,
    unread: u64,
}

/// Since the controller runs.
#[derive(Debug, Default)]
struct Figures {
    allowed: AtomicU64,
    denied: AtomicU64,
    observed: AtomicU64,
    rows: AtomicU64,
    failures: AtomicU64,
}

/// Figures of the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Connections, and packets that were denied or would have been.
    pub allowed: u64,
    pub denied: u64,
    pub observed: u64,
    /// Rows that were recorded.
    pub rows: u64,
    /// Reports that could not be.
    pub failures: u64,
    /// What nodes say they have lost, and what they have counted without reading it.
    pub lost: u64,
    pub unread: u64,
    pub bytes: u64,
    /// Rows that collectors were told, and that they were not; and what had to be told again.
    pub exported: u64,
    pub export_lost: u64,
    pub export_failures: u64,
}

impl Flows {
    /// None if nothing is to be recorded, or cannot be: a controller does not fail for that.
    pub fn start(
        config: &FlowsConfig,
        data_dir: &Path,
        policy: Arc<Policy>,
        tags: Arc<Tags>,
        life: &Life,
    ) -> Option<Arc<Self>> {
        if !config.enabled {
            return None;
        }
        let limits = Limits { bytes: config.bytes, age: u64::from(config.days).saturating_mul(DAY) };
        match Record::open(&data_dir.join("flows"), limits, now()) {
            Ok(Opened { record, torn }) => {
                if torn > 0 {
                    warn!(bytes = torn, "the end of the record of flows was not whole and was dropped");
                }
                info!(bytes = record.bytes(), "the record of flows is open");
                let names = Names::new(Arc::clone(&policy), tags);
                let news = broadcast::Sender::new(BEHIND);
                let exports = Exports::start(&config.export, life).unwrap_or_else(|err| {
                    error!(why = common::chain(&err), "flows are recorded, and sent to no collector");
                    Exports::default()
                });
                Some(Arc::new(Self {
                    record: Mutex::new(record),
                    policy,
                    known_at: AtomicU64::new(now()),
                    names,
                    nodes: Mutex::default(),
                    writing: Semaphore::new(1),
                    asking: Semaphore::new(QUESTIONS),
                    news,
                    exports,
                    figures: Figures::default(),
                }))
            }
            Err(err) => {
                let why = common::chain(&err);
                error!(why, "flows cannot be recorded until this is mended and the controller restarted");
                None
            }
        }
    }

    /// Records a report; one that was recorded already is not recorded again. Whoever asks may go away meanwhile: it is recorded, or it is
    /// not, and the number is kept with it.
    pub async fn take(self: &Arc<Self>, report: NodeFlows) -> Result<(), RecordError> {
        let turn = self.writing.acquire().await.expect("it is never closed");
        let this = Arc::clone(self);
        let done = blocking(move || this.write(report)).await;
        drop(turn);
        done
    }

    fn write(&self, report: NodeFlows) -> Result<(), RecordError> {
        // One writer at a time, also when callers have gone away.
        let mut record = self.record.lock();
        let NodeFlows { run, number, lost, unread, .. } = report;
        let told = self.nodes.lock().get(&report.node).copied().unwrap_or_default();
        if told.run == run && number <= told.number {
            return Ok(());
        }
        let now = now();
        let node = report.node.clone();
        let flows = self.names.name(report, ROWS, now);
        let is_known =
            |flow: &Flow| policy_of(&flow.kind.rule).is_none_or(|name| record.uses().of(name).is_some());
        let is_old = if flows.iter().all(is_known) { KNOWN } else { UNKNOWN };
        self.know_policies(&mut record, now, is_old);
        if let Err(err) = record.append(&flows, now) {
            self.figures.failures.fetch_add(1, Relaxed);
            return Err(err);
        }
        self.nodes.lock().insert(node, Told { run, number, lost, unread });
        self.count(&flows);
        // Nobody may be following. Before anybody else has the record, so that who follows after what is in it misses nothing.
        let flows = Arc::new(flows);
        self.exports.offer(&flows);
        let _ = self.news.send(flows);
        drop(record);
        Ok(())
    }

    /// Tells the record which policies there are, if what it knows is so old.
    fn know_policies(&self, record: &mut Record, now: u64, is_old: u64) {
        let known_at = self.known_at.load(Relaxed);
        // A clock that was put back is no reason to wait.
        if now.abs_diff(known_at) >= is_old {
            record.policies_are(self.policy.versions().into_iter(), known_at, now);
            self.known_at.store(now, Relaxed);
        }
    }

    /// What rules have decided.
    pub async fn uses(self: &Arc<Self>) -> Uses {
        let this = Arc::clone(self);
        blocking(move || {
            let mut record = this.record.lock();
            this.know_policies(&mut record, now(), 0);
            record.uses().clone()
        })
        .await
    }

    /// From when on all that nodes have told is on record, in milliseconds since 1970.
    pub async fn whole_since(self: &Arc<Self>) -> u64 {
        let this = Arc::clone(self);
        blocking(move || this.record.lock().uses().since).await
    }

    fn count(&self, flows: &[Flow]) {
        let Figures { allowed, denied, observed, rows, .. } = &self.figures;
        rows.fetch_add(flows.len() as u64, Relaxed);
        for flow in flows {
            let counter = match flow.kind.verdict {
                Verdict::Allowed => allowed,
                Verdict::Denied => denied,
                Verdict::Observed => observed,
            };
            counter.fetch_add(flow.count, Relaxed);
        }
    }

    /// The newest that are asked about, newest first.
    pub async fn find(self: &Arc<Self>, ask: Ask, most: usize) -> Result<Found, RecordError> {
        self.read(ask, move |readings, ask| Reading::find(readings, ask, most)).await
    }

    /// All that are asked about, added up.
    pub async fn top(self: &Arc<Self>, ask: Ask, most: usize) -> Result<Found, RecordError> {
        self.read(ask, move |readings, ask| Reading::top(readings, ask, most)).await
    }

    /// Writers do not wait for who reads.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        ask: Ask,
        question: impl FnOnce(&[Reading], &Ask) -> T + Send + 'static,
    ) -> T {
        let _turn = self.asking.acquire().await.expect("it is never closed");
        let this = Arc::clone(self);
        blocking(move || {
            let readings = this.record.lock().readings(&ask);
            question(&readings, &ask)
        })
        .await
    }

    /// What is recorded from now on.
    pub fn follow(&self) -> broadcast::Receiver<Arc<Vec<Flow>>> {
        self.news.subscribe()
    }

    /// What has to be read for a question, and what is recorded from then on.
    pub async fn follow_after(
        self: &Arc<Self>,
        ask: Ask,
    ) -> (Vec<Reading>, broadcast::Receiver<Arc<Vec<Flow>>>) {
        let this = Arc::clone(self);
        blocking(move || {
            let record = this.record.lock();
            (record.readings(&ask), this.news.subscribe())
        })
        .await
    }

    /// The newest of these files that are asked about by another question within the time of this one, newest first.
    pub async fn find_in(
        &self,
        readings: Vec<Reading>,
        ask: Ask,
        is_about: impl Fn(&Flow) -> bool + Send + 'static,
        most: usize,
    ) -> Result<Found, RecordError> {
        let _turn = self.asking.acquire().await.expect("it is never closed");
        blocking(move || Reading::find_by(&readings, &ask, is_about, most)).await
    }

    /// Rows that were recorded since the controller runs.
    pub fn recorded(&self) -> u64 {
        self.figures.rows.load(Relaxed)
    }

    pub fn stats(&self) -> FlowStats {
        let Figures { allowed, denied, observed, rows, failures } = &self.figures;
        let nodes = self.nodes.lock();
        let sum = |figure: fn(&Told) -> u64| nodes.values().map(figure).sum();
        FlowStats {
            allowed: allowed.load(Relaxed),
            denied: denied.load(Relaxed),
            observed: observed.load(Relaxed),
            rows: rows.load(Relaxed),
            failures: failures.load(Relaxed),
            lost: sum(|told| told.lost),
            unread: sum(|told| told.unread),
            // Whoever writes does not hold up figures: then they are of the next time.
            bytes: self.record.try_lock().map_or(0, |record| record.bytes()),
            exported: self.exports.figures.told.load(Relaxed),
            export_lost: self.exports.figures.lost.load(Relaxed),
            export_failures: self.exports.figures.failures.load(Relaxed),
        }
    }
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
