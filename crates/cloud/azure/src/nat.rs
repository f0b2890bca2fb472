//! NAT: a gateway with a public address, set on a network's subnet.

use cloud_api::cluster_network;
use model::Segment;

use crate::{gateway::public_address, names::*, place::*, types::*};

/// The ids of a network's NAT gateway, and of its address.
fn ids(place: &Place<'_>, network: &Segment) -> (Id<Nat>, Id<PublicAddress>) {
    let named = |kind: &str| place.names.of(kind, network.as_str());
    (place.id(&named("nat")), place.id(&named("natip")))
}

/// Gives a subnet another NAT gateway, or none; everything else of it stays.
async fn set_nat(place: &Place<'_>, id: &Id<Subnet>, subnet: Subnet, nat: Option<&Id<Nat>>) -> Result {
    let mut subnet = subnet.rewritten();
    subnet.properties.nat_gateway = nat.map(Ref::to);
    place.put(id, &subnet).await.map(drop)
}

fn has_nat(subnet: &Subnet, nat: &Id<Nat>) -> bool {
    is_to(&subnet.properties.nat_gateway, nat)
}

pub async fn make(place: &Place<'_>, network: &Segment) -> Result {
    let _turn = place.networks_turn().await;
    let ((nat, address), subnet_id) = (ids(place, network), place.subnet(network.as_str()));
    let none = || place.no_network(network);
    place.owned(&place.vnet(network.as_str())).await?.ok_or_else(none)?;
    let location = location_of(network);
    place.ensure(&address, &public_address(place, location.as_str(), &[]), |_| true).await?;
    // The location alone says which network it is, but for a cluster's.
    let more = [(NETWORK, network.as_str())];
    let more = if cluster_network(network).is_some() { &more[..] } else { &[] };
    let properties = NatProperties {
        public_ip_addresses: vec![Ref::to(&address)],
        idle_timeout_in_minutes: Some(4),
        ..NatProperties::default()
    };
    let body = Draft::new(location.as_str(), place.names.tags(more), properties);
    place.ensure(&nat, &Draft { sku: Sku::standard(), ..body }, |_| true).await?;
    // As it is now: others, AKS among them, write to it while the gateway is made.
    let subnet = place.settled(&subnet_id).await?.ok_or_else(none)?;
    match has_nat(&subnet, &nat) {
        true => Ok(()),
        false => set_nat(place, &subnet_id, subnet, Some(&nat)).await,
    }
}

pub async fn remove(place: &Place<'_>, network: &Segment) -> Result {
    let _turn = place.networks_turn().await;
    let ((nat, address), subnet_id) = (ids(place, network), place.subnet(network.as_str()));
    if let Some(there) = place.settled(&subnet_id).await?.filter(|there| has_nat(there, &nat)) {
        set_nat(place, &subnet_id, there, None).await?;
    }
    place.remove(&nat).await?;
    place.remove(&address).await
}
