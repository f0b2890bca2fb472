//! Networks and what is in them: VPCs, subnets, route tables, NAT, peerings.

use ipnet::Ipv4Net;
use serde::de::IgnoredAny;

use super::Tag;
use crate::ec2::List;

shapes! {
    Region { region_name: String }
    Zone { zone_name: String, zone_state: String }

    Vpc {
        vpc_id: String,
        /// The first of its blocks.
        cidr_block: Ipv4Net,
        cidr_block_association_set: List<Block>,
        owner_id: Option<String>,
        tag_set: List<Tag>,
    }
    Block { cidr_block: Ipv4Net, cidr_block_state: BlockState }
    BlockState { state: String }
    Subnet { subnet_id: String, availability_zone: String, tag_set: List<Tag> }

    RouteTable { route_table_id: String, association_set: List<Association>, route_set: List<Route> }
    Association {
        route_table_association_id: String,
        /// None if it is of the whole VPC, or of a gateway.
        subnet_id: Option<String>,
        main: bool,
    }
    Route {
        /// None if it is for IPv6, or for a list of prefixes.
        destination_cidr_block: Option<String>,
        gateway_id: Option<String>,
        nat_gateway_id: Option<String>,
        transit_gateway_id: Option<String>,
        vpc_peering_connection_id: Option<String>,
        state: Option<String>,
    }

    InternetGateway { internet_gateway_id: String, attachment_set: List<IgnoredAny> }
    ElasticIp { allocation_id: String }
    NatGateway { nat_gateway_id: String, state: String, failure_message: Option<String> }

    VpcPeering { vpc_peering_connection_id: String, status: PeeringStatus, tag_set: List<Tag> }
    PeeringStatus { code: String }
}

impl Vpc {
    /// All its address blocks.
    pub(crate) fn blocks(&self) -> Vec<Ipv4Net> {
        let further = self.cidr_block_association_set.iter();
        let further =
            further.filter(|one| one.cidr_block_state.state == "associated").map(|one| one.cidr_block);
        let mut blocks: Vec<Ipv4Net> = [self.cidr_block].into_iter().chain(further).collect();
        blocks.sort();
        blocks.dedup();
        blocks
    }
}

impl RouteTable {
    pub(crate) fn is_of(&self, subnet: &str) -> bool {
        self.association_set.iter().any(|one| one.subnet_id.as_deref() == Some(subnet))
    }

    pub(crate) fn is_main(&self) -> bool {
        self.association_set.iter().any(|one| one.main)
    }
}
