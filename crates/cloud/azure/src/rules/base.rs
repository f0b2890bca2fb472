//! Rules that are in every group of a kind, and in no permit list.
//!
//! ```text
//!   4080 …  of clusters: what lets the inside of one work, and what its nodes cannot come up without
//!   4096    everything else is denied. Azure's own defaults would let networks that are peered in, and everything out
//! ```

use ipnet::Ipv4Net;

use super::{BASE_PRIORITY, Rule};
use crate::types::RuleProperties;

/// The last there is.
const DENY_PRIORITY: u32 = 4096;

/// Of each rule: name, direction, access, protocol, source, destination, the destination's port, and what it is for. `BLOCK`
/// are a cluster's nodes and Pods; other words are names that Azure has for addresses of its own.
type Row = [&'static str; 8];

const CLOSED: &str = "Nothing passes that no rule of Trestle permits.";
const DENY: [Row; 2] = [
    ["t-deny-in", "Inbound", "Deny", "*", "*", "*", "*", CLOSED],
    ["t-deny-out", "Outbound", "Deny", "*", "*", "*", "*", CLOSED],
];

const INSIDE: &str = "Inside the cluster everything passes.";
const DELIVERED: &str = "Where the registry and the nodes' binaries are delivered from.";
const MANAGED: &str = "Disks, addresses and load balancers of the cluster.";
#[rustfmt::skip]
const BORDER: [(u32, Row); 7] = [
    (0, ["t-inside-in", "Inbound", "Allow", "*", "BLOCK", "BLOCK", "*", INSIDE]),
    (0, ["t-inside-out", "Outbound", "Allow", "*", "BLOCK", "BLOCK", "*", INSIDE]),
    (1, ["t-probes-in", "Inbound", "Allow", "*", "AzureLoadBalancer", "BLOCK", "*", "Azure asks whether nodes are well."]),
    (1, ["t-images-out", "Outbound", "Allow", "Tcp", "BLOCK", "MicrosoftContainerRegistry", "443", "Images of Kubernetes itself."]),
    (2, ["t-delivery-out", "Outbound", "Allow", "Tcp", "BLOCK", "AzureFrontDoor.FirstParty", "443", DELIVERED]),
    (3, ["t-identity-out", "Outbound", "Allow", "Tcp", "BLOCK", "AzureActiveDirectory", "443", "Tokens of the cluster's identity."]),
    (4, ["t-azure-out", "Outbound", "Allow", "Tcp", "BLOCK", "AzureResourceManager", "443", MANAGED]),
];

fn rule(priority: u32, row: Row, block: &str) -> Rule {
    let filled = row.map(|word| if word == "BLOCK" { block } else { word }.to_owned());
    let [name, direction, access, protocol, source, destination, port, why] = filled;
    let properties = RuleProperties {
        description: Some(why),
        direction,
        access,
        priority,
        protocol,
        source_address_prefix: Some(source),
        source_port_range: Some("*".to_owned()),
        destination_address_prefix: Some(destination),
        destination_port_range: Some(port),
        ..RuleProperties::default()
    };
    Rule { name, properties }
}

/// The rules of a group that lets nothing through.
pub fn closed() -> Vec<Rule> {
    DENY.map(|row| rule(DENY_PRIORITY, row, "")).into()
}

/// The rules of the group around a cluster whose nodes and Pods have a block, and that lets nothing else through.
pub fn border(block: Ipv4Net) -> Vec<Rule> {
    let block = block.to_string();
    let inside = BORDER.map(|(place, row)| rule(BASE_PRIORITY + place, row, &block));
    inside.into_iter().chain(closed()).collect()
}
