//! Resources: instances and private endpoints (endpoint gateways), each in a security group of its own. Born closed: the
//! group has no rules, and the resource is in it from the request that makes it. Clusters are `clusters`'.

use std::net::IpAddr;

use cloud_api::{CloudError, ResourceSpec};
use futures::{future::try_join_all, try_join};
use model::{ResourceState, Segment};

use crate::described::Description;
use crate::groups::remove_with_list;
use crate::shapes::{
    AttachmentRequest, EndpointGateway, EndpointRequest, Instance, InstanceRequest, InterfaceRequest,
    Reference, ReservedIpRequest,
};
use crate::{Collection, Ground, Groups, Listed, Result, Vpc, Vpcs, attach, subnets};

/// A kind of object that is a resource.
trait Resource: Listed {
    /// None while there is none yet.
    fn address(&self) -> Option<IpAddr>;

    /// As the contract knows it. Its id is its region and its name, which is one of a kind there.
    fn state(&self, region: &str) -> Option<ResourceState> {
        let uri = format!("{region}/{}", self.name());
        Some(ResourceState { uri, address: self.address()?.into(), region: region.parse().ok()? })
    }
}

impl Resource for Instance {
    fn address(&self) -> Option<IpAddr> {
        let address = self.primary_network_attachment.as_ref()?.primary_ip.address;
        (!address.is_unspecified()).then_some(address)
    }
}

impl Resource for EndpointGateway {
    fn address(&self) -> Option<IpAddr> {
        Some(self.ips.first()?.address)
    }
}

/// The endpoint gateways of a VPC that are ours.
pub(crate) async fn endpoints(ground: &Ground, vpc: &Vpc) -> Result<Vec<EndpointGateway>> {
    let found = vpc.all::<EndpointGateway>(&ground.api).list().await?;
    let ours = |one: &EndpointGateway| one.is_alive() && ground.names.is_endpoint(&one.name);
    Ok(found.into_iter().filter(ours).collect())
}

/// The instances and endpoints of a region's network.
pub(crate) async fn list(groups: &Groups<'_>) -> Result<Vec<(Segment, ResourceState)>> {
    let (ground, vpc) = (groups.ground, &groups.vpc);
    let instances = vpc.all::<Instance>(&ground.api);
    let (instances, endpoints) = try_join!(instances.list(), endpoints(ground, vpc))?;
    let resource =
        |name: &str, state: Option<ResourceState>| Some((groups.note(name)?.name.parse().ok()?, state?));
    let alive = instances.iter().filter(|one| one.is_alive() && ground.names.is_instance(&one.name));
    let machines = alive.filter_map(|one| resource(&one.name, one.state(&vpc.region)));
    let services = endpoints.iter().filter_map(|one| resource(&one.name, one.state(&vpc.region)));
    Ok(machines.chain(services).collect())
}

pub(crate) async fn make_instance(
    ground: &Ground,
    spec: &ResourceSpec,
    description: Description,
) -> Result<ResourceState> {
    let (name, region) = (ground.names.instance(&spec.name), spec.region.as_str());
    let _turn = ground.turns.take(&format!("{region}/{name}")).await;
    let vpc = Vpc::need(ground, region).await?;
    let all = ground.api.in_region::<Instance>(region).with("name", &name);
    make(ground, spec, &vpc, &description.zone, &name, &all, |group, subnet| InstanceRequest {
        described: description.fields,
        name: name.clone(),
        vpc: Reference::to(&vpc.id),
        primary_network_attachment: AttachmentRequest {
            name: "primary",
            virtual_network_interface: InterfaceRequest {
                name: name.clone(),
                subnet,
                security_groups: [group],
                allow_ip_spoofing: false,
                auto_delete: true,
            },
        },
        resource_group: ground.group(),
    })
    .await
}

pub(crate) async fn make_endpoint(
    ground: &Ground,
    spec: &ResourceSpec,
    description: Description,
) -> Result<ResourceState> {
    let (name, region) = (ground.names.endpoint(&spec.name), spec.region.as_str());
    let _turn = ground.turns.take(&format!("{region}/{name}")).await;
    let vpc = Vpc::need(ground, region).await?;
    let all = vpc.all::<EndpointGateway>(&ground.api);
    make(ground, spec, &vpc, &description.zone, &name, &all, |group, subnet| EndpointRequest {
        described: description.fields,
        name: name.clone(),
        vpc: Reference::to(&vpc.id),
        security_groups: [group],
        ips: [ReservedIpRequest { name: name.clone(), subnet, auto_delete: true }],
        resource_group: ground.group(),
    })
    .await
}

/// Makes a resource in its closed group and in the subnet of its zone.
async fn make<K: Resource>(
    ground: &Ground,
    spec: &ResourceSpec,
    vpc: &Vpc,
    zone: &str,
    name: &str,
    all: &Collection<'_, K>,
    request: impl FnOnce(Reference, Reference) -> K::Request + Send,
) -> Result<ResourceState> {
    let (there, groups) = try_join!(all.list(), Groups::read(ground, vpc))?;
    groups.note_new(name, &spec.name).await?;
    let made = match there.into_iter().find(|one| one.name() == name && one.is_alive()) {
        Some(ready) if ready.is_ready() => ready,
        there => {
            let (group, subnet) = try_join!(groups.closed(name), subnets::ensure(ground, vpc, zone))?;
            all.ensure(there, &request(Reference::to(group), Reference::to(subnet))).await?
        }
    };
    let none = || CloudError::unavailable(format!("the {} {name} has no address yet", K::NAME));
    made.state(spec.region.as_str()).ok_or_else(none)
}

/// Deletes what was made, and lets go an instance that was attached.
pub(crate) async fn remove(ground: &Ground, vpcs: &Vpcs, name: &Segment) -> Result {
    let (instance, endpoint) = (&ground.names.instance(name), &ground.names.endpoint(name));
    let own = vpcs.networks.iter().filter(|vpc| vpc.cluster().is_none());
    try_join_all(own.map(|vpc| async move {
        let _turn = ground.turns.take(&format!("{}/{instance}", vpc.name())).await;
        if vpc.adopted.is_some() {
            return attach::let_go(ground, vpc, instance).await;
        }
        let all = ground.api.in_region::<Instance>(&vpc.region).with("name", instance);
        remove_with_list(ground, vpc, &all, |one| one == instance, instance).await
    }))
    .await?;
    try_join_all(vpcs.of_regions().map(|vpc| async move {
        let _turn = ground.turns.take(&format!("{}/{endpoint}", vpc.name())).await;
        let all = vpc.all::<EndpointGateway>(&ground.api);
        remove_with_list(ground, vpc, &all, |one| one == endpoint, endpoint).await
    }))
    .await
    .map(drop)
}
