//! The two ends of a connection, resolved against the engine.

use std::{net::IpAddr, sync::Arc};

use model::policy::output::{Member, MemberKind};

use super::{End, Endpoint, ExplainError, Family, Query};
use crate::engine::{
    Engine,
    groups::{GroupKind, is_member},
    tables::{EntityId, GroupId, IdSet},
};

pub(crate) struct Resolved {
    pub(crate) entities: Vec<EntityId>,
    pub(crate) address: Option<IpAddr>,
    /// AppliedToGroups it is a member of.
    pub(crate) applied_to: IdSet<GroupId>,
    /// AddressGroups that contain its address.
    pub(crate) addresses: IdSet<GroupId>,
}

pub(crate) fn resolve(engine: &Engine, query: &Query) -> Result<(Resolved, Resolved), ExplainError> {
    let (source, destination) = (entities(engine, &query.source)?, entities(engine, &query.destination)?);
    let from = addresses_of(engine, &query.source, &source);
    let to = addresses_of(engine, &query.destination, &destination);
    let wanted = |address: &IpAddr| query.family.is_none_or(|family| family == family_of(*address));
    let pairs = from.iter().filter(|a| wanted(a)).flat_map(|a| to.iter().map(move |b| (*a, *b)));
    let pair = pairs.into_iter().find(|(a, b)| family_of(*a) == family_of(*b));
    let first = |list: &[IpAddr]| list.iter().copied().find(|address| wanted(address));
    let (from, to) = pair.map_or((first(&from), first(&to)), |(a, b)| (Some(a), Some(b)));
    Ok((Resolved::new(engine, source, from), Resolved::new(engine, destination, to)))
}

fn family_of(address: IpAddr) -> Family {
    if address.is_ipv4() { Family::V4 } else { Family::V6 }
}

/// Ascending by what they are, so that the answer does not depend on the order of events.
pub(crate) fn entities(engine: &Engine, endpoint: &Endpoint) -> Result<Vec<EntityId>, ExplainError> {
    match endpoint {
        Endpoint::Workload { kind, namespace, name } => {
            let namespace = if *kind == MemberKind::Node { "" } else { namespace };
            let found = engine.entities.live(*kind, namespace, name);
            found.map(|id| vec![id]).ok_or_else(|| ExplainError::Unknown(endpoint.clone()))
        }
        Endpoint::Address(address) => {
            let mut found: Vec<EntityId> = engine.entities.with_address(*address).collect();
            let described = |id: &EntityId| engine.entities.rows[*id].member.to_string();
            found.sort_by_key(described);
            Ok(found)
        }
    }
}

pub(crate) fn addresses_of(engine: &Engine, endpoint: &Endpoint, entities: &[EntityId]) -> Vec<IpAddr> {
    match endpoint {
        Endpoint::Address(address) => vec![*address],
        Endpoint::Workload { .. } => entities
            .iter()
            .flat_map(|id| engine.entities.rows[*id].member.addresses.as_slice())
            .copied()
            .collect(),
    }
}

impl Resolved {
    pub(crate) fn new(engine: &Engine, entities: Vec<EntityId>, address: Option<IpAddr>) -> Self {
        let applied_to = groups(engine, &entities, GroupKind::AppliedTo);
        // Nodes match addresses, not names: whoever claims the address is meant.
        let claimants: Vec<EntityId> =
            address.into_iter().flat_map(|a| engine.entities.with_address(a)).collect();
        let addresses = groups(engine, &claimants, GroupKind::Address);
        Resolved { entities, address, applied_to, addresses }
    }

    pub(crate) fn members<'a>(&'a self, engine: &'a Engine) -> impl Iterator<Item = &'a Arc<Member>> {
        self.entities.iter().map(|id| &engine.entities.rows[*id].member)
    }

    pub(crate) fn describe(&self, engine: &Engine) -> End {
        let enforced = self.members(engine).filter(|member| member.is_applied_to_member());
        End {
            workloads: self.members(engine).map(|member| member.to_string()).collect(),
            address: self.address,
            enforced_on: enforced.filter_map(|member| member.node.as_deref()).map(Into::into).collect(),
        }
    }
}

fn groups(engine: &Engine, entities: &[EntityId], kind: GroupKind) -> IdSet<GroupId> {
    let mut found = Vec::new();
    for id in entities {
        let row = &engine.entities.rows[*id];
        let groups = row.profile.into_iter().flat_map(|profile| engine.groups_of(profile));
        found.extend(groups.filter(|group| {
            let group = &engine.groups.rows[*group];
            group.kind == kind && is_member(group, &row.member)
        }));
    }
    found.into_iter().collect()
}
