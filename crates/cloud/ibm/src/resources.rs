//! Resources: instances, each in a security group of its own. Born closed: the group has no rules.

use std::collections::BTreeMap;

use cloud_api::{CloudError, ResourceSpec};
use futures::future::try_join_all;
use model::{ResourceState, Segment};
use serde_json::{Value, json};

use crate::{
    api::{GROUP, INSTANCE, Place, RULE, is_alive, text},
    cloud::{Ground, IbmCloud, Result},
    description::Description,
    notes,
    rules::Note,
    spread::MOST_GROUPS,
    vpcs::{Vpc, Vpcs},
};

/// An instance as the contract knows it. Its id is its region and its name, which is one of a kind there.
pub(crate) fn state_of(region: &str, instance: &Value) -> Option<ResourceState> {
    let address = text(&instance["primary_network_attachment"]["primary_ip"], "address");
    // What IBM shows while there is none yet.
    let address = address.parse().ok().filter(|address: &std::net::IpAddr| !address.is_unspecified())?;
    Some(ResourceState {
        uri: format!("{region}/{}", text(instance, "name")),
        address: address.into(),
        region: region.parse().ok()?,
    })
}

/// The notes of an instance, all their parts, the newest first, with their numbers.
pub(crate) fn notes_of<'g>(ground: &Ground, groups: &'g [Value], instance: &str) -> Vec<(u64, &'g Value)> {
    let number = |group: &Value| Some(ground.names.read_note(instance, text(group, "name"))?.0);
    let mut found: Vec<_> = groups.iter().filter_map(|group| Some((number(group)?, group))).collect();
    found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    found
}

/// What is noted of an instance: the newest note that is whole.
pub(crate) fn note_of(ground: &Ground, groups: &[Value], instance: &str) -> Option<Note> {
    let part = |group: &Value| {
        let (number, part, count) = ground.names.read_note(instance, text(group, "name"))?;
        Some(((number, count), (part, notes::read(group)?)))
    };
    let mut found: BTreeMap<(u64, usize), BTreeMap<usize, String>> = BTreeMap::new();
    for (note, (part, text)) in groups.iter().filter_map(part) {
        found.entry(note).or_default().insert(part, text);
    }
    let is_whole = |(count, parts): &(usize, BTreeMap<usize, String>)| parts.keys().copied().eq(0..*count);
    let whole = found.into_iter().rev().map(|((_, count), parts)| (count, parts)).filter(is_whole);
    whole
        .into_iter()
        .find_map(|(_, parts)| serde_json::from_str(&parts.into_values().collect::<Vec<_>>().concat()).ok())
}

pub(crate) fn group_of<'g>(ground: &Ground, groups: &'g [Value], instance: &str) -> Option<&'g Value> {
    let name = ground.names.group(instance);
    groups.iter().find(|group| group["name"] == name.as_str())
}

/// The further groups of an instance's list, with their numbers.
pub(crate) fn further_groups<'g>(
    ground: &Ground,
    groups: &'g [Value],
    instance: &str,
) -> Vec<(usize, &'g Value)> {
    let find = |number: usize| {
        let name = ground.names.further_group(instance, number);
        groups.iter().find(|group| group["name"] == name.as_str()).map(|group| (number, group))
    };
    (1..MOST_GROUPS).filter_map(find).collect()
}

impl IbmCloud {
    pub(crate) async fn make_instance(
        &self,
        ground: &Ground,
        spec: &ResourceSpec,
        description: Description,
    ) -> Result<ResourceState> {
        let (name, region) = (ground.names.instance(&spec.name), spec.region.as_str());
        let _turn = self.turns.take(&format!("{region}/{name}")).await;
        let (place, vpc) = (Place::Region(region), self.need_vpc(ground, region).await?);
        let listed = format!("instances?name={name}");
        let (there, groups) = futures::try_join!(
            async { Ok(self.api.list(place, &INSTANCE, &listed).await?) },
            self.groups(&vpc)
        )?;
        let there = there.into_iter().find(is_alive);
        let note = Note { name: spec.name.to_string(), list: Vec::new() };
        if note_of(ground, &groups, &name).is_none() {
            self.write_note(ground, &vpc, &groups, &name, &note).await?;
        }
        let made = match there {
            Some(instance) if INSTANCE.is_ready(&instance) => instance,
            _ => {
                let (group, subnet) = futures::try_join!(
                    self.closed_group(ground, &vpc, &groups, &name),
                    self.subnet(ground, &vpc, &description.zone)
                )?;
                let body = instance(ground, &vpc, &name, description.fields, &group, &subnet);
                self.api.make(place, &INSTANCE, &listed, &body).await?
            }
        };
        let none = || CloudError::unavailable(format!("the instance {name} has no address yet"));
        state_of(region, &made).ok_or_else(none)
    }

    /// The group of an instance that is still to be made. Rules that an earlier one left are taken out.
    pub(crate) async fn closed_group(
        &self,
        ground: &Ground,
        vpc: &Vpc,
        groups: &[Value],
        instance: &str,
    ) -> Result<String> {
        let unused = further_groups(ground, groups, instance).into_iter().map(|(_, group)| group);
        let unused = unused.filter(|group| group["targets"].as_array().is_none_or(Vec::is_empty));
        try_join_all(unused.map(|group| self.forget(vpc, group))).await?;
        self.empty_group(ground, vpc, groups, &ground.names.group(instance)).await
    }

