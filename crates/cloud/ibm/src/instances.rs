//! Resources: instances, each in a security group of its own. Born closed: the group has no rules.

use cloud_api::{CloudError, ResourceSpec};
use futures::{future::try_join_all, try_join};
use model::{ResourceState, Segment};

use crate::described::Description;
use crate::groups::remove_with_list;
use crate::shapes::{AttachmentRequest, Instance, InstanceRequest, InterfaceRequest, Reference};
use crate::{Ground, Groups, Listed as _, Result, Vpc, Vpcs, attach, subnets};

/// An instance as the contract knows it. Its id is its region and its name, which is one of a kind there.
pub(crate) fn state_of(region: &str, instance: &Instance) -> Option<ResourceState> {
    let address = instance.primary_network_attachment.as_ref()?.primary_ip.address;
    // What IBM shows while there is none yet.
    (!address.is_unspecified()).then_some(())?;
    let uri = format!("{region}/{}", instance.name);
    Some(ResourceState { uri, address: address.into(), region: region.parse().ok()? })
}

pub(crate) async fn make(
    ground: &Ground,
    spec: &ResourceSpec,
    description: Description,
) -> Result<ResourceState> {
    let (name, region) = (ground.names.instance(&spec.name), spec.region.as_str());
    let _turn = ground.turns.take(&format!("{region}/{name}")).await;
    let vpc = Vpc::need(ground, region).await?;
    let instances = ground.api.in_region::<Instance>(region).with("name", &name);
    let (there, groups) = try_join!(instances.list(), Groups::read(ground, &vpc))?;
    groups.note_new(&name, &spec.name).await?;
    let made = match there.into_iter().find(Instance::is_alive) {
        Some(instance) if instance.is_ready() => instance,
        there => {
            let subnet = subnets::ensure(ground, &vpc, &description.zone);
            let (group, subnet) = try_join!(groups.closed(&name), subnet)?;
            let interface = InterfaceRequest {
                name: name.clone(),
                subnet: Reference::to(subnet),
                security_groups: [Reference::to(group)],
                allow_ip_spoofing: false,
                auto_delete: true,
            };
            let request = InstanceRequest {
                described: description.fields,
                name: name.clone(),
                vpc: Reference::to(&vpc.id),
                primary_network_attachment: AttachmentRequest {
                    name: "primary",
                    virtual_network_interface: interface,
                },
                resource_group: ground.group(),
            };
            instances.ensure(there, &request).await?
        }
    };
    let none = || CloudError::unavailable(format!("the instance {name} has no address yet"));
    state_of(region, &made).ok_or_else(none)
}

/// Deletes an instance that was made, and lets go one that was attached.
pub(crate) async fn remove(ground: &Ground, vpcs: &Vpcs, name: &Segment) -> Result {
    let wanted = &ground.names.instance(name);
    let own = vpcs.networks.iter().filter(|vpc| vpc.cluster().is_none());
    try_join_all(own.map(|vpc| remove_from(ground, vpc, wanted))).await.map(drop)
}

async fn remove_from(ground: &Ground, vpc: &Vpc, name: &str) -> Result {
    let _turn = ground.turns.take(&format!("{}/{name}", vpc.name())).await;
    if vpc.adopted.is_some() {
        return attach::let_go(ground, vpc, name).await;
    }
    let instances = ground.api.in_region::<Instance>(&vpc.region).with("name", name);
    remove_with_list(ground, vpc, &instances, |one| one == name, name).await
}
