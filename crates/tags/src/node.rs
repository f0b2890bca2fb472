//! Nodes: one per name or literal that any fact mentions, addressed by a dense id.

use imbl::{OrdMap, OrdSet};
use model::{Member, Subscriber};

use crate::ResolvedMember;

/// The place of a node. Reused once no fact mentions the name, but never within one transaction, so that an id
/// found both before and after it means the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(u32);

impl Id {
    pub(crate) fn new(index: usize) -> Self {
        Self(index.try_into().expect("a graph of 2^32 names does not fit in memory"))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: Member,
    pub(crate) content: Content,
    /// Raw memberships; inert unless this node is a group.
    pub(crate) members: OrdMap<Member, Id>,
    /// Exactly the nodes that have this one among their `members`.
    pub(crate) parents: Parents,
    pub(crate) subscribers: OrdSet<Subscriber>,
}

/// What a walk finds at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Mentioned by a membership or subscription, but not a tag.
    Absent,
    Group,
    /// A leaf or a literal: where walks down end.
    Terminal(ResolvedMember),
}

impl Node {
    pub(crate) fn new(name: Member) -> Self {
        let content = match &name {
            Member::Literal(address) => Content::Terminal(ResolvedMember::Literal(*address)),
            Member::Tag(_) => Content::Absent,
        };
        Self {
            name,
            content,
            members: OrdMap::new(),
            parents: Parents::default(),
            subscribers: OrdSet::new(),
        }
    }

    pub(crate) fn is_group(&self) -> bool {
        self.content == Content::Group
    }

    /// No fact mentions it any more.
    pub(crate) fn is_bare(&self) -> bool {
        let states_nothing = match self.name {
            Member::Literal(_) => true,
            Member::Tag(_) => self.content == Content::Absent,
        };
        states_nothing && self.members.is_empty() && self.parents.is_empty() && self.subscribers.is_empty()
    }
}

/// A set of ids. Most leaves have one parent, and a set of one is not worth an allocation a million times over.
#[derive(Clone, Debug, Default)]
pub(crate) enum Parents {
    #[default]
    None,
    One(Id),
    Many(OrdSet<Id>),
}

impl Parents {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(crate) fn contains(&self, id: Id) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => *one == id,
            Self::Many(ids) => ids.contains(&id),
        }
    }

    pub(crate) fn insert(&mut self, id: Id) {
        match self {
            Self::None => *self = Self::One(id),
            Self::One(one) if *one == id => {}
            Self::One(one) => *self = Self::Many([*one, id].into_iter().collect()),
            Self::Many(ids) => {
                ids.insert(id);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: Id) {
        match self {
            Self::One(one) if *one == id => *self = Self::None,
            Self::None | Self::One(_) => {}
            Self::Many(ids) => {
                ids.remove(&id);
                if let (1, Some(last)) = (ids.len(), ids.get_min()) {
                    *self = Self::One(*last);
                }
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Id> + '_ {
        let (one, many) = match self {
            Self::None => (None, None),
            Self::One(one) => (Some(*one), None),
            Self::Many(ids) => (None, Some(ids)),
        };
        one.into_iter().chain(many.into_iter().flatten().copied())
    }
}
