//! One object that a node holds.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use wire::trestle::v1::{NodeApply, SetMember, SetUpdate, node_apply::Body};

/// The name of an object: a number of `ObjectKind`, which may be one this version does not know, and a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub kind: i32,
    pub name: String,
}

impl Key {
    pub fn new(kind: impl Into<i32>, name: &str) -> Self {
        Self { kind: kind.into(), name: name.to_owned() }
    }
}

/// Members by their identity: all fields but the ports, as bytes.
pub type Members = BTreeMap<Vec<u8>, SetMember>;

#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// As the controller said; stands for the content in digests.
    pub hash: u64,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Set(Members),
    /// Anything that is always sent whole.
    Whole(Encoded),
    /// Of a kind this version has no body for.
    Unknown,
}

/// A body as its bytes. There are many, each is read when it changes, and decoded it is ten times as large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded(Box<[u8]>);

impl Encoded {
    fn new(body: Body) -> Self {
        Self(NodeApply { body: Some(body), ..NodeApply::default() }.encode_to_vec().into())
    }

    pub fn body(&self) -> Body {
        let apply = NodeApply::decode(&*self.0).expect("it was encoded here");
        apply.body.expect("it was encoded with a body")
    }
}

/// How an object differs from what it was.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// In any way: look at all of it.
    Whole,
    /// A set, by these members: those with these identities came or have other ports, those went.
    Members {
        put: BTreeSet<Vec<u8>>,
        removed: Members,
    },
    Gone,
}

impl Difference {
    /// Two differences, one after the other, as one.
    pub fn join(&mut self, later: Self) {
        match (&mut *self, later) {
            (Self::Members { put, removed }, Self::Members { put: more, removed: gone }) => {
                removed.retain(|id, _| !more.contains(id));
                put.retain(|id| !gone.contains_key(id));
                put.extend(more);
                removed.extend(gone);
            }
            (Self::Whole, Self::Members { .. }) => {}
            (earlier, later) => *earlier = later,
        }
    }
}

/// What tells a member from others of its set.
pub fn member_id(member: &SetMember) -> Vec<u8> {
    // A member without ports, which is how removals are said, is its own identity.
    SetMember { ports: Vec::new(), ..member.clone() }.encode_to_vec()
}

impl Content {
    /// Takes in a message's body; what that changed.
    pub(super) fn update(&mut self, body: Option<Body>) -> Option<Difference> {
        match (body, &mut *self) {
            (Some(Body::Set(update)), Self::Set(members)) if !update.replace => change(members, update),
            (Some(Body::Set(update)), content) => {
                let mut members = Members::new();
                change(&mut members, update);
                content.become_other(Self::Set(members))
            }
            (Some(body), content) => content.become_other(Self::Whole(Encoded::new(body))),
            (None, content) => content.become_other(Self::Unknown),
        }
    }

    fn become_other(&mut self, new: Self) -> Option<Difference> {
        let differs = *self != new;
        *self = new;
        differs.then_some(Difference::Whole)
    }
}

fn change(members: &mut Members, update: SetUpdate) -> Option<Difference> {
    let (mut put, mut removed) = (BTreeSet::new(), Members::new());
    for member in &update.removed {
        let id = member_id(member);
        if let Some(member) = members.remove(&id) {
            removed.insert(id, member);
        }
    }
    for member in update.put {
        let id = member_id(&member);
        if members.get(&id) != Some(&member) {
            removed.remove(&id);
            put.insert(id.clone());
            members.insert(id, member);
        }
    }
    let changed = !(put.is_empty() && removed.is_empty());
    changed.then_some(Difference::Members { put, removed })
}

impl Object {
    /// The message that makes this object out of nothing.
    pub(super) fn apply(&self, key: &Key) -> NodeApply {
        let body = match &self.content {
            Content::Set(members) => {
                let put = members.values().cloned().collect();
                Some(Body::Set(SetUpdate { replace: true, put, removed: Vec::new() }))
            }
            Content::Whole(encoded) => Some(encoded.body()),
            Content::Unknown => None,
        };
        NodeApply { kind: key.kind, name: key.name.clone(), hash: self.hash, body }
    }
}
