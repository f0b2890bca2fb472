//! Attaching: a virtual machine that exists becomes a resource, in its own virtual network.
//!
//! ```text
//!   machine ── interface ── group of its owner, or none      before, and again after
//!                       └── t-SITE-att-HASH, closed          while it is attached; its tags say which machine it is for,
//!                                                            and which group comes back
//! ```
//!
//! Of the machine and its interface nothing else changes. A group of the subnet stays in force too.

use cloud_api::{Attachment, CloudError};
use model::{ExistingNetwork, ResourceState, Segment};
use serde_json::{Value, json};

use crate::{
    adopt::{LONGEST_TAG, NETWORK, blocks, name_of},
    api::is_made,
    cloud::{AzureCloud, Ground, Result},
    names::{NAME, is_same_id, tag},
    networks::{GROUPS, listed},
    resources::Objects,
    rules::{closed, is_same},
};

const MACHINE: &str = "trestle-machine";
pub(crate) const INTERFACE: &str = "trestle-interface";
const BEFORE: &str = "trestle-before";
/// Instead of a group that was there before.
const NONE: &str = "none";

/// A machine that is attached.
pub(crate) struct Attached {
    pub(crate) name: Segment,
    pub(crate) state: ResourceState,
}

/// A machine that exists, with what it takes to attach it.
struct Found {
    machine: String,
    interface: Value,
    vnet: Value,
    attachment: Attachment,
}

/// The configuration by which an interface is known.
fn primary(interface: &Value) -> &Value {
    let mut all = listed(interface, "ipConfigurations");
    let chosen = all.find(|one| one["properties"]["primary"] == true);
    &chosen.unwrap_or(&interface["properties"]["ipConfigurations"][0])["properties"]
}

/// The virtual network of a subnet's id.
fn vnet_of(subnet: &str) -> Option<&str> {
    let at = subnet.to_ascii_lowercase().find("/subnets/")?;
    Some(&subnet[..at])
}

fn group_of(interface: &Value) -> Option<&str> {
    interface["properties"]["networkSecurityGroup"]["id"].as_str()
}

/// Refuses what is no machine of the site's subscription.
fn check_id(ground: &Ground, id: &str) -> Result<()> {
    let bad = || {
        CloudError::invalid(format!(
            "{id:?} is nothing to attach: write \
             /subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers/Microsoft.Compute/virtualMachines/NAME, of the \
             subscription of {}",
            ground.site
        ))
    };
    let parts: Vec<&str> = id.trim_start_matches('/').split('/').collect();
    let own: Vec<&str> = ground.group.trim_start_matches('/').split('/').collect();
    let is = |place: usize, text: &str| parts.get(place).is_some_and(|part| part.eq_ignore_ascii_case(text));
    let fits = id.starts_with('/')
        && parts.len() == 8
        && is(0, "subscriptions")
        && own.get(1).is_some_and(|subscription| is(1, subscription))
        && is(2, "resourceGroups")
        && is(4, "providers")
        && is(5, "Microsoft.Compute")
        && is(6, "virtualMachines");
    let legal = |part: &&str| {
        !part.is_empty() && part.chars().all(|letter| letter.is_alphanumeric() || "-_.()".contains(letter))
    };
    if fits && parts.iter().all(legal) && id.len() <= LONGEST_TAG { Ok(()) } else { Err(bad()) }
}

impl AzureCloud {
    /// The group of an attached machine, by the machine's id.
    pub(crate) fn attached_group(&self, ground: &Ground, machine: &str) -> String {
        let name = ground.names.of("att", &machine.to_ascii_lowercase());
        ground.network_id("networkSecurityGroups", &name)
    }

    pub(crate) async fn inspect_machine(&self, ground: &Ground, id: &str) -> Result<Attachment> {
        Ok(self.find(ground, id).await?.attachment)
    }

