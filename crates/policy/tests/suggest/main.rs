//! `suggest`: random worlds with a policy that is known, and what was seen under it. The suggestion permits all that was seen, nothing
//! that the known policy forbids, and is at most as long.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::collections::BTreeSet;

use model::{
    Open,
    policy::{
        LabelSelector, Labels, Object, ObjectMeta,
        kubernetes::{EgressRule, IngressRule, IntOrString, NetworkPolicy, NetworkPolicySpec, Peer, Port},
        output::{Direction, MemberKind, Protocol},
        validate,
        workload::{Pod, PodIp, PodSpec, PodStatus},
    },
};
use policy::{
    Engine, Event,
    explain::Endpoint,
    suggest::{Known, Seen, SeenEnd, Suggestion, length, suggest},
    survey::{Party, Survey},
};
use testkit::policies::random::Random;

const PORTS: [u16; 4] = [80, 443, 5432, 9090];

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Pods of a world, some alike but for what a controller made up.
struct World {
    pods: Vec<Pod>,
}

impl World {
    fn random(random: &mut Random) -> Self {
        let mut pods = Vec::new();
        for namespace in ["n0", "n1"] {
            for app in 0..2 + random.below(4) {
                let tier = random.pick(&["front", "back"]);
                // Of one Pod alone it is never seen whether it may talk to others like it.
                for copy in 0..2 + random.below(2) {
                    let number = pods.len() + 1;
                    let mut labels = labels(&[("app", &format!("{namespace}-a{app}")), ("tier", tier)]);
                    labels.insert("pod-template-hash".to_owned(), format!("h{copy}"));
                    let name = format!("p{number}");
                    let metadata =
                        ObjectMeta { name, namespace: namespace.to_owned(), labels, ..ObjectMeta::default() };
                    let status = PodStatus {
                        pod_ips: vec![PodIp { ip: format!("10.0.0.{number}") }],
                        ..PodStatus::default()
                    };
                    let spec = PodSpec { node_name: "n".to_owned(), ..PodSpec::default() };
                    pods.push(Pod { metadata, spec, status });
                }
            }
        }
        Self { pods }
    }

    fn known(&self) -> Vec<Known> {
        let known = |pod: &Pod| Known {
            namespace: pod.metadata.namespace.clone(),
            labels: pod.metadata.labels.clone(),
        };
        self.pods.iter().map(known).collect()
    }

    /// What is open between all pairs under policies.
    fn survey(&self, policies: &[NetworkPolicy]) -> Survey {
        let mut engine = Engine::new();
        for pod in &self.pods {
            engine.handle_event(Event::Apply(&Object::Pod(pod.clone())));
        }
        for namespace in ["n0", "n1"] {
            let metadata = ObjectMeta { name: namespace.to_owned(), ..ObjectMeta::default() };
            engine.handle_event(Event::Apply(&Object::Namespace(model::policy::workload::Namespace {
                metadata,
            })));
        }
        for policy in policies {
            let object = Object::NetworkPolicy(policy.clone());
            assert_eq!(validate(&object), [], "{policy:#?}");
            engine.handle_event(Event::Apply(&object));
        }
        while engine.poll_update().is_some() {}
        let parties: Vec<Party> = self
            .pods
            .iter()
            .map(|pod| Party {
                endpoint: Endpoint::Workload {
                    kind: MemberKind::Pod,
                    namespace: pod.metadata.namespace.clone(),
                    name: pod.metadata.name.clone(),
                },
                resource: None,
            })
            .collect();
        engine.survey(&parties)
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let many = self.pods.len();
        (0..many).flat_map(move |a| (0..many).map(move |b| (a, b))).filter(|(a, b)| a != b)
    }
}

fn closed(namespace: &str) -> NetworkPolicy {
    policy(namespace, "closed", LabelSelector::default(), Vec::new())
}

fn policy(
    namespace: &str,
    name: &str,
    pod_selector: LabelSelector,
    ingress: Vec<IngressRule>,
) -> NetworkPolicy {
    let metadata =
        ObjectMeta { name: name.to_owned(), namespace: namespace.to_owned(), ..ObjectMeta::default() };
    let policy_types = vec!["Ingress".to_owned()];
    NetworkPolicy {
        metadata,
        spec: NetworkPolicySpec { pod_selector, policy_types, ingress, ..Default::default() },
    }
}

