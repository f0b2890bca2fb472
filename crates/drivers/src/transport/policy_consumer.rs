//! The policy engine's updates, published to nodes.

use ::transport::{Change, Source, SpanChange};
use model::policy::output::{self, GroupUpdate, Member, PolicyUpdate, Span, Update};
use wire::{
    node::{address_member, applied_to_member},
    trestle::v1::{NodePolicy, ObjectKind, SetMember},
};

use super::objects;
use crate::policy::Consumer;

/// Publishes each drain of the engine as one step.
pub(super) struct PolicyConsumer(pub Source);

impl Consumer for PolicyConsumer {
    fn apply(&mut self, updates: &[Update]) {
        self.0.publish(updates.iter().filter_map(change));
    }

    fn synced(&mut self) {
        self.0.synced();
    }
}

fn change(update: &Update) -> Option<Change> {
    match update {
        Update::AppliedToGroup(group) => {
            Some(group_change(ObjectKind::AppliedToSet, group, applied_to_member))
        }
        Update::AddressGroup(group) => Some(group_change(ObjectKind::AddressSet, group, address_member)),
        Update::NetworkPolicy(policy) => Some(policy_change(policy)),
        // For people, not for nodes.
        Update::Status(_) => None,
    }
}

fn group_change(kind: ObjectKind, group: &GroupUpdate, member: fn(&Member) -> SetMember) -> Change {
    let name = group.name.to_string();
    match group.change {
        output::Change::Removed => objects::remove(kind, &name),
        output::Change::Added | output::Change::Updated => {
            let members = |members: &[std::sync::Arc<Member>]| members.iter().map(|m| member(m)).collect();
            let span = moved(&group.span_added, &group.span_removed);
            objects::change_set(kind, &name, members(&group.added), members(&group.removed), span)
        }
    }
}

fn policy_change(policy: &PolicyUpdate) -> Change {
    let name = policy.uid.to_string();
    match policy.change {
        output::Change::Removed => objects::remove(ObjectKind::Policy, &name),
        output::Change::Added | output::Change::Updated => {
            let span = moved(&policy.span_added, &policy.span_removed);
            objects::put_policy(&name, &NodePolicy::from(&*policy.policy), span)
        }
    }
}

fn moved(gained: &Span, lost: &Span) -> SpanChange {
    SpanChange::Move { gained: gained.to_vec(), lost: lost.to_vec() }
}
