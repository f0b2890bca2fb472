//! Which Pods of the node a controller covers: what applies to them is held. Pure.
//!
//! In: what is held. Out: whether a Pod may be opened, and whose an address is. Not here: what applies (the parts).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use wire::trestle::v1::{NodePod, ObjectKind, SetMember, node_apply::Body, set_member};

use crate::{
    endpoints::{Endpoint, Pod},
    held::{Content, Held, Key},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// From a controller that tells which Pods it covers.
    told: bool,
    pods: BTreeMap<Pod, Known>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    uid: String,
    addresses: BTreeSet<IpAddr>,
}

impl Coverage {
    /// O(Pods of the node); for a controller that does not tell, O(members of sets that policies apply to).
    pub fn of(node: &str, held: &Held) -> Self {
        let pods = if held.tells_pods() { pods_of(node, held) } else { applied(node, held) };
        Self { told: held.tells_pods(), pods }
    }

    /// Whether what applies to the Pod is held. Of a controller that does not tell, no proof is asked for Pods that are
    /// open.
    pub fn covers(&self, endpoint: &Endpoint) -> bool {
        let uid = endpoint.attachment.uid.as_deref();
        let is_same = |known: &Known| known.uid.is_empty() || uid.is_none_or(|uid| uid == known.uid);
        self.pods.get(&endpoint.pod).is_some_and(is_same) || !self.told && !endpoint.closed
    }

    /// The Pod that has all of these addresses, with its UID.
    pub fn find(&self, addresses: &BTreeSet<IpAddr>) -> Option<(&Pod, Option<String>)> {
        let mut having = self.pods.iter().filter(|(_, known)| addresses.is_subset(&known.addresses));
        let (pod, known) = having.next().filter(|_| !addresses.is_empty())?;
        having.next().is_none().then(|| (pod, Some(known.uid.clone()).filter(|uid| !uid.is_empty())))
    }
}

fn pods_of(node: &str, held: &Held) -> BTreeMap<Pod, Known> {
    let facts = held.get(&Key::new(ObjectKind::NodeFacts, node));
    let Some(Content::Whole(encoded)) = facts.map(|object| &object.content) else { return BTreeMap::new() };
    let Body::Facts(facts) = encoded.body() else { return BTreeMap::new() };
    let known = |NodePod { namespace, name, uid, addresses }| {
        let addresses = addresses.iter().filter_map(|bytes| address(bytes)).collect();
        (Pod { namespace, name }, Known { uid, addresses })
    };
    facts.pods.into_iter().map(known).collect()
}

fn applied(node: &str, held: &Held) -> BTreeMap<Pod, Known> {
    let sets = held.objects().filter(|(key, _)| key.kind == i32::from(ObjectKind::AppliedToSet));
    let members = sets.flat_map(|(_, object)| match &object.content {
        Content::Set(members) => Some(members.values()),
        _ => None,
    });
    let here = |member: &&SetMember| member.node == node && member.kind == i32::from(set_member::Kind::Pod);
    let pod = |member: &SetMember| Pod { namespace: member.namespace.clone(), name: member.name.clone() };
    members.flatten().filter(here).map(|member| (pod(member), Known::default())).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::Attachment;

    fn endpoint(uid: Option<&str>, closed: bool) -> Endpoint {
        let attachment =
            Attachment { interface: "v".into(), uid: uid.map(Into::into), ..Attachment::default() };
        Endpoint { pod: "x/a".parse().unwrap(), attachment, closed, since: 0, found: false }
    }

    fn coverage(told: bool, uid: &str) -> Coverage {
        let known = Known { uid: uid.into(), addresses: [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()].into() };
        Coverage { told, pods: [("x/a".parse().unwrap(), known)].into() }
    }

    #[test]
    fn another_life_of_a_pod_is_not_covered() {
        assert!(coverage(true, "u1").covers(&endpoint(Some("u1"), true)));
        assert!(!coverage(true, "u1").covers(&endpoint(Some("u2"), false)));
        assert!(coverage(true, "u1").covers(&endpoint(None, true)), "nobody said which life it is");
        assert!(coverage(true, "").covers(&endpoint(Some("u1"), true)));
        assert!(!Coverage { told: true, ..Coverage::default() }.covers(&endpoint(None, false)));
    }

    #[test]
    fn a_controller_that_does_not_tell_closes_nothing_that_is_open() {
        let silent = Coverage::default();
        assert!(silent.covers(&endpoint(None, false)) && !silent.covers(&endpoint(None, true)));
        assert!(coverage(false, "").covers(&endpoint(None, true)), "a policy names it");
    }

    #[test]
    fn a_pod_is_found_by_its_addresses_if_nobody_else_has_them() {
        let mut coverage = coverage(true, "u1");
        let one: BTreeSet<IpAddr> = [[10, 0, 0, 1].into()].into();
        assert_eq!(coverage.find(&one).unwrap().1.as_deref(), Some("u1"));
        assert_eq!(coverage.find(&BTreeSet::new()), None);
        assert_eq!(coverage.find(&[[10, 0, 0, 3].into()].into()), None);
        let twin = coverage.pods.values().next().unwrap().clone();
        coverage.pods.insert("x/b".parse().unwrap(), twin);
        assert_eq!(coverage.find(&one), None);
    }
}
