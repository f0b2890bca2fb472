//! Tells one story: everything in it follows from the seed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cloud_api::{Dice, Faults};
use model::{
    Direction, LinkName, Member, NetworkName, PermitRule, ResourceName, ResourceState, Segment, Site, TagName,
};
use store::Store;
use tags::Request;

use super::{
    super::{
        house::{House, read, resource, rule},
        memory::{Memory, MemoryStore, StoreFaults},
    },
    model::{Model, Was, What},
};
use crate::{
    execute::{JobOrPlan, JobState, OrchestratorError, facts},
    plan::{Inventory, Phase, ResourceRecord},
};

const CLOUDS: [&str; 3] = ["azure", "gcp", "ibm"];
const TAGS: [&str; 4] = ["t0", "t1", "t2", "t3"];
const RESOURCES: u32 = 9;

pub struct Teller {
    seed: u64,
    dice: Dice,
    house: House,
    memory: Arc<Memory>,
    model: Model,
    /// Somebody else changed a cloud, or a read may have been old: until the next rest the wire may be anything.
    unsure: bool,
    trace: bool,
}

/// Nine resources over three clouds, two namespaces and two regions.
fn name(which: u32) -> (ResourceName, &'static str) {
    let namespace = if which.is_multiple_of(2) { "a" } else { "b" };
    let region = if which.is_multiple_of(5) { "r1" } else { "r2" };
    (resource(&format!("{namespace}.{}.vm{which}", CLOUDS[which as usize % 3])), region)
}

impl Teller {
    pub async fn new(seed: u64) -> Self {
        let memory = Arc::new(Memory::new(seed));
        let house = House::in_store(Store::new(MemoryStore(Arc::clone(&memory))), &CLOUDS).await;
        let trace = std::env::var_os("TRESTLE_STORY").is_some();
        let (dice, model) = (Dice::new(seed ^ 0x5eed), Model::new(&CLOUDS));
        Self { seed, dice, house, memory, model, unsure: false, trace }
    }

    pub async fn tell(mut self) {
        for _ in 0..3 + self.dice.below(3) {
            self.trouble();
            for _ in 0..1 + self.dice.below(16) {
                self.event().await;
                self.take_in();
                self.look();
            }
            self.rest().await;
        }
        self.end().await;
    }

