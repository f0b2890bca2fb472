//! A world fed with YAML, watched by a consumer, held against the oracle after every drain. What a scenario told it is told
//! to others when the scenario ends: split, squashed, reversed, with duplicates.

use std::collections::BTreeSet;

use model::policy::{Kind, Object, ObjectId, TypeMeta, output::Update};
use policy::{Engine, Event};
use testkit::policies::{consumer::Consumer, naive::compute, objects::Objects, state::State};

#[derive(Default)]
pub(crate) struct World {
    pub(crate) objects: Objects,
    pub(crate) engine: Engine,
    pub(crate) consumer: Consumer,
    told: Vec<Word>,
}

#[derive(Debug, Clone)]
enum Word {
    Apply(Box<Object>),
    Delete(ObjectId),
}

impl Word {
    fn id(&self) -> ObjectId {
        match self {
            Word::Apply(object) => object.id(),
            Word::Delete(id) => id.clone(),
        }
    }
}

pub(crate) fn parse(yaml: &str) -> Vec<Object> {
    let documents = yaml.split("\n---").map(str::trim).filter(|document| !document.is_empty());
    documents
        .map(|document| {
            let kind = serde_saphyr::from_str::<TypeMeta>(document).expect("a document has a kind");
            let kind = kind.kind().expect("the kind is known");
            serde_saphyr::with_deserializer_from_str(document, |d| kind.deserialize(d)).expect("it parses")
        })
        .collect()
}

impl World {
    pub(crate) fn of(yaml: &str) -> Self {
        let mut world = World::default();
        world.apply(yaml);
        world
    }

    /// Applies the documents, drains, compares with the oracle and gives what was told.
    pub(crate) fn apply(&mut self, yaml: &str) -> Vec<Update> {
        for object in parse(yaml) {
            self.put(object);
        }
        self.drain()
    }

    pub(crate) fn put(&mut self, object: Object) {
        self.tell(Word::Apply(Box::new(object)));
    }

    fn tell(&mut self, word: Word) {
        self.told.push(word.clone());
        match word {
            Word::Apply(object) => {
                self.engine.handle_event(Event::Apply(&object));
                self.objects.0.insert(object.id(), *object);
            }
            Word::Delete(id) => {
                self.engine.handle_event(Event::Delete(&id));
                self.objects.0.remove(&id);
            }
        }
    }

    pub(crate) fn change(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        edit: impl FnOnce(&mut Object),
    ) -> Vec<Update> {
        let mut object = self.objects.get(kind, namespace, name).expect("it exists").clone();
        edit(&mut object);
        self.put(object);
        self.drain()
    }

    pub(crate) fn delete(&mut self, kind: Kind, namespace: &str, name: &str) -> Vec<Update> {
        self.tell(Word::Delete(ObjectId { kind, namespace: namespace.into(), name: name.into() }));
        self.drain()
    }

    pub(crate) fn drain(&mut self) -> Vec<Update> {
        let mut updates = Vec::new();
        while let Some(update) = self.engine.poll_update() {
            self.consumer.take(&update);
            updates.push(update);
        }
        assert_eq!(self.consumer.state, compute(&self.objects), "the engine and the oracle differ");
        self.check_views();
        updates
    }

    /// Who asks for everything at once has what those have who listened all the time.
    fn check_views(&self) {
        let mut told = self.consumer.state.clone();
        told.problems.clear();
        told.applied_to.values_mut().chain(told.address.values_mut()).for_each(|group| group.span.clear());
        told.policies.values_mut().for_each(|policy| policy.span.clear());
        assert_eq!(State::of_view(&self.engine.view()), told);
        for node in self.consumer.state.nodes() {
            assert_eq!(State::of_view(&self.engine.view_of_node(&node)), self.on(&node), "asked for {node}");
        }
    }

    pub(crate) fn on(&self, node: &str) -> State {
        self.consumer.state.on_node(node)
    }

