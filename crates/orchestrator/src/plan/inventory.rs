//! What was made, and what was chosen for it. Each record is one object of the store.
//!
//! ```text
//!   (none) ── Making ──► Ready ──► Removing ── (none)
//! ```
//!
//! A record is written before the first call to a cloud and deleted after the last, so a crash leaves a record
//! behind rather than an orphan, and whoever finds the record knows what to repeat.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use ipnet::Ipv4Net;
use model::{
    BgpPair, EntryName, ExistingNetwork, GatewayState, LinkName, NetworkName, PeeringName, PermitEntry,
    ResourceName, ResourceState, Secret, Site,
};
use serde::{Deserialize, Serialize};

use super::Unreadable;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Perhaps made, perhaps not, perhaps in part.
    Making,
    Ready,
    /// Perhaps still there.
    Removing,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRecord {
    pub phase: Phase,
    pub space: Ipv4Net,
    /// What it is, if somebody else made it. It is then neither made nor deleted here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<ExistingNetwork>,
}

impl NetworkRecord {
    pub fn made(phase: Phase, space: Ipv4Net) -> Self {
        Self { phase, space, adopted: None }
    }

    pub fn adopted(phase: Phase, existing: ExistingNetwork) -> Self {
        Self { phase, space: existing.space, adopted: Some(existing) }
    }

    /// All addresses it takes.
    pub fn blocks(&self) -> impl Iterator<Item = Ipv4Net> {
        let beside = self.adopted.iter().flat_map(|existing| existing.beside.iter().copied());
        std::iter::once(self.space).chain(beside)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRecord {
    pub phase: Phase,
    pub network: NetworkName,
    /// Somebody else made it. It is then let go, and never deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
    /// Known once it was made.
    pub state: Option<ResourceState>,
    /// The permit list as it was last set.
    #[serde(default)]
    pub permit: BTreeMap<EntryName, PermitEntry>,
    /// Entries that a change under way, or interrupted, may have touched: every version the cloud may have, or none
    /// of them. Names that are not here are as in `permit`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changing: BTreeMap<EntryName, BTreeSet<PermitEntry>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayRecord {
    pub phase: Phase,
    pub asn: u32,
    pub state: Option<GatewayState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRecord {
    pub phase: Phase,
    pub bgp: Vec<BgpPair>,
    /// The address spaces behind each end when the link was last made, for clouds that route statically.
    #[serde(default)]
    pub spaces: [Vec<Ipv4Net>; 2],
    /// The tunnels' key. What lies below its prefix is sealed ([`crate::secrets`]).
    #[serde(with = "as_text")]
    pub shared_key: Secret,
    /// It was ready before, and is made anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stood: bool,
}

impl LinkRecord {
    /// Whether packets pass, or did until it was to be made anew.
    pub fn stands(&self) -> bool {
        self.phase == Phase::Ready || (self.stood && self.phase == Phase::Making)
    }
}

/// A secret as text, where it is stored sealed.
mod as_text {
    use model::Secret;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub fn serialize<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
        secret.expose().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        String::deserialize(from).map(Secret::new)
    }
}

/// A peering or a NAT: nothing is chosen for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimpleRecord {
    pub phase: Phase,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    pub networks: BTreeMap<NetworkName, NetworkRecord>,
    pub resources: BTreeMap<ResourceName, ResourceRecord>,
    pub peerings: BTreeMap<PeeringName, SimpleRecord>,
    pub nats: BTreeMap<NetworkName, SimpleRecord>,
    pub gateways: BTreeMap<Site, GatewayRecord>,
    pub links: BTreeMap<LinkName, LinkRecord>,
    /// AS numbers that others use.
    pub reserved_asns: BTreeSet<u32>,
    /// What is stored and says nothing.
    pub unreadable: Unreadable,
}

impl Inventory {
    pub fn used_spaces(&self) -> impl Iterator<Item = Ipv4Net> {
        self.networks.values().flat_map(NetworkRecord::blocks)
    }

    pub fn used_asns(&self) -> BTreeSet<u32> {
        self.gateways.values().map(|gateway| gateway.asn).chain(self.reserved_asns.iter().copied()).collect()
    }

    pub fn used_bgp(&self) -> BTreeSet<Ipv4Addr> {
        self.links.values().flat_map(|link| &link.bgp).flat_map(|pair| [pair.a, pair.b]).collect()
    }

    /// The spaces of a site's networks, sorted.
    pub fn spaces_of(&self, site: &Site) -> Vec<Ipv4Net> {
        let mut spaces: Vec<_> = self
            .networks
            .iter()
            .filter(|(name, record)| name.site == *site && record.phase != Phase::Removing)
            .map(|(_, record)| record.space)
            .collect();
        spaces.sort();
        spaces
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty()
            && self.resources.is_empty()
            && self.peerings.is_empty()
            && self.nats.is_empty()
            && self.gateways.is_empty()
            && self.links.is_empty()
    }
}
