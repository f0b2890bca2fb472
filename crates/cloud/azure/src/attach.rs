//! Attaching: a virtual machine that exists becomes a resource, in its own virtual network.
//!
//! ```text
//!   machine ── interface ── group of its owner, or none      before, and again after
//!                       └── t-SITE-att-HASH, closed          while it is attached; its tags say which machine it is for,
//!                                                            and which group comes back
//! ```
//!
//! Of the machine and its interface nothing else changes. A group of the subnet stays in force too.

use std::net::Ipv4Addr;

use cloud_api::{Attachment, CloudError, CloudErrorKind};
use model::{ExistingNetwork, ResourceState, Segment};

use crate::{
    machines::Parts,
    names::*,
    place::*,
    rules::{closed, is_same},
    site::*,
    types::*,
};

const MACHINE: &str = "trestle-machine";
const INTERFACE: &str = "trestle-interface";
const BEFORE: &str = "trestle-before";
/// Instead of a group that was there before.
const NONE: &str = "none";

/// A machine that exists, with what it takes to attach it.
struct Found {
    machine: Id<Machine>,
    interface: Interface,
    vnet: Vnet,
    attachment: Attachment,
}

/// The virtual network of a subnet's id.
fn vnet_of(subnet: &Id<Subnet>) -> Option<Id<Vnet>> {
    let at = subnet.as_str().to_ascii_lowercase().find("/subnets/")?;
    Some(Id::new(&subnet.as_str()[..at]))
}

fn group_of(interface: &Interface) -> Option<&Id<Group>> {
    interface.properties.network_security_group.as_ref().map(|group| &group.id)
}

/// Whether an interface is in a group.
fn is_in(interface: &Interface, group: &Group) -> bool {
    is_to(&interface.properties.network_security_group, &group.id)
}

/// The interface that an attached machine's group is for.
pub fn interface_of(group: &Group) -> Option<Id<Interface>> {
    group.tags.get(INTERFACE).map(Id::new)
}

/// The group of an attached machine, by the machine's id.
pub fn group_id(place: &Place<'_>, machine: &str) -> Id<Group> {
    place.id(&place.names.of("att", &machine.to_ascii_lowercase()))
}

/// Refuses what is no machine of the site's subscription.
fn check_id(place: &Place<'_>, id: &str) -> Result {
    let shape = format!("{}/resourceGroups/{{}}/providers/{}/{{}}", place.subscription(), Machine::TYPE);
    let fits = id.len() <= LONGEST_TAG
        && shape.split('/').count() == id.split('/').count()
        && shape.split('/').zip(id.split('/')).all(|(wanted, given)| match wanted {
            "{}" => is_legal(given),
            _ => wanted.eq_ignore_ascii_case(given),
        });
    match fits {
        true => Ok(()),
        false => Err(CloudError::invalid(format!(
            "{id:?} is nothing to attach: write \
             /subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachines/NAME, of the \
             subscription of {}",
            place.site
        ))),
    }
}

pub async fn inspect(place: &Place<'_>, id: &str) -> Result<Attachment> {
    Ok(find(place, id).await?.attachment)
}

