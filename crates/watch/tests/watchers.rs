//! Random histories of the engine, watched by readers that come, go, sleep and resume: what each has put together from
//! its frames equals what the engine's updates say its node should see.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod reader;

use std::collections::{BTreeMap, BTreeSet};

use model::policy::{
    Object, ObjectId,
    output::{
        Change, GroupUpdate, Identifier, Member, MemberKind, NetworkPolicy, PolicyUpdate, Span, Update,
    },
};
use policy::{Engine, Event};
use reader::Reader;
use testkit::policies::random::Random;
use watch::{Cache, Encoding, Resource, Start, View};

/// What the updates say, kept in the plainest way.
#[derive(Default)]
struct Truth {
    applied_to: BTreeMap<Identifier, Group>,
    address: BTreeMap<Identifier, Group>,
    policies: BTreeMap<Identifier, (NetworkPolicy, BTreeSet<String>)>,
}

#[derive(Default)]
struct Group {
    uid: String,
    members: Vec<Member>,
    span: BTreeSet<String>,
}

impl Truth {
    fn take(&mut self, update: &Update) {
        match update {
            Update::AppliedToGroup(update) => {
                take_group(&mut self.applied_to, update, Member::same_applied_to_key);
            }
            Update::AddressGroup(update) => {
                take_group(&mut self.address, update, Member::same_address_key);
            }
            Update::NetworkPolicy(update) => self.take_policy(update),
            Update::Status(_) => {}
        }
    }

    fn take_policy(&mut self, update: &PolicyUpdate) {
        if update.change == Change::Removed {
            self.policies.remove(&update.uid);
            return;
        }
        let policy = (*update.policy).clone();
        let entry =
            self.policies.entry(update.uid.clone()).or_insert_with(|| (policy.clone(), BTreeSet::new()));
        entry.0 = policy;
        move_span(&mut entry.1, &update.span_added, &update.span_removed);
    }

    /// Objects in view, each as a text that has everything a reader can know of it.
    fn seen(&self, resource: Resource, view: &View) -> BTreeMap<String, String> {
        let in_view = |name: &Identifier, span: &BTreeSet<String>| {
            view.name.as_ref().is_none_or(|wanted| wanted == name)
                && view.node.as_ref().is_none_or(|node| span.contains(&**node))
        };
        let groups = |groups: &BTreeMap<Identifier, Group>, is_address: bool| {
            let groups = groups.iter().filter(|(name, group)| in_view(name, &group.span));
            groups
                .map(|(name, group)| {
                    let local = group
                        .members
                        .iter()
                        .filter(|member| is_address || view.node.is_none() || member.node == view.node);
                    let members: BTreeSet<String> =
                        local.map(|member| describe(member, is_address)).collect();
                    (name.to_string(), format!("{} {members:?}", group.uid))
                })
                .collect()
        };
        match resource {
            Resource::AppliedToGroups => groups(&self.applied_to, false),
            Resource::AddressGroups => groups(&self.address, true),
            Resource::NetworkPolicies => {
                let policies = self.policies.iter().filter(|(name, (_, span))| in_view(name, span));
                policies
                    .map(|(name, (policy, _))| {
                        let source = &policy.source;
                        let groups: Vec<_> =
                            policy.rules.iter().flat_map(|rule| &rule.address_groups).collect();
                        let groups: Vec<_> = groups.iter().map(ToString::to_string).collect();
                        let text = format!(
                            "{} {}/{} {} {groups:?}",
                            policy.generation,
                            source.namespace,
                            source.name,
                            policy.rules.len()
                        );
                        (name.to_string(), text)
                    })
                    .collect()
            }
            Resource::EgressGroups | Resource::SupportBundleCollections => BTreeMap::new(),
        }
    }
}

fn take_group(
    groups: &mut BTreeMap<Identifier, Group>,
    update: &GroupUpdate,
    same: fn(&Member, &Member) -> bool,
) {
    if update.change == Change::Removed {
        groups.remove(&update.name);
        return;
    }
    let group = groups.entry(update.name.clone()).or_default();
    group.uid = update.uid.to_string();
    for member in update.removed.iter().chain(&update.added) {
        group.members.retain(|other| !same(other, member));
    }
    group.members.extend(update.added.iter().map(|member| (**member).clone()));
    move_span(&mut group.span, &update.span_added, &update.span_removed);
}

fn move_span(span: &mut BTreeSet<String>, added: &Span, removed: &Span) {
    span.retain(|node| !removed.iter().any(|gone| **gone == **node));
    span.extend(added.iter().map(|node| node.to_string()));
}

fn describe(member: &Member, is_address: bool) -> String {
    let kind = match member.kind {
        MemberKind::Pod => "pod",
        MemberKind::ExternalEntity => "entity",
        MemberKind::Node => "node",
        MemberKind::Service => "service",
    };
    let addresses = if is_address { member.addresses.as_slice() } else { &[] };
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let ports: Vec<_> = member.ports.iter().map(|port| format!("{}={}", port.name, port.port)).collect();
    format!("{kind} {}/{} {addresses:?} {ports:?}", member.namespace, member.name)
}

struct Run {
    random: Random,
    objects: BTreeMap<ObjectId, Object>,
    engine: Engine,
    truth: Truth,
    cache: Cache,
    readers: Vec<Reader>,
}

