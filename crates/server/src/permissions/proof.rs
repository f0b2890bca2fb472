//! The proof of a permission: what explain says of those who are at its ends.

use ::tags::ResolvedMember;
use drivers::permissions::{Permissions, host_tag};
use model::{
    Ports, Protocol, ResourceName, TagName,
    allow::{End, Passage, Permission},
    policy::output::MemberKind,
};
use wire::trestle::v1::{ExplainRequest, Proof, ProvenPair};

use crate::{explain::Explainer, failure::Failure};

/// Of each end, and in all.
const AT_EACH: usize = 4;

/// Asks about every pair of some who are at both ends. Nobody at an end is no proof.
pub(super) async fn prove(
    permissions: &Permissions,
    explainer: &Explainer,
    permission: &Permission,
) -> Result<Proof, Failure> {
    let [(from, all_from), (to, all_to)] = permission.ends().map(|end| who(permissions, end));
    let mut proof = Proof { allowed: !from.is_empty() && !to.is_empty(), ..Proof::default() };
    for (end, who, all) in [(&permission.from, &from, all_from), (&permission.to, &to, all_to)] {
        if who.is_empty() {
            proof.notes.push(format!("nobody is at {end} now, so there is nothing to prove"));
        } else if !all {
            proof.notes.push(format!("of {end}, {} are looked at", who.len()));
        }
    }
    for source in &from {
        for destination in to.iter().filter(|to| *to != source) {
            for passage in &permission.passages {
                let explanation = explainer.explain(&question(source, destination, passage)).await?;
                proof.allowed &= explanation.allowed;
                proof.pairs.push(ProvenPair {
                    from: source.clone(),
                    to: destination.clone(),
                    traffic: passage.to_string(),
                    explanation: Some(explanation),
                });
            }
        }
    }
    Ok(proof)
}

fn question(source: &str, destination: &str, passage: &Passage) -> ExplainRequest {
    ExplainRequest {
        source: source.to_owned(),
        destination: destination.to_owned(),
        protocol: match passage.protocol {
            Protocol::Any => String::new(),
            protocol => protocol.to_string(),
        },
        port: match passage.ports {
            Ports::Any => None,
            // All of a range is open, or nothing of it: it is one passage.
            Ports::Range { first, .. } => Some(first.into()),
        },
        source_port: None,
        staged: None,
    }
}

/// Some who are at an end, as explain takes them, and whether these are all.
fn who(permissions: &Permissions, end: &End) -> (Vec<String>, bool) {
    let mut who: Vec<String> = match end {
        End::Resource(name) => vec![name.to_string()],
        End::Pod { namespace, name } => vec![format!("{namespace}/{name}")],
        End::Address(address) => {
            return (
                address.net().hosts().next().map(|ip| ip.to_string()).into_iter().collect(),
                address.single().is_some(),
            );
        }
        End::Host(host) => host_tag(host).map(|tag| in_tag(permissions, &tag)).unwrap_or_default(),
        End::Tag(tag) => in_tag(permissions, tag),
        End::Namespace(namespace) => {
            let placed = permissions.orchestrator.placed().into_iter().map(|(name, ..)| name);
            let inside = placed.filter(|name| name.namespace.as_str() == namespace.as_str());
            let resources = inside.map(|name| name.to_string()).collect::<Vec<_>>();
            let pods = permissions.policy.ask(|engine| {
                let of_it = engine.all_members().filter(|member| {
                    member.kind == MemberKind::Pod
                        && *member.namespace == *namespace.as_str()
                        && !member.addresses.as_slice().is_empty()
                });
                of_it.map(|member| format!("{namespace}/{}", member.name)).collect::<Vec<_>>()
            });
            resources.into_iter().chain(pods).collect()
        }
    };
    who.sort_unstable();
    who.dedup();
    let all = who.len() <= AT_EACH;
    who.truncate(AT_EACH);
    (who, all)
}

fn in_tag(permissions: &Permissions, tag: &TagName) -> Vec<String> {
    let Ok(tags) = permissions.tags.snapshot() else { return Vec::new() };
    let Ok(resolved) = tags.graph.resolve(tag) else { return Vec::new() };
    let name = |member: &ResolvedMember| match member {
        ResolvedMember::Leaf { name, leaf } => {
            let resource = name.as_str().parse::<ResourceName>().ok();
            let resource = resource.filter(|name| permissions.orchestrator.resource(name).is_ok());
            let address = || leaf.ip?.net().hosts().next().map(|ip| ip.to_string());
            resource.map(|name| name.to_string()).or_else(address)
        }
        ResolvedMember::Literal(address) => address.net().hosts().next().map(|ip| ip.to_string()),
    };
    resolved.iter().filter_map(name).collect()
}
