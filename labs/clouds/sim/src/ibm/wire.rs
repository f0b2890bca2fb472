//! What the account's objects mean on the wire. A zone of a VPC is a network here: NAT is by subnet, and thus by zone.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::Value;

use super::{objects::net, state::Ibm};
use crate::{
    rest::{list, text},
    wire::{Bgp, Firewall, Gateway, GatewayHop, Hop, Host, Line, Network, Tunnel, Wire},
};

/// `id of the VPC@zone`.
pub(super) fn wire_name(vpc: &Value, zone: &Value) -> String {
    format!("{}@{}", text(vpc), text(zone))
}

impl Ibm {
    fn vpcs(&self) -> impl Iterator<Item = &Value> {
        self.of_kind("vpcs").filter(|vpc| vpc["status"] == "available")
    }

    /// The zones of a VPC with their prefixes.
    fn prefixes(&self, vpc: &Value) -> Vec<(String, Ipv4Net)> {
        let mine = self.of_kind("vpcs/address_prefixes").filter(|one| one["_parent"] == vpc["id"]);
        mine.filter_map(|one| Some((wire_name(&vpc["id"], &one["zone"]["name"]), net(&one["cidr"])?)))
            .collect()
    }

    pub(crate) fn join(&self, wire: &mut Wire) {
        for vpc in self.vpcs() {
            let hubs = self.hubs_of(vpc);
            // What the VPC reaches without a tunnel: its own zones, and VPCs on the same transit gateways.
            let near = self.vpcs().filter(|other| {
                other["id"] == vpc["id"] || self.hubs_of(other).iter().any(|hub| hubs.contains(hub))
            });
            let near: Vec<(String, Ipv4Net)> = near.flat_map(|other| self.prefixes(other)).collect();
            let gateways = self
                .of_kind("vpn_gateways")
                .filter(|one| self.hubs_of(one).iter().any(|hub| hubs.contains(hub)));
            let gateways: Vec<String> = gateways.map(|one| text(&one["id"]).to_owned()).collect();
            let own = self.prefixes(vpc);
            for (zone, _) in &own {
                let mut network = Network {
                    spaces: own.iter().filter(|(one, _)| one == zone).map(|(_, space)| *space).collect(),
                    learns_from: gateways.clone(),
                    ..Network::default()
                };
                let others = near.iter().filter(|(one, _)| one != zone);
                network.routes.extend(others.map(|(one, space)| (*space, Hop::Peer(one.clone()))));
                if self.has_nat(zone) {
                    network.routes.push((Ipv4Net::default(), Hop::Internet));
                }
                wire.networks.insert(zone.clone(), network);
            }
        }
        for gateway in self.of_kind("vpn_gateways").filter(|one| one["lifecycle_state"] == "stable") {
            wire.gateways.insert(text(&gateway["id"]).to_owned(), self.wire_gateway(gateway));
        }
        for instance in self.of_kind("instances").filter(|one| one["status"] == "running") {
            let address = text(&instance["primary_network_attachment"]["primary_ip"]["address"]);
            wire.hosts.push(Host {
                address: address.parse().ok(),
                network: wire_name(&instance["_vpc"], &instance["zone"]["name"]),
                routes: None,
                cut_off: Vec::new(),
                guard: None,
                inbound: self.firewall(instance, "inbound"),
                outbound: self.firewall(instance, "outbound"),
            });
        }
        wire.hosts.extend(self.endpoint_hosts());
        self.worker_hosts(wire);
    }

    fn has_nat(&self, zone: &str) -> bool {
        let mut subnets =
            self.of_kind("subnets").filter(|one| wire_name(&one["_vpc"], &one["zone"]["name"]) == zone);
        subnets.any(|subnet| {
            let nat = self.get("public_gateways", text(&subnet["public_gateway"]["id"]));
            nat.is_ok_and(|nat| nat["status"] == "available")
        })
    }

