//! What is known of the Pods of this node, and how it is written down. Pure.
//!
//! In: bytes of the file. Out: the registry, or why it is not one: a file with a flipped bit must not be taken for another
//! registry, in which a Pod has no guarded link. Also read: a bare list of endpoints, as earlier versions and people write.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

use crate::{
    endpoints::{Endpoint, Endpoints},
    host::HostRecord,
};

/// Links of Pods of which nobody knows whose they are, with the addresses that they had: they are closed until they are
/// attached.
pub type Unnamed = BTreeMap<String, BTreeSet<IpAddr>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    pub endpoints: Endpoints,
    pub unnamed: Unnamed,
    pub host: HostRecord,
}

/// Why a file is no registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("its checksum is not that of its content")]
    Checksum,
    #[error("it has Pods that cannot be, or that stand in each other's place")]
    Pods,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Of the rest.
    checksum: String,
    endpoints: Vec<Endpoint>,
    unnamed: Unnamed,
    /// Earlier versions know nothing of it.
    #[serde(default, skip_serializing_if = "HostRecord::is_empty")]
    host: HostRecord,
}

impl Registry {
    pub fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let endpoints: Vec<Endpoint> = self.endpoints.iter().cloned().collect();
        let checksum = checksum(&endpoints, &self.unnamed, &self.host)?;
        let (unnamed, host) = (self.unnamed.clone(), self.host.clone());
        serde_json::to_vec_pretty(&Written { checksum, endpoints, unnamed, host })
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, RegistryError> {
        if bytes.trim_ascii_start().starts_with(b"[") {
            let endpoints: Vec<Endpoint> = serde_json::from_slice(bytes)?;
            return Self::of(endpoints, Unnamed::new(), HostRecord::default());
        }
        let Written { checksum: told, endpoints, unnamed, host } = serde_json::from_slice(bytes)?;
        if checksum(&endpoints, &unnamed, &host)? != told {
            return Err(RegistryError::Checksum);
        }
        Self::of(endpoints, unnamed, host)
    }

    fn of(written: Vec<Endpoint>, unnamed: Unnamed, host: HostRecord) -> Result<Self, RegistryError> {
        let count = written.len();
        let endpoints: Endpoints = written.into_iter().collect();
        match endpoints.len() == count {
            true => Ok(Self { endpoints, unnamed, host }),
            false => Err(RegistryError::Pods),
        }
    }
}

fn checksum(endpoints: &[Endpoint], unnamed: &Unnamed, host: &HostRecord) -> serde_json::Result<String> {
    let bytes = match host.is_empty() {
        true => serde_json::to_vec(&(endpoints, unnamed))?,
        false => serde_json::to_vec(&(endpoints, unnamed, host))?,
    };
    Ok(format!("{:08x}", crc32fast::hash(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::Attachment;

    fn registry() -> Registry {
        let mut endpoints = Endpoints::default();
        for number in 1..4_u8 {
            let attachment = Attachment {
                interface: format!("veth{number}"),
                addresses: vec![IpAddr::from([10, 0, 0, number])],
                ..Attachment::default()
            };
            endpoints.attach(format!("x/p{number}").parse().unwrap(), attachment, 7).unwrap();
        }
        endpoints.judge(8, |endpoint| endpoint.pod.name != "p2");
        let unnamed = [("veth9".to_owned(), [IpAddr::from([10, 0, 0, 9])].into())].into();
        let controllers = ["192.0.2.1:8081".parse().unwrap()].into();
        Registry { endpoints, unnamed, host: HostRecord { input: true, output: false, controllers } }
    }

    #[test]
    fn what_is_written_is_read_and_a_bare_list_too() {
        let registry = registry();
        assert_eq!(Registry::decode(&registry.encode().unwrap()).unwrap(), registry);
        let earlier = Registry { host: HostRecord::default(), ..registry };
        let written = earlier.encode().unwrap();
        assert!(!String::from_utf8_lossy(&written).contains("host"), "as earlier versions write and read it");
        assert_eq!(Registry::decode(&written).unwrap(), earlier);
        let bare = Registry::decode(br#" [{"pod": "x/a", "interface": "v1", "closed": false}]"#).unwrap();
        assert_eq!(bare.endpoints.len(), 1);
    }

    /// Whatever single bit is flipped and wherever it is cut: it is the same registry, or none.
    #[test]
    fn a_damaged_file_is_never_another_registry() {
        let (registry, bytes) = (registry(), registry().encode().unwrap());
        for at in 0..bytes.len() {
            let cut = Registry::decode(&bytes[..at]);
            assert!(cut.as_ref().ok().is_none_or(|cut| *cut == registry), "cut at {at}: {cut:?}");
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                let read = Registry::decode(&bad);
                assert!(
                    read.as_ref().ok().is_none_or(|read| *read == registry),
                    "bit {bit} at {at}: {read:?}"
                );
            }
        }
    }
}
