//! All objects of one resource, with their spans and their watchers.
//!
//! In: updates of the engine, from one writer. Out: events to the watchers concerned; the present, to those who ask.

use std::{collections::VecDeque, sync::Arc};

use model::policy::output::{Change, GroupUpdate, Identifier, Member, PolicyUpdate, Span};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    encode::EventType,
    members::{Difference, Members},
    resource::Resource,
    spans::{NodeId, RowId, SpanId, Spans},
    version::{Content, Node, Version},
    watcher::{Event, Known, Watcher},
};

/// Changes kept for those who resume. Who was away for longer lists again.
const RECENT: usize = 8192;

#[derive(Debug)]
struct Row {
    version: Arc<Version>,
    span: SpanId,
    /// Among the rows of its span.
    place: usize,
}

/// Where a watch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With everything in view, and a bookmark after it.
    Everything,
    /// With what changed after a revision that a list or a bookmark named.
    After { revision: u64, with_bookmark: bool },
    /// With the next change.
    Now { with_bookmark: bool },
}

/// The revision is not one this server remembers; the client has to list again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked}; changes are known after {known}, list again")]
pub struct Expired {
    pub asked: u64,
    pub known: u64,
}

#[derive(Debug)]
pub struct Objects {
    resource: Resource,
    revision: u64,
    is_synced: bool,
    rows: Vec<Option<Row>>,
    free: Vec<RowId>,
    index: FxHashMap<Identifier, RowId>,
    spans: Spans,
    /// Watchers of everything, whatever its span.
    everyone: Vec<Arc<Watcher>>,
    /// Watchers who came before the sources were in sync.
    waiting: Vec<(Arc<Watcher>, Start)>,
    /// Which objects changed, and when; each names its object and no more.
    recent: VecDeque<(u64, Arc<Version>)>,
    /// The newest change that is not in `recent`.
    forgotten: u64,
}

/// A change, before it is told.
struct Step {
    before: Option<Arc<Version>>,
    after: Option<Arc<Version>>,
    difference: Difference,
    content_changed: bool,
    span_added: Span,
    span_removed: Span,
    span: SpanId,
}

impl Objects {
    pub fn new(resource: Resource, first_revision: u64) -> Self {
        Objects {
            resource,
            revision: first_revision,
            is_synced: false,
            rows: Vec::new(),
            free: Vec::new(),
            index: FxHashMap::default(),
            spans: Spans::new(),
            everyone: Vec::new(),
            waiting: Vec::new(),
            recent: VecDeque::new(),
            forgotten: first_revision,
        }
    }

