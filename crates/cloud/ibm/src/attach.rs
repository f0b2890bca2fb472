//! Attaching: an instance that exists becomes a resource, in its own VPC.
//!
//! ```text
//!   instance ── interface ── groups of its owner      before, and again after
//!                       └── t-SITE-vm-HASH-sg         while it is attached; a note beside it, -att, says which instance
//!                                                     it is for, and which groups come back
//! ```
//!
//! As a resource it has a name like an instance of ours, so that its list is kept as theirs are.

use cloud_api::{Attachment, CloudError, CloudErrorKind};
use http::Method;
use model::{ExistingNetwork, ResourceState, Segment};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    api::{INSTANCE, Place, is_alive, text},
    cloud::{Ground, IbmCloud, Result},
    resources::{further_groups, group_of, note_of, notes_of},
    rules::Note,
    spread::MOST_GROUPS,
    vpcs::Vpc,
};

/// What is noted of an attached instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Noted {
    instance: String,
    interface: String,
    /// The groups it was in.
    before: Vec<String>,
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

/// Whether a group is on an interface.
pub(crate) fn targets(group: &Value, interface: &str) -> bool {
    group["targets"].as_array().into_iter().flatten().any(|target| target["id"] == interface)
}

/// The one interface of an instance.
fn interface(instance: &Value) -> Result<&str> {
    let id = text(instance, "id");
    let attachments = instance["network_attachments"].as_array().map(Vec::as_slice).unwrap_or_default();
    match attachments {
        [one] => Ok(text(&one["virtual_network_interface"], "id")),
        [] => Err(CloudError::conflict(format!(
            "{id} has no virtual network interface; instances of the older kind cannot be attached"
        ))),
        _ => Err(CloudError::conflict(format!(
            "{id} has several network interfaces, and could be reached by the others; detach all but one first"
        ))),
    }
}

