//! Numbers for Prometheus.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::{
    flows::{Figures, Flows},
    status::{Connection, State},
};

/// Every metric of an agent.
pub struct Metrics {
    registry: Registry,
    pub messages: Counter,
    pub steps: Counter,
    pub step_seconds: Histogram,
    pub transactions: Counter,
    pub mended: Counter,
    pub failures: Counter,
    pub connects: Counter,
    pub received_revision: Gauge,
    lock: Gauge,
    applied_revision: Gauge,
    lag: Gauge,
    unapplied: Gauge,
    connected: Gauge,
    disconnected: Gauge,
    worker_silence: Gauge,
    synced: Gauge,
    objects: Gauge,
    errors: Gauge,
    endpoints: Gauge,
    closed: Gauge,
    journal_bytes: Gauge,
    queue: Gauge,
    /// As `flows::Figures` has them.
    flows: [Gauge; 6],
    /// When the oldest message came that has not taken effect.
    oldest: Mutex<Option<Instant>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("trestle_agent");
        let step_seconds = Histogram::new([1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0]);
        registry.register("step_seconds", "Time to make a step true in the kernel", step_seconds.clone());
        let mut counter = |name, help| {
            let metric = Counter::default();
            registry.register(name, help, metric.clone());
            metric
        };
        let messages = counter("messages", "Messages from the controller");
        let steps = counter("steps", "Steps made true, several at once when they come fast");
        let transactions = counter("kernel_transactions", "Transactions committed in the kernel");
        let mended = counter("mended", "Times that what others changed in the kernel was mended");
        let failures = counter("failures", "Times that a part could not make its state true");
        let connects = counter("connects", "Streams opened to a controller");
        let mut gauge = |name, help| {
            let metric: Gauge = Gauge::default();
            registry.register(name, help, metric.clone());
            metric
        };
        Self {
            messages,
            steps,
            step_seconds,
            transactions,
            mended,
            failures,
            connects,
            received_revision: gauge("received_revision", "Revision of the last step received"),
            lock: gauge(
                "policy_lock_microseconds",
                "Longest time that one transaction of policies kept others out of nftables, since the agent began",
            ),
            applied_revision: gauge("applied_revision", "Revision in force"),
            lag: gauge("revision_lag", "Revisions received and not in force"),
            unapplied: gauge("unapplied_milliseconds", "Age of the oldest change that is not in force"),
            connected: gauge("connected", "1 while a controller is heard"),
            disconnected: gauge(
                "disconnected_milliseconds",
                "Time since a controller was heard; 0 while one is",
            ),
            worker_silence: gauge(
                "worker_silence_milliseconds",
                "Time since the worker was last seen at work",
            ),
            synced: gauge("synced", "1 while the node is at the controller's present"),
            objects: gauge("objects", "Objects held"),
            errors: gauge("object_errors", "Objects and parts that are not in force"),
            endpoints: gauge("endpoints", "Pods attached"),
            closed: gauge("endpoints_closed", "Pods closed until a controller has spoken"),
            journal_bytes: gauge("journal_bytes", "Size of the state on disk"),
            queue: gauge("queue", "Messages waiting to be taken in"),
            flows: [
                gauge("flows_seen", "Connections and refused packets seen"),
                gauge("flows_refused", "Refused packets seen"),
                gauge("flows_lost", "Messages of the kernel that were lost, because there were too many"),
                gauge(
                    "flows_unread",
                    "Messages of the kernel that were counted like the next one that was read",
                ),
                gauge("flows_waiting", "Rows of flows that wait for a controller"),
                gauge("flows_told", "Rows of flows that a controller has"),
            ],
            oldest: Mutex::default(),
            registry,
        }
    }
}

impl Metrics {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A transaction kept others out for so long.
    pub fn note_lock(&self, took: Duration) {
        let took = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        if took > self.lock.get() {
            self.lock.set(took);
        }
    }

    /// Part of a change has come.
    pub fn note_received(&self) {
        self.messages.inc();
        self.oldest.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
    }

    /// Nothing is left that has come and is not in force.
    pub fn note_applied(&self) {
        *self.oldest.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Age of the oldest change that is not in force.
    pub fn unapplied(&self) -> Option<Duration> {
        self.oldest.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }

    /// The text of `/metrics`. `silence` and `queued` are the worker's.
    pub fn render(
        &self,
        state: &State,
        connection: &Connection,
        silence: Duration,
        queued: usize,
        flows: Option<&Flows>,
    ) -> String {
        let set = |gauge: &Gauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        let applied = state.token.map(|token| token.revision).unwrap_or_default();
        set(&self.applied_revision, applied);
        set(&self.lag, u64::try_from(self.received_revision.get()).unwrap_or(0).saturating_sub(applied));
        set(&self.unapplied, self.unapplied().unwrap_or_default().as_millis() as u64);
        let gone = connection.gone_for();
        set(&self.connected, gone.is_none().into());
        set(&self.disconnected, gone.unwrap_or_default().as_millis() as u64);
        set(&self.worker_silence, silence.as_millis() as u64);
        set(&self.synced, (state.synced && gone.is_none()).into());
        set(&self.objects, state.objects as u64);
        set(&self.errors, (state.errors.len() + state.failures.len()) as u64);
        set(&self.endpoints, state.endpoints as u64);
        set(&self.closed, state.closed as u64);
        set(&self.journal_bytes, state.journal_bytes);
        set(&self.queue, queued as u64);
        if let Some(flows) = flows {
            let read = |figure: &AtomicU64| figure.load(Relaxed);
            let Figures { seen, refused, lost, unread, waiting, told } = &flows.figures;
            let figures = [seen, refused, lost, unread, waiting, told];
            for (gauge, figure) in self.flows.iter().zip(figures) {
                set(gauge, read(figure));
            }
        }
        let mut out = String::new();
        text::encode(&mut out, &self.registry).expect("writing to a String cannot fail");
        out
    }
}
