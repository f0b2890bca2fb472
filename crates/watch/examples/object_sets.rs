//! Random object sets, and what the watch API says of a set: for another controller beside this one (`labs/antrea-controller`).
//!
//! In, one JSON object a line: `{"seed": 7}`, or `{"objects": [...]}` with documents as Kubernetes has them. Out, one line for each:
//! `{"objects": [...], "refused": [...]}`, a set in the order in which it may be created and what we would not take of it; or
//! `{"views": {"": {...}, "k0": {...}}}`, the lists of the watch API as a whole and as each node has them.

#![allow(clippy::unwrap_used, reason = "whoever asks nonsense is told so by the end of it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead as _, Write as _},
};

use model::policy::{
    Kind, LabelSelector, Object, ObjectId, TypeMeta, antrea,
    kubernetes::NetworkPolicy,
    service::ServicePort,
    validate,
    workload::{self, NodeAddress},
};
use policy::{Engine, Event};
use serde_json::{Map, Value, json};
use testkit::policies::random::Random;
use watch::{Cache, Encoding, Resource, View};

/// Nodes of the random world, and what external entities of a namespace belong to.
const NODES: [&str; 12] =
    ["", "k0", "k1", "k2", "n0/cloud", "n1/cloud", "n2/cloud", "n0/vm", "n1/vm", "n2/vm", "cloud", "vm"];
const SYSTEM_TIERS: [&str; 6] =
    ["emergency", "securityops", "networkops", "platform", "application", "baseline"];

fn main() {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let answer = match asked.get("seed").and_then(Value::as_u64) {
            Some(seed) => set(seed),
            None => json!({ "views": views(asked["objects"].as_array().unwrap()) }),
        };
        writeln!(out, "{answer}").unwrap();
        out.flush().unwrap();
    }
}

fn set(seed: u64) -> Value {
    let mut random = Random::new(seed);
    let mut objects: BTreeMap<ObjectId, Object> = BTreeMap::new();
    for name in ["n0", "n1", "n2"] {
        let mut namespace = workload::Namespace::default();
        namespace.metadata.name = name.into();
        let namespace = as_a_cluster_has_it(Object::Namespace(namespace)).expect("namespaces are taken");
        objects.insert(namespace.id(), namespace);
    }
    // Most of what is random is refused: those are drawn again, and a few are kept to ask the other what it thinks of them.
    let (wanted, mut refused) = (15 + random.below(45), Vec::new());
    while objects.len() < wanted {
        let Some(object) = as_a_cluster_has_it(random.object()) else { continue };
        if !validate(&object).is_empty() {
            refused.truncate(3);
            refused.push(object);
        } else if let Some(object) = merged(objects.get(&object.id()), object) {
            objects.insert(object.id(), object);
        } else if random.percent(10) {
            break;
        }
    }
    named_groups(&mut objects);
    let taken: Vec<_> = objects.values().map(|object| said_once(document(object))).collect();
    json!({ "objects": taken, "refused": refused.iter().map(refusal).collect::<Vec<_>>() })
}

fn refusal(object: &Object) -> Value {
    let why = validate(object).first().map(|problem| format!("{}: {}", problem.path, problem.message));
    json!({ "object": document(object), "why": why })
}

/// Policies of one name become one with the rules of both; what is valid is mostly small.
fn merged(known: Option<&Object>, mut new: Object) -> Option<Object> {
    match (known, &mut new) {
        (None, Object::NetworkPolicy(new)) => only_of_its_types(new),
        (None, _) => {}
        (
            Some(Object::AntreaNetworkPolicy(known) | Object::AntreaClusterNetworkPolicy(known)),
            Object::AntreaNetworkPolicy(new) | Object::AntreaClusterNetworkPolicy(new),
        ) => {
            new.spec.ingress.extend(known.spec.ingress.iter().cloned());
            new.spec.egress.extend(known.spec.egress.iter().cloned());
            one_for_a_namespace(&mut new.spec);
        }
        (Some(Object::NetworkPolicy(known)), Object::NetworkPolicy(new)) => {
            new.spec.ingress.extend(known.spec.ingress.iter().cloned());
            new.spec.egress.extend(known.spec.egress.iter().cloned());
            only_of_its_types(new);
        }
        (Some(_), _) => return None,
    }
    validate(&new).is_empty().then_some(new)
}

/// Rules of a type that the policy does not name are ignored, and Antrea does not ignore them.
fn only_of_its_types(policy: &mut NetworkPolicy) {
    let types = &policy.spec.policy_types;
    let has = |name| types.is_empty() || types.iter().any(|one| one == name);
    let (ingress, egress) = (has("Ingress"), has("Egress"));
    policy.spec.ingress.retain(|_| ingress);
    policy.spec.egress.retain(|_| egress);
}