impl IbmCloud {
    /// `REGION/INSTANCE`, or the instance alone: then all regions are searched.
    pub(crate) async fn find_instance(&self, id: &str) -> Result<Found> {
        let known = self.regions().await?;
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
            let found =
                self.api.get(Place::Region(region), &INSTANCE, &format!("instances/{wanted}")).await?;
            if let Some(instance) = found.filter(is_alive) {
                return self.inspect(region, &instance).await;
            }
        }
        Err(CloudError::not_found(format!("there is no instance {wanted} in {}", regions.join(", "))))
    }

    async fn inspect(&self, region: &str, instance: &Value) -> Result<Found> {
        let (id, vpc_id) = (text(instance, "id"), text(&instance["vpc"], "id"));
        if is_ours(text(instance, "name")) {
            return Err(CloudError::conflict(format!("{id} was made by Trestle, so it is managed")));
        }
        let interface = interface(instance)?;
        let gone = || CloudError::conflict(format!("{id} is in no VPC"));
        let (vpc, blocks) = self.existing_vpc(region, vpc_id).await?.ok_or_else(gone)?;
        let groups = self.groups(&vpc).await?;
        let on: Vec<&Value> = groups.iter().filter(|group| targets(group, interface)).collect();
        if let Some(ours) = on.iter().find(|group| is_ours(text(group, "name"))) {
            let name = text(ours, "name");
            return Err(CloudError::conflict(format!("{id} is attached already, by the group {name}")));
        }
        let unread = || CloudError::unavailable(format!("{id} has no address in its VPC yet"));
        let address = text(&instance["primary_network_attachment"]["primary_ip"], "address");
        let address: std::net::Ipv4Addr = address.parse().map_err(|_| unread())?;
        let (inside, beside): (Vec<_>, Vec<_>) =
            blocks.into_iter().partition(|block| block.contains(&address));
        let space = inside.first().copied().ok_or_else(unread)?;
        let name = format!("{region}-vpc-{vpc_id}");
        let mut leaves: Vec<String> =
            on.iter().map(|group| format!("{} ({})", text(group, "id"), text(group, "name"))).collect();
        leaves.sort();
        let mut before: Vec<String> = on.iter().map(|group| text(group, "id").to_owned()).collect();
        before.sort();
        Ok(Found {
            attachment: Attachment {
                region: name.parse().map_err(|err| CloudError::invalid(format!("{name}: {err}")))?,
                network: Some(ExistingNetwork { space, beside }),
                address: Some(address.into()),
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
            noted: Noted { instance: id.to_owned(), interface: interface.to_owned(), before },
        })
    }

    /// What is attached from a VPC: instances that are there, and in their group.
    pub(crate) async fn attached_in(
        &self,
        ground: &Ground,
        vpc: &Vpc,
        groups: &[Value],
    ) -> Result<Vec<(Segment, ResourceState)>> {
        let mut found = Vec::new();
        for group in groups.iter().filter(|group| ground.names.owns(group)) {
            let Some(name) = text(group, "name").strip_suffix("-sg") else { continue };
            let Some(noted) = self.noted(ground, groups, name) else { continue };
            let target = group["targets"].as_array().into_iter().flatten();
            let target = target.into_iter().find(|target| target["id"] == noted.interface.as_str());
            let address = target.and_then(|target| text(&target["primary_ip"], "address").parse().ok());
            let resource = note_of(ground, groups, name).and_then(|note| note.name.parse().ok());
            let (Some(address), Some(resource)) = (address, resource) else { continue };
            found.push((resource, state(vpc, name, address)?));
        }
        Ok(found)
    }

    pub(crate) async fn attach_instance(
        &self,
        ground: &Ground,
        name: &Segment,
        id: &str,
    ) -> Result<ResourceState> {
        let wanted = ground.names.instance(name);
        let _turn = self.turns.take(&format!("attach {} {wanted}", ground.site)).await;
        let vpcs = self.vpcs(ground).await?;
        let (vpc, noted) = match self.begun(ground, &vpcs.networks, name, &wanted, id).await? {
            Begun::Done(state) => return Ok(state),
            Begun::Half(vpc, noted) => (vpc, noted),
            Begun::Nothing => {
                let found = self.find_instance(id).await?;
                let home = vpcs.network(found.attachment.region.as_str()).cloned();
                let none = || CloudError::conflict(format!("the network of {id} is not adopted"));
                (home.ok_or_else(none)?, found.noted)
            }
        };
        self.close(ground, &vpc, name, &wanted, &noted).await?;
        let groups = self.groups(&vpc).await?;
        let there = self.attached_in(ground, &vpc, &groups).await?;
        let state = there.into_iter().find(|(other, _)| other == name).map(|(_, state)| state);
        state.ok_or_else(|| CloudError::unavailable(format!("{id} is not seen in its group yet")))
    }

    /// How far an earlier try came. Refused if the name is something else's.
    async fn begun(
        &self,
        ground: &Ground,
        vpcs: &[Vpc],
        name: &Segment,
        wanted: &str,
        id: &str,
    ) -> Result<Begun> {
        for vpc in vpcs {
            let groups = self.groups(vpc).await?;
            let noted = self.noted(ground, &groups, wanted);
            let is_taken = note_of(ground, &groups, wanted).is_some();
            let Some(noted) = noted.filter(|noted| id.rsplit('/').next() == Some(&noted.instance)) else {
                if is_taken {
                    let message = format!("resource {}.{name} is there and is something else", ground.site);
                    return Err(CloudError::conflict(message));
                }
                continue;
            };
            let mut others = groups.iter().filter(|group| !ground.names.owns(group));
            let is_alone = !others.any(|group| targets(group, &noted.interface));
            let there = self.attached_in(ground, vpc, &groups).await?;
            return Ok(match there.into_iter().find(|(other, _)| other == name) {
                Some((_, state)) if is_alone => Begun::Done(state),
                // What it was in before is noted.
                _ => Begun::Half(vpc.clone(), noted),
            });
        }
        Ok(Begun::Nothing)
    }

    /// Notes what was there, puts the instance into a closed group, then takes it out of the others.
    async fn close(
        &self,
        ground: &Ground,
        vpc: &Vpc,
        name: &Segment,
        wanted: &str,
        noted: &Noted,
    ) -> Result<()> {
        let groups = self.groups(vpc).await?;
        if self.noted(ground, &groups, wanted).is_none() {
            let text = serde_json::to_string(noted).unwrap_or_default();
            let note = ground.names.attached(wanted);
            self.note_down(ground, vpc, &note, &format!("what {name} was in"), &text).await?;
        }
        if note_of(ground, &groups, wanted).is_none() {
            let note = Note { name: name.to_string(), list: Vec::new() };
            self.write_note(ground, vpc, &groups, wanted, &note).await?;
        }
        let group = self.closed_group(ground, vpc, &groups, wanted).await?;
        let is_on = group_of(ground, &groups, wanted).is_some_and(|one| targets(one, &noted.interface));
        let own: Vec<&str> = match is_on {
            true => further_groups(ground, &groups, wanted).iter().map(|(_, one)| text(one, "id")).collect(),
            // Its list is empty again, so nothing further is for it.
            false => Vec::new(),
        };
        let on =
            groups.iter().filter(|other| targets(other, &noted.interface)).map(|other| text(other, "id"));
        let mut others: Vec<&str> = on.filter(|id| *id != group && !own.contains(id)).collect();
        // With no room for ours beside the others, one of them goes first.
        if !is_on && others.len() >= MOST_GROUPS {
            for id in others.split_off(MOST_GROUPS - 1) {
                self.bind(vpc, id, &noted.interface, false).await?;
            }
        }
        self.bind(vpc, &group, &noted.interface, true).await?;
        for id in others {
            self.bind(vpc, id, &noted.interface, false).await?;
        }
        Ok(())
    }

    /// Puts an interface into a group, or takes it out.
    pub(crate) async fn bind(&self, vpc: &Vpc, group: &str, interface: &str, puts: bool) -> Result<()> {
        let path = format!("security_groups/{group}/targets/{interface}");
        let (operation, method) = match puts {
            true => ("create_security_group_target_binding", Method::PUT),
            false => ("delete_security_group_target_binding", Method::DELETE),
        };
        match self.api.send(Place::Region(&vpc.region), operation, method, &path, None).await {
            Err(failure) if !puts && failure.is(cloud_http::Class::NotFound) => Ok(()),
            outcome => Ok(outcome.map(drop)?),
        }
    }

    /// Gives an attached instance its groups back, those that are still there, and deletes ours. Its list's note goes
    /// before its last group of ours does: without the note, a try that ended half way goes on from there.
    pub(crate) async fn let_go(&self, ground: &Ground, vpc: &Vpc, wanted: &str) -> Result<()> {
        let groups = self.groups(vpc).await?;
        let own = group_of(ground, &groups, wanted);
        let further: Vec<&Value> =
            further_groups(ground, &groups, wanted).into_iter().map(|(_, group)| group).collect();
        let lists = notes_of(ground, &groups, wanted).into_iter().map(|(_, group)| group);
        let lists: Vec<&Value> = lists.collect();
        let noted = self.noted(ground, &groups, wanted);
        if let (Some(own), Some(noted)) = (own, &noted)
            && (targets(own, &noted.interface) || lists.is_empty())
        {
            let back = self.groups_back(ground, &groups, noted)?;
            for group in further.iter().filter(|group| targets(group, &noted.interface)) {
                self.bind(vpc, text(group, "id"), &noted.interface, false).await?;
            }
            let (now, later) = back.split_at(back.len().min(MOST_GROUPS - 1));
            for id in now {
                self.put_back(vpc, id, &noted.interface).await?;
            }
            for group in &lists {
                self.forget(vpc, group).await?;
            }
            self.bind(vpc, text(own, "id"), &noted.interface, false).await?;
            for id in later {
                self.put_back(vpc, id, &noted.interface).await?;
            }
        } else {
            for group in &lists {
                self.forget(vpc, group).await?;
            }
        }
        let note = ground.names.attached(wanted);
        let att = groups.iter().filter(|group| group["name"] == note.as_str());
        for group in own.into_iter().chain(further).chain(att) {
            self.forget(vpc, group).await?;
        }
        Ok(())
    }

    /// Puts an interface into a group of its owner's. If either is gone by now, so be it.
    async fn put_back(&self, vpc: &Vpc, group: &str, interface: &str) -> Result<()> {
        match self.bind(vpc, group, interface, true).await {
            Err(err) if err.kind == CloudErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// The groups that an attached instance is in afterwards: others that it is in now, then those it was in before.
    fn groups_back(&self, ground: &Ground, groups: &[Value], noted: &Noted) -> Result<Vec<String>> {
        let others = groups.iter().filter(|group| !ground.names.owns(group));
        let (mut back, rest): (Vec<&Value>, Vec<&Value>) =
            others.partition(|group| targets(group, &noted.interface));
        back.extend(rest.into_iter().filter(|group| noted.before.iter().any(|id| id == text(group, "id"))));
        match back.is_empty() {
            true => Err(CloudError::conflict(format!(
                "none of the groups that {} had before ({}) is there any more; put its interface into another group, \
                 then delete the resource again",
                noted.instance,
                noted.before.join(", ")
            ))),
            false => Ok(back.into_iter().map(|group| text(group, "id").to_owned()).collect()),
        }
    }
}

fn state(vpc: &Vpc, wanted: &str, address: std::net::IpAddr) -> Result<ResourceState> {
    let name = vpc.name();
    let region = name.parse().map_err(|err| CloudError::invalid(format!("{name}: {err}")))?;
    Ok(ResourceState { uri: format!("{name}/{wanted}"), address: address.into(), region })
}
