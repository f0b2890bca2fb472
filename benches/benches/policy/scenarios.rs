//! The objects of each scenario, as the published performance tests of the Antrea controller define them.

use std::net::Ipv4Addr;

use model::policy::{
    LabelSelector, Labels, Object, ObjectMeta,
    antrea::{self, AppliedTo, Policy, PolicySpec},
    external::{Endpoint, EntityPort, ExternalEntity, ExternalEntitySpec},
    kubernetes::{EgressRule, IngressRule, NetworkPolicy, NetworkPolicySpec, Peer},
    workload::{Namespace, Pod, PodIp, PodSpec, PodStatus},
};

const NODES: usize = 1_000;

/// P1: 25,000 namespaces of 3 policies and 4 Pods.
pub(crate) fn small_namespaces() -> Vec<Object> {
    namespaces_of_two_apps(25_000, NODES, 4)
}

/// 5,000 nodes, 500,000 Pods, 100,000 policies.
pub(crate) fn five_thousand_nodes() -> Vec<Object> {
    namespaces_of_two_apps(33_334, 5_000, 15)
}

fn namespaces_of_two_apps(namespaces: usize, nodes: usize, pods: usize) -> Vec<Object> {
    let mut objects = Vec::new();
    for n in 0..namespaces {
        let ns = format!("ns-{n}");
        objects.push(namespace(&ns, &[("app", &ns)]));
        objects.push(policy(
            &ns,
            "default-deny-all",
            n * 3,
            NetworkPolicySpec {
                policy_types: vec!["Ingress".into(), "Egress".into()],
                ..NetworkPolicySpec::default()
            },
        ));
        for i in 1..=2 {
            let label = (format!("app-{i}"), format!("scale-{i}"));
            objects.push(policy(&ns, &format!("np-{i}"), n * 3 + i, among(&[(&label.0, &label.1)])));
        }
        for p in 0..pods {
            let i = p % 2 + 1;
            let seed = n * pods + p;
            let label = (format!("app-{i}"), format!("scale-{i}"));
            objects.push(pod(&ns, &format!("pod-{p}"), &[(&label.0, &label.1)], spread(seed, nodes), seed));
        }
    }
    objects
}

/// P2: 100 namespaces of 101 policies and 1,000 Pods in 100 apps.
pub(crate) fn large_namespaces() -> Vec<Object> {
    let mut objects = Vec::new();
    for n in 0..100 {
        let ns = format!("ns-{n}");
        objects.push(namespace(&ns, &[("app", &ns)]));
        objects.push(policy(
            &ns,
            "default-deny-all",
            n * 101,
            NetworkPolicySpec {
                policy_types: vec!["Ingress".into(), "Egress".into()],
                ..NetworkPolicySpec::default()
            },
        ));
        for app in 0..100 {
            let label = (format!("app-{app}"), format!("scale-{app}"));
            objects.push(policy(
                &ns,
                &format!("np-{app}"),
                n * 101 + app + 1,
                among(&[(&label.0, &label.1)]),
            ));
            for p in 0..10 {
                let seed = (n * 100 + app) * 10 + p;
                let name = format!("pod-{app}-{p}");
                objects.push(pod(&ns, &name, &[(&label.0, &label.1)], spread(seed, NODES), seed));
            }
        }
    }
    objects
}

/// P3: one namespace, 10,000 Pods that are all alike, 10,000 policies that all say the same.
pub(crate) fn one_namespace() -> Vec<Object> {
    let mut objects = vec![namespace("ns-0", &[("app", "ns-0")])];
    objects.extend((0..10_000).map(|p| policy("ns-0", &format!("np-{p}"), p, among(&[("app", "scale")]))));
    objects.extend(
        (0..10_000).map(|p| pod("ns-0", &format!("pod-{p}"), &[("app", "scale")], spread(p, NODES), p)),
    );
    objects
}

/// P4: one namespace, 10,000 Pods with labels of their own, a policy from each Pod to its neighbour.
pub(crate) fn policy_per_pod() -> Vec<Object> {
    let mut objects = vec![namespace("ns-0", &[("app", "ns-0")])];
    for p in 0..10_000 {
        let own = [("user".to_string(), format!("user-{p}")), ("app".into(), format!("app-{p}"))];
        let other = format!("user-{}", p ^ 1);
        let spec = NetworkPolicySpec {
            pod_selector: LabelSelector::of_labels(own[..1].to_vec()),
            policy_types: vec!["Ingress".into(), "Egress".into()],
            ingress: vec![IngressRule { ports: vec![], from: vec![pods(&[("user", &other)])] }],
            egress: vec![EgressRule { ports: vec![], to: vec![pods(&[("user", &other)])] }],
        };
        objects.push(policy("ns-0", &format!("np-{p}"), p, spec));
        let labels = [(own[0].0.as_str(), own[0].1.as_str()), (own[1].0.as_str(), own[1].1.as_str())];
        objects.push(pod("ns-0", &format!("pod-{p}"), &labels, spread(p, NODES), p));
    }
    objects
}

