//! The actions that EC2 is asked for, besides describing and deleting objects of a kind, which [`crate::kinds`] names.

use std::net::IpAddr;

use ipnet::Ipv4Net;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    CustomerGateway, ElasticIp, GroupId, Instance, InternetGateway, IpPermission, NatGateway, NewTag,
    PeeringAttachment, RouteTable, Subnet, Tags, TransitGateway, TransitRoute, Vpc, VpcAttachment,
    VpcPeering, VpnConnection,
};
use crate::{
    ec2::{Action, Done, List, Made, Manner},
    marks::Filter,
};

/// A row is an action: in what manner it may be repeated, its name, its parameters, and what it answers.
macro_rules! actions {
    ($($manner:ident $name:ident$(<$life:lifetime>)? {
        $($(#[$meta:meta])* $field:ident: $type:ty),* $(,)?
    } -> $answer:ty;)*) => {$(
        #[derive(Clone, Debug, Serialize)]
        #[serde(rename_all = "PascalCase")]
        pub(crate) struct $name$(<$life>)? {
            $($(#[$meta])* pub(crate) $field: $type,)*
        }

        impl$(<$life>)? Action for $name$(<$life>)? {
            const MANNER: Manner = Manner::$manner;
            type Answer = $answer;

            fn name(&self) -> &'static str {
                stringify!($name)
            }
        }
    )*};
}

actions! {
    Safe CreateTags<'r> { resource_id: [&'r str; 1], tag: Vec<NewTag> } -> Done;
    Safe DeleteTags<'r> { resource_id: [&'r str; 1], tag: Vec<NewTag> } -> Done;

    Once CreateVpc { cidr_block: Ipv4Net, tag_specification: Tags } -> Made<Vpc>;
    Fresh CreateSubnet<'r> {
        vpc_id: &'r str, cidr_block: Ipv4Net, availability_zone: Option<&'r str>, tag_specification: Tags,
    } -> Made<Subnet>;
    Fresh CreateRouteTable<'r> { vpc_id: &'r str, tag_specification: Tags } -> Made<RouteTable>;
    Fresh AssociateRouteTable<'r> { route_table_id: &'r str, subnet_id: &'r str } -> Done;
    Safe DisassociateRouteTable<'r> { association_id: &'r str } -> Done;
    Fresh CreateRoute<'r> {
        route_table_id: &'r str, destination_cidr_block: &'r str, #[serde(flatten)] target: Target<'r>,
    } -> Done;
    Safe DeleteRoute<'r> { route_table_id: &'r str, destination_cidr_block: &'r str } -> Done;

    Fresh CreateInternetGateway { tag_specification: Tags } -> Made<InternetGateway>;
    Fresh AttachInternetGateway<'r> { internet_gateway_id: &'r str, vpc_id: &'r str } -> Done;
    Safe DetachInternetGateway<'r> { internet_gateway_id: &'r str, vpc_id: &'r str } -> Done;
    Fresh AllocateAddress { domain: &'static str, tag_specification: Tags } -> Made<ElasticIp>;
    Fresh CreateNatGateway<'r> {
        subnet_id: &'r str, allocation_id: &'r str, client_token: String, tag_specification: Tags,
    } -> Made<NatGateway>;

    Fresh CreateVpcPeeringConnection<'r> {
        vpc_id: &'r str, peer_vpc_id: &'r str, peer_region: Option<&'r str>, tag_specification: Tags,
    } -> Made<VpcPeering>;
    Safe AcceptVpcPeeringConnection<'r> { vpc_peering_connection_id: &'r str } -> Made<VpcPeering>;

    Safe RunInstances<'r> {
        #[serde(flatten)] described: &'r Map<String, Value>,
        min_count: u8, max_count: u8, network_interface: [NewInterface<'r>; 1], client_token: String,
        tag_specification: Tags,
    } -> Instances;
    Safe TerminateInstances<'r> { instance_id: Vec<&'r str> } -> Done;
    Fresh ModifyNetworkInterfaceAttribute<'r> {
        network_interface_id: &'r str, security_group_id: &'r [&'r str],
    } -> Done;

    Fresh CreateSecurityGroup<'r> {
        group_name: &'r str, group_description: String, vpc_id: &'r str, tag_specification: Tags,
    } -> GroupId;
    Fresh RevokeSecurityGroupEgress<'r> { group_id: &'r str, ip_permissions: Vec<IpPermission> } -> Done;

    Once CreateTransitGateway { description: String, options: NewTransit, tag_specification: Tags } -> Made<TransitGateway>;
    Fresh CreateTransitGatewayVpcAttachment<'r> {
        transit_gateway_id: &'r str, vpc_id: &'r str, subnet_ids: Vec<&'r str>, tag_specifications: Tags,
    } -> Made<VpcAttachment>;
    Fresh ModifyTransitGatewayVpcAttachment<'r> {
        transit_gateway_attachment_id: &'r str, add_subnet_ids: [&'r str; 1],
    } -> Done;
    Fresh CreateTransitGatewayPeeringAttachment<'r> {
        transit_gateway_id: &'r str, peer_transit_gateway_id: &'r str, peer_account_id: &'r str,
        peer_region: &'r str, tag_specification: Tags,
    } -> Made<PeeringAttachment>;
    Safe AcceptTransitGatewayPeeringAttachment<'r> { transit_gateway_attachment_id: &'r str } -> Done;
    Fresh CreateTransitGatewayRoute<'r> {
        transit_gateway_route_table_id: &'r str, destination_cidr_block: Ipv4Net,
        transit_gateway_attachment_id: &'r str,
    } -> Done;
    Safe DeleteTransitGatewayRoute<'r> {
        transit_gateway_route_table_id: &'r str, destination_cidr_block: Ipv4Net,
    } -> Done;
    Safe SearchTransitGatewayRoutes<'r> {
        transit_gateway_route_table_id: &'r str, filter: Vec<Filter>,
    } -> Routes;

    Safe CreateCustomerGateway {
        r#type: &'static str, ip_address: IpAddr, bgp_asn: Option<u32>, bgp_asn_extended: Option<u32>,
        tag_specification: Tags,
    } -> Made<CustomerGateway>;
    Fresh CreateVpnConnection<'r> {
        customer_gateway_id: &'r str, r#type: &'static str, transit_gateway_id: &'r str, options: NewVpn<'r>,
        tag_specification: Tags,
    } -> Made<VpnConnection>;
    Safe ModifyVpnTunnelOptions<'r> {
        vpn_connection_id: &'r str, vpn_tunnel_outside_ip_address: IpAddr, tunnel_options: NewTunnel<'r>,
    } -> Done;
}

