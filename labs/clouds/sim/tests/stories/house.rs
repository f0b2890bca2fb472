//! A controller's orchestrator over the plugins over the simulated clouds.

use std::{net::IpAddr, ops::Deref, sync::Arc, time::Duration};

use async_trait::async_trait;
use cloud_api::Cloud;
use cloud_aws::{AwsCloud, AwsOptions};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_gcp::{GcpCloud, GcpOptions};
use cloud_ibm::{IbmCloud, IbmOptions};
use cloud_sim::Sim;
use model::{Address, PermitRule, ResourceName, Segment, Site};
pub use orchestrator::testing::{PING, both, rule};
use orchestrator::{
    execute::{Deployments, DeploymentsError, JobOrPlan, JobState, Options},
    testing,
};

/// The clouds there are, each with its name, and descriptions for two of its regions.
pub const CLOUDS: [&str; 4] = ["aws", "azure", "gcp", "ibm"];

pub fn description(cloud: &str, region: usize) -> &'static str {
    match (cloud, region) {
        ("aws", 0) => r#"{"region":"us-east-1","ImageId":"ami-1","InstanceType":"t3.micro"}"#,
        ("aws", 2) => r#"{"zone":"us-east-1c","ImageId":"ami-1"}"#,
        ("aws", _) => r#"{"region":"eu-west-1","ImageId":"ami-1","InstanceType":"t3.micro"}"#,
        ("azure", 0) => {
            r#"{"location":"westus2","properties":{"hardwareProfile":{"vmSize":"Standard_B1s"},"storageProfile":{}}}"#
        }
        ("azure", _) => {
            r#"{"location":"westeurope","properties":{"hardwareProfile":{"vmSize":"Standard_B1s"},"storageProfile":{}}}"#
        }
        ("gcp", 0) => r#"{"zone":"us-west1-a","machineType":"e2-micro","disks":[{"boot":true}]}"#,
        ("gcp", _) => r#"{"zone":"europe-west1-b","machineType":"e2-micro","disks":[{"boot":true}]}"#,
        (_, 0) => r#"{"zone":"us-south-1","profile":{"name":"bx2-2x8"},"image":{"id":"i"}}"#,
        (_, _) => r#"{"zone":"eu-de-2","profile":{"name":"bx2-2x8"},"image":{"id":"i"}}"#,
    }
}

/// Descriptions of private endpoints, of each kind that a cloud has.
pub fn services(cloud: &str) -> &'static [&'static str] {
    match cloud {
        "gcp" => &[
            r#"{"url":"projects/producer/regions/us-west1/serviceAttachments/db"}"#,
            r#"{"bundle":"all-apis"}"#,
        ],
        "ibm" => &[
            r#"{"zone":"us-south-1","target":{"resource_type":"provider_infrastructure_service","name":"ibm-ntp-server"}}"#,
        ],
        _ => &[],
    }
}

/// A description of a managed cluster in the first region and one in the second, if the cloud has clusters.
pub fn clusters(cloud: &str) -> Option<[&'static str; 2]> {
    match cloud {
        "gcp" => Some([
            r#"{"location":"us-west1","cluster":{"initialNodeCount":1}}"#,
            r#"{"location":"europe-west1-b","cluster":{"nodePools":[{"name":"p","initialNodeCount":1}]}}"#,
        ]),
        "ibm" => Some([
            r#"{"zone":"us-south-1","workerPool":{"flavor":"bx2.4x16","workerCount":2}}"#,
            r#"{"workerPool":{"flavor":"bx2.4x16","zones":[{"id":"eu-de-1"},{"id":"eu-de-3"}]}}"#,
        ]),
        "azure" => Some([
            r#"{"location":"westus2","identity":{"type":"UserAssigned","userAssignedIdentities":{"/subscriptions/s1/resourceGroups/g1/providers/Microsoft.ManagedIdentity/userAssignedIdentities/aks":{}}},"properties":{"agentPoolProfiles":[{"name":"nodes","mode":"System","count":1,"vmSize":"Standard_D2s_v5"}]}}"#,
            r#"{"location":"westeurope","identity":{"type":"UserAssigned","userAssignedIdentities":{"/subscriptions/s1/resourceGroups/g1/providers/Microsoft.ManagedIdentity/userAssignedIdentities/aks":{}}},"properties":{"agentPoolProfiles":[{"name":"nodes","mode":"System","count":1,"vmSize":"Standard_D2s_v5"}]}}"#,
        ]),
        _ => None,
    }
}

