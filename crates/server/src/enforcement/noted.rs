//! What the call that is running has changed, as its handler says.

use std::{collections::BTreeSet, sync::Arc};

use ::transport::Revision;
use drivers::objects::{Applied, Outcome};
use model::{ResourceName, TagName, policy::ObjectId};
use orchestrator::execute::Job;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Enforcement, change::Kind};

tokio::task_local! {
    static BEGUN: Begun;
}

/// A call, from its beginning.
#[derive(Clone)]
pub struct Begun {
    enforcement: Arc<Enforcement>,
    pub(super) began: Instant,
    /// What the hub had handed out then.
    pub(super) after: Revision,
    noted: Arc<Mutex<Option<Noted>>>,
    /// The tags it is about, and the resources that these concerned before.
    tags: Arc<Mutex<(BTreeSet<TagName>, BTreeSet<ResourceName>)>>,
    /// Objects that were so already.
    same: Arc<Mutex<Vec<ObjectId>>>,
}

/// What was stored.
pub(super) struct Noted {
    pub kind: Kind,
    pub stored: Instant,
    /// Of the store; 0 where it is not needed.
    pub revision: store::Revision,
    /// When the engine had taken it in; none if others have to first.
    pub computed: Option<Instant>,
    pub tags: BTreeSet<TagName>,
    pub resources: BTreeSet<ResourceName>,
    pub objects: Vec<ObjectId>,
}

impl Begun {
    pub(super) fn new(enforcement: Arc<Enforcement>, began: Instant, after: Revision) -> Self {
        Self { enforcement, began, after, noted: Arc::default(), tags: Arc::default(), same: Arc::default() }
    }

    /// Runs a handler, which may say what it changes.
    pub async fn observe<T>(self, handler: impl Future<Output = T>) -> T {
        BEGUN.scope(self, handler).await
    }

    pub(super) fn take(&self) -> Option<Noted> {
        let mut noted = self.noted.lock().take()?;
        let (tags, before) = std::mem::take(&mut *self.tags.lock());
        noted.tags.extend(tags);
        noted.resources.extend(before);
        Some(noted)
    }

    /// Objects of which the call found that they are as they shall be.
    pub(super) fn same(&self) -> Vec<ObjectId> {
        std::mem::take(&mut *self.same.lock())
    }

    fn note(&self, kind: Kind, tell: impl FnOnce(&mut Noted)) {
        let mut noted = self.noted.lock();
        let fresh = || Noted {
            kind,
            stored: Instant::now(),
            revision: store::Revision(0),
            computed: None,
            tags: BTreeSet::new(),
            resources: BTreeSet::new(),
            objects: Vec::new(),
        };
        tell(noted.get_or_insert_with(fresh));
    }
}

/// Outside a call, as in a unit test of a handler, nobody asks what became of it.
fn with(tell: impl FnOnce(&Begun)) {
    let _ = BEGUN.try_with(tell);
}

/// Says, before it is changed, which tag the running call is about.
pub fn about_tag(tag: &TagName) {
    with(|begun| {
        let before = begun.enforcement.rooms.orchestrator.concerned_by_tag(tag);
        let (tags, resources) = &mut *begun.tags.lock();
        tags.insert(tag.clone());
        resources.extend(before);
    });
}

/// Says that something has been stored, now.
pub fn stored(kind: Kind) {
    with(|begun| begun.note(kind, |_| {}));
}

/// The same of objects; of those that were so already, that they are.
pub fn stored_objects(applied: &[Applied], revision: store::Revision) {
    let same = applied.iter().filter(|one| one.outcome == Outcome::Unchanged).map(|one| one.id.clone());
    with(|begun| begun.same.lock().extend(same));
    let changed = || applied.iter().filter(|one| one.outcome != Outcome::Unchanged).map(|one| &one.id);
    let Some(kind) = Kind::of_objects(changed()) else { return };
    with(|begun| {
        begun.note(kind, |noted| {
            noted.revision = revision;
            noted.objects.extend(changed().cloned());
        });
    });
}

/// The same of what resources shall have.
pub fn stored_resources(kind: Kind, job: &Job) {
    with(|begun| begun.note(kind, |noted| noted.resources.extend(job.resources.iter().cloned())));
}

/// Says that all that follows from what was stored is handed out, now.
pub fn computed() {
    with(|begun| {
        if let Some(noted) = &mut *begun.noted.lock() {
            noted.computed = Some(Instant::now());
        }
    });
}
