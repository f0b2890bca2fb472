//! What the account's objects mean on the wire.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::Value;

use super::state::Ec2;
use crate::{
    rest::{list, text, texts},
    wire::{Bgp, Firewall, Gateway, GatewayHop, Hop, Host, Line, Network, Tunnel, Wire},
};

fn net(value: &Value) -> Option<Ipv4Net> {
    value.as_str()?.parse().ok()
}

/// An attachment works while subnets are added to it.
fn is_attached(attachment: &Value) -> bool {
    matches!(attachment["State"].as_str(), Some("available" | "modifying"))
}

impl Ec2 {
    /// Adds this account's part to the wire.
    pub(crate) fn join(&self, wire: &mut Wire) {
        for (id, vpc) in self.all("vpc") {
            let network = Network {
                spaces: net(&vpc["CidrBlock"]).into_iter().collect(),
                routes: self.routes_of(id, |table| table["Associations"][0]["Main"] == true),
                learns_from: Vec::new(),
            };
            wire.networks.insert(id.clone(), network);
        }
        for (id, transit) in self.all("tgw") {
            let tunnels = self.all("vpn").filter(|(_, vpn)| vpn["TransitGatewayId"] == id.as_str());
            let tunnels = tunnels.flat_map(|(vpn, _)| self.tunnels_of(vpn)).collect();
            wire.gateways.insert(id.clone(), Gateway { routes: self.transit_routes(id, transit), tunnels });
        }
        for (_, instance) in self.all("i") {
            if instance["State"]["Name"] != "running" {
                continue;
            }
            wire.hosts.push(Host {
                address: instance["PrivateIpAddress"].as_str().and_then(|text| text.parse().ok()),
                network: text(&instance["VpcId"]).to_owned(),
                routes: self.subnet_routes(instance),
                cut_off: self.cut_off(instance),
                guard: None,
                inbound: self.firewall(instance, false),
                outbound: self.firewall(instance, true),
            });
        }
    }

    /// The gateways that are attached to an instance's VPC, but not in its zone.
    fn cut_off(&self, instance: &Value) -> Vec<String> {
        let zone = &instance["Placement"]["AvailabilityZone"];
        let attached = self.all("tgw-attach").filter(|(_, one)| one["VpcId"] == instance["VpcId"]);
        let elsewhere = attached.filter(|(_, one)| {
            let subnets = texts(&one["SubnetIds"]);
            let mut zones = subnets
                .into_iter()
                .filter_map(|id| self.objects.get(id))
                .map(|subnet| &subnet["AvailabilityZone"]);
            !zones.any(|one| one == zone)
        });
        elsewhere.filter_map(|(_, one)| one["TransitGatewayId"].as_str().map(str::to_owned)).collect()
    }

    fn firewall(&self, instance: &Value, egress: bool) -> Firewall {
        let groups = list(&instance["SecurityGroups"]);
        let groups = groups.filter_map(|group| self.objects.get(group["GroupId"].as_str()?));
        let rules = groups.flat_map(|group| list(&group["_rules"]));
        let line = |rule: &Value| {
            let protocol = match rule["protocol"].as_str()? {
                "-1" => None,
                "tcp" => Some(6),
                "udp" => Some(17),
                "icmp" => Some(1),
                number => Some(number.parse().ok()?),
            };
            let port = |name: &str| rule[name].as_u64().and_then(|port| u16::try_from(port).ok());
            let ports = match (protocol, port("from"), port("to")) {
                (Some(6 | 17), Some(from), Some(to)) => vec![(from, to)],
                _ => Vec::new(),
            };
            Some(Line {
                priority: 0,
                allow: true,
                protocol,
                ports,
                src_ports: vec![],
                peers: vec![net(&rule["cidr"])?],
            })
        };
        Firewall(rules.filter(|rule| rule["egress"] == egress).filter_map(line).collect())
    }

    /// The routes of an instance's subnet, if it has a table of its own.
    fn subnet_routes(&self, instance: &Value) -> Option<Vec<(Ipv4Net, Hop)>> {
        let serves = |table: &Value| {
            let mut associations = list(&table["Associations"]);
            associations.any(|one| one["SubnetId"].is_string() && one["SubnetId"] == instance["SubnetId"])
        };
        let has_own = self.all("rtb").any(|(_, table)| serves(table));
        has_own.then(|| self.routes_of(text(&instance["VpcId"]), serves))
    }

