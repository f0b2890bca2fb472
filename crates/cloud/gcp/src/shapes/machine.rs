//! Instances; and reserved addresses and forwarding rules, which make private endpoints.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::{Network, Subnet};
use crate::{link::Link, mark::Remark};

shapes! {
    Instance {
        both { name: String, network_interfaces: Vec<Interface>, }
        sent { description: Remark, tags: Tags, }
        said {
            /// What a user wrote.
            #[serde(flatten)]
            described: Map<String, Value>,
        }
        given { zone: Link, }
    }

    /// Network tags, with the version of their list.
    Tags {
        sent { items: Vec<String>, }
        maybe { fingerprint: String, }
    }

    Interface {
        sent { subnetwork: Link<Subnet>, }
        told {
            name: String,
            network: Link<Network>,
            #[serde(rename = "networkIP")]
            network_ip: Option<IpAddr>,
            stack_type: String,
        }
    }

    Address {
        both { name: String, }
        sent { description: Remark, }
        maybe {
            address_type: String,
            purpose: String,
            network: Option<Link<Network>>,
            subnetwork: Option<Link<Subnet>>,
            address: Option<IpAddr>,
        }
        told {
            /// None if it is global.
            region: Option<Link>,
        }
    }

    ForwardingRule {
        both { name: String, }
        sent {
            description: Remark,
            /// Said as a reference to a reserved address, told as the address itself.
            #[serde(rename = "IPAddress")]
            address: String,
        }
        maybe { allow_psc_global_access: bool, }
        said { network: Link<Network>, target: String, }
        told {
            psc_connection_status: String,
            /// None if it is global.
            region: Option<Link>,
        }
    }
}

impl Instance {
    /// The address of its first interface, once it has one.
    pub(crate) fn address(&self) -> Option<model::Address> {
        let address = self.network_interfaces.first()?.network_ip?;
        Some(ipnet::IpNet::from(address).into())
    }
}
