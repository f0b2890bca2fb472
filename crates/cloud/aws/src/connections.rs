//! Links: a customer gateway per address of the peer, and a VPN connection of two tunnels to each.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use cloud_api::{CloudError, Result};
use cloud_http::{Class, Pace, Progress, wait};
use ipnet::Ipv4Net;
use model::{ConnectionSpec, ConnectionStatus, Site};

use crate::{
    account::{Account, Place},
    kinds::Ec2Kind as _,
    marks::{Filter, mark},
    shapes::{CustomerGateway, Tunnel, VpnConnection, actions as ask},
    transit::{Transit, hub, need_hub},
};

/// Whose turn it is with customer gateways, which sites share: none is deleted between being found and being used.
const CUSTOMERS: &str = "customer gateways";

/// Tunnels of one connection: their numbers in the link, and their inside /30s.
type Tunnels = Vec<(usize, Ipv4Net)>;

/// Which tunnels go to which address of the peer. Refused if EC2 could not make them.
pub(crate) fn tunnels_by_address(spec: &ConnectionSpec) -> Result<BTreeMap<IpAddr, Tunnels>> {
    let mut by_address: BTreeMap<IpAddr, Tunnels> = BTreeMap::new();
    for (number, (local, peer)) in spec.local_bgp.iter().zip(&spec.peer_bgp).enumerate() {
        let net = Ipv4Net::new_assert(*local, 30).trunc();
        let host = |number: u32| Ipv4Addr::from(u32::from(net.network()) + number);
        if *local != host(1) || *peer != host(2) {
            return Err(CloudError::invalid(format!(
                "in the tunnel {local} to {peer} AWS must have the first address of a /30 and the peer the second"
            )));
        }
        let address = spec.peer_addresses.get(number).copied();
        let address = address
            .ok_or_else(|| CloudError::invalid(format!("tunnel {number} has no address of {}", spec.peer)))?;
        by_address.entry(address).or_default().push((number, net));
    }
    match by_address.values().find(|tunnels| tunnels.len() > 2) {
        Some(tunnels) => Err(CloudError::invalid(format!(
            "{} tunnels go to one address of {}; a VPN connection of AWS has two",
            tunnels.len(),
            spec.peer
        ))),
        None => Ok(by_address),
    }
}

/// `0:169.254.21.0/30 2:169.254.21.8/30`, as a tag.
fn write(tunnels: &Tunnels) -> String {
    tunnels.iter().map(|(number, net)| format!("{number}:{net}")).collect::<Vec<_>>().join(" ")
}

fn read(text: &str) -> Tunnels {
    text.split(' ')
        .filter_map(|part| part.split_once(':'))
        .filter_map(|(number, net)| Some((number.parse().ok()?, net.parse().ok()?)))
        .collect()
}

impl VpnConnection {
    /// The tunnels of the link that it has, with their numbers. EC2 makes two, whether they are used or not.
    fn used(&self) -> impl Iterator<Item = (usize, &Tunnel)> {
        let used = mark(self, "tunnels").map(read).unwrap_or_default();
        self.options.iter().flat_map(|options| options.tunnel_option_set.iter()).filter_map(move |tunnel| {
            let (number, _) = used.iter().find(|(_, net)| Some(*net) == tunnel.tunnel_inside_cidr)?;
            Some((*number, tunnel))
        })
    }

    fn is(&self, customer: &str, tunnels: &Tunnels) -> bool {
        self.customer_gateway_id.as_deref() == Some(customer)
            && mark(self, "tunnels") == Some(&write(tunnels))
    }
}

/// The connections of a site that are not deleted nor being deleted.
pub(crate) async fn living(place: Place<'_>) -> Result<Vec<VpnConnection>> {
    Ok(place.own::<VpnConnection>(&[]).await?.into_iter().filter(VpnConnection::is_alive).collect())
}

async fn towards(place: Place<'_>, peer: &Site) -> Result<Vec<VpnConnection>> {
    let peer = peer.to_string();
    Ok(living(place).await?.into_iter().filter(|one| mark(one, "peer") == Some(&peer)).collect())
}

