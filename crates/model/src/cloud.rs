//! What clouds are made of: sites, networks, resources, peerings, gateways and links.
//!
//! ```text
//!   site      namespace . cloud             one gateway, one autonomous system
//!   network   namespace . cloud . region    one address space; resources live in it
//!   peering   network ── network            same cloud
//!   link      site ══ site                  other cloud: two tunnels with BGP between the sites' gateways
//! ```
//!
//! Names order themselves where the order of a pair does not matter, so that a pair has one name.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

use ipnet::Ipv4Net;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Address, NameError, ResourceName, Segment};

/// A namespace's part of one cloud.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    pub namespace: Segment,
    pub cloud: Segment,
}

/// A virtual network: one per site and region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkName {
    pub site: Site,
    pub region: Segment,
}

/// Two networks of one cloud that are joined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeeringName {
    a: NetworkName,
    b: NetworkName,
}

/// Two sites in different clouds that are joined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName {
    a: Site,
    b: Site,
}

/// Why a text or a pair is not a name of this kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloudNameError {
    #[error("{text:?} is not of the form {form}")]
    Form { text: String, form: &'static str },
    #[error("a part of the name is not legal")]
    Name(#[from] NameError),
    #[error("{a} and {b} cannot be peered: a peering joins two networks of one cloud")]
    Peering { a: String, b: String },
    #[error("{a} and {b} cannot be linked: a link joins sites in two clouds")]
    Link { a: String, b: String },
}

impl Site {
    pub fn of(resource: &ResourceName) -> Self {
        Self { namespace: resource.namespace.clone(), cloud: resource.cloud.clone() }
    }
}

impl PeeringName {
    pub fn new(a: NetworkName, b: NetworkName) -> Result<Self, CloudNameError> {
        if a == b || a.site.cloud != b.site.cloud {
            return Err(CloudNameError::Peering { a: a.to_string(), b: b.to_string() });
        }
        Ok(if a < b { Self { a, b } } else { Self { a: b, b: a } })
    }

    pub fn ends(&self) -> [&NetworkName; 2] {
        [&self.a, &self.b]
    }

    pub fn cloud(&self) -> &Segment {
        &self.a.site.cloud
    }
}

impl LinkName {
    pub fn new(a: Site, b: Site) -> Result<Self, CloudNameError> {
        if a.cloud == b.cloud {
            return Err(CloudNameError::Link { a: a.to_string(), b: b.to_string() });
        }
        Ok(if a < b { Self { a, b } } else { Self { a: b, b: a } })
    }

    /// Both sites; the first has the lower address of each tunnel's /30.
    pub fn ends(&self) -> [&Site; 2] {
        [&self.a, &self.b]
    }

    /// The other end.
    pub fn peer_of(&self, site: &Site) -> &Site {
        if *site == self.a { &self.b } else { &self.a }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.namespace, self.cloud)
    }
}

impl FromStr for Site {
    type Err = CloudNameError;

    fn from_str(text: &str) -> Result<Self, CloudNameError> {
        match text.split('.').collect::<Vec<_>>().as_slice() {
            [namespace, cloud] => Ok(Self { namespace: namespace.parse()?, cloud: cloud.parse()? }),
            _ => Err(form(text, "namespace.cloud")),
        }
    }
}

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.site, self.region)
    }
}

impl FromStr for NetworkName {
    type Err = CloudNameError;

    fn from_str(text: &str) -> Result<Self, CloudNameError> {
        let (site, region) = text.rsplit_once('.').ok_or_else(|| form(text, "namespace.cloud.region"))?;
        Ok(Self { site: site.parse()?, region: region.parse()? })
    }
}

impl fmt::Display for PeeringName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.a, self.b)
    }
}

impl FromStr for PeeringName {
    type Err = CloudNameError;

    fn from_str(text: &str) -> Result<Self, CloudNameError> {
        let (a, b) = text.split_once('+').ok_or_else(|| form(text, "network+network"))?;
        Self::new(a.parse()?, b.parse()?)
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.a, self.b)
    }
}

impl FromStr for LinkName {
    type Err = CloudNameError;

    fn from_str(text: &str) -> Result<Self, CloudNameError> {
        let (a, b) = text.split_once('+').ok_or_else(|| form(text, "site+site"))?;
        Self::new(a.parse()?, b.parse()?)
    }
}

fn form(text: &str, form: &'static str) -> CloudNameError {
    CloudNameError::Form { text: text.chars().take(64).collect(), form }
}

