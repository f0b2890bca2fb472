//! Permissions: what each gives the resources at its ends.
//!
//! ```text
//!   permission  FROM ──────────────────────────────────────► TO
//!                 │ each resource there                        │ each resource there
//!                 ▼                                            ▼
//!               outbound entries, targets: who is at TO      inbound entries, targets: who is at FROM
//! ```
//!
//! The entries are not stored as rules: they are worked out from the permission wherever a plan is made, so both ends have
//! them or neither has, whatever was interrupted, and they go with it. Their names say which permission they are of; a
//! rule that a user wrote has another name, whatever its content.
//!
//! Not here: Pods and hosts, which policies guard (`drivers::permissions`).

use std::collections::BTreeSet;

use model::{
    Address, Direction, EntryName, Ports, ResourceName, Traffic,
    allow::{End, Passage, Permission},
};

use super::{Draft, Intent, ProblemKind, lists::Resolver};

/// The traffic of a passage, seen from one of its ends.
fn traffic(passage: &Passage, direction: Direction) -> Traffic {
    Traffic { direction, protocol: passage.protocol, src_ports: Ports::Any, dst_ports: passage.ports }
}

/// Both sides of a permission: which way, at whom, with whom.
fn sides(permission: &Permission) -> [(Direction, &End, &End); 2] {
    let Permission { from, to, .. } = permission;
    [(Direction::Outbound, from, to), (Direction::Inbound, to, from)]
}

impl<'i> Resolver<'i> {
    /// What permissions give resources. An end where nobody is gives nothing, and a problem at the other.
    pub(super) fn permitted(&mut self) -> Vec<(&'i ResourceName, Draft)> {
        let mut drafts = Vec::new();
        for (name, permission) in &self.intent.permissions {
            for (direction, at, with) in sides(permission) {
                let holders = self.resources_at(at);
                if holders.is_empty() {
                    continue;
                }
                let targets = self.behind(with);
                for passage in &permission.passages {
                    let entry = EntryName::of_permission(name, direction, passage.protocol, passage.ports);
                    for holder in &holders {
                        match &targets {
                            Ok(targets) => drafts.push((
                                *holder,
                                Draft {
                                    name: entry.clone(),
                                    traffic: traffic(passage, direction),
                                    targets: targets.clone(),
                                    tags: [with.to_string()].into(),
                                    build: false,
                                },
                            )),
                            Err(kind) => self.problem(holder, &entry, kind.clone()),
                        }
                    }
                }
            }
        }
        drafts
    }

    fn resources_at(&self, end: &'i End) -> Vec<&'i ResourceName> {
        match end {
            End::Tag(tag) => self.members(tag),
            end => resources_at(self.intent, end),
        }
    }

    /// The addresses of who is at an end, or why there are none.
    fn behind(&mut self, end: &'i End) -> Result<BTreeSet<Address>, ProblemKind> {
        let nobody = || ProblemKind::Nobody { end: Box::new(end.clone()) };
        let mut addresses = self.intent.elsewhere.get(end).cloned().unwrap_or_default();
        match end {
            End::Tag(tag) => return self.resolve(tag).cloned().map_err(Clone::clone),
            End::Address(address) => drop(addresses.insert(*address)),
            End::Resource(name) => {
                addresses
                    .extend(self.placed().find(|(placed, _)| *placed == name).map(|(_, address)| address));
            }
            End::Namespace(namespace) => {
                let inside = |(name, _): &(&ResourceName, _)| name.namespace.as_str() == namespace.as_str();
                addresses.extend(self.placed().filter(inside).map(|(_, address)| address));
            }
            End::Pod { .. } | End::Host(_) => {}
        }
        if addresses.is_empty() { Err(nobody()) } else { Ok(addresses) }
    }
}

/// The wanted resources at an end that is no tag.
fn resources_at<'i>(intent: &'i Intent, end: &End) -> Vec<&'i ResourceName> {
    match end {
        End::Resource(name) => {
            intent.resources.get_key_value(name).map(|(name, _)| name).into_iter().collect()
        }
        End::Namespace(namespace) => {
            let names = intent.resources.keys();
            names.filter(|name| name.namespace.as_str() == namespace.as_str()).collect()
        }
        End::Tag(_) | End::Host(_) | End::Pod { .. } | End::Address(_) => Vec::new(),
    }
}

/// The wanted resources that a permission gives something to, with the names of what it gives.
pub(crate) fn given(intent: &Intent, permission: &Permission) -> Vec<(ResourceName, EntryName)> {
    let name = permission.name();
    let in_tag = |tag| {
        let members = intent.graph.resolve(tag).map(|resolved| resolved.iter().collect::<Vec<_>>());
        let members = members.unwrap_or_default().into_iter().filter_map(|member| match member {
            tags::ResolvedMember::Leaf { name, .. } => name.as_str().parse::<ResourceName>().ok(),
            tags::ResolvedMember::Literal(_) => None,
        });
        members.filter(|name| intent.resources.contains_key(name)).collect::<Vec<_>>()
    };
    let mut given = Vec::new();
    for (direction, at, _) in sides(permission) {
        let holders = match at {
            End::Tag(tag) => in_tag(tag),
            at => resources_at(intent, at).into_iter().cloned().collect(),
        };
        for holder in holders {
            let entries = permission.passages.iter();
            given.extend(entries.map(|passage| {
                (holder.clone(), EntryName::of_permission(&name, direction, passage.protocol, passage.ports))
            }));
        }
    }
    given
}