/// One policy for each of some apps, each port in one rule: nothing in it can be said in fewer words of its kind.
fn known_policies(world: &World, random: &mut Random) -> Vec<NetworkPolicy> {
    let mut policies = vec![closed("n0"), closed("n1")];
    let apps: BTreeSet<(String, String)> = world
        .pods
        .iter()
        .map(|pod| (pod.metadata.namespace.clone(), pod.metadata.labels.get("app").unwrap().clone()))
        .collect();
    let all: Vec<&(String, String)> = apps.iter().collect();
    for (namespace, app) in &apps {
        if random.percent(30) {
            continue;
        }
        let mut ports = PORTS.to_vec();
        let mut rules = Vec::new();
        for _ in 0..1 + random.below(2) {
            let port = ports.remove(random.below(ports.len()));
            let port = Port { port: Some(IntOrString::Int(port.into())), ..Port::default() };
            let peer = match random.below(4) {
                0 => Peer { pod_selector: Some(LabelSelector::default()), ..Peer::default() },
                1 => {
                    let tier = random.pick(&["front", "back"]);
                    let is_there = world.pods.iter().any(|pod| {
                        pod.metadata.namespace == *namespace
                            && pod.metadata.labels.get("tier").is_some_and(|is| is == tier)
                    });
                    if !is_there {
                        continue;
                    }
                    Peer { pod_selector: Some(LabelSelector::of_labels([("tier", tier)])), ..Peer::default() }
                }
                _ => {
                    let (other, app) = all[random.below(all.len())];
                    let pod_selector = Some(LabelSelector::of_labels([("app", app.as_str())]));
                    let namespaces =
                        LabelSelector::of_labels([("kubernetes.io/metadata.name", other.as_str())]);
                    let namespace_selector = (other != namespace).then_some(namespaces);
                    Peer { pod_selector, namespace_selector, ip_block: None }
                }
            };
            rules.push(IngressRule { ports: vec![port], from: vec![peer] });
        }
        if !rules.is_empty() {
            policies.push(policy(namespace, app, LabelSelector::of_labels([("app", app.as_str())]), rules));
        }
    }
    policies
}

fn end(pod: &Pod) -> SeenEnd {
    SeenEnd::Labelled(Known {
        namespace: pod.metadata.namespace.clone(),
        labels: pod.metadata.labels.clone(),
    })
}

fn seen(world: &World, survey: &Survey) -> Vec<Seen> {
    let mut seen = Vec::new();
    for (a, b) in world.pairs() {
        let open = survey.between(a, b).unwrap();
        for port in
            PORTS.into_iter().filter(|port| open.of(model::ProtocolClass::Tcp).contains(*port, 40_000))
        {
            let (from, to) = (end(&world.pods[a]), end(&world.pods[b]));
            seen.push(Seen { from, to, protocol: Some(Protocol::Tcp), port, count: 3 });
        }
    }
    seen
}

/// The same the other way round: who may come becomes whom one may go to.
fn turned(policies: &[NetworkPolicy]) -> Vec<NetworkPolicy> {
    let turn = |policy: &NetworkPolicy| {
        let mut policy = policy.clone();
        policy.spec.policy_types = vec!["Egress".to_owned()];
        let rules = std::mem::take(&mut policy.spec.ingress).into_iter();
        policy.spec.egress =
            rules.map(|IngressRule { ports, from }| EgressRule { ports, to: from }).collect();
        policy
    };
    policies.iter().map(turn).collect()
}

