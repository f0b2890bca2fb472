//! Rules of single objects that Google's API description states in prose only.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{Refusal, refuse};
use crate::rest::{items, list, text};

/// Fills in defaults. A firewall without ranges is one for everybody, as with Google.
pub(super) fn firewall(object: &mut Value) -> Result<(), Refusal> {
    let bad = |message: String| Err(refuse(400, "invalid", message));
    let (allowed, denied) = (!object["allowed"].is_null(), !object["denied"].is_null());
    if allowed == denied {
        return bad("Exactly one of allowed and denied must be specified.".to_owned());
    }
    for (field, value) in
        [("direction", json!("INGRESS")), ("priority", json!(1000)), ("disabled", json!(false))]
    {
        if object[field].is_null() {
            object[field] = value;
        }
    }
    if !(0..=65535).contains(&object["priority"].as_i64().unwrap_or(-1)) {
        return bad("The priority must be from 0 to 65535.".to_owned());
    }
    let (own, other) = match object["direction"].as_str() {
        Some("EGRESS") => ("destinationRanges", "sourceRanges"),
        _ => ("sourceRanges", "destinationRanges"),
    };
    if !object[other].is_null() {
        return bad(format!("{other} do not go with this direction."));
    }
    if object[own].is_null() && object["sourceTags"].is_null() {
        object[own] = json!(["0.0.0.0/0"]);
    }
    let ranges = items(&object[own]);
    if ranges.len() > 256 {
        return bad(format!("The number of {own} exceeds the limit of 256."));
    }
    for range in &ranges {
        let net = range.as_str().and_then(|text| text.parse::<IpNet>().ok());
        if net.is_none_or(|net| net.trunc() != net) {
            return bad(format!("Invalid value for field 'resource.{own}': '{range}'"));
        }
    }
    let field = if allowed { "allowed" } else { "denied" };
    for one in list(&object[field]) {
        let protocol = text(&one["IPProtocol"]);
        let known = ["all", "tcp", "udp", "icmp", "esp", "ah", "sctp", "ipip"].contains(&protocol);
        if !known && protocol.parse::<u8>().is_err() {
            return bad(format!("Invalid value for field 'resource.{field}[0].IPProtocol': '{protocol}'"));
        }
        let has_ports = ["tcp", "udp", "sctp", "6", "17", "132"].contains(&protocol);
        if !one["ports"].is_null() && !has_ports {
            return bad(format!("Ports do not go with {protocol}."));
        }
    }
    if object["description"].as_str().is_some_and(|text| text.len() > 2048) {
        return bad("The description is too long.".to_owned());
    }
    Ok(())
}

pub(super) fn external(object: &Value) -> Result<(), Refusal> {
    let count = object["interfaces"].as_array().map_or(0, Vec::len);
    let wanted = match object["redundancyType"].as_str() {
        Some("SINGLE_IP_INTERNALLY_REDUNDANT") => 1,
        Some("TWO_IPS_REDUNDANCY") => 2,
        Some("FOUR_IPS_REDUNDANCY") => 4,
        _ => 0,
    };
    if count == wanted {
        return Ok(());
    }
    Err(refuse(400, "invalid", format!("{count} interfaces do not fit the redundancy type.")))
}
