//! VPN gateways and their connections, and what they are asked.

use std::{collections::BTreeSet, net::Ipv4Addr};

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Outcome, Refusal, busy, is,
    objects::listed,
    refuse,
    state::{Azure, Request, key},
};
use crate::{
    rest::{items, list, text},
    wire::Wire,
};

impl Azure {
    /// The gateway that stands in a virtual network.
    pub(super) fn gateway_in(&self, vnet: &str) -> Option<(&String, &Value)> {
        let start = format!("{}/subnets/", key(vnet));
        self.of_kind("virtualNetworkGateways").find(|(_, gateway)| {
            listed(gateway, "ipConfigurations")
                .any(|one| key(text(&one["properties"]["subnet"]["id"])).starts_with(&start))
        })
    }

    pub(super) fn check_gateway(&self, object: &mut Value, there: Option<&Value>) -> Result<(), Refusal> {
        let bad = |code, message: &str| Err(refuse(400, code, message));
        let (id, location) = (text(&object["id"]).to_owned(), object["location"].clone());
        let properties = object["properties"].clone();
        let sku = text(&properties["sku"]["name"]);
        if !sku.starts_with("VpnGw") || !sku.ends_with("AZ") {
            return bad("NonAzSkusNotAllowedForVPNGateway", "New VPN gateways need an AZ SKU.");
        }
        if properties["gatewayType"] != "Vpn" || properties["vpnType"] != "RouteBased" {
            return bad("GatewayTypeNotSupported", "Only route-based VPN gateways are simulated.");
        }
        let instances = items(&properties["ipConfigurations"]);
        let wanted = if properties["activeActive"] == true { 2 } else { 1 };
        if instances.len() != wanted {
            return bad(
                "ActiveActiveGatewayNeedsTwoIpConfigurations",
                "The number of configurations is wrong.",
            );
        }
        let (mut tunnels, mut defaults) = (Vec::new(), Vec::new());
        for one in &instances {
            let reference = text(&one["properties"]["subnet"]["id"]);
            let (vnet, subnet) = self.subnet(reference)?;
            let net: Option<Ipv4Net> = text(&subnet["properties"]["addressPrefix"]).parse().ok();
            let net = net.filter(|net| net.prefix_len() <= 27);
            let fits = subnet["name"] == "GatewaySubnet" && vnet["location"] == location;
            let Some(net) = net.filter(|_| fits) else {
                return bad("InvalidGatewaySubnet", "A gateway needs a GatewaySubnet, /27 or larger.");
            };
            // Two instances have the first addresses that are free, one alone has the last.
            let first = u32::from(net.network()) + 4 + u32::try_from(defaults.len()).unwrap_or_default();
            let alone = u32::from(net.broadcast()) - 1;
            defaults.push(Ipv4Addr::from(if wanted == 2 { first } else { alone }).to_string());
            if self.gateway_in(text(&vnet["id"])).is_some_and(|(other, _)| *other != key(&id)) {
                return bad("VirtualNetworkAlreadyHasGateway", "A network has one VPN gateway at most.");
            }
            let address = self.ready(text(&one["properties"]["publicIPAddress"]["id"]))?;
            let zones = address["zones"].as_array().is_some_and(|zones| !zones.is_empty());
            if !is(text(&address["sku"]["name"]), "Standard") || (!zones && location != "westus") {
                let code = "VmssVpnGatewayPublicIpsMustHaveZonesConfigured";
                return bad(code, "The gateway's public addresses need zones.");
            }
            tunnels.push(address["properties"]["ipAddress"].clone());
        }
        let bgp = &properties["bgpSettings"];
        super::check::asn(&bgp["asn"], false)?;
        let mut peering = Vec::new();
        let mut seen = BTreeSet::new();
        for (number, one) in instances.iter().enumerate() {
            let own = format!("{id}/ipConfigurations/{}", text(&one["name"]));
            let given = list(&bgp["bgpPeeringAddresses"]);
            let given = given.into_iter().find(|given| is(text(&given["ipconfigurationId"]), &own));
            let custom = given.map(|given| given["customBgpIpAddresses"].clone()).filter(Value::is_array);
            let custom = custom.unwrap_or_else(|| json!([]));
            for address in custom.as_array().into_iter().flatten() {
                let range = Ipv4Addr::new(169, 254, 21, 0)..=Ipv4Addr::new(169, 254, 22, 255);
                let legal = text(address).parse().is_ok_and(|address: Ipv4Addr| range.contains(&address));
                if !legal || !seen.insert(text(address).to_owned()) {
                    return bad(
                        "InvalidCustomBgpIpAddress",
                        "It must be from 169.254.21.0 to 169.254.22.255, once.",
                    );
                }
            }
            peering.push(json!({"ipconfigurationId": own, "defaultBgpIpAddresses": [defaults[number]], "customBgpIpAddresses": custom, "tunnelIpAddresses": [tunnels[number]]}));
        }
        if let Some(there) = there {
            self.check_freed(&id, there, &seen)?;
        }
        let asn = bgp["asn"].as_u64().unwrap_or(65_515);
        object["properties"]["bgpSettings"] = json!({"asn": asn, "bgpPeeringAddress": defaults.join(","), "peerWeight": 0, "bgpPeeringAddresses": peering});
        Ok(())
    }

