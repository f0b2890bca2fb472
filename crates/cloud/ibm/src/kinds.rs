//! The kinds of objects that are listed, made, waited for and deleted, as a table.

use cloud_http::{Failure, Pace, Phase, Reply, read_json};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::Result;
use crate::shapes::*;

/// A kind of object, by the type that its objects are read as.
pub(crate) trait Listed: cloud_http::Kind + DeserializeOwned + 'static {
    /// `subnet`, as in `create_subnet`.
    const ONE: &'static str;
    /// `vpc_address_prefixes`, as in `list_vpc_address_prefixes`.
    const MANY: &'static str;
    /// `address_prefixes`, as in paths and lists.
    const COLLECTION: &'static str;
    /// Whether it has a state: it is not there at once, nor gone at once.
    const HAS_STATE: bool;
    /// What one is asked for as.
    type Request: Serialize + Send + Sync + 'static;

    fn id(&self) -> &str;
    fn name(&self) -> &str;
    fn requested_name(request: &Self::Request) -> &str;
    fn read_page(operation: &str, reply: &Reply) -> Result<Page<Self>, Failure>;

    /// Not deleted, nor being deleted.
    fn is_alive(&self) -> bool {
        self.phase() != Phase::Going
    }

    fn is_ready(&self) -> bool {
        self.phase() == Phase::Ready
    }
}

/// One answer to a list, and the token of the next page.
pub(crate) type Page<K> = (Vec<K>, Option<String>);

#[derive(Deserialize)]
struct Next {
    href: String,
}

impl Next {
    /// The token in its address.
    fn start(&self) -> Option<String> {
        let (_, query) = self.href.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix("start=")).map(str::to_owned)
    }
}

/// How far an object is, by the fields that tell. The first says when it is ready.
fn phase(states: &[&String], ready: &str) -> Phase {
    let is = |words: &[&str]| states.iter().any(|state| words.contains(&state.as_str()));
    match states.first() {
        None => Phase::Ready,
        _ if is(&["deleting", "detaching", "detached"]) => Phase::Going,
        _ if is(&["failed"]) => Phase::Failed("IBM Cloud says no more than that it failed".to_owned()),
        Some(state) if **state == ready => Phase::Ready,
        Some(_) => Phase::Coming,
    }
}

macro_rules! kinds {
    ($($kind:ident $request:ident $name:literal $one:literal $many:literal $collection:literal [$($state:ident)*] $ready:literal $pace:ident)*) => {$(
        impl cloud_http::Kind for $kind {
            const NAME: &'static str = $name;
            const PACE: Pace = Pace::$pace;

            fn phase(&self) -> Phase {
                phase(&[$(&self.$state),*], $ready)
            }
        }

        impl Listed for $kind {
            const ONE: &'static str = $one;
            const MANY: &'static str = $many;
            const COLLECTION: &'static str = $collection;
            const HAS_STATE: bool = !$ready.is_empty();
            type Request = $request;

            fn id(&self) -> &str {
                &self.id
            }

            fn name(&self) -> &str {
                &self.name
            }

            fn requested_name(request: &$request) -> &str {
                &request.name
            }

            fn read_page(operation: &str, reply: &Reply) -> Result<Page<Self>, Failure> {
                #[derive(Deserialize)]
                struct List {
                    #[serde(rename = $collection)]
                    objects: Vec<$kind>,
                    next: Option<Next>,
                }
                let List { objects, next } = read_json(operation, reply)?;
                Ok((objects, next.and_then(|next| next.start())))
            }
        }
    )*};
}

// Whose an object is, stands in its name (`names`): owner and site. An object goes before what it is in or on: rules and
// bindings before groups, instances and endpoints before their groups and subnets, connections before gateways, joints
// before what they join, NAT and gateways off their subnets; and everything before its VPC, with which go its address
// prefixes and groups.
kinds! {
//  read as         asked for as      called                     operations                   listed by                     in lists and paths   state                     ready        looked at
    Vpc             VpcRequest        "VPC"                      "vpc"                        "vpcs"                        "vpcs"               [status]                  "available"  QUICK
    AddressPrefix   PrefixRequest     "address prefix"           "vpc_address_prefix"         "vpc_address_prefixes"        "address_prefixes"   []                        ""           QUICK
    Subnet          SubnetRequest     "subnet"                   "subnet"                     "subnets"                     "subnets"            [status]                  "available"  QUICK
    PublicGateway   NatRequest        "public gateway"           "public_gateway"             "public_gateways"             "public_gateways"    [status]                  "available"  QUICK
    SecurityGroup   GroupRequest      "security group"           "security_group"             "security_groups"             "security_groups"    []                        ""           QUICK
    GroupRule       RuleRequest       "rule of a security group" "security_group_rule"        "security_group_rules"        "rules"              []                        ""           QUICK
    Instance        InstanceRequest   "instance"                 "instance"                   "instances"                   "instances"          [status lifecycle_state]  "running"    QUICK
    EndpointGateway EndpointRequest   "endpoint gateway"         "endpoint_gateway"           "endpoint_gateways"           "endpoint_gateways"  [lifecycle_state]         "stable"     QUICK
    IkePolicy       PolicyRequest     "IKE policy"               "ike_policy"                 "ike_policies"                "ike_policies"       []                        ""           QUICK
    IpsecPolicy     PolicyRequest     "IPsec policy"             "ipsec_policy"               "ipsec_policies"              "ipsec_policies"     []                        ""           QUICK
    VpnGateway      VpnRequest        "VPN gateway"              "vpn_gateway"                "vpn_gateways"                "vpn_gateways"       [lifecycle_state]         "stable"     SLOW
    VpnConnection   ConnectionRequest "VPN connection"           "vpn_gateway_connection"     "vpn_gateway_connections"     "connections"        []                        ""           QUICK
    TransitGateway  TransitRequest    "transit gateway"          "transit_gateway"            "transit_gateways"            "transit_gateways"   [status]                  "available"  QUICK
    Joint           JointRequest      "joint"                    "transit_gateway_connection" "transit_gateway_connections" "connections"        [status]                  "attached"   QUICK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other() {
        let start = |href: &str| Next { href: href.to_owned() }.start();
        assert_eq!(start("https://x/v1/vpcs?limit=2&start=abc%3D&generation=2").as_deref(), Some("abc%3D"));
        assert_eq!(start("https://x/v1/vpcs"), None);
    }
}
