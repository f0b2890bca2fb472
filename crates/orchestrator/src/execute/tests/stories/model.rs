//! The naive model of a story: what was asked for, and by which job, so that what a job takes back is known.

use std::collections::BTreeMap;

use model::{LinkName, Member, PermitRule, ResourceName, Segment, TagName};

use crate::{execute::JobState, plan::tests::world::World};

/// What a job put.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Resource(ResourceName),
    Rule(ResourceName, Segment),
    TagRule(TagName, Segment),
    Link(LinkName),
}

/// How it was, for what can be put back: a rule, or that it was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Was {
    Absent,
    There,
    Rule(PermitRule),
}

struct Put {
    what: What,
    before: Was,
    running: bool,
}

pub struct Model {
    /// As asked for.
    pub strict: World,
    /// With everything that was asked for since the last rest, although it was taken back.
    pub loose: World,
    puts: BTreeMap<String, Put>,
    /// Who put it last.
    last: BTreeMap<What, String>,
}

impl Model {
    pub fn new(clouds: &[&str]) -> Self {
        Self {
            strict: World::new(clouds),
            loose: World::new(clouds),
            puts: BTreeMap::new(),
            last: BTreeMap::new(),
        }
    }

    fn now(&self, what: &What) -> Was {
        let intent = &self.strict.intent;
        let rule = |rule: Option<&PermitRule>| rule.map_or(Was::Absent, |rule| Was::Rule(rule.clone()));
        let there = |there| if there { Was::There } else { Was::Absent };
        match what {
            What::Resource(name) => there(intent.resources.contains_key(name)),
            What::Link(name) => there(intent.links.contains(name)),
            What::Rule(on, name) => rule(intent.rules.get(on).and_then(|rules| rules.get(name))),
            What::TagRule(on, name) => rule(intent.tag_rules.get(on).and_then(|rules| rules.get(name))),
        }
    }

    /// What comes back if a put is taken back: what a running job has put was never granted.
    pub fn before(&self, what: &What) -> Was {
        match self.last.get(what).and_then(|id| self.puts.get(id)) {
            Some(put) if put.running => put.before.clone(),
            _ => self.now(what),
        }
    }

    pub fn put(&mut self, id: String, what: What, before: Was, region: &str, rule: Option<PermitRule>) {
        let value = rule.map_or(Was::There, Was::Rule);
        self.set(&what, value, region);
        self.last.insert(what.clone(), id.clone());
        self.puts.insert(id, Put { what, before, running: true });
    }

    /// Asked for without a job that could take it back, or taken away.
    pub fn settle(&mut self, what: &What, value: Was, region: &str) {
        self.set(what, value, region);
        self.last.remove(what);
        if let What::Resource(gone) = what {
            // Its rules went with it, and nothing brings them back.
            self.last.retain(|what, _| !matches!(what, What::Rule(on, _) if on == gone));
        }
    }

    fn set(&mut self, what: &What, value: Was, region: &str) {
        for (world, keeps) in [(&mut self.strict, false), (&mut self.loose, true)] {
            let gone = value == Was::Absent;
            if gone && keeps {
                continue;
            }
            let intent = &mut world.intent;
            match (what, &value) {
                (What::Resource(name), Was::Absent) => world.unwant(&name.to_string()),
                (What::Resource(name), _) => world.want(&name.to_string(), region),
                (What::Link(name), Was::Absent) => drop(intent.links.remove(name)),
                (What::Link(name), _) => drop(intent.links.insert(name.clone())),
                (What::Rule(on, name), Was::Rule(rule)) => {
                    let name = loose_name(name, rule, keeps);
                    intent.rules.entry(on.clone()).or_default().insert(name, rule.clone());
                }
                (What::Rule(on, name), _) => {
                    intent.rules.entry(on.clone()).or_default().remove(name);
                }
                (What::TagRule(on, name), Was::Rule(rule)) => {
                    let name = loose_name(name, rule, keeps);
                    intent.tag_rules.entry(on.clone()).or_default().insert(name, rule.clone());
                }
                (What::TagRule(on, name), _) => {
                    intent.tag_rules.entry(on.clone()).or_default().remove(name);
                }
            }
        }
    }

    pub fn member(&mut self, tag: &TagName, member: Member, present: bool) {
        if present {
            self.loose.groups.entry(tag.clone()).or_default().insert(member.clone());
            self.strict.groups.entry(tag.clone()).or_default().insert(member);
        } else {
            self.strict.groups.entry(tag.clone()).or_default().remove(&member);
        }
    }

    /// Takes in how jobs have ended.
    pub fn take_in(&mut self, state_of: impl Fn(&str) -> Option<JobState>) {
        let ended: Vec<(String, JobState)> = self
            .puts
            .iter()
            .filter(|(_, put)| put.running)
            .filter_map(|(id, _)| Some((id.clone(), state_of(id)?)))
            .filter(|(_, state)| *state != JobState::Running)
            .collect();
        for (id, state) in ended {
            let put = self.puts.get_mut(&id).expect("it was just listed");
            put.running = false;
            let (what, before) = (put.what.clone(), put.before.clone());
            if state != JobState::Done && self.last.get(&what) == Some(&id) {
                self.settle(&what, before, "");
            }
        }
    }

    /// Things are at rest: what was taken back is forgotten.
    pub fn rest(&mut self) {
        self.loose.intent = self.strict.intent.clone();
        self.loose.groups = self.strict.groups.clone();
        self.puts.retain(|_, put| put.running);
    }
}

/// In the loose world a rule that is replaced stays, beside what replaced it.
fn loose_name(name: &Segment, rule: &PermitRule, keeps: bool) -> Segment {
    if !keeps {
        return name.clone();
    }
    let peers: Vec<String> =
        rule.peers.iter().map(|peer| peer.to_string().replace(['.', '/'], "-")).collect();
    format!("{name}-{}-{}", rule.traffic.direction, peers.join("-")).parse().expect("it is short")
}
