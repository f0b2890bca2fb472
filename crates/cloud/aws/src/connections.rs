//! Links: a customer gateway per address of the peer, and a VPN connection of two tunnels to each.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use cloud_api::CloudError;
use cloud_http::{Class, Pace, Progress, wait};
use ipnet::Ipv4Net;
use model::{ConnectionSpec, ConnectionStatus, Site};
use serde_json::{Value, json};

use crate::{
    api::{items, or_gone, text},
    cloud::{AwsCloud, Result},
    gateway::Transit,
    marks::mark,
    networks::is_alive,
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

fn read(text: &str) -> Vec<(usize, &str)> {
    text.split(' ')
        .filter_map(|part| part.split_once(':'))
        .filter_map(|(number, net)| Some((number.parse().ok()?, net)))
        .collect()
}

fn options(tunnels: &Tunnels, key: &str) -> Vec<Value> {
    let one = |(_, net): &(usize, Ipv4Net)| json!({"TunnelInsideCidr": net.to_string(), "PreSharedKey": key, "IKEVersion": [{"Value": "ikev2"}], "StartupAction": "start"});
    tunnels.iter().map(one).collect()
}

impl AwsCloud {
    /// The connections of a site that are not deleted nor being deleted.
    pub(crate) async fn connections_in(&self, site: &Site, region: &str) -> Result<Vec<Value>> {
        self.settle(site, "connection").await;
        let filters = json!({"Filter": self.marks(site).filters(&[])});
        let found = self.ec2.list(region, "DescribeVpnConnections", "vpnConnectionSet", filters).await?;
        Ok(found.into_iter().filter(is_alive).collect())
    }

    async fn towards(&self, site: &Site, region: &str, peer: &Site) -> Result<Vec<Value>> {
        let peer = peer.to_string();
        let all = self.connections_in(site, region).await?;
        Ok(all.into_iter().filter(|one| mark(one, "peer") == Some(&peer)).collect())
    }

    pub(crate) async fn connect(&self, site: &Site, spec: &ConnectionSpec) -> Result<()> {
        let by_address = tunnels_by_address(spec)?;
        let _turn = self.turns.take(&format!("{site}/connections")).await;
        let hub = self.need_hub(site).await?;
        let there = self.towards(site, &hub.region, &spec.peer).await?;
        let customers = self.turns.take(CUSTOMERS).await;
        let mut wanted = Vec::new();
        for (address, tunnels) in &by_address {
            let customer = self.customer(site, &hub, *address, spec).await?;
            wanted.push((customer, tunnels));
        }
        for old in &there {
            let kept = wanted.iter().any(|(customer, tunnels)| {
                text(old, "customerGatewayId") == customer && mark(old, "tunnels") == Some(&write(tunnels))
            });
            if !kept {
                self.end_connection(site, &hub.region, text(old, "vpnConnectionId")).await?;
            }
        }
        for (customer, tunnels) in &wanted {
            let found = there.iter().find(|one| {
                text(one, "customerGatewayId") == customer && mark(one, "tunnels") == Some(&write(tunnels))
            });
            match found {
                Some(connection) => self.rekey(site, &hub, connection, spec).await?,
                None => self.make_connection(site, &hub, customer, tunnels, spec).await?,
            }
        }
        drop(customers);
        wait(self.ec2.clock(), Pace::QUICK, &format!("the connection of {site} to {}", spec.peer), || async {
            let found = self.towards(site, &hub.region, &spec.peer).await?;
            let ready =
                found.len() >= wanted.len() && found.iter().all(|one| text(one, "state") == "available");
            Ok(if ready { Progress::Done(()) } else { Progress::Pending })
        })
        .await
    }

    /// The customer gateway for an address of the peer. EC2 answers with the one that is there, if it is the same.
    async fn customer(
        &self,
        site: &Site,
        hub: &Transit,
        address: IpAddr,
        spec: &ConnectionSpec,
    ) -> Result<String> {
        let peer = spec.peer.to_string();
        let tags = self.marks(site).specification("customer-gateway", &peer, &[("peer", &peer)])?;
        let mut wanted =
            json!({"Type": "ipsec.1", "IpAddress": address.to_string(), "TagSpecification": tags});
        let number = if i32::try_from(spec.peer_asn).is_ok() { "BgpAsn" } else { "BgpAsnExtended" };
        wanted[number] = spec.peer_asn.into();
        self.touch(site, "customer");
        let made = self.ec2.safe(&hub.region, "CreateCustomerGateway", wanted).await?;
        Ok(text(&made["customerGateway"], "customerGatewayId").to_owned())
    }

    async fn make_connection(
        &self,
        site: &Site,
        hub: &Transit,
        customer: &str,
        tunnels: &Tunnels,
        spec: &ConnectionSpec,
    ) -> Result<()> {
        let peer = spec.peer.to_string();
        let marks = [("peer", peer.as_str()), ("tunnels", &write(tunnels))];
        let tags = self.marks(site).specification("vpn-connection", &peer, &marks)?;
        let wanted = json!({
            "CustomerGatewayId": customer,
            "Type": "ipsec.1",
            "TransitGatewayId": hub.id,
            "Options": {"StaticRoutesOnly": false, "TunnelOptions": options(tunnels, spec.shared_key.expose())},
            "TagSpecification": tags,
        });
        self.touch(site, "connection");
        self.ec2.fresh(&hub.region, "CreateVpnConnection", wanted).await?;
        Ok(())
    }

    /// Gives tunnels that have another key the right one, one after the other: EC2 changes one at a time.
    async fn rekey(
        &self,
        site: &Site,
        hub: &Transit,
        connection: &Value,
        spec: &ConnectionSpec,
    ) -> Result<()> {
        let id = text(connection, "vpnConnectionId");
        let used = mark(connection, "tunnels").map(read).unwrap_or_default();
        let tunnels = items(&connection["options"]["tunnelOptionSet"]);
        for tunnel in tunnels.filter(|one| used.iter().any(|(_, net)| *net == text(one, "tunnelInsideCidr")))
        {
            if text(tunnel, "preSharedKey") == spec.shared_key.expose() {
                continue;
            }
            let outside = text(tunnel, "outsideIpAddress");
            let wanted = json!({"VpnConnectionId": id, "VpnTunnelOutsideIpAddress": outside, "TunnelOptions": {"PreSharedKey": spec.shared_key.expose()}});
            self.ec2.safe(&hub.region, "ModifyVpnTunnelOptions", wanted).await?;
            self.touch(site, "connection");
            wait(self.ec2.clock(), Pace::QUICK, &format!("the new key of {id}"), || async {
                let found = self.connections_in(site, &hub.region).await?;
                let ready = found
                    .iter()
                    .any(|one| text(one, "vpnConnectionId") == id && text(one, "state") == "available");
                Ok(if ready { Progress::Done(()) } else { Progress::Pending })
            })
            .await?;
        }
        Ok(())
    }

    async fn end_connection(&self, site: &Site, region: &str, id: &str) -> Result<()> {
        or_gone(self.ec2.safe(region, "DeleteVpnConnection", json!({"VpnConnectionId": id})).await)?;
        self.touch(site, "connection");
        wait(self.ec2.clock(), Pace::QUICK, &format!("the end of {id}"), || async {
            self.settle(site, "connection").await;
            let filters = json!({"Filter": self.marks(site).filters(&[])});
            let found = self.ec2.list(region, "DescribeVpnConnections", "vpnConnectionSet", filters).await?;
            let left =
                found.iter().any(|one| text(one, "vpnConnectionId") == id && text(one, "state") != "deleted");
            Ok(if left { Progress::Pending } else { Progress::Done(()) })
        })
        .await
    }

    pub(crate) async fn disconnect(&self, site: &Site, peer: &Site) -> Result<()> {
        let _turn = self.turns.take(&format!("{site}/connections")).await;
        let Some(hub) = self.hub(site).await? else { return Ok(()) };
        for connection in self.towards(site, &hub.region, peer).await? {
            self.end_connection(site, &hub.region, text(&connection, "vpnConnectionId")).await?;
        }
        self.end_customers(site, &hub.region, peer).await
    }

    /// Deletes the customer gateways towards a peer that no connection uses. Other sites of ours may have been given
    /// the same one, by whichever of them it was made; the last of them deletes it.
    async fn end_customers(&self, site: &Site, region: &str, peer: &Site) -> Result<()> {
        let _turn = self.turns.take(CUSTOMERS).await;
        self.settle(site, "customer").await;
        let filters = json!({"Filter": self.marks(site).filters_of_any_site(&[("peer", &peer.to_string())])});
        let customers =
            self.ec2.list(region, "DescribeCustomerGateways", "customerGatewaySet", filters).await?;
        for customer in customers.iter().filter(|one| is_alive(one)) {
            let id = text(customer, "customerGatewayId");
            let of_it = json!({"Filter": [{"Name": "customer-gateway-id", "Value": [id]}]});
            let users = self.ec2.list(region, "DescribeVpnConnections", "vpnConnectionSet", of_it).await?;
            if users.iter().any(is_alive) {
                continue;
            }
            or_gone(self.ec2.safe(region, "DeleteCustomerGateway", json!({"CustomerGatewayId": id})).await)?;
            self.touch(site, "customer");
        }
        Ok(())
    }

    pub(crate) async fn status(&self, site: &Site, peer: &Site) -> Result<ConnectionStatus> {
        let hub = self.need_hub(site).await?;
        let found = self.towards(site, &hub.region, peer).await?;
        if found.is_empty() {
            return Err(CloudError::not_found(format!("{site} has no connection to {peer}")));
        }
        let mut status =
            ConnectionStatus { routes: self.learnt(&hub, &found).await?, ..ConnectionStatus::default() };
        for connection in &found {
            let used = mark(connection, "tunnels").map(read).unwrap_or_default();
            let ours: Vec<&str> = items(&connection["options"]["tunnelOptionSet"])
                .filter(|one| used.iter().any(|(_, net)| *net == text(one, "tunnelInsideCidr")))
                .map(|one| text(one, "outsideIpAddress"))
                .collect();
            status.tunnels += u32::try_from(ours.len()).unwrap_or_default();
            for telemetry in
                items(&connection["vgwTelemetry"]).filter(|one| ours.contains(&text(one, "outsideIpAddress")))
            {
                // EC2 calls a tunnel with BGP up when its session is.
                let up = u32::from(text(telemetry, "status") == "UP");
                status.tunnels_up += up;
                status.bgp_established += up;
            }
        }
        Ok(status)
    }

    /// What the other end tells through these connections.
    async fn learnt(&self, hub: &Transit, connections: &[Value]) -> Result<Vec<Ipv4Net>> {
        let ids: Vec<&str> = connections.iter().map(|one| text(one, "vpnConnectionId")).collect();
        let wanted = json!({
            "TransitGatewayRouteTableId": hub.table,
            "Filter": [{"Name": "type", "Value": ["propagated"]}, {"Name": "attachment.resource-id", "Value": ids}],
        });
        let found = match self.ec2.call(&hub.region, "SearchTransitGatewayRoutes", wanted).await {
            // Who may not look at routes still sees how the tunnels are.
            Err(failure) if failure.is(Class::Denied) => return Ok(Vec::new()),
            found => found?,
        };
        let nets = items(&found["routeSet"]).filter_map(|one| text(one, "destinationCidrBlock").parse().ok());
        let nets: BTreeSet<Ipv4Net> = nets.collect();
        Ok(nets.into_iter().collect())
    }

    /// The outside addresses of a link's tunnels, in the order of the tunnels.
    pub(crate) async fn addresses(&self, site: &Site, peer: &Site) -> Result<Vec<IpAddr>> {
        let hub = self.need_hub(site).await?;
        let mut found = BTreeMap::new();
        for connection in self.towards(site, &hub.region, peer).await? {
            for (number, net) in mark(&connection, "tunnels").map(read).unwrap_or_default() {
                let mut tunnels = items(&connection["options"]["tunnelOptionSet"]);
                let tunnel = tunnels.find(|one| text(one, "tunnelInsideCidr") == net);
                if let Some(address) = tunnel.and_then(|one| text(one, "outsideIpAddress").parse().ok()) {
                    found.insert(number, address);
                }
            }
        }
        Ok(found.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use model::Secret;

    use super::*;

    fn spec(addresses: &[&str], count: u8) -> ConnectionSpec {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        ConnectionSpec {
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
