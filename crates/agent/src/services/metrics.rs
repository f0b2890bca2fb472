//! Figures of the service proxy, under kube-proxy's names where they mean the same.

use std::{
    sync::atomic::AtomicU64,
    time::{Duration, SystemTime},
};

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
    sync: Histogram,
    full: Histogram,
    partial: Histogram,
    last: Gauge<f64, AtomicU64>,
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
        Self {
            registry,
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
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.last.set(now.as_secs_f64());
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
        text::encode_registry(&mut out, &self.registry).expect("writing to a String cannot fail");
        out
    }
}