#[test]
fn egress_is_suggested_as_ingress_is() {
    let (mut with_traffic, mut together) = (0, 0);
    for seed in 1..=60 {
        let mut random = Random::new(seed);
        let world = World::random(&mut random);
        let inward = known_policies(&world, &mut random);
        let known = turned(&inward);
        let before = world.survey(&known);
        let seen_out = seen(&world, &before);
        if seen_out.is_empty() {
            continue;
        }
        with_traffic += 1;
        let suggested = policies(&suggest(&world.known(), &seen_out, None, Direction::Out));
        let after = world.survey(&suggested);
        let namespaces: BTreeSet<&str> =
            suggested.iter().map(|one| one.metadata.namespace.as_str()).collect();
        for (a, b) in world.pairs() {
            if namespaces.contains(world.pods[a].metadata.namespace.as_str()) {
                let [was, is]: [Open; 2] = [&before, &after].map(|survey| survey.between(a, b).unwrap());
                assert_eq!(was.to_string(), is.to_string(), "seed {seed}\n{suggested:#?}\n{known:#?}");
            }
        }
        let (said, was) = (length(&suggested), length(&known));
        assert!(said <= was, "seed {seed}: {said} > {was}\n{suggested:#?}\n{known:#?}");

        // Both directions at once, as two worlds' policies together: what was seen, and nothing that they forbid.
        let both = numbered(known_policies(&world, &mut random).into_iter().chain(suggested).collect());
        let known = world.survey(&both);
        let seen = seen(&world, &known);
        if seen.is_empty() {
            continue;
        }
        together += 1;
        let ways = [Direction::In, Direction::Out];
        let all: Vec<NetworkPolicy> =
            ways.into_iter().flat_map(|way| policies(&suggest(&world.known(), &seen, None, way))).collect();
        let after = world.survey(&numbered(all));
        for (a, b) in world.pairs() {
            let [was, is]: [Open; 2] = [&known, &after].map(|survey| survey.between(a, b).unwrap());
            for one in
                seen.iter().filter(|one| one.from == end(&world.pods[a]) && one.to == end(&world.pods[b]))
            {
                assert!(is.of(model::ProtocolClass::Tcp).contains(one.port, 40_000), "seed {seed}: {one:?}");
            }
            let is_said = |way: &str, at: usize| {
                let namespace = &world.pods[at].metadata.namespace;
                seen.iter().any(|one| {
                    let end = if way == "to" { &one.to } else { &one.from };
                    matches!(end, SeenEnd::Labelled(known) if known.namespace == *namespace)
                })
            };
            if is_said("from", a) && is_said("to", b) {
                assert_eq!(was.intersect(&is).to_string(), is.to_string(), "seed {seed}: more than is known");
            }
        }
    }
    assert!(with_traffic > 45 && together > 20, "{with_traffic} {together}");
}

/// Each under a name of its own.
fn numbered(policies: Vec<NetworkPolicy>) -> Vec<NetworkPolicy> {
    let named = |(number, mut policy): (usize, NetworkPolicy)| {
        policy.metadata.name = format!("policy-{number}");
        policy
    };
    policies.into_iter().enumerate().map(named).collect()
}

fn policies(suggestion: &Suggestion) -> Vec<NetworkPolicy> {
    suggestion.policies.iter().map(|one| one.policy.clone()).collect()
}

#[test]
fn what_is_suggested_is_what_was_seen_and_no_longer_than_what_is_known() {
    let (mut shorter, mut with_traffic) = (0, 0);
    for seed in 1..=100 {
        let mut random = Random::new(seed);
        let world = World::random(&mut random);
        let known = known_policies(&world, &mut random);
        let before = world.survey(&known);
        let mut seen = seen(&world, &before);
        if seen.is_empty() {
            continue;
        }
        with_traffic += 1;
        let suggestion = suggest(&world.known(), &seen, None, Direction::In);
        let suggested = policies(&suggestion);
        let after = world.survey(&suggested);
        let namespaces: BTreeSet<&str> =
            suggested.iter().map(|one| one.metadata.namespace.as_str()).collect();
        for (a, b) in world.pairs() {
            // Of a namespace to which nothing came nothing is said.
            if namespaces.contains(world.pods[b].metadata.namespace.as_str()) {
                let [was, is]: [Open; 2] = [&before, &after].map(|survey| survey.between(a, b).unwrap());
                let (from, to) = (&world.pods[a].metadata, &world.pods[b].metadata);
                assert_eq!(
                    was.to_string(),
                    is.to_string(),
                    "seed {seed}: {from:?} {to:?}\n{suggested:#?}\n{known:#?}"
                );
            }
        }
        let (said, was) = (length(&suggested), length(&known));
        assert!(said <= was, "seed {seed}: {said} > {was}\n{suggested:#?}\n{known:#?}");
        shorter += usize::from(said < was);
        // In whichever order, and of some of the Pods only.
        seen.reverse();
        assert_eq!(suggest(&world.known(), &seen, None, Direction::In), suggestion, "seed {seed}");
        let some: Vec<Seen> = seen.into_iter().filter(|_| random.percent(40)).collect();
        if some.is_empty() {
            continue;
        }
        let few = policies(&suggest(&world.known(), &some, None, Direction::In));
        let (few, few_in) = (
            world.survey(&few),
            few.iter().map(|one| one.metadata.namespace.clone()).collect::<BTreeSet<_>>(),
        );
        for (a, b) in world.pairs().filter(|(_, b)| few_in.contains(&world.pods[*b].metadata.namespace)) {
            let [was, is] = [&before, &few].map(|survey| survey.between(a, b).unwrap());
            assert_eq!(was.intersect(&is).to_string(), is.to_string(), "seed {seed}: more than is known");
            for one in
                some.iter().filter(|one| one.from == end(&world.pods[a]) && one.to == end(&world.pods[b]))
            {
                assert!(is.of(model::ProtocolClass::Tcp).contains(one.port, 40_000), "seed {seed}: {one:?}");
            }
        }
    }
    assert!(with_traffic > 80 && shorter > 10, "{with_traffic} {shorter}");
}

