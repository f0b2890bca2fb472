//! The kinds of objects in an account, as a table: how each is listed, deleted and tagged, and when it is ready. What is made of
//! which parameters is in [`crate::shapes::actions`].

use cloud_http::{Kind, Pace, Phase};
use serde::de::DeserializeOwned;

use crate::shapes::{
    CustomerGateway, ElasticIp, Instance, InternetGateway, NatGateway, PeeringAttachment, Region,
    Reservation, RouteTable, SecurityGroup, Subnet, Tag, TransitGateway, Vpc, VpcAttachment, VpcPeering,
    VpnConnection, Zone,
};

pub(crate) trait Ec2Kind: Kind + DeserializeOwned {
    /// The action that lists such objects.
    const DESCRIBE: &'static str;
    /// The element of an answer that is a list of them.
    const LIST: &'static str;
    /// The element of an answer that is one of them; empty: the answer is.
    const ELEMENT: &'static str = "";
    /// The action that deletes one.
    const DELETE: &'static str = "";
    /// The parameter that names one.
    const ID: &'static str = "";
    /// What tags call it.
    const TAGGED: &'static str = "";
    /// What is remembered together: a read of one waits until it shows our last change of any.
    const FAMILY: &'static str;

    fn id(&self) -> &str;

    /// EC2's word for how far it is; empty for what is there at once.
    fn state(&self) -> &str {
        ""
    }

    /// Not on its way out, and not failed.
    fn is_alive(&self) -> bool {
        matches!(self.phase(), Phase::Ready | Phase::Coming)
    }

    /// Still listed, but nothing is left of it.
    fn is_gone(&self) -> bool {
        matches!(self.state(), "deleted" | "failed" | "rejected" | "expired")
    }
}

/// An object that has tags.
pub(crate) trait Tagged {
    fn tags(&self) -> &[Tag];
}

fn phase(state: &str, why: Option<&str>) -> Phase {
    match state {
        "" | "available" | "active" => Phase::Ready,
        "deleting" | "deleted" | "rejected" | "expired" => Phase::Going,
        "failed" => Phase::Failed(why.unwrap_or("EC2 does not say why").to_owned()),
        _ => Phase::Coming,
    }
}

/// A row is a kind: what people call it, how patiently it is waited for, how it is listed, what one is called in an answer, how it is
/// deleted, what its tags say it is, the family it is remembered with, and its fields.
macro_rules! kinds {
    ($($kind:ident $people:literal $pace:ident
        list $describe:literal $list:literal
        $(one $element:literal)? $(delete $delete:literal $id:literal)? $(tag $tagged:literal)? family $family:literal
        id $field:ident $(state $($state:ident).+)? $(why $why:ident)?;)*) => {$(
        impl Kind for $kind {
            const NAME: &'static str = $people;
            const PACE: Pace = Pace::$pace;

            fn phase(&self) -> Phase {
                phase(self.state(), None$(.or(self.$why.as_deref()))?)
            }
        }

        impl Ec2Kind for $kind {
            const DESCRIBE: &'static str = $describe;
            const LIST: &'static str = $list;
            $(const ELEMENT: &'static str = $element;)?
            $(const DELETE: &'static str = $delete;
            const ID: &'static str = $id;)?
            $(const TAGGED: &'static str = $tagged;)?
            const FAMILY: &'static str = $family;

            fn id(&self) -> &str {
                &self.$field
            }

            $(fn state(&self) -> &str {
                &self$(.$state)+
            })?
        }
    )*};
}

kinds! {
    Region "region" QUICK list "DescribeRegions" "regionInfo" family "region" id region_name;
    Zone "zone" QUICK list "DescribeAvailabilityZones" "availabilityZoneInfo" family "zone" id zone_name;

    Vpc "VPC" QUICK list "DescribeVpcs" "vpcSet" one "vpc"
        delete "DeleteVpc" "VpcId" tag "vpc" family "vpc" id vpc_id;
    Subnet "subnet" QUICK list "DescribeSubnets" "subnetSet" one "subnet"
        delete "DeleteSubnet" "SubnetId" tag "subnet" family "subnet" id subnet_id;
    VpcPeering "peering" QUICK list "DescribeVpcPeeringConnections" "vpcPeeringConnectionSet" one "vpcPeeringConnection"
        delete "DeleteVpcPeeringConnection" "VpcPeeringConnectionId" tag "vpc-peering-connection" family "peering"
        id vpc_peering_connection_id state status.code;

    Reservation "instance" QUICK list "DescribeInstances" "reservationSet" tag "instance" family "instance"
        id reservation_id;
    SecurityGroup "security group" QUICK list "DescribeSecurityGroups" "securityGroupInfo"
        delete "DeleteSecurityGroup" "GroupId" tag "security-group" family "group" id group_id;

    InternetGateway "internet gateway" QUICK list "DescribeInternetGateways" "internetGatewaySet" one "internetGateway"
        delete "DeleteInternetGateway" "InternetGatewayId" tag "internet-gateway" family "nat" id internet_gateway_id;
    RouteTable "route table" QUICK list "DescribeRouteTables" "routeTableSet" one "routeTable"
        delete "DeleteRouteTable" "RouteTableId" tag "route-table" family "nat" id route_table_id;
    ElasticIp "Elastic IP" QUICK list "DescribeAddresses" "addressesSet"
        delete "ReleaseAddress" "AllocationId" tag "elastic-ip" family "nat" id allocation_id;
    NatGateway "NAT gateway" QUICK list "DescribeNatGateways" "natGatewaySet" one "natGateway"
        delete "DeleteNatGateway" "NatGatewayId" tag "natgateway" family "nat"
        id nat_gateway_id state state why failure_message;

    TransitGateway "transit gateway" SLOW list "DescribeTransitGateways" "transitGatewaySet" one "transitGateway"
        delete "DeleteTransitGateway" "TransitGatewayId" tag "transit-gateway" family "transit"
        id transit_gateway_id state state;
    VpcAttachment "attachment" QUICK list "DescribeTransitGatewayVpcAttachments" "transitGatewayVpcAttachments"
        one "transitGatewayVpcAttachment" delete "DeleteTransitGatewayVpcAttachment" "TransitGatewayAttachmentId"
        tag "transit-gateway-attachment" family "attachment" id transit_gateway_attachment_id state state;
    PeeringAttachment "peering of transit gateways" SLOW
        list "DescribeTransitGatewayPeeringAttachments" "transitGatewayPeeringAttachments"
        one "transitGatewayPeeringAttachment" delete "DeleteTransitGatewayPeeringAttachment" "TransitGatewayAttachmentId"
        tag "transit-gateway-attachment" family "attachment" id transit_gateway_attachment_id state state;

    CustomerGateway "customer gateway" QUICK list "DescribeCustomerGateways" "customerGatewaySet" one "customerGateway"
        delete "DeleteCustomerGateway" "CustomerGatewayId" tag "customer-gateway" family "customer"
        id customer_gateway_id state state;
    VpnConnection "VPN connection" QUICK list "DescribeVpnConnections" "vpnConnectionSet" one "vpnConnection"
        delete "DeleteVpnConnection" "VpnConnectionId" tag "vpn-connection" family "connection"
        id vpn_connection_id state state;
}

macro_rules! tagged {
    ($($kind:ident)*) => {$(
        impl Tagged for $kind {
            fn tags(&self) -> &[Tag] {
                &self.tag_set
            }
        }
    )*};
}

tagged! { Vpc Subnet VpcPeering Instance SecurityGroup VpnConnection }
