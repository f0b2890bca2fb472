//! Ends of permissions: which there are, and who is at them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ::tags::{Graph, ResolvedMember, TagView};
use model::{
    Address, Member, TagName,
    allow::{self, End},
    policy::output::MemberKind,
};
use orchestrator::execute::Orchestrator;

use crate::policy::Policy;

/// Before the name of a host in the name of the tag that the controller keeps for it.
const HOST_TAG: &str = "host.";
/// Suggestions for a name that is not there.
const MOST: usize = 4;

/// The tag that holds a host's addresses.
pub fn host_tag(host: &TagName) -> Option<TagName> {
    format!("{HOST_TAG}{host}").parse().ok()
}

/// What there is that a text can name.
pub struct Known {
    pub orchestrator: Arc<Orchestrator>,
    pub policy: Arc<Policy>,
    pub graph: Graph,
    /// Those that were made for resources; Kubernetes' are in the engine.
    pub namespaces: BTreeSet<String>,
}

impl allow::Known for Known {
    fn has(&self, end: &End) -> bool {
        match end {
            End::Resource(name) => self.orchestrator.resource(name).is_ok(),
            End::Tag(tag) => self.graph.get(tag).is_ok(),
            End::Host(host) => host_tag(host).is_some_and(|tag| self.graph.get(&tag).is_ok()),
            End::Pod { namespace, name } => self
                .policy
                .ask(|engine| engine.member(MemberKind::Pod, namespace.as_str(), name.as_str()).is_some()),
            End::Namespace(name) => {
                self.namespaces.contains(name.as_str())
                    || self.policy.ask(|engine| engine.has_namespace(name.as_str()))
            }
            End::Address(_) => true,
        }
    }

    fn like(&self, text: &str) -> Vec<End> {
        let text = text.rsplit(['/', ':']).next().unwrap_or_default().to_ascii_lowercase();
        if text.is_empty() {
            return Vec::new();
        }
        let is_like = |name: &str| {
            let name = name.to_ascii_lowercase();
            let last = name.rsplit(['/', '.']).next().unwrap_or_default();
            name.contains(&text) || (last.len() > 1 && text.contains(last))
        };
        let resources = self.orchestrator.resources().into_iter().map(|view| view.name);
        let resources: BTreeSet<String> =
            resources.map(|name| name.to_string()).filter(|name| is_like(name)).take(MOST).collect();
        let tags = self.graph.list("").map(|(tag, _)| tag.as_str().to_owned());
        let tags = tags.filter(|tag| is_like(tag) && !resources.contains(tag)).take(MOST);
        let tags = tags.map(|tag| match tag.strip_prefix(HOST_TAG) {
            Some(host) => format!("host:{host}"),
            None => format!("tag:{tag}"),
        });
        let pods = self.policy.ask(|engine| {
            let pods =
                engine.all_members().filter(|member| member.kind == MemberKind::Pod && is_like(&member.name));
            pods.take(MOST)
                .map(|member| format!("pod:{}/{}", member.namespace, member.name))
                .collect::<Vec<_>>()
        });
        let namespaces = self.namespaces.iter().filter(|name| is_like(name));
        let namespaces = namespaces.map(|name| format!("namespace:{name}"));
        let resources = resources.iter().map(|name| format!("resource:{name}"));
        let all = resources.chain(tags).chain(pods).chain(namespaces);
        all.filter_map(|text| text.parse().ok()).take(MOST).collect()
    }
}

/// The addresses of those ends that workloads are at. O(workloads).
pub fn workloads(policy: &Policy, wanted: &BTreeSet<End>) -> BTreeMap<End, BTreeSet<Address>> {
    let mut found: BTreeMap<End, BTreeSet<Address>> = BTreeMap::new();
    policy.ask(|engine| {
        for member in engine.all_members().filter(|member| member.kind == MemberKind::Pod && member.enforced)
        {
            let Ok(namespace) = member.namespace.parse() else { continue };
            let of_namespace = End::Namespace(namespace);
            let End::Namespace(namespace) = of_namespace.clone() else { continue };
            let pod = member.name.parse().ok().map(|name| End::Pod { namespace, name });
            for end in [Some(of_namespace), pod].into_iter().flatten().filter(|end| wanted.contains(end)) {
                let addresses = member.addresses.as_slice().iter().map(|address| Address::from(*address));
                found.entry(end).or_default().extend(addresses);
            }
        }
    });
    found.retain(|_, addresses| !addresses.is_empty());
    found
}

/// The addresses at an end that tags or nothing but the end itself know.
pub fn addresses(end: &End, graph: &Graph) -> BTreeSet<Address> {
    let of_tag = |tag: &TagName| {
        let resolved = graph.resolve(tag).map(|resolved| resolved.iter().collect::<Vec<_>>());
        let address = |member: &ResolvedMember| match member {
            ResolvedMember::Literal(address) => Some(*address),
            ResolvedMember::Leaf { leaf, .. } => leaf.ip,
        };
        resolved.unwrap_or_default().into_iter().filter_map(address).collect()
    };
    match end {
        End::Tag(tag) => of_tag(tag),
        End::Host(host) => host_tag(host).map(|tag| of_tag(&tag)).unwrap_or_default(),
        End::Address(address) => [*address].into(),
        End::Resource(_) | End::Pod { .. } | End::Namespace(_) => BTreeSet::new(),
    }
}

/// The hosts in a tag, however far below.
pub fn hosts_in(tag: &TagName, graph: &Graph) -> BTreeSet<TagName> {
    let (mut hosts, mut seen, mut left) = (BTreeSet::new(), BTreeSet::new(), vec![tag.clone()]);
    while let Some(tag) = left.pop() {
        if !seen.insert(tag.clone()) {
            continue;
        }
        let host = tag.as_str().strip_prefix(HOST_TAG).and_then(|host| host.parse().ok());
        if let Some(host) = host.filter(|_| graph.get(&tag).is_ok()) {
            hosts.insert(host);
            continue;
        }
        if let Ok(TagView::Group(members)) = graph.get(&tag) {
            left.extend(members.iter().filter_map(|member| match member {
                Member::Tag(tag) => Some(tag.clone()),
                Member::Literal(_) => None,
            }));
        }
    }
    hosts
}
