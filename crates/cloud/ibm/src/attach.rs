//! Attaching: an instance that exists becomes a resource, in its own VPC.
//!
//! ```text
//!   instance ── interface ── groups of its owner      before, and again after
//!                       └── t-SITE-vm-HASH-sg         while it is attached; a note beside it, -att, says which instance
//!                                                     it is for, and which groups come back
//! ```
//!
//! As a resource it has a name like an instance of ours, so that its list is kept as theirs are.

use std::net::IpAddr;

use cloud_api::{Attachment, CloudError, CloudErrorKind};
use ipnet::Ipv4Net;
use model::{ExistingNetwork, ResourceState, Segment};
use serde::{Deserialize, Serialize};

use crate::clusters::check_space;
use crate::names::is_network;
use crate::rules::MOST_GROUPS;
use crate::shapes::{self, Instance, SecurityGroup};
use crate::{Api, Ground, Groups, Home, Listed as _, Result, Vpc, Vpcs, notes};

/// Where gateways' VPCs are.
const GATEWAYS: Ipv4Net = Ipv4Net::new_assert(std::net::Ipv4Addr::new(192, 168, 128, 0), 17);

/// What is noted of an attached instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    instance: String,
    interface: String,
    /// The groups it was in.
    before: Vec<String>,
}

impl Noted {
    /// The note of an attached instance.
    fn read(groups: &Groups<'_>, instance: &str) -> Option<Self> {
        let note = groups.named(&groups.ground.names.attached(instance))?;
        serde_json::from_str(&notes::read(note)?).ok()
    }
}

/// An instance that exists, with what it takes to attach it.
pub(crate) struct Found {
    pub(crate) attachment: Attachment,
    noted: Noted,
}

/// How far an earlier try to attach came.
enum Begun {
    Nothing,
    Half(Vpc, Noted),
    Done(ResourceState),
}

/// Whether a name is one that this plugin gives to instances and their groups, for whichever owner.
fn is_ours(name: &str) -> bool {
    name.starts_with("t-") && name.contains("-vm-")
}

/// The one interface of an instance, and its address.
fn interface(instance: &Instance) -> Result<(&str, IpAddr)> {
    let id = &instance.id;
    match &instance.network_attachments[..] {
        [one] => Ok((&one.virtual_network_interface.id, one.primary_ip.address)),
        [] => Err(CloudError::conflict(format!(
            "{id} has no virtual network interface; instances of the older kind cannot be attached"
        ))),
        _ => Err(CloudError::conflict(format!(
            "{id} has several network interfaces, and could be reached by the others; detach all but one first"
        ))),
    }
}

/// A VPC of whomever, and its blocks.
pub(crate) async fn existing_vpc(api: &Api, region: &str, id: &str) -> Result<Option<(Vpc, Vec<Ipv4Net>)>> {
    let found = api.in_region::<shapes::Vpc>(region).get(id).await?;
    let Some(found) = found.filter(shapes::Vpc::is_alive) else { return Ok(None) };
    let is_made = is_network(&found.name);
    let vpc = Vpc::new(region, found, Home::Adopted(id.to_owned()));
    let blocks = vpc.prefixes(api).await?;
    if is_made {
        return Err(CloudError::conflict(format!("{} is a network that Trestle made itself", vpc.id)));
    }
    blocks.iter().try_for_each(|block| check_space(*block))?;
    let overlap =
        |block: &&Ipv4Net| block.contains(&GATEWAYS.network()) || GATEWAYS.contains(&block.network());
    match blocks.iter().find(overlap) {
        Some(block) => Err(CloudError::conflict(format!(
            "the VPC {} has {block}, which overlaps {GATEWAYS}, where gateways stand",
            vpc.id
        ))),
        None => Ok(Some((vpc, blocks))),
    }
}

/// `REGION/INSTANCE`, or the instance alone: then all regions are searched.
pub(crate) async fn find_instance(ground: &Ground, id: &str) -> Result<Found> {
    let known = ground.api.regions().await?;
    let (regions, wanted) = match id.split_once('/') {
        Some((region, wanted)) => (vec![region], wanted),
        None => (known.iter().map(String::as_str).collect(), id),
    };
    let legal = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if !legal(wanted) || !regions.iter().all(|region| known.iter().any(|one| one == region)) {
        return Err(CloudError::invalid(format!(
            "{id:?} is nothing to attach: write the id of an instance, or REGION/ID with a region of {}",
            known.join(", ")
        )));
    }
    for region in &regions {
        let found = ground.api.in_region::<Instance>(region).get(wanted).await?;
        if let Some(instance) = found.filter(Instance::is_alive) {
            return inspect(ground, region, &instance).await;
        }
    }
    Err(CloudError::not_found(format!("there is no instance {wanted} in {}", regions.join(", "))))
}