pub(crate) async fn connect(account: &Account, site: &Site, spec: &ConnectionSpec) -> Result {
    let by_address = tunnels_by_address(spec)?;
    let _turn = account.turns.take(&format!("{site}/connections")).await;
    let hub = need_hub(account, site).await?;
    let place = account.at(site, &hub.region);
    let there = towards(place, &spec.peer).await?;
    let customers = account.turns.take(CUSTOMERS).await;
    let mut wanted = Vec::new();
    for (address, tunnels) in &by_address {
        wanted.push((customer(place, *address, spec).await?, tunnels));
    }
    for old in &there {
        if !wanted.iter().any(|(customer, tunnels)| old.is(customer, tunnels)) {
            place.end::<VpnConnection>(old.id()).await?;
        }
    }
    for (customer, tunnels) in &wanted {
        match there.iter().find(|one| one.is(customer, tunnels)) {
            Some(connection) => rekey(place, connection, spec).await?,
            None => make(place, &hub, customer, tunnels, spec).await?,
        }
    }
    drop(customers);
    wait(account.ec2.clock(), Pace::QUICK, &format!("the connection of {site} to {}", spec.peer), || async {
        let found = towards(place, &spec.peer).await?;
        let ready = found.len() >= wanted.len() && found.iter().all(|one| one.state == "available");
        Ok(if ready { Progress::Done(()) } else { Progress::Pending })
    })
    .await
}

/// The customer gateway for an address of the peer. EC2 answers with the one that is there, if it is the same.
async fn customer(place: Place<'_>, address: IpAddr, spec: &ConnectionSpec) -> Result<String> {
    let peer = spec.peer.to_string();
    let (short, long) = match i32::try_from(spec.peer_asn) {
        Ok(_) => (Some(spec.peer_asn), None),
        Err(_) => (None, Some(spec.peer_asn)),
    };
    let wanted = ask::CreateCustomerGateway {
        r#type: "ipsec.1",
        ip_address: address,
        bgp_asn: short,
        bgp_asn_extended: long,
        tag_specification: place.tags::<CustomerGateway>(&peer, &[("peer", &peer)])?,
    };
    Ok(place.make(&wanted).await?.customer_gateway_id)
}

async fn make(
    place: Place<'_>,
    hub: &Transit,
    customer: &str,
    tunnels: &Tunnels,
    spec: &ConnectionSpec,
) -> Result {
    let peer = spec.peer.to_string();
    let marks = [("peer", peer.as_str()), ("tunnels", &write(tunnels))];
    let tunnel = |(_, net): &(usize, Ipv4Net)| ask::NewTunnel {
        pre_shared_key: spec.shared_key.expose(),
        form: Some(ask::TunnelForm {
            tunnel_inside_cidr: *net,
            ike_version: [ask::Choice { value: "ikev2" }],
            startup_action: "start",
        }),
    };
    let wanted = ask::CreateVpnConnection {
        customer_gateway_id: customer,
        r#type: "ipsec.1",
        transit_gateway_id: &hub.id,
        options: ask::NewVpn {
            static_routes_only: false,
            tunnel_options: tunnels.iter().map(tunnel).collect(),
        },
        tag_specification: place.tags::<VpnConnection>(&peer, &marks)?,
    };
    place.make(&wanted).await?;
    Ok(())
}

/// Gives tunnels that have another key the right one, one after the other: EC2 changes one at a time.
async fn rekey(place: Place<'_>, connection: &VpnConnection, spec: &ConnectionSpec) -> Result {
    let key = spec.shared_key.expose();
    for (number, tunnel) in connection.used().filter(|(_, one)| one.pre_shared_key.as_deref() != Some(key)) {
        let id = connection.id();
        let none = || CloudError::unavailable(format!("tunnel {number} of {id} has no address yet"));
        let wanted = ask::ModifyVpnTunnelOptions {
            vpn_connection_id: id,
            vpn_tunnel_outside_ip_address: tunnel.outside_ip_address.ok_or_else(none)?,
            tunnel_options: ask::NewTunnel { pre_shared_key: key, form: None },
        };
        place.ask(&wanted).await?;
        place.touch::<VpnConnection>();
        place.ready::<VpnConnection>(id, &place.marks().filters(&[])).await?;
    }
    Ok(())
}

pub(crate) async fn disconnect(account: &Account, site: &Site, peer: &Site) -> Result {
    let _turn = account.turns.take(&format!("{site}/connections")).await;
    let Some(hub) = hub(account, site).await? else { return Ok(()) };
    let place = account.at(site, &hub.region);
    for connection in towards(place, peer).await? {
        place.end::<VpnConnection>(connection.id()).await?;
    }
    end_customers(place, peer).await
}

