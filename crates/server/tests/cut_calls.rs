//! Calls that are cut: their deadline is a few milliseconds, or the caller hangs up. Whatever became of each, in the end
//! what is listed, what is stored and what the cloud has are the same.
//!
//! `TRESTLE_CUT_CALLS` says how many writes are made.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cloud_api::{Dice, FakeCloud, grpc::PluginService};
use harness::{Client, Fixture};
use model::ResourceName;
use server::{CloudConfig, Config, PluginConfig};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, transport::Server};
use wire::{
    invisinetspb::{PermitListRule, cloud_plugin_server::CloudPluginServer},
    trestle::v1::{
        CreateCloudResourceRequest, DeleteRulesRequest, PutRulesRequest, RuleHolder,
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
    (cloud, CloudConfig { name, plugin: PluginConfig::Remote { url, ca: None, client: None } })
}

async fn create(client: &mut OrchestratorClient<Client>, which: u32) {
    let request = CreateCloudResourceRequest {
        name: name(which),
        description: "west".to_owned(),
        ..CreateCloudResourceRequest::default()
    };
    for _ in 0..500 {
        match client.create_cloud_resource(request.clone()).await {
            Ok(_) => return,
            // The plugin has not answered yet.
            Err(status) if status.code() == Code::NotFound => {
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
                let mut request =
                    Request::new(PutRulesRequest { on: on(which), rules: vec![rule], dry_run: false });
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

fn in_force(cloud: &FakeCloud) -> Rules {
    let of = |name: &ResourceName| {
        let entries = cloud.truth(name).map(|(_, entries)| entries).unwrap_or_default();
        let targets = |entry: &model::PermitEntry| entry.targets().iter().map(ToString::to_string).collect();
        entries.iter().map(|entry| (entry.name.to_string(), targets(entry))).collect()
    };
    let names = (0..RESOURCES).map(|which| name(which).parse::<ResourceName>().unwrap());
    names.map(|name| (name.clone(), of(&name))).collect()
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

#[tokio::test(flavor = "multi_thread")]
async fn what_is_listed_stored_and_in_force_is_the_same() {
    let writes = std::env::var("TRESTLE_CUT_CALLS").ok().and_then(|text| text.parse().ok()).unwrap_or(WRITES);
    let (cloud, config) = plugin().await;
    let with = |controller: &mut Config| controller.clouds = vec![config.clone()];
    let fixture = Fixture::start_with(with).await;
    let mut client = OrchestratorClient::new(fixture.admin().await);
    for which in 0..RESOURCES {
        create(&mut client, which).await;
    }
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
    for _ in 0..300 {
        left = differences(&listed(&mut client).await, &in_force(&cloud));
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(left, [""; 0], "listed and in force differ, after {told:?}");
    let known = listed(&mut client).await;
    drop(client);
    // Another one reads afresh what is stored.
    let fixture = Fixture::start_in(fixture.stop().await, with).await;
    let mut client = OrchestratorClient::new(fixture.admin().await);
    let stored = listed(&mut client).await;
    assert_eq!(differences(&known, &stored), [""; 0], "listed and stored differ, after {told:?}");
    assert_eq!(
        differences(&stored, &in_force(&cloud)),
        [""; 0],
        "stored and in force differ, after {told:?}"
    );
    eprintln!("{told:?}");
    fixture.stop().await;
}
