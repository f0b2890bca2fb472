//! Both ends of a link, and its tunnels.

use std::net::IpAddr;

use model::Secret;
use serde::Serializer;

use super::{Network, Router};
use crate::{link::Link, mark::Remark};

shapes! {
    VpnGateway {
        both { name: String, network: Link<Network>, }
        sent { description: Remark, }
        told { vpn_interfaces: Vec<VpnInterface>, }
        given { region: Link, }
    }

    VpnInterface {
        told {
            /// None if it goes over an interconnect.
            ip_address: Option<IpAddr>,
        }
    }

    ExternalGateway {
        both { name: String, }
        sent { description: Remark, }
        said { redundancy_type: &'static str, interfaces: Vec<ExternalInterface>, }
    }

    ExternalInterface {
        said { id: usize, ip_address: Option<IpAddr>, }
    }

    Tunnel {
        both { name: String, }
        sent { description: Remark, }
        said {
            vpn_gateway: Link<VpnGateway>,
            vpn_gateway_interface: usize,
            peer_external_gateway: Link<ExternalGateway>,
            peer_external_gateway_interface: usize,
            router: Link<Router>,
            ike_version: u8,
            #[serde(serialize_with = "exposed")]
            shared_secret: Option<Secret>,
        }
        told { status: String, }
        given { region: Link, }
    }
}

fn exposed<S: Serializer>(secret: &Option<Secret>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(secret.as_ref().map_or("", Secret::expose))
}
