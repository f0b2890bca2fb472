//! One reader: what it knows, what it has to learn, and the stream of frames that closes the gap.
//!
//! A watcher that keeps up finds one shared frame per change. One that does not has, per object, only what it knew when
//! it fell behind; when it reads again it is told the difference to the present, and never more than that. To attach is
//! to be behind on everything.
//!
//! ```text
//!  knows │ now │ told                         queue:  A  B  BOOKMARK  C  A …      one place per object
//!  ──────┼─────┼────────────────────
//!   –    │ yes │ ADDED
//!   yes  │ yes │ MODIFIED: a policy whole, a group as a patch; nothing if nothing in view changed
//!   yes  │  –  │ DELETED
//! ```

use std::{
    collections::{VecDeque, hash_map::Entry},
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures::task::AtomicWaker;
use model::policy::output::Identifier;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::{
    encode::{self, EventType},
    encoding::Encoding,
    members::Difference,
    objects::Objects,
    version::{Content, Frames, Node, Version},
};

/// Objects brought up to date between two looks at the shared state.
const PORTION: usize = 64;
/// Small frames are joined up to this size; larger ones are passed on as they are, shared.
const CHUNK: usize = 32 << 10;

/// One change of one object, as all watchers with one view see it.
#[derive(Debug)]
pub struct Event {
    pub before: Option<Arc<Version>>,
    pub after: Option<Arc<Version>>,
    /// Of a group, in view.
    pub difference: Difference,
    pub node: Node,
    modified: Frames,
    deleted: Frames,
}

impl Event {
    pub fn new(
        before: Option<Arc<Version>>,
        after: Option<Arc<Version>>,
        difference: Difference,
        node: Node,
    ) -> Self {
        Event { before, after, difference, node, modified: Frames::default(), deleted: Frames::default() }
    }

    fn name(&self) -> Option<&Identifier> {
        self.after.as_ref().or(self.before.as_ref()).map(|version| &version.name)
    }

    fn frame(&self, seen: EventType, encoding: Encoding) -> Option<Bytes> {
        match seen {
            EventType::Added => {
                self.after.as_ref().map(|version| encode::added(version, &self.node, encoding))
            }
            EventType::Modified => self.after.as_ref().map(|version| {
                self.modified.get(encoding, || modified(version, &self.difference, &self.node, encoding))
            }),
            EventType::Deleted => self
                .before
                .as_ref()
                .map(|version| self.deleted.get(encoding, || encode::deleted(version, encoding))),
            EventType::Bookmark => None,
        }
    }
}

fn modified(version: &Version, difference: &Difference, node: &Node, encoding: Encoding) -> Bytes {
    match version.content {
        Content::Policy(_) => encode::policy_modified(version, encoding),
        Content::AppliedTo(_) | Content::Address(_) => {
            encode::group_modified(version, difference, node, encoding)
        }
    }
}

/// What a watcher is believed to know of an object.
#[derive(Debug)]
pub enum Known {
    Nothing,
    This(Arc<Version>),
    /// It resumes from a time before the object's last change. The version says only which object it is.
    Doubtful(Arc<Version>),
}

#[derive(Debug)]
struct Pending {
    known: Known,
    /// The only change since, ready to be told. None: several, or it has to be looked up.
    single: Option<(Arc<Event>, EventType)>,
}

#[derive(Debug)]
enum Item {
    Object(Identifier),
    Bookmark(u64),
}

#[derive(Debug, Default)]
struct Queue {
    order: VecDeque<Item>,
    pending: FxHashMap<Identifier, Pending>,
}

/// The writer's side of a watcher.
#[derive(Debug)]
pub struct Watcher {
    pub node: Node,
    pub name: Option<Identifier>,
    queue: Mutex<Queue>,
    waker: AtomicWaker,
}

impl Watcher {
    pub fn new(node: Node, name: Option<Identifier>) -> Arc<Self> {
        Arc::new(Watcher { node, name, queue: Mutex::default(), waker: AtomicWaker::new() })
    }

    pub fn wants(&self, name: &Identifier) -> bool {
        self.name.as_ref().is_none_or(|wanted| wanted == name)
    }

    /// A change in view. O(1), whatever the watcher is doing.
    pub fn push(&self, event: &Arc<Event>, seen: EventType) {
        let Some(name) = event.name().filter(|name| self.wants(name)) else { return };
        let mut queue = self.queue.lock();
        let queue = &mut *queue;
        match queue.pending.entry(name.clone()) {
            Entry::Occupied(mut behind) => behind.get_mut().single = None,
            Entry::Vacant(place) => {
                let known = match (seen, &event.before) {
                    (EventType::Modified | EventType::Deleted, Some(before)) => {
                        Known::This(Arc::clone(before))
                    }
                    _ => Known::Nothing,
                };
                place.insert(Pending { known, single: Some((Arc::clone(event), seen)) });
                queue.order.push_back(Item::Object(name.clone()));
            }
        }
        self.waker.wake();
    }

    /// Something to look up when there is time.
    pub fn push_behind(&self, name: &Identifier, known: Known) {
        if !self.wants(name) {
            return;
        }
        let mut queue = self.queue.lock();
        let queue = &mut *queue;
        match queue.pending.entry(name.clone()) {
            Entry::Occupied(mut behind) => behind.get_mut().single = None,
            Entry::Vacant(place) => {
                place.insert(Pending { known, single: None });
                queue.order.push_back(Item::Object(name.clone()));
            }
        }
    }

    pub fn push_bookmark(&self, revision: u64) {
        self.queue.lock().order.push_back(Item::Bookmark(revision));
    }

    pub fn wake(&self) {
        self.waker.wake();
    }
}

/// What to tell next.
enum Step {
    Event(Arc<Event>, EventType),
    CatchUp(Known, Option<Arc<Version>>),
    Bookmark(u64),
}

/// The reader's side: a stream of frames. Detaches when dropped.
#[derive(Debug)]
pub struct Watch {
    watcher: Arc<Watcher>,
    objects: Arc<RwLock<Objects>>,
    encoding: Encoding,
    marks_initial_end: bool,
    ready: VecDeque<Bytes>,
}

impl Watch {
    pub(crate) fn new(
        watcher: Arc<Watcher>,
        objects: Arc<RwLock<Objects>>,
        encoding: Encoding,
        marks_initial_end: bool,
    ) -> Self {
        Watch { watcher, objects, encoding, marks_initial_end, ready: VecDeque::new() }
    }

    /// Whole frames, one or more. Never ends: who ends it is the caller.
    pub fn poll_frames(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        if let Some(frames) = self.take_frames() {
            return Poll::Ready(frames);
        }
        self.watcher.waker.register(cx.waker());
        // Again, because a change between the look and the registration woke nobody.
        match self.take_frames() {
            Some(frames) => Poll::Ready(frames),
            None => Poll::Pending,
        }
    }

    /// What there is to tell now, if anything.
    pub fn take_frames(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() {
            let steps = self.steps();
            if steps.is_empty() {
                return None;
            }
            self.encode(steps);
        }
        self.ready.pop_front()
    }

    /// Changes that are ready need only the queue; the others are looked up under the lock of the objects, so that
    /// nothing moves between the look at the object and its leaving the queue. Nothing is encoded under a lock.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut queue = self.watcher.queue.lock();
        while steps.len() < PORTION
            && let Some(step) = ready_step(&mut queue)
        {
            steps.push(step);
        }
        if !steps.is_empty() || queue.order.is_empty() {
            return steps;
        }
        drop(queue);
        let objects = self.objects.read();
        let mut queue = self.watcher.queue.lock();
        while steps.len() < PORTION {
            if let Some(step) = ready_step(&mut queue) {
                steps.push(step);
                continue;
            }
            let Some(Item::Object(name)) = queue.order.pop_front() else { break };
            let Some(behind) = queue.pending.remove(&name) else { continue };
            steps.push(Step::CatchUp(behind.known, objects.seen(&name, &self.watcher.node)));
        }
        steps
    }

    fn encode(&mut self, steps: Vec<Step>) {
        let mut small = BytesMut::new();
        for step in steps {
            for frame in self.frames(step) {
                if small.len() + frame.len() > CHUNK && !small.is_empty() {
                    self.ready.push_back(std::mem::take(&mut small).freeze());
                }
                match frame.len() > CHUNK {
                    true => self.ready.push_back(frame),
                    false => small.extend_from_slice(&frame),
                }
            }
        }
        if !small.is_empty() {
            self.ready.push_back(small.freeze());
        }
    }

    fn frames(&self, step: Step) -> Vec<Bytes> {
        let (encoding, node) = (self.encoding, &self.watcher.node);
        match step {
            Step::Event(event, seen) => event.frame(seen, encoding).into_iter().collect(),
            Step::Bookmark(revision) => {
                let resource = self.objects.read().resource();
                vec![encode::bookmark(resource, revision, self.marks_initial_end, encoding)]
            }
            Step::CatchUp(known, now) => catch_up(&known, now.as_deref(), node, encoding),
        }
    }
}

