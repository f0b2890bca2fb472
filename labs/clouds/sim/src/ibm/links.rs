//! VPN gateways, their connections and policies.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Outcome, Refusal,
    objects::{FULL, identity, reference},
    refuse,
    state::{Ibm, Request, missing},
};
use crate::{
    rest::{items, list, text},
    wire::Wire,
};

/// AS numbers that IBM keeps for itself.
const RESERVED: [(u64, u64); 9] = [
    (0, 0),
    (13_884, 13_884),
    (36_351, 36_351),
    (64_512, 64_513),
    (65_100, 65_100),
    (65_200, 65_234),
    (65_402, 65_433),
    (65_500, 65_500),
    (4_201_065_000, 4_201_065_999),
];

fn check_asn(value: &Value) -> Result<u64, Refusal> {
    let asn = value.as_u64().unwrap_or_default();
    if RESERVED.iter().any(|(first, last)| (*first..=*last).contains(&asn)) {
        bail!(400, "validation_failed", "The ASN {asn} is reserved");
    }
    Ok(asn)
}

/// Six to 128 letters, digits and some signs; not what looks like an encoded key.
pub(super) fn check_key(value: &Value) -> Result<(), Refusal> {
    let key = value.as_str().unwrap_or_default();
    let legal = |letter: char| letter.is_ascii_alphanumeric() || "-+&!@#$%^*().,:".contains(letter);
    let fine = (6..=128).contains(&key.len())
        && key.chars().all(legal)
        && !key.starts_with("0x")
        && !key.starts_with("0s");
    if fine { Ok(()) } else { Err(refuse(400, "validation_failed", "The psk is not valid")) }
}

/// What a policy says, with what IBM fills in.
pub(super) fn policy(request: &Request<'_>, object: &mut Value) {
    let body = &request.body;
    let list = |many: &str, one: &str, usual: Value| match (&body[many], &body[one]) {
        (Value::Array(list), _) => Value::from(list.clone()),
        (_, Value::Null) => usual,
        (_, value) => json!([value]),
    };
    let single = |list: &Value| match list.as_array().map(Vec::as_slice) {
        Some([one]) => one.clone(),
        _ => "multiple".into(),
    };
    let is_ike = request.call.kind == "ike_policies";
    let authentication = list("authentication_algorithms", "authentication_algorithm", json!(["sha256"]));
    let encryption = list("encryption_algorithms", "encryption_algorithm", json!(["aes256"]));
    (object["authentication_algorithm"], object["authentication_algorithms"]) =
        (single(&authentication), authentication);
    (object["encryption_algorithm"], object["encryption_algorithms"]) = (single(&encryption), encryption);
    object["key_lifetime"] =
        body["key_lifetime"].as_u64().unwrap_or(if is_ike { 28_800 } else { 3600 }).into();
    if is_ike {
        let groups = list("dh_groups", "dh_group", json!([14]));
        (object["dh_group"], object["dh_groups"]) = (groups[0].clone(), groups);
        object["ike_version"] = body["ike_version"].clone();
        object["negotiation_mode"] = "main".into();
    } else {
        let groups = list("pfs_groups", "pfs", json!(["disabled"]));
        (object["pfs"], object["pfs_groups"]) = (single(&groups), groups);
        object["encapsulation_mode"] = "tunnel".into();
        object["transform_protocol"] = "esp".into();
    }
}