async fn inspect(ground: &Ground, region: &str, instance: &Instance) -> Result<Found> {
    let (id, vpc_id) = (&instance.id, &instance.vpc.id);
    if is_ours(&instance.name) {
        return Err(CloudError::conflict(format!("{id} was made by Trestle, so it is managed")));
    }
    let (interface, address) = interface(instance)?;
    let gone = || CloudError::conflict(format!("{id} is in no VPC"));
    let (vpc, blocks) = existing_vpc(&ground.api, region, vpc_id).await?.ok_or_else(gone)?;
    let groups = Groups::read(ground, &vpc).await?;
    let on: Vec<&SecurityGroup> = groups.all.iter().filter(|group| group.targets(interface)).collect();
    if let Some(SecurityGroup { name, .. }) = on.iter().find(|group| is_ours(&group.name)) {
        return Err(CloudError::conflict(format!("{id} is attached already, by the group {name}")));
    }
    let (inside, beside): (Vec<_>, Vec<_>) = blocks
        .into_iter()
        .partition(|block| matches!(address, IpAddr::V4(address) if block.contains(&address)));
    let unread = || CloudError::unavailable(format!("{id} has no address in its VPC yet"));
    let space = inside.first().copied().ok_or_else(unread)?;
    let mut leaves: Vec<String> = on.iter().map(|group| format!("{} ({})", group.id, group.name)).collect();
    leaves.sort();
    let mut before: Vec<String> = on.iter().map(|group| group.id.clone()).collect();
    before.sort();
    Ok(Found {
        attachment: Attachment {
            region: vpc.segment()?,
            network: Some(ExistingNetwork { space, beside }),
            address: Some(address),
            changes: vec![
                format!(
                    "{id}: its interface {interface} leaves {} for a group that permits nothing until a rule does; they \
                     come back when it is detached",
                    leaves.join(", ")
                ),
                format!(
                    "VPC {vpc_id}: gets security groups of Trestle's, and, once a rule needs it, a connection to a \
                     transit gateway"
                ),
                format!("{id}: nothing else changes; what is open now closes"),
            ],
        },
        noted: Noted { instance: id.clone(), interface: interface.to_owned(), before },
    })
}

/// What is attached from a VPC: instances that are there, and in their group.
pub(crate) fn attached_in(groups: &Groups<'_>) -> Result<Vec<(Segment, ResourceState)>> {
    let (mut found, region) = (Vec::new(), groups.vpc.segment()?);
    for group in groups.all.iter().filter(|group| groups.ground.names.owns(&group.name)) {
        let Some(name) = group.name.strip_suffix("-sg") else { continue };
        let Some(noted) = Noted::read(groups, name) else { continue };
        let target = group.targets.iter().find(|target| target.id == noted.interface);
        let resource = groups.note(name).and_then(|note| note.name.parse().ok());
        if let (Some(ip), Some(resource)) = (target.and_then(|target| target.primary_ip), resource) {
            let (uri, region) = (format!("{region}/{name}"), region.clone());
            found.push((resource, ResourceState { uri, address: ip.address.into(), region }));
        }
    }
    Ok(found)
}

pub(crate) async fn attach(ground: &Ground, name: &Segment, id: &str) -> Result<ResourceState> {
    let wanted = ground.names.instance(name);
    let _turn = ground.turns.take(&format!("attach {} {wanted}", ground.site)).await;
    let vpcs = Vpcs::read(ground).await?;
    let (vpc, noted) = match begun(ground, &vpcs.networks, name, &wanted, id).await? {
        Begun::Done(state) => return Ok(state),
        Begun::Half(vpc, noted) => (vpc, noted),
        Begun::Nothing => {
            let found = find_instance(ground, id).await?;
            let home = vpcs.network(found.attachment.region.as_str()).cloned();
            let none = || CloudError::conflict(format!("the network of {id} is not adopted"));
            (home.ok_or_else(none)?, found.noted)
        }
    };
    close(&Groups::read(ground, &vpc).await?, name, &wanted, &noted).await?;
    let there = attached_in(&Groups::read(ground, &vpc).await?)?;
    let state = there.into_iter().find(|(other, _)| other == name).map(|(_, state)| state);
    state.ok_or_else(|| CloudError::unavailable(format!("{id} is not seen in its group yet")))
}

