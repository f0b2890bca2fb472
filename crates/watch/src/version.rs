//! One object at one moment, and its frames, encoded when first asked for and shared from then on.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use model::policy::output::{Identifier, Member, NetworkPolicy};

use crate::{
    encoding::Encoding,
    members::{AddressKey, AppliedToKey, Difference, Members},
};

#[derive(Debug, Clone)]
pub enum Content {
    Policy(Arc<NetworkPolicy>),
    AppliedTo(Members<AppliedToKey>),
    Address(Members<AddressKey>),
}

#[derive(Debug)]
pub struct Version {
    pub name: Identifier,
    pub uid: Identifier,
    pub content: Content,
    /// ADDED with everything in it. Not used for one node's part of an AppliedToGroup, which nobody shares.
    pub added: Frames,
}

/// One slot per encoding; a pointer wide while nothing is encoded.
#[derive(Debug, Default)]
pub struct Frames(OnceLock<Box<[OnceLock<Bytes>; Encoding::COUNT]>>);

impl Frames {
    pub fn get(&self, encoding: Encoding, encode: impl FnOnce() -> Bytes) -> Bytes {
        self.0.get_or_init(Box::default)[encoding as usize].get_or_init(encode).clone()
    }
}

/// Which part of an object a watcher sees.
pub type Node = Option<Arc<str>>;

impl Version {
    pub fn new(name: Identifier, uid: Identifier, content: Content) -> Arc<Self> {
        Arc::new(Version { name, uid, content, added: Frames::default() })
    }

    /// What a watcher on `node` sees of the members. An AppliedToGroup seen as a whole has a workload once, however
    /// many nodes it is enforced on: the wire knows no node.
    pub fn members(&self, node: &Node) -> Vec<Arc<Member>> {
        match (&self.content, node) {
            (Content::Policy(_), _) => Vec::new(),
            (Content::Address(members), _) => members.iter().cloned().collect(),
            (Content::AppliedTo(members), Some(node)) => members.on_node(node).cloned().collect(),
            (Content::AppliedTo(members), None) => {
                let mut all: Vec<_> = members.iter().cloned().collect();
                all.sort_by(|a, b| crate::members::workload_order(a, b));
                all.dedup_by(|a, b| a.same_workload(b));
                all
            }
        }
    }

    /// What a watcher on `node` has to learn to come from `self` to `later`.
    pub fn difference(&self, later: &Self, node: &Node) -> Difference {
        match (&self.content, &later.content) {
            (Content::Address(before), Content::Address(after)) => before.difference(after),
            (Content::AppliedTo(before), Content::AppliedTo(after)) => {
                later.visible(before.difference(after), node)
            }
            _ => Difference::default(),
        }
    }

    /// The part of a difference that led to `self` which a watcher on `node` sees.
    pub fn visible(&self, mut difference: Difference, node: &Node) -> Difference {
        let Content::AppliedTo(members) = &self.content else { return difference };
        match node {
            Some(_) => {
                difference.added.retain(|member| member.node == *node);
                difference.removed.retain(|member| member.node == *node);
            }
            // On the wire a workload on two nodes is one member, and removing it once would remove it from both.
            None => difference
                .removed
                .retain(|removed| !members.iter().any(|member| member.same_workload(removed))),
        }
        difference
    }
}
