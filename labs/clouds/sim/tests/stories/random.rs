//! Random stories on all four clouds: resources, rules, tags and public addresses come and go in bursts, clouds fail,
//! somebody deletes things by hand, the controller is killed; and whenever things have come to rest, what the naive model
//! permits is what the wire lets through, and no cloud holds what nobody uses.
//!
//! Between the rests a packet may pass only if something asked for since the last rest permits it.
//!
//! `TRESTLE_STORIES` says how many are told, `TRESTLE_SEED` from which on, `TRESTLE_STORY` which one alone and aloud.
//! Chance is from the seed, time is not: how far a cloud is when the next thing happens is up to the machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cloud_sim::{Faults, wire::Wire};
use model::{Address, Direction, Packet, PermitRule, Ports, Protocol, Segment, Traffic};
use tags::Request;

use super::house::{CLOUDS, House, PING, clusters, description};

/// Stories told where nobody says how many.
const STORIES: u64 = 24;
/// Told at once: a story mostly waits for the clouds' clock.
const AT_ONCE: usize = 12;

/// Each with its region, or a cluster in the first.
const WORLD: [(&str, usize); 15] = [
    ("ns.aws.a", 0),
    ("ns.aws.b", 1),
    ("ns.gcp.c", 0),
    ("ns.gcp.d", 1),
    ("other.gcp.e", 0),
    ("other.aws.f", 0),
    ("ns.azure.g", 0),
    ("ns.azure.h", 1),
    ("other.azure.i", 0),
    ("ns.ibm.j", 0),
    ("ns.ibm.k", 1),
    ("other.ibm.l", 0),
    ("ns.gcp.m", CLUSTER),
    ("ns.azure.n", CLUSTER),
    ("other.ibm.o", CLUSTER),
];
const CLUSTER: usize = usize::MAX;
const TAGS: [&str; 2] = ["t0", "t1"];
const PUBLIC: Ipv4Addr = Ipv4Addr::new(1, 1, 1, 1);
const PACKETS: [Packet; 3] = [
    PING,
    Packet { protocol: 6, src_port: 40_000, dst_port: 443 },
    Packet { protocol: 6, src_port: 40_000, dst_port: 22 },
];

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// Whom a rule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Peer {
    Resource(usize),
    Tag(usize),
    Public,
}

impl Peer {
    fn text(self) -> String {
        match self {
            Self::Resource(number) => WORLD[number].0.to_owned(),
            Self::Tag(number) => TAGS[number].to_owned(),
            Self::Public => PUBLIC.to_string(),
        }
    }
}

/// What a rule lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    Https,
}

impl Kind {
    fn passes(self, packet: &Packet) -> bool {
        self == Self::Any || (packet.protocol, packet.dst_port) == (6, 443)
    }

    fn traffic(self, direction: Direction) -> Traffic {
        let (protocol, ports) = match self {
            Self::Any => (Protocol::Any, Ports::Any),
            Self::Https => (Protocol::TCP, Ports::one(443)),
        };
        Traffic::new(direction, protocol, Ports::Any, ports).unwrap()
    }
}

/// The namespace and the cloud of a resource.
fn site(which: usize) -> &'static str {
    WORLD[which].0.rsplit_once('.').unwrap().0
}

/// A rule's place: on which resource, outbound or not, and whom it names. One place has one rule.
type Place = (usize, bool, Peer);

fn rule_name((_, outbound, peer): Place) -> Segment {
    let direction = if outbound { "out" } else { "in" };
    format!("{direction}-{}", peer.text().replace('.', "-")).parse().unwrap()
}

fn direction(outbound: bool) -> Direction {
    if outbound { Direction::Outbound } else { Direction::Inbound }
}

/// What was asked for, and nothing else.
#[derive(Clone, Debug, Default)]
struct Naive {
    alive: BTreeSet<usize>,
    rules: BTreeMap<Place, Kind>,
    members: BTreeMap<usize, BTreeSet<usize>>,
}

