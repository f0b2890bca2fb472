//! Transit gateways, what is attached to them, and site-to-site VPN.

use std::net::IpAddr;

use ipnet::Ipv4Net;

use super::{Tag, filled};
use crate::ec2::List;

shapes! {
    TransitGateway { transit_gateway_id: String, state: String, options: TransitOptions }
    TransitOptions {
        amazon_side_asn: u32,
        /// The route table of all that is attached; comes with the gateway.
        association_default_route_table_id: Option<String>,
    }
    TransitRoute {
        #[serde(default, deserialize_with = "filled")]
        destination_cidr_block: Option<Ipv4Net>,
    }

    /// A VPC on a transit gateway.
    VpcAttachment { transit_gateway_attachment_id: String, state: String, subnet_ids: List<String> }
    /// Two transit gateways that are joined.
    PeeringAttachment {
        transit_gateway_attachment_id: String,
        state: String,
        accepter_tgw_info: Option<End>,
        requester_tgw_info: Option<End>,
    }
    End { transit_gateway_id: Option<String>, owner_id: Option<String> }

    CustomerGateway { customer_gateway_id: String, state: String }
    VpnConnection {
        vpn_connection_id: String,
        state: String,
        customer_gateway_id: Option<String>,
        /// None of one that is deleted.
        options: Option<VpnOptions>,
        vgw_telemetry: List<Telemetry>,
        tag_set: List<Tag>,
    }
    VpnOptions { tunnel_option_set: List<Tunnel> }
    Tunnel {
        #[serde(default, deserialize_with = "filled")]
        outside_ip_address: Option<IpAddr>,
        #[serde(default, deserialize_with = "filled")]
        tunnel_inside_cidr: Option<Ipv4Net>,
        pre_shared_key: Option<String>,
    }
    Telemetry {
        #[serde(default, deserialize_with = "filled")]
        outside_ip_address: Option<IpAddr>,
        status: Option<String>,
    }
}
