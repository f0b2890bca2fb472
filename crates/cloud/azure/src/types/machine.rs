//! Machines and clusters, their interfaces, and the security groups around them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Child, Ref, Resource, State, Subnet};

pub type Machine = Resource<MachineProperties>;
pub type Cluster = Resource<ClusterProperties>;
pub type Interface = Resource<InterfaceProperties>;
pub type IpConfiguration = Child<IpConfigurationProperties>;
pub type Group = Resource<GroupProperties>;
pub type Rule = Child<RuleProperties>;

/// Asked for by what a user writes: see `description`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineProperties {
    pub provisioning_state: State,
    pub network_profile: NetworkProfile,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkProfile {
    pub network_interfaces: Vec<Ref<Interface>>,
}

/// Asked for by what a user writes: see `clusters/description`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterProperties {
    pub provisioning_state: State,
}

/// Written again as it was found, in another group.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceProperties {
    pub provisioning_state: State,
    pub ip_configurations: Vec<IpConfiguration>,
    pub network_security_group: Option<Ref<Group>>,
    pub virtual_machine: Option<Ref<Machine>>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpConfigurationProperties {
    pub primary: Option<bool>,
    #[serde(rename = "privateIPAddress")]
    pub address: Option<String>,
    #[serde(rename = "privateIPAllocationMethod")]
    pub allocation: Option<String>,
    pub subnet: Option<Ref<Subnet>>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl InterfaceProperties {
    /// The configuration by which an interface is known.
    pub fn primary(&self) -> Option<&IpConfigurationProperties> {
        let mut all = self.ip_configurations.iter().map(|one| &one.properties);
        all.clone().find(|one| one.primary == Some(true)).or_else(|| all.next())
    }

    pub fn address(&self) -> Option<IpAddr> {
        self.primary()?.address.as_ref()?.parse().ok()
    }
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupProperties {
    pub provisioning_state: State,
    pub security_rules: Vec<Rule>,
    /// Which interfaces are in it.
    #[serde(skip_serializing)]
    pub network_interfaces: Vec<Ref<Interface>>,
}

impl GroupProperties {
    pub fn of(security_rules: Vec<Rule>) -> Self {
        Self { security_rules, ..Self::default() }
    }
}

/// Prefixes and ports may stand alone or in a list, or in both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleProperties {
    #[serde(default)]
    pub provisioning_state: State,
    pub description: Option<String>,
    pub direction: String,
    pub access: String,
    pub priority: u32,
    pub protocol: String,
    pub source_address_prefix: Option<String>,
    pub source_address_prefixes: Option<Vec<String>>,
    pub source_port_range: Option<String>,
    pub source_port_ranges: Option<Vec<String>>,
    pub destination_address_prefix: Option<String>,
    pub destination_address_prefixes: Option<Vec<String>>,
    pub destination_port_range: Option<String>,
    pub destination_port_ranges: Option<Vec<String>>,
    /// Rules of others name groups of applications, too.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}
