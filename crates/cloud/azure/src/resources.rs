//! Resources: virtual machines, each with one interface in a security group of its own. The group is closed before the
//! interface exists, and the interface before the machine.

use cloud_api::{CloudError, ResourceSpec};
use model::{ResourceState, Segment};
use serde_json::{Value, json};

use crate::{
    api::is_made,
    cloud::{AzureCloud, Ground, Result},
    description::Description,
    names::{NAME, is_same_id, region_of},
    networks::{GROUPS, SUBNET},
    rules::{closed, is_same},
};

/// The ids of a resource's three objects.
pub(crate) struct Objects {
    pub(crate) machine: String,
    pub(crate) interface: String,
    pub(crate) group: String,
}

impl Objects {
    pub(crate) fn of(ground: &Ground, name: &str) -> Self {
        let named = |kind: &str| ground.names.of(kind, name);
        Self {
            machine: ground.machine_id(&named("vm")),
            interface: ground.network_id("networkInterfaces", &named("nic")),
            group: ground.network_id("networkSecurityGroups", &named("nsg")),
        }
    }

    /// Those of a machine by its id; none if no machine of the site could have it.
    pub(crate) fn of_uri(ground: &Ground, uri: &str) -> Option<Self> {
        let (start, end) = (ground.machine_id(&format!("{}-vm-", ground.names.prefix())), uri);
        let what = end
            .get(..start.len())
            .filter(|given| given.eq_ignore_ascii_case(&start))
            .map(|_| &end[start.len()..])?;
        let named = |kind: &str| format!("{}-{kind}-{what}", ground.names.prefix());
        (!what.contains('/')).then(|| Self {
            machine: uri.to_owned(),
            interface: ground.network_id("networkInterfaces", &named("nic")),
            group: ground.network_id("networkSecurityGroups", &named("nsg")),
        })
    }
}

/// A machine as the contract knows it.
pub(crate) fn state_of(ground: &Ground, machine: &Value, interface: &Value) -> Option<ResourceState> {
    let address = &interface["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"];
    Some(ResourceState {
        // Azure may answer with other cases of letters than it was asked with.
        uri: ground.machine_id(machine["name"].as_str()?),
        address: address.as_str()?.parse().ok()?,
        region: region_of(machine["location"].as_str()?)?,
    })
}

impl AzureCloud {
    pub(crate) async fn make_machine(
        &self,
        ground: &Ground,
        spec: &ResourceSpec,
        description: Description,
    ) -> Result<ResourceState> {
        let objects = Objects::of(ground, spec.name.as_str());
        let machine = match self.owned(ground, &objects.machine).await? {
            Some(machine) if is_made(&machine) => machine,
            there => {
                // One that is there and whose making failed may run, and has its list.
                if there.is_none() {
                    self.make_closed(ground, spec, &objects).await?;
                }
                let body = machine(ground, spec, description, &objects);
                self.arm.put(&objects.machine, &body).await?
            }
        };
        let interface = self.arm.get(&objects.interface).await?.unwrap_or_default();
        let unreadable = || {
            CloudError::unavailable(format!(
                "the machine of {}.{} has no address yet",
                ground.site, spec.name
            ))
        };
        state_of(ground, &machine, &interface).ok_or_else(unreadable)
    }

    /// A security group without permits, then an interface in it.
    async fn make_closed(&self, ground: &Ground, spec: &ResourceSpec, objects: &Objects) -> Result<()> {
        let location = spec.region.as_str();
        let tags = ground.names.tags(&[(NAME, spec.name.as_str())]);
        let body = json!({"location": location, "tags": tags, "properties": {"securityRules": closed()}});
        self.ensure(ground, &objects.group, &body, |group| {
            group["properties"]["securityRules"].as_array().is_some_and(|rules| is_same(rules, &closed()))
        })
        .await?;
        let body = json!({"location": location, "tags": tags, "properties": {
            "networkSecurityGroup": {"id": objects.group},
            "ipConfigurations": [{"name": "primary", "properties": {
                "primary": true,
                "privateIPAllocationMethod": "Dynamic",
                "subnet": {"id": format!("{}/subnets/{SUBNET}", ground.vnet(location))},
            }}],
        }});
        self.ensure(ground, &objects.interface, &body, |interface| {
            is_same_id(&interface["properties"]["networkSecurityGroup"]["id"], &objects.group)
        })
        .await?;
        Ok(())
    }

    pub(crate) async fn remove_resource(&self, ground: &Ground, name: &Segment) -> Result<()> {
        let groups = self.arm.list(&ground.group, GROUPS).await?;
        self.let_go(ground, name, &groups).await?;
        self.remove_clusters(ground, name, &groups).await?;
        let objects = Objects::of(ground, name.as_str());
        // The machine takes its interface along, unless it never came to be.
        self.remove(ground, &objects.machine).await?;
        self.remove(ground, &objects.interface).await?;
        self.remove(ground, &objects.group).await
    }
}

fn machine(ground: &Ground, spec: &ResourceSpec, description: Description, objects: &Objects) -> Value {
    let mut body = Value::Object(description.fields);
    let own = ground.names.tags(&[(NAME, spec.name.as_str())]);
    for (key, value) in own.as_object().into_iter().flatten() {
        body["tags"][key] = value.clone();
    }
    body["properties"]["networkProfile"] = json!({"networkInterfaces": [
        {"id": objects.interface, "properties": {"primary": true, "deleteOption": "Delete"}},
    ]});
    body
}
