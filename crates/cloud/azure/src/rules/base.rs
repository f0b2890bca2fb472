//! Rules that are in every group of a kind, and in no permit list.
//!
//! ```text
//!   4080 …  of clusters: what lets the inside of one work, and what its nodes cannot come up without
//!   4096    everything else is denied. Azure's own defaults would let networks that are peered in, and everything out
//! ```

use ipnet::Ipv4Net;
use model::Direction;
use serde_json::{Value, json};

use super::{BASE_PRIORITY, words};

/// The last there is.
const DENY_PRIORITY: u32 = 4096;
const DENY: [(&str, Direction); 2] = [("t-deny-in", Direction::Inbound), ("t-deny-out", Direction::Outbound)];

/// What nodes of a private cluster need of Azure, by the names that Azure has for the addresses, and what for. TCP 443.
const SERVICES: [(&str, &str, &str); 4] = [
    ("t-images-out", "MicrosoftContainerRegistry", "Images of Kubernetes itself."),
    (
        "t-delivery-out",
        "AzureFrontDoor.FirstParty",
        "Where the registry and the nodes' binaries are delivered from.",
    ),
    ("t-identity-out", "AzureActiveDirectory", "Tokens of the cluster's identity."),
    ("t-azure-out", "AzureResourceManager", "Disks, addresses and load balancers of the cluster."),
];

struct Peers<'p> {
    source: &'p str,
    destination: &'p str,
    protocol: &'p str,
    port: &'p str,
}

fn rule(
    name: &str,
    direction: Direction,
    priority: u32,
    is_allowed: bool,
    peers: &Peers<'_>,
    why: &str,
) -> Value {
    json!({"name": name, "properties": {
        "description": why,
        "direction": words(direction).0, "access": if is_allowed { "Allow" } else { "Deny" }, "priority": priority,
        "protocol": peers.protocol, "sourcePortRange": "*", "destinationPortRange": peers.port,
        "sourceAddressPrefix": peers.source, "destinationAddressPrefix": peers.destination,
    }})
}

/// The rules of a group that lets nothing through.
pub fn closed() -> Vec<Value> {
    let all = Peers { source: "*", destination: "*", protocol: "*", port: "*" };
    let why = "Nothing passes that no rule of Trestle permits.";
    DENY.iter().map(|(name, direction)| rule(name, *direction, DENY_PRIORITY, false, &all, why)).collect()
}

/// The rules of the group around a cluster whose nodes and Pods have a block, and that lets nothing else through.
pub fn border(block: Ipv4Net) -> Vec<Value> {
    let block = block.to_string();
    let inside = Peers { source: &block, destination: &block, protocol: "*", port: "*" };
    let probes = Peers { source: "AzureLoadBalancer", destination: &block, protocol: "*", port: "*" };
    let (inbound, outbound) = (Direction::Inbound, Direction::Outbound);
    let why = "Inside the cluster everything passes.";
    let mut rules = vec![
        rule("t-inside-in", inbound, BASE_PRIORITY, true, &inside, why),
        rule("t-inside-out", outbound, BASE_PRIORITY, true, &inside, why),
        rule("t-probes-in", inbound, BASE_PRIORITY + 1, true, &probes, "Azure asks whether nodes are well."),
    ];
    for (priority, (name, service, why)) in (BASE_PRIORITY + 1..).zip(SERVICES) {
        let peers = Peers { source: &block, destination: service, protocol: "Tcp", port: "443" };
        rules.push(rule(name, outbound, priority, true, &peers, why));
    }
    rules.extend(closed());
    rules
}