/// Where a namespace is in a cloud.
pub fn deployment(cloud: &str) -> &'static str {
    match cloud {
        "azure" => "/subscriptions/s1/resourceGroups/g1",
        "gcp" => "projects/p1",
        _ => "",
    }
}

/// A plugin that has just been started, with every flag set.
pub fn plugin(cloud: &str, sim: &Sim) -> Arc<dyn Cloud> {
    with_flags(cloud, sim, true)
}

/// A plugin whose configuration allows private endpoints and clusters, or does not.
pub fn with_flags(cloud: &str, sim: &Sim, on: bool) -> Arc<dyn Cloud> {
    owned(cloud, sim, on, None)
}

/// A plugin of a controller that marks what it makes with a name of its own.
pub fn owned(cloud: &str, sim: &Sim, on: bool, owner: Option<&str>) -> Arc<dyn Cloud> {
    let (private_endpoints, kubernetes_clusters) = (on, on);
    let owner = owner.map(str::to_owned);
    match cloud {
        "aws" => {
            let options = AwsOptions { owner, ..AwsOptions::default() };
            Arc::new(AwsCloud::with(&options, sim.world()).unwrap())
        }
        "azure" => {
            let token = Some("t".to_owned());
            let options = AzureOptions { owner, token, kubernetes_clusters, ..AzureOptions::default() };
            Arc::new(AzureCloud::with(&options, sim.world()).unwrap())
        }
        "gcp" => {
            let options =
                GcpOptions { owner, private_endpoints, kubernetes_clusters, ..GcpOptions::default() };
            Arc::new(GcpCloud::with(&options, sim.world()).unwrap())
        }
        // It fetches its tokens from the simulator too.
        _ => {
            let options =
                IbmOptions { owner, private_endpoints, kubernetes_clusters, ..IbmOptions::default() };
            Arc::new(IbmCloud::with(&options, sim.world()).unwrap())
        }
    }
}

struct Namespaces;

#[async_trait]
impl Deployments for Namespaces {
    async fn deployment(&self, site: &Site) -> Result<Option<String>, DeploymentsError> {
        Ok(Some(deployment(site.cloud.as_str()).to_owned()))
    }
    async fn namespaces(&self) -> Result<Vec<Segment>, DeploymentsError> {
        Ok(vec!["ns".parse().unwrap()])
    }
    async fn has_namespace(&self, _: &Segment) -> Result<bool, DeploymentsError> {
        Ok(true)
    }
}

pub struct House {
    house: testing::House,
    pub sim: Arc<Sim>,
    names: Vec<String>,
}

impl Deref for House {
    type Target = testing::House;

    fn deref(&self) -> &testing::House {
        &self.house
    }
}

/// Plugins that have just been started.
fn plugins(names: &[String], sim: &Sim) -> testing::Clouds {
    names.iter().map(|name| (name.parse().unwrap(), plugin(name, sim))).collect()
}

impl House {
    pub async fn new(clouds: &[&str]) -> Self {
        let sim = Arc::new(Sim::start().await.unwrap());
        let names: Vec<String> = clouds.iter().map(|name| (*name).to_owned()).collect();
        // A call may take long where reads lag and waits are polled.
        let options = Options { call_timeout: Options::default().call_timeout, ..testing::options() };
        let house = testing::House::new(Arc::new(Namespaces), options, plugins(&names, &sim)).await;
        Self { house, sim, names }
    }

