//! Permit lists: read the security group, plan, and write all its rules in one request if they differ.

use async_trait::async_trait;
use cloud_api::{At, CloudError, PermitLists, list_after};
use futures::try_join;
use ipnet::Ipv4Net;
use model::{Direction, PermitEntry};
use serde_json::{Value, json};

use crate::{
    adopt::NETWORK,
    attach::INTERFACE,
    cloud::{AzureCloud, Ground, Result},
    clusters::{BLOCK, Border},
    names::{is_same_id, tag},
    networks::listed,
    resources::Objects,
    rules::{border, closed, entries_of, is_same, open_entry, rules_of},
};

/// What a security group is set on.
enum Holder {
    /// The interface of a machine that was made.
    Made(Objects),
    /// The interface of one that is attached.
    Attached(String),
    /// The subnet of a cluster.
    Cluster(Border),
}

/// A security group, and whether it is in force.
struct Group {
    id: String,
    holder: Holder,
    object: Value,
    rules: Vec<Value>,
    /// The rules that are there whatever the list.
    base: Vec<Value>,
    applies: bool,
}

impl Group {
    fn entries(&self) -> Vec<PermitEntry> {
        let mut entries = entries_of(&self.rules, &self.base);
        if !self.applies {
            // Somebody took the interface or the subnet out of its group: everything passes.
            let open = [("in", Direction::Inbound), ("out", Direction::Outbound)];
            entries.extend(open.iter().filter_map(|(name, direction)| {
                open_entry(&format!("no security group {name}"), *direction)
            }));
        }
        entries
    }
}

fn missing(ground: &Ground, uri: &str) -> CloudError {
    CloudError::not_found(format!("there is no resource {uri} in {}", ground.site))
}

#[async_trait]
impl PermitLists for AzureCloud {
    async fn permit_list(&self, at: &At, uri: &str) -> Result<Vec<PermitEntry>> {
        Ok(self.group(&self.at(at)?, uri).await?.entries())
    }

    async fn put_list(&self, at: &At, uri: &str, before: &[PermitEntry], wanted: &[PermitEntry]) -> Result {
        let _turn = self.turns.take(uri).await;
        let ground = &self.at(at)?;
        let group = self.group(ground, uri).await?;
        let list = list_after(group.entries(), before, wanted);
        let rules = rules_of(&group.rules, &list, &group.base)?;
        if !is_same(&group.rules, &rules) {
            self.write_group(&group.id, &group.object, &rules).await?;
        }
        match &group.holder {
            _ if group.applies => Ok(()),
            Holder::Made(objects) => self.put_in_group(ground, objects).await,
            Holder::Attached(interface) => self.reattach(interface, &group.id).await,
            Holder::Cluster(ids) => {
                self.guard(ground, ids).await?;
                // Whoever joined networks meanwhile has left this one out.
                match tag(&group.object, NETWORK).and_then(|network| network.parse().ok()) {
                    Some(network) => self.open_border(ground, &network).await,
                    None => Ok(()),
                }
            }
        }
    }
}

impl AzureCloud {
    async fn group(&self, ground: &Ground, uri: &str) -> Result<Group> {
        if let Some(ids) = Border::of_uri(ground, uri) {
            return self.border_group(ground, uri, ids).await;
        }
        let made = Objects::of_uri(ground, uri);
        let id = made.as_ref().map_or_else(|| self.attached_group(ground, uri), |made| made.group.clone());
        let object = self.arm.settled(&id).await?;
        let object = object.filter(|group| ground.names.owns(group)).ok_or_else(|| missing(ground, uri))?;
        let attached = || tag(&object, INTERFACE).unwrap_or_default().to_owned();
        let interface = made.as_ref().map_or_else(attached, |made| made.interface.clone());
        let applies = listed(&object, "networkInterfaces").any(|one| is_same_id(&one["id"], &interface));
        let holder = made.map_or(Holder::Attached(interface), Holder::Made);
        let rules = listed(&object, "securityRules").cloned().collect();
        Ok(Group { id, holder, object, rules, base: closed(), applies })
    }

    /// The group around a cluster, which is there before it and after it.
    async fn border_group(&self, ground: &Ground, uri: &str, ids: Border) -> Result<Group> {
        let subnet_id = ids.subnet();
        let (cluster, object, subnet) =
            try_join!(self.arm.get(&ids.cluster), self.arm.settled(&ids.group), self.arm.get(&subnet_id))?;
        let none = || missing(ground, uri);
        cluster.filter(|cluster| ground.names.owns(cluster)).ok_or_else(none)?;
        let object = object.filter(|group| ground.names.owns(group)).ok_or_else(none)?;
        let block: Option<Ipv4Net> = tag(&object, BLOCK).and_then(|text| text.parse().ok());
        let unread = || {
            CloudError::conflict(format!(
                "{} has lost its tag {BLOCK}; set it to the subnet's prefix",
                ids.group
            ))
        };
        let base = border(block.ok_or_else(unread)?);
        let applies = subnet.is_some_and(|subnet| ids.guards(&subnet));
        let rules = listed(&object, "securityRules").cloned().collect();
        Ok(Group { id: ids.group.clone(), holder: Holder::Cluster(ids), object, rules, base, applies })
    }

    /// Writes a group with the tags that it has here, and these rules.
    pub(crate) async fn write_group(&self, id: &str, group: &Value, rules: &[Value]) -> Result<()> {
        let body = json!({
            "location": group["location"],
            "tags": group["tags"],
            "properties": {"securityRules": rules.iter().map(sent).collect::<Vec<_>>()},
        });
        Ok(self.arm.put(id, &body).await.map(drop)?)
    }

    /// Puts the interface back into its group.
    async fn put_in_group(&self, ground: &Ground, objects: &Objects) -> Result<()> {
        let missing = || CloudError::not_found(format!("there is no interface {}", objects.interface));
        let interface = self.owned(ground, &objects.interface).await?.ok_or_else(missing)?;
        let configuration = &interface["properties"]["ipConfigurations"][0];
        let kept = |field: &str| configuration["properties"][field].clone();
        let body = json!({
            "location": interface["location"],
            "tags": interface["tags"],
            "properties": {
                "networkSecurityGroup": {"id": objects.group},
                "ipConfigurations": [{"name": configuration["name"], "properties": {
                    "primary": true,
                    "privateIPAllocationMethod": kept("privateIPAllocationMethod"),
                    "subnet": {"id": kept("subnet")["id"]},
                }}],
            },
        });
        Ok(self.arm.put(&objects.interface, &body).await.map(drop)?)
    }
}

/// A rule as it is sent: what was read has fields that only Azure sets.
fn sent(rule: &Value) -> Value {
    let mut properties = rule["properties"].clone();
    if let Value::Object(fields) = &mut properties {
        fields.remove("provisioningState");
    }
    json!({"name": rule["name"], "properties": properties})
}
