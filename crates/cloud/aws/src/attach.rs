//! Attaching: an instance that exists becomes a resource, in its own VPC.
//!
//! ```text
//!   instance ── interface ── groups of its owner          before, and again after
//!                       └── trestle-HASH, closed          while it is attached; its tags say which instance it is for,
//!                                                         and which groups come back
//! ```
//!
//! Nothing is put on the instance itself. The group exists, with what was there before, before it takes effect.

use std::net::IpAddr;

use cloud_api::{Attachment, CloudError, Result};
use model::{ExistingNetwork, ResourceState, Site};

use crate::{
    account::{Account, Place},
    adopt::check_adopter,
    attachments, groups,
    lists::Uri,
    marks::{Filter, mark, new_mark},
    networks::{self, Network},
    peerings, resources,
    routes::table_of,
    shapes::{Instance, Interface, RouteTable, SecurityGroup},
    transit,
};

/// Groups whose ids fit into one tag.
const PER_TAG: usize = 10;

/// An instance that is attached.
pub(crate) struct Attached {
    pub(crate) name: String,
    group: SecurityGroup,
    instance: Instance,
}

impl Attached {
    pub(crate) fn subnet(&self) -> Option<&str> {
        self.instance.subnet_id.as_deref()
    }

    pub(crate) fn state(&self, region: &str) -> Option<ResourceState> {
        let (group, instance) = (self.group.group_id.as_str(), self.instance.instance_id.as_str());
        Some(ResourceState {
            uri: Uri { region, instance, group, name: &self.name }.to_string(),
            address: IpAddr::from(self.instance.private_ip_address?).into(),
            region: Network::adopted_name(region, &self.group.vpc_id).parse().ok()?,
        })
    }
}

/// The one interface of an instance. With several, a permit list on one would leave the others open.
fn interface(instance: &Instance) -> Result<&Interface> {
    let id = &instance.instance_id;
    match &*instance.network_interface_set {
        [one] => Ok(one),
        [] => Err(CloudError::conflict(format!("{id} has no network interface"))),
        _ => Err(CloudError::conflict(format!(
            "{id} has several network interfaces, and could be reached by the others; detach all but one first"
        ))),
    }
}

fn vpc_of(instance: &Instance) -> Result<&str> {
    let none = || CloudError::conflict(format!("{} is in no VPC", instance.instance_id));
    instance.vpc_id.as_deref().ok_or_else(none)
}

/// The groups that an attached instance had before.
fn before(group: &SecurityGroup) -> Vec<&str> {
    let parts = (1..).map_while(|number| mark(group, &format!("before-{number}")));
    parts.flat_map(|part| part.split(' ')).filter(|id| !id.is_empty()).collect()
}

fn before_marks(groups: &[&str]) -> Vec<(String, String)> {
    let parts = groups.chunks(PER_TAG).enumerate();
    parts.map(|(place, part)| (format!("before-{}", place + 1), part.join(" "))).collect()
}

/// `REGION/INSTANCE`, or the instance alone: then all regions are searched.
async fn find<'a>(account: &'a Account, site: &'a Site, id: &'a str) -> Result<(Place<'a>, Instance)> {
    let known = account.regions().await?;
    let (regions, instance) = match id.split_once('/') {
        Some((region, instance)) => (vec![region], instance),
        None => (known.iter().map(String::as_str).collect(), id),
    };
    let is_id = instance
        .strip_prefix("i-")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    if !is_id || !regions.iter().all(|region| known.iter().any(|one| one == region)) {
        return Err(CloudError::invalid(format!(
            "{id:?} is nothing to attach: write i-…, or REGION/i-… with a region of {}",
            known.join(", ")
        )));
    }
    let ids = [instance];
    let looks = regions.iter().map(|region| resources::by_id(account.at(site, region), &ids));
    let found = futures::future::try_join_all(looks).await?;
    let mut found =
        regions.iter().zip(found).filter_map(|(region, found)| Some((*region, found.into_iter().next()?)));
    let none = || CloudError::not_found(format!("there is no instance {instance} in {}", regions.join(", ")));
    let (region, instance) = found.next().ok_or_else(none)?;
    Ok((account.at(site, region), instance))
}

pub(crate) async fn inspect(account: &Account, site: &Site, id: &str) -> Result<Attachment> {
    let (place, instance) = find(account, site, id).await?;
    inspect_found(place, &instance).await
}

