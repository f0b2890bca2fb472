//! Planning: a request judged against the graph as it is, and what to store for it to come true.

use std::collections::BTreeSet;

use model::{Leaf, Member, Subscriber, TagName};

use crate::{
    Cycle, Fact, Graph, Key, Kind, Plan, Request, RequestError, ResolvedMember,
    node::{Content, Id, Node},
};

impl Graph {
    /// Judges a request. The graph is not changed: store the plan, then [`Graph::apply`] it. A request that is
    /// fulfilled already gives an empty plan.
    pub fn plan(&self, request: &Request) -> Result<Plan, RequestError> {
        match request {
            Request::SetLeaf { tag, leaf } => self.plan_leaf(tag, leaf),
            Request::SetGroup { tag, members } => self.plan_group(tag, members),
            Request::DeleteMembers { tag, members } => self.plan_delete_members(tag, members),
            Request::DeleteTag { tag } => self.plan_delete_tag(tag),
            Request::Subscribe { tag, subscriber } => self.plan_subscribe(tag, subscriber),
            Request::Unsubscribe { tag, subscriber } => Ok(self.plan_unsubscribe(tag, subscriber)),
        }
    }

    fn plan_leaf(&self, tag: &TagName, leaf: &Leaf) -> Result<Plan, RequestError> {
        if leaf.uri.is_none() && leaf.ip.is_none() {
            return Err(RequestError::EmptyLeaf { tag: tag.clone() });
        }
        let mut plan = Plan::default();
        match self.find(tag).map(|(_, node)| (node, &node.content)) {
            Some((_, Content::Group)) => return Err(kind(tag, Kind::Group, Kind::Leaf)),
            Some((_, Content::Terminal(ResolvedMember::Leaf { leaf: current, .. }))) if current == leaf => {
                return Ok(plan);
            }
            Some((_, Content::Terminal(_))) | None => {}
            Some((node, Content::Absent)) => self.sweep(tag, node, &BTreeSet::new(), &mut plan),
        }
        plan.put(Fact::Leaf(tag.clone(), leaf.clone()));
        Ok(plan)
    }

    fn plan_group(&self, tag: &TagName, members: &BTreeSet<Member>) -> Result<Plan, RequestError> {
        let current = self.find(tag);
        let exists = match current.map(|(_, node)| &node.content) {
            Some(Content::Terminal(_)) => return Err(kind(tag, Kind::Leaf, Kind::Group)),
            Some(Content::Group) => true,
            Some(Content::Absent) | None => false,
        };
        let has = |member: &Member| current.is_some_and(|(_, node)| node.members.contains_key(member));
        let groups = self.check_members(tag, members, has)?;
        let mut plan = Plan::default();
        match current {
            Some((id, _)) if exists => {
                if let Some((member, cycle)) = self.find_cycle(id, &groups) {
                    return Err(RequestError::Cycle { tag: tag.clone(), member, cycle });
                }
            }
            // Nothing holds a new tag, so nothing below it can.
            Some((_, node)) => self.sweep(tag, node, members, &mut plan),
            None => {}
        }
        if !exists {
            plan.put(Fact::Group(tag.clone()));
        }
        for member in members.iter().filter(|member| !has(member)) {
            plan.put(Fact::Membership(tag.clone(), member.clone()));
        }
        Ok(plan)
    }

    fn plan_delete_members(&self, tag: &TagName, members: &BTreeSet<Member>) -> Result<Plan, RequestError> {
        let (_, node) = self.tag(tag)?;
        if !node.is_group() {
            return Err(kind(tag, Kind::Leaf, Kind::Group));
        }
        let mut plan = Plan::default();
        for member in members {
            if !node.members.contains_key(member) {
                return Err(RequestError::NotAMember { tag: tag.clone(), member: member.clone() });
            }
            plan.delete(Key::Membership(tag.clone(), member.clone()));
        }
        Ok(plan)
    }

    fn plan_delete_tag(&self, tag: &TagName) -> Result<Plan, RequestError> {
        let (_, node) = self.tag(tag)?;
        let mut plan = Plan::default();
        plan.delete(Key::Tag(tag.clone()));
        self.sweep(tag, node, &BTreeSet::new(), &mut plan);
        Ok(plan)
    }

    fn plan_subscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<Plan, RequestError> {
        let (_, node) = self.tag(tag)?;
        let mut plan = Plan::default();
        if !node.subscribers.contains(subscriber) {
            plan.put(Fact::Subscription(tag.clone(), subscriber.clone()));
        }
        Ok(plan)
    }

    /// A tag takes its subscriptions with it when it is deleted, so unsubscribing from a tag that is gone has
    /// nothing left to do; it must not fail the clean-up of whoever did not know.
    fn plan_unsubscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Plan {
        let mut plan = Plan::default();
        if self.find(tag).is_some_and(|(_, node)| node.subscribers.contains(subscriber)) {
            plan.delete(Key::Subscription(tag.clone(), subscriber.clone()));
        }
        plan
    }

    /// Checks that members exist, and picks out the new groups: only they can lead back to the tag.
    fn check_members(
        &self,
        tag: &TagName,
        members: &BTreeSet<Member>,
        has: impl Fn(&Member) -> bool,
    ) -> Result<BTreeSet<Id>, RequestError> {
        let mut groups = BTreeSet::new();
        for member in members {
            let Member::Tag(name) = member else { continue };
            if name == tag {
                let cycle = Cycle { path: vec![tag.clone(), tag.clone()] };
                return Err(RequestError::Cycle { tag: tag.clone(), member: tag.clone(), cycle });
            }
            let Ok((id, node)) = self.tag(name) else {
                return Err(RequestError::MemberNotFound { tag: tag.clone(), member: name.clone() });
            };
            if node.is_group() && !has(member) {
                groups.insert(id);
            }
        }
        Ok(groups)
    }

    /// Deletes all memberships and subscriptions that mention a tag, but for the memberships to keep below it.
    fn sweep(&self, tag: &TagName, node: &Node, keep: &BTreeSet<Member>, plan: &mut Plan) {
        for member in node.members.keys().filter(|member| !keep.contains(member)) {
            plan.delete(Key::Membership(tag.clone(), member.clone()));
        }
        for parent in node.parents.iter().filter_map(|id| self.node(id)) {
            match &parent.name {
                // A tag that holds itself is among its own members.
                Member::Tag(parent) if parent != tag => {
                    plan.delete(Key::Membership(parent.clone(), Member::Tag(tag.clone())));
                }
                Member::Tag(_) | Member::Literal(_) => {}
            }
        }
        for subscriber in &node.subscribers {
            plan.delete(Key::Subscription(tag.clone(), subscriber.clone()));
        }
    }
}

fn kind(tag: &TagName, current: Kind, requested: Kind) -> RequestError {
    RequestError::Kind { tag: tag.clone(), current, requested }
}
