//! VPN gateways, the peers they know, the connections to these, and what they say of them.

use std::{collections::BTreeSet, net::Ipv4Addr};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Child, Id, PublicAddress, Ref, Resource, Sku, State, Subnet};

pub type Gateway = Resource<GatewayProperties>;
pub type Instance = Child<InstanceProperties>;
pub type LocalGateway = Resource<LocalGatewayProperties>;
pub type Connection = Resource<ConnectionProperties>;

/// Only ever one of ours: others are not read.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayProperties {
    #[serde(default)]
    pub provisioning_state: State,
    pub sku: Sku,
    pub bgp_settings: BgpSettings,
}

/// A gateway as it is asked for.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewGateway {
    pub gateway_type: &'static str,
    pub vpn_type: &'static str,
    pub sku: Sku,
    pub active_active: bool,
    pub enable_bgp: bool,
    pub ip_configurations: [Instance; 2],
    pub bgp_settings: BgpSettings,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceProperties {
    #[serde(default)]
    pub provisioning_state: State,
    #[serde(rename = "privateIPAllocationMethod")]
    pub allocation: String,
    pub subnet: Ref<Subnet>,
    #[serde(rename = "publicIPAddress")]
    pub address: Ref<PublicAddress>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BgpSettings {
    pub asn: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bgp_peering_addresses: Vec<InstanceSessions>,
}

/// The BGP addresses of an instance.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceSessions {
    #[serde(rename = "ipconfigurationId")]
    pub instance: Id<Instance>,
    #[serde(default)]
    pub custom_bgp_ip_addresses: BTreeSet<Ipv4Addr>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalGatewayProperties {
    pub provisioning_state: State,
    pub gateway_ip_address: Option<String>,
    pub bgp_settings: Option<PeerSettings>,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeerSettings {
    pub asn: Option<u32>,
    pub bgp_peering_address: Option<String>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionProperties {
    pub provisioning_state: State,
    pub gateway_custom_bgp_ip_addresses: Vec<CustomAddress>,
    pub connection_status: Option<String>,
    pub ingress_bytes_transferred: Option<u64>,
    pub egress_bytes_transferred: Option<u64>,
}

/// Which BGP address an instance uses for a connection.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomAddress {
    #[serde(rename = "ipConfigurationId")]
    pub instance: Id<Instance>,
    #[serde(rename = "customBgpIpAddress")]
    pub address: String,
}

/// A connection as it is asked for.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewConnection<'s> {
    #[serde(rename = "virtualNetworkGateway1")]
    pub near: Linked<Gateway>,
    #[serde(rename = "localNetworkGateway2")]
    pub far: Linked<LocalGateway>,
    pub connection_type: &'static str,
    pub connection_protocol: &'static str,
    pub enable_bgp: bool,
    pub dpd_timeout_seconds: u32,
    pub shared_key: &'s str,
    pub gateway_custom_bgp_ip_addresses: Vec<CustomAddress>,
}

/// An object as a connection names it: with properties, which need not say anything.
#[derive(Serialize)]
#[serde(bound = "")]
pub struct Linked<K> {
    id: Id<K>,
    properties: Map<String, Value>,
}

impl<K> Linked<K> {
    pub fn to(id: Id<K>) -> Self {
        Self { id, properties: Map::new() }
    }
}

#[derive(Serialize)]
pub struct SharedKey<'s> {
    pub value: &'s str,
}

/// What a gateway answers when it is asked.
#[derive(Default, Deserialize)]
pub struct Answers<T> {
    pub value: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct BgpPeer {
    pub neighbor: Option<String>,
    pub state: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LearnedRoute {
    pub network: Option<String>,
    pub source_peer: Option<String>,
}
