//! What the cloud consists of: one file, replaced whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    io::Write as _,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use ipnet::Ipv4Net;
use model::{EntryName, NetworkName, PeeringName, PermitEntry, ResourceName, Segment, Site};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub networks: BTreeMap<NetworkName, Ipv4Net>,
    pub resources: BTreeMap<ResourceName, Resource>,
    /// Numbered, so that their interfaces and addresses have names.
    pub peerings: BTreeMap<PeeringName, u16>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Resource {
    pub region: Segment,
    pub address: Ipv4Addr,
    pub description: String,
    pub permit: BTreeMap<EntryName, PermitEntry>,
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
        let new: PathBuf = path.with_extension("new");
        let mut file = fs::File::create(&new)?;
        file.write_all(&serde_json::to_vec_pretty(self).map_err(io::Error::other)?)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        match path.parent() {
            Some(dir) => fs::File::open(dir)?.sync_all(),
            None => Ok(()),
        }
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

    pub(crate) fn free_peering(&self) -> u16 {
        let used: BTreeSet<u16> = self.peerings.values().copied().collect();
        (0..u16::MAX).find(|number| !used.contains(number)).unwrap_or(u16::MAX)
    }
}
