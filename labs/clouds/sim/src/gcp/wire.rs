//! What the projects' objects mean on the wire. A VPC is one network per region here: NAT is by region.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::Value;

use super::{
    links::translates,
    state::{Gce, path_of},
};
use crate::{
    rest::list,
    wire::{Bgp, Firewall, Gateway, GatewayHop, Hop, Host, Line, Network, Tunnel, Wire},
};

/// `restricted.googleapis.com` and `private.googleapis.com`.
const GOOGLE: [Ipv4Net; 2] = [
    Ipv4Net::new_assert(Ipv4Addr::new(199, 36, 153, 4), 30),
    Ipv4Net::new_assert(Ipv4Addr::new(199, 36, 153, 8), 30),
];

pub(super) fn net(value: &Value) -> Option<Ipv4Net> {
    value.as_str()?.parse().ok()
}

/// All ranges of a subnet.
pub(super) fn ranges(subnet: &Value) -> Vec<Ipv4Net> {
    let more = list(&subnet["secondaryIpRanges"]);
    [subnet].into_iter().chain(more).filter_map(|one| net(&one["ipCidrRange"])).collect()
}

/// `URL of the network@region`.
pub(super) fn wire_name(network: &Value, region: &str) -> String {
    format!("{}@{region}", network.as_str().unwrap_or_default())
}

pub(super) fn last(value: &Value) -> &str {
    value.as_str().and_then(|text| text.rsplit('/').next()).unwrap_or_default()
}

impl Gce {
    pub(super) fn is_there(object: &Value) -> bool {
        object["_until"].is_null()
    }

    pub(crate) fn join(&self, wire: &mut Wire) {
        let subnets: Vec<&Value> = self
            .of_kind("subnetworks")
            .map(|(_, subnet)| subnet)
            .filter(|subnet| Self::is_there(subnet))
            .collect();
        for subnet in &subnets {
            let network =
                wire.networks.entry(wire_name(&subnet["network"], last(&subnet["region"]))).or_default();
            network.spaces.extend(ranges(subnet));
        }
        for subnet in &subnets {
            let own = wire_name(&subnet["network"], last(&subnet["region"]));
            let mut routes = Vec::new();
            let active = self.active_peers(&subnet["network"]);
            for other in &subnets {
                let same = other["network"] == subnet["network"];
                if (same || active.contains(&other["network"])) && !std::ptr::eq(*other, *subnet) {
                    let hop = Hop::Peer(wire_name(&other["network"], last(&other["region"])));
                    routes.extend(ranges(other).into_iter().map(|net| (net, hop.clone())));
                }
            }
            routes.extend(self.global_routes(subnet));
            let mut learns_from = self.routers_of(&subnet["network"], last(&subnet["region"]));
            for exporter in self.exporters(&subnet["network"]) {
                learns_from.extend(self.routers_of(&exporter, last(&subnet["region"])));
            }
            if let Some(network) = wire.networks.get_mut(&own) {
                *network = Network { spaces: network.spaces.clone(), routes, learns_from };
            }
        }
        for (path, router) in self.of_kind("routers").filter(|(_, router)| !router["bgp"]["asn"].is_null()) {
            let routes = self.advertised(router, &subnets);
            let link = router["selfLink"].clone();
            let tunnels = self.of_kind("vpnTunnels").filter(|(_, tunnel)| tunnel["router"] == link);
            let tunnels = tunnels.filter_map(|(path, _)| self.tunnel_end(path)).collect();
            wire.gateways.insert(path.clone(), Gateway { routes, tunnels });
        }
        for (_, instance) in self.of_kind("instances").filter(|(_, one)| one["status"] == "RUNNING") {
            let interface = &instance["networkInterfaces"][0];
            let zone = last(&instance["zone"]);
            let region = zone.rsplit_once('-').map_or(zone, |(region, _)| region);
            let home = wire_name(&interface["network"], region);
            let beside = wire.networks.get(&home).map(|network| network.routes.clone());
            let routes: Vec<(Ipv4Net, Hop)> =
                beside.into_iter().flatten().chain(self.ways_out(&interface["subnetwork"])).collect();
            let node = interface["networkIP"].as_str().and_then(|text| text.parse().ok());
            // Of a node's range for Pods, one is there.
            let pods = list(&interface["aliasIpRanges"]);
            let pods = pods.filter_map(|one| net(&one["ipCidrRange"])?.hosts().nth(1));
            for address in [node].into_iter().flatten().chain(pods) {
                wire.hosts.push(Host {
                    address: Some(address),
                    network: home.clone(),
                    routes: Some(routes.clone()),
                    cut_off: Vec::new(),
                    inbound: self.firewall(instance, "INGRESS"),
                    outbound: self.firewall(instance, "EGRESS"),
                    guard: self.guard(&interface["network"], Some(address)),
                });
            }
        }
        self.join_endpoints(wire);
    }

