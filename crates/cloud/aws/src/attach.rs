//! Attaching: an instance that exists becomes a resource, in its own VPC.
//!
//! ```text
//!   instance ── interface ── groups of its owner          before, and again after
//!                       └── trestle-HASH, closed          while it is attached; its tags say which instance it is for,
//!                                                         and which groups come back
//! ```
//!
//! Nothing is put on the instance itself. The group exists, with what was there before, before it takes effect.

use cloud_api::{Attachment, CloudError};
use futures::future::try_join_all;
use model::{ExistingNetwork, PeeringName, ResourceState, Site};
use serde_json::{Value, json};

use crate::{
    adopt::{blocks, table_of},
    api::{items, text},
    cloud::{AwsCloud, Result},
    groups::ids_on,
    lists::Uri,
    marks::mark,
    networks::Vpc,
};

/// Groups whose ids fit into one tag.
const PER_TAG: usize = 10;

/// An instance that is attached.
pub(crate) struct Attached {
    pub(crate) name: String,
    pub(crate) vpc: String,
    group: Value,
    instance: Value,
}

impl Attached {
    pub(crate) fn subnet(&self) -> Option<&str> {
        Some(text(&self.instance, "subnetId")).filter(|id| !id.is_empty())
    }

    pub(crate) fn state(&self, region: &str) -> Option<ResourceState> {
        let (group, instance) = (text(&self.group, "groupId"), text(&self.instance, "instanceId"));
        Some(ResourceState {
            uri: Uri { region, instance, group, name: &self.name }.to_string(),
            address: text(&self.instance, "privateIpAddress").parse().ok()?,
            region: format!("{region}-{}", self.vpc).parse().ok()?,
        })
    }
}

/// The one interface of an instance. With several, a permit list on one would leave the others open.
fn interface(instance: &Value) -> Result<&Value> {
    let id = text(instance, "instanceId");
    let mut interfaces = items(&instance["networkInterfaceSet"]);
    match (interfaces.next(), interfaces.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(CloudError::conflict(format!("{id} has no network interface"))),
        (Some(_), Some(_)) => Err(CloudError::conflict(format!(
            "{id} has several network interfaces, and could be reached by the others; detach all but one first"
        ))),
    }
}

/// The groups that an attached instance had before.
fn before(group: &Value) -> Vec<&str> {
    let parts = (1..).map_while(|number| mark(group, &format!("before-{number}")));
    parts.flat_map(|part| part.split(' ')).filter(|id| !id.is_empty()).collect()
}

fn before_marks(groups: &[&str]) -> Vec<(String, String)> {
    let parts = groups.chunks(PER_TAG).enumerate();
    parts.map(|(place, part)| (format!("before-{}", place + 1), part.join(" "))).collect()
}

impl AwsCloud {
    /// `REGION/INSTANCE`, or the instance alone: then all regions are searched.
    async fn find_instance(&self, site: &Site, id: &str) -> Result<(String, Value)> {
        let known = self.regions().await?;
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
        let looks = regions.iter().map(|region| self.instances_by_id(site, region, &ids));
        let found = try_join_all(looks).await?;
        let found =
            regions.iter().zip(found).find_map(|(region, found)| Some((*region, found.into_iter().next()?)));
        let none =
            || CloudError::not_found(format!("there is no instance {instance} in {}", regions.join(", ")));
        found.map(|(region, instance)| (region.to_owned(), instance)).ok_or_else(none)
    }

    pub(crate) async fn inspect_instance(&self, site: &Site, id: &str) -> Result<Attachment> {
        let (region, instance) = self.find_instance(site, id).await?;
        self.inspect_found(site, &region, &instance).await
    }

    async fn inspect_found(&self, site: &Site, region: &str, instance: &Value) -> Result<Attachment> {
        let id = text(instance, "instanceId");
        if let Some(owner) = mark(instance, "owner") {
            return Err(CloudError::conflict(format!(
                "{id} was made by Trestle ({owner}), so it is managed"
            )));
        }
        let interface = interface(instance)?;
        let groups = self.groups_by_id(site, region, &ids_on(interface).collect::<Vec<_>>()).await?;
        if let Some(ours) = groups.iter().find(|group| mark(group, "owner").is_some()) {
            let (site, name) = (mark(ours, "site").unwrap_or("?"), mark(ours, "name").unwrap_or("?"));
            return Err(CloudError::conflict(format!("{id} is attached already, as {site}.{name}")));
        }
        let vpc_id = text(instance, "vpcId");
        let vpc = self.vpc_by_id(site, region, vpc_id).await?;
        let vpc = vpc.ok_or_else(|| CloudError::conflict(format!("{id} is in no VPC")))?;
        self.check_adopter(site, &vpc)?;
        let unread = || CloudError::unavailable(format!("{id} has no address in its VPC {vpc_id} yet"));
        let address: std::net::Ipv4Addr = text(instance, "privateIpAddress").parse().map_err(|_| unread())?;
        let (inside, beside): (Vec<_>, Vec<_>) =
            blocks(&vpc).into_iter().partition(|block| block.contains(&address));
        let space = inside.first().copied().ok_or_else(unread)?;
        let name = format!("{region}-{vpc_id}");
        Ok(Attachment {
            region: name.parse().map_err(|err| CloudError::invalid(format!("{name}: {err}")))?,
            network: Some(ExistingNetwork { space, beside }),
            address: Some(address.into()),
            changes: self.changes(region, instance, interface, &groups).await?,
        })
    }