impl Run {
    fn new(seed: u64) -> Self {
        Run {
            random: Random::new(seed),
            objects: BTreeMap::new(),
            engine: Engine::new(),
            truth: Truth::default(),
            cache: Cache::new(1_000),
            readers: Vec::new(),
        }
    }

    fn operate(&mut self) {
        let at = self.random.below(self.objects.len().max(1));
        let existing = self.objects.keys().nth(at).cloned();
        match (self.random.below(100), existing) {
            (0..30, Some(id)) => {
                self.engine.handle_event(Event::Delete(&id));
                self.objects.remove(&id);
            }
            (30..45, Some(id)) => {
                let mut object = self.objects[&id].clone();
                if let Object::Pod(pod) = &mut object {
                    pod.spec.node_name = self.random.pick(&["k0", "k1", "k2"]).into();
                }
                let value = self.random.pick(&["web", "db", "api"]).to_owned();
                object.metadata_mut().labels.insert("app".into(), value);
                self.apply(object);
            }
            _ => {
                let object = self.random.object();
                self.apply(object);
            }
        }
    }

    fn apply(&mut self, object: Object) {
        self.engine.handle_event(Event::Apply(&object));
        self.objects.insert(object.id(), object);
    }

    fn drain(&mut self) {
        let updates: Vec<Update> = std::iter::from_fn(|| self.engine.poll_update()).collect();
        updates.iter().for_each(|update| self.truth.take(update));
        self.cache.apply(updates);
    }

    fn attach(&mut self) {
        let nodes = ["k0", "k1", "k2", "cloud", "vm", "nobody"];
        let random = &mut self.random;
        let resource = Resource::ALL[random.below(4)];
        let node = random.percent(75).then(|| random.pick(&nodes).into());
        let encoding = if random.percent(70) { Encoding::Protobuf } else { Encoding::Json };
        let mut view = View { node, name: None };
        if random.percent(10) {
            view.name = self.truth.address.keys().chain(self.truth.policies.keys()).next().cloned();
        }
        self.readers.push(Reader::attach(&self.cache, resource, view, encoding));
    }

    fn step(&mut self) {
        self.operate();
        if self.random.percent(60) {
            self.drain();
        }
        match self.random.below(20) {
            0..3 if self.readers.len() < 24 => self.attach(),
            3 if !self.readers.is_empty() => {
                let at = self.random.below(self.readers.len());
                self.readers.swap_remove(at);
            }
            // Resumes from the bookmark it saw, in the state it had then.
            4 if !self.readers.is_empty() => {
                let at = self.random.below(self.readers.len());
                self.readers[at].resume(&self.cache);
            }
            5..12 if !self.readers.is_empty() => {
                let at = self.random.below(self.readers.len());
                self.readers[at].read(self.random.below(5));
            }
            _ => {}
        }
    }

    fn check(&mut self) {
        for reader in &mut self.readers {
            reader.read(usize::MAX);
            let expected = self.truth.seen(reader.resource, &reader.view);
            assert_eq!(reader.state(), expected, "{:?} {:?}", reader.resource, reader.view);
        }
    }
}

#[test]
fn every_reader_knows_what_its_node_should_see() {
    for seed in 1..=12 {
        let mut run = Run::new(seed);
        run.cache.set_synced();
        for step in 0..600 {
            run.step();
            if step % 40 == 39 {
                run.drain();
                run.check();
            }
        }
        // An emptied world leaves nothing behind, in readers and in the cache.
        for id in std::mem::take(&mut run.objects).into_keys() {
            run.engine.handle_event(Event::Delete(&id));
        }
        run.drain();
        run.check();
        assert!(run.readers.iter().all(|reader| reader.state().is_empty()));
        run.readers.clear();
        for resource in Resource::ALL {
            assert_eq!(run.cache.size(resource), (0, 0));
        }
    }
}

#[test]
fn nothing_is_said_before_the_sources_are_in_sync() {
    let mut run = Run::new(1);
    let view = View::default();
    let mut early = Reader::attach(&run.cache, Resource::AddressGroups, view.clone(), Encoding::Protobuf);
    for _ in 0..200 {
        run.operate();
    }
    run.drain();
    assert_eq!(early.read(usize::MAX), 0);
    assert!(run.cache.list(Resource::AddressGroups, &view, Encoding::Json).is_err());
    run.cache.set_synced();
    early.read(usize::MAX);
    assert_eq!(early.state(), run.truth.seen(Resource::AddressGroups, &view));
    assert_eq!(early.bookmarks, 1);
}

#[test]
fn an_empty_resource_is_one_bookmark() {
    let cache = Cache::new(7);
    cache.set_synced();
    for resource in Resource::ALL {
        let mut reader = Reader::attach(&cache, resource, View::default(), Encoding::Protobuf);
        assert_eq!(reader.read(usize::MAX), 1);
        assert_eq!((reader.bookmarks, reader.revision), (1, 7));
    }
}

#[test]
fn a_revision_from_another_life_is_expired() {
    let cache = Cache::new(1_000);
    cache.set_synced();
    let start = |revision| Start::After { revision, with_bookmark: false };
    for (revision, is_known) in [(999, false), (1_000, true), (1_001, false)] {
        let watch =
            cache.watch(Resource::AddressGroups, View::default(), start(revision), Encoding::Json, false);
        assert_eq!(watch.is_ok(), is_known, "{revision}");
    }
}
