//! Rules of single objects that Azure states in prose only.

use std::{collections::BTreeSet, net::Ipv4Addr};

use ipnet::Ipv4Net;
use serde_json::Value;

use super::{Refusal, objects::listed, refuse};
use crate::rest::{list, text, texts};

const SERVICE_TAGS: [&str; 4] = ["*", "VirtualNetwork", "AzureLoadBalancer", "Internet"];
/// Services of Azure that rules may name, and some of their addresses.
const SERVICES: [(&str, &str); 4] = [
    ("MicrosoftContainerRegistry", "204.79.197.219/32"),
    ("AzureFrontDoor.FirstParty", "13.107.208.0/24"),
    ("AzureActiveDirectory", "20.190.128.0/18"),
    ("AzureResourceManager", "20.37.53.0/24"),
];

/// The addresses of a service that rules may name.
pub(super) fn service(tag: &str) -> Option<Ipv4Net> {
    SERVICES.iter().find(|(name, _)| *name == tag).and_then(|(_, net)| net.parse().ok())
}

fn both<'r>(properties: &'r Value, field: &str, plural: &str) -> Vec<&'r str> {
    let listed = texts(&properties[plural]);
    properties[field].as_str().into_iter().chain(listed).collect()
}

/// A network security group: its rules.
pub(super) fn group(object: &mut Value) -> Result<(), Refusal> {
    if object["properties"]["securityRules"].is_null() {
        object["properties"]["securityRules"] = Vec::<Value>::new().into();
    }
    let rules: Vec<&Value> = listed(object, "securityRules").collect();
    if rules.len() > 1000 {
        bail!(400, "SecurityRuleCountLimitReached", "A group has at most 1000 rules.");
    }
    let mut places = BTreeSet::new();
    let mut names = BTreeSet::new();
    let mut prefixes = [0, 0];
    for rule in rules {
        let (name, properties) = (text(&rule["name"]), &rule["properties"]);
        let priority = properties["priority"].as_i64().unwrap_or_default();
        let bad = |code, what: String| Err(refuse(400, code, format!("Security rule {name} {what}.")));
        if !(100..=4096).contains(&priority) {
            return bad("SecurityRuleInvalidPriority", format!("has invalid Priority {priority}"));
        }
        if !places.insert((text(&properties["direction"]), priority)) || !names.insert(name) {
            return bad(
                "SecurityRuleConflict",
                "conflicts with another of the same Priority and Direction".into(),
            );
        }
        if text(&properties["description"]).chars().count() > 140 {
            return bad(
                "SecurityRuleInvalidDescription",
                "has a description of more than 140 characters".into(),
            );
        }
        if !["Tcp", "Udp", "Icmp", "Esp", "Ah", "*"].contains(&text(&properties["protocol"])) {
            return bad(
                "SecurityRuleInvalidProtocol",
                format!("has invalid Protocol {}", properties["protocol"]),
            );
        }
        for (side, count) in [("source", 0), ("destination", 1)] {
            let fields = [format!("{side}AddressPrefix"), format!("{side}AddressPrefixes")];
            let all = both(properties, &fields[0], &fields[1]);
            let legal = |text: &&str| {
                SERVICE_TAGS.contains(text)
                    || service(text).is_some()
                    || text.parse::<Ipv4Addr>().is_ok()
                    || text.parse::<Ipv4Net>().is_ok()
            };
            if all.is_empty() || !all.iter().all(legal) {
                return bad(
                    "SecurityRuleInvalidAddressPrefix",
                    format!("has invalid {side} prefixes {all:?}"),
                );
            }
            prefixes[count] += all.len();
            let fields = [format!("{side}PortRange"), format!("{side}PortRanges")];
            let ports = both(properties, &fields[0], &fields[1]);
            if ports.is_empty() || !ports.iter().all(|text| *text == "*" || range(text).is_some()) {
                return bad("SecurityRuleInvalidPortRange", format!("has invalid {side} ports {ports:?}"));
            }
        }
    }
    match prefixes.iter().any(|count| *count > 4000) {
        true => Err(refuse(400, "SecurityRulePrefixCountLimitReached", "A group has at most 4000 prefixes.")),
        false => Ok(()),
    }
}

pub(super) fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

pub(super) fn asn(value: &Value, is_peer: bool) -> Result<(), Refusal> {
    let Some(asn) = value.as_u64() else { return Ok(()) };
    let reserved = [
        (0, 0),
        (8074, 8075),
        (12_076, 12_076),
        (23_456, 23_456),
        (64_496, 64_511),
        (65_517, 65_520),
        (65_535, 65_551),
    ];
    let kept =
        reserved.iter().any(|(first, last)| (*first..=*last).contains(&asn)) || (is_peer && asn == 65_515);
    match kept || asn > 4_294_967_294 {
        true => Err(refuse(400, "InvalidBgpAsn", format!("The ASN {asn} is reserved."))),
        false => Ok(()),
    }
}

/// A local network gateway.
pub(super) fn peer(object: &Value) -> Result<(), Refusal> {
    let properties = &object["properties"];
    if text(&properties["gatewayIpAddress"]).parse::<Ipv4Addr>().is_err() {
        bail!(400, "InvalidGatewayIpAddress", "The gateway IP address is not valid.");
    }
    let bgp = &properties["bgpSettings"];
    if !bgp.is_null() && text(&bgp["bgpPeeringAddress"]).parse::<Ipv4Addr>().is_err() {
        bail!(400, "InvalidBgpPeeringAddress", "The BGP peering address is not valid.");
    }
    let spaces = list(&properties["localNetworkAddressSpace"]["addressPrefixes"]);
    if spaces.filter_map(Value::as_str).any(|space| space.starts_with("169.254.")) {
        bail!(400, "InvalidAddressPrefix", "An APIPA address may not be in the address space.");
    }
    asn(&bgp["asn"], true)
}
