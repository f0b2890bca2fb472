//! `lint`: what it says of policies that people write, and of random worlds that taking away what it reports changes nothing.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::collections::BTreeSet;

use model::policy::{Object, ObjectId, TypeMeta, output::Direction, validate};
use policy::{
    Engine, Event,
    explain::Endpoint,
    lint::{Finding, Idle},
    survey::Party,
};
use testkit::policies::{objects::Objects, random::Random};

fn engine<'o>(objects: impl IntoIterator<Item = &'o Object>) -> Engine {
    let mut engine = Engine::new();
    objects.into_iter().for_each(|object| engine.handle_event(Event::Apply(object)));
    while engine.poll_update().is_some() {}
    engine
}

fn read(text: &str) -> Vec<Object> {
    let documents = text.split("\n---\n").filter(|document| !document.trim().is_empty());
    let read = |document: &str| {
        let document = document.trim_start_matches("---");
        let types = serde_saphyr::from_str::<TypeMeta>(document).expect("a document has a kind");
        let kind = types.kind().expect("a kind that is known");
        let object =
            serde_saphyr::with_deserializer_from_str(document, |d| kind.deserialize(d)).expect("it parses");
        assert_eq!(validate(&object), [], "{document}");
        object
    };
    documents.map(read).collect()
}