    /// A VPN gateway advertises its own VPC's prefixes and those it was told to; it delivers to VPCs on its transit
    /// gateways.
    fn wire_gateway(&self, gateway: &Value) -> Gateway {
        let hubs = self.hubs_of(gateway);
        let reached = self.vpcs().filter(|vpc| self.hubs_of(vpc).iter().any(|hub| hubs.contains(hub)));
        let behind: Vec<(String, Ipv4Net)> = reached.flat_map(|vpc| self.prefixes(vpc)).collect();
        let told: Vec<Ipv4Net> = list(&gateway["advertised_cidrs"]).filter_map(net).collect();
        let routes = behind.into_iter().filter(|(_, space)| told.iter().any(|told| told.contains(space)));
        let connections =
            self.of_kind("vpn_gateways/connections").filter(|one| one["_parent"] == gateway["id"]);
        Gateway {
            routes: routes.map(|(zone, space)| (space, GatewayHop::Network(zone))).collect(),
            tunnels: connections.flat_map(|one| self.tunnel_ends(one)).collect(),
        }
    }

    /// The tunnels of a connection, as ends on the wire.
    pub(super) fn tunnel_ends(&self, connection: &Value) -> Vec<Tunnel> {
        let asn = self
            .get("vpn_gateways", text(&connection["_parent"]))
            .ok()
            .and_then(|one| one["local_asn"].as_u64());
        let address = |value: &Value| text(&value["address"]).parse::<Ipv4Addr>().ok();
        let number = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok());
        let ike = self
            .get("ike_policies", text(&connection["_ike"]))
            .ok()
            .and_then(|one| one["ike_version"].as_u64());
        let end = |tunnel: &Value| {
            let bgp = || {
                Some(Bgp {
                    local: address(&tunnel["tunnel_interface_ip"])?,
                    peer: address(&tunnel["neighbor_ip"])?,
                    local_asn: number(asn)?,
                    peer_asn: number(connection["peer"]["asn"].as_u64())?,
                })
            };
            Some(Tunnel {
                local: address(&tunnel["public_ip"])?,
                remote: address(&connection["peer"])?,
                key: text(&connection["psk"]).to_owned(),
                ike: number(ike).and_then(|ike| u8::try_from(ike).ok()).unwrap_or(2),
                bgp: bgp(),
                routes: Vec::new(),
            })
        };
        list(&connection["tunnels"]).filter_map(end).collect()
    }

    pub(super) fn firewall(&self, instance: &Value, direction: &str) -> Firewall {
        let groups = list(&instance["_groups"]);
        let rules = groups.flat_map(|group| {
            self.of_kind("security_groups/rules").filter(move |rule| rule["_parent"] == *group)
        });
        Firewall(
            rules.filter(|rule| rule["direction"] == direction).flat_map(|rule| self.lines(rule)).collect(),
        )
    }

    fn lines(&self, rule: &Value) -> Vec<Line> {
        let remote = &rule["remote"];
        let host = text(&remote["address"]).parse::<Ipv4Addr>().ok().map(Ipv4Net::from);
        let peers: Vec<Ipv4Net> = match host.or_else(|| net(&remote["cidr_block"])) {
            Some(space) => vec![space],
            None => ["instances", "workers"]
                .iter()
                .flat_map(|kind| self.of_kind(kind))
                .filter(|one| one["_groups"].as_array().is_some_and(|list| list.contains(&remote["id"])))
                .filter_map(|one| {
                    let own = one.pointer("/primary_network_attachment/primary_ip/address");
                    text(own.unwrap_or(&one["address"])).parse::<Ipv4Addr>().ok()
                })
                .map(Ipv4Net::from)
                .collect(),
        };
        let protocols: Vec<Option<u8>> = match text(&rule["protocol"]) {
            "tcp" => vec![Some(6)],
            "udp" => vec![Some(17)],
            "icmp" => vec![Some(1)],
            "icmp_tcp_udp" | "all" => vec![Some(1), Some(6), Some(17)],
            "any" => vec![None],
            _ => vec![],
        };
        let port = |field: &str| rule[field].as_u64().and_then(|port| u16::try_from(port).ok());
        let ports: Vec<(u16, u16)> = port("port_min").zip(port("port_max")).into_iter().collect();
        let line = |protocol| Line {
            priority: 1,
            allow: true,
            protocol,
            ports: ports.clone(),
            src_ports: vec![],
            peers: peers.clone(),
        };
        protocols.into_iter().map(line).collect()
    }
}
