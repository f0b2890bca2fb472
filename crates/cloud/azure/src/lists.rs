//! Permit lists: read the security group, plan, and write all its rules in one request if they differ.

use cloud_api::CloudError;
use model::{Direction, PermitEntry};
use serde_json::{Value, json};

use crate::{
    attach::INTERFACE,
    cloud::{AzureCloud, Ground, Result},
    names::{is_same_id, tag},
    networks::listed,
    resources::Objects,
    rules::{entries_of, is_same, open_entry, rules_of},
};

/// A security group, and whether it is in force.
struct Group {
    objects: Objects,
    object: Value,
    rules: Vec<Value>,
    applies: bool,
    is_attached: bool,
}

impl Group {
    fn entries(&self) -> Vec<PermitEntry> {
        let mut entries = entries_of(&self.rules);
        if !self.applies {
            // Somebody took the interface out of its group: everything passes.
            let open = [("in", Direction::Inbound), ("out", Direction::Outbound)];
            entries.extend(open.iter().filter_map(|(name, direction)| {
                open_entry(&format!("no security group {name}"), *direction)
            }));
        }
        entries
    }
}

impl AzureCloud {
    async fn group(&self, ground: &Ground, uri: &str) -> Result<Group> {
        let missing = || CloudError::not_found(format!("there is no resource {uri} in {}", ground.site));
        let made = Objects::of_uri(ground, uri);
        let is_attached = made.is_none();
        let id = made.as_ref().map_or_else(|| self.attached_group(ground, uri), |made| made.group.clone());
        let object = self.arm.settled(&id).await?;
        let object = object.filter(|group| ground.names.owns(group)).ok_or_else(missing)?;
        let objects = made.unwrap_or_else(|| Objects {
            machine: uri.to_owned(),
            interface: tag(&object, INTERFACE).unwrap_or_default().to_owned(),
            group: id,
        });
        let applies =
            listed(&object, "networkInterfaces").any(|one| is_same_id(&one["id"], &objects.interface));
        let rules = listed(&object, "securityRules").cloned().collect();
        Ok(Group { objects, object, rules, applies, is_attached })
    }

    pub(crate) async fn read_list(&self, ground: &Ground, uri: &str) -> Result<Vec<PermitEntry>> {
        Ok(self.group(ground, uri).await?.entries())
    }

    pub(crate) async fn change_list(
        &self,
        ground: &Ground,
        uri: &str,
        set: &[PermitEntry],
        unset: &[PermitEntry],
    ) -> Result<()> {
        let _turn = self.turns.take(uri).await;
        let group = self.group(ground, uri).await?;
        let replaced = |entry: &PermitEntry| set.iter().any(|new| new.name == entry.name);
        let kept = group.entries().into_iter().filter(|entry| !replaced(entry) && !unset.contains(entry));
        let list: Vec<PermitEntry> = kept.chain(set.iter().cloned()).collect();
        let rules = rules_of(&group.rules, &list)?;
        if !is_same(&group.rules, &rules) {
            let body = json!({
                "location": group.object["location"],
                "tags": group.object["tags"],
                "properties": {"securityRules": rules.iter().map(sent).collect::<Vec<_>>()},
            });
            self.arm.put(&group.objects.group, &body).await?;
        }
        if !group.applies && group.is_attached {
            self.reattach(&group.objects.interface, &group.objects.group).await?;
        } else if !group.applies {
            self.put_in_group(ground, &group.objects).await?;
        }
        Ok(())
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