impl Ibm {
    pub(super) fn vpn_gateway(&mut self, request: &Request<'_>, object: &mut Value) -> Result<(), Refusal> {
        let body = &request.body;
        let subnet = self.get("subnets", identity(&body["subnet"]))?.clone();
        if subnet["_region"] != request.region {
            return Err(missing(identity(&body["subnet"])));
        }
        if subnet["status"] != "available" {
            bail!(409, "subnet_not_ready", "The subnet is not available");
        }
        if body["mode"] == "policy" {
            bail!(400, "not_simulated", "Policy mode is not simulated");
        }
        let beside = self.of_kind("vpn_gateways").any(|one| {
            one["name"] != object["name"]
                && one["_vpc"] == subnet["_vpc"]
                && one["_zone"] == subnet["zone"]["name"]
        });
        if beside {
            bail!(409, "conflict_field", "The VPC has a route mode VPN gateway in that zone");
        }
        let asn = if body["local_asn"].is_null() { 64_520 } else { check_asn(&body["local_asn"])? };
        let id = text(&subnet["id"]).to_owned();
        let mut members = Vec::new();
        for number in 0..2u64 {
            let (private, made) = (self.address(&id)?, self.number());
            let name = format!("member-{made}");
            let ip = json!({"address": private.to_string(), "id": format!("0717-{name}"), "name": name, "href": request.href(&format!("subnets/{id}/reserved_ips/0717-{name}")), "resource_type": "subnet_reserved_ip", "subnet": reference(&subnet, &FULL)});
            members.push(json!({"health_reasons": [], "health_state": "ok", "lifecycle_reasons": [], "lifecycle_state": "stable", "private_ip": ip, "public_ip": {"address": format!("169.60.{}.{}", made >> 7 & 255, 2 * (made & 127) + number)}, "role": "active"}));
        }
        let mut pending = members.clone();
        for member in &mut pending {
            member["public_ip"]["address"] = "0.0.0.0".into();
            member["lifecycle_state"] = "pending".into();
        }
        let cidrs =
            if body["advertised_cidrs"].is_null() { json!([]) } else { body["advertised_cidrs"].clone() };
        for (field, value) in [
            ("advertised_cidrs", cidrs),
            ("availability_mode", json!("zonal")),
            ("health_reasons", json!([])),
            ("health_state", json!("ok")),
            ("lifecycle_reasons", json!([])),
            ("lifecycle_state", json!("pending")),
            ("local_asn", json!(asn)),
            ("members", pending.into()),
            ("mode", json!("route")),
            ("subnet", reference(&subnet, &FULL)),
            ("vpc", subnet["vpc"].clone()),
            ("_subnet", subnet["id"].clone()),
            ("_vpc", subnet["_vpc"].clone()),
            ("_zone", subnet["zone"]["name"].clone()),
        ] {
            object[field] = value;
        }
        let then = match request.fails {
            true => json!({"lifecycle_state": "failed", "health_state": "faulted"}),
            false => json!({"lifecycle_state": "stable", "members": members}),
        };
        Self::later(request, object, 420, then);
        Ok(())
    }

    pub(super) fn advertised(&mut self, request: &Request<'_>, name: &str) -> Outcome {
        let gateway = self.get("vpn_gateways", request.parent())?;
        let space: Ipv4Net =
            request.id().parse().map_err(|_| refuse(400, "validation_failed", "That is no prefix"))?;
        let mut cidrs: Vec<Value> = items(&gateway["advertised_cidrs"]);
        let there = cidrs.iter().any(|one| *one == space.to_string());
        match name {
            "check_vpn_gateway_advertised_cidr" if there => return Ok((204, Value::Null)),
            "add_vpn_gateway_advertised_cidr" if there => return Ok((204, Value::Null)),
            "add_vpn_gateway_advertised_cidr" if cidrs.len() >= 10 => {
                bail!(400, "over_quota", "At most ten prefixes are advertised");
            }
            "add_vpn_gateway_advertised_cidr" => cidrs.push(space.to_string().into()),
            "remove_vpn_gateway_advertised_cidr" if there => cidrs.retain(|one| *one != space.to_string()),
            _ => return Err(missing("the advertised prefix")),
        }
        if let Some(gateway) = self.objects.get_mut(request.parent()) {
            gateway["advertised_cidrs"] = cidrs.into();
        }
        Ok((204, Value::Null))
    }