    /// The group of a name, without rules: those of one that is there and on nothing are taken out.
    pub(crate) async fn empty_group(
        &self,
        ground: &Ground,
        vpc: &Vpc,
        groups: &[Value],
        name: &str,
    ) -> Result<String> {
        let place = Place::Region(&vpc.region);
        if let Some(group) = groups.iter().find(|group| group["name"] == name) {
            let id = text(group, "id");
            let has_targets = group["targets"].as_array().is_some_and(|targets| !targets.is_empty());
            let rules = group["rules"].as_array().into_iter().flatten().filter(|_| !has_targets);
            try_join_all(rules.map(|rule| async move {
                let path = format!("security_groups/{id}/rules/{}", text(rule, "id"));
                self.api.remove(place, &RULE, &path).await
            }))
            .await?;
            return Ok(id.to_owned());
        }
        let body = ground.place(json!({"name": name, "vpc": {"id": vpc.id}, "rules": []}));
        let path = format!("security_groups?vpc.id={}", vpc.id);
        Ok(text(&self.api.make(place, &GROUP, &path, &body).await?, "id").to_owned())
    }

    /// Writes an instance's note anew, then forgets the older ones.
    pub(crate) async fn write_note(
        &self,
        ground: &Ground,
        vpc: &Vpc,
        groups: &[Value],
        instance: &str,
        note: &Note,
    ) -> Result<()> {
        let old = notes_of(ground, groups, instance);
        let number = old.first().map_or(0, |(number, _)| number + 1);
        let (what, whole) = note.write();
        let parts = notes::parts(&what, &whole)?;
        try_join_all(parts.iter().enumerate().map(|(part, text)| {
            let name = ground.names.instance_note(instance, number, part, parts.len());
            let what = &what;
            async move { self.note_down(ground, vpc, &name, what, text).await }
        }))
        .await?;
        try_join_all(old.iter().map(|(_, group)| self.forget(vpc, group))).await?;
        Ok(())
    }

    /// Makes a note. One of the same name says the same.
    pub(crate) async fn note_down(
        &self,
        ground: &Ground,
        vpc: &Vpc,
        name: &str,
        what: &str,
        note: &str,
    ) -> Result<()> {
        let rules = notes::write(what, note)?;
        let body = ground.place(json!({"name": name, "vpc": {"id": vpc.id}, "rules": rules}));
        let path = format!("security_groups?vpc.id={}", vpc.id);
        self.api.make(Place::Region(&vpc.region), &GROUP, &path, &body).await.map(drop)
    }

    pub(crate) async fn forget(&self, vpc: &Vpc, group: &Value) -> Result<()> {
        let path = format!("security_groups/{}", text(group, "id"));
        self.api.remove(Place::Region(&vpc.region), &GROUP, &path).await
    }

    pub(crate) async fn remove_resource(&self, ground: &Ground, vpcs: &Vpcs, name: &Segment) -> Result<()> {
        let wanted = ground.names.instance(name);
        let own = vpcs.networks.iter().filter(|vpc| vpc.cluster().is_none());
        try_join_all(own.map(|vpc| self.remove_from(ground, vpc, &wanted))).await?;
        Ok(())
    }

    async fn remove_from(&self, ground: &Ground, vpc: &Vpc, name: &str) -> Result<()> {
        let _turn = self.turns.take(&format!("{}/{name}", vpc.name())).await;
        if vpc.adopted().is_some() {
            return self.let_go(ground, vpc, name).await;
        }
        let place = Place::Region(&vpc.region);
        let listed = format!("instances?name={name}");
        let (instances, groups) = futures::try_join!(
            async { Ok(self.api.list(place, &INSTANCE, &listed).await?) },
            self.groups(vpc)
        )?;
        for instance in instances.iter().filter(|one| one["name"] == name) {
            self.api.remove(place, &INSTANCE, &format!("instances/{}", text(instance, "id"))).await?;
        }
        // The list goes with the resource, so that another of the same name is closed.
        self.forget_list(ground, vpc, &groups, name).await
    }

    /// Deletes all groups of a resource's list, and its notes.
    pub(crate) async fn forget_list(
        &self,
        ground: &Ground,
        vpc: &Vpc,
        groups: &[Value],
        name: &str,
    ) -> Result<()> {
        let further = further_groups(ground, groups, name).into_iter().map(|(_, group)| group);
        let own = group_of(ground, groups, name).into_iter().chain(further);
        let notes = notes_of(ground, groups, name).into_iter().map(|(_, group)| group);
        try_join_all(own.chain(notes).map(|group| self.forget(vpc, group))).await.map(drop)
    }
}

/// The request for an instance: the user's description, in our network and in its own group.
fn instance(
    ground: &Ground,
    vpc: &Vpc,
    name: &str,
    fields: serde_json::Map<String, Value>,
    group: &str,
    subnet: &str,
) -> Value {
    let mut instance = ground.place(Value::Object(fields));
    instance["name"] = name.into();
    instance["vpc"] = json!({"id": vpc.id});
    let interface = json!({
        "name": name,
        "subnet": {"id": subnet},
        "security_groups": [{"id": group}],
        "allow_ip_spoofing": false,
        "auto_delete": true,
    });
    instance["primary_network_attachment"] =
        json!({"name": "primary", "virtual_network_interface": interface});
    instance
}
