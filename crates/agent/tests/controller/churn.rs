//! Many agents that come and go while objects change: in the end each holds exactly what it should.
//!
//! `TRESTLE_CHURN_AGENTS` and `TRESTLE_CHURN_SECONDS` make it long.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use agent::Agent;
use server::transport::objects;
use transport::{Change, SpanChange};
use wire::trestle::v1::ObjectKind;

use testkit_controllers::{
    agents::{Node, Objects},
    nodes::{Harness, change, eventually, nodes, policy, set},
};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// What there is, and for whom. None: for everyone.
#[derive(Default)]
struct Oracle {
    objects: BTreeMap<String, (BTreeSet<String>, Option<BTreeSet<String>>)>,
    random: fastrand::Rng,
}

impl Oracle {
    fn expected(&self, node: &str) -> Objects {
        let mine =
            self.objects.iter().filter(|(_, (_, span))| span.as_ref().is_none_or(|s| s.contains(node)));
        mine.map(|(name, (content, _))| (name.clone(), content.clone())).collect()
    }

    fn span(&mut self, agents: u64) -> (SpanChange, Option<BTreeSet<String>>) {
        if self.random.u8(..) < 40 {
            return (SpanChange::Everyone, None);
        }
        let names: BTreeSet<String> =
            (0..self.random.u64(1..8)).map(|_| format!("n{}", self.random.u64(..agents))).collect();
        let refs: Vec<&str> = names.iter().map(String::as_str).collect();
        (nodes(&refs), Some(names))
    }

    /// One random change, noted here and said to the controller.
    fn next(&mut self, agents: u64) -> Change {
        let name = format!("o{}", self.random.u64(..100));
        let is_set = name.ends_with(['0', '1', '2', '3', '4']);
        let known = self.objects.contains_key(&name);
        match self.random.u8(..10) {
            0 if known => {
                self.objects.remove(&name);
                objects::remove(if is_set { ObjectKind::AddressSet } else { ObjectKind::Policy }, &name)
            }
            1..6 if known && is_set => {
                let (put, gone) =
                    (format!("m{}", self.random.u8(..30)), format!("m{}", self.random.u8(30..60)));
                let (members, _) = self.objects.get_mut(&name).unwrap();
                members.remove(&gone);
                members.insert(put.clone());
                change(&name, &[&put], &[&gone])
            }
            _ if is_set => {
                let members: BTreeSet<_> =
                    (0..self.random.u8(..6)).map(|_| format!("m{}", self.random.u8(..60))).collect();
                let (span, names) = self.span(agents);
                let refs: Vec<_> = members.iter().map(String::as_str).collect();
                let change = set(&name, &refs, span);
                self.objects.insert(name, (members, names));
                change
            }
            _ => {
                let generation = self.random.i64(1..1000);
                let (span, names) = self.span(agents);
                let change = policy(&name, generation, span);
                self.objects.insert(name, ([generation.to_string()].into(), names));
                change
            }
        }
    }
}

/// Starts and ends agents of one node at random, and leaves the last one running.
async fn live(node: Node, until: Instant, seed: u64) -> Agent {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let agent = node.start().await;
        let pause = Duration::from_millis(random.u64(5..4_000));
        if Instant::now() + pause >= until {
            tokio::time::sleep_until(until.into()).await;
            return agent;
        }
        tokio::time::sleep(pause).await;
        // Half of them go properly, half just go.
        if random.bool() { agent.stop().await.unwrap() } else { drop(agent) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_come_and_go_end_with_what_they_should_hold() {
    let agents = number("TRESTLE_CHURN_AGENTS", 30);
    let seconds = number("TRESTLE_CHURN_SECONDS", 6);
    let harness = Harness::synced().await;
    let mut all = Vec::new();
    for n in 0..agents {
        all.push(Node::new(&harness, &format!("n{n}")).await);
    }
    let seed = number("TRESTLE_CHURN_SEED", 1);
    println!("{agents} agents for {seconds} s, TRESTLE_CHURN_SEED={seed}");
    let until = Instant::now() + Duration::from_secs(seconds);
    let lives: Vec<_> =
        (0..).zip(&all).map(|(n, node)| tokio::spawn(live(node.clone(), until, seed ^ n))).collect();
    let mut oracle = Oracle { random: fastrand::Rng::with_seed(seed), ..Oracle::default() };
    let (mut harness, mut restarts) = (harness, 0);
    while Instant::now() < until {
        let changes: Vec<_> = (0..oracle.random.u64(1..6)).map(|_| oracle.next(agents)).collect();
        harness.publish(changes);
        tokio::time::sleep(Duration::from_millis(oracle.random.u64(1..30))).await;
        // The controller goes too, once, and says all anew before it is in sync.
        if restarts == 0 && until - Instant::now() < Duration::from_secs(seconds / 2) {
            restarts += 1;
            harness = harness.restart().await;
            harness.publish(oracle.objects.iter().map(|(name, (content, span))| {
                let refs: Vec<_> = content.iter().map(String::as_str).collect();
                let span = match span {
                    None => SpanChange::Everyone,
                    Some(names) => nodes(&names.iter().map(String::as_str).collect::<Vec<_>>()),
                };
                match name.ends_with(['0', '1', '2', '3', '4']) {
                    true => set(name, &refs, span),
                    false => policy(name, refs[0].parse().unwrap(), span),
                }
            }));
            harness.source.synced();
        }
    }
    let mut running = Vec::new();
    for life in lives {
        running.push(life.await.unwrap());
    }
    for (node, agent) in all.iter().zip(running) {
        let expected = oracle.expected(&node.name);
        eventually(&format!("{} in sync", node.name), || agent.local().status().synced).await;
        eventually(&format!("{} holding {expected:?}", node.name), || node.part.objects() == expected).await;
        let held: BTreeSet<_> =
            agent.local().worker.objects().await.unwrap().into_iter().map(|object| object.name).collect();
        assert_eq!(held, expected.into_keys().collect());
        agent.stop().await.unwrap();
    }
    let harness = Arc::new(harness);
    eventually("all streams closed", || harness.controller.transport().hub.stats().sessions == 0).await;
}
