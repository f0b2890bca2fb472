//! Both ends of a link, and its tunnels.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Network, Router};
use crate::{link::Link, mark::Remark};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VpnGateway {
    pub name: String,
    pub network: Link<Network>,
    #[serde(default)]
    pub description: Remark,
    #[serde(default, skip_serializing)]
    pub vpn_interfaces: Vec<VpnInterface>,
    #[serde(skip_serializing)]
    pub region: Link,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VpnInterface {
    /// None if it goes over an interconnect.
    pub ip_address: Option<IpAddr>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalGateway {
    pub name: String,
    #[serde(default)]
    pub description: Remark,
    #[serde(skip_deserializing)]
    pub redundancy_type: &'static str,
    #[serde(skip_deserializing)]
    pub interfaces: Vec<ExternalInterface>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalInterface {
    pub id: usize,
    pub ip_address: IpAddr,
}

/// Not to be shown with `Debug`: it has the key.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tunnel {
    pub name: String,
    #[serde(default)]
    pub description: Remark,
    #[serde(skip_deserializing)]
    pub vpn_gateway: Link<VpnGateway>,
    #[serde(skip_deserializing)]
    pub vpn_gateway_interface: usize,
    #[serde(skip_deserializing)]
    pub peer_external_gateway: Link<ExternalGateway>,
    #[serde(skip_deserializing)]
    pub peer_external_gateway_interface: usize,
    #[serde(skip_deserializing)]
    pub router: Link<Router>,
    #[serde(skip_deserializing)]
    pub ike_version: u8,
    #[serde(skip_deserializing)]
    pub shared_secret: String,
    #[serde(skip_serializing)]
    pub region: Link,
    #[serde(default, skip_serializing)]
    pub status: String,
}
