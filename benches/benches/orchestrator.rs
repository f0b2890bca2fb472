//! The orchestrator's promises: plans at scale, tag changes fanned out, allocation in nearly full pools, the first
//! link, and how many calls to clouds an operation takes.

#![expect(clippy::unwrap_used, reason = "a failed bench stops")]

#[path = "orchestrator/calls.rs"]
mod calls;
#[path = "orchestrator/linux.rs"]
mod linux;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use benches::report;
use cloud_azure::AzureCloud;
use cloud_gcp::GcpCloud;
use model::{
    Direction, EntryName, Leaf, NetworkName, PermitEntry, PermitRule, Ports, Protocol, ResourceName,
    ResourceState, Segment, Site, Subscriber, TagName, Traffic,
};
use orchestrator::{
    execute::{Deployments, DeploymentsError, TagBook, TagBookError},
    plan::{Action, Intent, Inventory, NetworkRecord, Phase, Pools, ResourceIntent, ResourceRecord, plan},
};
use tags::{Fact, Graph, Request, Write};
use tokio::sync::watch;

const RESOURCES: usize = 10_000;
const RULES: usize = 10;
const ROUNDS: usize = 5;

fn main() {
    plans();
    pools();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(calls::per_operation());
    runtime.block_on(linux::check());
    runtime.block_on(linux::first_link());
}

fn name(which: usize) -> ResourceName {
    format!("ns.{}.vm{which}", ["azure", "gcp"][which % 2]).parse().unwrap()
}

/// 10,000 resources in two clouds, ten rules each, one of them on a tag that all share.
fn world() -> (Intent, Inventory) {
    let (mut intent, mut inventory) = (Intent::default(), Inventory::default());
    let mut writes = vec![
        Write::Put(Fact::Group("shared".parse().unwrap())),
        Write::Put(Fact::Membership("shared".parse().unwrap(), "1.1.1.1".parse().unwrap())),
    ];
    let clouds = [("azure", AzureCloud::traits(), "10.0.0.0/16"), ("gcp", GcpCloud::traits(), "10.1.0.0/16")];
    for (cloud, traits, space) in clouds {
        intent.clouds.insert(cloud.parse().unwrap(), traits);
        let network: NetworkName = format!("ns.{cloud}.r").parse().unwrap();
        inventory.networks.insert(network, NetworkRecord::made(Phase::Ready, space.parse().unwrap()));
    }
    for which in 0..RESOURCES {
        let name = name(which);
        let address =
            format!("10.{}.{}.{}", which % 2, which / 2 / 250, which / 2 % 250 + 1).parse().unwrap();
        let region: Segment = "r".parse().unwrap();
        let state = ResourceState { uri: name.to_string(), address, region: region.clone() };
        let network = NetworkName { site: Site::of(&name), region: region.clone() };
        let leaf = Leaf { uri: None, ip: Some(address) };
        writes.push(Write::Put(Fact::Leaf(name.to_string().parse().unwrap(), leaf)));
        let intended = ResourceIntent { region, description: String::new(), attach: false, adopts: None };
        intent.resources.insert(name.clone(), intended);
        let rules: BTreeMap<_, _> =
            (0..RULES).map(|rule| rule_of(which, rule)).map(|rule| (rule.name.clone(), rule)).collect();
        intent.rules.insert(name.clone(), rules);
        let record = ResourceRecord {
            phase: Phase::Ready,
            network,
            attached: false,
            state: Some(state),
            permit: BTreeMap::new(),
            changing: BTreeMap::new(),
        };
        inventory.resources.insert(name, record);
    }
    intent.graph.apply(writes);
    (intent, inventory)
}

fn rule_of(which: usize, rule: usize) -> PermitRule {
    let traffic = Traffic::new(Direction::Outbound, Protocol::TCP, Ports::Any, Ports::one(443)).unwrap();
    let peer = if rule == 0 { "shared".to_owned() } else { name((which + rule * 2) % RESOURCES).to_string() };
    PermitRule::new(Some(format!("r{rule}").parse().unwrap()), traffic, [peer.parse().unwrap()].into())
        .unwrap()
}

/// Does what a plan says, as far as lists are concerned.
fn settle(intent: &Intent, inventory: &mut Inventory) -> usize {
    let plan = plan(intent, inventory);
    for step in &plan.steps {
        match &step.action {
            Action::Open { resource, change } | Action::Close { resource, change } => {
                let record = inventory.resources.get_mut(resource).unwrap();
                record.permit = change.apply(std::mem::take(&mut record.permit));
            }
            Action::CreateNat { network } => {
                let ready = orchestrator::plan::SimpleRecord { phase: Phase::Ready };
                inventory.nats.insert(network.clone(), ready);
            }
            other => panic!("{other}"),
        }
    }
    plan.steps.iter().filter(|step| matches!(step.action, Action::Open { .. } | Action::Close { .. })).count()
}

