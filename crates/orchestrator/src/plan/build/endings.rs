//! What is not wanted any more: resources, once no list permits their addresses, and networks, once nothing of theirs is left.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use ipnet::Ipv4Net;
use model::{NetworkName, ResourceName};

use super::{Builder, Object};
use crate::plan::{Action, ProblemKind, StepId, paths::Path, unreadable::Subject};

impl<'i> Builder<'i> {
    /// Deletes what is not wanted any more, once no list permits its address through a tag.
    pub(super) fn remove_resources(&mut self, closing: &[(StepId, BTreeSet<model::Address>)]) {
        for (subject, record) in self.inventory.unreadable.iter() {
            if let Subject::Resource(name) = subject
                && !self.intent.resources.contains_key(name)
            {
                self.problem(name, record.into());
            }
        }
        for (name, record) in &self.inventory.resources {
            if self.intent.resources.contains_key(name) {
                continue;
            }
            if !self.knows(&name.cloud) {
                self.problem(name, ProblemKind::UnknownCloud { cloud: name.cloud.clone() });
                continue;
            }
            let address = record.state.as_ref().map(|state| state.address);
            let after: Vec<_> = closing
                .iter()
                // A list may name a part of a cluster's block.
                .filter(|(_, gone)| {
                    address.is_some_and(|address| gone.iter().any(|one| one.overlaps(address)))
                })
                .map(|(step, _)| *step)
                .collect();
            let step = self.push(self.end_of_resource(name), after);
            self.deleting.insert(Object::Resource(name.clone()), step);
            self.waits(name, step);
        }
    }

    pub(super) fn end_of_resource(&self, name: &ResourceName) -> Action {
        let resource = name.clone();
        match self.inventory.resources.get(name).is_some_and(|record| record.attached) {
            true => Action::DetachResource { resource },
            false => Action::DeleteResource { resource },
        }
    }

    pub(super) fn remove_networks(&mut self, wanted: &BTreeMap<Cow<'i, NetworkName>, Ipv4Net>) {
        for network in self.inventory.networks.keys() {
            let is_held = self.held.contains(&network.site);
            // Where nothing can be taken down, a network without residents is forgotten; with them, it is still theirs.
            let is_kept = !self.deletes(&network.site.cloud) && self.has_residents(network);
            if wanted.contains_key(network) || is_held || is_kept || !self.knows(&network.site.cloud) {
                continue;
            }
            let inventory = self.inventory;
            let in_network = |object: &Object| match object {
                Object::Resource(name) => {
                    inventory.resources.get(name).is_some_and(|record| record.network == *network)
                }
                Object::Gateway(site) => *site == network.site,
                Object::Path(Path::Peering(peering)) => peering.ends().contains(&network),
                Object::Path(Path::Nat(nat)) => nat == network,
                Object::Path(Path::Link(_)) | Object::Network(_) => false,
            };
            let after: Vec<_> = self
                .deleting
                .iter()
                .filter(|(object, _)| in_network(object))
                .map(|(_, step)| *step)
                .collect();
            let step = self.push(self.end_of(network), after);
            self.deleting.insert(Object::Network(network.clone()), step);
        }
    }

    pub(super) fn end_of(&self, network: &NetworkName) -> Action {
        let network = network.clone();
        match self.existing(&network) {
            Some(_) => Action::ReleaseNetwork { network },
            None => Action::DeleteNetwork { network },
        }
    }
}