    async fn find(&self, ground: &Ground, id: &str) -> Result<Found> {
        check_id(ground, id)?;
        let gone = || CloudError::not_found(format!("there is no virtual machine {id}"));
        let machine = self.arm.settled(id).await?.ok_or_else(gone)?;
        let id = machine["id"].as_str().unwrap_or(id).to_owned();
        if let Some(owner) = tag(&machine, "trestle-owner") {
            return Err(CloudError::conflict(format!(
                "{id} was made by Trestle ({owner}), so it is managed"
            )));
        }
        let interfaces = machine["properties"]["networkProfile"]["networkInterfaces"].as_array();
        let [interface] = interfaces.map(Vec::as_slice).unwrap_or_default() else {
            return Err(CloudError::conflict(format!(
                "{id} does not have exactly one network interface; with several it could be reached by the others"
            )));
        };
        let wanted = interface["id"].as_str().unwrap_or_default();
        let none = || CloudError::conflict(format!("the interface {wanted} of {id} is not there"));
        let interface = self.arm.settled(wanted).await?.ok_or_else(none)?;
        let group = match group_of(&interface) {
            Some(group) => self.arm.get(group).await?,
            None => None,
        };
        if let Some(name) = group.as_ref().filter(|one| tag(one, "trestle-owner").is_some()) {
            let name = tag(name, NAME).unwrap_or("another resource");
            return Err(CloudError::conflict(format!("{id} is attached already, as {name}")));
        }
        let configuration = primary(&interface);
        let subnet = configuration["subnet"]["id"].as_str().unwrap_or_default();
        let nowhere = || CloudError::conflict(format!("{id} is in no virtual network"));
        let vnet = vnet_of(subnet).ok_or_else(nowhere)?;
        let vnet = self.arm.get(vnet).await?.ok_or_else(nowhere)?;
        self.check_adoptable(&vnet)?;
        let unread = || CloudError::unavailable(format!("{id} has no address in its virtual network yet"));
        let address: std::net::Ipv4Addr = configuration["privateIPAddress"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .ok_or_else(unread)?;
        let (inside, beside): (Vec<_>, Vec<_>) =
            blocks(&vnet).into_iter().partition(|block| block.contains(&address));
        let space = inside.first().copied().ok_or_else(unread)?;
        let attachment = Attachment {
            region: name_of(&vnet)?,
            network: Some(ExistingNetwork { space, beside }),
            address: Some(address.into()),
            changes: changes(&id, &interface, &vnet, subnet),
        };
        Ok(Found { machine: id, interface, vnet, attachment })
    }

    /// The virtual network that a name of an inspection stands for: the one of some machine that is inspected again.
    pub(crate) async fn adopt_by_name(
        &self,
        ground: &Ground,
        region: &Segment,
        space: ipnet::Ipv4Net,
    ) -> Result<()> {
        // A name is a hash, so the network is looked for among those there are.
        let subscription: Vec<&str> = ground.group.splitn(4, '/').collect();
        let scope = subscription[..3].join("/");
        let all = self.arm.list(&scope, crate::networks::VNETS).await?;
        let found = all.iter().find(|vnet| name_of(vnet).as_ref() == Ok(region));
        let gone = || CloudError::not_found(format!("there is no virtual network that is called {region}"));
        let id = found.and_then(|vnet| vnet["id"].as_str()).ok_or_else(gone)?;
        self.adopt(ground, id, space).await
    }

    /// What is attached, by the site's groups: machines that are there, and in their group.
    pub(crate) async fn attached(&self, ground: &Ground, groups: &[Value]) -> Result<Vec<Attached>> {
        let mut found = Vec::new();
        for group in groups.iter().filter(|group| ground.names.owns(group) && is_made(group)) {
            let (Some(machine), Some(interface)) = (tag(group, MACHINE), tag(group, INTERFACE)) else {
                continue;
            };
            let Some(interface) = self.arm.get(interface).await? else { continue };
            let is_in = group_of(&interface).is_some_and(|id| is_same_id(&group["id"], id))
                && is_same_id(&interface["properties"]["virtualMachine"]["id"], machine);
            found.extend(attached(group, machine, &interface).filter(|_| is_in));
        }
        Ok(found)
    }

    pub(crate) async fn attach_machine(
        &self,
        ground: &Ground,
        name: &Segment,
        id: &str,
    ) -> Result<ResourceState> {
        check_id(ground, id)?;
        let group_id = self.attached_group(ground, id);
        let unread = || CloudError::unavailable(format!("{id} is not seen in its group yet"));
        let there = self.owned(ground, &group_id).await?;
        if let Some(group) = &there {
            if tag(group, NAME) != Some(name.as_str()) {
                let other = tag(group, NAME).unwrap_or_default();
                return Err(CloudError::conflict(format!("{id} is attached already, as {other}")));
            }
            if let Some(one) = self.attached(ground, std::slice::from_ref(group)).await?.pop() {
                return Ok(one.state);
            }
        }
        self.check_name(ground, name, &group_id).await?;
        let found = self.find(ground, id).await?;
        let region = &found.attachment.region;
        self.vnet_id(ground, region.as_str()).await.map_err(|err| match err.kind {
            cloud_api::CloudErrorKind::Conflict => {
                CloudError::conflict(format!("the network {region} of {id} is not adopted"))
            }
            _ => err,
        })?;
        let interface = found.interface["id"].as_str().unwrap_or_default();
        let before = group_of(&found.interface).unwrap_or(NONE);
        let more = [
            (NAME, name.as_str()),
            (MACHINE, found.machine.as_str()),
            (INTERFACE, interface),
            (BEFORE, before),
            (NETWORK, region.as_str()),
        ];
        if let Some((_, long)) = more.iter().find(|(_, value)| value.len() > LONGEST_TAG) {
            return Err(CloudError::conflict(format!("{long} is too long an id for a tag of Azure")));
        }
        let location = &found.vnet["location"];
        let tags = ground.names.tags(&more);
        let body = json!({"location": location, "tags": tags, "properties": {"securityRules": closed()}});
        // A group of an earlier try may know another one as the one before.
        let fits = |group: &Value| {
            tag(group, BEFORE) == Some(before)
                && listed(group, "securityRules").cloned().collect::<Vec<_>>().len() == closed().len()
                && group["properties"]["securityRules"]
                    .as_array()
                    .is_some_and(|rules| is_same(rules, &closed()))
        };
        let group = self.ensure(ground, &group_id, &body, fits).await?;
        let interface = self.regroup(&found.interface, Some(&group_id)).await?;
        attached(&group, &found.machine, &interface).map(|one| one.state).ok_or_else(unread)
    }

    /// Refuses a name that something else has.
    async fn check_name(&self, ground: &Ground, name: &Segment, own: &str) -> Result<()> {
        let groups = self.arm.list(&ground.group, GROUPS).await?;
        let same = |group: &&Value| {
            ground.names.owns(group)
                && tag(group, NAME) == Some(name.as_str())
                && !is_same_id(&group["id"], own)
        };
        let made = self.arm.get(&Objects::of(ground, name.as_str()).machine).await?;
        match groups.iter().find(same).is_some() || made.is_some() {
            true => Err(CloudError::conflict(format!(
                "resource {}.{name} is there and is something else",
                ground.site
            ))),
            false => Ok(()),
        }
    }

    /// Puts an interface into a group, or into none. Everything else of it stays.
    async fn regroup(&self, interface: &Value, group: Option<&str>) -> Result<Value> {
        let id = interface["id"].as_str().unwrap_or_default();
        let mut body = interface.clone();
        if let Some(fields) = body.as_object_mut() {
            fields.remove("etag");
        }
        if let Some(properties) = body["properties"].as_object_mut() {
            match group {
                Some(group) => properties.insert("networkSecurityGroup".to_owned(), json!({"id": group})),
                None => properties.remove("networkSecurityGroup"),
            };
        }
        Ok(self.arm.put(id, &body).await?)
    }

    /// Puts the interface of an attached machine back into its group.
    pub(crate) async fn reattach(&self, interface: &str, group: &str) -> Result<()> {
        let gone = || CloudError::not_found(format!("there is no interface {interface}"));
        let interface = self.arm.settled(interface).await?.ok_or_else(gone)?;
        self.regroup(&interface, Some(group)).await.map(drop)
    }

    /// Gives an attached machine its group back, and deletes ours.
    pub(crate) async fn let_go(&self, ground: &Ground, name: &Segment, groups: &[Value]) -> Result<()> {
        let of_it = |group: &&Value| {
            ground.names.owns(group)
                && tag(group, NAME) == Some(name.as_str())
                && tag(group, MACHINE).is_some()
        };
        for group in groups.iter().filter(of_it) {
            let id = group["id"].as_str().unwrap_or_default();
            let interface = match tag(group, INTERFACE) {
                Some(interface) => self.arm.settled(interface).await?,
                None => None,
            };
            if let Some(interface) =
                interface.filter(|one| group_of(one).is_some_and(|on| is_same_id(&group["id"], on)))
            {
                let before = tag(group, BEFORE).filter(|before| *before != NONE);
                if let Some(before) = before
                    && self.arm.get(before).await?.is_none()
                {
                    return Err(CloudError::conflict(format!(
                        "{before}, the group that {name} had before, is not there any more, and without one everything \
                         would pass; put its interface into another group, then delete the resource again"
                    )));
                }
                self.regroup(&interface, before).await?;
            }
            self.remove(ground, id).await?;
        }
        Ok(())
    }
}

fn attached(group: &Value, machine: &str, interface: &Value) -> Option<Attached> {
    let address = primary(interface)["privateIPAddress"].as_str()?.parse().ok()?;
    let state =
        ResourceState { uri: machine.to_owned(), address, region: tag(group, NETWORK)?.parse().ok()? };
    Some(Attached { name: tag(group, NAME)?.parse().ok()?, state })
}

fn changes(id: &str, interface: &Value, vnet: &Value, subnet: &str) -> Vec<String> {
    let own = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let leaves =
        group_of(interface).map_or_else(|| "no group".to_owned(), |group| format!("the group {group}"));
    let mut changes = vec![
        format!(
            "{id}: its interface {} leaves {leaves} for one that permits nothing until a rule does; it comes back when it is \
             detached",
            own(interface)
        ),
        format!(
            "virtual network {}: once a rule needs it, it gets peerings, and uses the site's gateway",
            own(vnet)
        ),
    ];
    let name = subnet.rsplit('/').next().unwrap_or_default();
    let mut subnets = listed(vnet, "subnets").filter(|one| own(one).eq_ignore_ascii_case(name));
    if let Some(group) = subnets.find_map(|one| one["properties"]["networkSecurityGroup"]["id"].as_str()) {
        changes.push(format!("subnet {name}: its group {group} stays in force, and must permit too"));
    }
    changes.push(format!("{id}: nothing else changes; what is open now closes"));
    changes
}
