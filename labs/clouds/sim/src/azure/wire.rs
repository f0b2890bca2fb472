//! What the objects mean on the wire.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::Value;

use super::{
    check::{range, service},
    clusters::CLUSTERS,
    is,
    networks::{parts, spaces},
    objects::listed,
    state::{Azure, key},
};
use crate::{
    rest::{list, text, texts},
    wire::{Bgp, Firewall, Gateway, GatewayHop, Hop, Host, Line, Network, Tunnel, Wire},
};

fn is_there(object: &Value) -> bool {
    object["properties"]["provisioningState"] != "Failed" && object["_gone"] != true
}

impl Azure {
    pub(crate) fn join(&self, wire: &mut Wire) {
        for (id, vnet) in self.of_kind("virtualNetworks").filter(|(_, vnet)| is_there(vnet)) {
            let mut routes = Vec::new();
            let mut learns_from: Vec<String> = self
                .gateway_in(id)
                .filter(|(_, one)| is_there(one))
                .map(|(id, _)| id.clone())
                .into_iter()
                .collect();
            for (far, peering) in self.peers(vnet) {
                let Some(remote) = self.objects.get(&far) else { continue };
                if peering["properties"]["allowVirtualNetworkAccess"] != false {
                    routes.extend(spaces(remote).into_iter().map(|net| (net, Hop::Peer(far.clone()))));
                }
                if peering["properties"]["useRemoteGateways"] == true {
                    learns_from.extend(self.gateway_in(&far).map(|(id, _)| id.clone()));
                }
            }
            let has_nat = listed(vnet, "subnets").any(|subnet| {
                let nat = self.objects.get(&key(text(&subnet["properties"]["natGateway"]["id"])));
                nat.is_some_and(|nat| listed(nat, "publicIpAddresses").next().is_some())
            });
            if has_nat || self.has_outbound_cluster(id) {
                routes.push((Ipv4Net::default(), Hop::Internet));
            }
            wire.networks.insert(id.clone(), Network { spaces: spaces(vnet), routes, learns_from });
        }
        for (id, gateway) in self.of_kind("virtualNetworkGateways").filter(|(_, one)| is_there(one)) {
            wire.gateways.insert(id.clone(), self.gateway_end(id, gateway));
        }
        let machines =
            self.of_kind("virtualMachines").filter(|(_, one)| is_there(one) && one["_fails"] != true);
        for (_, machine) in machines {
            let interface = text(&machine["properties"]["networkProfile"]["networkInterfaces"][0]["id"]);
            if let Some(interface) = self.objects.get(&key(interface)) {
                wire.hosts.extend(self.host(interface));
            }
        }
        // One that AKS could not change runs on.
        let clusters =
            self.of_kind(CLUSTERS).filter(|(_, one)| one["_gone"] != true && one["_fails"] != true);
        for (_, cluster) in clusters {
            wire.hosts.extend(self.cluster_hosts(cluster));
        }
    }

