//! Customer gateways and VPN connections of two tunnels each.

use std::collections::BTreeSet;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{Action, Outcome, Refusal, configuration::configuration, refuse, state::Ec2};
use crate::{
    rest::{items, list, text},
    wire::Wire,
};

const MISSING: &str = "InvalidVpnConnectionID.NotFound";

fn check_tunnel(options: &Value) -> Result<(), Refusal> {
    let bad = |what: &str| Err(refuse("InvalidParameterValue", format!("The value for {what} is invalid.")));
    if let Some(text) = options["TunnelInsideCidr"].as_str() {
        let net: Option<Ipv4Net> = text.parse().ok();
        let block = Ipv4Net::new_assert([169, 254, 0, 0].into(), 16);
        let reserved = [
            "169.254.0.0/30",
            "169.254.1.0/30",
            "169.254.2.0/30",
            "169.254.3.0/30",
            "169.254.4.0/30",
            "169.254.5.0/30",
            "169.254.169.252/30",
        ];
        let fine = net
            .is_some_and(|net| net.prefix_len() == 30 && block.contains(&net) && net.trunc() == net)
            && !reserved.contains(&text);
        if !fine {
            return bad("TunnelInsideCidr");
        }
    }
    if let Some(key) = options["PreSharedKey"].as_str() {
        let legal = |letter: char| letter.is_ascii_alphanumeric() || letter == '.' || letter == '_';
        if !(8..=64).contains(&key.len()) || key.starts_with('0') || !key.chars().all(legal) {
            return bad("PreSharedKey");
        }
    }
    Ok(())
}

impl Ec2 {
    pub(super) fn vpn(&mut self, action: &str, ask: &Action<'_>) -> Option<Outcome> {
        Some(match action {
            "CreateCustomerGateway" => self.create_customer(ask),
            "DescribeCustomerGateways" => self.describe(
                "cgw",
                "CustomerGatewayIds",
                "CustomerGateways",
                "InvalidCustomerGatewayID.NotFound",
                ask,
            ),
            "DeleteCustomerGateway" => self.delete_customer(ask),
            "CreateVpnConnection" => self.create_connection(ask),
            "DescribeVpnConnections" => {
                self.describe("vpn", "VpnConnectionIds", "VpnConnections", MISSING, ask).map(|mut found| {
                    let each = found["VpnConnections"].as_array_mut().into_iter().flatten();
                    each.for_each(|connection| self.configure(connection));
                    found
                })
            }
            "ModifyVpnTunnelOptions" => self.modify_tunnel(ask),
            "DeleteVpnConnection" => self.delete_connection(ask),
            _ => return None,
        })
    }

    fn create_customer(&mut self, ask: &Action<'_>) -> Outcome {
        let asn = ask.input["BgpAsn"].as_i64().or(ask.input["BgpAsnExtended"].as_i64()).unwrap_or(65_000);
        if asn <= 0 {
            bail!("InvalidParameterValue", "The value for BgpAsn is invalid.");
        }
        // Older clients call it so.
        let ip = ask.input["IpAddress"].as_str().unwrap_or_else(|| ask.text("PublicIp")).to_owned();
        if ip.parse::<std::net::Ipv4Addr>().is_err() {
            bail!("InvalidParameterValue", "{ip} is no address");
        }
        // The same again is the same one.
        let same = self.all("cgw").find(|(_, one)| {
            one["_region"] == ask.region
                && one["IpAddress"] == ip.as_str()
                && one["BgpAsn"] == asn.to_string().as_str()
        });
        if let Some((_, there)) = same {
            return Ok(json!({"CustomerGateway": there.clone()}));
        }
        let id = self.new_id("cgw");
        let object = json!({"CustomerGatewayId": id, "IpAddress": ip, "BgpAsn": asn.to_string(), "Type": "ipsec.1", "State": "available"});
        Ok(json!({"CustomerGateway": self.put(&id, "customer-gateway", object, ask)}))
    }

    fn delete_customer(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("CustomerGatewayId").to_owned();
        self.get(&id, ask, "InvalidCustomerGatewayID.NotFound")?;
        if self.all("vpn").any(|(_, one)| one["CustomerGatewayId"] == id.as_str()) {
            bail!("IncorrectState", "The customer gateway {id} is in use.");
        }
        if let Some(object) = self.objects.get_mut(&id) {
            object["State"] = "deleted".into();
        }
        self.later(&id, "gone", ask.now + 3000);
        Ok(json!({}))
    }

