//! `explain` against a reading of the objects as they are written, one policy at a time.

mod evaluator;
mod surveys;

use std::sync::Arc;

use evaluator::{Connection, permits};
use model::policy::{Object, output::Protocol, validate};
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
        // Names of workloads decide nothing here, and every workload should be there to be asked about.
        object.metadata_mut().uid.clear();
        engine.handle_event(Event::Apply(&object));
        objects.0.insert(object.id(), object);
    }
    while engine.poll_update().is_some() {}
    objects
}

fn agree(seed: u64, worlds: usize) -> (usize, usize) {
    let mut random = Random::new(seed);
    let (mut permitted, mut denied) = (0, 0);
    for _ in 0..worlds {
        let mut engine = Engine::new();
        let objects = world(&mut random, &mut engine);
        let workloads = objects.workloads();
        let members: Vec<_> = workloads.iter().map(|(_, member)| Arc::clone(member)).collect();
        surveys::agree(seed, &engine, &members, &mut random);
        for _ in 0..60 {
            let (source, destination) = (random.below(workloads.len()), random.below(workloads.len()));
            let endpoint = |at: usize| Endpoint::Workload {
                kind: workloads[at].1.kind,
                namespace: workloads[at].1.namespace.to_string(),
                name: workloads[at].1.name.to_string(),
            };
            let (protocol, icmp) = match random.below(5) {
                0..2 => (Protocol::Tcp, None),
                2 => (Protocol::Udp, None),
                3 => (Protocol::Sctp, None),
                _ => (Protocol::Icmp, Some(([8, 0][random.below(2)], 0))),
            };
            let port = (protocol != Protocol::Icmp).then(|| [80, 53, 85, 1500][random.below(4)]);
            let query = Query {
                source: endpoint(source),
                destination: endpoint(destination),
                protocol: Some(protocol),
                port,
                source_port: None,
                icmp,
                family: None,
            };
            let connection = Connection::new(&objects, &workloads, source, destination, protocol, port, icmp);
            let expected = permits(&connection);
            let explained = engine.explain(&query).expect("both ends exist");
            let told = (explained.egress.allowed, explained.ingress.allowed);
            assert_eq!(told, expected, "seed {seed}: {query:?}\n{explained:#?}\n{:#?}", policies(&objects));
            assert_eq!(explained.allowed, expected.0 && expected.1);
            assert_eq!(explained.remedies.is_empty(), explained.allowed, "{explained:#?}");
            if explained.allowed { permitted += 1 } else { denied += 1 }
        }
    }
    (permitted, denied)
}

fn policies(objects: &Objects) -> Vec<&Object> {
    let is_policy = |object: &&Object| {
        matches!(
            object,
            Object::NetworkPolicy(_) | Object::AntreaNetworkPolicy(_) | Object::AntreaClusterNetworkPolicy(_)
        )
    };
    objects.0.values().filter(is_policy).collect()
}

#[test]
fn explain_agrees_with_the_naive_reading() {
    let (mut permitted, mut denied) = (0, 0);
    for seed in 1..=6 {
        let counts = agree(seed, 25);
        (permitted, denied) = (permitted + counts.0, denied + counts.1);
    }
    assert!(permitted > 1000 && denied > 1000, "the worlds are too much of one kind: {permitted} {denied}");
}
