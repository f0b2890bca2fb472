//! NAT: a router of its own per network.

use cloud_api::CloudError;
use model::Segment;

use crate::{
    endpoints::Spot,
    ground::{Ground, Result, region_of},
    link::Link,
    mark::Mark,
    shapes::{Nat, NatSubnet, Router, only},
};

fn router_of(ground: &Ground, network: &str) -> Link<Router> {
    ground.place_of(network).object(&ground.names.nat(network))
}

pub(crate) async fn make(ground: &Ground, network: &Segment) -> Result {
    if Spot::of(network.as_str()).is_some() {
        let message =
            format!("{network} has private endpoints in it, which open no connections and need no NAT");
        return Err(CloudError::unsupported(message));
    }
    let none = || CloudError::conflict(format!("there is no network {}.{network}", ground.site));
    ground.get(&ground.subnet(network.as_str())).await?.ok_or_else(none)?;
    let link = router_of(ground, network.as_str());
    if ground.get(&link).await?.is_some() {
        return Ok(());
    }
    narrow(ground, &region_of(network.as_str())).await?;
    let router = Router {
        name: link.name().to_owned(),
        network: ground.network(),
        description: Mark { region: Some(network.clone()), ..ground.names.mark() }.into(),
        nats: vec![nat_of(ground, network.as_str())],
        ..Router::default()
    };
    Ok(ground.compute().insert(&link.place(), &router).await?)
}

/// A NAT for all subnets of a region, as Trestle made them before it had several there, would keep others out; it is for its
/// own from now on.
async fn narrow(ground: &Ground, region: &str) -> Result {
    let link = router_of(ground, region);
    let Some(router) = ground.get(&link).await? else { return Ok(()) };
    let is_wide = |nat: &Nat| nat.source_subnetwork_ip_ranges_to_nat == "ALL_SUBNETWORKS_ALL_IP_RANGES";
    if !router.nats.first().is_some_and(is_wide) || !ground.owns(&router.description) {
        return Ok(());
    }
    Ok(ground.compute().patch(&link, &only("nats", [nat_of(ground, region)])).await?)
}

/// NAT for one network, all ranges of its subnet.
fn nat_of(ground: &Ground, network: &str) -> Nat {
    Nat {
        name: "nat",
        nat_ip_allocate_option: "AUTO_ONLY",
        source_subnetwork_ip_ranges_to_nat: "LIST_OF_SUBNETWORKS".to_owned(),
        subnetworks: vec![NatSubnet {
            name: ground.subnet(network),
            source_ip_ranges_to_nat: ["ALL_IP_RANGES"],
        }],
    }
}

pub(crate) async fn remove(ground: &Ground, network: &Segment) -> Result {
    match Spot::of(network.as_str()) {
        Some(_) => Ok(()),
        None => ground.delete(&router_of(ground, network.as_str())).await,
    }
}
