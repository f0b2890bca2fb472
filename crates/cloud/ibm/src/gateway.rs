//! The site's gateway: a route-mode VPN gateway in a VPC of its own, so that it outlives any network. Routes go through
//! the site's transit gateway.

use std::net::IpAddr;

use cloud_api::CloudError;
use cloud_http::{Pace, Progress, wait};
use futures::{future::try_join_all, try_join};
use http::Method;
use ipnet::{IpNet, Ipv4Net};
use model::{GatewayState, Site};

use crate::shapes::{
    self, IkePolicy, IpsecPolicy, PolicyRequest, Reference, Subnet, VpnConnection, VpnGateway, VpnRequest,
};
use crate::transit::{Hub, detach};
use crate::{Call, Ground, Groups, Home, Listed, Place, Result, Vpc, Vpcs, subnets};

/// AS numbers that IBM keeps for itself.
pub(crate) const RESERVED: [(u32, u32); 6] = [
    (64_512, 64_513),
    (65_100, 65_100),
    (65_200, 65_234),
    (65_402, 65_433),
    (65_500, 65_500),
    (4_201_065_000, 4_201_065_999),
];
/// Prefixes that a VPN gateway advertises besides those of its own VPC.
const MOST_ADVERTISED: usize = 10;

pub(crate) struct Gateway {
    pub(crate) region: String,
    pub(crate) shown: VpnGateway,
}

impl Gateway {
    /// The gateway that stands in a VPC.
    pub(crate) async fn find_in(ground: &Ground, vpc: Option<&Vpc>) -> Result<Option<Self>> {
        let Some(vpc) = vpc else { return Ok(None) };
        let found = ground.within::<VpnGateway>(&vpc.region).find(&ground.names.gateway()).await?;
        let stands = |gateway: &VpnGateway| gateway.is_ready() || gateway.lifecycle_state == "updating";
        Ok(found.filter(stands).map(|shown| Self { region: vpc.region.clone(), shown }))
    }

    /// The gateway of a site, and its VPC.
    pub(crate) async fn find(ground: &Ground) -> Result<Option<(Vpc, Self)>> {
        let vpc = Vpcs::read(ground).await?.gateway;
        let gateway = Self::find_in(ground, vpc.as_ref()).await?;
        Ok(vpc.zip(gateway))
    }

    /// Public addresses of its two members.
    pub(crate) fn members(&self) -> Vec<IpAddr> {
        self.shown.members.iter().map(|member| member.public_ip.address).collect()
    }

    /// A connection has a tunnel from each member, so that with two peers' addresses there are four tunnels: by the
    /// order of these, each member meets each of the peer's two addresses, which go round and round, once.
    fn state(&self) -> Result<GatewayState> {
        let mode = || CloudError::conflict(format!("the VPN gateway {} is in policy mode", self.shown.name));
        let asn = self.shown.local_asn.ok_or_else(mode)?;
        let addresses = match self.members()[..] {
            [one, two] => vec![one, two, two, one],
            _ => Vec::new(),
        };
        Ok(GatewayState { asn, addresses })
    }
}

