//! Virtual networks, their subnets and peerings, and NAT.

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Child, Ref, Resource, Sku, State};
use crate::types::Group;

pub type Vnet = Resource<VnetProperties>;
pub type Subnet = Child<SubnetProperties>;
pub type Peering = Child<PeeringProperties>;
pub type Nat = Resource<NatProperties>;
pub type PublicAddress = Resource<PublicAddressProperties>;

/// Never written again once it is made: that would take away what others put in.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VnetProperties {
    pub provisioning_state: State,
    pub address_space: AddressSpace,
    pub subnets: Vec<Subnet>,
    #[serde(skip_serializing)]
    pub virtual_network_peerings: Vec<Peering>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressSpace {
    pub address_prefixes: Vec<String>,
}

impl VnetProperties {
    /// One that is to be made, with a subnet that has all its addresses.
    pub fn of(block: Ipv4Net, subnet: Subnet) -> Self {
        let address_space = AddressSpace { address_prefixes: vec![block.to_string()] };
        Self { address_space, subnets: vec![subnet], ..Self::default() }
    }

    /// The address blocks of IPv4.
    pub fn blocks(&self) -> Vec<Ipv4Net> {
        self.address_space.address_prefixes.iter().filter_map(|text| text.parse().ok()).collect()
    }
}

/// Written again as it was found, but for what only Azure sets.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubnetProperties {
    pub provisioning_state: State,
    pub address_prefix: Option<String>,
    pub default_outbound_access: Option<bool>,
    pub nat_gateway: Option<Ref<Nat>>,
    pub network_security_group: Option<Ref<Group>>,
    /// Whether the security group also holds for private endpoints, such as an API server's.
    pub private_endpoint_network_policies: Option<String>,
    /// Who has an address in it.
    #[serde(skip_serializing)]
    pub ip_configurations: Vec<Value>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Further fields of a subnet that only Azure sets.
const READ_ONLY: [&str; 5] = [
    "ipConfigurationProfiles",
    "privateEndpoints",
    "purpose",
    "resourceNavigationLinks",
    "serviceAssociationLinks",
];

impl Subnet {
    /// As it is sent to be written again.
    pub fn rewritten(mut self) -> Self {
        self.properties.rest.retain(|name, _| !READ_ONLY.contains(&name.as_str()));
        self
    }
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeeringProperties {
    pub provisioning_state: State,
    #[serde(skip_serializing)]
    pub peering_state: PeeringState,
    pub remote_virtual_network: Option<Ref<Vnet>>,
    pub allow_virtual_network_access: Option<bool>,
    pub allow_forwarded_traffic: Option<bool>,
    pub allow_gateway_transit: Option<bool>,
    pub use_remote_gateways: Option<bool>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum PeeringState {
    /// Waits for its other side.
    Initiated,
    Connected,
    /// Its other side was deleted: it never comes up again.
    Disconnected,
    #[default]
    #[serde(other)]
    Unknown,
}

impl PeeringProperties {
    pub fn is_up(&self) -> bool {
        self.peering_state == PeeringState::Connected
    }

    pub fn lets_through(&self) -> bool {
        self.allow_virtual_network_access != Some(false)
    }
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NatProperties {
    pub provisioning_state: State,
    pub public_ip_addresses: Vec<Ref<PublicAddress>>,
    pub idle_timeout_in_minutes: Option<u32>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PublicAddressProperties {
    pub provisioning_state: State,
    #[serde(rename = "publicIPAllocationMethod")]
    pub allocation: Option<String>,
    #[serde(rename = "publicIPAddressVersion")]
    pub version: Option<String>,
    pub ip_address: Option<std::net::IpAddr>,
}

impl Sku {
    /// What public addresses and NAT gateways are.
    pub fn standard() -> Option<Self> {
        Some(Self { name: "Standard".to_owned(), tier: None })
    }
}
