//! Drift: what the clouds have against what the records say.
//!
//! A record is a belief. Where the cloud disagrees, the record is corrected to what was seen (or to "not there"),
//! and the next plan does the rest. What the records do not know is told and left alone, and so is what a record is
//! about that cannot be read.

use std::collections::{BTreeMap, BTreeSet};

use cloud_api::Listing;
use model::{NetworkName, PermitEntry, ResourceName, Site};
use serde::Serialize;
use store::{Key, Revision};

use super::{Orchestrator, OrchestratorError, facts::Fact, orchestrator::expected};
use crate::plan::{Inventory, Phase, ResourceRecord, SimpleRecord, Subject, UnreadableRecord};

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drift {
    pub object: String,
    pub what: String,
    /// `fix` can mend it; otherwise it is somebody else's and left alone.
    pub mendable: bool,
}

/// What was seen at a site, and how to correct the records.
#[derive(Default)]
struct Seen {
    drifts: Vec<Drift>,
    corrections: Vec<Fact>,
    /// Which records were compared. A correction of one that has changed since is no good.
    revisions: BTreeMap<Key, Revision>,
}

impl Seen {
    fn add(&mut self, object: String, what: impl Into<String>, correction: Option<Fact>) {
        self.drifts.push(Drift { object, what: what.into(), mendable: correction.is_some() });
        self.corrections.extend(correction);
    }
}

impl Orchestrator {
    /// Compares every cloud with the records, and changes nothing.
    pub async fn check(&self) -> Result<Vec<Drift>, OrchestratorError> {
        Ok(self.see().await?.drifts)
    }

    /// Compares, corrects the records, and lets the next plan mend. Answers what was found.
    pub async fn fix(&self) -> Result<Vec<Drift>, OrchestratorError> {
        let seen = self.see().await?;
        for correction in seen.corrections {
            let key = correction.key();
            let as_compared = expected(seen.revisions.get(&key));
            match self.commit_if(vec![correction], |_| vec![(key, as_compared)]).await {
                // A step has been at work on it; the next check looks again.
                Ok(()) | Err(OrchestratorError::Superseded) => {}
                Err(err) => return Err(err),
            }
        }
        Ok(seen.drifts)
    }

    async fn see(&self) -> Result<Seen, OrchestratorError> {
        let (inventory, revisions) = {
            let state = self.state.lock();
            (std::sync::Arc::clone(&state.inventory), state.revisions.clone())
        };
        let sites: BTreeSet<Site> = inventory.networks.keys().map(|name| name.site.clone()).collect();
        let mut seen = Seen { revisions, ..Seen::default() };
        for UnreadableRecord { record, reason } in self.unreadable() {
            let what = format!("cannot be read, so what it is about is left as it is: {reason}");
            seen.add(record, what, None);
        }
        for site in sites {
            let Ok(cloud) = self.cloud(&site.cloud) else { continue };
            let Some(traits) = self.traits(&site.cloud) else { continue };
            let at = self.at(&site).await?;
            let listing = self.call(&site.cloud, "list", cloud.list(&at)).await?;
            compare_networks(&inventory, &site, &listing, &mut seen);
            if traits.lists_everything {
                compare_resources(&inventory, &site, &listing, &mut seen);
                compare_paths(&inventory, &site, &listing, &mut seen);
            }
            for (name, record) in resources_of(&inventory, &site) {
                let Some(state) = &record.state else { continue };
                // A change under way is no drift.
                let is_there = !traits.lists_everything || has(&listing, name);
                if record.phase != Phase::Ready || !record.changing.is_empty() || !is_there {
                    continue;
                }
                let mut list =
                    self.call(&site.cloud, "permit_list", cloud.permit_list(&at, &state.uri)).await?;
                if !traits.names_entries {
                    list = named_as_recorded(record, list);
                }
                compare_list(name, record, list, &mut seen);
            }
        }
        Ok(seen)
    }
}

fn resources_of<'i>(
    inventory: &'i Inventory,
    site: &'i Site,
) -> impl Iterator<Item = (&'i ResourceName, &'i ResourceRecord)> {
    inventory.resources.iter().filter(move |(name, _)| Site::of(name) == *site)
}

fn has(listing: &Listing, name: &ResourceName) -> bool {
    listing.resources.iter().any(|(listed, _)| *listed == name.name)
}