/// What `namespaces` cuts a rule into: of several `appliedTo` that match one namespace the last counts for Antrea, and several
/// peers with the same labels are several rules.
fn one_for_a_namespace(spec: &mut antrea::PolicySpec) {
    let cuts = |peer: &antrea::Peer| peer.namespaces.is_some();
    let rules = spec.ingress.iter().chain(&spec.egress);
    let cut = rules.flat_map(|rule| rule.from.iter().chain(&rule.to)).any(cuts);
    if cut {
        spec.applied_to.truncate(1);
    }
    for rule in spec.ingress.iter_mut().chain(&mut spec.egress) {
        if cut {
            rule.applied_to.truncate(1);
        }
        for peers in [&mut rule.from, &mut rule.to] {
            let mut seen = false;
            peers.retain(|peer| !cuts(peer) || !std::mem::replace(&mut seen, true));
        }
    }
}

/// Groups that policies name are there, if only with nobody in them: one that is not is told by us as an empty one, and by
/// Antrea not at all.
fn named_groups(objects: &mut BTreeMap<ObjectId, Object>) {
    for name in ["g0", "g1", "g2"] {
        for namespace in ["", "n0", "n1", "n2"] {
            let mut group = antrea::Group::default();
            group.metadata.name = name.into();
            group.metadata.namespace = namespace.into();
            group.spec.pod_selector = Some(LabelSelector {
                match_labels: [("app".to_owned(), "nobody".to_owned())].into_iter().collect(),
                ..LabelSelector::default()
            });
            let object =
                if namespace.is_empty() { Object::ClusterGroup(group) } else { Object::Group(group) };
            let object = as_a_cluster_has_it(object).expect("groups are taken");
            objects.entry(object.id()).or_insert(object);
        }
    }
    applied_within_their_namespace(objects);
}

/// Groups that Antrea does not apply policies to, and we do: namespaced ones with Pods of other namespaces, where the policy is in
/// force nowhere with Antrea and in its own namespace here; and those of blocks, which are told as empty ones here.
fn applied_within_their_namespace(objects: &mut BTreeMap<ObjectId, Object>) {
    let is_odd = |object: &Object| match object {
        Object::Group(group) => {
            let spec = &group.spec;
            spec.namespace_selector.is_some() || !spec.child_groups.is_empty() || !spec.ip_blocks.is_empty()
        }
        Object::ClusterGroup(group) => !group.spec.ip_blocks.is_empty(),
        _ => false,
    };
    let odd = objects.iter().filter(|(_, object)| is_odd(object));
    let odd: BTreeSet<(String, String)> =
        odd.map(|(id, _)| (id.namespace.clone(), id.name.clone())).collect();
    for object in objects.values_mut() {
        let (Object::AntreaNetworkPolicy(policy) | Object::AntreaClusterNetworkPolicy(policy)) = object
        else {
            continue;
        };
        let (namespace, spec) = (&policy.metadata.namespace, &mut policy.spec);
        let of_rules = spec.ingress.iter_mut().chain(&mut spec.egress).flat_map(|rule| &mut rule.applied_to);
        for to in spec.applied_to.iter_mut().chain(of_rules) {
            let is_odd = |group: &String| odd.contains(&(namespace.clone(), group.clone()));
            if to.group.as_ref().is_some_and(is_odd) {
                *to = antrea::AppliedTo {
                    pod_selector: Some(LabelSelector::default()),
                    ..antrea::AppliedTo::default()
                };
            }
        }
    }
}