impl Naive {
    fn names(&self, at: usize, outbound: bool, peer: usize, packet: &Packet) -> bool {
        let on = self.rules.iter().filter(|((on, out, _), _)| (*on, *out) == (at, outbound));
        on.filter(|(_, kind)| kind.passes(packet)).any(|((.., named), _)| match named {
            Peer::Resource(number) => *number == peer,
            Peer::Tag(tag) => self.members.get(tag).is_some_and(|members| members.contains(&peer)),
            Peer::Public => false,
        })
    }

    fn permits(&self, from: usize, to: usize, packet: &Packet) -> bool {
        let there = self.alive.contains(&from) && self.alive.contains(&to);
        there && self.names(from, true, to, packet) && self.names(to, false, from, packet)
    }

    fn permits_out(&self, from: usize, packet: &Packet) -> bool {
        self.rules.get(&(from, true, Peer::Public)).is_some_and(|kind| kind.passes(packet))
    }

    /// What is linked by a VPN: each gateway of IBM Cloud with the sites of other clouds that rules on either side name.
    fn ibm_links(&self) -> BTreeSet<(&'static str, &'static str)> {
        let mut found = BTreeSet::new();
        for (at, _, peer) in self.rules.keys() {
            let named: Vec<usize> = match peer {
                Peer::Resource(number) => vec![*number],
                Peer::Tag(tag) => self.members.get(tag).into_iter().flatten().copied().collect(),
                Peer::Public => Vec::new(),
            };
            let both = named.iter().flat_map(|peer| [(*at, *peer), (*peer, *at)]);
            let sites = both.map(|(one, other)| (site(one), site(other)));
            found.extend(sites.filter(|(one, other)| one.ends_with(".ibm") && !other.ends_with(".ibm")));
        }
        found
    }

    fn pairs(&self) -> Vec<(usize, usize)> {
        let from = self.alive.iter();
        from.flat_map(|a| self.alive.iter().filter(move |b| *b != a).map(move |b| (*a, *b))).collect()
    }
}

struct Story {
    seed: u64,
    dice: Dice,
    house: House,
    naive: Naive,
    /// What was permitted at some time since the last rest: from, to, which packet.
    loose: BTreeSet<(usize, usize, usize)>,
    /// Whom rules name that were put since the last rest. A rule whose last peer goes before it was ever in force fails
    /// and is taken back; the stories do not go there.
    fresh: BTreeSet<Peer>,
    /// What was linked with IBM Cloud at some time since the last rest. Its gateways have room for ten tunnels, and a rule
    /// that needs more fails and is taken back; the stories do not go there.
    linked: BTreeSet<(&'static str, &'static str)>,
    /// Somebody else changed the clouds: until the next rest the wire may be anything.
    unsure: bool,
    aloud: bool,
}

impl Story {
    async fn tell(seed: u64, aloud: bool) {
        let house = House::new(&CLOUDS).await;
        let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        let (naive, loose, fresh) = (Naive::default(), BTreeSet::new(), BTreeSet::new());
        let linked = BTreeSet::new();
        let mut story = Self { seed, dice, house, naive, loose, fresh, linked, unsure: false, aloud };
        for _ in 0..3 + story.dice.below(3) {
            story.create().await;
        }
        for _ in 0..2 + story.dice.below(3) {
            story.trouble();
            for _ in 0..1 + story.dice.below(8) {
                story.event().await;
                story.widen();
            }
            story.rest().await;
        }
        story.end().await;
    }

    #[expect(clippy::print_stderr, reason = "somebody looks at a story that went wrong")]
    fn say(&self, text: impl FnOnce() -> String) {
        if self.aloud {
            eprintln!("{}", text());
        }
    }

    /// Chooses what goes wrong from now on; one burst in four is calm.
    fn trouble(&mut self) {
        if self.dice.below(4) == 0 {
            return self.house.sim.set_faults(Faults::default());
        }
        let mut chance = |most: usize| u32::try_from(self.dice.below(most)).unwrap();
        let faults = Faults {
            seed: u64::from(chance(1 << 30)),
            throttle: chance(60),
            before: chance(30),
            lost: chance(30),
            stale: chance(60),
            html: chance(10),
            failed: chance(30),
        };
        self.say(|| format!("{faults:?}"));
        self.house.sim.set_faults(faults);
    }

