//! Regions, VPCs, their prefixes and subnets, and NAT.

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::{Named, Reference};

#[derive(Debug, Deserialize)]
pub(crate) struct Regions {
    pub(crate) regions: Vec<Located>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Zones {
    pub(crate) zones: Vec<Located>,
}

/// A region or a zone.
#[derive(Debug, Deserialize)]
pub(crate) struct Located {
    pub(crate) name: String,
    pub(crate) status: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Vpc {
    pub(crate) id: String,
    pub(crate) crn: String,
    pub(crate) name: String,
    pub(crate) status: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct VpcRequest {
    pub(crate) name: String,
    pub(crate) address_prefix_management: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_group: Option<Reference>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AddressPrefix {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) cidr: Ipv4Net,
}

#[derive(Debug, Serialize)]
pub(crate) struct PrefixRequest {
    pub(crate) name: String,
    pub(crate) cidr: Ipv4Net,
    pub(crate) zone: Named,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Subnet {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) zone: Named,
    pub(crate) public_gateway: Option<Reference>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SubnetRequest {
    pub(crate) name: String,
    pub(crate) vpc: Reference,
    pub(crate) zone: Named,
    pub(crate) ipv4_cidr_block: Ipv4Net,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_gateway: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_group: Option<Reference>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PublicGateway {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) vpc: Reference,
}

#[derive(Debug, Serialize)]
pub(crate) struct NatRequest {
    pub(crate) name: String,
    pub(crate) vpc: Reference,
    pub(crate) zone: Named,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_group: Option<Reference>,
}