async fn inspect_found(place: Place<'_>, instance: &Instance) -> Result<Attachment> {
    let id = &instance.instance_id;
    if let Some(owner) = mark(instance, "owner") {
        return Err(CloudError::conflict(format!("{id} was made by Trestle ({owner}), so it is managed")));
    }
    let interface = interface(instance)?;
    let groups = groups::by_id(place, &interface.group_ids().collect::<Vec<_>>()).await?;
    if let Some(ours) = groups.iter().find(|group| mark(*group, "owner").is_some()) {
        let (site, name) = (mark(ours, "site").unwrap_or("?"), mark(ours, "name").unwrap_or("?"));
        return Err(CloudError::conflict(format!("{id} is attached already, as {site}.{name}")));
    }
    let vpc_id = vpc_of(instance)?;
    let vpc = networks::vpc(place, vpc_id).await?;
    let vpc = vpc.ok_or_else(|| CloudError::conflict(format!("{id} is in no VPC")))?;
    check_adopter(place, &vpc)?;
    let unread = || CloudError::unavailable(format!("{id} has no address in its VPC {vpc_id} yet"));
    let address = instance.private_ip_address.ok_or_else(unread)?;
    let (inside, beside): (Vec<_>, Vec<_>) =
        vpc.blocks().into_iter().partition(|block| block.contains(&address));
    let space = inside.first().copied().ok_or_else(unread)?;
    let name = Network::adopted_name(place.region, vpc_id);
    Ok(Attachment {
        region: name.parse().map_err(|err| CloudError::invalid(format!("{name}: {err}")))?,
        network: Some(ExistingNetwork { space, beside }),
        address: Some(address.into()),
        changes: changes(place, instance, vpc_id, interface, &groups).await?,
    })
}

async fn changes(
    place: Place<'_>,
    instance: &Instance,
    vpc: &str,
    interface: &Interface,
    groups: &[SecurityGroup],
) -> Result<Vec<String>> {
    let (id, subnet) = (&instance.instance_id, instance.subnet_id.as_deref().unwrap_or("its subnet"));
    let mut names: Vec<String> =
        groups.iter().map(|group| format!("{} ({})", group.group_id, group.group_name)).collect();
    names.sort();
    let tables = place.list::<RouteTable>(&[Filter::new("vpc-id", [vpc])]).await?;
    let table = table_of(&tables, subnet).unwrap_or("its route table");
    Ok(vec![
        format!(
            "{id}: its interface {} leaves {} for a group that permits nothing until a rule does; they come back when \
             it is detached",
            interface.network_interface_id,
            names.join(", ")
        ),
        format!("{vpc}: gets the tags trestle:adopted-by and trestle:space"),
        format!(
            "{vpc}: once a rule needs it, {table} gets routes for private addresses to a transit gateway or a peering, \
             and {subnet} an attachment of that gateway; more specific routes go on as they are"
        ),
        format!("{id}: nothing else changes; what is open now closes"),
    ])
}

/// What is attached in a region: instances that are there, and in their group.
pub(crate) async fn attached(place: Place<'_>) -> Result<Vec<Attached>> {
    let groups = place.own::<SecurityGroup>(&[]).await?;
    let ids: Vec<&str> = groups.iter().filter_map(|group| mark(group, "instance")).collect();
    let instances = resources::by_id(place, &ids).await?;
    let attached = |group: &SecurityGroup| {
        let id = mark(group, "instance")?;
        let instance = instances.iter().find(|instance| instance.instance_id == id)?;
        let mut on = instance.network_interface_set.iter().flat_map(Interface::group_ids);
        on.any(|on| on == group.group_id).then(|| Attached {
            name: mark(group, "name").unwrap_or_default().to_owned(),
            group: group.clone(),
            instance: instance.clone(),
        })
    };
    Ok(groups.iter().filter_map(attached).collect())
}

/// What is attached from one network.
pub(crate) async fn attached_in(place: Place<'_>, network: &Network) -> Result<Vec<Attached>> {
    Ok(attached(place).await?.into_iter().filter(|one| one.group.vpc_id == network.id).collect())
}

pub(crate) async fn attach(account: &Account, site: &Site, name: &str, id: &str) -> Result<ResourceState> {
    let (place, instance) = find(account, site, id).await?;
    let id = &instance.instance_id;
    let there = attached(place).await?;
    if !there.iter().any(|one| one.name == name && one.instance.instance_id == *id) {
        close(place, name, &instance).await?;
        rejoin(place, vpc_of(&instance)?).await?;
    }
    let now = attached(place).await?;
    let state = now.iter().find(|one| one.name == name).and_then(|one| one.state(place.region));
    state.ok_or_else(|| CloudError::unavailable(format!("{id} is not seen in its group yet")))
}

