//! Routers: sessions and what they advertise, and NAT.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Network, Subnet};
use crate::{link::Link, mark::Remark};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Router {
    pub name: String,
    pub network: Link<Network>,
    #[serde(default)]
    pub description: Remark,
    /// None if it is there for NAT alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<Bgp>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nats: Vec<Nat>,
    #[serde(default, skip_serializing)]
    pub interfaces: Vec<RouterInterface>,
    #[serde(default, skip_serializing)]
    pub bgp_peers: Vec<BgpPeer>,
    #[serde(skip_serializing)]
    pub region: Link,
}

/// What a router says. It is left as it is where nothing is said about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bgp {
    pub asn: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertised_groups: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertised_ip_ranges: Option<Vec<Advertised>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Advertised {
    pub range: String,
}

#[derive(Serialize)]
pub(crate) struct PatchBgp {
    pub bgp: Bgp,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Nat {
    #[serde(skip_deserializing)]
    pub name: &'static str,
    #[serde(skip_deserializing)]
    pub nat_ip_allocate_option: &'static str,
    #[serde(default)]
    pub source_subnetwork_ip_ranges_to_nat: String,
    #[serde(skip_deserializing)]
    pub subnetworks: Vec<NatSubnet>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NatSubnet {
    pub name: Link<Subnet>,
    pub source_ip_ranges_to_nat: [&'static str; 1],
}

#[derive(Serialize)]
pub(crate) struct PatchNats {
    pub nats: [Nat; 1],
}

/// Interfaces and BGP peers, which are written whole: those of others as they were read.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sessions {
    pub interfaces: Vec<RouterInterface>,
    pub bgp_peers: Vec<BgpPeer>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouterInterface {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linked_vpn_tunnel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_range: Option<String>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BgpPeer {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_ip_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_asn: Option<u32>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Deserialize)]
pub(crate) struct RouterStatus {
    pub result: RouterResult,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RouterResult {
    pub bgp_peer_status: Vec<PeerStatus>,
    pub best_routes: Vec<Route>,
}

#[derive(Deserialize)]
pub(crate) struct PeerStatus {
    pub name: String,
    #[serde(default)]
    pub status: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Route {
    pub dest_range: String,
}
