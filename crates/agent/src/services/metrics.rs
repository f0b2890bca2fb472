//! Figures of the service proxy, under kube-proxy's names where they mean the same.

use std::{
    sync::atomic::AtomicU64,
    time::{Duration, SystemTime},
};

use super::pending::Pending;

use node_kernel::services::Synced;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Policy {
    traffic_policy: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Code {
    code: u16,
}

pub struct ServicesMetrics {
    registry: Registry,
    /// What kube-proxy has no name for.
    own: Registry,
    sync: Histogram,
    full: Histogram,
    partial: Histogram,
    last: Gauge<f64, AtomicU64>,
    queued: Gauge<f64, AtomicU64>,
    programming: Histogram,
    conntrack: Histogram,
    endpoints_pending: Gauge,
    services_pending: Gauge,
    refused: Gauge,
    refusals: Counter,
    pub sync_failures: Counter,
    pub endpoint_changes: Counter,
    pub service_changes: Counter,
    cleaned: Counter,
    unanswered: Family<Policy, Gauge>,
    healthz: Family<Code, Counter>,
    livez: Family<Code, Counter>,
}

impl Default for ServicesMetrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("kubeproxy");
        // From a millisecond, doubled fourteen times.
        let mut histogram = |name, help| {
            let metric = Histogram::new(exponential_buckets(0.001, 2.0, 15));
            registry.register(name, help, metric.clone());
            metric
        };
        let sync = histogram("sync_proxy_rules_duration_seconds", "Time to make changes true in the kernel");
        let full = histogram("sync_full_proxy_rules_duration_seconds", "The same, when all was compared");
        let partial =
            histogram("sync_partial_proxy_rules_duration_seconds", "The same, when only changes were");
        let conntrack =
            histogram("conntrack_reconciler_sync_duration_seconds", "Time to look for UDP flows to nobody");
        let programming = Histogram::new(programming_buckets());
        registry.register(
            "network_programming_duration_seconds",
            "From what a slice tells of (endpoints.kubernetes.io/last-change-trigger-time) to the kernel",
            programming.clone(),
        );
        let mut counter = |name, help| {
            let metric = Counter::default();
            registry.register(name, help, metric.clone());
            metric
        };
        let sync_failures =
            counter("sync_proxy_rules_nftables_sync_failures", "Times that the kernel did not take services");
        let endpoint_changes = counter("sync_proxy_rules_endpoint_changes", "Slices that changed");
        let service_changes = counter("sync_proxy_rules_service_changes", "Services that changed");
        let cleaned =
            counter("conntrack_reconciler_deleted_entries", "UDP flows to endpoints that are gone, deleted");
        let mut pending = |name, help| {
            let metric = Gauge::default();
            registry.register(name, help, metric.clone());
            metric
        };
        let endpoints_pending =
            pending("sync_proxy_rules_endpoint_changes_pending", "Changed slices that are not in force");
        let services_pending =
            pending("sync_proxy_rules_service_changes_pending", "Changed Services that are not in force");
        let queued = Gauge::default();
        registry.register(
            "sync_proxy_rules_last_queued_timestamp_seconds",
            "When there last was something to make true",
            queued.clone(),
        );
        let last = Gauge::default();
        registry.register(
            "sync_proxy_rules_last_timestamp_seconds",
            "When the kernel last held what it should",
            last.clone(),
        );
        let (unanswered, healthz, livez) = (Family::default(), Family::default(), Family::default());
        registry.register(
            "sync_proxy_rules_no_local_endpoints_total",
            "Service ports that a Local policy leaves unanswered on this node",
            unanswered.clone(),
        );
        registry.register("proxy_healthz", "Answers of /healthz", healthz.clone());
        registry.register("proxy_livez", "Answers of /livez", livez.clone());
        let mut own = Registry::with_prefix("trestle_services");
        let (refused, refusals) = (Gauge::default(), Counter::default());
        own.register("refused", "Services of which the kernel refuses something", refused.clone());
        own.register("refusals", "Times that a Service came to be refused", refusals.clone());
        Self {
            registry,
            own,
            queued,
            programming,
            conntrack,
            endpoints_pending,
            services_pending,
            refused,
            refusals,
            sync,
            full,
            partial,
            last,
            sync_failures,
            endpoint_changes,
            service_changes,
            cleaned,
            unanswered,
            healthz,
            livez,
        }
    }
}

impl ServicesMetrics {
    pub(super) fn note(&self, synced: &Synced, took: Duration) {
        let seconds = took.as_secs_f64();
        self.sync.observe(seconds);
        if synced.full { &self.full } else { &self.partial }.observe(seconds);
        self.cleaned.inc_by(synced.cleaned as u64);
        if let Some(took) = synced.clean_took {
            self.conntrack.observe(took.as_secs_f64());
        }
        self.last.set(unix(SystemTime::now()));
    }

    /// There is something to make true.
    pub(super) fn queue(&self, pending: &Pending) {
        self.queued.set(unix(SystemTime::now()));
        self.note_pending(pending);
    }

    /// All that was to be made true is.
    pub(super) fn in_force(&self, pending: &mut Pending) {
        for since in pending.take(SystemTime::now()) {
            self.programming.observe(since.as_secs_f64());
        }
        self.note_pending(pending);
    }

    fn note_pending(&self, pending: &Pending) {
        self.endpoints_pending.set(pending.slices());
        self.services_pending.set(pending.services());
    }

    pub(super) fn refused(&self, before: usize, now: usize) {
        self.refused.set(i64::try_from(now).unwrap_or(i64::MAX));
        self.refusals.inc_by(now.saturating_sub(before) as u64);
    }

    pub(super) fn unanswered(&self, internal: usize, external: usize) {
        for (traffic_policy, count) in [("internal", internal), ("external", external)] {
            let gauge = self.unanswered.get_or_create(&Policy { traffic_policy });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn answered(&self, livez: bool, code: u16) {
        let family = if livez { &self.livez } else { &self.healthz };
        family.get_or_create(&Code { code }).inc();
    }

    /// The text of `/metrics`, without its end, to stand before that of the agent.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for registry in [&self.registry, &self.own] {
            text::encode_registry(&mut out, registry).expect("writing to a String cannot fail");
        }
        out
    }
}

fn unix(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// kube-proxy's own: a quarter and half a second, every second of the first minute, then wider up to five minutes.
fn programming_buckets() -> impl Iterator<Item = f64> {
    let seconds = (1..60).chain((60..120).step_by(5)).chain((120..=300).step_by(30));
    [0.25, 0.5].into_iter().chain(seconds.map(f64::from))
}
