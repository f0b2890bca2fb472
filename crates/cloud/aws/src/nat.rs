//! NAT: a gateway in a public subnet, which has a route table and an internet gateway of its own.

use cloud_api::Result;
use cloud_http::{or_gone, or_there};

use crate::{
    account::Place,
    kinds::Ec2Kind as _,
    networks::{self, Network},
    routes::{main_table, route, unroute},
    shapes::{ElasticIp, InternetGateway, NatGateway, RouteTable, Subnet, actions as ask},
    subnets,
};

const EVERYWHERE: &str = "0.0.0.0/0";

async fn turn(place: Place<'_>) -> cloud_http::Turn {
    place.account.turns.take(&format!("nat/{}/{}", place.site, place.region)).await
}

pub(crate) async fn make(place: Place<'_>) -> Result {
    let _turn = turn(place).await;
    let Place { account, site, region } = place;
    let marks = [("nat", region)];
    let network = networks::need(account, site, region).await?;
    let nat = match place.find::<NatGateway>(&marks).await? {
        Some(there) => there,
        None => {
            let subnet = public_subnet(place, &network).await?;
            let new = |tag_specification| ask::AllocateAddress { domain: "vpc", tag_specification };
            let address: ElasticIp = place.ensure("nat", &marks, new).await?;
            let wanted = ask::CreateNatGateway {
                subnet_id: subnet.id(),
                allocation_id: address.id(),
                client_token: format!("trestle-{}", address.id()),
                tag_specification: place.tags::<NatGateway>("nat", &marks)?,
            };
            place.make(&wanted).await?
        }
    };
    place.ready::<NatGateway>(nat.id(), &place.marks().filters(&marks)).await?;
    let table = main_table(account, &network).await?;
    route(account, &network, &table, EVERYWHERE, ask::Target::Nat(nat.id())).await
}

/// A subnet whose route table leads to an internet gateway.
async fn public_subnet(place: Place<'_>, network: &Network) -> Result<Subnet> {
    let marks = [("nat", place.region)];
    let new = |tag_specification| ask::CreateInternetGateway { tag_specification };
    let gateway: InternetGateway = place.ensure("nat", &marks, new).await?;
    if gateway.attachment_set.is_empty() {
        let both = ask::AttachInternetGateway { internet_gateway_id: gateway.id(), vpc_id: &network.id };
        or_there(place.ask(&both).await)?;
    }
    let subnet = subnets::public(place, network).await?;
    let new = |tag_specification| ask::CreateRouteTable { vpc_id: &network.id, tag_specification };
    let table: RouteTable = place.ensure("nat", &marks, new).await?;
    route(place.account, network, &table, EVERYWHERE, ask::Target::Internet(gateway.id())).await?;
    if !table.is_of(subnet.id()) {
        let both = ask::AssociateRouteTable { route_table_id: table.id(), subnet_id: subnet.id() };
        place.ask(&both).await?;
    }
    Ok(subnet)
}

pub(crate) async fn remove(place: Place<'_>) -> Result {
    let _turn = turn(place).await;
    let marks = [("nat", place.region)];
    for network in networks::list(place).await?.into_iter().filter(|network| !network.adopted) {
        for nat in place.own::<NatGateway>(&marks).await?.iter().filter(|nat| nat.state != "deleted") {
            unroute(place.account, &network, ask::Target::Nat(nat.id())).await?;
            place.end::<NatGateway>(nat.id()).await?;
        }
        for address in place.own::<ElasticIp>(&marks).await? {
            place.delete::<ElasticIp>(address.id()).await?;
        }
        for table in place.own::<RouteTable>(&marks).await? {
            for association in table.association_set.iter() {
                let association_id = &association.route_table_association_id;
                or_gone(place.ask(&ask::DisassociateRouteTable { association_id }).await)?;
            }
            place.delete::<RouteTable>(table.id()).await?;
        }
        if let Some(subnet) = subnets::find_public(place, &network).await? {
            place.delete::<Subnet>(subnet.id()).await?;
        }
        for gateway in place.own::<InternetGateway>(&marks).await? {
            let both = ask::DetachInternetGateway { internet_gateway_id: gateway.id(), vpc_id: &network.id };
            place.patiently(|| async { or_gone(place.ask(&both).await) }).await?;
            place.delete::<InternetGateway>(gateway.id()).await?;
        }
    }
    Ok(())
}
