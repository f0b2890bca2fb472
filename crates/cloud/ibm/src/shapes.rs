//! What IBM's APIs answer with and what they are asked, as tables of types: the fields that this plugin uses, under IBM's
//! names.
//!
//! A field that IBM always shows is required, and its absence is an error that tells where; what stands after the semicolon
//! may be absent. What else an answer has is ignored: no object is read, changed and written back whole. In requests what a
//! user wrote (`described`) goes in as it is.

use std::net::IpAddr;

use cloud_api::CloudError;
use ipnet::{IpNet, Ipv4Net};
use model::Direction;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Result;

macro_rules! answers {
    ($($(#[$about:meta])* $name:ident { $($(#[$mark:meta])* $field:ident: $type:ty),* $(; $($may:ident: $might:ty),*)? })*) => {$(
        #[derive(Deserialize)]
        $(#[$about])*
        pub(crate) struct $name {
            $($(#[$mark])* pub(crate) $field: $type,)*
            $($(pub(crate) $may: Option<$might>,)*)?
        }
    )*};
}

macro_rules! requests {
    ($($(#[$about:meta])* $name:ident $(<$life:lifetime>)? { $($(#[$mark:meta])* $field:ident: $type:ty),* $(; $($may:ident: $might:ty),*)? })*) => {$(
        #[derive(Serialize)]
        $(#[$about])*
        pub(crate) struct $name $(<$life>)? {
            $($(#[$mark])* pub(crate) $field: $type,)*
            $($(#[serde(skip_serializing_if = "Option::is_none")] pub(crate) $may: Option<$might>,)*)?
        }
    )*};
}

/// Another object. In requests its id says which; answers also have what is known of it there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) id: String,
    #[serde(default, skip_serializing)]
    crn: Option<String>,
    #[serde(default, skip_serializing)]
    pub(crate) name: Option<String>,
}

impl Reference {
    pub(crate) fn to(id: impl Into<String>) -> Self {
        Self { id: id.into(), crn: None, name: None }
    }

    /// Its name in all of IBM Cloud.
    pub(crate) fn crn(&self) -> Result<&str> {
        let none = || CloudError::unavailable(format!("IBM Cloud shows {} without its CRN", self.id));
        self.crn.as_deref().ok_or_else(none)
    }
}

/// What is known by its name alone, as zones are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
}

impl Named {
    pub(crate) fn of(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

/// An address; unspecified while there is none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ip {
    pub(crate) address: IpAddr,
}

/// Whom a rule lets in or out to: an address, a prefix, or the members of a group, which has neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remote {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cidr_block: Option<String>,
}

answers! {
    Regions { regions: Vec<Located> }
    Zones { zones: Vec<Located> }
    /// A region or a zone.
    Located { name: String, status: String }

    Vpc { id: String, crn: String, name: String, status: String }
    AddressPrefix { id: String, name: String, cidr: Ipv4Net }
    Subnet { id: String, name: String, status: String, zone: Named; public_gateway: Reference }
    #[derive(Clone)]
    PublicGateway { id: String, name: String, status: String, vpc: Reference }

    SecurityGroup { id: String, name: String, vpc: Reference, rules: Vec<GroupRule>, targets: Vec<Target> }
    /// What a group is on. Interfaces have an address.
    Target { id: String; primary_ip: Ip }
    /// `type` is a single kind of ICMP.
    GroupRule { id: String, name: String, direction: Direction, protocol: String, remote: Remote; port_min: u16, port_max: u16, r#type: u16 }

    /// Those of the older kind have no attachments.
    Instance { id: String, name: String, status: String, lifecycle_state: String, vpc: Reference, network_attachments: Vec<Attachment>; primary_network_attachment: Attachment }
    Attachment { primary_ip: Ip, virtual_network_interface: Reference }
    EndpointGateway { id: String, name: String, lifecycle_state: String, ips: Vec<Ip> }
    /// A managed Kubernetes cluster.
    #[serde(rename_all = "camelCase")]
    Cluster { id: String, name: String, state: String, vpcs: Vec<String>, lifecycle: Lifecycle; master_status: String }
    #[serde(rename_all = "camelCase")]
    Lifecycle { ; master_status: String }

    /// Those of policy mode, which are somebody else's, have no AS number and advertise nothing.
    VpnGateway { id: String, crn: String, name: String, lifecycle_state: String, members: Vec<Member>, connections: Vec<Reference>, #[serde(default)] advertised_cidrs: Vec<IpNet>; local_asn: u32 }
    Member { public_ip: Ip }
    IkePolicy { id: String, name: String }
    IpsecPolicy { id: String, name: String }
    /// Those of policy mode have no tunnels.
    VpnConnection { id: String, name: String, admin_state_up: bool, psk: String, peer: ShownPeer, #[serde(default)] tunnels: Vec<ShownTunnel> }
    /// It may have a name instead of an address.
    ShownPeer { ; address: IpAddr, asn: u32 }
    /// Without BGP there is neither an inside nor a session.
    ShownTunnel { status: String; tunnel_interface_ip: Ip, neighbor_ip: Ip, protocol_state: String }

    TransitGateway { id: String, name: String, status: String }
    /// What is attached to a transit gateway: a CRN. What others attach may have no name, and be something else.
    #[derive(Clone)]
    Joint { id: String, #[serde(default)] name: String, status: String; network_id: String }
    RouteReports { route_reports: Vec<RouteReport> }
    RouteReport { id: String, status: String, connections: Vec<ReportedConnection> }
    ReportedConnection { bgps: Vec<ReportedRoute> }
    ReportedRoute { is_used: bool; as_path: String, prefix: String }
}

requests! {
    VpcRequest { name: String, address_prefix_management: &'static str; resource_group: Reference }
    PrefixRequest { name: String, cidr: Ipv4Net, zone: Named }
    SubnetRequest { name: String, vpc: Reference, zone: Named, ipv4_cidr_block: Ipv4Net; public_gateway: Reference, resource_group: Reference }
    NatRequest { name: String, vpc: Reference, zone: Named; resource_group: Reference }
    GroupRequest { name: String, vpc: Reference, rules: Vec<RuleRequest>; resource_group: Reference }
    #[derive(Clone, Debug)]
    RuleRequest { name: String, direction: Direction, protocol: &'static str, remote: Remote; port_min: u16, port_max: u16 }

    InstanceRequest { #[serde(flatten)] described: Map<String, Value>, name: String, vpc: Reference, primary_network_attachment: AttachmentRequest; resource_group: Reference }
    AttachmentRequest { name: &'static str, virtual_network_interface: InterfaceRequest }
    InterfaceRequest { name: String, subnet: Reference, security_groups: [Reference; 1], allow_ip_spoofing: bool, auto_delete: bool }
    EndpointRequest { #[serde(flatten)] described: Map<String, Value>, name: String, vpc: Reference, security_groups: [Reference; 1], ips: [ReservedIpRequest; 1]; resource_group: Reference }
    /// `auto_delete`: it goes with what it is the address of.
    ReservedIpRequest { name: String, subnet: Reference, auto_delete: bool }
    #[serde(rename_all = "camelCase")]
    ClusterRequest<'r> { #[serde(flatten)] described: &'r Map<String, Value>, name: &'r str, provider: &'static str, disable_public_service_endpoint: bool, disable_outbound_traffic_protection: bool, pod_subnet: Ipv4Net, service_subnet: Ipv4Net, #[serde(rename = "securityGroupIDs")] groups: Vec<&'r str>, worker_pool: PoolRequest<'r> }
    PoolRequest<'r> { #[serde(flatten)] described: &'r Map<String, Value>, #[serde(rename = "vpcID")] vpc: &'r str, zones: Vec<PoolZone<'r>> }
    PoolZone<'r> { id: &'r str, #[serde(rename = "subnetID")] subnet: &'r str }

    VpnRequest { name: String, mode: &'static str, subnet: Reference, local_asn: u32; resource_group: Reference }
    /// `ike_version` and `dh_groups` are IKE's, `pfs_groups` IPsec's.
    PolicyRequest { name: String, authentication_algorithms: [&'static str; 1], encryption_algorithms: [&'static str; 1], key_lifetime: u32; ike_version: u8, dh_groups: [u8; 1], pfs_groups: [&'static str; 1], resource_group: Reference }
    ConnectionRequest { name: String, psk: String, peer: Peer, routing_protocol: &'static str, tunnels: Vec<Tunnel>, ike_policy: Reference, ipsec_policy: Reference, establish_mode: &'static str, dead_peer_detection: Probing }
    Peer { address: IpAddr, asn: u32 }
    Tunnel { tunnel_interface_ip: Ip, neighbor_ip: Ip }
    Probing { action: &'static str, interval: u8, timeout: u8 }
    /// Another key for a connection.
    KeyPatch<'k> { psk: &'k str }
    TransitRequest { name: String, location: String, global: bool; resource_group: Reference }
    JointRequest { name: String, network_type: &'static str, network_id: String }
}

impl SecurityGroup {
    /// Whether it is on an interface.
    pub(crate) fn targets(&self, interface: &str) -> bool {
        self.targets.iter().any(|target| target.id == interface)
    }
}

/// As IBM would show them.
#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    pub(crate) fn group(name: &str, rules: Vec<GroupRule>) -> SecurityGroup {
        SecurityGroup {
            id: "g".into(),
            name: name.into(),
            vpc: Reference::to("v"),
            rules,
            targets: Vec::new(),
        }
    }

    /// Through the JSON of both.
    pub(crate) fn rule(id: &str, asked: &RuleRequest) -> GroupRule {
        let mut shown = serde_json::to_value(asked).unwrap();
        shown.as_object_mut().unwrap().insert("id".into(), id.into());
        serde_json::from_value(shown).unwrap()
    }

    /// For whatever ports; without a prefix it is for the members of a group.
    pub(crate) fn open(id: &str, direction: Direction, protocol: &str, block: Option<&str>) -> GroupRule {
        let remote = Remote { address: None, cidr_block: block.map(str::to_owned) };
        let (name, protocol, port_min, port_max, r#type) = (id.into(), protocol.into(), None, None, None);
        GroupRule { id: id.into(), name, direction, protocol, remote, port_min, port_max, r#type }
    }
}
