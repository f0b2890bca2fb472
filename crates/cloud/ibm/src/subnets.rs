//! Subnets: one for each zone that something of ours is in. NAT: a public gateway in each of these zones, set on its subnet.

use cloud_api::CloudError;
use futures::{future::try_join_all, try_join};
use http::Method;
use ipnet::Ipv4Net;

use crate::shapes::{Named, NatRequest, PublicGateway, Reference, Subnet, SubnetRequest};
use crate::vpcs::{parts, whole};
use crate::{Call, Ground, Listed as _, Place, Result, Vpc};

pub(crate) async fn list(ground: &Ground, vpc: &Vpc) -> Result<Vec<Subnet>> {
    let found = vpc.all::<Subnet>(&ground.api).list().await?;
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
    let block = parts(whole(&prefixes).ok_or_else(unfinished)?)?[number];
    let nat = nat_of_new(ground, vpc, zone).await?.map(Reference::to);
    make(ground, vpc, there, zone, block, nat).await
}

pub(crate) async fn make(
    ground: &Ground,
    vpc: &Vpc,
    there: Option<Subnet>,
    zone: &str,
    ipv4_cidr_block: Ipv4Net,
    public_gateway: Option<Reference>,
) -> Result<String> {
    let (name, resource_group) = (ground.names.subnet(zone), ground.group());
    let (vpc_id, zone) = (Reference::to(&vpc.id), Named::of(zone));
    let request = SubnetRequest { name, vpc: vpc_id, zone, ipv4_cidr_block, public_gateway, resource_group };
    Ok(vpc.all::<Subnet>(&ground.api).ensure(there, &request).await?.id)
}

/// Our public gateways of a VPC.
pub(crate) async fn list_nat(ground: &Ground, vpc: &Vpc) -> Result<Vec<PublicGateway>> {
    let found = ground.within::<PublicGateway>(&vpc.region).list().await?;
    let ours = |nat: &PublicGateway| nat.vpc.id == vpc.id && ground.names.owns(&nat.name) && nat.is_alive();
    Ok(found.into_iter().filter(ours).collect())
}

async fn ensure_nat_in(ground: &Ground, vpc: &Vpc, there: &[PublicGateway], zone: &str) -> Result<String> {
    let name = ground.names.nat(vpc.corner(zone));
    let there = there.iter().find(|nat| nat.name == name).cloned();
    let request = NatRequest {
        name,
        vpc: Reference::to(&vpc.id),
        zone: Named::of(zone),
        resource_group: ground.group(),
    };
    Ok(ground.within::<PublicGateway>(&vpc.region).ensure(there, &request).await?.id)
}

/// The gateway that a new subnet of a zone is to have: one if the network has NAT.
async fn nat_of_new(ground: &Ground, vpc: &Vpc, zone: &str) -> Result<Option<String>> {
    let there = list_nat(ground, vpc).await?;
    match there.is_empty() {
        true => Ok(None),
        false => ensure_nat_in(ground, vpc, &there, zone).await.map(Some),
    }
}

/// What is asked of the gateway of a subnet.
fn set<'c>(vpc: &'c Vpc, subnet: &Subnet, verb: &str, method: Method) -> Call<'c> {
    let path = format!("subnets/{}/public_gateway", subnet.id);
    Call::new(Place::Region(&vpc.region), &format!("{verb}_subnet_public_gateway"), method, path)
}

pub(crate) async fn ensure_nat(ground: &Ground, network: &str) -> Result {
    let vpc = &Vpc::need(ground, network).await?;
    let _turn = ground.turns.take(&format!("subnets {}", vpc.id)).await;
    let (there, subnets) = &try_join!(list_nat(ground, vpc), list(ground, vpc))?;
    let mut zones: Vec<String> = subnets.iter().map(|subnet| subnet.zone.name.clone()).collect();
    if zones.is_empty() {
        // The first subnet finds out from it that there is NAT.
        zones.extend(ground.api.zones(&vpc.region).await?.into_iter().take(1));
    }
    zones.sort();
    zones.dedup();
    try_join_all(zones.iter().map(|zone| async move {
        let nat = Reference::to(ensure_nat_in(ground, vpc, there, zone).await?);
        let has_it = |subnet: &Subnet| subnet.public_gateway.as_ref().is_some_and(|one| one.id == nat.id);
        for subnet in subnets.iter().filter(|subnet| subnet.zone.name == *zone && !has_it(subnet)) {
            ground.api.send(set(vpc, subnet, "set", Method::PUT).body(&nat)).await?;
        }
        Ok(())
    }))
    .await
    .map(drop)
}

pub(crate) async fn remove_nat(ground: &Ground, network: &str) -> Result {
    let Some(vpc) = Vpc::find(ground, network).await? else { return Ok(()) };
    let _turn = ground.turns.take(&format!("subnets {}", vpc.id)).await;
    let there = list_nat(ground, &vpc).await?;
    if there.is_empty() {
        return Ok(());
    }
    let subnets = list(ground, &vpc).await?;
    for subnet in subnets.iter().filter(|subnet| subnet.public_gateway.is_some()) {
        ground.api.take_away(set(&vpc, subnet, "unset", Method::DELETE)).await?;
    }
    ground
        .api
        .in_region::<PublicGateway>(&vpc.region)
        .remove_all(there.iter().map(|nat| nat.id.as_str()))
        .await
}
