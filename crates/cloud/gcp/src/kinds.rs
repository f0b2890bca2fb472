//! The kinds of Compute Engine's objects that the plugin makes, and what it must know of each.
//!
//! All are got, inserted and deleted under names of ours ([`crate::names`]); what one is for, and whose, is in its
//! description ([`crate::mark`]); a change is an operation that is waited for, after which an object is ready
//! ([`crate::compute`]). Clusters and zones of names are of other APIs ([`crate::container`], [`crate::dns`]).

use cloud_http::Kind;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    mark::Remark,
    shapes::{
        Address, ExternalGateway, Firewall, ForwardingRule, Instance, Network, Policy, Router, Subnet,
        Tunnel, VpnGateway,
    },
};

pub(crate) trait Resource: Kind + Clone + Serialize + DeserializeOwned + 'static {
    const COLLECTION: &'static str;
    /// What Google calls its operations where it is global.
    const GLOBAL: &'static str;
    /// Nothing of Google's own is looked at, so once it is made it need not be read.
    const IS_AS_ASKED: bool;

    fn name(&self) -> &str;
    fn description(&self) -> &Remark;
}

macro_rules! kinds {
    ($($shape:ident, $collection:literal, $global:literal, $called:literal, $as_asked:literal;)*) => {$(
        impl Kind for $shape {
            const NAME: &'static str = $called;
        }

        impl Resource for $shape {
            const COLLECTION: &'static str = $collection;
            const GLOBAL: &'static str = $global;
            const IS_AS_ASKED: bool = $as_asked;

            fn name(&self) -> &str {
                &self.name
            }

            fn description(&self) -> &Remark {
                &self.description
            }
        }
    )*};
}

#[rustfmt::skip]
kinds! {
    // shape         collection             its operations if global  called                      as asked    needs
    Network,         "networks",            "networks",               "VPC network",              true;    // nothing
    Firewall,        "firewalls",           "firewalls",              "firewall",                 true;    // a network
    Policy,          "firewallPolicies",    "firewallPolicies",       "firewall policy",          false;   // nothing; is bound to a network
    Subnet,          "subnetworks",         "subnetworks",            "subnet",                   true;    // a network
    Instance,        "instances",           "instances",              "instance",                 false;   // a subnet
    Address,         "addresses",           "globalAddresses",        "reserved address",         false;   // a subnet, or if it is global a network
    ForwardingRule,  "forwardingRules",     "globalForwardingRules",  "forwarding rule",          false;   // an address
    Router,          "routers",             "routers",                "router",                   true;    // a network; of its sessions: tunnels
    VpnGateway,      "vpnGateways",         "vpnGateways",            "VPN gateway",              false;   // a network
    ExternalGateway, "externalVpnGateways", "externalVpnGateways",    "external VPN gateway",     true;    // nothing
    Tunnel,          "vpnTunnels",          "vpnTunnels",             "VPN tunnel",               false;   // both gateways and the router
}
