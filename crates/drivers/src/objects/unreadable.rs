//! Objects, stored or of a cluster, whose shape this version cannot read, or that have fields it does not know: a problem that is
//! told, never an object that is forgotten (pure).
//!
//! In: the document. Out: what to tell, and an object that stands in for it and opens nothing:
//!
//! ```text
//!   policy          the same policy, denying everything to all that it selects; if that cannot be read either, to all
//!                   in its reach
//!   group, tier     one that cannot be realised, so that policies which rely on it fail closed
//!   anything else   the same object without the fields that cannot be read or are not known; so is a tier with such fields
//! ```
//!
//! A field that is not known may narrow what a rule allows, whom it is for, or what comes first: so nothing that the rest of a
//! policy opens is opened. Unknown `metadata` narrows nothing.

use model::policy::{Kind, Object, ObjectId, output::Problem};
use serde_json::{Map, Value, json};

use super::{Document, document::list};

/// An object that cannot be read, or not as a whole.
#[derive(Clone, Debug)]
pub struct Unreadable {
    pub id: ObjectId,
    pub reason: String,
    fault: Fault,
    /// What the engine takes in its place; none if nothing can stand in.
    pub stand_in: Option<Object>,
}

impl Unreadable {
    /// `document` is null if what is stored is not even JSON.
    pub(super) fn new(id: ObjectId, document: &Value, reason: String) -> Self {
        let stand_in = match id.kind {
            kind if kind.is_policy() => closed(&id, document, &[]),
            Kind::Tier => None,
            Kind::Group | Kind::ClusterGroup => unrealised(&id, document),
            _ => salvaged(&id, document),
        };
        Self { id, reason, fault: Fault::Shape, stand_in }
    }

    /// Of an object that can be read, but says something that is not known.
    pub(super) fn unknown(document: &Document, unknown: &[Problem]) -> Self {
        let (id, json) = (document.id().clone(), document.json());
        let decides = unknown.iter().any(|problem| !is_below("metadata", &problem.path));
        let stand_in = match id.kind {
            kind if kind.is_policy() && decides => closed(&id, json, unknown),
            Kind::Group | Kind::ClusterGroup if decides => unrealised(&id, json),
            _ => Some(document.object().clone()),
        };
        Self { id, reason: list(unknown), fault: Fault::Unknown { decides }, stand_in }
    }

    /// What a user is told of a stored one, and what to do about it.
    pub fn told(&self) -> String {
        self.told_of("is stored but", "until it is applied again or deleted")
    }

    /// The same of one that a cluster has.
    pub fn told_of_cluster(&self, cluster: &str) -> String {
        self.told_of(&format!("of cluster {cluster}"), "until it is changed there")
    }

    fn told_of(&self, place: &str, until: &str) -> String {
        let Self { id, reason, fault, .. } = self;
        let (what, left_out) = match fault {
            Fault::Shape => ("cannot be read", "what cannot be read of it is left out"),
            Fault::Unknown { .. } => ("is not known as a whole", "what is not known of it is left out"),
        };
        let done = match id.kind {
            _ if *fault == (Fault::Unknown { decides: false }) => left_out,
            kind if kind.is_policy() => "it closes all that it selects",
            Kind::Group | Kind::ClusterGroup => "policies that name it fail closed",
            _ => left_out,
        };
        format!("{id} {place} {what}, and {done} {until}: {reason}")
    }
}

/// What is the matter with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Shape,
    /// `decides`: what is not known could change what the object means.
    Unknown {
        decides: bool,
    },
}

/// Whether a path leads to a field or into it.
fn is_below(field: &str, path: &str) -> bool {
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Name and identity as the key and, where it can be read, the document have them.
fn metadata(id: &ObjectId, document: &Value) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), id.name.clone().into());
    if id.kind.is_namespaced() {
        metadata.insert("namespace".to_owned(), id.namespace.clone().into());
    }
    let stored = &document["metadata"];
    if let Some(uid) = stored["uid"].as_str() {
        metadata.insert("uid".to_owned(), uid.into());
    }
    if let Some(generation) = stored["generation"].as_i64() {
        metadata.insert("generation".to_owned(), generation.into());
    }
    let labels = stored["labels"].as_object().into_iter().flatten();
    let labels: Map<_, _> = labels
        .filter(|(_, value)| value.is_string())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    metadata.insert("labels".to_owned(), labels.into());
    metadata
}

