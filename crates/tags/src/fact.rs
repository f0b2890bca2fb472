//! Facts: what is stored of the tag graph, one store key each, so that a change writes only what it changes.

use model::{Leaf, Member, Subscriber, TagName};

/// Something that is so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    Leaf(TagName, Leaf),
    Group(TagName),
    /// The member belongs to the group.
    Membership(TagName, Member),
    Subscription(TagName, Subscriber),
}

/// Under what a fact is stored. A leaf and a group of one name share a key: a tag is one or the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Tag(TagName),
    Membership(TagName, Member),
    Subscription(TagName, Subscriber),
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    Put(Fact),
    Delete(Key),
}

/// What to store for a request to come true, each key at most once. Empty: it is true already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub writes: Vec<Write>,
}

impl Fact {
    pub fn key(&self) -> Key {
        match self {
            Self::Leaf(name, _) | Self::Group(name) => Key::Tag(name.clone()),
            Self::Membership(parent, member) => Key::Membership(parent.clone(), member.clone()),
            Self::Subscription(tag, subscriber) => Key::Subscription(tag.clone(), subscriber.clone()),
        }
    }
}

impl Write {
    pub fn key(&self) -> Key {
        match self {
            Self::Put(fact) => fact.key(),
            Self::Delete(key) => key.clone(),
        }
    }
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn put(&mut self, fact: Fact) {
        self.writes.push(Write::Put(fact));
    }

    pub(crate) fn delete(&mut self, key: Key) {
        self.writes.push(Write::Delete(key));
    }
}
