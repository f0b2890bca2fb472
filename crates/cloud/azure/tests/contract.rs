//! The Azure plugin keeps the contract, against the simulator.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use cloud_api::{
    At,
    conformance::{Subject, run},
};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_sim::{Faults, Sim};
use testkit::contract::keeps_the_contract;

fn plugin(sim: &Sim) -> AzureCloud {
    // The token comes from the simulated token endpoint.
    let options = AzureOptions { kubernetes_clusters: true, ..AzureOptions::default() };
    AzureCloud::with(&options, sim.world()).unwrap()
}

fn description(location: &str, more: &str) -> String {
    format!(
        r#"{{"location":"{location}","properties":{{"hardwareProfile":{{"vmSize":"Standard_B1s"}},"storageProfile":{{"imageReference":{{"publisher":"Debian","offer":"debian-12","sku":"12","version":"latest"}}}},"osProfile":{{"computerName":"vm","adminUsername":"trestle","linuxConfiguration":{{"disablePasswordAuthentication":true,"ssh":{{"publicKeys":[{{"path":"/home/trestle/.ssh/authorized_keys","keyData":"{KEY}"}}]}}}}}}{more}}}}}"#
    )
}

fn cluster(location: &str, more: &str) -> String {
    let identity =
        "/subscriptions/s1/resourceGroups/g1/providers/Microsoft.ManagedIdentity/userAssignedIdentities/aks";
    format!(
        r#"{{"location":"{location}","identity":{{"type":"UserAssigned","userAssignedIdentities":{{"{identity}":{{}}}}}},"properties":{{"agentPoolProfiles":[{{"name":"nodes","mode":"System","count":2,"vmSize":"Standard_D2s_v5"}}]{more}}}}}"#
    )
}

const KEY: &str = "ssh-rsa AAAA trestle";

fn at() -> At {
    At { site: "ns.azure".parse().unwrap(), deployment: "/subscriptions/s1/resourceGroups/g1".to_owned() }
}

fn subject(cloud: &AzureCloud) -> Subject<'_> {
    let descriptions = [description("westus2", ""), description("westeurope", "")];
    Subject::new(cloud, at(), descriptions, description("westus2", r#","networkProfile":{}"#))
}

fn clusters(cloud: &AzureCloud) -> Subject<'_> {
    let descriptions = [cluster("westus2", ""), cluster("westeurope", "")];
    Subject::new(cloud, at(), descriptions, cluster("westus2", r#","networkProfile":{}"#))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugin_keeps_the_contract() {
    keeps_the_contract("azure", Faults::default(), plugin, subject).await;
    keeps_the_contract("azure", Faults::default(), plugin, clusters).await;
}

/// Throttles, failed operations and cut connections are the plugin's to bear; the contract holds all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_a_troubled_cloud() {
    let faults = Faults { seed: 7, throttle: 50, before: 20, lost: 20, html: 10, failed: 30, stale: 50 };
    keeps_the_contract("azure", faults.clone(), plugin, subject).await;
    keeps_the_contract("azure", faults, plugin, clusters).await;
}

/// On a real subscription, with credentials from the environment: `make live-azure`. Costs money.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an Azure subscription"]
async fn a_real_subscription_keeps_the_contract() {
    let options = AzureOptions { owner: Some("trestle-live".to_owned()), ..AzureOptions::default() };
    let cloud = AzureCloud::new(&options).unwrap();
    let mut subject = subject(&cloud);
    // AZURE_SUBSCRIPTION_ID and AZURE_RESOURCE_GROUP name the place.
    subject.at.deployment = String::new();
    let key = std::env::var("TRESTLE_SSH_KEY").expect("TRESTLE_SSH_KEY is a public RSA key for the machine");
    subject.descriptions = subject.descriptions.map(|text| text.replace(KEY, &key));
    run(&subject).await.unwrap();
}
