//! What a consumer knows, in a form that compares and prints: names, no ids.

use std::collections::{BTreeMap, BTreeSet};

use model::policy::{
    ObjectId,
    output::{Member, NetworkPolicy, Problem},
};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    pub applied_to: BTreeMap<String, GroupState>,
    pub address: BTreeMap<String, GroupState>,
    pub policies: BTreeMap<String, PolicyState>,
    pub problems: BTreeMap<ObjectId, Vec<Problem>>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupState {
    pub uid: String,
    /// By key; the value is the rest of what this kind of group reads.
    pub members: BTreeMap<String, String>,
    pub span: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PolicyState {
    pub policy: NetworkPolicy,
    pub span: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupKind {
    AppliedTo,
    Address,
}

pub fn key_and_rest(kind: GroupKind, member: &Member) -> (String, String) {
    let key = match kind {
        GroupKind::AppliedTo => {
            format!("{member} on {}", member.node.as_deref().expect("applied-to members have a node"))
        }
        GroupKind::Address => format!("{member} at {:?}", member.addresses.as_slice()),
    };
    // Of an AddressGroup the addresses are in the key.
    (key, format!("{:?} {:?}", member.ports, member.addresses.as_slice()))
}

impl State {
    /// What one node sees: its policies, its AddressGroups in full, its part of the AppliedToGroups.
    pub fn on_node(&self, node: &str) -> State {
        let mut seen = State::default();
        for (name, group) in self.applied_to.iter().filter(|(_, group)| group.span.contains(node)) {
            let mut group = group.clone();
            group.members.retain(|key, _| key.ends_with(&format!(" on {node}")));
            group.span.clear();
            seen.applied_to.insert(name.clone(), group);
        }
        for (name, group) in self.address.iter().filter(|(_, group)| group.span.contains(node)) {
            seen.address.insert(name.clone(), GroupState { span: BTreeSet::new(), ..group.clone() });
        }
        for (name, policy) in self.policies.iter().filter(|(_, policy)| policy.span.contains(node)) {
            seen.policies.insert(name.clone(), PolicyState { span: BTreeSet::new(), ..policy.clone() });
        }
        seen
    }

    /// A view, without spans.
    pub fn of_view(view: &policy::View) -> State {
        let groups = |kind, groups: &[policy::GroupView]| {
            let state = |group: &policy::GroupView| GroupState {
                uid: group.uid.to_string(),
                members: group.members.iter().map(|member| key_and_rest(kind, member)).collect(),
                span: BTreeSet::new(),
            };
            groups.iter().map(|group| (group.name.to_string(), state(group))).collect()
        };
        let policy = |policy: &NetworkPolicy| {
            (policy.uid.to_string(), PolicyState { policy: policy.clone(), span: BTreeSet::new() })
        };
        State {
            applied_to: groups(GroupKind::AppliedTo, &view.applied_to_groups),
            address: groups(GroupKind::Address, &view.address_groups),
            policies: view.policies.iter().map(policy).collect(),
            problems: BTreeMap::new(),
        }
    }

    pub fn nodes(&self) -> BTreeSet<String> {
        let groups = self.applied_to.values().chain(self.address.values()).flat_map(|group| &group.span);
        groups.chain(self.policies.values().flat_map(|policy| &policy.span)).cloned().collect()
    }
}
