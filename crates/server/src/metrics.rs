//! Numbers for Prometheus.
//!
//! In: counts from the other modules. Out: the text of `/metrics`. Each queue has depth, drops and age.

use std::{sync::Arc, time::Duration};

use drivers::{flows::FlowStats, storage::StorageStats, tags::TagStats};
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tonic::Code;

use crate::failure::code_name;

mod enforcement;
mod figures;
mod flows;
mod nodes;
mod storage;
mod volumes;

pub use enforcement::{EnforcementFigures, Stage};
use figures::Figures;
use volumes::Volumes;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Call {
    operation: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
}

/// What changes are of, as metrics name it.
const CHANGES: &[&str] =
    &["policy", "workload", "service", "objects", "tag", "rule", "permission", "resource", "link"];

/// Every metric of the controller.
pub struct Metrics {
    registry: Registry,
    requests: Family<Call, Counter>,
    seconds: Family<Operation, Histogram>,
    pub enforcement: EnforcementFigures,
    pub panics: Counter,
    pub audit_failures: Counter,
    pub audit_left_out: Counter,
    pub stranger_refusals: Counter,
    pub connections: Gauge,
    pub connections_refused: Counter,
    pub handshake_failures: Counter,
    tags: Gauge,
    tag_revision: Gauge,
    tag_queue: Gauge,
    pub tag_watchers: Gauge,
    pub watchers: Gauge,
    nodes: Figures<::transport::Stats>,
    storage: Figures<StorageStats>,
    volumes: Volumes,
    flows: Figures<FlowStats>,
    store_revision: Gauge,
    store_queue: Gauge,
    store_bytes: Gauge,
    store_refusing: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("trestle");
        let requests = Family::default();
        let seconds = Family::<Operation, Histogram>::new_with_constructor(|| {
            // From a tenth of a millisecond to half a minute, in steps of three.
            Histogram::new([1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0])
        });
        let volumes = Volumes::default();
        registry.register_collector(Box::new(volumes.clone()));
        registry.register("requests", "Calls by operation and result", requests.clone());
        registry.register("request_seconds", "Time until a call's reply began", seconds.clone());
        let enforcement = EnforcementFigures::register(&mut registry, CHANGES);
        let mut counter = |name, help| {
            let metric = Counter::default();
            registry.register(name, help, metric.clone());
            metric
        };
        let panics = counter("panics", "Calls that panicked");
        let audit_failures = counter("audit_failures", "Audit records that could not be written");
        let audit_left_out =
            counter("audit_left_out", "Refusals of known callers that the audit log only counts");
        let stranger_refusals =
            counter("stranger_refusals", "Calls refused because the caller did not say, or prove, who it is");
        let connections_refused = counter("connections_refused", "Connections closed at once: too many open");
        let handshake_failures = counter("handshake_failures", "TLS handshakes that failed or took too long");
        let mut gauge = |name, help| {
            let metric: Gauge = Gauge::default();
            registry.register(name, help, metric.clone());
            metric
        };
        let nodes = Figures::new(nodes::FIGURES, &mut gauge);
        let storage = Figures::new(storage::FIGURES, &mut gauge);
        let flows = Figures::new(flows::FIGURES, &mut gauge);
        Self {
            nodes,
            storage,
            volumes,
            flows,
            requests,
            seconds,
            enforcement,
            panics,
            audit_failures,
            audit_left_out,
            stranger_refusals,
            connections: gauge("connections", "Open connections"),
            connections_refused,
            handshake_failures,
            tags: gauge("tags", "Tags in the graph"),
            tag_revision: gauge("tag_revision", "Store revision the tag graph has reached"),
            tag_queue: gauge("tag_queue", "Tag changes waiting to be written"),
            tag_watchers: gauge("tag_watchers", "Subscribers with an open event stream"),
            watchers: gauge("watch_watchers", "Open watches of policies and groups"),
            store_revision: gauge("store_revision", "Newest revision in the store"),
            store_queue: gauge("store_queue", "Transactions waiting to be committed"),
            store_bytes: gauge("store_bytes", "Size of the store on disk"),
            store_refusing: gauge("store_refusing_writes", "1 while the store refuses writes"),
            registry,
        }
    }
}

impl Metrics {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn observe_request(&self, operation: &'static str, code: Code, took: Duration) {
        self.requests.get_or_create(&Call { operation, code: code_name(code) }).inc();
        self.seconds.get_or_create(&Operation { operation }).observe(took.as_secs_f64());
    }

    pub fn observe_store(&self, health: &store::Health) {
        let set = |gauge: &Gauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.store_revision, health.revision.0);
        set(&self.store_queue, health.queued as u64);
        set(&self.store_bytes, health.size_bytes);
        set(&self.store_refusing, u64::from(health.refusing_writes.is_some()));
    }

    pub fn observe_tags(&self, stats: &TagStats) {
        let set = |gauge: &Gauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.tags, stats.tags as u64);
        set(&self.tag_revision, stats.revision.0);
        set(&self.tag_queue, stats.queued as u64);
    }

    pub fn observe_nodes(&self, stats: &::transport::Stats) {
        self.nodes.observe(stats);
    }

    pub fn observe_flows(&self, stats: &FlowStats) {
        self.flows.observe(stats);
    }

    pub(crate) fn observe_storage(&self, stats: &StorageStats) {
        self.storage.observe(stats);
        self.volumes.observe(stats);
    }

    /// The text of `/metrics`.
    pub fn render(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.registry).expect("writing to a String cannot fail");
        out
    }
}
