//! Resources that are made: instances, each with a network tag that its firewalls are for. Born closed: no firewall names
//! the tag.

use cloud_api::{CloudError, ResourceSpec};
use futures::future::try_join_all;
use model::{ResourceState, Segment};
use serde_json::{Value, json};

use crate::{
    cloud::{GcpCloud, Ground, Result},
    description::Description,
    names::{self, last},
};

/// An instance as the contract knows it. Its id is its path.
pub(crate) fn state_of(project: &str, instance: &Value) -> Option<ResourceState> {
    let zone = last(&instance["zone"]);
    let (region, _) = zone.rsplit_once('-')?;
    Some(ResourceState {
        uri: format!("projects/{project}/zones/{zone}/instances/{}", instance["name"].as_str()?),
        address: instance["networkInterfaces"][0]["networkIP"].as_str()?.parse().ok()?,
        region: region.parse().ok()?,
    })
}

impl GcpCloud {
    pub(crate) async fn make_instance(
        &self,
        ground: &Ground,
        spec: &ResourceSpec,
        description: Description,
    ) -> Result<ResourceState> {
        let name = ground.names.instance(&spec.name);
        let place = ground.zone(&description.zone);
        if let Some(there) = self.compute.get(&place, "instances", &name).await? {
            return self.readable(ground, &there);
        }
        let subnet = ground
            .region(spec.region.as_str())
            .object("subnetworks", &ground.names.subnet(spec.region.as_str()));
        let mark = names::Mark { name: Some(spec.name.clone()), ..ground.names.mark() };
        let mut instance = Value::Object(description.fields);
        instance["name"] = name.as_str().into();
        instance["description"] = names::write(mark).into();
        // No access configuration: no public address.
        instance["networkInterfaces"] = json!([{"subnetwork": subnet}]);
        instance["tags"] = json!({"items": [name]});
        self.compute.insert(&place, "instances", &instance).await?;
        let gone = || CloudError::unavailable(format!("the instance {name} was made and is not there"));
        let made = self.compute.get(&place, "instances", &name).await?.ok_or_else(gone)?;
        self.readable(ground, &made)
    }

    fn readable(&self, ground: &Ground, instance: &Value) -> Result<ResourceState> {
        let unreadable =
            || CloudError::unavailable(format!("an instance of {} has no address yet", ground.site));
        state_of(&ground.project, instance).ok_or_else(unreadable)
    }

    pub(crate) async fn remove_resource(&self, ground: &Ground, name: &Segment) -> Result<()> {
        self.let_go(ground, name).await?;
        let (compute, wanted) = (&self.compute, ground.names.instance(name));
        let found = compute.list_all(&ground.project, "instances", &wanted).await?;
        for instance in found.iter().filter(|instance| ground.names.owns(instance)) {
            compute.delete(&ground.zone(last(&instance["zone"])), "instances", &wanted).await?;
        }
        // The list goes with the resource, so that another of the same name is closed.
        let firewalls =
            compute.list(&ground.global(), "firewalls", &self.list_prefix(ground, &wanted)).await?;
        let global = ground.global();
        let names = firewalls.iter().filter_map(|firewall| firewall["name"].as_str());
        try_join_all(names.map(|name| compute.delete(&global, "firewalls", name))).await?;
        Ok(())
    }
}
