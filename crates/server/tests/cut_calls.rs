//! Calls that are cut: their deadline is a few milliseconds, or the caller hangs up. Whatever became of each, in the end
//! what is listed, what is stored and what is in force are the same: in a cloud in memory, and in
//! the kernel, as `nft` shows it.
//!
//! `TRESTLE_CUT_CALLS` says how many writes are made.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    process::Command,
    sync::Arc,
    time::Duration,
};

use cloud_api::{Dice, FakeCloud, grpc::PluginService};
use model::ResourceName;
use server::{CloudConfig, PluginConfig};
use testkit_controllers::controller::{Client, Fixture};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, transport::Server};
use wire::{
    invisinetspb::{PermitListRule, cloud_plugin_server::CloudPluginServer},
    trestle::v1::{
        CreateCloudResourceRequest, DeleteRulesRequest, PutRulesRequest, ResourceRequest, RuleHolder,
        cloud_extension_server::CloudExtensionServer, orchestrator_client::OrchestratorClient,
        rule_holder::Holder,
    },
};

/// Writes where nobody says how many.
const WRITES: u32 = 400;
const CALLERS: u32 = 4;
const RESOURCES: u32 = 4;

fn name(which: u32) -> String {
    format!("default.far.vm{which}")
}

fn on(which: u32) -> Option<RuleHolder> {
    Some(RuleHolder { holder: Some(Holder::Resource(name(which))) })
}