    async fn event(&mut self) {
        match self.dice.below(100) {
            0..=49 => self.rule().await,
            50..=64 => self.create().await,
            65..=71 => self.delete().await,
            72..=84 => self.member(),
            85..=90 => self.kill().await,
            91..=92 => self.vandalise(),
            _ => tokio::time::sleep(Duration::from_millis(self.dice.below(80) as u64)).await,
        }
    }

    fn some_alive(&mut self) -> Option<usize> {
        let alive: Vec<usize> = self.naive.alive.iter().copied().collect();
        (!alive.is_empty()).then(|| alive[self.dice.below(alive.len())])
    }

    /// Puts a rule, replaces it, or takes it away. Often the other end's too, so that something gets through.
    async fn rule(&mut self) {
        let (Some(at), Some(other)) = (self.some_alive(), self.some_alive()) else { return };
        let outbound = self.dice.below(2) == 0;
        let peer = match self.dice.below(10) {
            0..=5 if at != other => Peer::Resource(other),
            6..=8 => Peer::Tag(self.dice.below(TAGS.len())),
            9 if outbound => Peer::Public,
            _ => return,
        };
        let kind = if self.dice.below(3) == 0 { Kind::Https } else { Kind::Any };
        let place = (at, outbound, peer);
        if self.naive.rules.get(&place) == Some(&kind) {
            return self.take(place).await;
        }
        self.put(place, kind).await;
        if let (Peer::Resource(other), true) = (peer, self.dice.below(4) > 0) {
            self.put((other, !outbound, Peer::Resource(at)), kind).await;
        }
    }

    async fn put(&mut self, place: Place, kind: Kind) {
        let (at, outbound, peer) = place;
        if matches!(peer, Peer::Tag(tag) if self.naive.members.get(&tag).is_none_or(BTreeSet::is_empty)) {
            return;
        }
        let mut then = self.naive.clone();
        then.rules.insert(place, kind);
        if !self.takes(&then) {
            return;
        }
        let peers = [peer.text().parse().unwrap()].into();
        let rule = PermitRule::new(Some(rule_name(place)), kind.traffic(direction(outbound)), peers).unwrap();
        let asked = self.house.orchestrator.put_rules(WORLD[at].0.parse().unwrap(), vec![rule], false).await;
        self.say(|| format!("put {place:?} {kind:?}: {:?}", asked.as_ref().err().map(ToString::to_string)));
        // Refused where a tag or a resource is not there yet; nothing has changed then.
        if asked.is_ok() {
            self.naive.rules.insert(place, kind);
            self.fresh.insert(peer);
        }
    }

    /// Whether the gateways have room for what a change would link; if so, it counts as linked.
    fn takes(&mut self, then: &Naive) -> bool {
        let mut linked = then.ibm_links();
        linked.extend(&self.linked);
        let tunnels = |own: &str| -> usize {
            let peers = linked.iter().filter(|(one, _)| *one == own);
            peers.map(|(_, peer)| if peer.ends_with(".azure") { 2 } else { 4 }).sum()
        };
        let fits = linked.iter().all(|(own, _)| tunnels(own) <= 10);
        if fits {
            self.linked = linked;
        }
        fits
    }

    async fn take(&mut self, place: Place) {
        let names = vec![rule_name(place)];
        let asked =
            self.house.orchestrator.delete_rules(WORLD[place.0].0.parse().unwrap(), names, false).await;
        self.say(|| format!("take {place:?}: {:?}", asked.as_ref().err().map(ToString::to_string)));
        asked.unwrap();
        self.naive.rules.remove(&place);
    }

