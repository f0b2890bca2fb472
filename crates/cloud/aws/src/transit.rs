//! Gateways: a transit gateway that all networks of the site are attached to.
//!
//! ```text
//!   hub region        VPC ── attachment ── hub ═══ VPN connections
//!                                           │ peering attachment, static routes
//!   another region    VPC ── attachment ── spoke
//! ```
//!
//! Here: the gateways themselves, and how hub and spokes are joined. What is attached to them: [`crate::attachments`].

use cloud_api::{CloudError, Result};
use cloud_http::{Kind as _, Phase, Progress, or_there, wait};
use ipnet::Ipv4Net;
use model::{GatewayState, Site};

use crate::{
    account::{Account, Place},
    attachments, connections,
    kinds::Ec2Kind as _,
    marks::Filter,
    networks::{self, Network},
    routes::unroute,
    shapes::{PeeringAttachment, TransitGateway, actions as ask},
};

/// A transit gateway.
#[derive(Clone, Debug)]
pub(crate) struct Transit {
    pub(crate) region: String,
    pub(crate) id: String,
    pub(crate) asn: u32,
    table: Option<String>,
    ready: bool,
}

impl Transit {
    fn new(region: &str, found: TransitGateway) -> Self {
        Self {
            region: region.to_owned(),
            asn: found.options.amazon_side_asn,
            ready: found.phase() == Phase::Ready,
            table: found.options.association_default_route_table_id,
            id: found.transit_gateway_id,
        }
    }

    /// The route table of what is attached to it.
    pub(crate) fn table(&self) -> Result<&str> {
        let none =
            || CloudError::unavailable(format!("the transit gateway {} has no route table yet", self.id));
        self.table.as_deref().ok_or_else(none)
    }
}

/// What a transit gateway is to its site, as a mark: the hub, or one in another region.
pub(crate) const HUB: &str = "hub";
pub(crate) const SPOKE: &str = "spoke";

pub(crate) async fn list(place: Place<'_>, role: &str) -> Result<Vec<Transit>> {
    let found = place.own::<TransitGateway>(&[("role", role)]).await?;
    let mut living: Vec<Transit> = found
        .into_iter()
        .filter(TransitGateway::is_alive)
        .map(|one| Transit::new(place.region, one))
        .collect();
    living.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(living)
}

/// The site's hub, wherever it is.
pub(crate) async fn hub(account: &Account, site: &Site) -> Result<Option<Transit>> {
    let found = account.everywhere(|region| list(account.at(site, region), HUB)).await?;
    Ok(found.into_iter().find_map(|hubs| hubs.into_iter().next()))
}

pub(crate) async fn need_hub(account: &Account, site: &Site) -> Result<Transit> {
    hub(account, site).await?.ok_or_else(|| CloudError::conflict(format!("{site} has no gateway")))
}

async fn ensure(place: Place<'_>, role: &str, asn: u32) -> Result<Transit> {
    let new = |tag_specification| ask::CreateTransitGateway {
        description: format!("trestle {}", place.site),
        options: ask::NewTransit { amazon_side_asn: asn },
        tag_specification,
    };
    let found = place.ensure(role, &[("role", role)], new).await?;
    ready(place, Transit::new(place.region, found), role).await
}

/// The same transit gateway when it can be used; somebody may just have asked for it.
pub(crate) async fn ready(place: Place<'_>, transit: Transit, role: &str) -> Result<Transit> {
    if transit.ready {
        return Ok(transit);
    }
    let filters = place.marks().filters(&[("role", role)]);
    Ok(Transit::new(place.region, place.ready(&transit.id, &filters).await?))
}

pub(crate) async fn make(account: &Account, site: &Site, asn: u32) -> Result<GatewayState> {
    let networks = networks::all(account, site).await?;
    let none = || CloudError::conflict(format!("{site} has no network for a gateway to stand in"));
    let first = networks.first().ok_or_else(none)?;
    let region = hub(account, site).await?.map_or_else(|| first.region.clone(), |hub| hub.region);
    let hub = ensure(account.at(site, &region), HUB, asn).await?;
    attachments::attach(account, site, &hub, &networks).await?;
    Ok(GatewayState { asn: hub.asn, addresses: Vec::new() })
}

/// The gateway of a region other than the hub's, joined with the hub.
pub(crate) async fn spoke(place: Place<'_>, hub: &Transit, network: &Network) -> Result<Transit> {
    let spoke = ensure(place, SPOKE, hub.asn).await?;
    let attachment = join(place, hub, &spoke).await?;
    for (at, destination_cidr_block) in [(hub, network.space), (&spoke, Ipv4Net::default())] {
        let wanted = ask::CreateTransitGatewayRoute {
            transit_gateway_route_table_id: at.table()?,
            destination_cidr_block,
            transit_gateway_attachment_id: &attachment,
        };
        or_there(place.in_region(&at.region).ask(&wanted).await)?;
    }
    Ok(spoke)
}

