//! How long the largest single changes keep others out: one policy for every Pod of the node comes, is replaced by one
//! that decides otherwise about every peer, and goes.

use model::policy::{
    Kind,
    output::{
        Action, Addresses, Direction, Identifier, IpBlock, Member, NetworkPolicy, PolicySource, PortRef,
        Protocol, Rule, RuleDetail, Service,
    },
};
use node_kernel::policy::PolicyExecutor;
use node_policy::{Change, ObjectKind, Options, SetKind};

use super::{
    MEMBERS,
    policies::{Cost, PODS, member, peer, set, workloads},
};

const ROUNDS: u16 = 3;

pub fn run() {
    // Each rule has peers and a port of its own: Pods x rules x (port, rest of the protocol, everything else).
    measure("nft.switch", sets(200), |round| {
        let rule = |number: u16| rule(vec![format!("peers-{number}")], one_port(8_000 + number + round));
        (0..200).map(rule).collect()
    });
    // Ranges of ports are what the kernel takes slowest.
    measure("nft.switch_ranges", sets(40), |round| {
        let rule = |number: u16| rule(vec![format!("peers-{number}")], range(8_000 + number + round, 50));
        (0..40).map(rule).collect()
    });
    // A block with a hole at every other address.
    measure("nft.switch_blocks", Vec::new(), |round| {
        let hole =
            |number: u32| ipnet::Ipv4Net::from(std::net::Ipv4Addr::from(0x0a00_0000 + number * 2)).into();
        let block = IpBlock {
            cidr: "10.0.0.0/8".parse().expect("a prefix"),
            except: (0..MEMBERS / 2).map(hole).collect(),
        };
        let detail = RuleDetail { ip_blocks: vec![block], ..one_port(8_000 + round) };
        vec![rule(Vec::new(), detail)]
    });
}

fn measure(bench: &str, sets: Vec<Change>, rules: impl Fn(u16) -> Vec<Rule>) {
    let mut executor = PolicyExecutor::open(Options::default()).expect("the kernel has nftables");
    let pods =
        (0..PODS).map(|pod| Member { addresses: Addresses::None, ..member(format!("pod{pod}"), None) });
    let everybody = set(SetKind::AppliedTo, "pods".into(), pods.collect());
    executor.apply(sets.into_iter().chain([everybody]), workloads()).expect("the kernel takes the sets");
    let (mut put, mut replaced, mut removed) = (Cost::default(), Cost::default(), Cost::default());
    for _ in 0..ROUNDS {
        put.apply(&mut executor, policy(rules(0)));
        replaced.apply(&mut executor, policy(rules(1_000)));
        removed.apply(&mut executor, Change::Remove { kind: ObjectKind::Policy, name: "wide".into() });
    }
    put.report(&format!("{bench}.put"));
    replaced.report(&format!("{bench}.replaced"));
    removed.report(&format!("{bench}.removed"));
    executor.stop().expect("the table can go");
}

/// All peers, in this many sets.
fn sets(count: u32) -> Vec<Change> {
    let of = |number: u32| (number * (MEMBERS / count)..(number + 1) * (MEMBERS / count)).map(peer).collect();
    (0..count).map(|number| set(SetKind::Address, format!("peers-{number}"), of(number))).collect()
}

fn one_port(port: u16) -> RuleDetail {
    range(port, 0)
}

pub fn range(port: u16, more: u16) -> RuleDetail {
    let service = Service {
        port: Some(PortRef::Number(port)),
        end_port: (more > 0).then_some(port + more),
        ..Service::any(Protocol::Tcp)
    };
    RuleDetail { services: vec![service], ..RuleDetail::default() }
}

pub fn rule(sets: Vec<String>, detail: RuleDetail) -> Rule {
    Rule {
        direction: Direction::In,
        action: Some(Action::Allow),
        priority: -1,
        enable_logging: false,
        address_groups: sets.iter().map(|set| Identifier::parse(set)).collect(),
        applied_to_groups: Vec::new(),
        detail: detail.into(),
    }
}

fn policy(rules: Vec<Rule>) -> Change {
    Change::PutPolicy { name: "wide".into(), policy: Box::new(policy_of("wide", rules)) }
}

/// For every Pod.
pub fn policy_of(name: &str, rules: Vec<Rule>) -> NetworkPolicy {
    let uid = || Identifier::parse(name);
    let source =
        PolicySource { kind: Kind::NetworkPolicy, namespace: "n".into(), name: name.into(), uid: uid() };
    NetworkPolicy {
        uid: uid(),
        generation: 1,
        source,
        tier_priority: None,
        priority: None,
        rules,
        applied_to_groups: vec![Identifier::parse("pods")],
        applied_to_per_rule: false,
    }
}