    async fn create(&mut self) {
        let which = self.dice.below(WORLD.len());
        let (name, region) = WORLD[which];
        if self.naive.alive.contains(&which) || self.is_leaving(name) {
            return;
        }
        self.say(|| format!("create {name}"));
        let cloud = name.split('.').nth(1).unwrap();
        let description = match (region, clusters(cloud)) {
            (CLUSTER, Some([near, _])) => near,
            (CLUSTER, None) => return,
            _ => description(cloud, region),
        };
        self.house.want(name, description).await;
        self.naive.alive.insert(which);
    }

    /// What is going cannot be made again before it is gone.
    fn is_leaving(&self, name: &str) -> bool {
        self.house.orchestrator.resource(&name.parse().unwrap()).is_ok()
    }

    async fn delete(&mut self) {
        let Some(which) = self.some_alive() else { return };
        let named = |peer: &Peer| match peer {
            Peer::Resource(number) => *number == which,
            Peer::Tag(tag) => self.naive.members.get(tag).is_some_and(|members| members.contains(&which)),
            Peer::Public => false,
        };
        if self.fresh.iter().any(named) {
            return;
        }
        self.say(|| format!("delete {}", WORLD[which].0));
        for tag in 0..TAGS.len() {
            self.set_member(tag, which, false);
        }
        self.house.orchestrator.delete_resource(WORLD[which].0.parse().unwrap(), false).await.unwrap();
        self.naive.alive.remove(&which);
        self.naive.rules.retain(|(at, ..), _| *at != which);
    }

    fn member(&mut self) {
        let tag = self.dice.below(TAGS.len());
        let Some(which) = self.some_alive() else { return };
        let present = self.dice.below(3) > 0 || self.fresh.contains(&Peer::Tag(tag));
        self.set_member(tag, which, present);
    }

    fn set_member(&mut self, tag: usize, which: usize, present: bool) {
        let mut then = self.naive.clone();
        then.members.entry(tag).or_default().insert(which);
        if present && !self.takes(&then) {
            return;
        }
        let (name, members) = (TAGS[tag].parse().unwrap(), [WORLD[which].0.parse().unwrap()].into());
        let request = match present {
            true => Request::SetGroup { tag: name, members },
            false => Request::DeleteMembers { tag: name, members },
        };
        let done = self.house.book.request(&request);
        self.say(|| format!("{request:?}: {done:?}"));
        if done.is_ok() {
            let members = self.naive.members.entry(tag).or_default();
            match present {
                true => members.insert(which),
                false => members.remove(&which),
            };
        }
    }

    async fn kill(&mut self) {
        tokio::time::sleep(Duration::from_millis(self.dice.below(60) as u64)).await;
        self.say(|| "killed".to_owned());
        self.house.restart().await;
    }

    fn vandalise(&mut self) {
        self.say(|| "somebody deletes permits and tunnels by hand".to_owned());
        self.house.sim.vandalise();
        self.unsure = true;
    }

    fn widen(&mut self) {
        for (a, b) in self.naive.pairs() {
            for (number, packet) in PACKETS.iter().enumerate() {
                if self.naive.permits(a, b, packet) {
                    self.loose.insert((a, b, number));
                }
            }
        }
    }

    /// Everything comes to rest, and is as the model says.
    async fn rest(&mut self) {
        tokio::select! {
            () = self.house.settle() => {}
            () = self.watch() => {}
        }
        self.house.sim.set_faults(Faults::default());
        // Reads that lag have caught up, and what a plugin has found after a kill has booted.
        self.house.sim.pass(Duration::from_secs(600));
        for _ in 0..5 {
            let drift = self.house.orchestrator.fix().await.unwrap();
            assert!(drift.is_empty() || self.unsure, "seed {}: drift {drift:?}", self.seed);
            self.house.settle().await;
            if drift.is_empty() {
                break;
            }
        }
        assert_eq!(self.house.orchestrator.check().await.unwrap(), vec![], "seed {}: not mended", self.seed);
        self.say(|| "rest".to_owned());
        self.compare();
        self.unsure = false;
        self.loose.clear();
        self.fresh.clear();
        self.linked = self.naive.ibm_links();
        self.widen();
    }