/// A cloud behind a plugin on loopback, which a controller that is started again finds as it was.
async fn plugin() -> (Arc<FakeCloud>, CloudConfig) {
    let name: model::Segment = "far".parse().unwrap();
    let cloud = Arc::new(FakeCloud::new(name.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = PluginService::new(name.clone(), Arc::clone(&cloud) as _);
    let router = Server::builder()
        .add_service(CloudPluginServer::new(service.clone()))
        .add_service(CloudExtensionServer::new(service));
    tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    (
        cloud,
        CloudConfig { name, plugin: PluginConfig::Remote { url, ca: None, client: None, revision: None } },
    )
}

async fn create(client: &mut OrchestratorClient<Client>, which: u32, description: &str) {
    let request = CreateCloudResourceRequest {
        name: name(which),
        description: description.to_owned(),
        ..CreateCloudResourceRequest::default()
    };
    for _ in 0..500 {
        match client.create_cloud_resource(request.clone()).await {
            Ok(_) => return,
            // The plugin has not answered yet.
            Err(status) if status.code() == Code::FailedPrecondition => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(status) => panic!("{status}"),
        }
    }
    panic!("the plugin never answers");
}

/// What came of the calls.
#[derive(Debug, Default)]
struct Told {
    done: u32,
    refused: u32,
    cut: u32,
}

/// Puts and deletes rules, and seldom waits to the end.
async fn call(mut client: OrchestratorClient<Client>, seed: u32, writes: u32) -> Told {
    let mut dice = Dice::new(u64::from(seed) + 1);
    let mut told = Told::default();
    for _ in 0..writes {
        let (which, rule) = (dice.below(RESOURCES), format!("r{}", dice.below(12)));
        let deadline = Duration::from_millis(u64::from(1 + dice.below(20)));
        // Some say how long they wait; the others just go.
        let says = dice.below(2) == 0;
        let is_put = dice.below(100) < 55;
        let peer = format!("8.8.{}.{}", dice.below(250), dice.below(250));
        let calling = async {
            if is_put {
                let rule = PermitListRule {
                    id: rule,
                    tags: vec![peer],
                    direction: 0,
                    protocol: 6,
                    src_port: -1,
                    dst_port: 80,
                    ..PermitListRule::default()
                };
                let mut request = Request::new(PutRulesRequest {
                    on: on(which),
                    rules: vec![rule],
                    dry_run: false,
                    build: false,
                });
                says.then(|| request.set_timeout(deadline));
                client.put_rules(request).await.map(drop)
            } else {
                let mut request =
                    Request::new(DeleteRulesRequest { on: on(which), names: vec![rule], dry_run: false });
                says.then(|| request.set_timeout(deadline));
                client.delete_rules(request).await.map(drop)
            }
        };
        match tokio::time::timeout(deadline, calling).await {
            Ok(Ok(())) => told.done += 1,
            Ok(Err(status))
                if status.code() != Code::DeadlineExceeded && status.code() != Code::Cancelled =>
            {
                told.refused += 1;
            }
            Ok(Err(_)) | Err(_) => told.cut += 1,
        }
    }
    told
}

/// The rules of each resource: their names, with whom they permit.
type Rules = BTreeMap<ResourceName, BTreeMap<String, BTreeSet<String>>>;

async fn listed(client: &mut OrchestratorClient<Client>) -> Rules {
    let mut all = Rules::new();
    for which in 0..RESOURCES {
        let rules = client.list_rules(on(which).unwrap()).await.unwrap().into_inner().rules;
        let rules = rules.into_iter().map(|rule| (rule.id, rule.tags.into_iter().collect()));
        all.insert(name(which).parse().unwrap(), rules.collect());
    }
    all
}

/// Where rules are in force.
trait InForce {
    fn rules(&self) -> Rules;
}

impl InForce for FakeCloud {
    fn rules(&self) -> Rules {
        let of = |name: &ResourceName| {
            let entries = self.truth(name).map(|(_, entries)| entries).unwrap_or_default();
            let targets =
                |entry: &model::PermitEntry| entry.targets().iter().map(ToString::to_string).collect();
            entries.iter().map(|entry| (entry.name.to_string(), targets(entry))).collect()
        };
        let names = (0..RESOURCES).map(|which| name(which).parse::<ResourceName>().unwrap());
        names.map(|name| (name.clone(), of(&name))).collect()
    }
}

/// The kernel, as `nft` shows it.
struct Kernel {
    /// In the names of all namespaces that were made for this test.
    mark: String,
    namespace: String,
    addresses: BTreeMap<ResourceName, Ipv4Addr>,
}

impl InForce for Kernel {
    fn rules(&self) -> Rules {
        let of = |address: &Ipv4Addr| {
            let chain = format!("in_r{:08x}", address.to_bits());
            let arguments =
                ["netns", "exec", &self.namespace, "nft", "list", "chain", "inet", "trestle", &chain];
            let output = Command::new("ip").args(arguments).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout).unwrap();
            text.lines().filter_map(rule).collect()
        };
        self.addresses.iter().map(|(name, address)| (name.clone(), of(address))).collect()
    }
}

/// A line such as `@nh,96,32 0x8080e0c tcp dport 80 accept comment "r0 #974320ec41e2d45e"`.
fn rule(line: &str) -> Option<(String, BTreeSet<String>)> {
    let (rule, comment) = line.split_once(" accept comment \"")?;
    let name = comment.split(' ').next().unwrap().to_owned();
    let address = rule.split_once("@nh,96,32 0x").expect("the address of the peer").1;
    let address = u32::from_str_radix(address.split(' ').next().unwrap(), 16).unwrap();
    Some((name, BTreeSet::from([Ipv4Addr::from_bits(address).to_string()])))
}

impl Kernel {
    async fn of(fixture: &Fixture) -> Self {
        let mut client = OrchestratorClient::new(fixture.admin().await);
        let mut addresses = BTreeMap::new();
        for which in 0..RESOURCES {
            addresses.insert(name(which).parse().unwrap(), address(&mut client, which).await);
        }
        let mark = cloud_linux::mark(&fixture.dir.path().join("linux")).unwrap();
        let is_network = |name: &String| name.starts_with("trn");
        let namespace = namespaces(&mark).into_iter().find(is_network).expect("the network's namespace");
        Self { mark, namespace, addresses }
    }
}

/// Of a resource, when it is made.
async fn address(client: &mut OrchestratorClient<Client>, which: u32) -> Ipv4Addr {
    let mut found = String::new();
    for _ in 0..600 {
        let request = ResourceRequest { name: name(which), ..ResourceRequest::default() };
        let info = client.get_resource(request).await.unwrap().into_inner();
        if let Ok(address) = info.ip.parse() {
            return address;
        }
        found = format!("{info:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it is not made: {found}");
}

impl Drop for Kernel {
    /// After a failure nobody else does.
    fn drop(&mut self) {
        for namespace in namespaces(&self.mark) {
            let _ = Command::new("ip").args(["netns", "delete", &namespace]).status();
        }
    }
}

fn namespaces(mark: &str) -> Vec<String> {
    let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let ours = listed.lines().filter(|line| line.contains(mark));
    ours.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn differences(one: &Rules, other: &Rules) -> Vec<String> {
    let mut found = Vec::new();
    for (resource, rules) in one {
        let others = &other[resource];
        let names: BTreeSet<_> = rules.keys().chain(others.keys()).collect();
        for name in names.into_iter().filter(|name| rules.get(*name) != others.get(*name)) {
            found.push(format!("{resource} {name}: {:?} and {:?}", rules.get(name), others.get(name)));
        }
    }
    found
}

/// Starts a controller with a cloud and resources in it.
async fn start(cloud: CloudConfig, description: &str) -> Fixture {
    let fixture = Fixture::start_with(|config| config.clouds = vec![cloud]).await;
    let mut client = OrchestratorClient::new(fixture.admin().await);
    for which in 0..RESOURCES {
        create(&mut client, which, description).await;
    }
    fixture
}

/// Calls that are cut, and what is the case afterwards. Gives back the controller, started again.
async fn judge(fixture: Fixture, cloud: CloudConfig, in_force: &impl InForce) -> Fixture {
    let writes = std::env::var("TRESTLE_CUT_CALLS").ok().and_then(|text| text.parse().ok()).unwrap_or(WRITES);
    let mut client = OrchestratorClient::new(fixture.admin().await);
    let mut callers = Vec::new();
    for seed in 0..CALLERS {
        let client = OrchestratorClient::new(fixture.admin().await);
        callers.push(tokio::spawn(call(client, seed, writes.div_ceil(CALLERS))));
    }
    let mut told = Told::default();
    for caller in callers {
        let Told { done, refused, cut } = caller.await.unwrap();
        (told.done, told.refused, told.cut) = (told.done + done, told.refused + refused, told.cut + cut);
    }
    assert!(told.done > 0 && told.cut > 0, "{told:?}");
    // The work that was asked for comes to its end.
    let mut left = Vec::new();
    for _ in 0..600 {
        left = differences(&listed(&mut client).await, &in_force.rules());
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(left, [""; 0], "listed and in force differ, after {told:?}");
    let known = listed(&mut client).await;
    drop(client);
    // Another one reads afresh what is stored.
    let fixture = Fixture::start_in(fixture.stop().await, |config| config.clouds = vec![cloud]).await;
    let stored = listed(&mut OrchestratorClient::new(fixture.admin().await)).await;
    assert_eq!(differences(&known, &stored), [""; 0], "listed and stored differ, after {told:?}");
    let left = differences(&stored, &in_force.rules());
    assert_eq!(left, [""; 0], "stored and in force differ, after {told:?}");
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_listed_stored_and_in_force_is_the_same() {
    let (cloud, config) = plugin().await;
    let fixture = start(config.clone(), "west").await;
    judge(fixture, config, &*cloud).await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_listed_stored_and_in_the_kernel_is_the_same() {
    let plugin = PluginConfig::Linux { uplink: cloud_linux::Uplink::default() };
    let config = CloudConfig { name: "far".parse().unwrap(), plugin };
    let fixture = start(config.clone(), r#"{"region":"west"}"#).await;
    let kernel = Kernel::of(&fixture).await;
    let fixture = judge(fixture, config, &kernel).await;
    let mut client = OrchestratorClient::new(fixture.admin().await);
    for which in 0..RESOURCES {
        let request = ResourceRequest { name: name(which), ..ResourceRequest::default() };
        client.delete_resource(request).await.unwrap();
    }
    for _ in 0..600 {
        if namespaces(&kernel.mark).is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(namespaces(&kernel.mark), [""; 0], "what was made is gone with its resources");
    fixture.stop().await;
}
