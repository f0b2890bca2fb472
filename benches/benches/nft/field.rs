//! One node's part of the field's workload (`enforce`), without the way there: 100 Pods of as many namespaces, each with up to 20
//! policies of 5 ports, 5 ranges, 5 namespaces, 5 Pods and 5 blocks, plain and with 5 exceptions in every block. One policy after
//! the other, and all of them at once.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Instant,
};

use benches::report;
use ipnet::{IpNet, Ipv4Net};
use model::policy::output::{
    Addresses, Identifier, IpBlock, NetworkPolicy, PortRef, Protocol, Rule, RuleDetail, Service,
};
use node_kernel::policy::PolicyExecutor;
use node_policy::{Change, LocalChange, Options, SetKind, Workload, WorkloadId};

use super::{
    millis,
    policies::{Cost, member, pod_ip, set},
    switch::{policy_of, rule},
};

const PODS: u32 = 100;
const NAMESPACES: u32 = 240;
const OF_NAMESPACE: u32 = 10;
const POLICIES: u32 = 20;
const EACH: u32 = 5;

pub fn run() {
    measure("nft.field", false);
    measure("nft.field_except", true);
}

fn measure(bench: &str, except: bool) {
    let mut executor = closed();
    let (mut first, mut last) = (Cost::default(), Cost::default());
    for number in 0..POLICIES {
        for pod in 0..PODS {
            let cost = if number < POLICIES / 2 { &mut first } else { &mut last };
            cost.apply(&mut executor, policy(pod, number, except));
        }
    }
    first.report(&format!("{bench}.first_half"));
    last.report(&format!("{bench}.second_half"));
    executor.stop().expect("the table can go");
    let mut executor = closed();
    let all: Vec<Change> =
        (0..POLICIES).flat_map(|number| (0..PODS).map(move |pod| policy(pod, number, except))).collect();
    let started = Instant::now();
    let outcome = executor.apply(all, []).expect("the kernel takes the policies");
    report(&format!("{bench}.bulk"), "seconds", started.elapsed().as_secs_f64(), "s");
    report(&format!("{bench}.bulk.floor"), "seconds", outcome.applied.in_kernel.as_secs_f64(), "s");
    report(&format!("{bench}.bulk"), "lock_ms", millis(outcome.applied.longest), "ms");
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    report(&format!("{bench}.bulk"), "elements", outcome.applied.weight as f64, "elements");
    executor.stop().expect("the table can go");
}

/// A node on which nothing passes, and which knows all peers.
fn closed() -> PolicyExecutor {
    let mut executor = PolicyExecutor::open(Options::default()).expect("the kernel has nftables");
    let mut changes = Vec::new();
    for namespace in 0..NAMESPACES {
        let all = (0..OF_NAMESPACE).map(|pod| peer(namespace, pod)).collect();
        changes.push(set(SetKind::Address, format!("ns-{namespace}"), all));
        for pod in 0..OF_NAMESPACE {
            changes.push(set(SetKind::Address, format!("pod-{namespace}-{pod}"), vec![peer(namespace, pod)]));
        }
    }
    for pod in 0..PODS {
        let here = member(format!("pod{pod}"), None);
        changes.push(set(SetKind::AppliedTo, format!("here-{pod}"), vec![here]));
        changes.push(Change::PutPolicy {
            name: format!("deny-{pod}"),
            policy: Box::new(of_pod(pod, &format!("deny-{pod}"), vec![Rule { action: None, ..nothing() }])),
        });
    }
    let workload = |pod| Workload::new(WorkloadId::pod("n", format!("pod{pod}")), [pod_ip(pod)]);
    let local: Vec<_> = (0..PODS).map(|pod| LocalChange::Put(workload(pod))).collect();
    executor.apply(changes, local).expect("the kernel takes the table");
    executor
}

fn nothing() -> Rule {
    rule(Vec::new(), RuleDetail::default())
}

fn peer(namespace: u32, pod: u32) -> model::policy::output::Member {
    let number = namespace * OF_NAMESPACE + pod;
    let address = IpAddr::V4(Ipv4Addr::from(0x0a01_0000 + number));
    let addresses: Addresses = [address].into_iter().collect();
    model::policy::output::Member { addresses, ..member(format!("peer{number}"), None) }
}

fn of_pod(pod: u32, name: &str, rules: Vec<Rule>) -> NetworkPolicy {
    let applied_to_groups = vec![Identifier::parse(&format!("here-{pod}"))];
    NetworkPolicy { applied_to_groups, ..policy_of(name, rules) }
}

fn policy(pod: u32, number: u32, except: bool) -> Change {
    let port = |index: u32, base: u32, step: u32| {
        PortRef::Number(u16::try_from(base + (number * EACH + index) * step).expect("there are few"))
    };
    let end = |index: u32| u16::try_from(10_049 + (number * EACH + index) * 100).expect("there are few");
    let single =
        (0..EACH).map(|index| Service { port: Some(port(index, 1_024, 1)), ..Service::any(Protocol::Udp) });
    let ranges = (0..EACH).map(|index| Service {
        port: Some(port(index, 10_000, 100)),
        end_port: Some(end(index)),
        ..Service::any(Protocol::Udp)
    });
    let block = |index: u32| {
        let network = 0x0b00_0000 + (((pod * POLICIES + number) * EACH + index) << 8);
        let net = |low: u32, len| {
            IpNet::V4(Ipv4Net::new(Ipv4Addr::from(network + low), len).expect("a length within 32"))
        };
        let except = (1..=EACH).filter(|_| except).map(|part| net(part * 32, 28)).collect();
        IpBlock { cidr: net(0, 24), except }
    };
    let namespaces = (0..EACH).map(|index| format!("ns-{}", (pod + 1 + number * EACH + index) % NAMESPACES));
    let pods = (0..EACH).map(|index| format!("pod-{pod}-{}", (number + index) % OF_NAMESPACE));
    let detail = RuleDetail {
        services: single.chain(ranges).collect(),
        ip_blocks: (0..EACH).map(block).collect(),
        ..RuleDetail::default()
    };
    let name = format!("open-{pod}-{number}");
    let rules = vec![rule(namespaces.chain(pods).collect(), detail)];
    Change::PutPolicy { policy: Box::new(of_pod(pod, &name, rules)), name }
}