/// P5: one namespace, 10,000 external entities nobody enforces for, an Antrea policy for each.
pub(crate) fn policy_per_external_entity() -> Vec<Object> {
    let mut objects = vec![namespace("ns-0", &[("app", "ns-0")])];
    for e in 0..10_000 {
        let (own, other) = (format!("entity-{e}"), format!("entity-{}", e ^ 1));
        let selector = |name: &str| Some(LabelSelector::of_labels([("name", name)]));
        let peer = antrea::Peer { external_entity_selector: selector(&other), ..antrea::Peer::default() };
        let rule = |from: Vec<antrea::Peer>, to: Vec<antrea::Peer>| antrea::Rule {
            action: "Allow".into(),
            from,
            to,
            ..antrea::Rule::default()
        };
        let spec = PolicySpec {
            priority: 10.0,
            applied_to: vec![AppliedTo { external_entity_selector: selector(&own), ..AppliedTo::default() }],
            ingress: vec![rule(vec![peer.clone()], vec![])],
            egress: vec![rule(vec![], vec![peer])],
            ..PolicySpec::default()
        };
        let metadata = metadata("ns-0", &format!("np-{e}"), &[], Some(e));
        objects.push(Object::AntreaNetworkPolicy(Policy { metadata, spec }));
        objects.push(Object::ExternalEntity(ExternalEntity {
            metadata: metadata_of("ns-0", &own, &[("name", &own)]),
            spec: ExternalEntitySpec {
                endpoints: vec![Endpoint { ip: address(e), name: String::new() }],
                ports: vec![EntityPort { protocol: "TCP".into(), port: 80, name: "http".into() }],
                external_node: String::new(),
            },
        }));
    }
    objects
}

/// P6: 1,000 namespaces of 100 companies, 100 Pods each, 10,000 policies whose peers are Pods of a company's namespaces.
pub(crate) fn cluster_scoped() -> Vec<Object> {
    let mut objects = Vec::new();
    for n in 0..1_000 {
        let (ns, company) = (format!("ns-{n}"), format!("company-{}", n % 100));
        objects.push(namespace(&ns, &[("company", &company)]));
        for p in 0..10 {
            let app = format!("app-{p}");
            let peer = Peer {
                namespace_selector: Some(LabelSelector::of_labels([("company", company.as_str())])),
                pod_selector: Some(LabelSelector::of_labels([("app", app.as_str())])),
                ip_block: None,
            };
            let spec = NetworkPolicySpec {
                pod_selector: LabelSelector::of_labels([("app", app.as_str())]),
                policy_types: vec!["Ingress".into(), "Egress".into()],
                ingress: vec![IngressRule { ports: vec![], from: vec![peer.clone()] }],
                egress: vec![EgressRule { ports: vec![], to: vec![peer] }],
            };
            objects.push(policy(&ns, &format!("np-{p}"), n * 10 + p, spec));
        }
        for p in 0..100 {
            let (seed, app) = (n * 100 + p, format!("app-{}", p % 10));
            objects.push(pod(&ns, &format!("pod-{p}"), &[("app", &app)], spread(seed, NODES), seed));
        }
    }
    objects
}

/// Pods with these labels may talk among themselves.
fn among(labels: &[(&str, &str)]) -> NetworkPolicySpec {
    NetworkPolicySpec {
        pod_selector: LabelSelector::of_labels(labels.iter().copied()),
        policy_types: vec!["Ingress".into(), "Egress".into()],
        ingress: vec![IngressRule { ports: vec![], from: vec![pods(labels)] }],
        egress: vec![EgressRule { ports: vec![], to: vec![pods(labels)] }],
    }
}

fn pods(labels: &[(&str, &str)]) -> Peer {
    Peer { pod_selector: Some(LabelSelector::of_labels(labels.iter().copied())), ..Peer::default() }
}

fn namespace(name: &str, labels: &[(&str, &str)]) -> Object {
    Object::Namespace(Namespace { metadata: metadata_of("", name, labels) })
}

fn policy(namespace: &str, name: &str, seed: usize, spec: NetworkPolicySpec) -> Object {
    Object::NetworkPolicy(NetworkPolicy { metadata: metadata(namespace, name, &[], Some(seed)), spec })
}

pub(crate) fn pod(namespace: &str, name: &str, labels: &[(&str, &str)], node: usize, seed: usize) -> Object {
    let mut metadata = metadata_of(namespace, name, labels);
    metadata.uid = uid(seed, 2);
    let ip = address(seed);
    Object::Pod(Pod {
        metadata,
        spec: PodSpec { node_name: format!("Node-{node}"), ..PodSpec::default() },
        status: PodStatus {
            phase: "Running".into(),
            pod_ip: ip.clone(),
            pod_ips: vec![PodIp { ip }],
            ..PodStatus::default()
        },
    })
}

pub(crate) fn set_address(pod: &mut Object, seed: usize) {
    if let Object::Pod(pod) = pod {
        pod.status.pod_ips = vec![PodIp { ip: address(1_000_000 + seed) }];
    }
}

pub(crate) fn swap_label(pod: &mut Object) {
    let labels = &mut pod.metadata_mut().labels;
    let swapped = if labels.contains_key("app-1") { ("app-2", "scale-2") } else { ("app-1", "scale-1") };
    *labels = Labels::from([(swapped.0.into(), swapped.1.into())]);
}

fn metadata_of(namespace: &str, name: &str, labels: &[(&str, &str)]) -> ObjectMeta {
    metadata(namespace, name, labels, None)
}

fn metadata(namespace: &str, name: &str, labels: &[(&str, &str)], seed: Option<usize>) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        namespace: namespace.into(),
        uid: seed.map(|seed| uid(seed, 1)).unwrap_or_default(),
        labels: labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        ..ObjectMeta::default()
    }
}

fn uid(seed: usize, kind: usize) -> String {
    let mixed = (seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("{:08x}-{:04x}-4{:03x}-8{:03x}-{seed:012x}", mixed >> 32, mixed & 0xffff, kind, mixed >> 52)
}

/// Scatters without randomness, so that every run is the same.
fn spread(seed: usize, nodes: usize) -> usize {
    ((seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as usize % nodes
}

fn address(seed: usize) -> String {
    Ipv4Addr::from_bits(0x0A00_0000 + (seed as u32 % 0xFF_FFFF) + 1).to_string()
}
