//! Objects on trial: stored for a while, and put back to what they were unless somebody confirms them.
//!
//! ```text
//!   apply with annotation FOR ─► begun: UNTIL, by the clock of the controller ─► over: BEFORE takes its place, or it goes
//!                                        └── stored again without annotations: confirmed
//! ```
//!
//! In: objects, as the engine's driver tells of them; who leads. Out: writes to objects, each on what it was decided on. Holds: which
//! objects are on trial. All of a trial stands in the object itself, so it outlives the connection of whoever began it, and the
//! controller. Not here: who begins and confirms (`trestle try`), which applies objects as anybody may.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use life::Life;
use model::policy::{Object, ObjectId, ObjectMeta};
use orchestrator::execute::Orchestrator;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{error, info};

use crate::{
    objects::{Document, Objects, ObjectsError, Revised, Validation},
    policy::ObjectFollower,
};

/// For how long, like `60s`.
pub const FOR: &str = "trestle.dev/try-for";
/// Until when, as the controller has set it.
pub const UNTIL: &str = "trestle.dev/try-until";
/// The document that takes its place then, as JSON; without it the object goes.
pub const BEFORE: &str = "trestle.dev/try-before";

/// What cannot be read is tried for so long.
const USUAL: SignedDuration = SignedDuration::from_secs(60);
const LONGEST: SignedDuration = SignedDuration::from_hours(24);
/// Between two looks while something is on trial.
const TICK: Duration = Duration::from_millis(500);

/// One object's trial.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trial {
    /// To be given its end, which is so far away.
    New(SignedDuration),
    /// Over at this time.
    Until(Timestamp),
}

fn trial(metadata: &ObjectMeta) -> Option<Trial> {
    let length = metadata.annotations.get(FOR)?;
    let until = metadata.annotations.get(UNTIL).and_then(|text| text.parse().ok());
    let length = length.parse().unwrap_or(USUAL).clamp(SignedDuration::ZERO, LONGEST);
    Some(until.map_or(Trial::New(length), Trial::Until))
}

/// Which objects are on trial.
#[derive(Default)]
pub struct Trials {
    there: Mutex<BTreeMap<ObjectId, Trial>>,
    changed: Notify,
}

impl Trials {
    /// Hears of objects.
    pub fn follower(self: &Arc<Self>) -> Box<dyn ObjectFollower> {
        Box::new(Follows(Arc::clone(self)))
    }

    /// Ends trials whenever this controller leads.
    pub fn run(self: &Arc<Self>, objects: Objects, orchestrator: Arc<Orchestrator>, life: &Life) {
        let (trials, stop) = (Arc::clone(self), life.stopping());
        life.spawn_to_end("trials", async move {
            stop.run_until_cancelled(trials.keep(&objects, &orchestrator)).await;
        });
    }

