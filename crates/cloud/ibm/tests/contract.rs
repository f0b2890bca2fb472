//! The IBM Cloud plugin keeps the contract, against the simulator.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use cloud_api::{
    At,
    conformance::{Subject, run},
};
use cloud_ibm::{IbmCloud, IbmOptions};
use cloud_sim::{Faults, Sim};
use testkit::contract::keeps_the_contract;

fn plugin(sim: &Sim) -> IbmCloud {
    let options = IbmOptions { private_endpoints: true, kubernetes_clusters: true, ..IbmOptions::default() };
    IbmCloud::with(&options, sim.world()).unwrap()
}

fn subject(cloud: &IbmCloud) -> Subject<'_> {
    let description = |zone: &str| {
        format!(r#"{{"zone":"{zone}","profile":{{"name":"bx2-2x8"}},"image":{{"id":"image-1"}}}}"#)
    };
    let at = At { site: "ns.ibm".parse().unwrap(), deployment: String::new() };
    let with_network = description("us-south-1").replace("{\"zone\"", "{\"vpc\":{\"id\":\"v\"},\"zone\"");
    Subject::new(cloud, at, [description("us-south-1"), description("eu-de-2")], with_network)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugin_keeps_the_contract() {
    keeps_the_contract("ibm", Faults::default(), plugin, subject).await;
}

fn troubles(seed: u64) -> Faults {
    Faults { seed, throttle: 50, before: 20, lost: 20, html: 10, failed: 30, ..Faults::default() }
}

/// An endpoint is a resource like another.
fn endpoints(cloud: &IbmCloud) -> Subject<'_> {
    let description = |zone: &str| {
        let target = r#"{"resource_type":"provider_infrastructure_service","name":"ibm-ntp-server"}"#;
        format!(r#"{{"zone":"{zone}","target":{target}}}"#)
    };
    Subject {
        descriptions: [description("us-south-1"), description("eu-de-2")],
        with_network: description("us-south-1").replace("{\"zone\"", "{\"ips\":[],\"zone\""),
        ..subject(cloud)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_keep_the_contract() {
    for seed in 0..=3 {
        keeps_the_contract(
            "ibm",
            if seed == 0 { Faults::default() } else { troubles(seed) },
            plugin,
            endpoints,
        )
        .await;
    }
}

/// And a cluster is one, with a network of its own.
fn clusters(cloud: &IbmCloud) -> Subject<'_> {
    let description =
        |zone: &str| format!(r#"{{"zone":"{zone}","workerPool":{{"flavor":"bx2.4x16","workerCount":2}}}}"#);
    Subject {
        descriptions: [description("us-south-1"), description("eu-de-2")],
        with_network: description("us-south-1")
            .replace("{\"zone\"", "{\"podSubnet\":\"10.9.0.0/16\",\"zone\""),
        ..subject(cloud)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_keep_the_contract() {
    for seed in 0..=3 {
        // A cluster that failed is told of, and not made anew in the same call.
        let faults = if seed == 0 { Faults::default() } else { Faults { failed: 0, ..troubles(seed) } };
        keeps_the_contract("ibm", faults, plugin, clusters).await;
    }
}

/// Throttles, objects that fail and cut connections are the plugin's to bear; the contract holds all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_a_troubled_cloud() {
    for seed in 1..=4 {
        keeps_the_contract("ibm", troubles(seed), plugin, subject).await;
    }
}

/// On a real account, with the key of the environment: `make live-ibm`. Costs money.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an IBM Cloud account"]
async fn a_real_account_keeps_the_contract() {
    let options = IbmOptions { owner: Some("trestle-live".to_owned()), ..IbmOptions::default() };
    let cloud = IbmCloud::new(&options).unwrap();
    let mut subject = subject(&cloud);
    let images = ["us-south", "eu-de"].map(|region| {
        let variable = format!("TRESTLE_IBM_IMAGE_{}", region.replace('-', "_").to_uppercase());
        std::env::var(&variable).unwrap_or_else(|_| panic!("{variable} names an image of {region} by its id"))
    });
    for (description, image) in subject.descriptions.iter_mut().zip(images) {
        *description = description.replace("image-1", &image);
    }
    run(&subject).await.unwrap();
}
