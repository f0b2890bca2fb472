//! What the other controllers say, and which of them counts. Pure.
//!
//! In: entries below `peers/`. Out: one claim per node, and reports. Holds: every word of every other controller. One that
//! has not said how far it is has not said all yet, and does not count.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use model::policy::output::Identifier;
use serde::de::DeserializeOwned;
use store::{Entry, Key, Revision};
use tracing::warn;
use watch::{Millis, Outcome};

use super::words::{About, NodeWord, Place, Shelf, shelf_of};

#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// The controller that listens, and does not hear itself.
    own: String,
    controllers: BTreeMap<String, Controller>,
}

#[derive(Clone, Debug, Default)]
struct Controller {
    about: Option<About>,
    nodes: HashMap<String, Arc<NodeWord>>,
    reports: HashMap<Identifier, BTreeMap<u8, Shelf>>,
}

/// What the controller says that knows most of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub controller: String,
    /// How far the objects are that a node which is caught up has.
    pub reached: Revision,
    pub word: Arc<NodeWord>,
}

impl Heard {
    pub fn new(own: String) -> Self {
        Self { own, controllers: BTreeMap::new() }
    }

    pub fn take(&mut self, entry: &Entry) {
        let Some((id, place)) = Place::read(&entry.key).filter(|(id, _)| *id != self.own) else { return };
        let controller = self.controllers.entry(id).or_default();
        match place {
            Place::About => controller.about = parse(entry),
            Place::Node(name) => match parse(entry) {
                Some(word) => drop(controller.nodes.insert(name, Arc::new(word))),
                None => drop(controller.nodes.remove(&name)),
            },
            Place::Shelf(policy, shelf) => {
                let reports = parse(entry).unwrap_or_default();
                controller.reports.entry(policy).or_default().insert(shelf, reports);
            }
        }
    }

    pub fn delete(&mut self, key: &Key) {
        let Some((id, place)) = Place::read(key) else { return };
        let Some(controller) = self.controllers.get_mut(&id) else { return };
        match place {
            Place::About => controller.about = None,
            Place::Node(name) => drop(controller.nodes.remove(&name)),
            Place::Shelf(policy, shelf) => {
                if let Some(shelves) = controller.reports.get_mut(&policy) {
                    shelves.remove(&shelf);
                    if shelves.is_empty() {
                        controller.reports.remove(&policy);
                    }
                }
            }
        }
        if controller.about.is_none() && controller.nodes.is_empty() && controller.reports.is_empty() {
            self.controllers.remove(&id);
        }
    }

    /// Who knows most of a node.
    pub fn claim(&self, name: &str) -> Option<Claim> {
        let claims = self
            .speaking()
            .filter_map(|(about, controller)| controller.nodes.get(name).map(|word| claim(about, word)));
        claims.max_by_key(|claim| claim.word.rank())
    }

    /// All nodes the others know of.
    pub fn claims(&self) -> BTreeMap<String, Claim> {
        let mut best: BTreeMap<String, Claim> = BTreeMap::new();
        for (about, controller) in self.speaking() {
            for (name, word) in &controller.nodes {
                if best.get(name).is_none_or(|known| known.word.rank() < word.rank()) {
                    best.insert(name.clone(), claim(about, word));
                }
            }
        }
        best
    }

    /// The last report of this generation.
    pub fn reported(&self, node: &str, policy: &Identifier, generation: i64) -> Option<(Millis, Outcome)> {
        let shelf = shelf_of(node);
        let reports = self
            .speaking()
            .filter_map(|(_, controller)| controller.reports.get(policy)?.get(&shelf)?.get(node));
        let report = reports.filter(|report| report.0 == generation).max_by_key(|report| report.1)?;
        Some((report.1, report.outcome()))
    }

    fn speaking(&self) -> impl Iterator<Item = (&About, &Controller)> {
        self.controllers.values().filter_map(|controller| Some((controller.about.as_ref()?, controller)))
    }
}

fn claim(about: &About, word: &Arc<NodeWord>) -> Claim {
    Claim { controller: about.name.clone(), reached: about.reached, word: Arc::clone(word) }
}

/// What cannot be read says nothing: the node is then not known to have anything.
fn parse<T: DeserializeOwned>(entry: &Entry) -> Option<T> {
    let parsed = serde_json::from_slice(&entry.value);
    parsed
        .inspect_err(|err| {
            warn!(key = entry.key.as_str(), error = %err, "what another controller says cannot be read");
        })
        .ok()
}
