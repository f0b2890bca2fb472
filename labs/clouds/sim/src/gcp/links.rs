//! Tunnels and routers.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{
    Refusal, refuse,
    state::{Gce, Request, path_of},
};
use crate::{
    rest::{items, list, text},
    wire::Wire,
};

/// Whether a router has a NAT for a subnet that it names.
pub(super) fn translates(router: &Value, subnet: &str) -> bool {
    let nats = list(&router["nats"]);
    let mut named = nats.flat_map(|nat| list(&nat["subnetworks"]));
    named.any(|one| one["name"] == subnet)
}

impl Gce {
    pub(super) fn check_tunnel(&mut self, object: &mut Value) -> Result<(), Refusal> {
        let bad = |message: &str| Err(refuse(400, "invalid", message));
        for needed in ["vpnGateway", "peerExternalGateway", "router", "sharedSecret"] {
            if object[needed].is_null() {
                bail!(400, "required", "Required field 'resource.{needed}' not specified");
            }
        }
        if !matches!(object["vpnGatewayInterface"].as_u64(), Some(0 | 1)) {
            return bad("Invalid value for field 'resource.vpnGatewayInterface'");
        }
        let external = self.ready(&path_of(text(&object["peerExternalGateway"]), ""))?;
        let interface = object["peerExternalGatewayInterface"].clone();
        let found = list(&external["interfaces"]).find(|one| one["id"] == interface);
        let Some(found) = found else {
            return bad("Invalid value for field 'resource.peerExternalGatewayInterface'");
        };
        object["peerIp"] = found["ipAddress"].clone();
        // Write only.
        object["_secret"] = object["sharedSecret"].take();
        object["sharedSecret"] = "*************".into();
        object["sharedSecretHash"] = "AJ-hash".into();
        object["status"] = "PROVISIONING".into();
        object["detailedStatus"] = "Provisioning".into();
        if object["ikeVersion"].is_null() {
            object["ikeVersion"] = 2.into();
        }
        Ok(())
    }

    pub(super) fn check_router(&mut self, request: &Request<'_>, object: &mut Value) -> Result<(), Refusal> {
        let bad = |message: String| Err(refuse(400, "invalid", message));
        if let Some(asn) = object["bgp"]["asn"].as_u64() {
            let private = (64_512..=65_534).contains(&asn) || (4_200_000_000..=4_294_967_294).contains(&asn);
            if !private {
                return bad(format!("{asn} is no private ASN"));
            }
        }
        let ranges = items(&object["bgp"]["advertisedIpRanges"]);
        let groups = object["bgp"]["advertisedGroups"].as_array().is_some_and(|list| !list.is_empty());
        if object["bgp"]["advertiseMode"] != "CUSTOM" && (groups || !ranges.is_empty()) {
            return bad("Advertised groups and ranges go with the mode CUSTOM only.".to_owned());
        }
        if let Some(range) = ranges.iter().find(|one| {
            let net = one["range"].as_str().and_then(|text| text.parse::<ipnet::Ipv4Net>().ok());
            net.is_none_or(|net| net.trunc() != net)
        }) {
            return bad(format!("Invalid value for field 'resource.bgp.advertisedIpRanges': '{range}'"));
        }
        let interfaces = items(&object["interfaces"]);
        for (number, interface) in interfaces.iter().enumerate() {
            let path = path_of(text(&interface["linkedVpnTunnel"]), &request.target.project);
            let tunnel = self.ready(&path)?;
            object["interfaces"][number]["linkedVpnTunnel"] = tunnel["selfLink"].clone();
        }
        for peer in list(&object["bgpPeers"]) {
            let interface = interfaces.iter().find(|one| one["name"] == peer["interfaceName"]);
            let Some(interface) = interface else {
                return bad(format!("There is no interface {}", peer["interfaceName"]));
            };
            let own = interface["ipRange"].as_str().and_then(|text| text.parse::<ipnet::Ipv4Net>().ok());
            let theirs = peer["peerIpAddress"].as_str().and_then(|text| text.parse::<Ipv4Addr>().ok());
            let facing = matches!((own, theirs), (Some(own), Some(theirs)) if own.prefix_len() == 30 && own.contains(&theirs) && own.addr() != theirs);
            if !facing {
                return bad(format!(
                    "peerIpAddress {} is not within the interface's range",
                    peer["peerIpAddress"]
                ));
            }
        }
        for nat in list(&object["nats"]) {
            if nat["natIpAllocateOption"].is_null() || nat["sourceSubnetworkIpRangesToNat"].is_null() {
                return bad("A NAT needs natIpAllocateOption and sourceSubnetworkIpRangesToNat.".to_owned());
            }
        }
        self.check_nats(request, object)
    }