    async fn keep(&self, objects: &Objects, orchestrator: &Orchestrator) {
        loop {
            orchestrator.until_leads(true).await;
            if self.there.lock().is_empty() {
                self.changed.notified().await;
                continue;
            }
            let due: Vec<_> = self.due(Timestamp::now());
            for (id, trial) in due {
                if let Err(err) = step(objects, &id, &trial).await {
                    error!(%id, error = common::chain(&err), "a trial could not be brought forward; trying again");
                }
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Those that have no end yet, and those whose end has come.
    fn due(&self, now: Timestamp) -> Vec<(ObjectId, Trial)> {
        let there = self.there.lock();
        let is_due = |trial: &Trial| match trial {
            Trial::New(_) => true,
            Trial::Until(end) => *end <= now,
        };
        there
            .iter()
            .filter(|(_, trial)| is_due(trial))
            .map(|(id, trial)| (id.clone(), trial.clone()))
            .collect()
    }
}

async fn step(objects: &Objects, id: &ObjectId, trial: &Trial) -> Result<(), ObjectsError> {
    match trial {
        Trial::New(length) => {
            let end = Timestamp::now().saturating_add(*length).unwrap_or(Timestamp::MAX);
            objects.revise(id, move |document| began(document, end)).await?;
        }
        Trial::Until(end) => {
            let expected = Trial::Until(*end);
            let revised = objects.revise(id, move |document| over(document, &expected)).await?;
            if revised {
                info!(%id, "a trial is over: it is as it was before");
            }
        }
    }
    Ok(())
}

fn began(document: &Document, end: Timestamp) -> Revised {
    if !matches!(trial(document.object().metadata()), Some(Trial::New(_))) {
        return Revised::Keep;
    }
    let mut json = document.json().clone();
    json["metadata"]["annotations"][UNTIL] = end.to_string().into();
    match Document::read(json.to_string().as_bytes(), Validation::Ignore) {
        Ok(document) => Revised::Put(Box::new(document)),
        Err(_) => Revised::Keep,
    }
}

/// Somebody may have confirmed it, or begun another trial.
fn over(document: &Document, expected: &Trial) -> Revised {
    let metadata = document.object().metadata();
    if trial(metadata).as_ref() != Some(expected) {
        return Revised::Keep;
    }
    let Some(before) = metadata.annotations.get(BEFORE) else { return Revised::Delete };
    match Document::read(before.as_bytes(), Validation::Ignore) {
        Ok(before) if before.id() == document.id() => Revised::Put(Box::new(before)),
        _ => {
            error!(id = %document.id(), "what it was before its trial cannot be read; it goes");
            Revised::Delete
        }
    }
}

struct Follows(Arc<Trials>);

impl ObjectFollower for Follows {
    fn apply(&mut self, object: &Object) {
        match trial(object.metadata()) {
            Some(trial) => {
                self.0.there.lock().insert(object.id(), trial);
                self.0.changed.notify_one();
            }
            None => drop(self.0.there.lock().remove(&object.id())),
        }
    }

    fn delete(&mut self, id: &ObjectId) {
        self.0.there.lock().remove(id);
    }

    fn flush(&mut self) {}

    fn synced(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(annotations: &str) -> Document {
        let text = format!(
            r#"{{"apiVersion":"crd.antrea.io/v1beta1","kind":"Tier","metadata":{{"name":"a","annotations":{{{annotations}}}}},"spec":{{"priority":7}}}}"#
        );
        Document::read(text.as_bytes(), Validation::Strict).unwrap()
    }

    #[test]
    fn a_trial_begins_once_and_ends_with_what_was_before() {
        let new = tier(r#""trestle.dev/try-for":"5s""#);
        let end: Timestamp = "2026-01-01T00:00:05Z".parse().unwrap();
        let Revised::Put(begun) = began(&new, end) else { panic!("it begins") };
        let until = Trial::Until(end);
        assert_eq!(trial(begun.object().metadata()).as_ref(), Some(&until));
        assert!(matches!(began(&begun, end), Revised::Keep), "it has begun");
        assert!(matches!(over(&begun, &until), Revised::Delete), "there was nothing before");
        let other = Trial::Until("2026-01-01T00:00:09Z".parse().unwrap());
        assert!(matches!(over(&begun, &other), Revised::Keep), "another trial");
        assert!(matches!(over(&tier(""), &until), Revised::Keep), "confirmed");
    }

    #[test]
    fn what_was_before_is_put_back_if_it_is_that_object() {
        let end = r#""trestle.dev/try-for":"5s","trestle.dev/try-until":"2026-01-01T00:00:05Z""#;
        let until = Trial::Until("2026-01-01T00:00:05Z".parse().unwrap());
        let with = |before: &str| {
            let before = serde_json::Value::from(before);
            tier(&format!(r#"{end},"trestle.dev/try-before":{before}"#))
        };
        let before = tier("").json().to_string();
        let Revised::Put(back) = over(&with(&before), &until) else { panic!("it is put back") };
        assert_eq!(back.json(), tier("").json());
        assert!(matches!(over(&with(&before.replace("\"a\"", "\"b\"")), &until), Revised::Delete));
        assert!(matches!(over(&with("{"), &until), Revised::Delete));
    }

    #[test]
    fn nonsense_is_tried_as_usual_and_nothing_for_ever() {
        let length =
            |text: &str| trial(tier(&format!(r#""trestle.dev/try-for":"{text}""#)).object().metadata());
        assert_eq!(length("soon"), Some(Trial::New(USUAL)));
        assert_eq!(length("9000h"), Some(Trial::New(LONGEST)));
        assert_eq!(length("-5s"), Some(Trial::New(SignedDuration::ZERO)));
    }
}