/// Joins hub and spoke by a peering attachment, which the hub's region lists.
async fn join(place: Place<'_>, hub: &Transit, spoke: &Transit) -> Result<String> {
    let at_hub = place.in_region(&hub.region);
    let joints = || async {
        let found = attachments::list::<PeeringAttachment>(at_hub, &joint_filters(at_hub, spoke)).await?;
        let leads = |one: &PeeringAttachment| {
            one.accepter_tgw_info.as_ref().and_then(|end| end.transit_gateway_id.as_ref()) == Some(&spoke.id)
        };
        Ok::<_, CloudError>(found.into_iter().filter(leads).collect::<Vec<_>>())
    };
    let there = joints().await?;
    let id = match there.iter().find(|one| one.is_alive()) {
        Some(joint) => joint.id().to_owned(),
        None => {
            let known = there.first().and_then(|one| one.requester_tgw_info.as_ref()?.owner_id.clone());
            let account = match known {
                Some(account) => account,
                None => number(at_hub).await?,
            };
            let wanted = ask::CreateTransitGatewayPeeringAttachment {
                transit_gateway_id: &hub.id,
                peer_transit_gateway_id: &spoke.id,
                peer_account_id: &account,
                peer_region: &spoke.region,
                tag_specification: place
                    .tags::<PeeringAttachment>(&spoke.region, &[("spoke", &spoke.region)])?,
            };
            at_hub.make(&wanted).await?.transit_gateway_attachment_id
        }
    };
    let what = format!("the peering of {} and {}", hub.id, spoke.id);
    wait(place.account.ec2.clock(), PeeringAttachment::PACE, &what, || async {
        let found = joints().await?.into_iter().find(|one| one.id() == id);
        Ok(match found.map(|one| one.state).as_deref() {
            Some("available") => Progress::Done(()),
            Some("pendingAcceptance") => {
                // Refused while the other region does not know it yet, or knows it as accepted.
                let wanted =
                    ask::AcceptTransitGatewayPeeringAttachment { transit_gateway_attachment_id: &id };
                let _ = place.in_region(&spoke.region).ask(&wanted).await;
                Progress::Pending
            }
            _ => Progress::Pending,
        })
    })
    .await?;
    Ok(id)
}

fn joint_filters(place: Place<'_>, spoke: &Transit) -> Vec<Filter> {
    place.marks().filters(&[("spoke", &spoke.region)])
}

/// The account's number, from a VPC of ours.
async fn number(place: Place<'_>) -> Result<String> {
    let none =
        || CloudError::unavailable(format!("no VPC of {} in {} says whose it is", place.site, place.region));
    let networks = networks::list(place).await?;
    let network = networks.first().ok_or_else(none)?;
    let vpc = networks::vpc(place, &network.id).await?;
    vpc.and_then(|vpc| vpc.owner_id).ok_or_else(none)
}

/// Deletes a spoke, and what joins it with the hub.
pub(crate) async fn end_spoke(place: Place<'_>, hub: &Transit, spoke: &Transit) -> Result {
    let at_hub = place.in_region(&hub.region);
    attachments::end::<PeeringAttachment>(at_hub, &joint_filters(at_hub, spoke)).await?;
    place.in_region(&spoke.region).end::<TransitGateway>(&spoke.id).await
}

pub(crate) async fn remove(account: &Account, site: &Site) -> Result {
    let hubs = account.everywhere(|region| list(account.at(site, region), HUB)).await?.concat();
    let spokes = account.everywhere(|region| list(account.at(site, region), SPOKE)).await?.concat();
    for hub in &hubs {
        if let Some(connection) = connections::living(account.at(site, &hub.region)).await?.first() {
            let id = connection.id();
            return Err(CloudError::conflict(format!("the gateway of {site} has the connection {id}")));
        }
    }
    if hubs.is_empty() && spokes.is_empty() {
        return Ok(());
    }
    for network in networks::all(account, site).await? {
        for transit in hubs.iter().chain(&spokes).filter(|transit| transit.region == network.region) {
            unroute(account, &network, ask::Target::Transit(&transit.id)).await?;
        }
        attachments::end_own(account.at(site, &network.region), &network).await?;
    }
    for spoke in &spokes {
        for hub in &hubs {
            let at_hub = account.at(site, &hub.region);
            attachments::end::<PeeringAttachment>(at_hub, &joint_filters(at_hub, spoke)).await?;
        }
        account.at(site, &spoke.region).end::<TransitGateway>(&spoke.id).await?;
    }
    for hub in &hubs {
        account.at(site, &hub.region).end::<TransitGateway>(&hub.id).await?;
    }
    Ok(())
}