/// The space of a gateway's VPC: private, outside of what networks are made from unless somebody chose otherwise, and
/// not the same for every site.
fn space(ground: &Ground) -> Ipv4Net {
    let number =
        ground.names.gateway().bytes().fold(7u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    Ipv4Net::new_assert([192, 168, 128 | number >> 1, 0].into(), 28)
}

pub(crate) async fn list(ground: &Ground, vpc: Option<&Vpc>) -> Result<(Option<GatewayState>, Vec<Site>)> {
    let Some(vpc) = vpc else { return Ok((None, Vec::new())) };
    let (gateway, groups) = try_join!(Gateway::find_in(ground, Some(vpc)), Groups::read(ground, vpc))?;
    let Some(gateway) = gateway else { return Ok((None, Vec::new())) };
    let mut peers = groups.links();
    peers.retain(|peer| {
        let prefix = ground.names.connections(peer);
        let mut names = gateway.shown.connections.iter().filter_map(|one| one.name.as_deref());
        names.any(|name| name.starts_with(&prefix))
    });
    Ok((Some(gateway.state()?), peers))
}

pub(crate) async fn ensure(ground: &Ground, asn: u32) -> Result<GatewayState> {
    let _turn = ground.turn().await;
    let vpcs = Vpcs::read(ground).await?;
    if Gateway::find_in(ground, vpcs.gateway.as_ref()).await?.is_none() {
        if RESERVED.iter().any(|(first, last)| (*first..=*last).contains(&asn)) {
            return Err(CloudError::invalid(format!("IBM Cloud keeps the AS number {asn} for itself")));
        }
        let none =
            || CloudError::conflict(format!("{} has no network for a gateway to stand near", ground.site));
        let near = vpcs.gateway.as_ref().or(vpcs.networks.first()).ok_or_else(none)?;
        build(ground, &near.region, vpcs.gateway.clone(), asn).await?;
    }
    settle_hub(ground, None).await?;
    let missing =
        || CloudError::unavailable(format!("the gateway of {} was made and is not there", ground.site));
    Gateway::find(ground).await?.ok_or_else(missing)?.1.state()
}

/// The VPC, its only subnet, the gateway in it, and the policies of its connections.
async fn build(ground: &Ground, region: &str, vpc: Option<Vpc>, asn: u32) -> Result {
    let (names, space) = (&ground.names, space(ground));
    let vpc = match vpc {
        Some(vpc) => vpc,
        None => Vpc::make(ground, region, names.gateway_network(), Home::Region).await?,
    };
    let zone = &ground.api.zones(region).await?[0];
    if vpc.prefixes(&ground.api).await?.is_empty() {
        vpc.make_prefix(ground, 0, space, zone).await?;
    }
    let there = subnets::list(ground, &vpc).await?;
    let ready = there.iter().find(|subnet| names.owns(&subnet.name) && subnet.is_ready());
    let subnet = match ready {
        Some(subnet) => subnet.id.clone(),
        None => subnets::make(ground, &vpc, None, zone, space, None).await?,
    };
    let request = VpnRequest {
        name: names.gateway(),
        mode: "route",
        subnet: Reference::to(subnet),
        local_asn: asn,
        resource_group: ground.group(),
    };
    let gateways = ground.within::<VpnGateway>(region);
    try_join!(gateways.ensure(None, &request), policies(ground, region)).map(drop)
}

/// How keys are agreed on: what every cloud's gateway takes, with perfect forward secrecy, which AWS insists on.
pub(crate) async fn policies(ground: &Ground, region: &str) -> Result<(Reference, Reference)> {
    let common = |key_lifetime: u32| PolicyRequest {
        name: ground.names.policy(),
        authentication_algorithms: ["sha256"],
        encryption_algorithms: ["aes256"],
        key_lifetime,
        ike_version: None,
        dh_groups: None,
        pfs_groups: None,
        resource_group: ground.group(),
    };
    let ike = PolicyRequest { ike_version: Some(2), dh_groups: Some([14]), ..common(28_800) };
    let ipsec = PolicyRequest { pfs_groups: Some(["group_14"]), ..common(3600) };
    try_join!(policy::<IkePolicy>(ground, region, &ike), policy::<IpsecPolicy>(ground, region, &ipsec))
}

async fn policy<K: Listed<Request = PolicyRequest>>(
    ground: &Ground,
    region: &str,
    request: &PolicyRequest,
) -> Result<Reference> {
    let policies = ground.api.in_region::<K>(region);
    let there = policies.find(&request.name).await?;
    Ok(Reference::to(policies.ensure(there, request).await?.id()))
}

pub(crate) async fn remove(ground: &Ground) -> Result {
    let _turn = ground.turn().await;
    let Some(vpc) = Vpcs::read(ground).await?.gateway else { return settle_hub(ground, None).await };
    let (api, region, names) = (&ground.api, vpc.region.as_str(), &ground.names);
    if let Some(gateway) = ground.within::<VpnGateway>(region).find(&names.gateway()).await? {
        if gateway.is_alive() {
            let connections = api.in_region::<VpnConnection>(region).of::<VpnGateway>(&gateway.id);
            if let Some(connection) = connections.list().await?.first() {
                return Err(CloudError::conflict(format!(
                    "the gateway of {} has the connection {}",
                    ground.site, connection.name
                )));
            }
            detach(ground, &gateway.crn).await?;
        }
        api.in_region::<VpnGateway>(region).remove(&gateway.id).await?;
    }
    api.in_region::<IkePolicy>(region).remove_named(&names.policy()).await?;
    api.in_region::<IpsecPolicy>(region).remove_named(&names.policy()).await?;
    let subnets = subnets::list(ground, &vpc).await?;
    let own = subnets.iter().filter(|subnet| names.owns(&subnet.name));
    api.in_region::<Subnet>(region).remove_all(own.map(|subnet| subnet.id.as_str())).await?;
    api.in_region::<shapes::Vpc>(region).remove(&vpc.id).await?;
    settle_hub(ground, None).await
}

/// Brings a site's own transit gateway, and what its VPN gateway advertises, to where they should be: with a gateway
/// all networks are attached, without one those that are peered. A network on its way out is left out.
pub(crate) async fn settle_hub(ground: &Ground, without: Option<&str>) -> Result {
    let vpcs = Vpcs::read(ground).await?;
    let gateway = Gateway::find_in(ground, vpcs.gateway.as_ref()).await?;
    let mut networks = match &gateway {
        Some(_) => vpcs.networks,
        None => peered(ground, vpcs.networks).await?,
    };
    networks.retain(|vpc| Some(vpc.name().as_str()) != without);
    let first = vpcs.gateway.as_ref().or(networks.first());
    let hub = Hub {
        ground,
        names: &ground.names,
        location: first.map(|vpc| vpc.region.clone()).unwrap_or_default(),
        networks: &networks,
        gateway: gateway.as_ref().map(|gateway| gateway.shown.crn.as_str()),
    };
    let Some(gateway) = &gateway else { return hub.ensure().await };
    let spaces = try_join_all(networks.iter().map(|vpc| vpc.space(&ground.api))).await?;
    let mut spaces: Vec<Ipv4Net> = spaces.into_iter().flatten().collect();
    spaces.sort();
    if spaces.len() > MOST_ADVERTISED {
        return Err(CloudError::conflict(format!(
            "{} would advertise {} networks; an IBM VPN gateway advertises {MOST_ADVERTISED}. Use fewer regions",
            ground.site,
            spaces.len()
        )));
    }
    hub.ensure().await?;
    advertise(ground, gateway, &spaces).await
}

/// Those networks of a site that have a peering within it.
async fn peered(ground: &Ground, networks: Vec<Vpc>) -> Result<Vec<Vpc>> {
    let groups = try_join_all(networks.iter().map(|vpc| Groups::read(ground, vpc))).await?;
    let peerings: Vec<_> = groups.iter().flat_map(Groups::peerings).collect();
    let inside = peerings.iter().filter(|name| name.ends().iter().all(|end| end.site == ground.site));
    let regions: Vec<&str> = inside.flat_map(|name| name.ends()).map(|end| end.region.as_str()).collect();
    Ok(networks.into_iter().filter(|vpc| regions.contains(&vpc.name().as_str())).collect())
}

async fn advertise(ground: &Ground, gateway: &Gateway, spaces: &[Ipv4Net]) -> Result {
    let call = |verb: &str, method: Method, space: &IpNet| {
        let cidr = space.to_string().replace('/', "%2F");
        let path = format!("vpn_gateways/{}/advertised_cidrs/{cidr}", gateway.shown.id);
        Call::new(
            Place::Region(&gateway.region),
            &format!("{verb}_vpn_gateway_advertised_cidr"),
            method,
            path,
        )
    };
    let spaces: Vec<IpNet> = spaces.iter().copied().map(IpNet::from).collect();
    let there = &gateway.shown.advertised_cidrs;
    for space in there.iter().filter(|space| !spaces.contains(space)) {
        ground.api.take_away(call("remove", Method::DELETE, space)).await?;
    }
    for space in spaces.iter().filter(|space| !there.contains(space)) {
        ground.api.send(call("add", Method::PUT, space)).await?;
    }
    // A gateway takes a moment over each change, during which it takes no other.
    let gateways = ground.api.in_region::<VpnGateway>(&gateway.region);
    wait(ground.api.clock(), Pace::QUICK, "the advertised prefixes", || async {
        let now = gateways.get(&gateway.shown.id).await?;
        let is_busy = now.is_some_and(|now| now.lifecycle_state == "updating");
        Ok(if is_busy { Progress::Pending } else { Progress::Done(()) })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_meets_each_address_of_the_peer_once() {
        let shown = r#"{"id":"g","crn":"c","name":"n","lifecycle_state":"stable","connections":[],"local_asn":64520,
                        "members":[{"public_ip":{"address":"52.0.0.1"}},{"public_ip":{"address":"52.0.0.2"}}]}"#;
        let gateway = Gateway { region: "us-south".into(), shown: serde_json::from_str(shown).unwrap() };
        let own = gateway.state().unwrap().addresses;
        let peer = ["p", "q"];
        let met: std::collections::BTreeSet<_> =
            own.iter().enumerate().map(|(number, own)| (own.to_string(), peer[number % 2])).collect();
        assert_eq!(met.len(), 4);
    }
}