    /// Networks that a network is connected with, and the near side of that.
    fn peers<'a>(&self, vnet: &'a Value) -> Vec<(String, &'a Value)> {
        let up = listed(vnet, "virtualNetworkPeerings").filter(|one| one["_state"] == "Connected");
        up.map(|one| (key(text(&one["properties"]["remoteVirtualNetwork"]["id"])), one)).collect()
    }

    fn gateway_end(&self, id: &str, gateway: &Value) -> Gateway {
        let subnet = text(&gateway["properties"]["ipConfigurations"][0]["properties"]["subnet"]["id"]);
        let hub = parts(subnet).map(|(vnet, _)| key(vnet)).unwrap_or_default();
        let mut routes = Vec::new();
        if let Some(vnet) = self.objects.get(&hub) {
            let own = spaces(vnet).into_iter().map(|net| (net, GatewayHop::Network(hub.clone())));
            routes.extend(own);
            for (far, peering) in self.peers(vnet) {
                let Some(spoke) = self.objects.get(&far) else { continue };
                let uses = self
                    .peers(spoke)
                    .iter()
                    .any(|(back, side)| *back == hub && side["properties"]["useRemoteGateways"] == true);
                if uses && peering["properties"]["allowGatewayTransit"] == true {
                    routes
                        .extend(spaces(spoke).into_iter().map(|net| (net, GatewayHop::Network(far.clone()))));
                }
            }
        }
        let connections = self
            .of_kind("connections")
            .filter(|(_, one)| is(text(&one["properties"]["virtualNetworkGateway1"]["id"]), id));
        let tunnels = connections.flat_map(|(id, _)| self.tunnel_ends(id)).collect();
        Gateway { routes, tunnels }
    }

    /// The ends of a connection that is made: one per instance of the gateway.
    pub(super) fn tunnel_ends(&self, id: &str) -> Vec<Tunnel> {
        let Some(connection) = self.objects.get(id).filter(|one| is_there(one) && one["_fails"] != true)
        else {
            return Vec::new();
        };
        let properties = &connection["properties"];
        let gateway = self.objects.get(&key(text(&properties["virtualNetworkGateway1"]["id"])));
        let peer = self.objects.get(&key(text(&properties["localNetworkGateway2"]["id"])));
        let (Some(gateway), Some(peer)) = (gateway, peer) else { return Vec::new() };
        let instances = gateway["properties"]["bgpSettings"]["bgpPeeringAddresses"].as_array();
        let end = |instance: &Value| {
            let far = &peer["properties"];
            let chosen = listed(connection, "gatewayCustomBgpIpAddresses")
                .find(|one| is(text(&one["ipConfigurationId"]), text(&instance["ipconfigurationId"])))
                .map(|one| &one["customBgpIpAddress"]);
            // Without a choice every connection uses the first address there is.
            let own = chosen
                .or_else(|| instance["customBgpIpAddresses"].get(0))
                .unwrap_or(&instance["defaultBgpIpAddresses"][0]);
            let number = |value: &Value| u32::try_from(value.as_u64()?).ok();
            let address = |value: &Value| text(value).parse::<Ipv4Addr>().ok();
            let session = || {
                Some(Bgp {
                    local: address(own)?,
                    peer: address(&far["bgpSettings"]["bgpPeeringAddress"])?,
                    local_asn: number(&gateway["properties"]["bgpSettings"]["asn"])?,
                    peer_asn: number(&far["bgpSettings"]["asn"])?,
                })
            };
            let bgp = if properties["enableBgp"] == true { session() } else { None };
            let fixed = list(&far["localNetworkAddressSpace"]["addressPrefixes"]);
            Some(Tunnel {
                local: address(&instance["tunnelIpAddresses"][0])?,
                remote: address(&far["gatewayIpAddress"])?,
                key: text(&connection["_key"]).to_owned(),
                ike: if properties["connectionProtocol"] == "IKEv1" { 1 } else { 2 },
                bgp,
                routes: fixed.filter_map(|net| net.as_str()?.parse().ok()).collect(),
            })
        };
        instances.into_iter().flatten().filter_map(end).collect()
    }

    fn host(&self, interface: &Value) -> Option<Host> {
        let configuration = &interface["properties"]["ipConfigurations"][0]["properties"];
        let (vnet, _) = parts(text(&configuration["subnet"]["id"]))?;
        let group = self.objects.get(&key(text(&interface["properties"]["networkSecurityGroup"]["id"])));
        let firewall = |direction: &str| match group {
            Some(group) => Firewall(lines(group, direction)),
            // Without a group everything passes.
            None => Firewall(vec![line(0, true, &["*".to_owned()])]),
        };
        Some(Host {
            address: text(&configuration["privateIPAddress"]).parse().ok(),
            network: key(vnet),
            routes: None,
            cut_off: Vec::new(),
            guard: None,
            inbound: firewall("Inbound"),
            outbound: firewall("Outbound"),
        })
    }

    /// All rules go, those that deny too, and all connections.
    pub(crate) fn vandalise(&mut self) {
        self.objects.retain(|id, _| !id.contains("/connections/"));
        let has_rules = |_: &String, one: &Value| !one["properties"]["securityRules"].is_null();
        self.objects
            .change(has_rules, |group| group["properties"]["securityRules"] = Vec::<Value>::new().into());
    }
}

fn line(priority: u32, allow: bool, prefixes: &[String]) -> Line {
    let private = ["10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"];
    let nets = |text: &String| -> Vec<Ipv4Net> {
        match text.as_str() {
            "*" | "Internet" => vec![Ipv4Net::default()],
            "VirtualNetwork" => private.iter().filter_map(|net| net.parse().ok()).collect(),
            "AzureLoadBalancer" => Vec::new(),
            other if service(other).is_some() => service(other).into_iter().collect(),
            other => other
                .parse()
                .ok()
                .or_else(|| other.parse::<Ipv4Addr>().ok().map(Ipv4Net::from))
                .into_iter()
                .collect(),
        }
    };
    let peers = prefixes.iter().flat_map(nets).collect();
    Line { priority, allow, protocol: None, ports: vec![], src_ports: vec![], peers }
}

/// A group's own rules, and below them those that every group has.
pub(super) fn lines(group: &Value, direction: &str) -> Vec<Line> {
    let own = listed(group, "securityRules").filter(|rule| rule["properties"]["direction"] == direction);
    let mut lines: Vec<Line> = own.filter_map(rule_line).collect();
    let near = ["VirtualNetwork".to_owned()];
    lines.push(line(65_000, true, &near));
    if direction == "Outbound" {
        lines.push(line(65_001, true, &["*".to_owned()]));
    }
    lines
}

fn rule_line(rule: &Value) -> Option<Line> {
    let properties = &rule["properties"];
    let side = if properties["direction"] == "Outbound" { "destination" } else { "source" };
    let all = |field: &str, plural: &str| -> Vec<String> {
        let listed = texts(&properties[plural]);
        properties[field].as_str().into_iter().chain(listed).map(str::to_owned).collect()
    };
    let prefixes = all(&format!("{side}AddressPrefix"), &format!("{side}AddressPrefixes"));
    let ports = |side: &str| -> Vec<(u16, u16)> {
        let texts = all(&format!("{side}PortRange"), &format!("{side}PortRanges"));
        texts.iter().filter_map(|text| range(text)).collect()
    };
    let protocol = match text(&properties["protocol"]) {
        "Tcp" => Some(6),
        "Udp" => Some(17),
        "Icmp" => Some(1),
        "Esp" => Some(50),
        "Ah" => Some(51),
        _ => None,
    };
    let priority = u32::try_from(properties["priority"].as_u64()?).ok()?;
    let allow = properties["access"] == "Allow";
    Some(Line {
        protocol,
        ports: ports("destination"),
        src_ports: ports("source"),
        ..line(priority, allow, &prefixes)
    })
}
