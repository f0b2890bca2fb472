//! Bad luck: what runs is killed or halted, and comes back; several at once, at random.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

use super::{
    process::Process,
    site::{SIZE, Site, client_url},
    world::World,
};

/// How long the store may be without a majority.
const WITHOUT_QUORUM: Duration = Duration::from_secs(3);
/// As many things ail at once.
const AT_ONCE: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Controller(usize),
    Member(usize),
    Agent(usize),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Controller(_) => "controller",
            Self::Member(_) => "member of etcd",
            Self::Agent(_) => "agent with Pods",
        })
    }
}

struct Ailment {
    target: Target,
    /// It is there and does nothing; otherwise it is gone.
    halted: bool,
    until: Instant,
}

pub struct Luck<'a> {
    world: &'a mut World,
    site: &'a mut Site,
    random: fastrand::Rng,
    ailments: Vec<Ailment>,
    /// How often what happened.
    tally: BTreeMap<String, usize>,
}

impl<'a> Luck<'a> {
    pub fn new(world: &'a mut World, site: &'a mut Site, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { world, site, random, ailments: Vec::new(), tally: BTreeMap::new() }
    }

    /// Plays until then, and leaves everything running; how often what happened.
    pub fn play(mut self, until: Instant) -> BTreeMap<String, usize> {
        while Instant::now() < until {
            self.heal(Instant::now());
            self.start_those_that_ended();
            if self.ailments.len() < AT_ONCE && self.random.u8(..3) == 0 {
                self.happen();
            }
            std::thread::sleep(Duration::from_millis(self.random.u64(50..400)));
        }
        self.ailments.iter_mut().for_each(|ailment| ailment.until = until);
        self.heal(until);
        self.tally
    }

    fn happen(&mut self) {
        let target = match self.random.u8(..10) {
            0..4 => Target::Controller(self.random.usize(..SIZE)),
            4..7 => Target::Member(self.random.usize(..SIZE)),
            7..9 => Target::Agent(self.random.usize(..self.world.hosts.len())),
            _ => return self.compact(),
        };
        if self.ailments.iter().any(|ailment| ailment.target == target) {
            return;
        }
        let halted = self.random.u8(..3) == 0;
        let mut until = Instant::now() + Duration::from_millis(self.random.u64(100..9_000));
        let is_member = |ailment: &Ailment| matches!(ailment.target, Target::Member(_));
        if matches!(target, Target::Member(_)) && self.ailments.iter().any(is_member) {
            // No majority is left, which may be so for a moment.
            let soon = Instant::now() + WITHOUT_QUORUM;
            until = until.min(soon);
            let others = self.ailments.iter_mut().filter(|ailment| is_member(ailment));
            others.for_each(|ailment| ailment.until = ailment.until.min(soon));
            self.note("etcd without a majority".to_owned());
        }
        self.note(format!("{target} {}", if halted { "halted" } else { "killed" }));
        match (halted, target) {
            (true, _) => self.signal(target, "STOP"),
            (false, Target::Agent(index)) => self.world.kill_agent(index),
            (false, _) => self.process(target).kill(),
        }
        self.ailments.push(Ailment { target, halted, until });
    }

    /// Those whose time has come.
    fn heal(&mut self, now: Instant) {
        let ailing = std::mem::take(&mut self.ailments);
        for ailment in ailing {
            if ailment.until > now {
                self.ailments.push(ailment);
                continue;
            }
            match (ailment.halted, ailment.target) {
                (true, target) => self.signal(target, "CONT"),
                (false, Target::Agent(index)) => self.world.start_agent(index),
                (false, target) => self.process(target).start(),
            }
        }
    }

    /// As a service manager does. A controller that finds no store at its start ends and says so.
    fn start_those_that_ended(&mut self) {
        for index in 0..SIZE {
            for target in [Target::Controller(index), Target::Member(index)] {
                let process = self.process(target);
                if process.ended() {
                    let tail = process.tail(4);
                    process.start();
                    eprintln!("{} ended by itself:\n{tail}", self.process(target).name);
                    self.note(format!("{target} ended by itself"));
                }
            }
        }
    }

    /// The store forgets its history: whoever is behind has to start over.
    fn compact(&mut self) {
        let member = self.random.usize(..SIZE);
        let script = format!(
            "at=$(curl -sS -m 2 -d '{{}}' {url}/v3/maintenance/status | grep -o '\"revision\":\"[0-9]*\"' | tr -dc 0-9)
             curl -sS -m 2 -d \"{{\\\"revision\\\": \\\"$at\\\"}}\" {url}/v3/kv/compaction | grep -q revision",
            url = client_url(member),
        );
        let done = self.world.fabric.command("sh").args(["-ec", &script]).output().unwrap();
        if done.status.success() {
            self.note("etcd compacted".to_owned());
        }
    }

    fn process(&mut self, target: Target) -> &mut Process {
        match target {
            Target::Controller(index) => &mut self.site.controllers[index],
            Target::Member(index) => &mut self.site.members[index],
            Target::Agent(_) => unreachable!("agents are the world's"),
        }
    }

    fn signal(&mut self, target: Target, signal: &str) {
        match target {
            Target::Agent(index) => self.world.signal_agent(index, signal),
            _ => self.process(target).signal(signal),
        }
    }

    fn note(&mut self, what: String) {
        *self.tally.entry(what).or_default() += 1;
    }
}