const WORLD: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web, tier: front}},
 spec: {nodeName: n, containers: [{ports: [{name: http, containerPort: 80, protocol: TCP}]}]}, status: {podIPs: [{ip: 10.0.0.1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop, labels: {app: db}}, spec: {nodeName: n},
 status: {podIPs: [{ip: 10.0.0.2}]}}
"#;

fn told(text: &str) -> Vec<String> {
    let objects = [read(WORLD), read(text)].concat();
    let line = |finding: Finding| {
        let rule = finding.rule.map(|rule| format!(" {rule}")).unwrap_or_default();
        format!("{}{rule}: {}: {}", finding.policy.name, finding.problem, finding.proof.join(", "))
    };
    engine(&objects).lint(&BTreeSet::new()).into_iter().map(line).collect()
}

fn policy(name: &str, selector: &str, rest: &str) -> String {
    format!(
        "\n---\n{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: {name}, namespace: shop}}, \
         spec: {{podSelector: {selector}, {rest}}}}}\n"
    )
}

fn cluster_policy(name: &str, rest: &str) -> String {
    format!(
        "\n---\n{{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {{name: {name}}}, \
         spec: {{appliedTo: [{{podSelector: {{}}}}], {rest}}}}}\n"
    )
}

#[test]
fn a_rule_that_another_one_covers_is_told_with_it() {
    let wide =
        policy("wide", "{}", "ingress: [{from: [{podSelector: {}}], ports: [{port: 80, endPort: 90}]}]");
    let narrow = policy(
        "narrow",
        "{matchLabels: {app: db}}",
        "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 85}]}, {ports: [{port: 22}]}]",
    );
    assert_eq!(
        told(&(narrow + &wide)),
        ["narrow spec.ingress[0]: redundant: spec.ingress[0] of NetworkPolicy shop/wide"]
    );
}

#[test]
fn of_two_that_are_the_same_one_is_told() {
    let rule = "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]";
    let both = policy("a", "{}", rule) + &policy("b", "{}", rule);
    assert_eq!(told(&both), ["b spec.ingress[0]: redundant: spec.ingress[0] of NetworkPolicy shop/a"]);
    let objects = [read(WORLD), read(&both)].concat();
    let a = objects.iter().map(Object::id).find(|id| id.name == "a").unwrap();
    let asked = engine(&objects).lint(&[a.clone()].into());
    assert_eq!(asked.iter().map(|finding| &finding.policy).collect::<Vec<_>>(), [&a]);
}

#[test]
fn several_rules_together_cover_peers_and_ports_each_of_their_own() {
    let parts = policy(
        "parts",
        "{}",
        "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}, \
         {from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 80}]}]",
    );
    let whole = policy(
        "whole",
        "{matchLabels: {app: db}}",
        "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}, {podSelector: {matchLabels: {app: db}}}], ports: [{port: 80}]}]",
    );
    assert_eq!(
        told(&(parts + &whole)),
        ["whole spec.ingress[0]: redundant: spec.ingress[0] of NetworkPolicy shop/parts, \
          spec.ingress[1] of NetworkPolicy shop/parts"]
    );
}

#[test]
fn rules_behind_one_that_decides_are_shadowed() {
    let drop = "{action: Drop, from: [{podSelector: {}}]}";
    let allow = "{action: Allow, from: [{podSelector: {matchLabels: {app: web}}}]}";
    let text = cluster_policy("first", &format!("tier: platform, priority: 5, ingress: [{drop}]"))
        + &cluster_policy("second", &format!("tier: application, priority: 5, ingress: [{allow}, {drop}]"));
    assert_eq!(
        told(&text),
        [
            "second spec.ingress[0]: shadowed: spec.ingress[0] of AntreaClusterNetworkPolicy first drops it before",
            "second spec.ingress[1]: redundant: spec.ingress[0] of AntreaClusterNetworkPolicy first drops it before",
        ]
    );
}

#[test]
fn what_tiers_decide_does_not_get_to_kubernetes_policies_unless_it_may_be_passed_on() {
    let permits = policy("permits", "{}", "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]");
    let drops = "{action: Drop, from: [{podSelector: {}}]}";
    let passes = "{action: Pass, from: [{podSelector: {matchLabels: {app: web}}}]}";
    let tier =
        |rules: &str| cluster_policy("tier", &format!("tier: platform, priority: 5, ingress: [{rules}]"));
    assert_eq!(
        told(&(permits.clone() + &tier(drops))),
        [
            "permits spec.ingress[0]: unused: spec.ingress[0] of AntreaClusterNetworkPolicy tier drops it before"
        ]
    );
    assert_eq!(told(&(permits + &tier(&format!("{passes}, {drops}")))), Vec::<String>::new());
}

#[test]
fn baseline_rules_are_unused_where_policies_isolate() {
    let baseline = cluster_policy("base", "tier: baseline, priority: 5, ingress: [{action: Drop}]");
    let isolates = |selector: &str| policy("isolates", selector, "policyTypes: [Ingress]");
    assert_eq!(told(&(baseline.clone() + &isolates("{matchLabels: {app: db}}"))), Vec::<String>::new());
    let across = cluster_policy("base", "tier: baseline, priority: 5, ingress: [{action: Drop}]").replace(
        "[{podSelector: {}}]",
        "[{podSelector: {matchLabels: {app: db}}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}]",
    );
    // A selector over namespaces is not known to stay in one.
    assert_eq!(told(&(across + &isolates("{}"))), Vec::<String>::new());
    let own = "\n---\n{apiVersion: crd.antrea.io/v1beta1, kind: NetworkPolicy, metadata: {name: own, namespace: shop}, \
               spec: {appliedTo: [{podSelector: {matchLabels: {app: db}}}], tier: baseline, priority: 5, \
               ingress: [{action: Drop}]}}\n";
    assert_eq!(
        told(&(own.to_owned() + &isolates("{}"))),
        ["own spec.ingress[0]: unused: NetworkPolicy shop/isolates isolates all that it is applied to"]
    );
}

#[test]
fn who_is_not_there_is_told() {
    let text = policy("gone", "{matchLabels: {app: cache}}", "ingress: [{}]")
        + &policy(
            "peers",
            "{matchLabels: {app: db}}",
            "ingress: [{from: [{podSelector: {matchLabels: {app: none}}}]}, {from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]",
        )
        + &policy(
            "ports",
            "{matchLabels: {app: web}}",
            "ingress: [{ports: [{port: https}]}, {ports: [{port: http}]}]",
        );
    assert_eq!(
        told(&text),
        [
            "gone: selects nobody: no workload that is there is selected",
            "peers spec.ingress[0]: matches nothing: its peers are no workload that is there",
            "ports spec.ingress[0]: matches nothing: no destination of it has a port called https",
        ]
    );
}

#[test]
fn what_is_needed_and_what_is_at_fault_is_left_alone() {
    let text = policy(
        "open",
        "{matchLabels: {app: web}}",
        "ingress: [{ports: [{port: 80}]}, {ports: [{port: 81}]}], egress: [{}]",
    ) + &policy("closed", "{matchLabels: {app: db}}", "policyTypes: [Ingress, Egress]");
    assert_eq!(told(&text), Vec::<String>::new());
}

/// A world in which rules cover each other: policies, and copies of them that say part of the same.
fn world(random: &mut Random) -> Objects {
    let mut objects = Objects::default();
    for _ in 0..140 {
        let mut object = random.object();
        object.metadata_mut().uid.clear();
        if !validate(&object).is_empty() {
            continue;
        }
        if object.kind().is_policy() && random.percent(60) {
            let mut copy = object.clone();
            copy.metadata_mut().name.push_str("-copy");
            part(&mut copy, random);
            if validate(&copy).is_empty() {
                objects.0.insert(copy.id(), copy);
            }
        }
        objects.0.insert(object.id(), object);
    }
    if random.percent(30) {
        // Somebody has the last word before all others.
        let last = cluster_policy(
            "first",
            "tier: emergency, priority: 1, ingress: [{action: Drop, from: [{podSelector: {}}]}]",
        );
        let last = read(&last).remove(0);
        objects.0.insert(last.id(), last);
    }
    objects
}

/// Takes away some of what a policy says, so that it is often about less.
fn part(object: &mut Object, random: &mut Random) {
    match object {
        Object::NetworkPolicy(policy) => {
            let spec = &mut policy.spec;
            if random.percent(50) {
                spec.pod_selector.match_labels.insert("app".into(), "web".into());
            }
            for rule in &mut spec.ingress {
                rule.from.truncate(1 + random.below(2));
            }
            for rule in &mut spec.egress {
                rule.to.truncate(1 + random.below(2));
            }
        }
        Object::AntreaNetworkPolicy(policy) | Object::AntreaClusterNetworkPolicy(policy) => {
            policy.spec.priority += [0.0, 1.0][random.below(2)];
            for rule in policy.spec.ingress.iter_mut().chain(&mut policy.spec.egress) {
                rule.ports.truncate(1 + random.below(2));
                if random.percent(50) {
                    rule.action = random.pick(&["Allow", "Drop"]).into();
                }
            }
        }
        _ => {}
    }
}

fn without(objects: &Objects, findings: &[&Finding]) -> Objects {
    let mut objects = objects.clone();
    let mut gone: Vec<(ObjectId, Direction, usize)> = findings
        .iter()
        .filter_map(|finding| {
            let rule = finding.rule?;
            Some((finding.policy.clone(), rule.direction, rule.index))
        })
        .collect();
    // From behind, so that places stay what they are.
    gone.sort_by(|a, b| b.cmp(a));
    for (id, direction, index) in gone {
        match (objects.0.get_mut(&id).expect("findings are of policies that are there"), direction) {
            (Object::NetworkPolicy(policy), Direction::In) => drop(policy.spec.ingress.remove(index)),
            (Object::NetworkPolicy(policy), Direction::Out) => drop(policy.spec.egress.remove(index)),
            (Object::AntreaNetworkPolicy(policy) | Object::AntreaClusterNetworkPolicy(policy), direction) => {
                let rules = match direction {
                    Direction::In => &mut policy.spec.ingress,
                    Direction::Out => &mut policy.spec.egress,
                };
                rules.remove(index);
            }
            (other, _) => panic!("{:?} has no such rules", other.id()),
        }
    }
    objects
}

/// What is open between all pairs.
fn matrix(objects: &Objects) -> Vec<String> {
    let engine = engine(objects.0.values());
    let workloads = objects.workloads();
    let parties: Vec<Party> = workloads
        .iter()
        .map(|(_, member)| {
            let (namespace, name) = (member.namespace.to_string(), member.name.to_string());
            Party { endpoint: Endpoint::Workload { kind: member.kind, namespace, name }, resource: None }
        })
        .collect();
    let survey = engine.survey(&parties);
    let pairs = (0..parties.len()).flat_map(|a| (0..parties.len()).map(move |b| (a, b)));
    pairs
        .map(|(a, b)| {
            let open = survey.between(a, b).expect("both ends are known");
            format!("{} to {}: {open}", workloads[a].1, workloads[b].1)
        })
        .collect()
}

fn differs(seed: u64, before: &Objects, after: &Objects, findings: &[&Finding]) {
    let (before, after) = (matrix(before), matrix(after));
    let changed: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
    assert!(changed.is_empty(), "seed {seed}: {findings:#?}\nchanged {changed:#?}");
}

#[test]
fn taking_away_what_is_covered_changes_nothing_now_or_later() {
    let (mut redundant, mut shadowed, mut unused) = (0, 0, 0);
    for seed in 1..=60 {
        let mut random = Random::new(seed);
        let objects = world(&mut random);
        let findings = engine(objects.0.values()).lint(&BTreeSet::new());
        let covered: Vec<&Finding> = findings.iter().filter(|finding| finding.problem.is_covered()).collect();
        for finding in &covered {
            assert!(!finding.proof.is_empty(), "seed {seed}: {finding:?}");
            match finding.problem {
                Idle::Redundant => redundant += 1,
                Idle::Shadowed => shadowed += 1,
                _ => unused += 1,
            }
        }
        if covered.is_empty() {
            continue;
        }
        let all = without(&objects, &covered);
        differs(seed, &objects, &all, &covered);
        let one = covered[random.below(covered.len())];
        differs(seed, &objects, &without(&objects, &[one]), &[one]);
        // Whoever comes.
        let (mut later, mut later_without) = (objects.clone(), all);
        for number in 0..15 {
            let mut pod = random.pod();
            pod.metadata_mut().name = format!("later-{number}");
            pod.metadata_mut().uid.clear();
            later.0.insert(pod.id(), pod.clone());
            later_without.0.insert(pod.id(), pod);
        }
        differs(seed, &later, &later_without, &covered);
    }
    assert!(redundant > 50 && shadowed > 10 && unused > 3, "{redundant} {shadowed} {unused}");
}

/// The worlds can tell: taking away a rule that is not reported does change something now and then.
#[test]
fn taking_away_what_is_not_reported_changes_something() {
    let mut changed = 0;
    for seed in 1..=40 {
        let mut random = Random::new(seed);
        let objects = world(&mut random);
        let findings = engine(objects.0.values()).lint(&BTreeSet::new());
        let told = |id: &ObjectId| findings.iter().any(|finding| finding.policy == *id);
        let innocent = objects.0.values().find_map(|object| match object {
            Object::NetworkPolicy(policy) if !told(&object.id()) && !policy.spec.ingress.is_empty() => {
                Some(object.id())
            }
            _ => None,
        });
        let Some(id) = innocent else { continue };
        let mut without = objects.clone();
        if let Some(Object::NetworkPolicy(policy)) = without.0.get_mut(&id) {
            policy.spec.ingress.remove(0);
        }
        changed += usize::from(matrix(&objects) != matrix(&without));
    }
    assert!(changed > 3, "{changed}");
}

#[test]
fn the_findings_do_not_depend_on_the_order_of_events() {
    let mut random = Random::new(7);
    let objects = world(&mut random);
    let forward = engine(objects.0.values()).lint(&BTreeSet::new());
    assert_eq!(forward, engine(objects.0.values().rev()).lint(&BTreeSet::new()));
}