fn pod(namespace: &str, pairs: &[(&str, &str)]) -> Known {
    Known { namespace: namespace.to_owned(), labels: labels(pairs) }
}

fn tcp(from: SeenEnd, to: &Known, port: u16) -> Seen {
    Seen { from, to: SeenEnd::Labelled(to.clone()), protocol: Some(Protocol::Tcp), port, count: 1 }
}

#[test]
fn what_labels_cannot_say_is_told() {
    let (web, db) = (pod("shop", &[("app", "web")]), pod("shop", &[("app", "db")]));
    let outside: std::net::IpAddr = "198.51.100.7".parse().unwrap();
    let flows = [
        tcp(SeenEnd::Address(outside), &web, 443),
        Seen { to: SeenEnd::Address(outside), ..tcp(SeenEnd::Labelled(web.clone()), &db, 25) },
        Seen { protocol: Some(Protocol::Icmp), ..tcp(SeenEnd::Labelled(web.clone()), &db, 0) },
        tcp(SeenEnd::Labelled(web.clone()), &db, 5432),
    ];
    let suggestion = suggest(&[web, db, pod("shop", &[("app", "cron")])], &flows, None, Direction::In);
    let names: Vec<&str> = suggestion.policies.iter().map(|one| one.policy.metadata.name.as_str()).collect();
    assert_eq!(names, ["allow-to-db", "allow-to-web", "deny-the-rest"]);
    assert_eq!(
        suggestion.policies[1].policy.spec.ingress[0].from[0].ip_block.as_ref().unwrap().cidr,
        "198.51.100.7/32"
    );
    assert_eq!(suggestion.policies[0].because, ["shop/app=web to shop/app=db tcp 5432, 1 times"]);
    assert_eq!(suggestion.notes.len(), 3, "{:?}", suggestion.notes);
    assert!(suggestion.policies[2].because[0].contains("shop/app=cron"));
}

#[test]
fn one_that_has_fewer_labels_than_another_is_selected_alone() {
    let (plain, more) = (pod("n", &[("app", "x")]), pod("n", &[("app", "x"), ("tier", "y")]));
    let none = pod("n", &[]);
    let known = [plain.clone(), more.clone(), none.clone()];
    let flows = [tcp(SeenEnd::Labelled(more), &plain, 80)];
    let suggestion = suggest(&known, &flows, Some("n"), Direction::In);
    let selector = &suggestion.policies[0].policy.spec.pod_selector;
    let selected: Vec<bool> = known.iter().map(|pod| selector.matches(&pod.labels)).collect();
    assert_eq!(selected, [true, false, false], "{selector:?}");
    assert_eq!(suggest(&known, &flows, Some("other"), Direction::In).policies, []);
    assert_eq!(suggest(&[], &[], None, Direction::In), Suggestion::default());
}
