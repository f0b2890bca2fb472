//! The Google Cloud plugin keeps the contract, against the simulator.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use cloud_api::{
    At,
    conformance::{Subject, run},
};
use cloud_gcp::{GcpCloud, GcpOptions};
use cloud_sim::{Faults, Sim};
use testkit::contract::keeps_the_contract;

fn plugin(sim: &Sim) -> GcpCloud {
    let options = GcpOptions { private_endpoints: true, kubernetes_clusters: true, ..GcpOptions::default() };
    GcpCloud::with(&options, sim.world()).unwrap()
}

fn subject(cloud: &GcpCloud) -> Subject<'_> {
    let description =
        |zone: &str| format!(r#"{{"zone":"{zone}","machineType":"e2-micro","disks":[{{"boot":true}}]}}"#);
    let at = At { site: "ns.gcp".parse().unwrap(), deployment: "projects/p1".to_owned() };
    let with_network =
        r#"{"zone":"us-west1-a","machineType":"e2-micro","disks":[],"networkInterfaces":[]}"#.to_owned();
    Subject::new(cloud, at, [description("us-west1-a"), description("europe-west1-b")], with_network)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugin_keeps_the_contract() {
    keeps_the_contract("gcp", Faults::default(), plugin, subject).await;
}

fn troubles(seed: u64) -> Faults {
    Faults { seed, throttle: 50, before: 20, lost: 20, html: 10, failed: 30, ..Faults::default() }
}

/// An endpoint is a resource like another: one of a service, the other of Google's own APIs.
fn endpoints(cloud: &GcpCloud) -> Subject<'_> {
    let attachment = r#"{"url":"projects/p2/regions/us-west1/serviceAttachments/db"}"#.to_owned();
    let bundle = r#"{"bundle":"all-apis"}"#.to_owned();
    Subject {
        descriptions: [attachment, bundle],
        with_network: r#"{"bundle":"all-apis","network":"n"}"#.to_owned(),
        has_nat: false,
        // A gateway stands in a network of instances.
        peer: None,
        ..subject(cloud)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_keep_the_contract() {
    for seed in 0..=3 {
        let faults = || if seed == 0 { Faults::default() } else { troubles(seed) };
        keeps_the_contract("gcp", faults(), plugin, endpoints).await;
        keeps_the_contract("gcp", faults(), plugin, turned).await;
    }
}

/// A cluster is a resource like another, with a network of its own.
fn clusters(cloud: &GcpCloud) -> Subject<'_> {
    let described =
        |location: &str, cluster: &str| format!(r#"{{"location":"{location}","cluster":{cluster}}}"#);
    Subject {
        descriptions: [
            described("us-west1", r#"{"initialNodeCount":1}"#),
            described("europe-west1-b", r#"{"autopilot":{"enabled":true}}"#),
        ],
        with_network: described("us-west1", r#"{"initialNodeCount":1,"subnetwork":"s"}"#),
        ..subject(cloud)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_keep_the_contract() {
    for seed in 0..=3 {
        let faults = || if seed == 0 { Faults::default() } else { troubles(seed) };
        keeps_the_contract("gcp", faults(), plugin, clusters).await;
    }
}

/// The other first.
fn turned(cloud: &GcpCloud) -> Subject<'_> {
    let mut subject = endpoints(cloud);
    subject.descriptions.reverse();
    subject
}

/// Throttles, failed operations and cut connections are the plugin's to bear; the contract holds all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_a_troubled_cloud() {
    for seed in 1..=4 {
        keeps_the_contract("gcp", troubles(seed), plugin, subject).await;
    }
}

/// On a real project, with credentials from the environment: `make live-gcp`. Costs money.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a Google Cloud project"]
async fn a_real_project_keeps_the_contract() {
    let options = GcpOptions { owner: Some("trestle-live".to_owned()), ..GcpOptions::default() };
    let cloud = GcpCloud::new(&options).unwrap();
    let disk = r#"{"boot":true,"autoDelete":true,"initializeParams":{"sourceImage":"projects/debian-cloud/global/images/family/debian-12"}}"#;
    let mut subject = subject(&cloud);
    subject.at.deployment =
        std::env::var("GOOGLE_CLOUD_PROJECT").expect("GOOGLE_CLOUD_PROJECT names the project");
    subject.descriptions = subject.descriptions.map(|text| text.replace(r#"{"boot":true}"#, disk));
    run(&subject).await.unwrap();
}
