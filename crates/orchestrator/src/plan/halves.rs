//! Halves: what one resource permits with another that does not permit it yet, so that no packet passes.
//!
//! In: the permit lists in force. Out: who permits what with whom in vain, and who would have to agree. A target that holds
//! more than one resource is no half: whoever permits a whole block means whoever in it agrees.

use std::collections::BTreeMap;

use cloud_api::twin::of_twins;
use ipnet::IpNet;
use model::{Address, Direction, EntryName, PermitEntry, ResourceName, Traffic};

use super::Inventory;

/// A resource permits something with another one, which does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Half {
    pub resource: ResourceName,
    pub entry: EntryName,
    pub traffic: Traffic,
    /// The other end, which would have to permit it too.
    pub other: ResourceName,
}

/// What resources permit in vain, at most so many: of one resource, or of all. O(entries · targets) of these.
pub fn halves(inventory: &Inventory, of: Option<&ResourceName>, most: usize) -> Vec<Half> {
    let by_address: BTreeMap<Address, &ResourceName> = inventory
        .resources
        .iter()
        .filter_map(|(name, record)| Some((record.state.as_ref()?.address, name)))
        .collect();
    let mut found = Vec::new();
    for (name, record) in inventory.resources.iter().filter(|(name, _)| of.is_none_or(|one| one == *name)) {
        let Some(here) = record.state.as_ref().map(|state| state.address) else { continue };
        for entry in record.permit.values() {
            for target in entry.targets() {
                let Some(other) = by_address.get(&in_v4(*target)).filter(|other| **other != name) else {
                    continue;
                };
                let answers = inventory.resources[*other].permit.values();
                if answers.into_iter().any(|answer| is_answer(answer, entry, here)) {
                    continue;
                }
                let (entry, traffic) = (entry.name.clone(), entry.traffic);
                found.push(Half { resource: name.clone(), entry, traffic, other: (*other).clone() });
                if found.len() >= most {
                    return found;
                }
            }
        }
    }
    found
}

fn is_answer(answer: &PermitEntry, entry: &PermitEntry, peer: Address) -> bool {
    answer.traffic.meets(&entry.traffic)
        && answer.targets().iter().any(|target| in_v4(*target).net().contains(&peer.net()))
}

/// Where an address is its twin is.
fn in_v4(address: Address) -> Address {
    match address.net() {
        IpNet::V6(net) => of_twins(net).map_or(address, |net| IpNet::V4(net).into()),
        IpNet::V4(_) => address,
    }
}

impl Half {
    /// The command that would permit it at the other end.
    pub fn remedy(&self) -> String {
        let way = match self.traffic.direction {
            Direction::Inbound => "out",
            Direction::Outbound => "in",
        };
        let protocol = match self.traffic.protocol {
            model::Protocol::Any => String::new(),
            protocol => format!(" --protocol {protocol}"),
        };
        let port = match self.traffic.dst_ports {
            model::Ports::Any => String::new(),
            ports => format!(" --port {ports}"),
        };
        format!("trestle rule add {} --{way}{protocol}{port} --peer {}", self.other, self.resource)
    }

    /// The command that would permit it at both ends.
    pub fn allow(&self) -> String {
        let (from, to) = match self.traffic.direction {
            Direction::Inbound => (&self.other, &self.resource),
            Direction::Outbound => (&self.resource, &self.other),
        };
        let what = match (self.traffic.protocol, self.traffic.dst_ports) {
            (model::Protocol::ICMP, _) => " --ping".to_owned(),
            (protocol, model::Ports::Any) => format!(" --proto {protocol}"),
            (model::Protocol::TCP, ports) => format!(" --port {ports}"),
            (protocol, ports) => format!(" --port {ports}/{protocol}"),
        };
        format!("trestle allow {from} {to}{what}")
    }
}

impl std::fmt::Display for Half {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} permits {} ({}), but the other end, {}, does not permit it yet: {}, or {}",
            self.resource,
            self.entry,
            self.traffic,
            self.other,
            self.remedy(),
            self.allow()
        )
    }
}