/// Authorizes, describes or revokes rules of a group, by the action's name.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ChangeRules<'r> {
    #[serde(skip)]
    pub(crate) action: &'static str,
    pub(crate) group_id: &'r str,
    pub(crate) ip_permissions: Vec<IpPermission>,
}

impl Action for ChangeRules<'_> {
    const MANNER: Manner = Manner::Once;
    type Answer = Done;

    fn name(&self) -> &'static str {
        self.action
    }
}

/// Where a route leads, with the name of the parameter that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Target<'r> {
    #[serde(rename = "GatewayId")]
    Internet(&'r str),
    #[serde(rename = "NatGatewayId")]
    Nat(&'r str),
    #[serde(rename = "TransitGatewayId")]
    Transit(&'r str),
    #[serde(rename = "VpcPeeringConnectionId")]
    Peering(&'r str),
}

/// The interface of a new instance.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NewInterface<'r> {
    pub(crate) device_index: u8,
    pub(crate) subnet_id: &'r str,
    pub(crate) security_group_id: [&'r str; 1],
    pub(crate) associate_public_ip_address: bool,
    pub(crate) delete_on_termination: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NewTransit {
    pub(crate) amazon_side_asn: u32,
}

shapes! {
    Instances { instances_set: List<Instance> }
    Routes { route_set: List<TransitRoute> }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NewVpn<'r> {
    pub(crate) static_routes_only: bool,
    pub(crate) tunnel_options: Vec<NewTunnel<'r>>,
}

/// A tunnel, or what is to change in one.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NewTunnel<'r> {
    pub(crate) pre_shared_key: &'r str,
    #[serde(flatten)]
    pub(crate) form: Option<TunnelForm>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TunnelForm {
    pub(crate) tunnel_inside_cidr: Ipv4Net,
    #[serde(rename = "IKEVersion")]
    pub(crate) ike_version: [Choice; 1],
    pub(crate) startup_action: &'static str,
}

/// One of several values.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Choice {
    pub(crate) value: &'static str,
}