fn plans() {
    let (mut intent, mut inventory) = world();
    let start = Instant::now();
    settle(&intent, &mut inventory);
    report("orchestrator.plan_cold", "seconds", start.elapsed().as_secs_f64(), "s");
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        assert!(plan(&intent, &inventory).is_empty());
        best = best.min(start.elapsed());
    }
    // 10,000 resources with 100,000 rules, nothing to do.
    report("orchestrator.plan", "seconds", best.as_secs_f64(), "s");
    let member = Fact::Membership("shared".parse().unwrap(), "2.2.2.2".parse().unwrap());
    intent.graph.apply(vec![Write::Put(member)]);
    let start = Instant::now();
    let changed = settle(&intent, &mut inventory);
    report("orchestrator.fanout", "seconds", start.elapsed().as_secs_f64(), "s");
    // One call for each list that changed. The original asks all plugins and reads and adds everything for each.
    report("orchestrator.fanout", "calls", changed as f64, "calls");
    report("orchestrator.fanout", "calls_needed", RESOURCES as f64, "calls");
    report("orchestrator.fanout.peer", "calls", (RESOURCES * 4) as f64, "calls");
    let other: TagName = "ns.azure.vm0".parse().unwrap();
    let leaf = Leaf { uri: None, ip: Some("10.0.255.1".parse().unwrap()) };
    intent.graph.apply(vec![Write::Put(Fact::Leaf(other, leaf))]);
    let changed = settle(&intent, &mut inventory);
    report("orchestrator.one_change", "calls", changed as f64, "calls");
    assert!(inventory.resources.values().all(|record| record.permit.values().all(has_targets)));
}

fn has_targets(entry: &PermitEntry) -> bool {
    !entry.targets().is_empty() && entry.name != EntryName::reported("")
}

/// The last free /24 of 10.0.0.0/8.
fn pools() {
    let pools = Pools::new(vec!["10.0.0.0/8".parse().unwrap()]).unwrap();
    let all: ipnet::Ipv4Net = "10.0.0.0/8".parse().unwrap();
    let mut used: Vec<_> = all.subnets(24).unwrap().collect();
    let free = used.swap_remove(40_000);
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        assert_eq!(pools.find(used.iter().copied(), &[256]).unwrap(), [free]);
        best = best.min(start.elapsed());
    }
    report("orchestrator.allocate_full", "ms", best.as_secs_f64() * 1000.0, "ms");
}

/// Tags in memory.
struct Book {
    graph: parking_lot::Mutex<Graph>,
    revision: watch::Sender<u64>,
}

impl Book {
    fn ask(&self, request: &Request) -> Result<(), TagBookError> {
        let mut graph = self.graph.lock();
        let plan = graph.plan(request)?;
        graph.apply(plan.writes);
        self.revision.send_modify(|revision| *revision += 1);
        Ok(())
    }
}

#[async_trait]
impl TagBook for Book {
    fn graph(&self) -> Option<Graph> {
        Some(self.graph.lock().clone())
    }
    async fn changed(&self) {
        let mut revision = self.revision.subscribe();
        let _ = revision.changed().await;
    }
    async fn set_leaf(&self, tag: &TagName, leaf: Leaf) -> Result<(), TagBookError> {
        self.ask(&Request::SetLeaf { tag: tag.clone(), leaf })
    }
    async fn delete(&self, tag: &TagName) -> Result<(), TagBookError> {
        self.ask(&Request::DeleteTag { tag: tag.clone() })
    }
    async fn subscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), TagBookError> {
        self.ask(&Request::Subscribe { tag: tag.clone(), subscriber: subscriber.clone() })
    }
    async fn unsubscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), TagBookError> {
        self.ask(&Request::Unsubscribe { tag: tag.clone(), subscriber: subscriber.clone() })
    }
}

struct Everywhere;

#[async_trait]
impl Deployments for Everywhere {
    async fn deployment(&self, _: &Site) -> Result<Option<String>, DeploymentsError> {
        Ok(Some(String::new()))
    }
    async fn namespaces(&self) -> Result<Vec<Segment>, DeploymentsError> {
        Ok(Vec::new())
    }

    async fn has_namespace(&self, _: &Segment) -> Result<bool, DeploymentsError> {
        Ok(true)
    }
}