macro_rules! text_serde {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
text_serde!(Site, NetworkName, PeeringName, LinkName, ResourceName);

/// What a cloud's plugin says of itself: the bounds a plan must keep, and what it cannot do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudTraits {
    /// First and last /30 network address for BGP inside tunnels.
    pub bgp_first: Ipv4Addr,
    pub bgp_last: Ipv4Addr,
    /// /30s the cloud keeps for itself.
    pub bgp_reserved: Vec<Ipv4Net>,
    /// The autonomous system its gateways always have, where the cloud leaves no choice.
    pub asn: Option<u32>,
    /// Tunnels per link it can make.
    pub tunnels: u8,
    /// Routes are learnt; otherwise a link is made anew when the networks behind its other end change.
    pub bgp: bool,
    /// Public addresses of this end of a link. A link has as many tunnels as its larger end has addresses.
    pub addresses: u8,
    /// The addresses belong to the link, not to the gateway, and are known once this end of it was made.
    pub late_addresses: bool,
    /// Inside a tunnel this cloud always takes the first address of the /30.
    pub bgp_first_host: bool,
    /// AS numbers that this cloud takes neither for itself nor for a peer: first and last of each range.
    pub asn_reserved: Vec<(u32, u32)>,
    /// It finds a network for each resource by itself, so that addresses may be outside the planned ones.
    pub places_resources: bool,
    /// Its listing has everything of a site; otherwise networks only.
    pub lists_everything: bool,
    /// It can take down what it made.
    pub deletes: bool,
    /// Entries of permit lists keep their names; otherwise an entry is known by what it permits.
    pub names_entries: bool,
    /// What it is to make a gateway; none if the plugin does not say.
    pub gateway: Option<Effort>,
    /// The same of one end of a link between gateways that are there.
    pub connection: Option<Effort>,
}

/// What it takes to make something, for people who are about to ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// How long it usually takes.
    pub seconds: u32,
    pub cost: Cost,
}

/// What something costs while it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    Free,
    /// By the hour as long as it is there, and by what passes through it.
    Hourly,
}

impl Default for CloudTraits {
    fn default() -> Self {
        Self {
            bgp_first: Ipv4Addr::new(169, 254, 0, 0),
            bgp_last: Ipv4Addr::new(169, 254, 255, 252),
            bgp_reserved: Vec::new(),
            asn: None,
            tunnels: 2,
            bgp: true,
            addresses: 2,
            late_addresses: false,
            bgp_first_host: false,
            asn_reserved: Vec::new(),
            places_resources: false,
            lists_everything: true,
            deletes: true,
            names_entries: true,
            gateway: None,
            connection: None,
        }
    }
}

/// A resource as its cloud knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceState {
    /// The cloud's own id.
    pub uri: String,
    /// A block, if it is a cluster.
    pub address: Address,
    pub region: Segment,
}

/// The addresses of a network that somebody else made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExistingNetwork {
    /// The block that resources may be attached from.
    pub space: Ipv4Net,
    /// Its other blocks. Nothing is attached from them, but nothing may overlap them either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Ipv4Net>,
}

impl ExistingNetwork {
    pub fn blocks(&self) -> impl Iterator<Item = Ipv4Net> {
        std::iter::once(self.space).chain(self.beside.iter().copied())
    }
}

/// A gateway as its cloud knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayState {
    pub asn: u32,
    /// Public addresses; tunnel `i` uses the `i`-th, round and round. None where they belong to the links.
    pub addresses: Vec<IpAddr>,
}

/// The addresses of BGP inside one tunnel, in the order of a link's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BgpPair {
    pub a: Ipv4Addr,
    pub b: Ipv4Addr,
}

/// One side of a link, as a plugin is asked to make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSpec {
    /// The end that is made.
    pub site: Site,
    pub peer: Site,
    pub peer_asn: u32,
    /// The peer's public addresses, one per tunnel.
    pub peer_addresses: Vec<IpAddr>,
    /// Inside addresses at this end, one per tunnel.
    pub local_bgp: Vec<Ipv4Addr>,
    /// Inside addresses at the peer, one per tunnel.
    pub peer_bgp: Vec<Ipv4Addr>,
    /// The address spaces behind the peer, for clouds without BGP.
    pub peer_spaces: Vec<Ipv4Net>,
    /// Routes are learnt; otherwise one of the two clouds has no BGP, and they are `peer_spaces`.
    pub bgp: bool,
    pub shared_key: crate::Secret,
}

/// How one side of a link is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    pub tunnels_up: u32,
    pub tunnels: u32,
    pub bgp_established: u32,
    pub routes: Vec<Ipv4Net>,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(text: &str) -> Site {
        text.parse().unwrap()
    }

    #[test]
    fn a_pair_has_one_name_whatever_its_order() {
        let (a, b) = (site("ns.azure"), site("ns.gcp"));
        let link = LinkName::new(b.clone(), a.clone()).unwrap();
        assert_eq!(link, LinkName::new(a.clone(), b.clone()).unwrap());
        assert_eq!(link.to_string().parse(), Ok(link.clone()));
        assert_eq!(link.peer_of(&a), &b);
        assert_eq!(link.peer_of(&b), &a);
    }

    #[test]
    fn links_cross_clouds_and_peerings_do_not() {
        assert!(LinkName::new(site("a.gcp"), site("b.gcp")).is_err());
        let network = |text: &str| text.parse::<NetworkName>().unwrap();
        assert!(PeeringName::new(network("a.gcp.r1"), network("b.gcp.r1")).is_ok());
        assert!(PeeringName::new(network("a.gcp.r1"), network("a.aws.r1")).is_err());
        assert!(PeeringName::new(network("a.gcp.r1"), network("a.gcp.r1")).is_err());
    }

    #[test]
    fn names_have_exactly_their_parts() {
        for bad in ["a", "a.b.c", "a..", ".a", ""] {
            assert!(bad.parse::<Site>().is_err(), "{bad}");
        }
        for bad in ["a.b", "a.b.c.d", "a.b."] {
            assert!(bad.parse::<NetworkName>().is_err(), "{bad}");
        }
    }
}