    /// Where hosts of a subnet get out without an address of the internet: everywhere by a NAT, of the subnet's own or for all
    /// of its region; to Google's APIs if the subnet says so.
    fn ways_out(&self, link: &Value) -> Vec<(Ipv4Net, Hop)> {
        let path = path_of(link.as_str().unwrap_or_default(), "");
        let Some(subnet) = self.objects.get(&path) else { return Vec::new() };
        let mut routers = self.of_kind("routers").map(|(_, router)| router);
        let has_nat = routers.any(|router| {
            let nats = list(&router["nats"]);
            let mut wide = nats.filter(|nat| nat["sourceSubnetworkIpRangesToNat"] != "LIST_OF_SUBNETWORKS");
            let near = router["network"] == subnet["network"] && router["region"] == subnet["region"];
            near && (wide.next().is_some() || translates(router, link.as_str().unwrap_or_default()))
        });
        let to_google = GOOGLE.map(|net| (net, Hop::Internet));
        let to_google = to_google.into_iter().filter(|_| subnet["privateIpGoogleAccess"] == true);
        to_google.chain(has_nat.then_some((Ipv4Net::default(), Hop::Internet))).collect()
    }

    /// What a router tells its peers, and where it leads: the subnets of its network, unless it says something else, and
    /// ranges of its own, which may be those of peered networks.
    fn advertised(&self, router: &Value, subnets: &[&Value]) -> Vec<(Ipv4Net, GatewayHop)> {
        let bgp = &router["bgp"];
        let hop =
            |subnet: &Value| GatewayHop::Network(wire_name(&subnet["network"], last(&subnet["region"])));
        let all = bgp["advertiseMode"] != "CUSTOM"
            || bgp["advertisedGroups"]
                .as_array()
                .is_some_and(|groups| groups.contains(&"ALL_SUBNETS".into()));
        let near = |subnet: &&&Value| {
            let inside = self.is_global(&router["network"]) || subnet["region"] == router["region"];
            all && inside && subnet["network"] == router["network"]
        };
        let own = subnets.iter().filter(near);
        let own = own.flat_map(|one| ranges(one).into_iter().map(move |range| (range, hop(one))));
        let peers = self.active_peers(&router["network"]);
        let more = list(&bgp["advertisedIpRanges"]);
        let more = more.filter_map(|one| net(&one["range"])).map(|range| {
            let holds = |one: &&&Value| {
                ranges(one).iter().any(|space| space.contains(&range) || range.contains(space))
                    && (one["network"] == router["network"] || peers.contains(&one["network"]))
            };
            let nowhere = || GatewayHop::Network(String::new());
            (range, subnets.iter().find(holds).map_or_else(nowhere, |one| hop(one)))
        });
        own.chain(more.filter(|_| bgp["advertiseMode"] == "CUSTOM")).collect()
    }

    /// Networks whose custom routes a network imports, and that export them.
    fn exporters(&self, network: &Value) -> Vec<Value> {
        let exports = |other: &Value| {
            let other = self.objects.get(&path_of(other.as_str().unwrap_or_default(), ""));
            let back = other.and_then(|other| other["peerings"].as_array()).into_iter().flatten();
            back.into_iter().any(|one| one["network"] == *network && one["exportCustomRoutes"] == true)
        };
        let path = path_of(network.as_str().unwrap_or_default(), "");
        let peerings = self.objects.get(&path).and_then(|network| network["peerings"].as_array());
        let peerings = peerings.into_iter().flatten().filter(|one| one["state"] == "ACTIVE");
        let imported = peerings.filter(|one| one["importCustomRoutes"] == true);
        imported.map(|one| one["network"].clone()).filter(exports).collect()
    }

    fn is_global(&self, network: &Value) -> bool {
        let path = path_of(network.as_str().unwrap_or_default(), "");
        self.objects.get(&path).is_some_and(|network| network["routingConfig"]["routingMode"] == "GLOBAL")
    }

    pub(super) fn active_peers(&self, network: &Value) -> Vec<Value> {
        let path = path_of(network.as_str().unwrap_or_default(), "");
        let peerings = self.objects.get(&path).map(|network| network["peerings"].clone()).unwrap_or_default();
        let active = peerings.as_array().into_iter().flatten().filter(|one| one["state"] == "ACTIVE");
        active.map(|one| one["network"].clone()).collect()
    }