    /// Names of the members of the only AppliedToGroup and the only AddressGroup a node sees.
    pub(crate) fn members_on(&self, node: &str) -> (Vec<String>, Vec<String>) {
        let seen = self.on(node);
        let only = |groups: &std::collections::BTreeMap<String, testkit::policies::state::GroupState>| {
            assert!(groups.len() <= 1, "{groups:#?}");
            groups.values().flat_map(|group| group.members.keys().cloned()).collect::<Vec<_>>()
        };
        (only(&seen.applied_to), only(&seen.address))
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        self.consumer.state.problems.values().flatten().map(|problem| problem.path.clone()).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Those it is told to have forgotten it when they end, or there would be no end.
        if !std::thread::panicking() && !self.told.is_empty() {
            tell_differently(&std::mem::take(&mut self.told));
        }
    }
}

/// The same story told otherwise; each drain is held against the oracle.
fn tell_differently(story: &[Word]) {
    let mut seen = BTreeSet::new();
    let last_words: Vec<Word> = story.iter().rev().filter(|word| seen.insert(word.id())).cloned().collect();
    let doubled: Vec<Word> = story.iter().flat_map(|word| [word.clone(), word.clone()]).collect();
    let backward: Vec<Word> = story.iter().rev().cloned().collect();
    for (words, split) in [
        (story, true),
        (story, false),
        (&doubled, true),
        (&doubled, false),
        (&last_words, true),
        (&last_words, false),
        (&backward, true),
    ] {
        let mut world = World::default();
        for word in words {
            world.tell(word.clone());
            if split {
                world.drain();
            }
        }
        world.drain();
        world.told.clear();
    }
}

/// The list forward, backward, one by one, all at once, twice over; then taken away again in both directions.
pub(crate) fn in_every_order(yaml: &str) {
    let forward = parse(yaml);
    let backward: Vec<Object> = forward.iter().rev().cloned().collect();
    let doubled: Vec<Object> = forward.iter().flat_map(|object| [object.clone(), object.clone()]).collect();
    for list in [&forward, &backward, &doubled] {
        for (split, deletions) in [(true, &forward), (false, &backward)] {
            let mut world = World::default();
            for object in list {
                world.put(object.clone());
                if split {
                    world.drain();
                }
            }
            world.drain();
            let told = world.consumer.updates;
            list.iter().for_each(|object| world.put(object.clone()));
            world.drain();
            assert_eq!(world.consumer.updates, told, "saying it again changed something");
            for object in deletions {
                world.tell(Word::Delete(object.id()));
                if split {
                    world.drain();
                }
            }
            world.drain();
            assert_eq!(world.consumer.state, State::default());
            assert_eq!(world.engine.size().groups, 0);
        }
    }
}

pub(crate) fn pod(namespace: &str, name: &str, labels: &str, node: &str, ip: &str) -> String {
    let ips = if ip.is_empty() { "[]".into() } else { format!("[{{ip: '{ip}'}}]") };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, labels: {labels}}}\n\
         spec: {{nodeName: '{node}', containers: [{{name: c, image: i}}]}}\nstatus: {{phase: Running, podIPs: {ips}}}\n---\n"
    )
}

pub(crate) fn namespace(name: &str, labels: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {labels}}}\n---\n")
}

pub(crate) fn network_policy(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: {namespace}, \
         uid: uid-{namespace}-{name}}}\nspec: {spec}\n---\n"
    )
}

pub(crate) fn cluster_policy(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {{name: {name}, uid: uid-{name}}}\n\
         spec: {spec}\n---\n"
    )
}

pub(crate) fn entity(namespace: &str, name: &str, labels: &str, ip: &str, on: &str) -> String {
    format!(
        "apiVersion: crd.antrea.io/v1alpha2\nkind: ExternalEntity\nmetadata: {{name: {name}, namespace: {namespace}, \
         labels: {labels}}}\nspec: {{endpoints: [{{ip: '{ip}', name: e}}], externalNode: '{on}'}}\n---\n"
    )
}
