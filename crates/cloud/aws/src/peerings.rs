//! Peerings: one VPC peering connection and a route on each side.

use cloud_api::Result;
use cloud_http::{Class, Kind as _, Pace, Phase, Progress, wait};
use model::{PeeringName, Site};

use crate::{
    account::{Account, Place},
    kinds::Ec2Kind as _,
    marks::mark,
    networks::{self, Network, region_and_vpc},
    routes::{route, tables, unroute},
    shapes::{VpcPeering, actions as ask},
};

/// Where a peering is listed: where it was asked for, in the region of its first end.
fn home<'p>(account: &'p Account, name: &'p PeeringName) -> Place<'p> {
    let [first, _] = name.ends();
    account.at(&first.site, region_and_vpc(first.region.as_str()).0)
}

pub(crate) async fn make(account: &Account, name: &PeeringName) -> Result {
    let [a, b] = name.ends();
    let shown = name.to_string();
    let _turn = account.turns.take(&shown).await;
    let near = networks::need(account, &a.site, a.region.as_str()).await?;
    let far = networks::need(account, &b.site, b.region.as_str()).await?;
    let (place, marks) = (home(account, name), [("peering", shown.as_str())]);
    let new = |tag_specification| ask::CreateVpcPeeringConnection {
        vpc_id: &near.id,
        peer_vpc_id: &far.id,
        peer_region: Some(far.region.as_str()).filter(|region| *region != near.region),
        tag_specification,
    };
    let peering: VpcPeering = place.ensure(&shown, &marks, new).await?;
    if peering.phase() != Phase::Ready {
        accept(account, peering.id(), &far).await?;
    }
    for (site, own, other) in [(&a.site, &near, &far), (&b.site, &far, &near)] {
        for table in tables(account.at(site, &own.region), own).await? {
            let space = other.space.to_string();
            route(account, own, &table, &space, ask::Target::Peering(peering.id())).await?;
        }
    }
    Ok(())
}

/// Accepts at the other end, which may hear of it late.
async fn accept(account: &Account, id: &str, far: &Network) -> Result {
    let wanted = ask::AcceptVpcPeeringConnection { vpc_peering_connection_id: id };
    wait(account.ec2.clock(), Pace::QUICK, &format!("the peering {id}"), || async {
        match account.ec2.ask(&far.region, &wanted).await {
            Ok(answer) if answer.0.phase() == Phase::Ready => Ok(Progress::Done(())),
            Ok(_) => Ok(Progress::Pending),
            Err(failure) if failure.is(Class::NotFound) || failure.is(Class::Busy) => Ok(Progress::Pending),
            Err(failure) => Err(failure.into()),
        }
    })
    .await
}

pub(crate) async fn remove(account: &Account, name: &PeeringName) -> Result {
    let shown = name.to_string();
    let _turn = account.turns.take(&shown).await;
    let place = home(account, name);
    let found = place.own::<VpcPeering>(&[("peering", &shown)]).await?;
    for peering in found.iter().filter(|one| one.is_alive()) {
        for end in name.ends() {
            if let Some(network) = networks::find(account, &end.site, end.region.as_str()).await? {
                unroute(account, &network, ask::Target::Peering(peering.id())).await?;
            }
        }
        place.delete::<VpcPeering>(peering.id()).await?;
    }
    Ok(())
}

fn names<'p>(peerings: impl IntoIterator<Item = &'p VpcPeering>) -> Vec<PeeringName> {
    peerings.into_iter().filter_map(|peering| mark(peering, "peering")?.parse().ok()).collect()
}

/// The peerings of a network, whichever of our sites they were made for.
pub(crate) async fn of_network(
    account: &Account,
    site: &Site,
    network: &Network,
) -> Result<Vec<PeeringName>> {
    let own = Network::adopted_name(&network.region, &network.id);
    let lists = account.everywhere(|region| async move {
        let place = account.at(site, region);
        Ok(place.list::<VpcPeering>(&place.marks().filters_of_any_site(&[])).await?)
    });
    let living: Vec<VpcPeering> = lists.await?.into_iter().flatten().filter(VpcPeering::is_alive).collect();
    let is_end =
        |name: &PeeringName| name.ends().iter().any(|end| end.site == *site && end.region.as_str() == own);
    Ok(names(&living).into_iter().filter(is_end).collect())
}

/// The peerings that begin in a region and work.
pub(crate) async fn active_in(place: Place<'_>) -> Result<Vec<PeeringName>> {
    let found = place.own::<VpcPeering>(&[]).await?;
    Ok(names(found.iter().filter(|one| one.phase() == Phase::Ready)))
}
