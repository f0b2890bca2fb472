//! The kinds of objects that the plugin works with, each in one line: what people call it, its type, by which it is
//! addressed (`GROUP/providers/TYPE/NAME`) and permitted (`TYPE/read`, `TYPE/write`, `TYPE/delete`), and how long work on it
//! takes.
//!
//! ```text
//!   kind           made for                                     needs first                known as ours by
//!   Vnet           a network; the hub that a gateway stands in  a cluster's: its group     tags
//!   Subnet         comes with its network                       its network                its network
//!   Peering        two networks; a network and the hub          both networks              its name
//!   Group          a machine; a cluster's subnet; a mark        –                          tags
//!   Interface      a machine                                    its group, a subnet        tags
//!   Machine        a resource                                   its interface              tags
//!   Cluster        a resource                                   a network of its own       tags
//!   PublicAddress  NAT; each of a gateway's two instances       –                          tags
//!   Nat            a network that may reach the Internet        its address                tags
//!   Gateway        a site                                       the hub, two addresses     tags
//!   LocalGateway   a tunnel: the peer                           –                          tags
//!   Connection     a tunnel                                     gateway, local gateway     tags
//! ```
//!
//! All of them are ready when Azure says `Succeeded`. What could not be made is written again under the same name, except a
//! connection, of which nobody then knows the key (`connections`).

use cloud_http::{Kind, Pace, Phase};

use crate::types::*;

macro_rules! kinds {
    ($($object:ident, $name:literal, $kind:literal, $pace:ident;)*) => {$(
        impl Kind for $object {
            const NAME: &'static str = $name;
            const PACE: Pace = Pace::$pace;

            /// One that failed is not worked on any more, and can be written again.
            fn phase(&self) -> Phase {
                if self.state().is_settled() { Phase::Ready } else { Phase::Coming }
            }
        }

        impl Object for $object {
            const TYPE: &'static str = $kind;

            fn state(&self) -> State {
                self.properties.provisioning_state
            }
        }
    )*};
}

kinds! {
    Vnet,          "virtual network",        "Microsoft.Network/virtualNetworks",                         QUICK;
    Subnet,        "subnet",                 "Microsoft.Network/virtualNetworks/subnets",                 QUICK;
    Peering,       "peering",                "Microsoft.Network/virtualNetworks/virtualNetworkPeerings",  QUICK;
    Group,         "network security group", "Microsoft.Network/networkSecurityGroups",                   QUICK;
    Interface,     "network interface",      "Microsoft.Network/networkInterfaces",                       QUICK;
    Machine,       "virtual machine",        "Microsoft.Compute/virtualMachines",                         QUICK;
    Cluster,       "managed cluster",        "Microsoft.ContainerService/managedClusters",                SLOW;
    PublicAddress, "public address",         "Microsoft.Network/publicIPAddresses",                       QUICK;
    Nat,           "NAT gateway",            "Microsoft.Network/natGateways",                             QUICK;
    Gateway,       "VPN gateway",            "Microsoft.Network/virtualNetworkGateways",                  SLOW;
    Instance,      "instance of a gateway",  "Microsoft.Network/virtualNetworkGateways/ipConfigurations", SLOW;
    LocalGateway,  "local network gateway",  "Microsoft.Network/localNetworkGateways",                    QUICK;
    Connection,    "VPN connection",         "Microsoft.Network/connections",                             QUICK;
}

/// The version of the API that a type is asked in.
pub fn version(kind: &str) -> &'static str {
    match kind.split('/').next() {
        Some("Microsoft.Compute") => "2024-07-01",
        Some("Microsoft.ContainerService") => "2024-09-01",
        _ => "2024-05-01",
    }
}
