//! Instances that are made, each with a network tag that its firewalls are for. Born closed: no firewall names the tag.

use cloud_api::{CloudError, ResourceSpec};
use model::{ResourceState, Segment};

use crate::{
    description::Description,
    ground::{Ground, Result},
    mark::Mark,
    shapes::{Instance, Interface, Tags},
};

/// An instance as the contract knows it. Its id is its path.
pub(crate) fn state_of(ground: &Ground, instance: &Instance) -> Option<ResourceState> {
    let zone = instance.zone.name();
    let (region, _) = zone.rsplit_once('-')?;
    Some(ResourceState {
        uri: ground.zone(zone).object::<Instance>(&instance.name).to_string(),
        address: instance.address()?,
        region: region.parse().ok()?,
    })
}

pub(crate) async fn make(
    ground: &Ground,
    spec: &ResourceSpec,
    description: Description,
) -> Result<ResourceState> {
    let name = ground.names.instance(&spec.name);
    let subnetwork = ground.subnet(spec.region.as_str());
    let instance = Instance {
        name: name.clone(),
        description: Mark { name: Some(spec.name.clone()), ..ground.names.mark() }.into(),
        // No access configuration: no public address.
        network_interfaces: vec![Interface { subnetwork, ..Interface::default() }],
        tags: Tags { items: vec![name], ..Tags::default() },
        described: description.fields,
        ..Instance::default()
    };
    let made = ground.ensure(&ground.zone(&description.zone), &instance).await?;
    let unreadable = || CloudError::unavailable(format!("an instance of {} has no address yet", ground.site));
    state_of(ground, &made).ok_or_else(unreadable)
}

pub(crate) async fn remove(ground: &Ground, name: &Segment) -> Result {
    let wanted = ground.names.instance(name);
    for instance in ground.owned::<Instance>(&wanted).await? {
        ground.delete(&ground.zone(instance.zone.name()).object::<Instance>(&wanted)).await?;
    }
    // The list goes with the resource, so that another of the same name is closed.
    let list = ground.firewalls(&ground.names.list(&wanted)).await?;
    ground.delete_firewalls(list.iter().map(|firewall| firewall.name.as_str())).await
}
