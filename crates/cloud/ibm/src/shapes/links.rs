//! VPN gateways with their connections and policies, transit gateways with what is attached to them.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Ip, Reference};

#[derive(Debug, Deserialize)]
pub(crate) struct VpnGateway {
    pub(crate) id: String,
    pub(crate) crn: String,
    pub(crate) name: String,
    pub(crate) lifecycle_state: String,
    pub(crate) members: Vec<Member>,
    pub(crate) connections: Vec<Reference>,
    /// Those of policy mode, which are somebody else's, have neither.
    #[serde(default)]
    pub(crate) advertised_cidrs: Vec<IpNet>,
    pub(crate) local_asn: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Member {
    pub(crate) public_ip: Ip,
}

#[derive(Debug, Serialize)]
pub(crate) struct VpnRequest {
    pub(crate) name: String,
    pub(crate) mode: &'static str,
    pub(crate) subnet: Reference,
    pub(crate) local_asn: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_group: Option<Reference>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct IkePolicy {
    pub(crate) id: String,
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct IpsecPolicy {
    pub(crate) id: String,
    pub(crate) name: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct IkeRequest {
    pub(crate) name: String,
    pub(crate) ike_version: u8,
    pub(crate) authentication_algorithms: [&'static str; 1],
    pub(crate) encryption_algorithms: [&'static str; 1],
    pub(crate) dh_groups: [u8; 1],
    pub(crate) key_lifetime: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_group: Option<Reference>,
}

#[derive(Debug, Serialize)]
pub(crate) struct IpsecRequest {
    pub(crate) name: String,
    pub(crate) authentication_algorithms: [&'static str; 1],
    pub(crate) encryption_algorithms: [&'static str; 1],
    pub(crate) pfs_groups: [&'static str; 1],
    pub(crate) key_lifetime: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_group: Option<Reference>,
}

/// It has a secret in it, and so cannot be printed.
#[derive(Deserialize)]
pub(crate) struct VpnConnection {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) admin_state_up: bool,
    pub(crate) psk: String,
    pub(crate) peer: ShownPeer,
    /// Those of policy mode have none.
    #[serde(default)]
    pub(crate) tunnels: Vec<ShownTunnel>,
}

/// By its address, or by a name.
#[derive(Debug, Deserialize)]
pub(crate) struct ShownPeer {
    pub(crate) address: Option<IpAddr>,
    pub(crate) asn: Option<u32>,
}

/// Inside addresses and the state of BGP are those of dynamic connections.
#[derive(Debug, Deserialize)]
pub(crate) struct ShownTunnel {
    pub(crate) status: String,
    pub(crate) tunnel_interface_ip: Option<Ip>,
    pub(crate) neighbor_ip: Option<Ip>,
    pub(crate) protocol_state: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct ConnectionRequest {
    pub(crate) name: String,
    pub(crate) psk: String,
    pub(crate) peer: Peer,
    pub(crate) routing_protocol: &'static str,
    pub(crate) tunnels: Vec<Tunnel>,
    pub(crate) ike_policy: Reference,
    pub(crate) ipsec_policy: Reference,
    pub(crate) establish_mode: &'static str,
    pub(crate) dead_peer_detection: Probing,
}

#[derive(Debug, Serialize)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    pub(crate) asn: u32,
}

#[derive(Debug, Serialize)]
pub(crate) struct Tunnel {
    pub(crate) tunnel_interface_ip: Ip,
    pub(crate) neighbor_ip: Ip,
}

#[derive(Debug, Serialize)]
pub(crate) struct Probing {
    pub(crate) action: &'static str,
    pub(crate) interval: u8,
    pub(crate) timeout: u8,
}

/// Another key for a connection.
#[derive(Serialize)]
pub(crate) struct KeyPatch<'k> {
    pub(crate) psk: &'k str,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TransitGateway {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct TransitRequest {
    pub(crate) name: String,
    pub(crate) location: String,
    pub(crate) global: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_group: Option<Reference>,
}

/// What is attached to a transit gateway. What others attach may have no name, or no CRN.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Joint {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) network_id: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct JointRequest {
    pub(crate) name: String,
    pub(crate) network_type: &'static str,
    /// The CRN of what is attached.
    pub(crate) network_id: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RouteReports {
    pub(crate) route_reports: Vec<RouteReport>,
}

/// What a transit gateway knows of routes.
#[derive(Debug, Deserialize)]
pub(crate) struct RouteReport {
    pub(crate) id: String,
    pub(crate) status: String,
    pub(crate) connections: Vec<ReportedConnection>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReportedConnection {
    pub(crate) bgps: Vec<ReportedRoute>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReportedRoute {
    pub(crate) is_used: bool,
    pub(crate) as_path: Option<String>,
    pub(crate) prefix: Option<String>,
}
