//! The state as one node has it, or all of it: for those who come late and need it whole.
//!
//! Cost: one walk over the workloads, then O(what the node has): its workloads lead to its AppliedToGroups, those to
//! their policies, and those to their AddressGroups, so nothing is asked of groups that are elsewhere.

use std::sync::Arc;

use model::policy::output::{Identifier, Member, NetworkPolicy};

use super::{
    Engine,
    groups::{GroupKind, is_member},
    tables::{GroupId, Id, IdSet, PolicyId},
};

/// As of the last drain.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// For one node: with its own members only.
    pub applied_to_groups: Vec<GroupView>,
    pub address_groups: Vec<GroupView>,
    pub policies: Vec<NetworkPolicy>,
}

#[derive(Debug, Clone)]
pub struct GroupView {
    pub name: Identifier,
    pub uid: Identifier,
    pub members: Vec<Arc<Member>>,
}

impl Engine {
    /// What a consumer that follows one node should have.
    pub fn view_of_node(&self, node: &str) -> View {
        let Some(node) = self.nodes.find(node) else { return View::default() };
        let mut applied_to = Vec::new();
        for (_, entity) in self.entities.rows.iter().filter(|(_, entity)| entity.node == Some(node)) {
            let groups = entity.profile.into_iter().flat_map(|profile| self.groups_of(profile));
            applied_to.extend(groups.filter(|id| {
                let group = &self.groups.rows[*id];
                group.kind == GroupKind::AppliedTo && group.references > 0 && is_member(group, &entity.member)
            }));
        }
        let applied_to: IdSet<GroupId> = applied_to.into_iter().collect();
        let links = applied_to.iter().flat_map(|group| self.groups.rows[*group].links.ids());
        let policies: IdSet<PolicyId> = links.map(|id| PolicyId::from_index(id as usize)).collect();
        let records = policies.iter().filter_map(|id| self.policies.rows[*id].record.as_ref());
        let addresses: IdSet<GroupId> = records.flat_map(|record| record.addresses.iter().copied()).collect();
        let mut view = self.assemble(&applied_to, &addresses, &policies);
        let local = self.nodes.text(node);
        for group in &mut view.applied_to_groups {
            group.members.retain(|member| member.node.as_ref() == Some(local));
        }
        view
    }

    /// Everything.
    pub fn view(&self) -> View {
        let of_kind = |kind| {
            let rows = self.groups.rows.iter();
            rows.filter(move |(_, row)| row.kind == kind && row.references > 0)
                .map(|(id, _)| id)
                .collect::<IdSet<_>>()
        };
        let policies =
            self.policies.rows.iter().filter(|(_, row)| row.record.is_some()).map(|(id, _)| id).collect();
        self.assemble(&of_kind(GroupKind::AppliedTo), &of_kind(GroupKind::Address), &policies)
    }

    fn assemble(&self, applied_to: &[GroupId], addresses: &[GroupId], policies: &IdSet<PolicyId>) -> View {
        let group = |id: &GroupId| {
            let row = &self.groups.rows[*id];
            GroupView { name: row.name.clone(), uid: self.group_uid(row), members: self.members(*id) }
        };
        let policy = |id: &PolicyId| {
            let record = self.policies.rows[*id].record.as_ref()?;
            let name = self.policy_name(*id, &record.uid, self.is_derived(*id, &record.uid));
            Some(self.expand(*id, record, name))
        };
        View {
            applied_to_groups: applied_to.iter().map(group).collect(),
            address_groups: addresses.iter().map(group).collect(),
            policies: policies.iter().filter_map(policy).collect(),
        }
    }
}
