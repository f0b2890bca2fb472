//! Routers: sessions and what they advertise, and NAT.

use super::{Network, Subnet};
use crate::{link::Link, mark::Remark};

shapes! {
    Router {
        both { name: String, network: Link<Network>, }
        sent { description: Remark, }
        maybe {
            /// None if it is there for NAT alone.
            bgp: Option<Bgp>,
            nats: Vec<Nat>,
        }
        told { interfaces: Vec<RouterInterface>, bgp_peers: Vec<BgpPeer>, }
        given { region: Link, }
    }

    /// What a router says. It is left as it is where nothing is said about it.
    Bgp {
        maybe {
            asn: Option<u32>,
            advertise_mode: Option<String>,
            advertised_groups: Option<Vec<String>>,
            advertised_ip_ranges: Option<Vec<Advertised>>,
        }
    }

    #[derive(Eq, PartialOrd, Ord)]
    Advertised {
        both { range: String, }
    }

    Nat {
        sent { source_subnetwork_ip_ranges_to_nat: String, }
        said { name: &'static str, nat_ip_allocate_option: &'static str, subnetworks: Vec<NatSubnet>, }
    }

    NatSubnet {
        said { name: Link<Subnet>, source_ip_ranges_to_nat: [&'static str; 1], }
    }

    /// Interfaces and BGP peers, which are written whole: those of others as they were read.
    Sessions {
        said { interfaces: Vec<RouterInterface>, bgp_peers: Vec<BgpPeer>, }
    }

    RouterInterface {
        both { name: String, }
        maybe { linked_vpn_tunnel: Option<String>, ip_range: Option<String>, }
        rest { rest }
    }

    BgpPeer {
        both { name: String, }
        maybe { interface_name: Option<String>, peer_ip_address: Option<String>, peer_asn: Option<u32>, }
        rest { rest }
    }

    RouterStatus {
        given { result: RouterResult, }
    }

    RouterResult {
        told { bgp_peer_status: Vec<PeerStatus>, best_routes: Vec<Route>, }
    }

    PeerStatus {
        told { status: String, }
        given { name: String, }
    }

    Route {
        given { dest_range: String, }
    }
}