    pub fn resource(&self) -> Resource {
        self.resource
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// The object as a watcher on `node` sees it; none if there is none, or the node has no business with it.
    pub fn seen(&self, name: &Identifier, node: &Node) -> Option<Arc<Version>> {
        let row = self.row(*self.index.get(name)?);
        let is_seen = node.as_ref().is_none_or(|node| self.spans.contains(row.span, node));
        is_seen.then(|| Arc::clone(&row.version))
    }

    /// Everything a watcher on `node` sees, by name.
    pub fn all_seen(&self, node: &Node) -> Vec<Arc<Version>> {
        let mut versions: Vec<_> = match node {
            Some(node) => self.spans.rows_on(node).map(|row| Arc::clone(&self.row(row).version)).collect(),
            None => self.rows.iter().flatten().map(|row| Arc::clone(&row.version)).collect(),
        };
        versions.sort_by(|a, b| a.name.cmp(&b.name));
        versions
    }

    /// The nodes that need an object.
    pub fn span(&self, name: &Identifier) -> Option<impl ExactSizeIterator<Item = &Arc<str>>> {
        Some(self.spans.names(self.row(*self.index.get(name)?).span))
    }

    fn row(&self, id: RowId) -> &Row {
        self.rows[id as usize].as_ref().expect("ids in the index and in spans are of rows that exist")
    }

    // Watchers come and go.

    pub fn attach(&mut self, watcher: &Arc<Watcher>, start: Start) -> Result<(), Expired> {
        if let Start::After { revision, .. } = start
            && (!self.is_synced || revision < self.forgotten || revision > self.revision)
        {
            return Err(Expired { asked: revision, known: self.forgotten });
        }
        match self.is_synced {
            true => self.begin(watcher, start),
            false => self.waiting.push((Arc::clone(watcher), start)),
        }
        Ok(())
    }

    fn begin(&mut self, watcher: &Arc<Watcher>, start: Start) {
        let with_bookmark = match start {
            Start::Everything => {
                for version in self.all_seen(&watcher.node) {
                    watcher.push_behind(&version.name, Known::Nothing);
                }
                true
            }
            Start::After { revision, with_bookmark } => {
                for (_, version) in self.recent.iter().rev().take_while(|(at, _)| *at > revision) {
                    watcher.push_behind(&version.name, Known::Doubtful(Arc::clone(version)));
                }
                with_bookmark
            }
            Start::Now { with_bookmark } => with_bookmark,
        };
        if with_bookmark {
            watcher.push_bookmark(self.revision);
        }
        match &watcher.node {
            Some(node) => self.spans.attach(node, Arc::clone(watcher)),
            None => self.everyone.push(Arc::clone(watcher)),
        }
        watcher.wake();
    }

    pub fn set_synced(&mut self) {
        self.is_synced = true;
        for (watcher, start) in std::mem::take(&mut self.waiting) {
            self.begin(&watcher, start);
        }
    }

    pub fn detach(&mut self, watcher: &Arc<Watcher>) {
        self.waiting.retain(|(other, _)| !Arc::ptr_eq(other, watcher));
        match &watcher.node {
            Some(node) => self.spans.detach(node, watcher),
            None => self.everyone.retain(|other| !Arc::ptr_eq(other, watcher)),
        }
    }

    // Changes.

    pub fn take_policy(&mut self, update: PolicyUpdate) {
        let before = self.version(&update.uid);
        let after = (update.change != Change::Removed).then(|| match &before {
            // Only the span moved, and the frames that exist stay good.
            Some(before) if !update.content_changed => Arc::clone(before),
            _ => Version::new(
                update.uid.clone(),
                update.uid.clone(),
                Content::Policy(Arc::clone(&update.policy)),
            ),
        });
        self.take(&update.uid, before, after, Difference::default(), update.span_added, update.span_removed);
    }

    pub fn take_group(&mut self, update: GroupUpdate) {
        let before = self.version(&update.name);
        let difference = Difference { added: update.added, removed: update.removed };
        let is_content = !difference.added.is_empty() || !difference.removed.is_empty();
        let is_span = !update.span_added.is_empty() || !update.span_removed.is_empty();
        let is_titled = before.as_ref().is_some_and(|before| before.uid == update.uid);
        // Addresses of whom a policy is applied to are not told here.
        if update.change == Change::Updated && is_titled && !is_content && !is_span {
            return;
        }
        let after = (update.change != Change::Removed).then(|| match &before {
            Some(before) if !is_content && before.uid == update.uid => Arc::clone(before),
            _ => {
                let content = self.next_content(before.as_deref(), &difference);
                Version::new(update.name.clone(), update.uid.clone(), content)
            }
        });
        self.take(&update.name, before, after, difference, update.span_added, update.span_removed);
    }

    fn next_content(&self, before: Option<&Version>, difference: &Difference) -> Content {
        let (added, removed) = (&difference.added, &difference.removed);
        match (before.map(|version| &version.content), self.resource) {
            (Some(Content::AppliedTo(members)), _) => Content::AppliedTo(members.with(added, removed)),
            (Some(Content::Address(members)), _) => Content::Address(members.with(added, removed)),
            (_, Resource::AppliedToGroups) => Content::AppliedTo(Members::default().with(added, removed)),
            _ => Content::Address(Members::default().with(added, removed)),
        }
    }

    fn version(&self, name: &Identifier) -> Option<Arc<Version>> {
        self.index.get(name).map(|row| Arc::clone(&self.row(*row).version))
    }

    fn take(
        &mut self,
        name: &Identifier,
        before: Option<Arc<Version>>,
        after: Option<Arc<Version>>,
        difference: Difference,
        span_added: Span,
        span_removed: Span,
    ) {
        let content_changed = match (&before, &after) {
            (Some(before), Some(after)) => !Arc::ptr_eq(before, after),
            _ => true,
        };
        let span = self.place(name, after.as_ref(), &span_added, &span_removed);
        let Some(named) = after.as_ref().or(before.as_ref()) else { return };
        self.revision += 1;
        self.remember(named);
        self.publish(Step { before, after, difference, content_changed, span_added, span_removed, span });
    }

    /// Moves the row to its new span; the span it is in then.
    fn place(
        &mut self,
        name: &Identifier,
        after: Option<&Arc<Version>>,
        added: &Span,
        removed: &Span,
    ) -> SpanId {
        let row = self.index.get(name).copied();
        let Some(after) = after else {
            if let Some(id) = row {
                self.unplace(id);
                self.rows[id as usize] = None;
                self.free.push(id);
                self.index.remove(name);
            }
            return SpanId::NOWHERE;
        };
        let from = row.map_or(SpanId::NOWHERE, |id| self.row(id).span);
        let to = self.spans.after(from, added, removed);
        if let Some(id) = row {
            if to != from {
                self.unplace(id);
                let place = self.spans.enter(to, id);
                let row = self.rows[id as usize].as_mut().expect("it was just there");
                (row.span, row.place) = (to, place);
            }
            self.rows[id as usize].as_mut().expect("it was just there").version = Arc::clone(after);
            return to;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            RowId::try_from(self.rows.len() - 1).expect("memory ends before four billion objects")
        });
        let place = self.spans.enter(to, id);
        self.rows[id as usize] = Some(Row { version: Arc::clone(after), span: to, place });
        self.index.insert(name.clone(), id);
        to
    }

