//! The policy engine's updates, published to nodes.

use ::transport::{Change, Source, SpanChange};
use model::policy::output::{self, GroupUpdate, Member, PolicyUpdate, Span, Update};
use wire::{
    node::{address_member, applied_to_member},
    trestle::v1::{NodePolicy, ObjectKind, SetMember},
};

use super::{
    objects,
    told::{Name, Told},
};
use crate::policy::Consumer;

/// Publishes each drain of the engine as one step.
pub(super) struct PolicyConsumer {
    pub source: Source,
    pub told: Told,
}

impl Consumer for PolicyConsumer {
    fn apply(&mut self, updates: &[Update]) {
        let named = updates.iter().filter_map(named);
        let (gone, there): (Vec<_>, Vec<_>) =
            named.partition(|(_, change)| *change == output::Change::Removed);
        // Written down before they are told.
        self.told.come(there.into_iter().map(|(name, _)| name));
        self.source.publish(updates.iter().filter_map(change));
        gone.into_iter().for_each(|(name, _)| self.told.go(name));
    }

    fn synced(&mut self) {
        let gone = self.told.settle();
        self.source.publish(gone.iter().map(|gone| objects::gone(gone.kind, &gone.name.to_string())));
        self.source.synced();
    }
}

/// The set or policy that an update is about.
fn named(update: &Update) -> Option<(Name, output::Change)> {
    let (kind, name, change) = match update {
        Update::AppliedToGroup(group) => (ObjectKind::AppliedToSet, &group.name, group.change),
        Update::AddressGroup(group) => (ObjectKind::AddressSet, &group.name, group.change),
        Update::NetworkPolicy(policy) => (ObjectKind::Policy, &policy.uid, policy.change),
        Update::Status(_) => return None,
    };
    Some((Name { kind, name: name.clone() }, change))
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
            let members =
                |members: &[std::sync::Arc<Member>]| members.iter().map(|m| member(m)).collect::<Vec<_>>();
            let span = moved(&group.span_added, &group.span_removed);
            let put = members(&group.added).into_iter().chain(members(&group.readdressed)).collect();
            objects::change_set(kind, &name, put, members(&group.removed), span)
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
