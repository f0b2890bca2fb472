//! Who is in a Group or ClusterGroup, whether a policy names it or not: for people who ask.
//!
//! Cost: one walk over the label sets for each group asked about, and nothing kept.

use std::{net::IpAddr, sync::Arc};

use model::policy::{
    Labels,
    antrea::NamespacedName,
    output::{Identifier, IpBlock, Member, MemberKind, Problem},
};

use super::{Engine, dependents::Surroundings, entities::Profile, tables::Symbol};
use crate::{
    selection::{GroupRef, Scope, Selection, name_uuid},
    translate::{Resolved, resolve},
};

/// Everyone in one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMembers {
    pub uid: Identifier,
    /// By namespace and name.
    pub members: Vec<Arc<Member>>,
    pub ip_blocks: Vec<IpBlock>,
    /// Why members may be missing.
    pub problems: Vec<Problem>,
}

/// A Group, or a ClusterGroup when the namespace is empty, and its UID.
pub type NamedGroup = (NamespacedName, Identifier);

impl Engine {
    /// None if there is no such group.
    pub fn group_members(&self, name: &NamespacedName) -> Option<GroupMembers> {
        let resolved = resolve(&Surroundings { engine: self }, name)?;
        let profiles = self.entities.profiles.iter().map(|(_, profile)| profile);
        let selected = profiles.filter(|profile| self.is_selected(&resolved, profile));
        let entities = selected.flat_map(|profile| &profile.entities);
        let members = entities.map(|entity| &self.entities.rows[*entity].member);
        let mut members: Vec<_> = members.filter(|member| member.is_address_member()).cloned().collect();
        members.sort_by(|a, b| (&a.namespace, &a.name, a.kind).cmp(&(&b.namespace, &b.name, b.kind)));
        let Resolved { ip_blocks, problems, .. } = resolved;
        Some(GroupMembers { uid: self.uid_of_group(name), members, ip_blocks, problems })
    }

    /// The groups a workload is in; none if there is no such workload.
    pub fn groups_of_workload(
        &self,
        kind: MemberKind,
        namespace: &str,
        name: &str,
    ) -> Option<Vec<NamedGroup>> {
        let entity = self.entities.live(kind, namespace, name)?;
        let row = &self.entities.rows[entity];
        let profile = &self.entities.profiles[row.profile.expect("live entities have a profile")];
        let is_member = row.member.is_address_member();
        Some(self.groups_where(|resolved| is_member && self.is_selected(resolved, profile)))
    }

    /// The groups an address is in: as that of a workload, or as part of a block.
    pub fn groups_of_address(&self, address: IpAddr) -> Vec<NamedGroup> {
        let rows = self.entities.with_address(address).map(|entity| &self.entities.rows[entity]);
        let members = rows.filter(|row| row.member.is_address_member());
        let profiles: Vec<&Profile> =
            members.filter_map(|row| row.profile).map(|profile| &self.entities.profiles[profile]).collect();
        self.groups_where(|resolved| {
            resolved.ip_blocks.iter().any(|block| block.contains(address))
                || profiles.iter().any(|profile| self.is_selected(resolved, profile))
        })
    }

    fn groups_where(&self, is: impl Fn(&Resolved) -> bool) -> Vec<NamedGroup> {
        let resolved = |name: &NamespacedName| resolve(&Surroundings { engine: self }, name);
        let names = self.lookups.group_names().filter(|name| resolved(name).is_some_and(|group| is(&group)));
        names.map(|name| (name.clone(), self.uid_of_group(name))).collect()
    }

    /// An object without a UID has one made of its name.
    pub(super) fn uid_of_group(&self, name: &NamespacedName) -> Identifier {
        match self.lookups.group_uid(name) {
            Some(uid) => Identifier::parse(uid),
            None => {
                let name = GroupRef::Named(std::borrow::Cow::Borrowed(name)).name();
                Identifier::Uuid(name_uuid(&name.to_string()))
            }
        }
    }

    fn is_selected(&self, group: &Resolved, profile: &Profile) -> bool {
        group.selections.iter().any(|selection| self.selects(selection, profile))
    }

    fn selects(&self, selection: &Selection<'_>, profile: &Profile) -> bool {
        let namespace = &self.namespaces.rows[profile.namespace];
        let in_scope = match &selection.scope {
            Scope::Namespace(name) => **name == *namespace.name,
            Scope::Everywhere => true,
            Scope::Matching(over) => {
                over.is_empty() || (namespace.known && over.matches(&self.spelled(&namespace.labels)))
            }
        };
        in_scope
            && selection.kind == profile.kind
            && selection.selector.as_ref().is_none_or(|s| s.matches(&self.spelled(&profile.labels)))
    }

    fn spelled(&self, labels: &[(Symbol, Symbol)]) -> Labels {
        let text = |symbol: Symbol| self.symbols.text(symbol).to_string();
        labels.iter().map(|(key, value)| (text(*key), text(*value))).collect()
    }
}