    /// Subnets have one NAT each.
    fn check_nats(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Refusal> {
        let bad = |message: &str| Err(refuse(400, "invalid", message));
        let mut links = Vec::new();
        for nat in object.get_mut("nats").and_then(Value::as_array_mut).into_iter().flatten() {
            let listed = nat["sourceSubnetworkIpRangesToNat"] == "LIST_OF_SUBNETWORKS";
            let subnets = items(&nat["subnetworks"]);
            if listed == subnets.is_empty() {
                return bad("A NAT for a list of subnetworks has one, and no other NAT has.");
            }
            for (place, subnet) in subnets.iter().enumerate() {
                if subnet["sourceIpRangesToNat"].as_array().is_none_or(Vec::is_empty) {
                    return bad("A subnetwork of a NAT needs sourceIpRangesToNat.");
                }
                let path = path_of(text(&subnet["name"]), &request.target.project);
                let link = self.ready(&path)?["selfLink"].clone();
                nat["subnetworks"][place]["name"] = link.clone();
                links.push(link);
            }
        }
        let own = request.path(text(&object["name"]));
        let beside = |path: &String, other: &Value| {
            *path != own && other["network"] == object["network"] && other["region"] == object["region"]
        };
        let others = self.of_kind("routers").filter(|(path, other)| beside(path, other));
        for nat in others.flat_map(|(_, other)| list(&other["nats"])) {
            let is_wide = |nat: &Value| nat["sourceSubnetworkIpRangesToNat"] != "LIST_OF_SUBNETWORKS";
            let mut own = list(&object["nats"]).peekable();
            let (any, wide) = (own.peek().is_some(), own.any(is_wide));
            let shares = list(&nat["subnetworks"]).any(|one| links.contains(&one["name"]));
            if any && (wide || is_wide(nat) || shares) {
                return bad("There is another NAT for the same subnetworks of that network and region.");
            }
        }
        Ok(())
    }

    /// Fills in how tunnels and sessions are.
    pub(crate) fn telemetry(&mut self, wire: &Wire) {
        let tunnels: Vec<String> = self.of_kind("vpnTunnels").map(|(path, _)| path.clone()).collect();
        for path in tunnels {
            let up = self.tunnel_end(&path).is_some_and(|end| wire.is_up(&end));
            let Some(tunnel) = self.objects.get_mut(&path) else { continue };
            if tunnel["_until"].is_null() {
                tunnel["status"] = if up { "ESTABLISHED" } else { "NO_INCOMING_PACKETS" }.into();
                tunnel["detailedStatus"] =
                    if up { "Tunnel is up and running." } else { "No incoming packets from peer" }.into();
            }
        }
        let routers: Vec<String> = self.of_kind("routers").map(|(path, _)| path.clone()).collect();
        for path in routers {
            let router = self.objects[&path].clone();
            let mut shown = Vec::new();
            let mut learnt = 0;
            let peers = list(&router["bgpPeers"]);
            for peer in peers {
                let interfaces = list(&router["interfaces"]);
                let linked = interfaces
                    .into_iter()
                    .find(|one| one["name"] == peer["interfaceName"])
                    .map(|one| path_of(text(&one["linkedVpnTunnel"]), ""));
                let end = linked.and_then(|path| self.tunnel_end(&path));
                let far =
                    end.as_ref().and_then(|end| wire.bgp_peer(end)).and_then(|name| wire.gateways.get(name));
                let routes = far.map_or(0, |far| far.routes.len());
                learnt += routes;
                shown.push(json!({"name": peer["name"], "status": if far.is_some() { "UP" } else { "DOWN" }, "numLearnedRoutes": routes, "peerIpAddress": peer["peerIpAddress"]}));
            }
            let gateway = wire.gateways.get(&path);
            let routes: Vec<Value> = gateway
                .map(|gateway| wire.learnt(gateway))
                .unwrap_or_default()
                .into_iter()
                .map(|(net, _)| json!({"destRange": net.to_string(), "network": router["network"], "priority": 0}))
                .collect();
            if let Some(router) = self.objects.get_mut(&path) {
                router["_status"] = json!({"network": router["network"], "bgpPeerStatus": shown, "bestRoutes": if learnt > 0 { routes } else { vec![] }});
            }
        }
    }
}
