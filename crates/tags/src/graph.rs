//! The graph itself: facts in, nodes and edges out.
//!
//! In: transactions of facts ([`Graph::apply`]). Out: nodes by name and id to the walks.
//! Holds: one node per name that a fact mentions; `members` and `parents` mirror each other; a node that no fact
//! mentions is released at the end of the transaction. Not here: what may be changed (`plan`), what it means for
//! subscribers (`change`).

#[cfg(test)]
pub(crate) mod tests;

use imbl::{OrdMap, Vector};
use model::{Address, Member, Subscriber, TagName};

use crate::{
    Change, Fact, Key, ResolvedMember, Write,
    change::Touched,
    node::{Content, Id, Node},
};

/// All tags, memberships and subscriptions. A clone costs O(1) and stays as it was when taken: readers use clones
/// while one writer goes on. Graphs are equal if they hold the same facts.
#[derive(Clone, Default)]
pub struct Graph {
    tags: OrdMap<TagName, Id>,
    literals: OrdMap<Address, Id>,
    nodes: Vector<Option<Node>>,
    /// Ids of the `None`s in `nodes`.
    vacant: Vector<Id>,
    subscriptions: usize,
}

impl Graph {
    /// Takes in one committed transaction. Total: any facts in any order give a defined graph; of several writes
    /// to one key the last counts, and writes that change nothing are no change.
    pub fn apply(&mut self, writes: impl IntoIterator<Item = Write>) -> Change {
        let before = self.clone();
        let mut touched = Touched::default();
        for write in writes {
            self.write(write, &mut touched);
        }
        self.release(&touched);
        Change::new(before, self.clone(), touched)
    }

    /// Whether a write would leave the graph as it is.
    pub(crate) fn is_settled(&self, write: &Write) -> bool {
        match write {
            Write::Put(Fact::Leaf(name, leaf)) => self.find(name).is_some_and(|(_, node)| {
                matches!(&node.content, Content::Terminal(ResolvedMember::Leaf { leaf: current, .. }) if current == leaf)
            }),
            Write::Put(Fact::Group(name)) => self.find(name).is_some_and(|(_, node)| node.is_group()),
            Write::Put(fact) => self.holds(&fact.key()),
            Write::Delete(key) => !self.holds(key),
        }
    }

    fn holds(&self, key: &Key) -> bool {
        match key {
            Key::Tag(name) => self.find(name).is_some_and(|(_, node)| node.content != Content::Absent),
            Key::Membership(parent, member) => {
                self.find(parent).is_some_and(|(_, node)| node.members.contains_key(member))
            }
            Key::Subscription(tag, subscriber) => {
                self.find(tag).is_some_and(|(_, node)| node.subscribers.contains(subscriber))
            }
        }
    }