fn ready_step(queue: &mut Queue) -> Option<Step> {
    match queue.order.front()? {
        Item::Bookmark(revision) => {
            let revision = *revision;
            queue.order.pop_front();
            Some(Step::Bookmark(revision))
        }
        Item::Object(name) => {
            let (event, seen) = queue.pending.get_mut(name)?.single.take()?;
            queue.pending.remove(name);
            queue.order.pop_front();
            Some(Step::Event(event, seen))
        }
    }
}

fn catch_up(known: &Known, now: Option<&Version>, node: &Node, encoding: Encoding) -> Vec<Bytes> {
    match (known, now) {
        (Known::Nothing, None) => Vec::new(),
        (Known::Nothing | Known::Doubtful(_), Some(now)) => vec![encode::added(now, node, encoding)],
        (Known::This(before) | Known::Doubtful(before), None) => vec![encode::deleted(before, encoding)],
        // Another object under the same name.
        (Known::This(before), Some(now)) if before.uid != now.uid => {
            vec![encode::deleted(before, encoding), encode::added(now, node, encoding)]
        }
        (Known::This(before), Some(now)) => match (&before.content, &now.content) {
            (Content::Policy(before), Content::Policy(after)) if before == after => Vec::new(),
            (Content::Policy(_), _) => vec![encode::policy_modified(now, encoding)],
            _ => {
                let difference = before.difference(now, node);
                let is_nothing = difference.added.is_empty() && difference.removed.is_empty();
                match is_nothing {
                    true => Vec::new(),
                    false => vec![encode::group_modified(now, &difference, node, encoding)],
                }
            }
        },
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.objects.write().detach(&self.watcher);
    }
}

impl futures::Stream for Watch {
    type Item = Bytes;

    fn poll_next(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.get_mut().poll_frames(cx).map(Some)
    }
}