    fn routers_of(&self, network: &Value, region: &str) -> Vec<String> {
        let global = self.is_global(network);
        self.of_kind("routers")
            .filter(|(_, router)| {
                router["network"] == *network && (global || last(&router["region"]) == region)
            })
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// The lines for one instance, with what Google implies: nothing in, everything out.
    fn firewall(&self, instance: &Value, direction: &str) -> Firewall {
        let rules = self.firewalls_for(instance).filter(|rule| rule["direction"] == direction);
        let mut lines: Vec<Line> = rules.flat_map(lines).collect();
        lines.push(Line {
            priority: 65_536,
            allow: direction == "EGRESS",
            protocol: None,
            ports: vec![],
            src_ports: vec![],
            peers: vec![Ipv4Net::default()],
        });
        Firewall(lines)
    }

    /// The firewalls of an instance's network that are for it.
    pub(super) fn firewalls_for<'g>(&'g self, instance: &'g Value) -> impl Iterator<Item = &'g Value> {
        let network = &instance["networkInterfaces"][0]["network"];
        let has = |tag: &Value| instance["tags"]["items"].as_array().is_some_and(|tags| tags.contains(tag));
        let applies = move |rule: &&Value| {
            let targets = rule["targetTags"].as_array();
            rule["network"] == *network
                && rule["disabled"] != true
                && targets.is_none_or(|list| list.iter().any(has))
        };
        self.of_kind("firewalls").map(|(_, rule)| rule).filter(applies)
    }

    /// A tunnel that is made, as an end on the wire.
    pub(super) fn tunnel_end(&self, path: &str) -> Option<Tunnel> {
        let tunnel = self.objects.get(path).filter(|tunnel| Self::is_there(tunnel))?;
        let gateway = self.objects.get(&path_of(tunnel["vpnGateway"].as_str()?, ""))?;
        let router = self.objects.get(&path_of(tunnel["router"].as_str()?, ""))?;
        let number = usize::try_from(tunnel["vpnGatewayInterface"].as_u64()?).ok()?;
        let address = |value: &Value| value.as_str()?.parse::<Ipv4Addr>().ok();
        let session = || {
            let mut interfaces = router["interfaces"].as_array()?.iter();
            let interface = interfaces.find(|one| one["linkedVpnTunnel"] == tunnel["selfLink"])?;
            let peer = router["bgpPeers"]
                .as_array()?
                .iter()
                .find(|peer| peer["interfaceName"] == interface["name"])?;
            let own: Ipv4Net = interface["ipRange"].as_str()?.parse().ok()?;
            Some(Bgp {
                local: own.addr(),
                peer: address(&peer["peerIpAddress"])?,
                local_asn: u32::try_from(router["bgp"]["asn"].as_u64()?).ok()?,
                peer_asn: u32::try_from(peer["peerAsn"].as_u64()?).ok()?,
            })
        };
        Some(Tunnel {
            local: address(&gateway["vpnInterfaces"][number]["ipAddress"])?,
            remote: address(&tunnel["peerIp"])?,
            key: tunnel["_secret"].as_str()?.to_owned(),
            ike: u8::try_from(tunnel["ikeVersion"].as_u64()?).ok()?,
            bgp: session(),
            routes: Vec::new(),
        })
    }
}

fn lines(rule: &Value) -> Vec<Line> {
    let allow = !rule["allowed"].is_null();
    let list = if allow { &rule["allowed"] } else { &rule["denied"] };
    let ranges =
        if rule["direction"] == "EGRESS" { &rule["destinationRanges"] } else { &rule["sourceRanges"] };
    let peers: Vec<Ipv4Net> = ranges.as_array().into_iter().flatten().filter_map(net).collect();
    let priority = u32::try_from(rule["priority"].as_u64().unwrap_or_default()).unwrap_or(u32::MAX);
    let lines = list.as_array().into_iter().flatten();
    lines.filter_map(|one| line(one, "IPProtocol", priority, allow, &peers)).collect()
}

/// What a protocol and its ports say, of firewalls and of policies alike.
pub(super) fn line(
    one: &Value,
    protocol: &str,
    priority: u32,
    allow: bool,
    peers: &[Ipv4Net],
) -> Option<Line> {
    let protocol = match one[protocol].as_str()? {
        "all" => None,
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmp" => Some(1),
        "esp" => Some(50),
        "ah" => Some(51),
        "sctp" => Some(132),
        number => Some(number.parse().ok()?),
    };
    let port = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    let ports = list(&one["ports"]).filter_map(|text| port(text.as_str()?)).collect();
    Some(Line { priority, allow, protocol, ports, src_ports: vec![], peers: peers.to_vec() })
}