fn read(id: &ObjectId, metadata: &Map<String, Value>, fields: &Map<String, Value>) -> Option<Object> {
    let mut json = fields.clone();
    json.insert("metadata".to_owned(), metadata.clone().into());
    id.kind.deserialize(Value::Object(json)).ok()
}

/// A policy that denies everything to all that it selects. What is not known of a label selector can only have narrowed it,
/// so the rest selects no fewer; what is not known of `appliedTo` could be another way to select, so that is for all.
fn closed(id: &ObjectId, document: &Value, unknown: &[Problem]) -> Option<Object> {
    let metadata = metadata(id, document);
    let stored = &document["spec"];
    let with = |spec: Value| read(id, &metadata, &Map::from_iter([("spec".to_owned(), spec)]));
    if id.kind == Kind::NetworkPolicy {
        let spec = |selector: &Value| json!({"podSelector": selector, "policyTypes": ["Ingress", "Egress"]});
        // An absent selector is not an unreadable one, but selects nothing either.
        return with(spec(&stored["podSelector"])).or_else(|| with(spec(&json!({}))));
    }
    if id.kind.is_cluster_policy() {
        let readable = |field: &str| with(json!({field: stored[field]})).map(|_| stored[field].clone());
        let is_known = !unknown.iter().any(|problem| problem.path.contains("subject"));
        let subject = readable("subject").filter(|subject| is_known && subject.is_object());
        // A rule without a peer that is understood denies everything.
        let denies = json!([{"action": "Deny"}]);
        return with(json!({
            "tier": readable("tier").filter(Value::is_string).unwrap_or_else(|| json!("Admin")),
            "priority": readable("priority").filter(Value::is_number).unwrap_or_else(|| json!(0)),
            "subject": subject.unwrap_or_else(|| json!({"namespaces": {}})),
            "ingress": denies, "egress": denies,
        }));
    }
    let all = match id.kind {
        Kind::AntreaNetworkPolicy => json!([{"podSelector": {}}]),
        _ => json!([{"namespaceSelector": {}}]),
    };
    let readable = |field: &str| with(json!({field: stored[field]})).map(|_| stored[field].clone());
    let drops = json!([{"action": "Drop"}]);
    let spec = |applied_to: Value, tier: Value| {
        json!({
            "appliedTo": applied_to, "tier": tier, "priority": readable("priority").filter(Value::is_number).unwrap_or_else(|| json!(1)),
            "ingress": drops, "egress": drops,
        })
    };
    let readable_entries = |entries: Value| with(json!({"appliedTo": entries})).map(|_| entries);
    let is_known = !unknown.iter().any(|problem| problem.path.contains("appliedTo"));
    let applied_to = applied_to(stored).filter(|_| is_known).and_then(readable_entries);
    // Among fields that are not known there may be one that says the tier: then none comes before it.
    let first = unknown
        .iter()
        .any(|problem| problem.path.starts_with("spec.") && problem.path.matches('.').count() == 1);
    let absent = if first { "emergency" } else { "" };
    let tier = readable("tier").filter(|tier| !tier.is_null()).unwrap_or_else(|| json!(absent));
    with(spec(applied_to.unwrap_or(all), tier))
}

/// Whom a policy is for, as a whole or rule by rule; none if that is not said everywhere.
fn applied_to(spec: &Value) -> Option<Value> {
    let entries = |of: &Value| of["appliedTo"].as_array().filter(|entries| !entries.is_empty()).cloned();
    if let Some(entries) = entries(spec) {
        return Some(entries.into());
    }
    let rules = [&spec["ingress"], &spec["egress"]].into_iter().filter(|rules| !rules.is_null());
    let mut all = Vec::new();
    for rules in rules {
        for rule in rules.as_array()? {
            all.extend(entries(rule)?);
        }
    }
    (!all.is_empty()).then(|| all.into())
}

