//! Drift: what the clouds have against what the records say.
//!
//! A record is a belief. Where the cloud disagrees, the record is corrected to what was seen (or to "not there"),
//! and the next plan does the rest. What the records do not know is told and left alone, and so is what a record is
//! about that cannot be read.

use std::collections::{BTreeMap, BTreeSet};

use cloud_api::Listing;
use model::{CloudTraits, NetworkName, PermitEntry, ResourceName, Segment, Site};
use serde::Serialize;
use store::{Key, Revision};

use super::{CloudState, CloudView, Orchestrator, OrchestratorError, facts::Fact, orchestrator::expected};
use crate::plan::{
    Inventory, NetworkRecord, Phase, Problem, ProblemKind, ResourceRecord, SimpleRecord, Subject,
    UnreadableRecord,
};

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

    /// What is wanted and cannot be, as a tag that is named and is not there: no drift, and nothing to mend.
    pub fn unmet(&self) -> Vec<Drift> {
        let problems = self.plan().map(|plan| plan.problems).unwrap_or_default();
        let told =
            problems.into_iter().filter(|problem| !matches!(problem.kind, ProblemKind::Unreadable { .. }));
        let drift = |Problem { resource, rule, kind }| {
            let rule = rule.map(|rule| format!("rule {rule}: ")).unwrap_or_default();
            Drift { object: format!("resource/{resource}"), what: format!("{rule}{kind}"), mendable: false }
        };
        told.map(drift).collect()
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
        let waits = |view: &CloudView| {
            view.state == CloudState::Waiting && !sites.iter().any(|site| site.cloud == view.name)
        };
        for view in self.cloud_views().into_iter().filter(waits) {
            seen.add(format!("cloud/{}", view.name), self.no_cloud(&view.name).to_string(), None);
        }
        for site in &sites {
            if let Err(err) = self.compare(&inventory, site, &mut seen).await {
                let what = format!("{site} cannot be compared with what was made: {}", common::chain(&err));
                seen.add(format!("cloud/{}", site.cloud), what, None);
            }
        }
        Ok(seen)
    }

    /// One site. What was found before it failed counts.
    async fn compare(
        &self,
        inventory: &Inventory,
        site: &Site,
        seen: &mut Seen,
    ) -> Result<(), OrchestratorError> {
        let cloud = self.cloud(&site.cloud)?;
        let Some(traits) = self.traits(&site.cloud) else { return Ok(()) };
        let at = self.at(site).await?;
        let listing = self.call(&site.cloud, "list", cloud.list(&at)).await?;
        compare_networks(inventory, site, &listing, &traits, seen);
        if traits.lists_everything {
            compare_resources(inventory, site, &listing, seen);
            compare_paths(inventory, site, &listing, seen);
        }
        for (name, record) in resources_of(inventory, site) {
            let Some(state) = &record.state else { continue };
            // A change under way is no drift.
            let is_there = !traits.lists_everything || has(&listing, name);
            if record.phase != Phase::Ready || !record.changing.is_empty() || !is_there {
                continue;
            }
            let mut list = self.call(&site.cloud, "permit_list", cloud.permit_list(&at, &state.uri)).await?;
            if !traits.names_entries {
                list = named_as_recorded(record, list);
            }
            compare_list(name, record, list, seen);
        }
        Ok(())
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

fn compare_networks(
    inventory: &Inventory,
    site: &Site,
    listing: &Listing,
    traits: &CloudTraits,
    seen: &mut Seen,
) {
    // Where the plugin finds networks by itself, their names are its own.
    let is_same = |name: &NetworkName, region: &Segment| traits.places_resources || name.region == *region;
    let recorded: Vec<_> = inventory.networks.iter().filter(|(name, _)| name.site == *site).collect();
    for (name, record) in &recorded {
        let is_there =
            listing.networks.iter().any(|(region, space)| is_same(name, region) && *space == record.space);
        if record.phase == Phase::Ready && !is_there {
            let record = NetworkRecord { phase: Phase::Making, ..(*record).clone() };
            let fact = Fact::Network((*name).clone(), Some(record));
            // What it makes by itself it makes with the next resource.
            let correction = (!traits.places_resources).then_some(fact);
            seen.add(format!("network/{name}"), "is not there", correction);
        }
    }
    for (region, space) in &listing.networks {
        let is_it = |(name, record): &(&NetworkName, &NetworkRecord)| match traits.places_resources {
            true => record.space == *space,
            false => name.region == *region,
        };
        let name = NetworkName { site: site.clone(), region: region.clone() };
        let is_recorded =
            recorded.iter().any(is_it) || inventory.unreadable.get(&Subject::Network(name.clone())).is_some();
        if !is_recorded {
            let what = match traits.places_resources {
                true => format!("has {space}, but nothing that was made here lives there"),
                false => "is there, but was not made here".to_owned(),
            };
            seen.add(format!("network/{name}"), what, None);
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