    fn unplace(&mut self, id: RowId) {
        let (span, place) = (self.row(id).span, self.row(id).place);
        if let Some(moved) = self.spans.leave(span, place) {
            self.rows[moved as usize].as_mut().expect("spans hold rows that exist").place = place;
        }
    }

    /// The end of a batch.
    pub fn settle(&mut self) {
        self.spans.settle();
    }

    fn remember(&mut self, version: &Version) {
        if !self.is_synced {
            // Nobody has seen anything yet that they could come back to.
            self.forgotten = self.revision;
            return;
        }
        let content = match &version.content {
            Content::Policy(policy) => Content::Policy(Arc::clone(policy)),
            Content::AppliedTo(_) => Content::AppliedTo(Members::default()),
            Content::Address(_) => Content::Address(Members::default()),
        };
        let stub = Version::new(version.name.clone(), version.uid.clone(), content);
        self.recent.push_back((self.revision, stub));
        if self.recent.len() > RECENT
            && let Some((revision, _)) = self.recent.pop_front()
        {
            self.forgotten = revision;
        }
    }

    // Telling.

    fn publish(&self, step: Step) {
        if self.everyone.is_empty() && self.spans.watcher_count() == 0 {
            return;
        }
        if let (Some(before), Some(after)) = (&step.before, &step.after)
            && before.uid != after.uid
        {
            self.publish_replacement(&step, before);
            return;
        }
        match self.resource {
            Resource::AppliedToGroups => self.tell_per_node(&step),
            _ => self.tell_alike(step),
        }
    }