/// A group for which whoever relies on it fails closed.
fn unrealised(id: &ObjectId, document: &Value) -> Option<Object> {
    let spec = json!({"ipBlocks": [{"cidr": "unreadable"}]});
    read(id, &metadata(id, document), &Map::from_iter([("spec".to_owned(), spec)]))
}

/// The object with all fields that can be read.
fn salvaged(id: &ObjectId, document: &Value) -> Option<Object> {
    let metadata = metadata(id, document);
    let mut kept = Map::new();
    for (key, value) in document.as_object().into_iter().flatten().filter(|(key, _)| *key != "metadata") {
        kept.insert(key.clone(), value.clone());
        if read(id, &metadata, &kept).is_some() {
            continue;
        }
        kept.remove(key);
        let Some(fields) = value.as_object() else { continue };
        for (field, value) in fields {
            let mut tried = kept.clone();
            let part = tried.entry(key.clone()).or_insert_with(|| json!({}));
            part[field] = value.clone();
            if read(id, &metadata, &tried).is_some() {
                kept = tried;
            }
        }
    }
    read(id, &metadata, &kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreadable(kind: Kind, document: Value) -> Unreadable {
        let namespace = if kind.is_namespaced() { "shop" } else { "" };
        let id = ObjectId { kind, namespace: namespace.into(), name: "a".into() };
        assert!(kind.deserialize(&document).is_err(), "it is meant to be unreadable: {document}");
        Unreadable::new(id, &document, "reason".into())
    }

    #[test]
    fn a_policy_denies_all_to_those_it_selects() {
        let selector = json!({"matchLabels": {"app": "db"}});
        let read = unreadable(
            Kind::NetworkPolicy,
            json!({"metadata": {"name": "a", "uid": "u", "generation": 3},
                   "spec": {"podSelector": selector, "ingress": [{"ports": [{"port": {"a": 1}}]}]}}),
        );
        let Some(Object::NetworkPolicy(policy)) = read.stand_in else { panic!("{read:?}") };
        assert_eq!((&*policy.metadata.uid, policy.metadata.generation), ("u", 3));
        assert_eq!(serde_json::to_value(&policy.spec.pod_selector).unwrap(), selector);
        assert!(policy.spec.ingress.is_empty() && policy.spec.egress.is_empty());
    }

    #[test]
    fn a_policy_whose_selector_cannot_be_read_denies_all_to_its_namespace() {
        let read = unreadable(Kind::NetworkPolicy, json!({"spec": {"podSelector": 5, "ingress": []}}));
        let Some(Object::NetworkPolicy(policy)) = read.stand_in else { panic!("{read:?}") };
        assert_eq!(policy.spec.pod_selector, Default::default());
        assert_eq!(policy.metadata.namespace, "shop");
    }

    fn unknown(document: Value) -> Unreadable {
        let text = document.to_string();
        let document = Document::read(text.as_bytes(), crate::objects::Validation::Warn).unwrap();
        Unreadable::unknown(&document, document.unknown())
    }

    fn antrea(spec: Value) -> Value {
        let metadata = json!({"name": "a"});
        json!({"apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy", "metadata": metadata, "spec": spec})
    }

    #[test]
    fn a_policy_with_a_field_that_is_not_known_opens_nothing() {
        let selector = json!({"matchLabels": {"app": "db"}});
        let spec = json!({"podSelector": selector, "ingress": [{"form": [{"podSelector": {}}]}]});
        let read = unknown(
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec": spec}),
        );
        assert!(read.told().contains("it closes all that it selects"), "{}", read.told());
        let Some(Object::NetworkPolicy(policy)) = read.stand_in else { panic!("{read:?}") };
        assert_eq!(serde_json::to_value(&policy.spec.pod_selector).unwrap(), selector);
        assert!(policy.spec.ingress.is_empty() && policy.spec.policy_types == ["Ingress", "Egress"]);
    }

    #[test]
    fn what_is_not_known_of_whom_a_policy_is_for_or_of_its_tier_makes_it_for_all_and_first() {
        let rules = json!([{"action": "Allow"}]);
        let applied_to = json!([{"podSelector": {"matchLabels": {"app": "db"}}}]);
        let spec = |read: Unreadable| match read.stand_in {
            Some(Object::AntreaClusterNetworkPolicy(policy)) => serde_json::to_value(&policy.spec).unwrap(),
            other => panic!("{other:?}"),
        };
        let newer =
            json!({"priority": 5, "appliedTo": [{"podSelector": {}, "newSelector": {}}], "ingress": rules});
        assert_eq!(spec(unknown(antrea(newer)))["appliedTo"], json!([{"namespaceSelector": {}}]));
        let typing = spec(unknown(antrea(
            json!({"priority": 5, "teir": "securityops", "appliedTo": applied_to, "ingress": rules}),
        )));
        assert_eq!((&typing["tier"], &typing["appliedTo"]), (&json!("emergency"), &applied_to));
        assert_eq!(typing["ingress"][0]["action"], "Drop");
    }

    #[test]
    fn what_is_not_known_of_metadata_closes_nothing_and_is_told() {
        let mut document = antrea(
            json!({"priority": 5, "appliedTo": [{"podSelector": {}}], "ingress": [{"action": "Allow"}]}),
        );
        document["metadata"]["newer"] = json!(1);
        let read = unknown(document.clone());
        assert!(
            read.told().contains("left out") && read.told().contains("metadata.newer"),
            "{}",
            read.told()
        );
        let Some(Object::AntreaClusterNetworkPolicy(policy)) = read.stand_in else { panic!("{read:?}") };
        assert_eq!(policy.spec.ingress[0].action, "Allow");
    }

    #[test]
    fn what_is_not_even_json_closes_too() {
        for kind in Kind::ALL.into_iter().filter(|kind| kind.is_policy()) {
            let id = ObjectId { kind, namespace: String::new(), name: "a".into() };
            assert!(Unreadable::new(id, &Value::Null, String::new()).stand_in.is_some(), "{kind:?}");
        }
    }

    #[test]
    fn a_policy_of_a_cluster_keeps_tier_priority_and_whom_it_is_for() {
        let applied_to = json!([{"podSelector": {"matchLabels": {"app": "db"}}}]);
        let read = unreadable(
            Kind::AntreaClusterNetworkPolicy,
            json!({"spec": {"tier": "emergency", "priority": 7.5, "appliedTo": applied_to, "ingress": "all"}}),
        );
        let Some(Object::AntreaClusterNetworkPolicy(policy)) = read.stand_in else { panic!("{read:?}") };
        let spec = serde_json::to_value(&policy.spec).unwrap();
        assert_eq!(
            (&spec["tier"], &spec["priority"], &spec["appliedTo"]),
            (&json!("emergency"), &json!(7.5), &applied_to)
        );
        assert_eq!(
            (&spec["ingress"][0]["action"], &spec["egress"][0]["action"]),
            (&json!("Drop"), &json!("Drop"))
        );
    }

    #[test]
    fn of_a_pod_all_that_can_be_read_is_kept() {
        let read = unreadable(
            Kind::Pod,
            json!({"metadata": {"name": "a", "labels": {"app": "db", "bad": 5}},
                   "spec": {"nodeName": "n1", "containers": 7}, "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}),
        );
        let Some(Object::Pod(pod)) = read.stand_in else { panic!("{read:?}") };
        let pod = serde_json::to_value(pod).unwrap();
        assert_eq!(pod["metadata"]["labels"], json!({"app": "db"}));
        assert_eq!(
            (&pod["spec"]["nodeName"], &pod["status"]["podIPs"][0]["ip"]),
            (&json!("n1"), &json!("10.0.0.1"))
        );
    }
}