    pub(super) fn vpn_connection(
        &mut self,
        request: &Request<'_>,
        object: &mut Value,
    ) -> Result<(), Refusal> {
        let (body, gateway) = (&request.body, self.get("vpn_gateways", request.parent())?.clone());
        if gateway["lifecycle_state"] != "stable" {
            bail!(409, "vpn_gateway_not_ready", "The VPN gateway is not stable");
        }
        check_key(&body["psk"])?;
        let address =
            |value: &Value| value["address"].as_str().and_then(|text| text.parse::<Ipv4Addr>().ok());
        let bad = |message: &str| refuse(400, "validation_failed", message);
        let peer = address(&body["peer"]).ok_or_else(|| bad("peer.address is no address"))?;
        let members: Vec<Value> = list(&gateway["members"]).map(|one| one["public_ip"].clone()).collect();
        let is_bgp = body["routing_protocol"] == "bgp";
        let mut tunnels = Vec::new();
        for (number, member) in members.iter().enumerate() {
            let mut tunnel = json!({"public_ip": member, "status": "down", "status_reasons": []});
            if is_bgp {
                let wanted = &body["tunnels"][number];
                let (Some(ours), Some(theirs)) =
                    (address(&wanted["tunnel_interface_ip"]), address(&wanted["neighbor_ip"]))
                else {
                    return Err(bad("a dynamic connection has two tunnels with inside addresses"));
                };
                self.check_inside(request, ours, theirs)?;
                tunnel["tunnel_interface_ip"] = json!({"address": ours.to_string()});
                tunnel["neighbor_ip"] = json!({"address": theirs.to_string()});
                tunnel["protocol_state"] = "idle".into();
            }
            tunnels.push(tunnel);
        }
        if is_bgp && body["tunnels"].as_array().map_or(0, Vec::len) != members.len() {
            return Err(bad("a dynamic connection has two tunnels"));
        }
        let same = |one: &&Value| {
            one["_parent"] == request.parent()
                && one["peer"]["address"] == peer.to_string()
                && one["name"] != object["name"]
        };
        if self.of_kind("vpn_gateways/connections").find(same).is_some() {
            bail!(409, "conflict_field", "The gateway has a connection to that address");
        }
        let identity_of = |address: &Value| json!({"type": "ipv4_address", "value": address});
        let local: Vec<Value> = members.iter().map(|member| identity_of(&member["address"])).collect();
        let mut shown_peer = json!({"address": peer.to_string(), "type": "address", "ike_identity": identity_of(&json!(peer.to_string()))});
        if is_bgp {
            shown_peer["asn"] = check_asn(&body["peer"]["asn"])?.into();
        }
        let probing = json!({"action": "restart", "interval": 2, "timeout": 10});
        for (field, value) in [
            ("admin_state_up", json!(true)),
            ("authentication_mode", json!("psk")),
            (
                "dead_peer_detection",
                if body["dead_peer_detection"].is_null() {
                    probing
                } else {
                    body["dead_peer_detection"].clone()
                },
            ),
            ("distribute_traffic", json!(body["distribute_traffic"].as_bool().unwrap_or(false))),
            ("establish_mode", json!(body["establish_mode"].as_str().unwrap_or("bidirectional"))),
            ("local", json!({"ike_identities": local})),
            ("mode", json!("route")),
            ("peer", shown_peer),
            ("psk", body["psk"].clone()),
            ("routing_protocol", json!(if is_bgp { "bgp" } else { "none" })),
            ("status", json!("down")),
            ("status_reasons", json!([])),
            ("tunnels", tunnels.into()),
        ] {
            object[field] = value;
        }
        for (field, kind, own) in
            [("ike_policy", "ike_policies", "_ike"), ("ipsec_policy", "ipsec_policies", "_ipsec")]
        {
            if !body[field].is_null() {
                let found = self.get(kind, identity(&body[field]))?;
                object[own] = found["id"].clone();
                object[field] = reference(found, &["href", "id", "name", "resource_type"]);
            }
        }
        Ok(())
    }

    /// Both in one /30, and in no other connection of the gateway.
    fn check_inside(&self, request: &Request<'_>, ours: Ipv4Addr, theirs: Ipv4Addr) -> Result<(), Refusal> {
        let block = |address: Ipv4Addr| Ipv4Net::new_assert(address, 30).trunc();
        let host = |address: Ipv4Addr| matches!(u32::from(address) & 3, 1 | 2);
        if block(ours) != block(theirs) || ours == theirs || !host(ours) || !host(theirs) {
            bail!(400, "validation_failed", "{ours} and {theirs} are not the hosts of a /30");
        }
        let others = self
            .of_kind("vpn_gateways/connections")
            .filter(|one| one["_parent"] == request.parent() && one["name"] != request.body["name"]);
        let mut taken = others.flat_map(|one| list(&one["tunnels"]));
        let text = ours.to_string();
        if taken.any(|tunnel| tunnel["tunnel_interface_ip"]["address"] == text.as_str()) {
            bail!(409, "conflict_field", "{ours} is in use on the gateway");
        }
        Ok(())
    }

    /// Fills in how tunnels and sessions are.
    pub(crate) fn telemetry(&mut self, wire: &Wire) {
        let ids: Vec<String> = self
            .of_kind("vpn_gateways/connections")
            .filter_map(|one| one["id"].as_str().map(str::to_owned))
            .collect();
        for id in ids {
            let ends = self.tunnel_ends(&self.objects[&id]);
            let states: Vec<(bool, bool)> =
                ends.iter().map(|end| (wire.is_up(end), wire.bgp_peer(end).is_some())).collect();
            let Some(connection) = self.objects.get_mut(&id) else { continue };
            let any = states.iter().any(|(up, _)| *up);
            connection["status"] = if any { "up" } else { "down" }.into();
            let is_bgp = connection["routing_protocol"] == "bgp";
            for (number, (up, bgp)) in states.into_iter().enumerate() {
                let tunnel = &mut connection["tunnels"][number];
                tunnel["status"] = if up { "up" } else { "down" }.into();
                if is_bgp {
                    tunnel["protocol_state"] = if bgp {
                        "established"
                    } else if up {
                        "active"
                    } else {
                        "idle"
                    }
                    .into();
                }
            }
        }
    }
}