async fn find(place: &Place<'_>, id: &str) -> Result<Found> {
    check_id(place, id)?;
    let gone = || CloudError::not_found(format!("there is no virtual machine {id}"));
    let machine = place.settled(&Id::<Machine>::new(id)).await?.ok_or_else(gone)?;
    let id = machine.id;
    if let Some(owner) = machine.tags.get(OWNER) {
        return Err(CloudError::conflict(format!("{id} was made by Trestle ({owner}), so it is managed")));
    }
    let [Ref { id: wanted }] = machine.properties.network_profile.network_interfaces.as_slice() else {
        return Err(CloudError::conflict(format!(
            "{id} does not have exactly one network interface; with several it could be reached by the others"
        )));
    };
    let none = || CloudError::conflict(format!("the interface {wanted} of {id} is not there"));
    let interface = place.settled(wanted).await?.ok_or_else(none)?;
    let group = match group_of(&interface) {
        Some(group) => place.get(group).await?,
        None => None,
    };
    if let Some(group) = group.filter(|group| group.tags.get(OWNER).is_some()) {
        let name = group.tags.get(NAME).unwrap_or("another resource");
        return Err(CloudError::conflict(format!("{id} is attached already, as {name}")));
    }
    let nowhere = || CloudError::conflict(format!("{id} is in no virtual network"));
    let configuration = interface.properties.primary().ok_or_else(nowhere)?;
    let subnet = &configuration.subnet.as_ref().ok_or_else(nowhere)?.id;
    let vnet = place.get(&vnet_of(subnet).ok_or_else(nowhere)?).await?.ok_or_else(nowhere)?;
    check_adoptable(place, &vnet)?;
    let unread = || CloudError::unavailable(format!("{id} has no address in its virtual network yet"));
    let address: Option<Ipv4Addr> = configuration.address.as_ref().and_then(|text| text.parse().ok());
    let address = address.ok_or_else(unread)?;
    let (inside, beside): (Vec<_>, Vec<_>) =
        vnet.properties.blocks().into_iter().partition(|block| block.contains(&address));
    let space = inside.first().copied().ok_or_else(unread)?;
    let unnamed = || CloudError::unavailable(format!("the virtual network {} has no location", vnet.id));
    let attachment = Attachment {
        region: adopted_name(&vnet.id, &vnet.location).ok_or_else(unnamed)?,
        network: Some(ExistingNetwork { space, beside }),
        address: Some(address.into()),
        changes: changes(&id, &interface, &vnet, subnet.name()),
    };
    Ok(Found { machine: id, interface, vnet, attachment })
}

/// What is attached, by the site's groups: machines that are there, and in their group.
pub async fn all(place: &Place<'_>, groups: &[Group]) -> Result<Vec<(Segment, ResourceState)>> {
    let mut found = Vec::new();
    for group in place.mine(groups) {
        let (Some(machine), Some(interface)) = (group.tags.get(MACHINE), interface_of(group)) else {
            continue;
        };
        let Some(interface) = place.get(&interface).await? else { continue };
        let machine = Id::new(machine);
        let is_its = is_to(&interface.properties.virtual_machine, &machine);
        found.extend(attached(group, &machine, &interface).filter(|_| is_its && is_in(&interface, group)));
    }
    Ok(found)
}

pub async fn attach(place: &Place<'_>, name: &Segment, id: &str) -> Result<ResourceState> {
    check_id(place, id)?;
    let group_id = group_id(place, id);
    if let Some(group) = place.owned(&group_id).await? {
        if group.tags.get(NAME) != Some(name.as_str()) {
            let other = group.tags.get(NAME).unwrap_or_default();
            return Err(CloudError::conflict(format!("{id} is attached already, as {other}")));
        }
        if let Some(one) = all(place, &[group]).await?.pop() {
            return Ok(one.1);
        }
    }
    check_name(place, name, &group_id).await?;
    let found = find(place, id).await?;
    let region = &found.attachment.region;
    vnet_id(place, region).await.map_err(|err| match err.kind {
        CloudErrorKind::Conflict => {
            CloudError::conflict(format!("the network {region} of {id} is not adopted"))
        }
        _ => err,
    })?;
    let before = group_of(&found.interface).map_or(NONE, Id::as_str);
    let more = [
        (NAME, name.as_str()),
        (MACHINE, found.machine.as_str()),
        (INTERFACE, found.interface.id.as_str()),
        (BEFORE, before),
        (NETWORK, region.as_str()),
    ];
    if let Some((_, long)) = more.iter().find(|(_, value)| value.len() > LONGEST_TAG) {
        return Err(CloudError::conflict(format!("{long} is too long an id for a tag of Azure")));
    }
    let body = Draft::new(&found.vnet.location, place.names.tags(&more), GroupProperties::of(closed()));
    // A group of an earlier try may know another one as the one before.
    let fits = |group: &Group| {
        group.tags.get(BEFORE) == Some(before) && is_same(&group.properties.security_rules, &closed())
    };
    let group = place.ensure(&group_id, &body, fits).await?;
    let interface = regroup(place, found.interface.clone(), Some(&group_id)).await?;
    let unread = || CloudError::unavailable(format!("{id} is not seen in its group yet"));
    attached(&group, &found.machine, &interface).map(|(_, state)| state).ok_or_else(unread)
}