    /// Kills controller and plugins where they stand, and starts others on what they left.
    pub async fn restart(&mut self) {
        self.house.kill().await;
        // A write that was handed to the store is not recalled with the task; it must be over before another reads.
        tokio::time::sleep(Duration::from_millis(100)).await;
        // A process takes a moment to come back, longer than any cloud's reads lag.
        self.sim.pass(Duration::from_secs(5));
        self.house.restart(self.store.clone(), plugins(&self.names, &self.sim)).await;
    }

    /// Asks for a resource, without waiting.
    pub async fn want(&self, name: &str, description: &str) -> JobOrPlan {
        let text = description.to_owned();
        self.orchestrator.create_resource(name.parse().unwrap(), text, false, false).await.unwrap()
    }

    pub async fn create(&self, name: &str, region: usize) {
        self.describe(name, description(name.split('.').nth(1).unwrap(), region)).await;
    }

    /// Makes what a description is of.
    pub async fn describe(&self, name: &str, description: &str) {
        let outcome = self.want(name, description).await;
        self.finish(outcome).await;
    }

    pub async fn delete(&self, name: &str) {
        let outcome = self.orchestrator.delete_resource(name.parse().unwrap(), false).await.unwrap();
        self.finish(outcome).await;
    }

    pub async fn put(&self, name: &str, rules: Vec<PermitRule>) {
        let outcome = self.orchestrator.put_rules(name.parse().unwrap(), rules, false).await.unwrap();
        self.finish(outcome).await;
    }

    /// Permits both ways at both ends.
    pub async fn join(&self, a: &str, b: &str) {
        tokio::join!(self.put(a, both(b)), self.put(b, both(a)));
    }

    pub async fn unjoin(&self, a: &str, b: &str) {
        for (one, other) in [(a, b), (b, a)] {
            let names = both(other).into_iter().map(|rule| rule.name).collect();
            let outcome = self.orchestrator.delete_rules(one.parse().unwrap(), names, false).await.unwrap();
            self.finish(outcome).await;
        }
    }

    pub async fn finish(&self, outcome: JobOrPlan) {
        let ended = self.house.finish(outcome).await.unwrap();
        assert_eq!(ended.state, JobState::Done, "{}", ended.message);
    }

    /// Waits until there is nothing left to do, and nothing has failed.
    pub async fn settle(&self) {
        self.house.settle().await;
        let failed = self.orchestrator.jobs().into_iter().filter(|job| job.state == JobState::Failed);
        let failed: Vec<_> = failed.map(|job| format!("{}: {}", job.what, job.message)).collect();
        assert_eq!(failed, Vec::<String>::new());
    }

    /// A resource's address; of a cluster, the address of some node or Pod.
    pub fn address(&self, name: &str) -> IpAddr {
        self.addresses(name)[0]
    }

    /// The addresses of all hosts that a resource consists of.
    pub fn addresses(&self, name: &str) -> Vec<IpAddr> {
        let name: ResourceName = name.parse().unwrap();
        let address: Address =
            self.orchestrator.resource(&name).unwrap().ip.expect("it was made").parse().unwrap();
        match address.single() {
            Some(ip) => vec![ip],
            None => self.sim.hosts_in(address.net()),
        }
    }

    pub fn reaches(&self, from: &str, to: &str) -> bool {
        self.sim.reaches(self.address(from), self.address(to), &PING)
    }

    /// Both ways.
    pub fn joined(&self, a: &str, b: &str) -> bool {
        let (there, back) = (self.reaches(a, b), self.reaches(b, a));
        assert_eq!(there, back, "{a} and {b}");
        there
    }

    /// Nothing is left anywhere, and no cloud ever answered what it could not have.
    pub async fn end(&self, resources: &[&str]) {
        for name in resources {
            self.delete(name).await;
        }
        self.settle().await;
        assert_eq!(self.sim.left(), Vec::<String>::new());
        assert_eq!(self.sim.defects(), Vec::<String>::new());
    }
}