    fn compare(&self) {
        let wire = self.house.sim.wire();
        for (a, b) in self.naive.pairs() {
            for (from, to) in ways(&self.hosts(&wire, a), &self.hosts(&wire, b)) {
                for packet in &PACKETS {
                    let permitted = self.naive.permits(a, b, packet);
                    if wire.reaches(from, to, packet) != permitted {
                        let (names, why) = ([WORLD[a].0, WORLD[b].0], wire.explain(from, to, packet));
                        panic!("seed {}: {names:?} permitted {permitted}, {packet:?}: {why}", self.seed);
                    }
                }
            }
        }
        for at in &self.naive.alive {
            let hosts = self.hosts(&wire, *at);
            assert!(!hosts.is_empty(), "seed {}: {} was made", self.seed, WORLD[*at].0);
            for (host, packet) in hosts.iter().flat_map(|host| PACKETS.iter().map(move |one| (*host, one))) {
                let passes = wire.reaches_public(host, PUBLIC, packet);
                let permitted = self.naive.permits_out(*at, packet);
                assert_eq!(passes, permitted, "seed {}: {} to {PUBLIC}", self.seed, WORLD[*at].0);
            }
        }
    }

    /// The addresses on the wire of a resource that was made.
    fn hosts(&self, wire: &Wire, which: usize) -> Vec<Ipv4Addr> {
        let found = self.house.orchestrator.resource(&WORLD[which].0.parse().unwrap()).ok();
        let Some(address) = found.and_then(|view| view.ip) else { return Vec::new() };
        let address: Address = address.parse().unwrap();
        let hosts = wire.hosts.iter().filter_map(|host| host.address);
        hosts.filter(|host| address.net().contains(&IpAddr::V4(*host))).collect()
    }

    /// In the midst of it: what passes was asked for at some time since the last rest. Does not end.
    async fn watch(&self) {
        loop {
            let wire = self.house.sim.wire();
            let known: Vec<_> = (0..WORLD.len())
                .flat_map(|which| self.hosts(&wire, which).into_iter().map(move |host| (which, host)))
                .collect();
            for (a, from) in known.iter().filter(|_| !self.unsure) {
                for (b, to) in known.iter().filter(|(b, to)| b != a && to != from) {
                    for (number, packet) in PACKETS.iter().enumerate() {
                        let passes = wire.reaches(*from, *to, packet);
                        let names = [WORLD[*a].0, WORLD[*b].0];
                        let was = self.loose.contains(&(*a, *b, number));
                        assert!(
                            !passes || was,
                            "seed {}: {names:?} {packet:?} is permitted by nothing",
                            self.seed
                        );
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Everything goes, and nothing is left.
    async fn end(self) {
        for which in &self.naive.alive {
            self.house.orchestrator.delete_resource(WORLD[*which].0.parse().unwrap(), false).await.unwrap();
        }
        self.house.settle().await;
        assert_eq!(self.house.sim.left(), Vec::<String>::new(), "seed {}", self.seed);
        assert_eq!(self.house.sim.defects(), Vec::<String>::new(), "seed {}", self.seed);
    }
}

fn ways(from: &[Ipv4Addr], to: &[Ipv4Addr]) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to))).collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_stories_end_as_the_naive_model_says() {
    if let Some(seed) = number("TRESTLE_STORY") {
        return Story::tell(seed, true).await;
    }
    let (first, count) = (number("TRESTLE_SEED").unwrap_or(1), number("TRESTLE_STORIES").unwrap_or(STORIES));
    let next = Arc::new(AtomicU64::new(first));
    let mut tellers = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let next = Arc::clone(&next);
        tellers.spawn(async move {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + count {
                    return;
                }
                if let Err(panic) = tokio::spawn(Story::tell(seed, false)).await {
                    eprintln!("the story of TRESTLE_STORY={seed} ends badly");
                    next.store(first + count, Ordering::Relaxed);
                    std::panic::resume_unwind(panic.into_panic());
                }
            }
        });
    }
    while let Some(told) = tellers.join_next().await {
        told.unwrap();
    }
    eprintln!("{count} stories told, from seed {first} on");
}
