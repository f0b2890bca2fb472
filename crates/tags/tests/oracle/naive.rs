//! The oracle: the facts as plain sets, every answer worked out from scratch by recursion.

use std::collections::{BTreeMap, BTreeSet};

use model::{Leaf, Member, Subscriber, TagName};
use tags::{Cycle, Difference, Fact, Key, Kind, NotFound, Request, RequestError, ResolvedMember, Write};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Naive {
    /// `None` is a group.
    pub(crate) tags: BTreeMap<TagName, Option<Leaf>>,
    pub(crate) memberships: BTreeSet<(TagName, Member)>,
    pub(crate) subscriptions: BTreeSet<(TagName, Subscriber)>,
}

impl Naive {
    pub(crate) fn write(&mut self, write: Write) {
        match write {
            Write::Put(Fact::Leaf(name, leaf)) => {
                self.tags.insert(name, Some(leaf));
            }
            Write::Put(Fact::Group(name)) => {
                self.tags.insert(name, None);
            }
            Write::Put(Fact::Membership(parent, member)) => {
                self.memberships.insert((parent, member));
            }
            Write::Put(Fact::Subscription(tag, who)) => {
                self.subscriptions.insert((tag, who));
            }
            Write::Delete(Key::Tag(name)) => {
                self.tags.remove(&name);
            }
            Write::Delete(Key::Membership(parent, member)) => {
                self.memberships.remove(&(parent, member));
            }
            Write::Delete(Key::Subscription(tag, who)) => {
                self.subscriptions.remove(&(tag, who));
            }
        }
    }

    /// The state after a request.
    pub(crate) fn request(&self, request: &Request) -> Result<Self, RequestError> {
        let mut next = self.clone();
        let not_found = |tag: &TagName| RequestError::NotFound(NotFound { tag: tag.clone() });
        let kind =
            |tag: &TagName, current, requested| RequestError::Kind { tag: tag.clone(), current, requested };
        match request {
            Request::SetLeaf { tag, leaf } => {
                match self.tags.get(tag) {
                    Some(None) => return Err(kind(tag, Kind::Group, Kind::Leaf)),
                    Some(Some(_)) => {}
                    None => next.forget(tag),
                }
                next.tags.insert(tag.clone(), Some(leaf.clone()));
            }
            Request::SetGroup { tag, members } => {
                match self.tags.get(tag) {
                    Some(Some(_)) => return Err(kind(tag, Kind::Leaf, Kind::Group)),
                    Some(None) => {}
                    None => next.forget(tag),
                }
                next.tags.insert(tag.clone(), None);
                self.check_members(&next, tag, members)?;
                next.memberships.extend(members.iter().map(|member| (tag.clone(), member.clone())));
            }
            Request::DeleteMembers { tag, members } => {
                match self.tags.get(tag) {
                    None => return Err(not_found(tag)),
                    Some(Some(_)) => return Err(kind(tag, Kind::Leaf, Kind::Group)),
                    Some(None) => {}
                }
                for member in members {
                    if !next.memberships.remove(&(tag.clone(), member.clone())) {
                        return Err(RequestError::NotAMember { tag: tag.clone(), member: member.clone() });
                    }
                }
            }
            Request::DeleteTag { tag } => {
                next.tags.remove(tag).ok_or_else(|| not_found(tag))?;
                next.forget(tag);
            }
            Request::Subscribe { tag, subscriber } => {
                self.tags.get(tag).ok_or_else(|| not_found(tag))?;
                next.subscriptions.insert((tag.clone(), subscriber.clone()));
            }
            Request::Unsubscribe { tag, subscriber } => {
                next.subscriptions.remove(&(tag.clone(), subscriber.clone()));
            }
        }
        Ok(next)
    }

    fn forget(&mut self, tag: &TagName) {
        self.memberships.retain(|(parent, member)| parent != tag && *member != Member::Tag(tag.clone()));
        self.subscriptions.retain(|(subscribed, _)| subscribed != tag);
    }

