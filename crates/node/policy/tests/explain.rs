//! Objects as users write them, through the engine to the planes of all nodes: a packet passes them if `explain` says that
//! it is permitted.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::collections::{BTreeMap, BTreeSet};

use model::policy::{
    output::{Member, MemberKind, NetworkPolicy, Protocol},
    validate,
};
use node_policy::{Change, Decision, L4, LocalChange, Options, Packet, Plane, SetKind, Workload, WorkloadId};
use policy::{
    Engine, Event,
    explain::{Endpoint, Query},
};
use testkit::policies::{objects::Objects, random::Random};

fn world(random: &mut Random, engine: &mut Engine) -> Objects {
    let mut objects = Objects::default();
    for _ in 0..120 {
        let mut object = random.object();
        // What is not valid fails closed, which other tests look at.
        if !validate(&object).is_empty() {
            continue;
        }
        object.metadata_mut().uid.clear();
        engine.handle_event(Event::Apply(&object));
        while engine.poll_update().is_some() {}
        // Policies for a Service's node ports are reported, not enforced.
        let is_service =
            |group: &policy::GroupView| group.members.iter().any(|one| one.kind == MemberKind::Service);
        let view = engine.view();
        if view.policies.iter().any(is_only_noted) || view.applied_to_groups.iter().any(is_service) {
            engine.handle_event(Event::Delete(&object.id()));
            objects.0.remove(&object.id());
        } else {
            objects.0.insert(object.id(), object);
        }
    }
    while engine.poll_update().is_some() {}
    objects
}

/// A plane for each node, told what the node protocol would tell it.
fn planes(engine: &Engine, members: &[Member]) -> BTreeMap<String, Plane> {
    let nodes: BTreeSet<&str> = members.iter().filter_map(|member| member.node.as_deref()).collect();
    let plane = |node: &str| {
        let view = engine.view_of_node(node);
        let set = |kind, group: &policy::GroupView| {
            let put = group.members.iter().map(|member| match kind {
                SetKind::Address => Member { node: None, ..(**member).clone() },
                SetKind::AppliedTo => Member { addresses: [].into_iter().collect(), ..(**member).clone() },
            });
            let (name, put) = (group.name.to_string(), put.collect());
            Change::PutSet { kind, name, replace: true, put, removed: Vec::new() }
        };
        let mut changes: Vec<Change> =
            view.applied_to_groups.iter().map(|group| set(SetKind::AppliedTo, group)).collect();
        changes.extend(view.address_groups.iter().map(|group| set(SetKind::Address, group)));
        changes.extend(view.policies.iter().map(|policy| Change::PutPolicy {
            name: policy.uid.to_string(),
            policy: Box::new(policy.clone()),
        }));
        let here = members.iter().filter(|member| member.enforced && member.node.as_deref() == Some(node));
        let local: Vec<LocalChange> = here
            .map(|member| {
                LocalChange::Put(Workload::new(WorkloadId::of(member), member.addresses.as_slice()))
            })
            .collect();
        let mut plane = Plane::new(Options { node: node.into(), ..Options::default() });
        plane.step(changes, local);
        plane
    };
    nodes.into_iter().map(|node| (node.to_owned(), plane(node))).collect()
}

/// What `explain` only notes.
fn is_only_noted(policy: &NetworkPolicy) -> bool {
    policy.rules.iter().any(|rule| {
        let detail = &rule.detail;
        !detail.fqdns.is_empty() || !detail.to_services.is_empty() || !detail.l7_protocols.is_empty()
    })
}

fn agree(seed: u64, worlds: usize) -> (usize, usize) {
    let mut random = Random::new(seed);
    let (mut permitted, mut denied) = (0, 0);
    for _ in 0..worlds {
        let mut engine = Engine::new();
        let objects = world(&mut random, &mut engine);
        let members: Vec<Member> =
            objects.workloads().into_iter().map(|(_, member)| (*member).clone()).collect();
        let planes = planes(&engine, &members);
        for _ in 0..400 {
            let (source, destination) = (random.below(members.len()), random.below(members.len()));
            let endpoint = |at: usize| Endpoint::Workload {
                kind: members[at].kind,
                namespace: members[at].namespace.to_string(),
                name: members[at].name.to_string(),
            };
            let (protocol, number) =
                [(Protocol::Tcp, 6), (Protocol::Tcp, 6), (Protocol::Udp, 17), (Protocol::Sctp, 132)]
                    [random.below(4)];
            let port = [80, 53, 85, 1500][random.below(4)];
            let query = Query {
                source: endpoint(source),
                destination: endpoint(destination),
                protocol: Some(protocol),
                port: Some(port),
                source_port: None,
                icmp: None,
                family: None,
            };
            let explained = engine.explain(&query).unwrap();
            // What it cannot decide, and addresses that several workloads claim.
            if !explained.notes.is_empty() {
                continue;
            }
            let (Some(from), Some(to)) = (explained.source.address, explained.destination.address) else {
                continue;
            };
            let claims =
                |address| members.iter().filter(|one| one.addresses.as_slice().contains(&address)).count();
            if from.is_ipv6() != to.is_ipv6() || from == to || claims(from) > 1 || claims(to) > 1 {
                continue;
            }
            let l4 = L4 { protocol: number, first: 40_000, second: port };
            let packet = Packet { source: from, destination: to, l4 };
            let passes = planes.values().all(|plane| plane.decide(&packet) == Decision::Permit);
            assert_eq!(
                passes,
                explained.allowed,
                "seed {seed}: {query:?}\n{explained:#?}\n{:#?}",
                engine.view()
            );
            if passes { permitted += 1 } else { denied += 1 }
        }
    }
    (permitted, denied)
}

#[test]
fn planes_agree_with_explain() {
    let (mut permitted, mut denied) = (0, 0);
    for seed in 1..=8 {
        let counts = agree(seed, 25);
        (permitted, denied) = (permitted + counts.0, denied + counts.1);
    }
    assert!(permitted > 300 && denied > 200, "the worlds are too much of one kind: {permitted} {denied}");
}