/// Refuses a name that something else has.
async fn check_name(place: &Place<'_>, name: &Segment, own: &Id<Group>) -> Result {
    let groups: Vec<Group> = place.list().await?;
    let same =
        |group: &Group| place.owns(group) && group.tags.get(NAME) == Some(name.as_str()) && group.id != *own;
    let made = place.get(&Parts::of(place, name.as_str()).machine).await?;
    match groups.iter().any(same) || made.is_some() {
        true => Err(CloudError::conflict(format!(
            "resource {}.{name} is there and is something else",
            place.site
        ))),
        false => Ok(()),
    }
}

/// Puts an interface into a group, or into none. Everything else of it stays.
async fn regroup(
    place: &Place<'_>,
    mut interface: Interface,
    group: Option<&Id<Group>>,
) -> Result<Interface> {
    interface.rest.remove("etag");
    interface.properties.network_security_group = group.map(Ref::to);
    place.put(&interface.id, &interface).await
}

/// Puts an interface back into the group it was taken out of.
pub async fn put_back(place: &Place<'_>, interface: &Id<Interface>, group: &Id<Group>) -> Result {
    let gone = || CloudError::not_found(format!("there is no interface {interface}"));
    let interface = place.settled(interface).await?.ok_or_else(gone)?;
    regroup(place, interface, Some(group)).await.map(drop)
}

/// Gives an attached machine its group back, and deletes ours.
pub async fn detach(place: &Place<'_>, name: &Segment, groups: &[Group]) -> Result {
    let is_its = |group: &&Group| {
        place.owns(group) && group.tags.get(NAME) == Some(name.as_str()) && group.tags.get(MACHINE).is_some()
    };
    for group in groups.iter().filter(is_its) {
        let interface = match interface_of(group) {
            Some(interface) => place.settled(&interface).await?,
            None => None,
        };
        if let Some(interface) = interface.filter(|interface| is_in(interface, group)) {
            let before = group.tags.get(BEFORE).filter(|before| *before != NONE).map(Id::<Group>::new);
            if let Some(before) = &before
                && place.get(before).await?.is_none()
            {
                return Err(CloudError::conflict(format!(
                    "{before}, the group that {name} had before, is not there any more, and without one everything \
                     would pass; put its interface into another group, then delete the resource again"
                )));
            }
            regroup(place, interface, before.as_ref()).await?;
        }
        place.remove(&group.id).await?;
    }
    Ok(())
}

fn attached(group: &Group, machine: &Id<Machine>, interface: &Interface) -> Option<(Segment, ResourceState)> {
    let state = ResourceState {
        uri: machine.to_string(),
        address: interface.properties.address()?.into(),
        region: group.tags.parsed(NETWORK)?,
    };
    Some((group.tags.parsed(NAME)?, state))
}

fn changes(id: &Id<Machine>, interface: &Interface, vnet: &Vnet, subnet: &str) -> Vec<String> {
    let leaves =
        group_of(interface).map_or_else(|| "no group".to_owned(), |group| format!("the group {group}"));
    let mut changes = vec![
        format!(
            "{id}: its interface {} leaves {leaves} for one that permits nothing until a rule does; it comes back when it is \
             detached",
            interface.name
        ),
        format!(
            "virtual network {}: once a rule needs it, it gets peerings, and uses the site's gateway",
            vnet.name
        ),
    ];
    let mut subnets = vnet.properties.subnets.iter().filter(|one| one.name.eq_ignore_ascii_case(subnet));
    if let Some(group) = subnets.find_map(|one| one.properties.network_security_group.as_ref()) {
        changes.push(format!("subnet {subnet}: its group {} stays in force, and must permit too", group.id));
    }
    changes.push(format!("{id}: nothing else changes; what is open now closes"));
    changes
}