/// Deletes the customer gateways towards a peer that no connection uses. Other sites of ours may have been given
/// the same one, by whichever of them it was made; the last of them deletes it.
async fn end_customers(place: Place<'_>, peer: &Site) -> Result {
    let _turn = place.account.turns.take(CUSTOMERS).await;
    let filters = place.marks().filters_of_any_site(&[("peer", &peer.to_string())]);
    for customer in place.list::<CustomerGateway>(&filters).await?.iter().filter(|one| one.is_alive()) {
        let users =
            place.list::<VpnConnection>(&[Filter::new("customer-gateway-id", [customer.id()])]).await?;
        if !users.iter().any(VpnConnection::is_alive) {
            place.delete::<CustomerGateway>(customer.id()).await?;
        }
    }
    Ok(())
}

pub(crate) async fn status(account: &Account, site: &Site, peer: &Site) -> Result<ConnectionStatus> {
    let hub = need_hub(account, site).await?;
    let place = account.at(site, &hub.region);
    let found = towards(place, peer).await?;
    if found.is_empty() {
        return Err(CloudError::not_found(format!("{site} has no connection to {peer}")));
    }
    let mut status =
        ConnectionStatus { routes: learnt(place, &hub, &found).await?, ..ConnectionStatus::default() };
    for connection in &found {
        let ours: Vec<IpAddr> =
            connection.used().filter_map(|(_, tunnel)| tunnel.outside_ip_address).collect();
        let up = connection.vgw_telemetry.iter().filter(|one| {
            one.outside_ip_address.is_some_and(|address| ours.contains(&address))
                && one.status.as_deref() == Some("UP")
        });
        let up = u32::try_from(up.count()).unwrap_or_default();
        status.tunnels += u32::try_from(ours.len()).unwrap_or_default();
        // EC2 calls a tunnel with BGP up when its session is.
        status.tunnels_up += up;
        status.bgp_established += up;
    }
    Ok(status)
}

/// What the other end tells through these connections.
async fn learnt(place: Place<'_>, hub: &Transit, connections: &[VpnConnection]) -> Result<Vec<Ipv4Net>> {
    let wanted = ask::SearchTransitGatewayRoutes {
        transit_gateway_route_table_id: hub.table()?,
        filter: vec![
            Filter::new("type", ["propagated"]),
            Filter::new("attachment.resource-id", connections.iter().map(VpnConnection::id)),
        ],
    };
    let found = match place.ask(&wanted).await {
        // Who may not look at routes still sees how the tunnels are.
        Err(failure) if failure.is(Class::Denied) => return Ok(Vec::new()),
        found => found?.route_set,
    };
    let nets: BTreeSet<Ipv4Net> =
        found.into_iter().filter_map(|route| route.destination_cidr_block).collect();
    Ok(nets.into_iter().collect())
}

/// The outside addresses of a link's tunnels, in the order of the tunnels.
pub(crate) async fn addresses(account: &Account, site: &Site, peer: &Site) -> Result<Vec<IpAddr>> {
    let hub = need_hub(account, site).await?;
    let mut found = BTreeMap::new();
    for connection in towards(account.at(site, &hub.region), peer).await? {
        found.extend(
            connection.used().filter_map(|(number, tunnel)| Some((number, tunnel.outside_ip_address?))),
        );
    }
    Ok(found.into_values().collect())
}

#[cfg(test)]
mod tests {
    use model::Secret;

    use super::*;

    fn spec(addresses: &[&str], count: u8) -> ConnectionSpec {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        ConnectionSpec {
            bgp: true,
            site: "ns.aws".parse().unwrap(),
            peer: "ns.gcp".parse().unwrap(),
            peer_asn: 64_514,
            peer_addresses: addresses.iter().cycle().take(count.into()).copied().collect(),
            local_bgp: (0..count).map(|n| [169, 254, 21, 4 * n + 1].into()).collect(),
            peer_bgp: (0..count).map(|n| [169, 254, 21, 4 * n + 2].into()).collect(),
            peer_spaces: vec![],
            shared_key: Secret::new("k"),
        }
    }

    #[test]
    fn tunnels_are_shared_out_over_the_peers_addresses() {
        let two = tunnels_by_address(&spec(&["34.0.0.1", "34.0.0.2"], 4)).unwrap();
        let numbers: Vec<Vec<usize>> =
            two.values().map(|list| list.iter().map(|(n, _)| *n).collect()).collect();
        assert_eq!(numbers, [vec![0, 2], vec![1, 3]]);
        assert_eq!(tunnels_by_address(&spec(&["34.0.0.1"], 2)).unwrap().len(), 1);
        assert!(tunnels_by_address(&spec(&["34.0.0.1"], 3)).is_err());
        let mut swapped = spec(&["34.0.0.1"], 2);
        std::mem::swap(&mut swapped.local_bgp, &mut swapped.peer_bgp);
        assert!(tunnels_by_address(&swapped).is_err());
    }
}