/// What an API server sees to: every object has a UID of its own, a Pod one address of a family, a Service a port.
fn as_a_cluster_has_it(mut object: Object) -> Option<Object> {
    let id = object.id();
    if id.kind == Kind::ExternalNode || id.kind == Kind::Tier && SYSTEM_TIERS.contains(&&*id.name) {
        return None;
    }
    let text = format!("{}/{}/{}", id.kind.as_str(), id.namespace, id.name);
    let hash = |seed: u64| {
        text.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    let bytes = (u128::from(hash(0xcbf2_9ce4_8422_2325)) << 64 | u128::from(hash(7))).to_be_bytes();
    let hexadecimal: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &hexadecimal[part]);
    object.metadata_mut().uid = parts.join("-");
    match &mut object {
        Object::Pod(pod) => one_of_a_family(&mut pod.status.pod_ips, |one| &one.ip),
        Object::Node(node) => {
            one_of_a_family(&mut node.spec.pod_cidrs, |one| one);
            // Of a node without both Antrea takes nothing, and of two with the same addresses one.
            let number = id.name.bytes().last().unwrap_or_default();
            node.spec.pod_cidrs.retain(|cidr| cidr.contains(':'));
            node.spec.pod_cidrs.push(format!("10.{number}.0.0/24"));
            node.status
                .addresses
                .push(NodeAddress { kind: "InternalIP".into(), address: format!("10.0.7.{number}") });
        }
        // A namespace that lacks the label of `sameLabels` has no rule; Antrea tells it of the policy all the same.
        Object::Namespace(namespace) => {
            for key in ["env", "tier"] {
                if namespace.metadata.labels.get(key).is_none() {
                    namespace.metadata.labels.insert(key.into(), "1".into());
                }
            }
        }
        // A child that is not there: as with groups that policies name.
        Object::Group(group) | Object::ClusterGroup(group) => {
            group.spec.child_groups.retain(|child| child.as_str() != "g3");
        }
        Object::AntreaClusterNetworkPolicy(policy) => one_for_a_namespace(&mut policy.spec),
        Object::Service(service) if service.spec.ports.is_empty() => {
            service.spec.ports.push(ServicePort {
                port: 80,
                protocol: "TCP".into(),
                ..ServicePort::default()
            });
        }
        _ => {}
    }
    Some(object)
}

fn one_of_a_family<T>(addresses: &mut Vec<T>, text: impl Fn(&T) -> &str) {
    let mut families = BTreeSet::new();
    addresses.retain(|one| families.insert(text(one).contains(':')));
}

fn document(object: &Object) -> Value {
    let (api_version, kind) = match object.id().kind {
        Kind::AntreaNetworkPolicy => ("crd.antrea.io/v1beta1", "NetworkPolicy"),
        Kind::AntreaClusterNetworkPolicy => ("crd.antrea.io/v1beta1", "ClusterNetworkPolicy"),
        Kind::NetworkPolicy => ("networking.k8s.io/v1", "NetworkPolicy"),
        Kind::ExternalEntity => ("crd.antrea.io/v1alpha2", "ExternalEntity"),
        kind @ (Kind::Tier | Kind::Group | Kind::ClusterGroup) => ("crd.antrea.io/v1beta1", kind.as_str()),
        kind => ("v1", kind.as_str()),
    };
    let mut document = Map::new();
    document.insert("apiVersion".into(), api_version.into());
    document.insert("kind".into(), kind.into());
    let Value::Object(rest) = serde_json::to_value(object).unwrap() else {
        unreachable!("objects have fields")
    };
    document.extend(rest);
    Value::Object(document)
}

fn said_once(mut document: Value) -> Value {
    say_once(&mut document);
    document
}

/// What selectors say twice of a key, in whatever order, has one name here, and a name for each order with Antrea.
fn say_once(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(say_once),
        Value::Object(fields) => {
            let labels = fields.get("matchLabels").and_then(Value::as_object).cloned().unwrap_or_default();
            if let Some(Value::Array(requirements)) = fields.get_mut("matchExpressions") {
                let mut keys: BTreeSet<String> = labels.keys().cloned().collect();
                requirements.retain(|one| one["key"].as_str().is_some_and(|key| keys.insert(key.to_owned())));
            }
            let is_requirement = fields.contains_key("operator");
            if let Some(Value::Array(values)) = fields.get_mut("values").filter(|_| is_requirement) {
                let mut said = Vec::new();
                values.retain(|one| {
                    !said.contains(one) && {
                        said.push(one.clone());
                        true
                    }
                });
            }
            fields.values_mut().for_each(say_once);
        }
        _ => {}
    }
}

fn views(documents: &[Value]) -> Value {
    let (mut engine, cache) = (Engine::new(), Cache::new(1));
    for document in documents {
        let kind = TypeMeta::kind(&serde_json::from_value(document.clone()).unwrap()).unwrap();
        engine.handle_event(Event::Apply(&kind.deserialize(document).unwrap()));
    }
    while let Some(update) = engine.poll_update() {
        cache.apply([update]);
    }
    cache.set_synced();
    let lists = [
        ("networkPolicies", Resource::NetworkPolicies),
        ("appliedToGroups", Resource::AppliedToGroups),
        ("addressGroups", Resource::AddressGroups),
    ];
    let view = |node: &&str| {
        let view = View { node: (!node.is_empty()).then(|| (*node).into()), name: None };
        let list = |resource| -> Value {
            let body = cache.list(resource, &view, Encoding::Json).unwrap();
            serde_json::from_slice(&body).unwrap()
        };
        let lists = lists.iter().map(|(name, resource)| ((*name).to_owned(), list(*resource)));
        ((*node).to_owned(), Value::Object(lists.collect()))
    };
    Value::Object(NODES.iter().map(view).collect())
}
