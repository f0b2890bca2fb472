//! Machines that somebody else made, and their networks.

use std::{collections::BTreeMap, net::Ipv4Addr};

use ipnet::Ipv4Net;
use model::{ExistingNetwork, ResourceState, Segment, Site};

use super::state::{Resource, State, full, network, overlaps, state};
use crate::{Attachment, CloudError, Result};

/// A machine that somebody else made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The name of its network, which no region has.
    pub network: Segment,
    pub space: Ipv4Net,
    pub address: Ipv4Addr,
}

impl State {
    fn machine(&self, id: &str) -> Result<&Machine> {
        self.machines.get(id).ok_or_else(|| CloudError::not_found(format!("there is no {id} to attach")))
    }

    pub(super) fn inspect(&self, id: &str) -> Result<Attachment> {
        let machine = self.machine(id)?;
        let holder = self.resources.iter().find(|(_, other)| other.machine.as_deref() == Some(id));
        if let Some((name, _)) = holder {
            return Err(CloudError::conflict(format!("{id} is attached already, as {name}")));
        }
        Ok(Attachment {
            region: machine.network.clone(),
            network: Some(ExistingNetwork { space: machine.space, beside: Vec::new() }),
            address: Some(machine.address.into()),
            changes: vec![format!("{id}: nothing passes but what its permit list says")],
        })
    }

    pub(super) fn adopt(&mut self, site: &Site, region: &Segment, space: Ipv4Net) -> Result {
        let name = network(site, region);
        if !self.machines.values().any(|one| one.network == *region && one.space == space) {
            return Err(CloudError::conflict(format!("there is no network {name} with {space}")));
        }
        let is_taken = |other: &Ipv4Net| overlaps(*other, space);
        match self.networks.get(&name) {
            Some(there) if *there == space => return Ok(()),
            _ if self.networks.values().any(is_taken) => {
                return Err(CloudError::conflict(format!("{space} overlaps another network")));
            }
            _ => {}
        }
        self.networks.insert(name.clone(), space);
        self.adopted.insert(name);
        Ok(())
    }

    pub(super) fn release(&mut self, site: &Site, region: &Segment) -> Result {
        let name = network(site, region);
        if self.adopted.contains(&name) {
            self.is_free(&name)?;
            self.adopted.remove(&name);
            self.networks.remove(&name);
        }
        Ok(())
    }

    pub(super) fn attach(&mut self, site: &Site, name: &Segment, id: &str) -> Result<ResourceState> {
        let name = full(site, name);
        match self.resources.get(&name) {
            Some(there) if there.machine.as_deref() == Some(id) => return Ok(state(&name, there)),
            Some(_) => {
                return Err(CloudError::conflict(format!("resource {name} is there and is something else")));
            }
            None => {}
        }
        let found = self.inspect(id)?;
        let network = network(site, &found.region);
        if !self.adopted.contains(&network) {
            return Err(CloudError::conflict(format!("the network {network} is not adopted")));
        }
        let resource = Resource {
            network,
            address: self.machine(id)?.address.into(),
            description: String::new(),
            permit: BTreeMap::new(),
            machine: Some(id.to_owned()),
        };
        let attached = state(&name, &resource);
        self.resources.insert(name, resource);
        Ok(attached)
    }
}
