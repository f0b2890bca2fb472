//! Subnets: one for each zone that something of ours is in.

use cloud_api::CloudError;
use futures::try_join;

use crate::{
    Result,
    ground::Ground,
    kinds::Listed as _,
    nat,
    networks::{parts, whole},
    shapes::{Named, Reference, Subnet, SubnetRequest},
    vpcs::Vpc,
};

pub(crate) async fn list(ground: &Ground, vpc: &Vpc) -> Result<Vec<Subnet>> {
    let found = ground.inside::<Subnet>(vpc).list().await?;
    Ok(found.into_iter().filter(Subnet::is_alive).collect())
}

/// The subnet of a zone, made if it is not there.
pub(crate) async fn ensure(ground: &Ground, vpc: &Vpc, zone: &str) -> Result<String> {
    let _turn = ground.turns.take(&format!("subnets {}", vpc.id)).await;
    let name = ground.names.subnet(zone);
    let there = list(ground, vpc).await?.into_iter().find(|subnet| subnet.name == name);
    if let Some(subnet) = there.as_ref().filter(|subnet| subnet.is_ready()) {
        return Ok(subnet.id.clone());
    }
    let (zones, prefixes) = try_join!(ground.api.zones(&vpc.region), vpc.prefixes(&ground.api))?;
    let unknown = || {
        CloudError::invalid(format!(
            "Trestle's network in {} has no zone {zone}; it has {}",
            vpc.region,
            zones[..zones.len().min(3)].join(", ")
        ))
    };
    let number = zones.iter().take(3).position(|one| one == zone).ok_or_else(unknown)?;
    let unfinished =
        || CloudError::conflict(format!("the network {}.{} is not whole", ground.site, vpc.name()));
    let request = SubnetRequest {
        name,
        vpc: Reference::to(&vpc.id),
        zone: Named::of(zone),
        ipv4_cidr_block: parts(whole(&prefixes).ok_or_else(unfinished)?)?[number],
        public_gateway: nat::of_new_subnet(ground, vpc, zone).await?.map(Reference::to),
        resource_group: ground.group(),
    };
    Ok(ground.inside::<Subnet>(vpc).ensure(there, &request).await?.id)
}
