//! What stock agents report over HTTP, as JSON and as Kubernetes' protobuf, and what proxies on KPNG's wire ask: whatever they count,
//! sums never fall, and everybody can still read them.
#![no_main]

use std::sync::LazyLock;

use drivers::objects::{Document, Validation};
use libfuzzer_sys::fuzz_target;
use model::policy::output::{Identifier, Update};
use policy::{Engine, Event};
use prost::Message as _;
use serde_json::json;
use watch::{
    Cache, Encoding, Report, StatsResource,
    proto::{NetworkPolicyStatus, NodeStatsSummary},
    read_body,
};

/// A node with a policy of each kind, whose UIDs are `u1` and `u2`.
static UPDATES: LazyLock<Vec<Update>> = LazyLock::new(|| {
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"nodeName": "n1"}, "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "p", "namespace": "shop", "uid": "u1"}, "spec": {"podSelector": {}}}),
        json!({"apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy",
            "metadata": {"name": "q", "namespace": "shop", "uid": "u2"},
            "spec": {"priority": 5, "appliedTo": [{"podSelector": {}}], "ingress": [{"action": "Drop", "name": "r"}]}}),
    ];
    let mut engine = Engine::new();
    for object in objects {
        let document =
            Document::read(object.to_string().as_bytes(), Validation::Strict).expect("it is legal");
        engine.handle_event(Event::Apply(document.object()));
    }
    std::iter::from_fn(|| engine.poll_update()).collect()
});

fn cache() -> Cache {
    let cache = Cache::new(1);
    cache.apply(UPDATES.iter().cloned());
    cache.set_synced();
    cache
}

fuzz_target!(|bytes: &[u8]| {
    let _ = wire::localv1::WatchReq::decode(bytes);
    let cache = cache();
    for content_type in ["application/json", "application/vnd.kubernetes.protobuf"] {
        if let Ok(status) = read_body::<NetworkPolicyStatus>(content_type, bytes) {
            for node in status.nodes {
                let report = Report {
                    generation: node.generation,
                    is_failure: node.realization_failure,
                    message: node.message,
                };
                cache.report(&node.node_name, &Identifier::parse("u1"), report, 1);
            }
        }
        if let Ok(stats) = read_body::<NodeStatsSummary>(content_type, bytes) {
            let before = told(&cache);
            cache.count("n1", &stats, 2);
            cache.count("n1", &stats, 3);
            assert!(before.iter().zip(told(&cache)).all(|(before, after)| *before <= after));
        }
    }
    let _ = cache.take_changed_reports();
});

/// The sums of all policies.
fn told(cache: &Cache) -> Vec<i64> {
    let mut sums = Vec::new();
    for resource in StatsResource::ALL {
        let body = cache.statistics(resource, None, 4, Encoding::Json).expect("it is whole");
        let list: serde_json::Value = serde_json::from_slice(&body).expect("it is JSON");
        for item in list["items"].as_array().into_iter().flatten() {
            let stats = &item["trafficStats"];
            for field in ["packets", "bytes", "sessions"] {
                let sum = stats[field].as_i64().unwrap_or_default();
                assert!(sum >= 0, "{stats}");
                sums.push(sum);
            }
        }
    }
    sums
}
