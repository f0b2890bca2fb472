//! From one update of the engine straight to frames, for who keeps no state between them.

use std::sync::Arc;

use bytes::Bytes;
use model::policy::output::{Change, GroupUpdate, Member, PolicyUpdate, Update};

use super::{Encoding, EventType, Title, frame, group_frame, put_group, put_patch};
use crate::{convert, resource::Resource};

/// Every frame that is made of an update: what readers are told who know the state before it. One for all of them, or of
/// an AppliedToGroup one for each node. A node that comes into the span of something that did not change gets a frame
/// that was made before, and there is none of that here.
pub fn frames(update: &Update, encoding: Encoding, mut each: impl FnMut(Bytes)) {
    match update {
        Update::NetworkPolicy(update) => policy(update, encoding, &mut each),
        Update::AddressGroup(update) => address_group(update, encoding, &mut each),
        Update::AppliedToGroup(update) => applied_to_group(update, encoding, &mut each),
        Update::Status(_) => {}
    }
}

fn policy(update: &PolicyUpdate, encoding: Encoding, each: &mut impl FnMut(Bytes)) {
    let mut out = Vec::new();
    match update.change {
        Change::Removed => {
            frame(&mut out, encoding, EventType::Deleted, &convert::policy_stub(&update.policy));
        }
        Change::Updated if !update.content_changed => return,
        Change::Updated => frame(&mut out, encoding, EventType::Modified, &convert::policy(&update.policy)),
        Change::Added => frame(&mut out, encoding, EventType::Added, &convert::policy(&update.policy)),
    }
    each(out.into());
}

fn address_group(update: &GroupUpdate, encoding: Encoding, each: &mut impl FnMut(Bytes)) {
    let title = Title { resource: Resource::AddressGroups, name: &update.name, uid: &update.uid };
    let mut out = Vec::new();
    match update.change {
        Change::Added => put_group(&mut out, title, &update.added, encoding),
        Change::Removed => group_frame(&mut out, encoding, title, EventType::Deleted, Vec::new()),
        Change::Updated if update.added.is_empty() && update.removed.is_empty() => return,
        Change::Updated => put_patch(&mut out, title, &update.added, &update.removed, encoding),
    }
    each(out.into());
}

/// A node that is new to the span has nobody in the group but who is added now.
fn applied_to_group(update: &GroupUpdate, encoding: Encoding, each: &mut impl FnMut(Bytes)) {
    let title = Title { resource: Resource::AppliedToGroups, name: &update.name, uid: &update.uid };
    let mut emit = |put: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        put(&mut out);
        each(out.into());
    };
    let (added, removed) = (by_node(&update.added), by_node(&update.removed));
    let came = |node: &Option<Arc<str>>| {
        node.as_ref().is_some_and(|node| update.span_added.binary_search(node).is_ok())
    };
    let went = |node: &Option<Arc<str>>| {
        node.as_ref().is_some_and(|node| update.span_removed.binary_search(node).is_ok())
    };
    for part in added.chunk_by(|a, b| a.node == b.node) {
        let node = &part[0].node;
        let gone: Vec<_> = removed.iter().filter(|member| member.node == *node).cloned().collect();
        match came(node) {
            true => emit(&|out| put_group(out, title, part, encoding)),
            false => emit(&|out| put_patch(out, title, part, &gone, encoding)),
        }
    }
    for part in removed.chunk_by(|a, b| a.node == b.node) {
        let is_told = added.iter().any(|member| member.node == part[0].node) || went(&part[0].node);
        if !is_told {
            emit(&|out| put_patch(out, title, &[], part, encoding));
        }
    }
    for _ in update.span_removed.iter() {
        emit(&|out| group_frame(out, encoding, title, EventType::Deleted, Vec::new()));
    }
}

fn by_node(members: &[Arc<Member>]) -> Vec<Arc<Member>> {
    let mut members = members.to_vec();
    members.sort_by(|a, b| a.node.cmp(&b.node));
    members
}
