//! The state to hand out and the index that finds what a node lacks. Pure: no clock, no tasks, no sockets.
//!
//! In: [`Core::publish`]. Out: [`Core::plan`], the frames that bring one node from where it stands to the present, in
//! an order in which nothing named is ever missing. Holds: every object once, and per node (and once for everyone)
//! a view:
//!
//! ```text
//!   objects   slot ─► key, content, hash, revision, frames, who holds it since when, who lost it when
//!   views     node ─► { (revision, slot) }    each slot once, at its newest touch: changed, gained or lost
//! ```
//!
//! A view says only *which* objects were touched after a revision; what is sent follows from the state now. So
//! changes of one object coalesce, however far behind a node is, and no order of events can send a stale one.
//! Publishing costs O(nodes in the span · log); planning O(objects touched since, for this node).

mod change;
mod nodes;
mod plan;
#[cfg(test)]
mod tests;
mod views;
mod waves;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
};

pub use change::{Change, SpanChange};
pub use nodes::NodeIndex;
use nodes::Nodes;
use plan::Snapshots;
pub use plan::{From, HeldObject, Plan};
use views::{Presence, View};
pub use waves::Concerned;
use waves::Waves;

use bytes::Bytes;

use crate::{
    dialect::{Dialect, DialectId},
    few::Few,
    key::{Hash, Key, Revision},
    object::{Content, Frameset},
};

/// Losses remembered, so that nodes which resume hear of them. Beyond, a node is compared by its digest.
pub const KEPT_LOSSES: usize = 100_000;

pub(crate) type Slot = u32;

/// Everything there is to hand out.
pub struct Core {
    epoch: u64,
    head: Revision,
    /// The newest loss that is forgotten. A node not known now may have missed it.
    horizon: Revision,
    dialects: Vec<Arc<dyn Dialect>>,
    slots: HashMap<Key, Slot>,
    /// Each on its own: as one piece they would be copied whenever there is no room for one more.
    objects: Vec<Option<Box<Object>>>,
    free: Vec<Slot>,
    nodes: Nodes,
    views: Vec<View>,
    losses: VecDeque<(Revision, Slot, NodeIndex)>,
    kept_losses: usize,
    touched: Touched,
    waves: Waves,
    snapshots: Mutex<Snapshots>,
}

#[derive(Debug)]
struct Object {
    key: Key,
    /// None: removed, and remembered for those who have not heard of it.
    content: Option<Content>,
    hash: Hash,
    /// When the content last changed.
    revision: Revision,
    presence: Few<NodeIndex, Presence>,
    made: Frameset,
}

/// Who is to be woken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub everyone: bool,
    pub nodes: Vec<NodeIndex>,
}

/// How much there is, for people and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub objects: usize,
    pub nodes: usize,
    pub losses: usize,
}

impl Core {
    /// `epoch` tells this core's revisions from those of every other; it is drawn at random.
    pub fn new(epoch: u64, dialects: Vec<Arc<dyn Dialect>>) -> Self {
        Self {
            epoch,
            head: Revision(0),
            horizon: Revision(0),
            dialects,
            slots: HashMap::new(),
            objects: Vec::new(),
            free: Vec::new(),
            nodes: Nodes::default(),
            // View 0 is everyone's.
            views: vec![View::default()],
            losses: VecDeque::new(),
            kept_losses: KEPT_LOSSES,
            touched: Touched::default(),
            waves: Waves::default(),
            snapshots: Mutex::default(),
        }
    }

    /// The same with another bound on remembered losses.
    pub fn with_kept_losses(mut self, kept: usize) -> Self {
        self.kept_losses = kept;
        self
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn head(&self) -> Revision {
        self.head
    }

    pub fn size(&self) -> Size {
        let objects = self.objects.iter().flatten().filter(|object| object.content.is_some()).count();
        Size { objects, nodes: self.nodes.len(), losses: self.losses.len() }
    }

    /// Who was touched since this was last asked.
    pub fn take_touched(&mut self) -> Touched {
        let mut touched = std::mem::take(&mut self.touched);
        touched.nodes.sort_unstable();
        touched.nodes.dedup();
        touched
    }

    /// Whom what came after `after`, up to `until`, concerned; none if that is so long ago that nobody knows.
    pub fn concerned(&self, after: Revision, until: Revision) -> Option<Concerned> {
        self.waves.between(after, until)
    }

    /// The revision that brought an object, as it is, to a node that holds it.
    pub fn brought(&self, node: NodeIndex, key: &Key) -> Option<Revision> {
        let object = self.object(*self.slots.get(key)?);
        Some(object.held_since(node)?.max(object.revision))
    }

    /// The index of a node, for as long as it is pinned or something is known of it.
    pub fn pin(&mut self, name: &str) -> NodeIndex {
        let node = self.intern(name);
        self.nodes.pin(node);
        node
    }

    /// Ends one [`Core::pin`].
    pub fn unpin(&mut self, node: NodeIndex) {
        self.nodes.unpin(node);
        self.release(node);
    }

    pub fn node(&self, name: &str) -> Option<NodeIndex> {
        self.nodes.find(name)
    }

    /// Whether a node holds anything that is not everyone's.
    pub fn has_own(&self, node: NodeIndex) -> bool {
        node != NodeIndex::EVERYONE && self.view(node).held() > 0
    }

    /// The newest revision that concerns a node.
    pub fn newest_for(&self, node: NodeIndex) -> Revision {
        self.views[0].newest().max(self.view(node).newest())
    }

    /// The same by name; also of one that nothing is known of.
    pub fn newest_for_name(&self, name: &str) -> Revision {
        self.newest_for(self.node(name).unwrap_or(NodeIndex::EVERYONE))
    }

    /// What a node is told while it has to wait.
    pub(crate) fn wait(&self, dialect: DialectId, sources: &[String]) -> Option<Bytes> {
        self.dialects[dialect.0].wait(sources)
    }

    fn view(&self, node: NodeIndex) -> &View {
        &self.views[node.0 as usize]
    }

    fn intern(&mut self, name: &str) -> NodeIndex {
        if let Some(node) = self.nodes.find(name) {
            return node;
        }
        let node = self.nodes.intern(name);
        if self.views.len() <= node.0 as usize {
            self.views.push(View::default());
        }
        self.views[node.0 as usize].horizon = self.horizon;
        node
    }

    /// Forgets a node of which nothing is known any more, so that names that come and go do not add up.
    fn release(&mut self, node: NodeIndex) {
        if node != NodeIndex::EVERYONE && self.view(node).is_empty() {
            self.nodes.release(node);
        }
    }

    fn object(&self, slot: Slot) -> &Object {
        self.objects[slot as usize].as_deref().expect("views name only slots in use")
    }

    fn object_mut(&mut self, slot: Slot) -> &mut Object {
        self.objects[slot as usize].as_deref_mut().expect("views name only slots in use")
    }
}

impl Object {
    fn is_held_by(&self, node: NodeIndex) -> bool {
        self.held_since(node).is_some()
    }

    /// Since when a node holds the object, by its own span or everyone's.
    fn held_since(&self, node: NodeIndex) -> Option<Revision> {
        self.content.as_ref()?;
        [NodeIndex::EVERYONE, node].iter().find_map(|node| match self.presence.get(node) {
            Some(Presence::Held { since }) => Some(*since),
            Some(Presence::Lost { .. }) | None => None,
        })
    }
}