    /// Addresses that connections use cannot be taken from the gateway.
    fn check_freed(&self, id: &str, there: &Value, kept: &BTreeSet<String>) -> Result<(), Refusal> {
        let connections = self.connections_of(id);
        let used = connections.iter().flat_map(|(_, one)| listed(one, "gatewayCustomBgpIpAddresses"));
        let lost = used.into_iter().find(|one| !kept.contains(text(&one["customBgpIpAddress"])));
        match lost {
            Some(lost) => {
                let message =
                    format!("{} is used by a connection of {}.", lost["customBgpIpAddress"], there["name"]);
                Err(refuse(400, "CustomBgpIpAddressInUse", message))
            }
            None => Ok(()),
        }
    }

    fn connections_of(&self, gateway: &str) -> Vec<(&String, &Value)> {
        let all = self.of_kind("connections");
        all.filter(|(_, one)| is(text(&one["properties"]["virtualNetworkGateway1"]["id"]), gateway)).collect()
    }

    pub(super) fn check_connection(
        &mut self,
        object: &mut Value,
        there: Option<&Value>,
    ) -> Result<(), Refusal> {
        let bad = |code, message: &str| Err(refuse(400, code, message));
        let properties = object["properties"].clone();
        let gateway_id = text(&properties["virtualNetworkGateway1"]["id"]).to_owned();
        let gateway = self.ready(&gateway_id)?;
        // A gateway takes one change of its connections at a time.
        if self.connections_of(&gateway_id).iter().any(|(_, one)| !one["_until"].is_null()) {
            return Err(busy(&gateway_id));
        }
        let peer = self.ready(text(&properties["localNetworkGateway2"]["id"]))?;
        if !is(text(&properties["connectionType"]), "IPsec") {
            return bad("ConnectionTypeNotSupported", "Only IPsec is simulated.");
        }
        let enabled = properties["enableBgp"] == true;
        if enabled
            && (gateway["properties"]["enableBgp"] != true || peer["properties"]["bgpSettings"].is_null())
        {
            return bad("BgpNotEnabled", "BGP is not enabled at the gateway or not set at its peer.");
        }
        let own: Vec<(String, String)> = list(&gateway["properties"]["bgpSettings"]["bgpPeeringAddresses"])
            .flat_map(|one| {
                let custom = list(&one["customBgpIpAddresses"]);
                custom.map(|address| (key(text(&one["ipconfigurationId"])), text(address).to_owned()))
            })
            .collect();
        for one in listed(object, "gatewayCustomBgpIpAddresses") {
            let pair = (key(text(&one["ipConfigurationId"])), text(&one["customBgpIpAddress"]).to_owned());
            if !own.contains(&pair) {
                return bad(
                    "InvalidGatewayCustomBgpIpAddress",
                    "The gateway does not have that BGP address.",
                );
            }
        }
        let given = properties["sharedKey"].as_str().map(str::to_owned);
        if let Some(given) = &given {
            check_key(given)?;
        }
        let kept = there.map(|there| there["_key"].clone());
        // The key of a connection that is there changes by its own request only; here Azure silently keeps it.
        object["_key"] = kept.or(given.map(Value::from)).unwrap_or_else(|| "generated".into());
        if let Value::Object(fields) = &mut object["properties"] {
            fields.remove("sharedKey");
        }
        if object["properties"]["connectionProtocol"].is_null() {
            object["properties"]["connectionProtocol"] = "IKEv2".into();
        }
        object["properties"]["connectionStatus"] = "Unknown".into();
        for field in ["ingressBytesTransferred", "egressBytesTransferred"] {
            object["properties"][field] = 0.into();
        }
        Ok(())
    }