    fn routes_of(&self, vpc: &str, is_it: impl Fn(&Value) -> bool) -> Vec<(Ipv4Net, Hop)> {
        let tables = self.all("rtb").filter(|(_, table)| table["VpcId"] == vpc && is_it(table));
        let routes = tables.flat_map(|(_, table)| list(&table["Routes"]));
        let alive = |id: &str| self.objects.get(id).filter(|object| object["State"] == "available");
        let hop = |route: &Value| {
            let destination = net(&route["DestinationCidrBlock"])?;
            if let Some(id) = route["TransitGatewayId"].as_str() {
                let attached = self
                    .all("tgw-attach")
                    .any(|(_, one)| one["VpcId"] == vpc && one["TransitGatewayId"] == id && is_attached(one));
                return attached.then(|| (destination, Hop::Gateway(id.to_owned())));
            }
            if let Some(id) = route["NatGatewayId"].as_str() {
                return alive(id).filter(|nat| self.is_public(nat)).map(|_| (destination, Hop::Internet));
            }
            let pcx = self.objects.get(route["VpcPeeringConnectionId"].as_str()?)?;
            if pcx["Status"]["Code"] != "active" {
                return None;
            }
            let ends = [&pcx["RequesterVpcInfo"]["VpcId"], &pcx["AccepterVpcInfo"]["VpcId"]];
            let other = ends.into_iter().find(|end| **end != vpc)?.as_str()?;
            Some((destination, Hop::Peer(other.to_owned())))
        };
        routes.filter_map(hop).collect()
    }

    /// A NAT gateway works if its own subnet's table leads to an internet gateway.
    fn is_public(&self, nat: &Value) -> bool {
        let mut tables = self
            .all("rtb")
            .filter(|(_, table)| list(&table["Associations"]).any(|one| one["SubnetId"] == nat["SubnetId"]));
        let leads_out = |route: &Value| {
            let igw = route["GatewayId"]
                .as_str()
                .filter(|id| id.starts_with("igw-"))
                .and_then(|id| self.objects.get(id));
            route["DestinationCidrBlock"] == "0.0.0.0/0"
                && igw.is_some_and(|igw| igw["Attachments"][0]["VpcId"] == nat["VpcId"])
        };
        tables.any(|(_, table)| list(&table["Routes"]).any(leads_out))
    }

    fn transit_routes(&self, id: &str, transit: &Value) -> Vec<(Ipv4Net, GatewayHop)> {
        let attached = self
            .all("tgw-attach")
            .filter(|(_, one)| one["TransitGatewayId"] == id && is_attached(one) && one["_type"] == "vpc");
        let direct = attached.filter_map(|(_, one)| {
            let vpc = one["VpcId"].as_str()?;
            Some((net(&self.objects.get(vpc)?["CidrBlock"])?, GatewayHop::Network(vpc.to_owned())))
        });
        let fixed = list(&transit["_routes"]).filter_map(|route| {
            let attachment = self.objects.get(route["attachment"].as_str()?)?;
            if attachment["State"] != "available" {
                return None;
            }
            let ends = [&attachment["RequesterTgwInfo"], &attachment["AccepterTgwInfo"]];
            let other =
                ends.into_iter().find(|end| end["TransitGatewayId"] != id)?["TransitGatewayId"].as_str()?;
            Some((net(&route["net"])?, GatewayHop::Gateway(other.to_owned())))
        });
        direct.chain(fixed).collect()
    }

    /// The tunnels of a connection that is available.
    pub(super) fn tunnels_of(&self, id: &str) -> Vec<Tunnel> {
        let Some(vpn) = self.objects.get(id).filter(|vpn| vpn["State"] == "available") else {
            return Vec::new();
        };
        let tunnels = list(&vpn["Options"]["TunnelOptions"]);
        tunnels.filter_map(|tunnel| self.tunnel(vpn, tunnel)).collect()
    }

    fn tunnel(&self, vpn: &Value, tunnel: &Value) -> Option<Tunnel> {
        let customer = self.objects.get(vpn["CustomerGatewayId"].as_str()?)?;
        let transit = self.objects.get(vpn["TransitGatewayId"].as_str()?)?;
        let address = |value: &Value| value.as_str()?.parse::<Ipv4Addr>().ok();
        let inside = net(&tunnel["TunnelInsideCidr"])?;
        let host = |number: u32| Ipv4Addr::from(u32::from(inside.network()) + number);
        let speaks_two = list(&tunnel["IkeVersions"]).any(|one| one["Value"] == "ikev2");
        Some(Tunnel {
            local: address(&tunnel["OutsideIpAddress"])?,
            remote: address(&customer["IpAddress"])?,
            key: tunnel["PreSharedKey"].as_str()?.to_owned(),
            ike: if speaks_two { 2 } else { 1 },
            bgp: Some(Bgp {
                local: host(1),
                peer: host(2),
                local_asn: u32::try_from(transit["Options"]["AmazonSideAsn"].as_u64()?).ok()?,
                peer_asn: customer["BgpAsn"].as_str()?.parse().ok()?,
            }),
            routes: Vec::new(),
        })
    }
}