/// Puts an instance into a closed group of its own.
async fn close(place: Place<'_>, name: &str, instance: &Instance) -> Result {
    let Place { account, site, .. } = place;
    let id = &instance.instance_id;
    let taken = groups::of_resource(place, name).await?;
    if taken.iter().any(|group| mark(group, "instance").is_some_and(|other| other != id))
        || !resources::instances(place, &[("name", name)]).await?.is_empty()
    {
        return Err(CloudError::conflict(format!("resource {site}.{name} is there and is something else")));
    }
    let network = inspect_found(place, instance).await?.region;
    if networks::find(account, site, network.as_str()).await?.is_none() {
        return Err(CloudError::conflict(format!("the network {network} of {id} is not adopted")));
    }
    let interface = interface(instance)?;
    let mut on: Vec<&str> = interface.group_ids().collect();
    on.sort_unstable();
    let before = before_marks(&on);
    let before = before.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let marks: Vec<(&str, &str)> = [("instance", id.as_str())].into_iter().chain(before).collect();
    let group = groups::closed(place, vpc_of(instance)?, name, 0, &marks).await?;
    // A group of an earlier try may know others.
    let tags = marks.iter().map(|(key, value)| new_mark(key, *value)).collect();
    place.tag::<SecurityGroup>(&group, tags).await?;
    groups::set(place, interface, &[&group]).await
}

/// Leads what joins the VPC to an instance that has come: gateway and peerings, where they are there already.
async fn rejoin(place: Place<'_>, vpc: &str) -> Result {
    let Place { account, site, region } = place;
    let name = Network::adopted_name(region, vpc);
    let Some(network) = networks::find(account, site, &name).await? else { return Ok(()) };
    if let Some(hub) = transit::hub(account, site).await? {
        attachments::attach(account, site, &hub, std::slice::from_ref(&network)).await?;
    }
    for peering in peerings::of_network(account, site, &network).await? {
        peerings::make(account, &peering).await?;
    }
    Ok(())
}

/// Gives an attached instance its groups back, those that are still there. Our group then goes like any other.
pub(crate) async fn let_go(place: Place<'_>, name: &str) -> Result {
    let groups = groups::of_resource(place, name).await?;
    let Some((group, id)) = groups.iter().find_map(|group| Some((group, mark(group, "instance")?))) else {
        return Ok(());
    };
    let found = resources::by_id(place, &[id]).await?;
    let ours: Vec<&str> = groups.iter().map(|group| group.group_id.as_str()).collect();
    let interfaces = found.iter().flat_map(|instance| instance.network_interface_set.iter());
    for interface in interfaces.filter(|one| one.group_ids().any(|id| ours.contains(&id))) {
        let old = groups::by_id(place, &before(group)).await?;
        let kept = interface.group_ids().filter(|id| !ours.contains(id));
        let mut back: Vec<&str> = old.iter().map(|group| group.group_id.as_str()).chain(kept).collect();
        back.sort_unstable();
        back.dedup();
        if back.is_empty() {
            return Err(CloudError::conflict(format!(
                "none of the groups that {id} had before ({}) is there any more; put its interface into another group, \
                 then delete the resource again",
                before(group).join(", ")
            )));
        }
        groups::set(place, interface, &back).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_is_remembered_however_many_groups_there_are() {
        let ids: Vec<String> = (0..16).map(|number| format!("sg-{number:017x}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        for count in [1, 10, 11, 16] {
            let marks = before_marks(&ids[..count]);
            assert!(marks.iter().all(|(_, value)| value.len() <= 256));
            let tag = |(key, value): &(String, String)| {
                format!("<item><key>trestle:{key}</key><value>{value}</value></item>")
            };
            let tags: String = marks.iter().map(tag).collect();
            let group: SecurityGroup = quick_xml::de::from_str(&format!(
                "<item><groupId>sg-1</groupId><groupName>x</groupName><vpcId>vpc-1</vpcId><tagSet>{tags}</tagSet></item>"
            ))
            .unwrap();
            assert_eq!(before(&group), ids[..count]);
        }
    }

    #[test]
    fn what_has_a_second_way_in_is_refused() {
        let with = |numbers: &[u8]| -> Instance {
            let one = |number| {
                format!("<item><networkInterfaceId>eni-{number}</networkInterfaceId><vpcId>v</vpcId></item>")
            };
            let interfaces: String = numbers.iter().map(one).collect();
            quick_xml::de::from_str(&format!(
                "<item><instanceId>i-1</instanceId><instanceState><name>running</name></instanceState>\
                 <networkInterfaceSet>{interfaces}</networkInterfaceSet></item>"
            ))
            .unwrap()
        };
        assert!(interface(&with(&[1])).is_ok());
        assert!(interface(&with(&[1, 2])).unwrap_err().message.contains("several"));
        assert!(interface(&with(&[])).is_err());
    }
}