fn compare_networks(inventory: &Inventory, site: &Site, listing: &Listing, seen: &mut Seen) {
    let networks: BTreeMap<_, _> = listing.networks.iter().map(|(region, space)| (region, *space)).collect();
    for (name, record) in inventory.networks.iter().filter(|(name, _)| name.site == *site) {
        if record.phase == Phase::Ready && networks.get(&name.region) != Some(&record.space) {
            let mut record = record.clone();
            record.phase = Phase::Making;
            seen.add(
                format!("network/{name}"),
                "is not there",
                Some(Fact::Network(name.clone(), Some(record))),
            );
        }
    }
    for region in networks.keys() {
        let name = NetworkName { site: site.clone(), region: (*region).clone() };
        let is_recorded = inventory.networks.contains_key(&name)
            || inventory.unreadable.get(&Subject::Network(name.clone())).is_some();
        if !is_recorded {
            seen.add(format!("network/{name}"), "is there, but was not made here", None);
        }
    }
}

fn compare_resources(inventory: &Inventory, site: &Site, listing: &Listing, seen: &mut Seen) {
    for (name, record) in resources_of(inventory, site) {
        if record.phase == Phase::Ready && !has(listing, name) {
            let gone = ResourceRecord {
                phase: Phase::Making,
                permit: BTreeMap::new(),
                changing: BTreeMap::new(),
                state: None,
                network: record.network.clone(),
                attached: record.attached,
            };
            seen.add(
                format!("resource/{name}"),
                "is not there",
                Some(Fact::MadeResource(name.clone(), Some(gone))),
            );
        }
    }
    for (listed, _) in &listing.resources {
        let name = ResourceName {
            namespace: site.namespace.clone(),
            cloud: site.cloud.clone(),
            name: listed.clone(),
        };
        let is_recorded = inventory.resources.contains_key(&name)
            || inventory.unreadable.get(&Subject::Resource(name.clone())).is_some();
        if !is_recorded {
            seen.add(format!("resource/{name}"), "is there, but was not made here", None);
        }
    }
}

fn compare_paths(inventory: &Inventory, site: &Site, listing: &Listing, seen: &mut Seen) {
    let making = SimpleRecord { phase: Phase::Making };
    for (name, record) in &inventory.peerings {
        let here = name.ends()[0].site == *site;
        if here && record.phase == Phase::Ready && !listing.peerings.contains(name) {
            seen.add(
                format!("peering/{name}"),
                "is not there",
                Some(Fact::Peering(name.clone(), Some(making))),
            );
        }
    }
    for (name, record) in inventory.nats.iter().filter(|(name, _)| name.site == *site) {
        if record.phase == Phase::Ready && !listing.nats.contains(&name.region) {
            seen.add(format!("nat/{name}"), "is not there", Some(Fact::Nat(name.clone(), Some(making))));
        }
    }
    if let Some(record) = inventory.gateways.get(site).filter(|record| record.phase == Phase::Ready)
        && listing.gateway != record.state
    {
        let mut record = record.clone();
        record.phase = Phase::Making;
        seen.add(
            format!("gateway/{site}"),
            "is not as it was made",
            Some(Fact::Gateway(site.clone(), Some(record))),
        );
    }
    for (name, record) in inventory.links.iter().filter(|(name, _)| name.ends().contains(&site)) {
        if record.phase == Phase::Ready && !listing.connections.contains(name.peer_of(site)) {
            let mut record = record.clone();
            (record.phase, record.stood) = (Phase::Making, true);
            seen.add(
                format!("link/{name}"),
                format!("has no end at {site}"),
                Some(Fact::MadeLink(name.clone(), Some(record))),
            );
        }
    }
}

/// Where entries are known by their content, their names are the cloud's own; an entry that says what a recorded one
/// says is that one.
fn named_as_recorded(record: &ResourceRecord, list: Vec<PermitEntry>) -> Vec<PermitEntry> {
    let same = |a: &PermitEntry, b: &PermitEntry| a.traffic == b.traffic && a.targets() == b.targets();
    let recorded = |entry: PermitEntry| {
        let found = record.permit.values().find(|known| same(known, &entry));
        found.cloned().unwrap_or(entry)
    };
    list.into_iter().map(recorded).collect()
}

fn compare_list(name: &ResourceName, record: &ResourceRecord, list: Vec<PermitEntry>, seen: &mut Seen) {
    let list: BTreeMap<_, _> = list.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
    if list == record.permit {
        return;
    }
    let missing = record.permit.iter().filter(|(entry, value)| list.get(*entry) != Some(value));
    let strange = list.iter().filter(|(entry, value)| record.permit.get(*entry) != Some(value));
    let names =
        |entries: Vec<String>| if entries.is_empty() { "none".to_owned() } else { entries.join(", ") };
    let missing = names(missing.map(|(entry, _)| entry.to_string()).collect());
    let strange = names(strange.map(|(entry, _)| entry.to_string()).collect());
    let corrected = ResourceRecord { permit: list.clone(), ..record.clone() };
    seen.add(
        format!("resource/{name}"),
        format!("the permit list differs: missing {missing}; not asked for {strange}"),
        Some(Fact::MadeResource(name.clone(), Some(corrected))),
    );
}