    fn create_connection(&mut self, ask: &Action<'_>) -> Outcome {
        let (customer, transit) =
            (ask.text("CustomerGatewayId").to_owned(), ask.text("TransitGatewayId").to_owned());
        self.get(&customer, ask, "InvalidCustomerGatewayID.NotFound")?;
        let state = self.get(&transit, ask, "InvalidTransitGatewayID.NotFound")?["State"].clone();
        if state != "available" {
            bail!("IncorrectState", "{transit} is in invalid state");
        }
        let asked = items(&ask.input["Options"]["TunnelOptions"]);
        let inside = |one: &Value| -> Vec<String> {
            let tunnels = list(&one["Options"]["TunnelOptions"]);
            tunnels.filter_map(|tunnel| tunnel["TunnelInsideCidr"].as_str().map(str::to_owned)).collect()
        };
        let used: Vec<String> = self
            .all("vpn")
            .filter(|(_, one)| one["TransitGatewayId"] == transit.as_str())
            .flat_map(|(_, one)| inside(one))
            .collect();
        for options in &asked {
            check_tunnel(options)?;
            if options["TunnelInsideCidr"].as_str().is_some_and(|net| used.iter().any(|used| used == net)) {
                bail!("InvalidParameterValue", "TunnelInsideCidr is in use at this gateway.");
            }
        }
        let id = self.new_id("vpn");
        let mut tunnels = Vec::new();
        for number in 0..2u64 {
            let asked = asked.get(usize::try_from(number).unwrap_or(0)).cloned().unwrap_or_default();
            let chosen =
                format!("169.254.{}.{}/30", 100 + self.made % 60, 4 * (self.made % 60) + number * 4 % 8);
            let tunnel = json!({"OutsideIpAddress": self.public_address(),
                "TunnelInsideCidr": asked["TunnelInsideCidr"].as_str().unwrap_or(&chosen),
                "PreSharedKey": asked["PreSharedKey"].as_str().unwrap_or("aGeneratedKeyOfTheCloud"),
                "IkeVersions": asked["IKEVersions"].as_array().cloned().unwrap_or_else(|| vec![json!({"Value": "ikev1"}), json!({"Value": "ikev2"})]),
                "StartupAction": asked["StartupAction"].as_str().unwrap_or("add")});
            tunnels.push(tunnel);
        }
        let object = json!({"VpnConnectionId": id, "CustomerGatewayId": customer, "TransitGatewayId": transit, "Type": "ipsec.1", "State": "pending", "Category": "VPN",
            "Options": {"StaticRoutesOnly": ask.input["Options"]["StaticRoutesOnly"] == true, "TunnelOptions": tunnels}, "Routes": [], "VgwTelemetry": []});
        let mut object = self.put(&id, "vpn-connection", object, ask);
        self.later(&id, "available", ask.now + 240);
        self.configure(&mut object);
        Ok(json!({"VpnConnection": object}))
    }

    /// Adds what the other end needs to know, while there is something to set up.
    fn configure(&self, connection: &mut Value) {
        let find = |field: &str| self.objects.get(connection[field].as_str()?);
        if let ("pending" | "available", Some(customer), Some(transit)) =
            (text(&connection["State"]), find("CustomerGatewayId"), find("TransitGatewayId"))
        {
            let text = configuration(connection, customer, transit);
            connection["CustomerGatewayConfiguration"] = text.into();
        }
    }

    fn modify_tunnel(&mut self, ask: &Action<'_>) -> Outcome {
        check_tunnel(&ask.input["TunnelOptions"])?;
        let id = ask.text("VpnConnectionId").to_owned();
        let outside = ask.text("VpnTunnelOutsideIpAddress").to_owned();
        let options = ask.input["TunnelOptions"].clone();
        let object = self.get_mut(&id, ask, MISSING)?;
        if object["State"] != "available" {
            bail!("IncorrectState", "{id} is in invalid state");
        }
        let tunnels = object["Options"]["TunnelOptions"].as_array_mut().into_iter().flatten();
        for tunnel in tunnels.filter(|tunnel| tunnel["OutsideIpAddress"] == outside.as_str()) {
            for (from, to) in [
                ("PreSharedKey", "PreSharedKey"),
                ("TunnelInsideCidr", "TunnelInsideCidr"),
                ("IKEVersions", "IkeVersions"),
                ("StartupAction", "StartupAction"),
            ] {
                if !options[from].is_null() {
                    tunnel[to] = options[from].clone();
                }
            }
        }
        object["State"] = "pending".into();
        let mut shown = object.clone();
        self.later(&id, "available", ask.now + 120);
        self.configure(&mut shown);
        Ok(json!({"VpnConnection": shown}))
    }

    fn delete_connection(&mut self, ask: &Action<'_>) -> Outcome {
        let id = ask.text("VpnConnectionId").to_owned();
        let object = self.get_mut(&id, ask, MISSING)?;
        object["State"] = "deleting".into();
        self.later(&id, "deleted", ask.now + 60);
        Ok(json!({}))
    }

    /// Fills in how the tunnels are, and what their other ends tell.
    pub(super) fn telemetry(&mut self, wire: &Wire) {
        let ids: Vec<String> = self.all("vpn").map(|(id, _)| id.clone()).collect();
        for id in ids {
            let ends = self.tunnels_of(&id);
            let Some(object) = self.objects.get_mut(&id) else { continue };
            let gateway = text(&object["TransitGatewayId"]).to_owned();
            let learnt = wire.gateways.get(&gateway).map_or(0, |gateway| wire.learnt(gateway).len());
            let peers = ends.iter().filter_map(|end| wire.gateways.get(wire.bgp_peer(end)?));
            let told: BTreeSet<String> =
                peers.flat_map(|peer| &peer.routes).map(|(net, _)| net.to_string()).collect();
            object["_told"] = told.into_iter().collect();
            let shown = ends.iter().map(|end| {
                let up = wire.bgp_peer(end).is_some();
                json!({"OutsideIpAddress": end.local.to_string(), "Status": if up { "UP" } else { "DOWN" }, "AcceptedRouteCount": if up { learnt } else { 0 },
                    "StatusMessage": if up { "" } else if wire.is_up(end) { "IPSEC IS UP" } else { "IPSEC IS DOWN" }, "LastStatusChange": "2026-10-01T00:00:00Z"})
            });
            let shown: Vec<Value> = shown.collect();
            object["VgwTelemetry"] = shown.into();
        }
    }
}