    /// The path of a cycle is left to the caller to judge, so it is empty here.
    fn check_members(
        &self,
        next: &Self,
        tag: &TagName,
        members: &BTreeSet<Member>,
    ) -> Result<(), RequestError> {
        let cycle = |member: &TagName| RequestError::Cycle {
            tag: tag.clone(),
            member: member.clone(),
            cycle: Cycle { path: vec![] },
        };
        let names = || {
            members.iter().filter_map(|member| match member {
                Member::Tag(name) => Some(name),
                Member::Literal(_) => None,
            })
        };
        for name in names() {
            if name == tag {
                return Err(cycle(name));
            }
            if !self.tags.contains_key(name) {
                return Err(RequestError::MemberNotFound { tag: tag.clone(), member: name.clone() });
            }
        }
        let new = |name: &&TagName| !next.memberships.contains(&(tag.clone(), Member::Tag((*name).clone())));
        match names().filter(new).find(|name| next.below(name).contains(tag)) {
            Some(name) => Err(cycle(name)),
            None => Ok(()),
        }
    }

    pub(crate) fn members<'a>(&'a self, tag: &'a TagName) -> impl Iterator<Item = &'a Member> {
        self.memberships.iter().filter(move |(parent, _)| parent == tag).map(|(_, member)| member)
    }

    /// The tag itself and all tags below it.
    fn below(&self, tag: &TagName) -> BTreeSet<TagName> {
        let mut seen = BTreeSet::new();
        self.collect(tag, &mut seen, &mut BTreeSet::new());
        seen
    }

    pub(crate) fn resolve(&self, tag: &TagName) -> Option<BTreeSet<ResolvedMember>> {
        self.tags.get(tag)?;
        let mut found = BTreeSet::new();
        self.collect(tag, &mut BTreeSet::new(), &mut found);
        Some(found)
    }

    fn collect(&self, tag: &TagName, seen: &mut BTreeSet<TagName>, found: &mut BTreeSet<ResolvedMember>) {
        let Some(content) = self.tags.get(tag) else { return };
        if !seen.insert(tag.clone()) {
            return;
        }
        if let Some(leaf) = content {
            found.insert(ResolvedMember::Leaf { name: tag.clone(), leaf: leaf.clone() });
            return;
        }
        for member in self.members(tag) {
            match member {
                Member::Tag(name) => self.collect(name, seen, found),
                Member::Literal(address) => {
                    found.insert(ResolvedMember::Literal(*address));
                }
            }
        }
    }

    pub(crate) fn ancestors(&self, tag: &TagName) -> Option<Vec<&TagName>> {
        self.tags.get(tag)?;
        Some(self.tags.keys().filter(|other| *other != tag && self.below(other).contains(tag)).collect())
    }

    pub(crate) fn subscribers(&self, tag: &TagName) -> Vec<&Subscriber> {
        self.subscriptions.iter().filter(|(subscribed, _)| subscribed == tag).map(|(_, who)| who).collect()
    }

    /// What subscribers hear when this state becomes the next.
    pub(crate) fn by_subscriber(&self, next: &Self) -> BTreeMap<Subscriber, Vec<Difference>> {
        let mut heard: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (tag, who) in self.subscriptions.union(&next.subscriptions) {
            let (was, is) = (self.resolve(tag), next.resolve(tag));
            let deleted = was.is_some() && is.is_none();
            let (was, is) = (was.unwrap_or_default(), is.unwrap_or_default());
            if was != is || deleted {
                let added = is.difference(&was).cloned().collect();
                let removed = was.difference(&is).cloned().collect();
                heard.entry(who.clone()).or_default().push(Difference {
                    tag: tag.clone(),
                    added,
                    removed,
                    deleted,
                });
            }
        }
        heard
    }

    pub(crate) fn facts(&self) -> BTreeSet<Fact> {
        let tags = self.tags.iter().map(|(name, leaf)| match leaf {
            Some(leaf) => Fact::Leaf(name.clone(), leaf.clone()),
            None => Fact::Group(name.clone()),
        });
        let memberships =
            self.memberships.iter().cloned().map(|(parent, member)| Fact::Membership(parent, member));
        let subscriptions = self.subscriptions.iter().cloned().map(|(tag, who)| Fact::Subscription(tag, who));
        tags.chain(memberships).chain(subscriptions).collect()
    }
}
