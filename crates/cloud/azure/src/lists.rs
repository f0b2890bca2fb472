//! Permit lists: read the security group, plan, and write all its rules in one request if they differ.

use cloud_api::{CloudError, list_after};
use futures::try_join;
use model::{Direction, PermitEntry};

use crate::{
    attach::{self, interface_of},
    border::Border,
    clusters,
    machines::Parts,
    names::*,
    place::*,
    rules::{border, closed, entries_of, is_same, open_entry, rules_of},
    types::*,
};

/// What a security group is set on.
enum Holder {
    /// The interface of a machine that was made, or is attached.
    Interface(Id<Interface>),
    /// The subnet of a cluster.
    Cluster(Border),
}

/// A security group, and whether it is in force.
struct Guard {
    group: Group,
    holder: Holder,
    /// The rules that are there whatever the list.
    base: Vec<Rule>,
    applies: bool,
}

impl Guard {
    async fn of(place: &Place<'_>, uri: &str) -> Result<Self> {
        let missing = || CloudError::not_found(format!("there is no resource {uri} in {}", place.site));
        if let Some(ids) = Border::of_uri(place, uri) {
            return Self::of_cluster(place, ids).await?.ok_or_else(missing);
        }
        let made = Parts::of_uri(place, uri);
        let id = made.as_ref().map_or_else(|| attach::group_id(place, uri), |made| made.group.clone());
        let group = place.settled(&id).await?.filter(|group| place.owns(group)).ok_or_else(missing)?;
        let interface = made.map(|made| made.interface).or_else(|| interface_of(&group));
        let interface = interface.ok_or_else(missing)?;
        let applies = group.properties.network_interfaces.iter().any(|one| one.id == interface);
        Ok(Self { group, holder: Holder::Interface(interface), base: closed(), applies })
    }

    /// The group around a cluster, which is there before it and after it.
    async fn of_cluster(place: &Place<'_>, ids: Border) -> Result<Option<Self>> {
        let subnet_id = ids.subnet();
        let (cluster, group, subnet) =
            try_join!(place.get(&ids.cluster), place.settled(&ids.group), place.get(&subnet_id))?;
        let is_there = cluster.is_some_and(|cluster| place.owns(&cluster));
        let Some(group) = group.filter(|group| is_there && place.owns(group)) else { return Ok(None) };
        let base = border(ids.block(&group)?);
        let applies = subnet.is_some_and(|subnet| ids.guards(&subnet));
        Ok(Some(Self { group, holder: Holder::Cluster(ids), base, applies }))
    }

    fn rules(&self) -> &[Rule] {
        &self.group.properties.security_rules
    }

    fn entries(&self) -> Vec<PermitEntry> {
        let mut entries = entries_of(self.rules(), &self.base);
        if !self.applies {
            // Somebody took the interface or the subnet out of its group: everything passes.
            let open = [("in", Direction::Inbound), ("out", Direction::Outbound)];
            entries.extend(open.iter().filter_map(|(name, direction)| {
                open_entry(&format!("no security group {name}"), *direction)
            }));
        }
        entries
    }

    /// Puts what it is set on back into the group.
    async fn apply(&self, place: &Place<'_>) -> Result {
        match &self.holder {
            Holder::Interface(interface) => attach::put_back(place, interface, &self.group.id).await,
            Holder::Cluster(ids) => {
                clusters::guard(place, ids).await?;
                // Whoever joined networks meanwhile has left this one out.
                match self.group.tags.parsed(NETWORK) {
                    Some(network) => clusters::open_border(place, &network).await,
                    None => Ok(()),
                }
            }
        }
    }
}

pub async fn read(place: &Place<'_>, uri: &str) -> Result<Vec<PermitEntry>> {
    Ok(Guard::of(place, uri).await?.entries())
}

pub async fn put(place: &Place<'_>, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
    let _turn = place.turn(uri).await;
    let guard = Guard::of(place, uri).await?;
    let list = list_after(guard.entries(), before, wanted);
    let rules = rules_of(guard.rules(), &list, &guard.base)?;
    if !is_same(guard.rules(), &rules) {
        place.write_group(&guard.group, rules).await?;
    }
    if guard.applies { Ok(()) } else { guard.apply(place).await }
}
