//! Private endpoints: endpoint gateways, each with one reserved address and in a security group of its own. Born closed:
//! the group has no rules, and the gateway is in it from the request that makes it.

use cloud_api::{CloudError, ResourceSpec};
use futures::{future::try_join_all, try_join};
use model::{ResourceState, Segment};

use crate::described::Description;
use crate::groups::remove_with_list;
use crate::shapes::{EndpointGateway, EndpointRequest, Reference, ReservedIpRequest};
use crate::{Ground, Groups, Listed as _, Result, Vpc, Vpcs, subnets};

/// An endpoint as the contract knows it. Its id is its region and its name, as an instance's is.
pub(crate) fn state_of(region: &str, endpoint: &EndpointGateway) -> Option<ResourceState> {
    let (uri, ip) = (format!("{region}/{}", endpoint.name), endpoint.ips.first()?);
    Some(ResourceState { uri, address: ip.address.into(), region: region.parse().ok()? })
}

/// The endpoint gateways of a VPC that are ours.
pub(crate) async fn list(ground: &Ground, vpc: &Vpc) -> Result<Vec<EndpointGateway>> {
    let found = vpc.all::<EndpointGateway>(&ground.api).list().await?;
    let ours = |one: &EndpointGateway| one.is_alive() && ground.names.is_endpoint(&one.name);
    Ok(found.into_iter().filter(ours).collect())
}

pub(crate) async fn make(
    ground: &Ground,
    spec: &ResourceSpec,
    description: Description,
) -> Result<ResourceState> {
    let (name, region) = (ground.names.endpoint(&spec.name), spec.region.as_str());
    let _turn = ground.turns.take(&format!("{region}/{name}")).await;
    let vpc = Vpc::need(ground, region).await?;
    let (there, groups) = try_join!(list(ground, &vpc), Groups::read(ground, &vpc))?;
    groups.note_new(&name, &spec.name).await?;
    let made = match there.into_iter().find(|one| one.name == name) {
        Some(endpoint) if endpoint.is_ready() => endpoint,
        there => {
            let subnet = subnets::ensure(ground, &vpc, &description.zone);
            let (group, subnet) = try_join!(groups.closed(&name), subnet)?;
            let (subnet, auto_delete) = (Reference::to(subnet), true);
            let request = EndpointRequest {
                described: description.fields,
                name: name.clone(),
                vpc: Reference::to(&vpc.id),
                security_groups: [Reference::to(group)],
                ips: [ReservedIpRequest { name: name.clone(), subnet, auto_delete }],
                resource_group: ground.group(),
            };
            vpc.all(&ground.api).ensure(there, &request).await?
        }
    };
    let none = || CloudError::unavailable(format!("the endpoint gateway {name} has no address yet"));
    state_of(region, &made).ok_or_else(none)
}

pub(crate) async fn remove(ground: &Ground, vpcs: &Vpcs, name: &Segment) -> Result {
    let wanted = &ground.names.endpoint(name);
    try_join_all(vpcs.of_regions().map(|vpc| remove_from(ground, vpc, wanted))).await.map(drop)
}

async fn remove_from(ground: &Ground, vpc: &Vpc, name: &str) -> Result {
    let _turn = ground.turns.take(&format!("{}/{name}", vpc.name())).await;
    let endpoints = vpc.all::<EndpointGateway>(&ground.api);
    remove_with_list(ground, vpc, &endpoints, |one| one == name, name).await
}
