//! What the cloud consists of: one file, replaced whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

use ipnet::Ipv4Net;
use model::{
    ConnectionSpec, EntryName, NetworkName, PeeringName, PermitEntry, ResourceName, Secret, Segment, Site,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{attach::Attached, command::Command};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub networks: BTreeMap<NetworkName, Ipv4Net>,
    pub resources: BTreeMap<ResourceName, Resource>,
    /// Numbered, so that their interfaces and addresses have names.
    pub peerings: BTreeMap<PeeringName, u16>,
    /// Networks whose resources reach public addresses.
    #[serde(default)]
    pub nats: BTreeSet<NetworkName>,
    /// The gateways' autonomous systems.
    #[serde(default)]
    pub gateways: BTreeMap<Site, u32>,
    /// By site, then by peer.
    #[serde(default)]
    pub connections: BTreeMap<Site, BTreeMap<Site, Connection>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Resource {
    pub region: Segment,
    pub address: Ipv4Addr,
    pub description: String,
    pub permit: BTreeMap<EntryName, PermitEntry>,
    /// What it is, if it was not made here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

/// A description of a resource.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Description {
    pub region: Option<Segment>,
    /// Runs inside it as long as it is there.
    pub command: Option<Command>,
}

impl Resource {
    /// The command it was described with.
    pub(crate) fn command(&self) -> Option<Command> {
        let described: Option<Description> = serde_json::from_str(&self.description).ok();
        described.and_then(|described| described.command).filter(|_| self.attached.is_none())
    }
}

/// This end of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Connection {
    pub peer_asn: u32,
    pub peer_addresses: Vec<IpAddr>,
    pub local_bgp: Vec<Ipv4Addr>,
    pub peer_bgp: Vec<Ipv4Addr>,
    #[serde(serialize_with = "expose", deserialize_with = "conceal")]
    pub shared_key: Secret,
}

impl From<&ConnectionSpec> for Connection {
    fn from(spec: &ConnectionSpec) -> Self {
        Self {
            peer_asn: spec.peer_asn,
            peer_addresses: spec.peer_addresses.clone(),
            local_bgp: spec.local_bgp.clone(),
            peer_bgp: spec.peer_bgp.clone(),
            shared_key: spec.shared_key.clone(),
        }
    }
}

/// The state file is private: daemons are started anew with this key after a crash.
fn expose<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

fn conceal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    String::deserialize(deserializer).map(Secret::new)
}

impl State {
    /// An absent file is an empty state; a file that cannot be read is an error, not an empty state.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(err) => Err(err),
        }
    }

    /// On disk when this returns.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        files::write(path, &serde_json::to_vec_pretty(self).map_err(io::Error::other)?)
    }

    pub(crate) fn network_of(&self, name: &ResourceName) -> Option<NetworkName> {
        let resource = self.resources.get(name)?;
        Some(NetworkName { site: Site::of(name), region: resource.region.clone() })
    }

    /// The resources of a network.
    pub(crate) fn residents<'s>(
        &'s self,
        network: &'s NetworkName,
    ) -> impl Iterator<Item = (&'s ResourceName, &'s Resource)> {
        self.resources.iter().filter(move |(name, resource)| {
            Site::of(name) == network.site && resource.region == network.region
        })
    }

    /// The lowest address of a network that nobody has.
    pub(crate) fn free_address(&self, network: &NetworkName) -> Option<Ipv4Addr> {
        let used: BTreeSet<Ipv4Addr> =
            self.residents(network).map(|(_, resource)| resource.address).collect();
        self.networks.get(network)?.hosts().find(|ip| !used.contains(ip))
    }

    /// The networks of a site.
    pub(crate) fn networks_of<'s>(
        &'s self,
        site: &'s Site,
    ) -> impl Iterator<Item = (&'s NetworkName, Ipv4Net)> {
        self.networks.iter().filter(move |(name, _)| name.site == *site).map(|(name, space)| (name, *space))
    }

    /// Whether a site has something that needs an edge: a gateway, or NAT.
    pub(crate) fn needs_edge(&self, site: &Site) -> bool {
        self.gateways.contains_key(site) || self.nats.iter().any(|nat| nat.site == *site)
    }

    /// The sites that have an edge.
    pub(crate) fn edges(&self) -> BTreeSet<&Site> {
        self.gateways.keys().chain(self.nats.iter().map(|nat| &nat.site)).collect()
    }

    pub(crate) fn free_peering(&self) -> u16 {
        let used: BTreeSet<u16> = self.peerings.values().copied().collect();
        (0..u16::MAX).find(|number| !used.contains(number)).unwrap_or(u16::MAX)
    }
}