    fn say(&self, text: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{}", text());
        }
    }

    /// Chooses what goes wrong from now on; one burst in four is calm.
    fn trouble(&mut self) {
        if self.dice.below(4) == 0 {
            return self.calm();
        }
        for cloud in &self.house.clouds {
            let mut chance = |most| self.dice.below(most);
            cloud.set_faults(Faults {
                latency: Duration::from_millis(u64::from(chance(200))),
                throttle: chance(150),
                before: chance(150),
                after: chance(150),
                half: chance(200),
                hang: chance(30),
                old: 0,
                seed: u64::from(chance(u32::MAX)),
            });
        }
        let faults = StoreFaults {
            before: self.dice.below(60),
            after: self.dice.below(40),
            read: self.dice.below(60),
            watch: self.dice.below(20),
            latency: Duration::from_millis(u64::from(self.dice.below(20))),
        };
        self.memory.set_faults(faults);
    }

    fn calm(&self) {
        self.house.clouds.iter().for_each(|cloud| cloud.set_faults(Faults::default()));
        self.memory.set_faults(StoreFaults::default());
    }

    async fn event(&mut self) {
        match self.dice.below(100) {
            0..=24 => self.create().await,
            25..=31 => self.delete().await,
            32..=61 => self.put_rule().await,
            62..=67 => self.delete_rule().await,
            68..=71 => self.put_tag_rule().await,
            72 => self.delete_tag_rule().await,
            73..=84 => self.member(),
            85..=86 => self.connect().await,
            87 => self.disconnect().await,
            88..=90 => self.cancel().await,
            91 => self.drift().await,
            92..=93 => self.kill().await,
            _ => {
                let pause = Duration::from_millis(u64::from(self.dice.below(3000)));
                self.say(|| format!("{pause:?} pass"));
                tokio::time::sleep(pause).await;
            }
        }
    }

    fn some_tag(&mut self) -> TagName {
        TAGS[self.dice.below(4) as usize].parse().unwrap()
    }

    fn some_resource(&mut self) -> (ResourceName, &'static str) {
        name(self.dice.below(RESOURCES))
    }

    fn some_peer(&mut self) -> String {
        match self.dice.below(12) {
            0..=5 => self.some_resource().0.to_string(),
            6..=8 => self.some_tag().to_string(),
            9 => {
                let (name, _) = self.some_resource();
                self.truth(&name).map_or_else(|| "8.8.8.8".to_owned(), |state| state.address.to_string())
            }
            10 => "10.0.0.0/8".to_owned(),
            _ => "0.0.0.0/0".to_owned(),
        }
    }

    fn some_rule(&mut self) -> PermitRule {
        let direction = if self.dice.below(2) == 0 { Direction::Inbound } else { Direction::Outbound };
        // Few names, so that rules are replaced by others.
        let name = format!("{direction}-{}", self.dice.below(3));
        rule(&name, direction, &self.some_peer())
    }

    async fn create(&mut self) {
        let (name, region) = self.some_resource();
        let what = What::Resource(name.clone());
        let before = self.model.before(&what);
        let asked = self.house.orchestrator.create_resource(name, region.to_owned(), false, false).await;
        self.asked(what, before, region, None, asked).await;
    }

    async fn put_rule(&mut self) {
        let ((on, _), rule) = (self.some_resource(), self.some_rule());
        let what = What::Rule(on.clone(), rule.name.clone());
        let before = self.model.before(&what);
        let asked = self.house.orchestrator.put_rules(on, vec![rule.clone()], false).await;
        self.asked(what, before, "", Some(rule), asked).await;
    }

    async fn put_tag_rule(&mut self) {
        let (on, rule) = (self.some_tag(), self.some_rule());
        let what = What::TagRule(on.clone(), rule.name.clone());
        let before = self.model.before(&what);
        let asked = self.house.orchestrator.put_tag_rules(on, vec![rule.clone()], false).await;
        self.asked(what, before, "", Some(rule), asked).await;
    }

    fn some_link(&mut self) -> Option<LinkName> {
        let ((a, _), (b, _)) = (self.some_resource(), self.some_resource());
        LinkName::new(Site::of(&a), Site::of(&b)).ok()
    }

    async fn connect(&mut self) {
        let Some(link) = self.some_link() else { return };
        let what = What::Link(link.clone());
        let before = self.model.before(&what);
        // Asked for once more, nothing is put that could be taken back.
        let pinned = before == Was::There;
        let asked = self.house.orchestrator.connect(link, false).await;
        if !pinned {
            self.asked(what, before, "", None, asked).await;
        }
    }

    /// What came of a request to put something.
    async fn asked(
        &mut self,
        what: What,
        before: Was,
        region: &str,
        rule: Option<PermitRule>,
        asked: Result<JobOrPlan, OrchestratorError>,
    ) {
        self.say(|| format!("put {what:?} {rule:?}: {:?}", asked.as_ref().err().map(ToString::to_string)));
        match asked {
            Ok(outcome) => {
                let id = outcome.job().unwrap().id;
                self.model.put(id, what, before, region, rule);
            }
            Err(OrchestratorError::Write(_)) => self.find_out(&what, region).await,
            // Refused: the model would do so too, or it is a matter of chance; nothing has changed.
            Err(_) => {}
        }
    }

    async fn delete(&mut self) {
        let (name, region) = self.some_resource();
        let asked = self.house.orchestrator.delete_resource(name.clone(), false).await;
        self.taken(What::Resource(name), region, asked).await;
    }

    async fn delete_rule(&mut self) {
        let ((on, _), rule) = (self.some_resource(), self.some_rule().name);
        let asked = self.house.orchestrator.delete_rules(on.clone(), vec![rule.clone()], false).await;
        self.taken(What::Rule(on, rule), "", asked).await;
    }

    async fn delete_tag_rule(&mut self) {
        let (on, rule) = (self.some_tag(), self.some_rule().name);
        let asked = self.house.orchestrator.delete_tag_rules(on.clone(), vec![rule.clone()], false).await;
        self.taken(What::TagRule(on, rule), "", asked).await;
    }

    async fn disconnect(&mut self) {
        let Some(link) = self.some_link() else { return };
        let asked = self.house.orchestrator.disconnect(link.clone(), false).await;
        self.taken(What::Link(link), "", asked).await;
    }

    /// What came of a request to take something away.
    async fn taken(&mut self, what: What, region: &str, asked: Result<JobOrPlan, OrchestratorError>) {
        self.say(|| format!("take {what:?}: {:?}", asked.as_ref().err().map(ToString::to_string)));
        match asked {
            Ok(_) => {
                // What had ended meanwhile had ended before this.
                self.take_in();
                self.model.settle(&what, Was::Absent, region);
            }
            Err(OrchestratorError::Write(_)) => self.find_out(&what, region).await,
            Err(_) => {}
        }
    }

    /// The answer of the store was lost, so nobody knows. Once it can be read again the orchestrator must know what
    /// is stored; the end of a rest compares the two.
    async fn find_out(&mut self, what: &What, region: &str) {
        self.settle().await;
        self.take_in();
        let orchestrator = &self.house.orchestrator;
        let rule = |rules: Vec<PermitRule>, name: &Segment| {
            rules.into_iter().find(|rule| rule.name == *name).map_or(Was::Absent, Was::Rule)
        };
        let there = |there: bool| if there { Was::There } else { Was::Absent };
        let now = match what {
            What::Resource(name) => there(orchestrator.rules(name).is_ok()),
            What::Rule(on, name) => rule(orchestrator.rules(on).unwrap_or_default(), name),
            What::TagRule(on, name) => rule(orchestrator.tag_rules(on), name),
            What::Link(name) => there(orchestrator.state.lock().intent.links.contains(name)),
        };
        self.say(|| format!("found out: {what:?} is {now:?}"));
        self.model.settle(what, now, region);
    }

    fn member(&mut self) {
        let tag = self.dice.below(4) as usize;
        let member = self.some_peer();
        // Only upwards, so that there are no cycles; the tag service refuses them.
        if TAGS.iter().position(|name| **name == *member).is_some_and(|child| child >= tag) {
            return;
        }
        let (tag, member): (TagName, Member) = (TAGS[tag].parse().unwrap(), member.parse().unwrap());
        let present = self.dice.below(10) < 7;
        let members = [member.clone()].into();
        let request = match present {
            true => Request::SetGroup { tag: tag.clone(), members },
            false => Request::DeleteMembers { tag: tag.clone(), members },
        };
        let done = self.house.book.request(&request);
        self.say(|| format!("{request:?}: {:?}", done.as_ref().err()));
        if done.is_ok() {
            self.model.member(&tag, member, present);
        }
    }

    async fn cancel(&mut self) {
        let jobs = self.house.orchestrator.jobs().into_iter();
        let running: Vec<_> = jobs.filter(|job| job.state == JobState::Running).collect();
        if running.is_empty() {
            return;
        }
        let job = &running[self.dice.below(u32::try_from(running.len()).unwrap()) as usize];
        let cancelled = self.house.orchestrator.cancel(&job.id).await;
        self.say(|| format!("cancel {}: {:?}", job.what, cancelled.as_ref().err().map(ToString::to_string)));
        if matches!(cancelled, Err(OrchestratorError::Write(_))) {
            self.settle().await;
        }
    }

    async fn drift(&mut self) {
        let (cloud, seed) = (self.dice.below(3) as usize, u64::from(self.dice.below(u32::MAX)));
        if let Some(what) = self.house.clouds[cloud].drift(seed) {
            self.say(|| format!("drift: {what}"));
            self.unsure = true;
        }
    }

    async fn kill(&mut self) {
        self.say(|| "killed".to_owned());
        let store = self.house.store.clone();
        // A start reads the store, and a controller that cannot is started again.
        self.memory.set_faults(StoreFaults::default());
        self.house.restart(store, |cloud| cloud).await;
    }

    fn take_in(&mut self) {
        let orchestrator = Arc::clone(&self.house.orchestrator);
        self.model.take_in(|id| orchestrator.job(id).ok().map(|job| job.state));
    }

    /// In the midst of it: what passes was asked for at some time since the last rest.
    fn look(&mut self) {
        if self.unsure {
            return;
        }
        self.model.loose.inventory.resources = self.truths();
        let names: Vec<_> = self.model.loose.inventory.resources.keys().cloned().collect();
        for a in &names {
            for b in names.iter().filter(|b| *b != a) {
                let passes = self.house.passes(a, b);
                assert!(
                    !passes || self.model.loose.is_permitted(a, b),
                    "seed {}: {a} reaches {b}, and nothing permits it",
                    self.seed
                );
            }
        }
    }

    fn truth(&self, name: &ResourceName) -> Option<ResourceState> {
        self.house.clouds.iter().find_map(|cloud| Some(cloud.truth(name)?.0))
    }

    /// The resources that are in the clouds, as far as the model looks at them.
    fn truths(&self) -> BTreeMap<ResourceName, ResourceRecord> {
        let there = (0..RESOURCES).map(name).filter_map(|(name, region)| {
            let network = NetworkName { site: Site::of(&name), region: region.parse().unwrap() };
            let (state, phase) = (Some(self.truth(&name)?), Phase::Ready);
            let (permit, changing) = (BTreeMap::new(), BTreeMap::new());
            Some((name, ResourceRecord { phase, network, attached: false, state, permit, changing }))
        });
        there.collect()
    }

    /// What the orchestrator believes to be stored is stored.
    async fn compare_with_store(&self) {
        let stored = read(&self.house.store).await;
        let state = self.house.orchestrator.state.lock();
        let (known, there) = (&state.intent, &stored.intent);
        assert_eq!(known.resources, there.resources, "seed {}", self.seed);
        assert_eq!(known.rules, there.rules, "seed {}", self.seed);
        assert_eq!(known.tag_rules, there.tag_rules, "seed {}", self.seed);
        assert_eq!(known.links, there.links, "seed {}", self.seed);
        assert_eq!(*state.inventory, *stored.inventory, "seed {}", self.seed);
        assert_eq!(state.revisions, stored.revisions, "seed {}", self.seed);
    }

    async fn settle(&self) {
        for _ in 0..20_000 {
            if self.house.is_at_rest() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let jobs: Vec<_> = self.house.orchestrator.jobs();
        let running: Vec<_> = jobs.iter().filter(|job| job.state == JobState::Running).collect();
        let (plan, troubles) = (self.house.orchestrator.plan().unwrap(), self.house.orchestrator.troubles());
        panic!("seed {}: no rest: {plan}\n{running:?}\n{troubles:?}", self.seed);
    }

    /// Everything comes to rest, and is as the model says.
    async fn rest(&mut self) {
        self.settle().await;
        self.calm();
        self.mend().await;
        // The last changes of tags are taken in, for which nobody waits.
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.take_in();
        self.say(|| "rest".to_owned());
        self.compare_with_store().await;
        let world = &mut self.model.strict;
        world.inventory = Inventory::clone(&self.house.orchestrator.state.lock().inventory);
        let intent = Arc::clone(&self.house.orchestrator.state.lock().intent);
        assert!(
            intent.resources.keys().eq(world.intent.resources.keys()),
            "seed {}: {:?}",
            self.seed,
            intent.resources.keys()
        );
        world.check();
        for a in world.intent.resources.keys() {
            for b in world.intent.resources.keys().filter(|b| *b != a) {
                let permitted = world.is_permitted(a, b);
                assert_eq!(self.house.passes(a, b), permitted, "seed {}: {a} to {b}", self.seed);
            }
        }
        self.check_subscriptions();
        self.model.rest();
        self.unsure = false;
    }

    async fn mend(&self) {
        for _ in 0..10 {
            if self.house.orchestrator.fix().await.unwrap().is_empty() {
                return;
            }
            self.settle().await;
        }
        panic!("seed {}: drift that is not mended: {:?}", self.seed, self.house.orchestrator.check().await);
    }

    /// Each tag is subscribed to by exactly the resources whose rules name it.
    fn check_subscriptions(&self) {
        for tag in TAGS {
            let peer: Member = tag.parse().unwrap();
            let rules = &self.model.strict.intent.rules;
            let naming = rules.values().filter(|rules| rules.values().any(|rule| rule.peers.contains(&peer)));
            let known = self.model.strict.groups.contains_key(tag);
            let wanted = if known { naming.count() } else { 0 };
            assert_eq!(self.house.book.subscribers(tag), wanted, "seed {}: subscribers of {tag}", self.seed);
        }
    }

    /// Everything goes, and nothing is left.
    async fn end(mut self) {
        let intent = self.model.strict.intent.clone();
        let orchestrator = Arc::clone(&self.house.orchestrator);
        for name in intent.resources.keys() {
            orchestrator.delete_resource(name.clone(), false).await.unwrap();
        }
        for (tag, rules) in intent.tag_rules.iter().filter(|(_, rules)| !rules.is_empty()) {
            orchestrator.delete_tag_rules(tag.clone(), rules.keys().cloned().collect(), false).await.unwrap();
        }
        for link in &intent.links {
            orchestrator.disconnect(link.clone(), false).await.unwrap();
        }
        self.settle().await;
        self.model.strict.intent.rules.clear();
        self.check_subscriptions();
        assert!(self.house.is_empty(), "seed {}: something is left in the clouds", self.seed);
        let left: Vec<_> = self.memory.keys();
        let left: Vec<_> = left
            .iter()
            .filter(|key| **key != facts::mark() && !key.as_str().starts_with("orchestrator/job/"))
            .collect();
        assert!(left.is_empty(), "seed {}: something is left in the store: {left:?}", self.seed);
    }
}