/// How far an earlier try came. Refused if the name is something else's.
async fn begun(ground: &Ground, vpcs: &[Vpc], name: &Segment, wanted: &str, id: &str) -> Result<Begun> {
    for vpc in vpcs {
        let groups = Groups::read(ground, vpc).await?;
        let noted = Noted::read(&groups, wanted);
        let Some(noted) = noted.filter(|noted| id.rsplit('/').next() == Some(&noted.instance)) else {
            if groups.note(wanted).is_some() {
                let message = format!("resource {}.{name} is there and is something else", ground.site);
                return Err(CloudError::conflict(message));
            }
            continue;
        };
        let mut others = groups.all.iter().filter(|group| !ground.names.owns(&group.name));
        let is_alone = !others.any(|group| group.targets(&noted.interface));
        let there = attached_in(&groups)?;
        return Ok(match there.into_iter().find(|(other, _)| other == name) {
            Some((_, state)) if is_alone => Begun::Done(state),
            // What it was in before is noted.
            _ => Begun::Half(vpc.clone(), noted),
        });
    }
    Ok(Begun::Nothing)
}

/// Notes what was there, puts the instance into a closed group, then takes it out of the others.
async fn close(groups: &Groups<'_>, name: &Segment, wanted: &str, noted: &Noted) -> Result {
    if Noted::read(groups, wanted).is_none() {
        let text = serde_json::to_string(noted).expect("texts and lists of texts are JSON");
        let note = groups.ground.names.attached(wanted);
        groups.note_down(note, &format!("what {name} was in"), &text).await?;
    }
    groups.note_new(wanted, name).await?;
    let group = groups.closed(wanted).await?;
    let is_on = groups.first(wanted).is_some_and(|one| one.targets(&noted.interface));
    let own: Vec<&str> = match is_on {
        true => groups.further(wanted).iter().map(|(_, one)| one.id.as_str()).collect(),
        // Its list is empty again, so nothing further is for it.
        false => Vec::new(),
    };
    let on = groups.all.iter().filter(|other| other.targets(&noted.interface)).map(|other| other.id.as_str());
    let mut others: Vec<&str> = on.filter(|id| *id != group && !own.contains(id)).collect();
    // With no room for ours beside the others, one of them goes first.
    if !is_on && others.len() >= MOST_GROUPS {
        for id in others.split_off(MOST_GROUPS - 1) {
            groups.unbind(id, &noted.interface).await?;
        }
    }
    groups.bind(&group, &noted.interface).await?;
    for id in others {
        groups.unbind(id, &noted.interface).await?;
    }
    Ok(())
}

/// Gives an attached instance its groups back, those that are still there, and deletes ours. Its list's note goes
/// before its last group of ours does: without the note, a try that ended half way goes on from there.
pub(crate) async fn let_go(ground: &Ground, vpc: &Vpc, wanted: &str) -> Result {
    let groups = Groups::read(ground, vpc).await?;
    let own = groups.first(wanted);
    let further: Vec<&SecurityGroup> = groups.further(wanted).into_iter().map(|(_, group)| group).collect();
    let lists: Vec<&SecurityGroup> = groups.notes(wanted).into_iter().map(|(_, group)| group).collect();
    let noted = Noted::read(&groups, wanted);
    if let (Some(own), Some(noted)) = (own, &noted)
        && (own.targets(&noted.interface) || lists.is_empty())
    {
        let back = groups_back(&groups, noted)?;
        for group in further.iter().filter(|group| group.targets(&noted.interface)) {
            groups.unbind(&group.id, &noted.interface).await?;
        }
        let (now, later) = back.split_at(back.len().min(MOST_GROUPS - 1));
        for id in now {
            put_back(&groups, id, &noted.interface).await?;
        }
        groups.forget(lists).await?;
        groups.unbind(&own.id, &noted.interface).await?;
        for id in later {
            put_back(&groups, id, &noted.interface).await?;
        }
    } else {
        groups.forget(lists).await?;
    }
    groups.forget(own.into_iter().chain(further)).await?;
    groups.forget(groups.named(&ground.names.attached(wanted))).await
}

/// Puts an interface into a group of its owner's. If either is gone by now, so be it.
async fn put_back(groups: &Groups<'_>, group: &str, interface: &str) -> Result {
    match groups.bind(group, interface).await {
        Err(err) if err.kind == CloudErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// The groups that an attached instance is in afterwards: others that it is in now, then those it was in before.
fn groups_back<'g>(groups: &'g Groups<'_>, noted: &Noted) -> Result<Vec<&'g str>> {
    let others = groups.all.iter().filter(|group| !groups.ground.names.owns(&group.name));
    let (mut back, rest): (Vec<_>, Vec<_>) = others.partition(|group| group.targets(&noted.interface));
    back.extend(rest.into_iter().filter(|group| noted.before.contains(&group.id)));
    match back.is_empty() {
        true => Err(CloudError::conflict(format!(
            "none of the groups that {} had before ({}) is there any more; put its interface into another group, \
             then delete the resource again",
            noted.instance,
            noted.before.join(", ")
        ))),
        false => Ok(back.into_iter().map(|group| group.id.as_str()).collect()),
    }
}
