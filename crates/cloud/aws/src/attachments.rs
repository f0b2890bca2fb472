//! What is attached to transit gateways: networks, and the routes that lead to them.

use cloud_api::{CloudError, Result};
use cloud_http::{Pace, Progress, or_gone, or_there, wait};
use model::Site;

use crate::{
    account::{Account, Place},
    kinds::Ec2Kind,
    marks::Filter,
    networks::{self, Network},
    routes::{route, tables},
    shapes::{Subnet, VpcAttachment, actions as ask},
    subnets,
    transit::{self, Transit},
};

/// What a network sends to the gateway, which knows the rest. Routes of peerings are more specific and win.
const PRIVATE: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];

/// Attachments of which something is left.
pub(crate) async fn list<K: Ec2Kind>(place: Place<'_>, filters: &[Filter]) -> Result<Vec<K>> {
    Ok(place.list::<K>(filters).await?.into_iter().filter(|one| !one.is_gone()).collect())
}

/// Attaches networks to the gateway, through a spoke where the hub is in another region.
pub(crate) async fn attach(account: &Account, site: &Site, hub: &Transit, networks: &[Network]) -> Result {
    let hub = &transit::ready(account.at(site, &hub.region), hub.clone(), transit::HUB).await?;
    for network in networks {
        let place = account.at(site, &network.region);
        // Nobody is attached from it yet; whoever is comes back here.
        if network.adopted && subnets::of_resources(place, network).await?.is_empty() {
            continue;
        }
        let near = if network.region == hub.region {
            hub.clone()
        } else {
            transit::spoke(place, hub, network).await?
        };
        attach_network(place, &near, network).await?;
        for table in tables(place, network).await? {
            for prefix in PRIVATE {
                route(account, network, &table, prefix, ask::Target::Transit(&near.id)).await?;
            }
        }
    }
    Ok(())
}

async fn attach_network(place: Place<'_>, near: &Transit, network: &Network) -> Result {
    let filters = [Filter::new("transit-gateway-id", [&near.id]), Filter::new("vpc-id", [&network.id])];
    let there = list::<VpcAttachment>(place, &filters).await?;
    let mut subnets = subnets::of_resources(place, network).await?;
    // An attachment is in one subnet of each zone.
    subnets.sort_by(|a, b| a.availability_zone.cmp(&b.availability_zone));
    subnets.dedup_by(|a, b| a.availability_zone == b.availability_zone);
    let missing: Vec<&Subnet> = match there.iter().find(|one| one.is_alive()) {
        Some(attachment) => {
            let zones = zones_of(place, attachment, &subnets).await?;
            subnets.iter().filter(|subnet| !zones.contains(&subnet.availability_zone)).collect()
        }
        None if subnets.is_empty() => {
            return Err(CloudError::conflict(format!("the network {} has no subnet", network.id)));
        }
        None => {
            let wanted = ask::CreateTransitGatewayVpcAttachment {
                transit_gateway_id: &near.id,
                vpc_id: &network.id,
                subnet_ids: subnets.iter().map(Subnet::id).collect(),
                tag_specifications: place.tags::<VpcAttachment>(&network.region, &[])?,
            };
            or_there(place.make(&wanted).await)?;
            Vec::new()
        }
    };
    if missing.is_empty() && there.iter().any(|one| one.state == "available") {
        return Ok(());
    }
    let ready = || async {
        let what = format!("the attachment of {}", network.id);
        wait(place.account.ec2.clock(), Pace::QUICK, &what, || async {
            let found = list::<VpcAttachment>(place, &filters).await?;
            let ready = found.into_iter().find(|one| one.state == "available");
            Ok(ready.map_or(Progress::Pending, |one| Progress::Done(one.transit_gateway_attachment_id)))
        })
        .await
    };
    let id = ready().await?;
    // One zone after another: an attachment is changed by one call at a time.
    for subnet in missing {
        let wanted = ask::ModifyTransitGatewayVpcAttachment {
            transit_gateway_attachment_id: &id,
            add_subnet_ids: [subnet.id()],
        };
        place.touch::<VpcAttachment>();
        or_there(place.ask(&wanted).await)?;
        ready().await?;
    }
    Ok(())
}

/// The zones that an attachment is in: those of subnets that are known, and EC2's word for others.
async fn zones_of(place: Place<'_>, attachment: &VpcAttachment, known: &[Subnet]) -> Result<Vec<String>> {
    let (found, unknown): (Vec<_>, Vec<_>) = attachment
        .subnet_ids
        .iter()
        .map(|id| known.iter().find(|subnet| subnet.id() == id).ok_or(id.as_str()))
        .partition(std::result::Result::is_ok);
    let mut zones: Vec<String> =
        found.into_iter().flatten().map(|subnet| subnet.availability_zone.clone()).collect();
    let unknown: Vec<&str> = unknown.into_iter().filter_map(std::result::Result::err).collect();
    if !unknown.is_empty() {
        let subnets = subnets::by_id(place, unknown).await?;
        zones.extend(subnets.into_iter().map(|subnet| subnet.availability_zone));
    }
    Ok(zones)
}

/// Takes a network off the gateway; a spoke that has no network any more goes too.
pub(crate) async fn detach(place: Place<'_>, network: &Network) -> Result {
    end_own(place, network).await?;
    let Place { account, site, .. } = place;
    let Some(hub) = transit::hub(account, site).await? else { return Ok(()) };
    let others = networks::all(account, site).await?;
    let is_last = !others.iter().any(|other| other.region == network.region && other.id != network.id);
    for spoke in transit::list(place.in_region(&network.region), transit::SPOKE).await? {
        let old = ask::DeleteTransitGatewayRoute {
            transit_gateway_route_table_id: hub.table()?,
            destination_cidr_block: network.space,
        };
        or_gone(place.in_region(&hub.region).ask(&old).await)?;
        if is_last {
            transit::end_spoke(place, &hub, &spoke).await?;
        }
    }
    Ok(())
}

/// Ends our attachments of a network. Somebody else's network may have others.
pub(crate) async fn end_own(place: Place<'_>, network: &Network) -> Result {
    let mut filters = place.marks().filters(&[]);
    filters.push(Filter::new("vpc-id", [&network.id]));
    end::<VpcAttachment>(place, &filters).await
}

/// Deletes attachments and waits for their end.
pub(crate) async fn end<K: Ec2Kind>(place: Place<'_>, filters: &[Filter]) -> Result {
    for attachment in list::<K>(place, filters).await?.iter().filter(|one| one.is_alive()) {
        place.delete::<K>(attachment.id()).await?;
    }
    wait(place.account.ec2.clock(), Pace::QUICK, "the end of attachments", || async {
        let left = list::<K>(place, filters).await?;
        Ok(if left.is_empty() { Progress::Done(()) } else { Progress::Pending })
    })
    .await
}