    async fn changes(
        &self,
        region: &str,
        instance: &Value,
        interface: &Value,
        groups: &[Value],
    ) -> Result<Vec<String>> {
        let (id, vpc, subnet) =
            (text(instance, "instanceId"), text(instance, "vpcId"), text(instance, "subnetId"));
        let mut names: Vec<String> = groups
            .iter()
            .map(|group| format!("{} ({})", text(group, "groupId"), text(group, "groupName")))
            .collect();
        names.sort();
        let filters = json!({"Filter": [{"Name": "vpc-id", "Value": [vpc]}]});
        let tables = self.ec2.list(region, "DescribeRouteTables", "routeTableSet", filters).await?;
        let table = table_of(&tables, subnet).unwrap_or("its route table").to_owned();
        Ok(vec![
            format!(
                "{id}: its interface {} leaves {} for a group that permits nothing until a rule does; they come back when \
                 it is detached",
                text(interface, "networkInterfaceId"),
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

    async fn groups_by_id(&self, site: &Site, region: &str, ids: &[&str]) -> Result<Vec<Value>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.settle(site, "group").await;
        let filters = json!({"Filter": [{"Name": "group-id", "Value": ids}]});
        Ok(self.ec2.list(region, "DescribeSecurityGroups", "securityGroupInfo", filters).await?)
    }

    /// The groups of a site that are for attached instances, by the names of the resources.
    async fn attached_groups(&self, site: &Site, region: &str) -> Result<Vec<Value>> {
        self.settle(site, "group").await;
        let filters = json!({"Filter": self.marks(site).filters(&[])});
        let found = self.ec2.list(region, "DescribeSecurityGroups", "securityGroupInfo", filters).await?;
        Ok(found.into_iter().filter(|group| mark(group, "instance").is_some()).collect())
    }

    /// What is attached in a region: instances that are there, and in their group.
    pub(crate) async fn attached(&self, site: &Site, region: &str) -> Result<Vec<Attached>> {
        let groups = self.attached_groups(site, region).await?;
        let ids: Vec<&str> = groups.iter().filter_map(|group| mark(group, "instance")).collect();
        let instances = self.instances_by_id(site, region, &ids).await?;
        let attached = |group: &Value| {
            let id = mark(group, "instance")?;
            let instance = instances.iter().find(|instance| text(instance, "instanceId") == id)?;
            let mut interfaces = items(&instance["networkInterfaceSet"]);
            let is_in = interfaces.any(|one| ids_on(one).any(|on| on == text(group, "groupId")));
            is_in.then(|| Attached {
                name: mark(group, "name").unwrap_or_default().to_owned(),
                vpc: text(group, "vpcId").to_owned(),
                group: group.clone(),
                instance: instance.clone(),
            })
        };
        Ok(groups.iter().filter_map(attached).collect())
    }

    pub(crate) async fn attach_instance(&self, site: &Site, name: &str, id: &str) -> Result<ResourceState> {
        let (region, instance) = self.find_instance(site, id).await?;
        let id = text(&instance, "instanceId");
        let there = self.attached(site, &region).await?;
        if !there.iter().any(|one| one.name == name && text(&one.instance, "instanceId") == id) {
            self.close(site, &region, name, &instance).await?;
            self.rejoin(site, &region, text(&instance, "vpcId")).await?;
        }
        let now = self.attached(site, &region).await?;
        let state = now.iter().find(|one| one.name == name).and_then(|one| one.state(&region));
        state.ok_or_else(|| CloudError::unavailable(format!("{id} is not seen in its group yet")))
    }

    /// Puts an instance into a closed group of its own.
    async fn close(&self, site: &Site, region: &str, name: &str, instance: &Value) -> Result<()> {
        let id = text(instance, "instanceId");
        let taken = self.groups(site, region, name).await?;
        if taken.iter().any(|group| mark(group, "instance").is_some_and(|other| other != id))
            || !self.instances(site, region, &[("name", name)]).await?.is_empty()
        {
            return Err(CloudError::conflict(format!(
                "resource {site}.{name} is there and is something else"
            )));
        }
        let found = self.inspect_found(site, region, instance).await?;
        if self.vpc(site, found.region.as_str()).await?.is_none() {
            return Err(CloudError::conflict(format!("the network {} of {id} is not adopted", found.region)));
        }
        let interface = interface(instance)?;
        let mut on: Vec<&str> = ids_on(interface).collect();
        on.sort_unstable();
        let before = before_marks(&on);
        let marks: Vec<(&str, &str)> = [("instance", id)]
            .into_iter()
            .chain(before.iter().map(|(key, value)| (key.as_str(), value.as_str())))
            .collect();
        let home = (region, text(instance, "vpcId"));
        let group = self.closed_group(site, home, name, 0, &marks).await?;
        // A group of an earlier try may know others.
        let tags: Vec<Value> = marks
            .iter()
            .map(|(key, value)| json!({"Key": format!("trestle:{key}"), "Value": value}))
            .collect();
        self.touch(site, "group");
        self.ec2.safe(region, "CreateTags", json!({"ResourceId": [group], "Tag": tags})).await?;
        self.set_groups(site, region, interface, &[&group]).await
    }

    /// Leads what joins the VPC to an instance that has come: gateway and peerings, where they are there already.
    async fn rejoin(&self, site: &Site, region: &str, vpc: &str) -> Result<()> {
        let Some(vpc) = self.vpc(site, &format!("{region}-{vpc}")).await? else { return Ok(()) };
        if let Some(hub) = self.hub(site).await? {
            self.attach(site, &hub, std::slice::from_ref(&vpc)).await?;
        }
        for peering in self.peerings_with(site, &vpc).await? {
            self.make_peering(&peering).await?;
        }
        Ok(())
    }

    /// The peerings of a network. They are listed where their first end is.
    async fn peerings_with(&self, site: &Site, vpc: &Vpc) -> Result<Vec<PeeringName>> {
        let name = format!("{}-{}", vpc.region, vpc.id);
        let regions = self.regions().await?;
        let lists = try_join_all(regions.iter().map(|region| self.all_peerings_in(region))).await?;
        let is_end = |peering: &PeeringName| {
            peering.ends().iter().any(|end| end.site == *site && end.region.as_str() == name)
        };
        Ok(lists.into_iter().flatten().filter(is_end).collect())
    }

    /// Gives an attached instance its groups back, those that are still there. Our group then goes like any other.
    pub(crate) async fn let_go(&self, site: &Site, region: &str, name: &str) -> Result<()> {
        let groups = self.groups(site, region, name).await?;
        let Some(group) = groups.iter().find(|group| mark(group, "instance").is_some()) else {
            return Ok(());
        };
        let id = mark(group, "instance").unwrap_or_default();
        let found = self.instances_by_id(site, region, &[id]).await?;
        let interfaces = found.iter().flat_map(|instance| items(&instance["networkInterfaceSet"]));
        let ours: Vec<&str> = groups.iter().map(|group| text(group, "groupId")).collect();
        for interface in interfaces.filter(|one| ids_on(one).any(|id| ours.contains(&id))) {
            let old = self.groups_by_id(site, region, &before(group)).await?;
            let kept = ids_on(interface).filter(|id| !ours.contains(id));
            let mut back: Vec<&str> = old.iter().map(|group| text(group, "groupId")).chain(kept).collect();
            back.sort_unstable();
            back.dedup();
            if back.is_empty() {
                return Err(CloudError::conflict(format!(
                    "none of the groups that {id} had before ({}) is there any more; put its interface into another group, \
                     then delete the resource again",
                    before(group).join(", ")
                )));
            }
            self.set_groups(site, region, interface, &back).await?;
        }
        Ok(())
    }
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
            let tags =
                marks.iter().map(|(key, value)| json!({"key": format!("trestle:{key}"), "value": value}));
            let group = json!({"tagSet": tags.collect::<Vec<_>>()});
            assert_eq!(before(&group), ids[..count]);
        }
    }

    #[test]
    fn what_has_a_second_way_in_is_refused() {
        let one = json!({"instanceId": "i-1", "networkInterfaceSet": [{"networkInterfaceId": "eni-1"}]});
        assert!(interface(&one).is_ok());
        let two = json!({"instanceId": "i-1", "networkInterfaceSet": [{"networkInterfaceId": "eni-1"}, {"networkInterfaceId": "eni-2"}]});
        assert!(interface(&two).unwrap_err().message.contains("several"));
    }
}
