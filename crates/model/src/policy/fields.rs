//! Which fields the kinds have: what a document says that this version does not know (pure).
//!
//! In: a document as users write it. Out: every field and version that is not known, each with its path and, where there is
//! one, the word that was probably meant. Not here: wrong values (`validate`).
//!
//! The rule, the same for every kind: an object on the way to a field that Trestle reads may have the fields that the
//! Kubernetes or Antrea API defines for it, and no others. What lies below a field that Trestle does not read is not looked
//! into: nothing there decides anything. So policies, groups and tiers are strict throughout, and a Pod is strict in `metadata`,
//! `spec`, `spec.containers[].ports[]` and `status`, but not in its volumes.

mod antrea;
mod cluster;
mod known;
mod kubernetes;
mod own;

pub use known::is_known;
use serde_json::Value;

use super::{Kind, output::Problem};

/// What may stand in one place of a document.
enum Shape {
    /// Not looked into: nothing below decides anything, or the keys are the users' own.
    Any,
    List(&'static Shape),
    Object(Object),
    /// The same, and what is not known in it is told by those who read it: it is the rule's fault, not the policy's.
    Open(Object),
    /// Known, but what it says cannot be kept here; why.
    Unsupported(&'static str),
}

struct Object {
    /// Looked into.
    within: &'static [(&'static str, Shape)],
    /// Known and not looked into.
    known: &'static [&'static str],
}

const fn open(within: &'static [(&'static str, Shape)]) -> Shape {
    Shape::Open(Object { within, known: &[] })
}

const fn object(within: &'static [(&'static str, Shape)], known: &'static [&'static str]) -> Shape {
    Shape::Object(Object { within, known })
}

/// What makes up a document of a kind.
fn shape(kind: Kind) -> &'static Shape {
    match kind {
        Kind::Namespace => &kubernetes::NAMESPACE,
        Kind::Node => &kubernetes::NODE,
        Kind::Pod => &kubernetes::POD,
        Kind::Service => &kubernetes::SERVICE,
        Kind::EndpointSlice => &kubernetes::ENDPOINT_SLICE,
        Kind::NetworkPolicy => &kubernetes::NETWORK_POLICY,
        Kind::ExternalNode => &antrea::EXTERNAL_NODE,
        Kind::ExternalEntity => &antrea::EXTERNAL_ENTITY,
        Kind::Tier => &antrea::TIER,
        Kind::ClusterGroup | Kind::Group => &antrea::GROUP,
        Kind::AntreaNetworkPolicy | Kind::AntreaClusterNetworkPolicy => &antrea::POLICY,
        Kind::ClusterNetworkPolicy | Kind::AdminNetworkPolicy | Kind::BaselineAdminNetworkPolicy => {
            &cluster::POLICY
        }
        Kind::PolicyTest => &own::POLICY_TEST,
    }
}

/// The versions whose fields are known, the newest first.
fn versions(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Namespace | Kind::Node | Kind::Pod | Kind::Service => &["v1"],
        Kind::EndpointSlice => &["discovery.k8s.io/v1"],
        Kind::NetworkPolicy => &["networking.k8s.io/v1"],
        Kind::ExternalNode => &["crd.antrea.io/v1alpha1"],
        Kind::ExternalEntity => &["crd.antrea.io/v1alpha2"],
        Kind::Tier | Kind::AntreaNetworkPolicy | Kind::AntreaClusterNetworkPolicy => {
            &["crd.antrea.io/v1beta1", "crd.antrea.io/v1alpha1"]
        }
        Kind::ClusterGroup => &["crd.antrea.io/v1beta1", "crd.antrea.io/v1alpha3", "crd.antrea.io/v1alpha2"],
        Kind::Group => &["crd.antrea.io/v1beta1", "crd.antrea.io/v1alpha3"],
        Kind::ClusterNetworkPolicy => &["policy.networking.k8s.io/v1alpha2"],
        Kind::AdminNetworkPolicy | Kind::BaselineAdminNetworkPolicy => &["policy.networking.k8s.io/v1alpha1"],
        Kind::PolicyTest => &["trestle.dev/v1"],
    }
}

/// What a document says that this version does not know; empty if it knows everything that could decide something.
pub fn unknown(kind: Kind, document: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    let version = document["apiVersion"].as_str().unwrap_or_default();
    if !versions(kind).contains(&version) {
        let known = versions(kind).join(" and ");
        problems.push(Problem::new(
            "apiVersion",
            format!("`{version}` is not a known version of {}; known: {known}", kind.as_str()),
        ));
    }
    look(shape(kind), document, &mut Vec::new(), &mut problems);
    problems
}

/// One step of the way to a value.
enum Step<'a> {
    Field(&'a str),
    Entry(usize),
}

fn look<'a>(shape: &Shape, value: &'a Value, path: &mut Vec<Step<'a>>, problems: &mut Vec<Problem>) {
    match (shape, value) {
        (Shape::List(entry), Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                path.push(Step::Entry(index));
                look(entry, value, path, problems);
                path.pop();
            }
        }
        (Shape::Object(object), Value::Object(fields)) => {
            for (name, value) in fields {
                path.push(Step::Field(name));
                match object.within.iter().find(|(known, _)| known == name) {
                    Some((_, shape)) => look(shape, value, path, problems),
                    None if object.known.contains(&name.as_str()) => {}
                    None => problems.push(Problem::new(text(path), object.unknown(name))),
                }
                path.pop();
            }
        }
        (Shape::Open(object), Value::Object(fields)) => {
            for (name, value) in fields {
                let Some((_, shape)) = object.within.iter().find(|(known, _)| known == name) else {
                    continue;
                };
                path.push(Step::Field(name));
                look(shape, value, path, problems);
                path.pop();
            }
        }
        (Shape::Unsupported(why), value) if !value.is_null() => {
            problems.push(Problem::new(text(path), *why));
        }
        // Of another type than the API has there, which reading the object tells.
        (Shape::Any | Shape::List(_) | Shape::Object(_) | Shape::Open(_) | Shape::Unsupported(_), _) => {}
    }
}

fn text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) => text.extend([".", name]),
            Step::Entry(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

impl Object {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.within.iter().map(|(name, _)| *name).chain(self.known.iter().copied())
    }

    fn unknown(&self, name: &str) -> String {
        match nearest(name, self.names()) {
            Some(meant) => format!("unknown field; did you mean {meant:?}?"),
            None => "unknown field".to_owned(),
        }
    }
}

/// The name that a slip of the fingers could have made of another one: one in three letters may be wrong.
fn nearest(name: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let lower = name.to_lowercase();
    let allowed = (name.chars().count() / 3).clamp(1, 3);
    names
        .map(|known| (strsim::osa_distance(&lower, &known.to_lowercase()), known))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests;