    /// All facts, in a fixed order that does not depend on history: by tag, its content before its memberships
    /// before its subscriptions.
    pub fn facts(&self) -> impl Iterator<Item = Fact> + '_ {
        self.tags.iter().filter_map(|(name, id)| Some((name, self.node(*id)?))).flat_map(|(name, node)| {
            let content = match &node.content {
                Content::Absent | Content::Terminal(ResolvedMember::Literal(_)) => None,
                Content::Group => Some(Fact::Group(name.clone())),
                Content::Terminal(ResolvedMember::Leaf { leaf, .. }) => {
                    Some(Fact::Leaf(name.clone(), leaf.clone()))
                }
            };
            let memberships =
                node.members.keys().map(|member| Fact::Membership(name.clone(), member.clone()));
            let subscriptions =
                node.subscribers.iter().map(|who| Fact::Subscription(name.clone(), who.clone()));
            content.into_iter().chain(memberships).chain(subscriptions)
        })
    }

    /// How many tag names there are, also those that are only mentioned.
    pub fn name_count(&self) -> usize {
        self.tags.len()
    }

    pub(crate) fn tags(&self) -> &OrdMap<TagName, Id> {
        &self.tags
    }

    /// How many tags and literals any fact mentions.
    pub(crate) fn names(&self) -> usize {
        self.tags.len() + self.literals.len()
    }

    /// The ids of all names: literals by address, then tags by name.
    pub(crate) fn ids_in_order(&self) -> impl Iterator<Item = Id> + '_ {
        self.literals.values().chain(self.tags.values()).copied()
    }

    pub(crate) fn has_subscriptions(&self) -> bool {
        self.subscriptions > 0
    }

    /// No id is this large or larger.
    pub(crate) fn id_limit(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn node(&self, id: Id) -> Option<&Node> {
        self.nodes.get(id.index())?.as_ref()
    }

    /// The node of a tag name, be it a tag or only mentioned.
    pub(crate) fn find(&self, name: &TagName) -> Option<(Id, &Node)> {
        let id = *self.tags.get(name)?;
        Some((id, self.node(id)?))
    }

    fn write(&mut self, write: Write, touched: &mut Touched) {
        match write {
            Write::Put(Fact::Leaf(name, leaf)) => {
                let content = Content::Terminal(ResolvedMember::Leaf { name: name.clone(), leaf });
                let id = self.intern(Member::Tag(name));
                self.set_content(id, content, touched);
            }
            Write::Put(Fact::Group(name)) => {
                let id = self.intern(Member::Tag(name));
                self.set_content(id, Content::Group, touched);
            }
            Write::Put(Fact::Membership(parent, member)) => {
                let parent = self.intern(Member::Tag(parent));
                self.attach(parent, member, touched);
            }
            Write::Put(Fact::Subscription(tag, subscriber)) => {
                let id = self.intern(Member::Tag(tag));
                self.subscribe(id, subscriber);
            }
            Write::Delete(Key::Tag(name)) => {
                if let Some(id) = self.tags.get(&name) {
                    self.set_content(*id, Content::Absent, touched);
                }
            }
            Write::Delete(Key::Membership(parent, member)) => {
                if let Some(parent) = self.tags.get(&parent) {
                    self.detach(*parent, &member, touched);
                }
            }
            Write::Delete(Key::Subscription(tag, subscriber)) => {
                if let Some(id) = self.tags.get(&tag) {
                    self.unsubscribe(*id, &subscriber, touched);
                }
            }
        }
    }

    // A write that changes nothing must not touch a node: the first touch copies it away from the snapshots.

    fn set_content(&mut self, id: Id, content: Content, touched: &mut Touched) {
        if self.node(id).is_some_and(|node| node.content != content) {
            self.node_mut(id).content = content;
            touched.tags.push(id);
        }
    }

    fn attach(&mut self, parent: Id, member: Member, touched: &mut Touched) {
        let id = self.intern(member.clone());
        if self.node(id).is_some_and(|node| !node.parents.contains(parent)) {
            self.node_mut(id).parents.insert(parent);
            self.node_mut(parent).members.insert(member, id);
            touched.memberships.push((parent, id));
        }
    }

    fn detach(&mut self, parent: Id, member: &Member, touched: &mut Touched) {
        if let Some(&id) = self.node(parent).and_then(|node| node.members.get(member)) {
            self.node_mut(id).parents.remove(parent);
            self.node_mut(parent).members.remove(member);
            touched.memberships.push((parent, id));
        }
    }

    fn subscribe(&mut self, id: Id, subscriber: Subscriber) {
        if self.node(id).is_some_and(|node| !node.subscribers.contains(&subscriber)) {
            self.node_mut(id).subscribers.insert(subscriber);
            self.subscriptions += 1;
        }
    }

    fn unsubscribe(&mut self, id: Id, subscriber: &Subscriber, touched: &mut Touched) {
        if self.node(id).is_some_and(|node| node.subscribers.contains(subscriber)) {
            self.node_mut(id).subscribers.remove(subscriber);
            self.subscriptions -= 1;
            touched.unsubscribed.push(id);
        }
    }

    /// The id of a name, made up if the name is new.
    fn intern(&mut self, name: Member) -> Id {
        let known = match &name {
            Member::Tag(tag) => self.tags.get(tag),
            Member::Literal(address) => self.literals.get(address),
        };
        if let Some(id) = known {
            return *id;
        }
        let id = self.vacant.pop_back().unwrap_or_else(|| {
            self.nodes.push_back(None);
            Id::new(self.nodes.len() - 1)
        });
        match &name {
            Member::Tag(tag) => self.tags.insert(tag.clone(), id),
            Member::Literal(address) => self.literals.insert(*address, id),
        };
        self.nodes[id.index()] = Some(Node::new(name));
        id
    }

    fn node_mut(&mut self, id: Id) -> &mut Node {
        self.nodes[id.index()].as_mut().expect("an interned id has a node until the transaction ends")
    }

    fn release(&mut self, touched: &Touched) {
        for id in touched.ids() {
            let Some(node) = self.node(id) else { continue };
            if !node.is_bare() {
                continue;
            }
            match node.name.clone() {
                Member::Tag(tag) => self.tags.remove(&tag),
                Member::Literal(address) => self.literals.remove(&address),
            };
            self.nodes[id.index()] = None;
            self.vacant.push_back(id);
        }
    }
}

impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        self.facts().eq(other.facts())
    }
}

impl Eq for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.facts()).finish()
    }
}
