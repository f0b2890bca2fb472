//! Peerings: an object at each of two virtual networks, up once both are there. Those of a cluster's network let nothing
//! through while the cluster is made.

use std::collections::BTreeMap;

use cloud_api::{CloudError, CloudErrorKind, PeeringSpec};
use cloud_http::{Pace, Progress, Turn, wait};

use crate::{border::may_peer, place::*, site::vnet_id, types::*};

/// One side of a peering.
pub struct Side {
    pub near: Id<Vnet>,
    pub name: String,
    pub far: Id<Vnet>,
    /// The near network has a gateway that the far one uses; or the other way round.
    pub lends_gateway: bool,
    pub uses_gateway: bool,
}

impl Side {
    pub fn new(near: Id<Vnet>, name: String, far: Id<Vnet>) -> Self {
        Self { near, name, far, lends_gateway: false, uses_gateway: false }
    }

    fn id(&self) -> Id<Peering> {
        self.near.child(&self.name)
    }

    fn fits(&self, there: &PeeringProperties) -> bool {
        there.allow_gateway_transit == Some(self.lends_gateway)
            && there.use_remote_gateways == Some(self.uses_gateway)
            && there.lets_through()
    }

    async fn write(&self, place: &Place<'_>, lets_through: bool) -> Result {
        let properties = PeeringProperties {
            remote_virtual_network: Some(Ref::to(&self.far)),
            allow_virtual_network_access: Some(lets_through),
            allow_forwarded_traffic: Some(false),
            allow_gateway_transit: Some(self.lends_gateway),
            use_remote_gateways: Some(self.uses_gateway),
            ..PeeringProperties::default()
        };
        place.put(&self.id(), &Child::new(&self.name, properties)).await.map(drop)
    }
}

/// Peerings at one of the site's networks that were asked for. The hub's is not among them.
pub fn asked_for<'v>(place: &Place<'_>, vnet: &'v Vnet) -> impl Iterator<Item = &'v Peering> {
    let prefix = format!("{}-peer-", place.names.prefix());
    vnet.properties.virtual_network_peerings.iter().filter(move |one| one.name.starts_with(&prefix))
}

/// The places of both ends.
type Ends<'c> = [Place<'c>; 2];

async fn sides(ends: &Ends<'_>, spec: &PeeringSpec) -> Result<[Side; 2]> {
    let ([a, b], [one, two]) = (spec.name.ends(), ends);
    let vnets = [vnet_id(one, &a.region).await?, vnet_id(two, &b.region).await?];
    let [near, far] = vnets;
    Ok([
        Side::new(near.clone(), one.names.peering(b), far.clone()),
        Side::new(far, two.names.peering(a), near),
    ])
}

/// The turns of the networks at both ends, always in the same order.
async fn turns(ends: &Ends<'_>) -> Vec<Turn> {
    let places: BTreeMap<_, _> = ends.iter().map(|end| (&end.site, end)).collect();
    let mut turns = Vec::new();
    for place in places.values() {
        turns.push(place.networks_turn().await);
    }
    turns
}

pub async fn make(ends: &Ends<'_>, spec: &PeeringSpec) -> Result {
    let _turns = turns(ends).await;
    let sides = sides(ends, spec).await?;
    for ((side, network), place) in sides.iter().zip(spec.name.ends()).zip(ends) {
        place.get(&side.near).await?.ok_or_else(|| place.no_network(&network.region))?;
        if !may_peer(place, &network.region).await? {
            return Err(CloudError::unavailable(format!(
                "the network {network} is joined with no other until its cluster is made and guarded; look at the \
                 cluster, and at the security group of its subnet"
            )));
        }
    }
    join(&ends[0], &sides, &spec.name.to_string()).await
}

/// Makes both sides of a peering, and waits until it is up.
pub async fn join(place: &Place<'_>, sides: &[Side; 2], what: &str) -> Result {
    let mut states = Vec::new();
    for side in sides {
        let there = place.settled(&side.id()).await?.map(|there| there.properties).unwrap_or_default();
        states.push((side.fits(&there), there.peering_state));
    }
    if states.iter().all(|state| *state == (true, PeeringState::Connected)) {
        return Ok(());
    }
    for (side, (_, state)) in sides.iter().zip(&states) {
        // It never comes up again.
        if *state == PeeringState::Disconnected {
            place.delete(&side.id()).await?;
        }
    }
    for (side, (fits, state)) in sides.iter().zip(&states) {
        // One that waits for its other side is as it should be.
        if !fits || !matches!(state, PeeringState::Initiated | PeeringState::Connected) {
            side.write(place, true).await?;
        }
    }
    wait(place.arm.clock(), Pace::QUICK, &format!("the peering {what}"), || async {
        let there = place.get(&sides[0].id()).await?;
        let is_up = there.is_some_and(|there| there.properties.is_up());
        Ok(if is_up { Progress::Done(()) } else { Progress::Pending })
    })
    .await
}

/// Lets traffic through the peerings that a network was asked to have, or holds it back, at both sides.
pub async fn set_open(place: &Place<'_>, vnet: &Vnet, open: bool) -> Result {
    for near in asked_for(place, vnet).filter(|one| one.properties.is_up()) {
        let Some(Ref { id: far_id }) = &near.properties.remote_virtual_network else { continue };
        let Some(far) = place.get(far_id).await? else { continue };
        // The other may be a cluster's too, and have its own reason.
        if open && !other_may_peer(place, &far).await? {
            continue;
        }
        let mut back = far.properties.virtual_network_peerings.iter();
        let back = back.find(|one| is_to(&one.properties.remote_virtual_network, &vnet.id));
        for (here, there, one) in [(&vnet.id, far_id, Some(near)), (far_id, &vnet.id, back)] {
            if let Some(one) = one.filter(|one| one.properties.lets_through() != open) {
                Side::new(here.clone(), one.name.clone(), there.clone()).write(place, open).await?;
            }
        }
    }
    Ok(())
}

/// Whether a network of whatever site of this owner may be joined with others. Those of somebody else always may.
async fn other_may_peer(place: &Place<'_>, vnet: &Vnet) -> Result<bool> {
    match (place.names.owns_site(&vnet.tags), network_of(vnet)) {
        (Some(site), Some(network)) => may_peer(&place.elsewhere(&site, vnet.id.group())?, &network).await,
        _ => Ok(true),
    }
}

pub async fn remove(ends: &Ends<'_>, spec: &PeeringSpec) -> Result {
    let _turns = turns(ends).await;
    match sides(ends, spec).await {
        Ok(sides) => part(&ends[0], &sides).await,
        // A network that is let go has lost its peerings before.
        Err(err) if err.kind == CloudErrorKind::Conflict => Ok(()),
        Err(err) => Err(err),
    }
}

/// Deletes both sides.
pub async fn part(place: &Place<'_>, sides: &[Side; 2]) -> Result {
    for side in sides {
        if place.get(&side.id()).await?.is_some() {
            place.delete(&side.id()).await?;
        }
    }
    Ok(())
}
