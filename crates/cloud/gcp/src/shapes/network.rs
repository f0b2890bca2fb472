//! VPC networks, their peerings and their subnets.

use ipnet::{IpNet, Ipv4Net};

use crate::{link::Link, mark::Remark};

shapes! {
    Network {
        both { name: String, }
        sent { description: Remark, }
        said { auto_create_subnetworks: bool, routing_config: Routing, }
        told { peerings: Vec<Peering>, network_firewall_policy_enforcement_order: String, }
    }

    Routing {
        both { routing_mode: String, }
    }

    Peering {
        both { name: String, network: Link<Network>, }
        said { exchange_subnet_routes: bool, export_custom_routes: bool, import_custom_routes: bool, }
        told { state: String, }
    }

    Subnet {
        both { name: String, network: Link<Network>, }
        sent { description: Remark, }
        maybe {
            /// None if it has IPv6 only.
            ip_cidr_range: Option<Ipv4Net>,
            secondary_ip_ranges: Vec<SecondaryRange>,
            private_ip_google_access: bool,
        }
        given { region: Link, self_link: Link<Subnet>, }
    }

    SecondaryRange {
        both { range_name: String, ip_cidr_range: IpNet, }
    }
}

/// What a network says if policies come before its firewalls.
pub(crate) const POLICIES_FIRST: &str = "BEFORE_CLASSIC_FIREWALL";

impl Network {
    pub(crate) fn policies_come_first(&self) -> bool {
        self.network_firewall_policy_enforcement_order == POLICIES_FIRST
    }
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
