//! The engine against a computation from scratch, under random operations.
//!
//! After every drain the state a consumer has put together from the updates equals the oracle's, in full and on every
//! node; the consumer itself refuses updates that do not fit its state or leave a policy without its groups.
//! The long run: `cargo test -p policy --release --test oracle -- --ignored`.

mod reading;

use model::policy::{Object, ObjectId, validate};
use policy::{Engine, Event};
use testkit::policies::{consumer::Consumer, naive::compute, objects::Objects, random::Random, state::State};

struct Run {
    random: Random,
    objects: Objects,
    engine: Engine,
    consumer: Consumer,
    checks: usize,
    /// Only objects that validate come in, and the second reading is asked too.
    is_valid: bool,
    /// Policies the second reading was asked about, all checks together.
    read: usize,
}

impl Run {
    fn new(seed: u64, is_valid: bool) -> Self {
        Run {
            random: Random::new(seed),
            objects: Objects::default(),
            engine: Engine::new(),
            consumer: Consumer::default(),
            checks: 0,
            is_valid,
            read: 0,
        }
    }

    fn operate(&mut self) {
        let random = &mut self.random;
        let existing = |objects: &Objects, random: &mut Random| {
            let at = random.below(objects.0.len().max(1));
            objects.0.keys().nth(at).cloned()
        };
        match random.below(100) {
            // Create or replace under any name, including one just deleted.
            0..62 => {
                let object = random.object();
                self.apply(object);
            }
            // Change only the labels, or only where it runs.
            62..74 => {
                if let Some(id) = existing(&self.objects, random) {
                    let mut object = self.objects.0[&id].clone();
                    match (&mut object, random.percent(50)) {
                        (Object::Pod(pod), true) => {
                            pod.spec.node_name = random.pick(&["k0", "k1", "k2"]).into()
                        }
                        (Object::ExternalEntity(entity), true) => {
                            entity.spec.external_node = random.pick(&["cloud", "vm"]).into();
                        }
                        (object, _) => {
                            let value = random.pick(&["web", "db", "api"]).to_string();
                            object.metadata_mut().labels.insert("app".into(), value);
                        }
                    }
                    self.apply(object);
                }
            }
            // Say again what is known.
            74..78 => {
                if let Some(id) = existing(&self.objects, random) {
                    self.apply(self.objects.0[&id].clone());
                }
            }
            // Delete what is not there.
            78..80 => {
                let id = random.object().id();
                self.delete(&id);
            }
            // Delete and create again, the same or another under the same name.
            80..84 => {
                if let Some(id) = existing(&self.objects, random) {
                    let object = self.objects.0[&id].clone();
                    self.delete(&id);
                    self.apply(object);
                }
            }
            _ => {
                if let Some(id) = existing(&self.objects, random) {
                    self.delete(&id);
                }
            }
        }
    }

    fn apply(&mut self, object: Object) {
        if self.is_valid && !validate(&object).is_empty() {
            return;
        }
        self.engine.handle_event(Event::Apply(&object));
        self.objects.0.insert(object.id(), object);
    }

    fn delete(&mut self, id: &ObjectId) {
        self.engine.handle_event(Event::Delete(id));
        self.objects.0.remove(id);
    }

    fn drain(&mut self) {
        while let Some(update) = self.engine.poll_update() {
            self.consumer.take(&update);
        }
    }

    fn check(&mut self) {
        let expected = compute(&self.objects);
        if self.consumer.state != expected {
            explain_difference(&self.consumer.state, &expected);
        }
        if self.is_valid {
            let mut told = self.consumer.state.clone();
            told.problems.clear();
            let read = reading::compute(&self.objects);
            self.read += read.policies.len();
            if told != read {
                explain_difference(&told, &read);
            }
        }
        self.checks += 1;
        if self.checks.is_multiple_of(16) {
            for node in expected.nodes() {
                let expected = expected.on_node(&node);
                assert_eq!(self.consumer.state.on_node(&node), expected, "told to {node}");
                assert_eq!(State::of_view(&self.engine.view_of_node(&node)), expected, "asked for {node}");
            }
        }
    }
}

fn explain_difference(told: &State, expected: &State) -> ! {
    assert_eq!(told.problems, expected.problems, "problems");
    assert_eq!(told.applied_to, expected.applied_to, "applied-to groups");
    assert_eq!(told.address, expected.address, "address groups");
    assert_eq!(told.policies, expected.policies, "policies");
    unreachable!("one of the parts differs");
}

/// Drains after every operation, after a few, or in the middle of one another.
fn run(seed: u64, operations: usize, is_valid: bool) {
    let mut run = Run::new(seed, is_valid);
    for _ in 0..operations {
        run.operate();
        match run.random.below(10) {
            0..6 => {
                run.drain();
                run.check();
            }
            // Leaves the rest of the drain for later: it must still describe the state before the next event.
            6..8 => {
                for _ in 0..run.random.below(4) {
                    if let Some(update) = run.engine.poll_update() {
                        run.consumer.take(&update);
                    }
                }
            }
            _ => {}
        }
    }
    run.drain();
    run.check();
    assert!(!is_valid || run.read > operations, "too few policies were read: {}", run.read);
    // An emptied world leaves nothing behind.
    for id in run.objects.0.keys().cloned().collect::<Vec<_>>() {
        run.delete(&id);
    }
    run.drain();
    run.check();
    let size = run.engine.size();
    let left = (size.workloads, size.label_sets, size.selectors, size.groups, size.policies, size.namespaces);
    assert_eq!(left, (0, 0, 0, 0, 0, 0), "{size:?}");
    assert_eq!((size.symbols, size.span_rows, size.span_keys), (1, 1, 0), "{size:?}");
}

#[test]
fn the_engine_agrees_with_the_oracle() {
    for seed in 1..=6 {
        run(seed, 1_000, false);
    }
}

#[test]
fn the_engine_agrees_with_a_second_reading_of_the_objects() {
    for seed in 11..=16 {
        run(seed, 800, true);
    }
}

#[test]
#[ignore = "a million operations take minutes; run with --release"]
fn the_engine_agrees_with_the_oracle_for_a_million_operations() {
    let first = std::env::var("POLICY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_000_u64);
    for seed in first..first + 20 {
        run(seed, 50_000, seed % 2 == 0);
    }
}
