//! Instances, their interfaces, and security groups.

use std::net::Ipv4Addr;

use serde::Serialize;

use super::{Tag, filled};
use crate::ec2::List;

shapes! {
    /// Instances that were asked for together.
    Reservation { reservation_id: String, instances_set: List<Instance> }
    Instance {
        instance_id: String,
        instance_state: InstanceState,
        vpc_id: Option<String>,
        subnet_id: Option<String>,
        #[serde(default, deserialize_with = "filled")]
        private_ip_address: Option<Ipv4Addr>,
        network_interface_set: List<Interface>,
        tag_set: List<Tag>,
    }
    InstanceState { name: String }
    Interface { network_interface_id: String, vpc_id: String, group_set: List<GroupOn> }
    GroupOn { group_id: String, group_name: String }

    /// What EC2 says of a group that it has just made.
    GroupId { group_id: String }
    SecurityGroup {
        group_id: String,
        group_name: String,
        vpc_id: String,
        ip_permissions: List<Permission>,
        ip_permissions_egress: List<Permission>,
        tag_set: List<Tag>,
    }
    Permission {
        ip_protocol: String,
        from_port: Option<i32>,
        to_port: Option<i32>,
        ip_ranges: List<Range>,
    }
    Range { cidr_ip: String, description: Option<String> }
}

impl Interface {
    /// The groups it is in.
    pub(crate) fn group_ids(&self) -> impl Iterator<Item = &str> {
        self.group_set.iter().map(|group| group.group_id.as_str())
    }
}

/// Rules of one protocol and port range, as they are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct IpPermission {
    pub(crate) ip_protocol: String,
    pub(crate) from_port: Option<i32>,
    pub(crate) to_port: Option<i32>,
    pub(crate) ip_ranges: Vec<IpRange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct IpRange {
    pub(crate) cidr_ip: String,
    pub(crate) description: Option<String>,
}
