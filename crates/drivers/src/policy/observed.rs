//! What clusters have, beside what is stored.
//!
//! In: observations, in the order in which an API server makes them true. Out: events of the engine, for what differs. Holds: each
//! object as text, which takes a fraction of what the parsed form does: it is read again only where a name is taken twice, or a
//! permission begins to name a Pod. Not here: how a cluster is read (`kubernetes`), what of it is kept (`clusters`).

use std::{collections::BTreeMap, time::Duration};

use common::Backoff;
use model::policy::{Object, ObjectId};
use tracing::warn;

use super::{Driver, Observations};

/// What there is under a name in a cluster.
#[derive(Clone, Debug)]
pub struct Observation {
    pub id: ObjectId,
    /// None: there is none, or none that could stand in for what cannot be read.
    pub object: Option<Object>,
    /// What is told of it if it cannot be read as a whole.
    pub told: Option<String>,
}

/// The objects, each as text.
#[derive(Default)]
pub(super) struct Observed(BTreeMap<ObjectId, Box<str>>);

impl Observed {
    pub fn contains(&self, id: &ObjectId) -> bool {
        self.0.contains_key(id)
    }

    pub fn get(&self, id: &ObjectId) -> Option<Object> {
        let text = self.0.get(id)?;
        let object = id.kind.deserialize(&mut serde_json::Deserializer::from_str(text));
        Some(object.expect("it was written by this process"))
    }

    /// Whether that is new.
    fn put(&mut self, id: &ObjectId, object: &Object) -> bool {
        let text = serde_json::to_string(object).expect("objects have string keys and no failing parts");
        if self.0.get(id).is_some_and(|known| **known == *text) {
            return false;
        }
        self.0.insert(id.clone(), text.into_boxed_str());
        true
    }
}

impl Driver {
    pub(super) async fn observe(&mut self, observations: Observations) {
        let Observations { observed, is_whole, done } = observations;
        for Observation { id, object, told } in observed {
            let is_there = object.is_some() || told.is_some();
            match object {
                Some(object) if self.observed.put(&id, &object) => self.put(&id, &object),
                Some(_) => {}
                None if self.observed.0.remove(&id).is_some() => self.uncover(&id).await,
                None => {}
            }
            let is_stored = self.known.contains(&id);
            let mut states = self.policy.states.lock();
            states.twice(&id, is_there && is_stored);
            if is_there {
                states.unreadable(&id, told);
            }
        }
        self.drain().await;
        if is_whole {
            self.awaited.clusters = false;
            self.tell_synced();
        }
        // Whoever asked may have gone.
        let _ = done.send(());
    }

    /// A cluster has an object no more; a stored one of its name counts again.
    async fn uncover(&mut self, id: &ObjectId) {
        if !self.known.contains(id) {
            self.remove(id);
            return;
        }
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        loop {
            match self.stored.told(id).await {
                Ok(Some(Ok(stored))) => return self.put(id, stored.document.object()),
                Ok(Some(Err(told))) => {
                    match &told.stand_in {
                        Some(object) => self.put(id, object),
                        None => self.remove(id),
                    }
                    return self.policy.states.lock().unreadable(id, Some(told.told()));
                }
                // What follows of the store says what it is.
                Ok(None) => return self.remove(id),
                Err(err) => {
                    warn!(%id, error = common::chain(&err), "cannot read the stored object that counts again; trying on");
                    tokio::time::sleep(backoff.pause()).await;
                }
            }
        }
    }
}
