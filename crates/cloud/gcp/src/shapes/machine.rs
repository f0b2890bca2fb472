//! Instances; and reserved addresses and forwarding rules, which make private endpoints.

use std::{net::IpAddr, ops::Not};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Network, Subnet};
use crate::{link::Link, mark::Remark};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    pub name: String,
    #[serde(default)]
    pub description: Remark,
    #[serde(default)]
    pub tags: Tags,
    pub network_interfaces: Vec<Interface>,
    #[serde(skip_serializing)]
    pub zone: Link,
    /// What a user wrote.
    #[serde(flatten, skip_deserializing)]
    pub described: Map<String, Value>,
}

/// Network tags, with the version of their list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tags {
    #[serde(default)]
    pub items: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    #[serde(default)]
    pub subnetwork: Link<Subnet>,
    #[serde(default, skip_serializing)]
    pub name: String,
    #[serde(default, skip_serializing)]
    pub network: Link<Network>,
    #[serde(default, skip_serializing, rename = "networkIP")]
    pub network_ip: Option<IpAddr>,
    #[serde(default, skip_serializing)]
    pub stack_type: String,
}

impl Instance {
    /// The address of its first interface, once it has one.
    pub(crate) fn address(&self) -> Option<model::Address> {
        let address = self.network_interfaces.first()?.network_ip?;
        Some(ipnet::IpNet::from(address).into())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    pub name: String,
    #[serde(default)]
    pub description: Remark,
    #[serde(skip_deserializing)]
    pub address_type: &'static str,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<&'static str>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub network: Option<Link<Network>>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub subnetwork: Option<Link<Subnet>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// None if it is global.
    #[serde(default, skip_serializing)]
    pub region: Option<Link>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardingRule {
    pub name: String,
    #[serde(default)]
    pub description: Remark,
    #[serde(skip_deserializing)]
    pub network: Link<Network>,
    /// Said as a reference to a reserved address, told as the address itself.
    #[serde(default, rename = "IPAddress")]
    pub address: String,
    #[serde(skip_deserializing)]
    pub target: String,
    #[serde(skip_deserializing, skip_serializing_if = "Not::not")]
    pub allow_psc_global_access: bool,
    #[serde(default, skip_serializing)]
    pub psc_connection_status: String,
    /// None if it is global.
    #[serde(default, skip_serializing)]
    pub region: Option<Link>,
}