    pub(super) fn set_key(&mut self, request: &Request<'_>, id: &str) -> Result<Value, Refusal> {
        let given = text(&request.body["value"]).to_owned();
        check_key(&given)?;
        if let Some(connection) = self.objects.get_mut(&key(id)) {
            connection["_key"] = given.as_str().into();
        }
        Ok(json!({ "value": given }))
    }

    /// Fills in how connections and sessions are.
    pub(crate) fn telemetry(&mut self, wire: &Wire) {
        let ids: Vec<String> = self.of_kind("connections").map(|(id, _)| id.clone()).collect();
        for id in ids {
            let ends = self.tunnel_ends(&id);
            let up = ends.iter().any(|end| wire.is_up(end));
            let mut sessions = Vec::new();
            let mut routes = Vec::new();
            for end in &ends {
                let Some(bgp) = end.bgp else { continue };
                let far = wire.bgp_peer(end).and_then(|name| wire.gateways.get(name));
                let learnt: Vec<String> = far
                    .map(|far| far.routes.iter().map(|(net, _)| net.to_string()).collect())
                    .unwrap_or_default();
                sessions.push(json!({
                    "localAddress": bgp.local.to_string(), "neighbor": bgp.peer.to_string(), "asn": bgp.peer_asn,
                    "state": if far.is_some() { "Connected" } else { "Connecting" },
                    "connectedDuration": "00:10:00", "routesReceived": learnt.len(), "messagesSent": 10, "messagesReceived": 10,
                }));
                routes.extend(learnt.iter().map(|net| json!({
                    "localAddress": bgp.local.to_string(), "network": net, "nextHop": bgp.peer.to_string(),
                    "sourcePeer": bgp.peer.to_string(), "origin": "EBgp", "asPath": bgp.peer_asn.to_string(), "weight": 32768,
                })));
            }
            if let Some(connection) = self.objects.get_mut(&id) {
                connection["properties"]["connectionStatus"] =
                    if up { "Connected" } else { "NotConnected" }.into();
                connection["_sessions"] = sessions.into();
                connection["_routes"] = routes.into();
            }
        }
    }

    /// What a gateway is asked, and answers after a while.
    pub(super) fn question(&mut self, request: &Request<'_>) -> Outcome {
        let id = request.target.id();
        self.get(&id)?;
        let field = match request.target.child_kind.to_ascii_lowercase().as_str() {
            "getbgppeerstatus" => "_sessions",
            "getlearnedroutes" => "_routes",
            other => bail!(404, "InvalidResourceType", "{other} is not simulated"),
        };
        let connections = self.connections_of(&id);
        let all: Vec<Value> = connections.iter().flat_map(|(_, one)| list(&one[field]).cloned()).collect();
        self.ask_later(request, json!({ "value": all }))
    }
}

fn check_key(given: &str) -> Result<(), Refusal> {
    let legal = |byte: u8| byte.is_ascii_graphic() && byte != b'-' && byte != b'~';
    match (1..=128).contains(&given.len()) && given.bytes().all(legal) {
        true => Ok(()),
        false => Err(refuse(400, "InvalidSharedKey", "The shared key has characters that are not allowed.")),
    }
}