    /// Everyone in view hears the same: policies and AddressGroups.
    fn tell_alike(&self, step: Step) {
        let Step { before, after, difference, content_changed, span_added, span_removed, span } = step;
        let (is_new, is_gone) = (before.is_none(), after.is_none());
        let event = Arc::new(Event::new(before, after, difference, None));
        let whole = match (is_new, is_gone) {
            (true, _) => Some(EventType::Added),
            (_, true) => Some(EventType::Deleted),
            _ => content_changed.then_some(EventType::Modified),
        };
        if let Some(seen) = whole {
            self.everyone.iter().for_each(|watcher| watcher.push(&event, seen));
        }
        let came = self.ids(&span_added);
        if content_changed && !is_gone {
            for node in self.spans.nodes_of(span).iter().filter(|node| !came.contains(node)) {
                self.push(*node, &event, EventType::Modified);
            }
        }
        came.iter().for_each(|node| self.push(*node, &event, EventType::Added));
        for node in self.ids(&span_removed) {
            self.push(node, &event, EventType::Deleted);
        }
    }

    /// Each node hears of its own members only: AppliedToGroups.
    fn tell_per_node(&self, step: &Step) {
        if !self.everyone.is_empty() {
            self.tell_whole(step);
        }
        let (came, went) = (self.ids(&step.span_added), self.ids(&step.span_removed));
        let changed = step.difference.added.iter().chain(&step.difference.removed);
        let mut nodes: FxHashSet<NodeId> =
            changed.filter_map(|member| self.spans.node(member.node.as_ref()?)).collect();
        nodes.extend(&came);
        nodes.extend(&went);
        for node in nodes {
            let Some(watcher) = self.spans.watchers(node).first() else { continue };
            let local = |list: &[Arc<Member>]| -> Vec<_> {
                list.iter().filter(|member| member.node == watcher.node).cloned().collect()
            };
            let difference =
                Difference { added: local(&step.difference.added), removed: local(&step.difference.removed) };
            let seen = match (came.contains(&node), went.contains(&node)) {
                (true, _) => EventType::Added,
                (_, true) => EventType::Deleted,
                _ => EventType::Modified,
            };
            let event = Event::new(step.before.clone(), step.after.clone(), difference, watcher.node.clone());
            self.push(node, &Arc::new(event), seen);
        }
    }

    fn tell_whole(&self, step: &Step) {
        let seen = match (&step.before, &step.after) {
            (None, _) => EventType::Added,
            (_, None) => EventType::Deleted,
            (Some(_), Some(_)) => EventType::Modified,
        };
        let mut difference = Difference::default();
        if let (EventType::Modified, Some(after)) = (seen, &step.after) {
            let all =
                Difference { added: step.difference.added.clone(), removed: step.difference.removed.clone() };
            difference = after.visible(all, &None);
            if difference.added.is_empty() && difference.removed.is_empty() {
                return;
            }
        }
        let event = Arc::new(Event::new(step.before.clone(), step.after.clone(), difference, None));
        self.everyone.iter().for_each(|watcher| watcher.push(&event, seen));
    }

    /// Another object took the name: whoever knew the old one looks it up.
    fn publish_replacement(&self, step: &Step, before: &Arc<Version>) {
        let came = self.ids(&step.span_added);
        let stayed = self.spans.nodes_of(step.span).iter().filter(|node| !came.contains(node));
        let knew = stayed.copied().chain(self.ids(&step.span_removed));
        let knew = knew.flat_map(|node| self.spans.watchers(node)).chain(&self.everyone);
        for watcher in knew {
            watcher.push_behind(&before.name, Known::This(Arc::clone(before)));
            watcher.wake();
        }
        for watcher in came.iter().flat_map(|node| self.spans.watchers(*node)) {
            watcher.push_behind(&before.name, Known::Nothing);
            watcher.wake();
        }
    }

    fn push(&self, node: NodeId, event: &Arc<Event>, seen: EventType) {
        self.spans.watchers(node).iter().for_each(|watcher| watcher.push(event, seen));
    }

    fn ids(&self, span: &Span) -> FxHashSet<NodeId> {
        span.iter().filter_map(|name| self.spans.node(name)).collect()
    }

    pub fn watchers(&self) -> usize {
        self.everyone.len() + self.waiting.len() + self.spans.watcher_count()
    }
}
