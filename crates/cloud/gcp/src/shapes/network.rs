//! VPC networks, their peerings and their subnets.

use std::ops::Not;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

use crate::{link::Link, mark::Remark};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    pub name: String,
    #[serde(default)]
    pub description: Remark,
    #[serde(skip_deserializing)]
    pub auto_create_subnetworks: bool,
    #[serde(skip_deserializing)]
    pub routing_config: Routing,
    #[serde(default, skip_serializing)]
    pub peerings: Vec<Peering>,
    #[serde(default, skip_serializing)]
    pub network_firewall_policy_enforcement_order: String,
}

/// Whether policies come before the firewalls of a network: what it says then.
pub(crate) const POLICIES_FIRST: &str = "BEFORE_CLASSIC_FIREWALL";

impl Network {
    pub(crate) fn policies_come_first(&self) -> bool {
        self.network_firewall_policy_enforcement_order == POLICIES_FIRST
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Order {
    pub network_firewall_policy_enforcement_order: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Routing {
    pub routing_mode: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peering {
    pub name: String,
    pub network: Link<Network>,
    #[serde(skip_deserializing)]
    pub exchange_subnet_routes: bool,
    #[serde(skip_deserializing)]
    pub export_custom_routes: bool,
    #[serde(skip_deserializing)]
    pub import_custom_routes: bool,
    #[serde(default, skip_serializing)]
    pub state: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AddPeering {
    pub network_peering: Peering,
}

#[derive(Serialize)]
pub(crate) struct RemovePeering {
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subnet {
    pub name: String,
    #[serde(default)]
    pub description: Remark,
    pub network: Link<Network>,
    /// None if it has IPv6 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_cidr_range: Option<Ipv4Net>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secondary_ip_ranges: Vec<SecondaryRange>,
    #[serde(default, skip_serializing_if = "Not::not")]
    pub private_ip_google_access: bool,
    #[serde(skip_serializing)]
    pub region: Link,
    #[serde(skip_serializing)]
    pub self_link: Link<Subnet>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecondaryRange {
    pub range_name: String,
    pub ip_cidr_range: IpNet,
}

impl Subnet {
    /// All its ranges. Peered VPCs have routes to every one of them.
    pub(crate) fn ranges(&self) -> Vec<Ipv4Net> {
        let more = self.secondary_ip_ranges.iter().filter_map(|one| match one.ip_cidr_range {
            IpNet::V4(net) => Some(net),
            IpNet::V6(_) => None,
        });
        self.ip_cidr_range.into_iter().chain(more).collect()
    }

    /// The space of a subnet of ours: what its mark says, where it is divided, or else its range.
    pub(crate) fn whole(&self) -> Option<Ipv4Net> {
        self.description.mark().and_then(|mark| mark.space).or(self.ip_cidr_range)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GoogleAccess {
    pub private_ip_google_access: bool,
}
