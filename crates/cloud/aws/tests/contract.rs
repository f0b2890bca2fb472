//! The AWS plugin keeps the contract, against the simulator.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use cloud_api::{
    At,
    conformance::{Subject, run},
};
use cloud_aws::{AwsCloud, AwsOptions};
use cloud_sim::{Faults, Sim};
use testkit::contract::keeps_the_contract;

fn plugin(sim: &Sim) -> AwsCloud {
    AwsCloud::with(&AwsOptions::default(), sim.world()).unwrap()
}

fn subject(cloud: &AwsCloud) -> Subject<'_> {
    let description =
        |region: &str| format!(r#"{{"region":"{region}","ImageId":"ami-1","InstanceType":"t3.micro"}}"#);
    let at = At { site: "ns.aws".parse().unwrap(), deployment: String::new() };
    let with_network = r#"{"region":"us-east-1","ImageId":"ami-1","SubnetId":"subnet-1"}"#.to_owned();
    Subject::new(cloud, at, [description("us-east-1"), description("eu-west-1")], with_network)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugin_keeps_the_contract() {
    keeps_the_contract("aws", Faults::default(), plugin, subject).await;
}

/// Throttles and stale reads are the plugin's to bear; the contract holds all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_a_busy_cloud_whose_reads_lag() {
    let faults = Faults { seed: 7, throttle: 30, stale: 100, ..Faults::default() };
    keeps_the_contract("aws", faults, plugin, subject).await;
}

/// On a real account, with credentials from the environment: `make live-aws`. Costs money and takes half an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an AWS account"]
async fn a_real_account_keeps_the_contract() {
    let options = AwsOptions { owner: Some("trestle-live".to_owned()), ..AwsOptions::default() };
    let cloud = AwsCloud::new(&options).unwrap();
    let image =
        std::env::var("TRESTLE_LIVE_AMI").expect("TRESTLE_LIVE_AMI names an image that both regions have");
    let mut subject = subject(&cloud);
    subject.descriptions = subject.descriptions.map(|text| text.replace("ami-1", &image));
    run(&subject).await.unwrap();
}
