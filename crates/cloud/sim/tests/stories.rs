//! The stories a user plays, on every cloud and every pair of them, with reachability asked of the simulated wire.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "stories/attach.rs"]
mod attach;
#[path = "stories/faults.rs"]
mod faults;
#[path = "stories/house.rs"]
mod house;
#[path = "stories/resume.rs"]
mod resume;
#[path = "stories/sites.rs"]
mod sites;

use std::time::Duration;

use cloud_sim::Faults;
use house::{CLOUDS, House, PING, both, rule};
use model::Direction;

/// E1: two VMs do not reach each other, then they do, then they do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e1_quickstart_on_every_cloud() {
    for cloud in CLOUDS {
        let house = House::new(&[cloud]).await;
        let [a, b] = ["a", "b"].map(|name| format!("ns.{cloud}.{name}"));
        tokio::join!(house.create(&a, 0), house.create(&b, 0));
        assert!(!house.joined(&a, &b), "{cloud}: before");
        house.put(&a, both(&b)).await;
        assert!(!house.joined(&a, &b), "{cloud}: one end is not enough");
        house.put(&b, both(&a)).await;
        assert!(house.joined(&a, &b), "{cloud}: permitted");
        house.unjoin(&a, &b).await;
        assert!(!house.joined(&a, &b), "{cloud}: after");
        house.end(&[&a, &b]).await;
    }
}

/// E2: two regions. E3: two namespaces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e2_e3_regions_and_namespaces_on_every_cloud() {
    for cloud in CLOUDS {
        let house = House::new(&[cloud]).await;
        let [a, b, c] = [format!("ns.{cloud}.a"), format!("ns.{cloud}.b"), format!("other.{cloud}.c")];
        tokio::join!(house.create(&a, 0), house.create(&b, 1), house.create(&c, 0));
        assert!(!house.joined(&a, &b) && !house.joined(&a, &c) && !house.joined(&b, &c), "{cloud}");
        house.join(&a, &b).await;
        assert!(house.joined(&a, &b) && !house.joined(&a, &c), "{cloud}: regions");
        house.join(&a, &c).await;
        assert!(house.joined(&a, &b) && house.joined(&a, &c) && !house.joined(&b, &c), "{cloud}: namespaces");
        house.unjoin(&a, &c).await;
        assert!(house.joined(&a, &b) && !house.joined(&a, &c), "{cloud}: after");
        house.end(&[&a, &b, &c]).await;
    }
}

fn pairs() -> Vec<(&'static str, &'static str)> {
    let pairs =
        CLOUDS.iter().enumerate().flat_map(|(place, a)| CLOUDS[place + 1..].iter().map(move |b| (*a, *b)));
    pairs.collect()
}

/// E4: two clouds through a VPN; a second region then uses the same gateway, and the first link is not disturbed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e4_every_pair_of_clouds() {
    for (one, two) in pairs() {
        let house = House::new(&[one, two]).await;
        let [a, b, c] = [format!("ns.{one}.a"), format!("ns.{two}.b"), format!("ns.{one}.c")];
        tokio::join!(house.create(&a, 0), house.create(&b, 0));
        assert!(!house.joined(&a, &b), "{one} {two}: before");
        house.join(&a, &b).await;
        house.settle().await;
        assert!(house.joined(&a, &b), "{one} {two}: linked");
        let link = house.orchestrator.links().await.remove(0);
        for end in link.ends.iter().flatten() {
            assert_eq!(
                (end.tunnels_up, end.bgp_established),
                (end.tunnels, end.tunnels),
                "{one} {two}: {end:?}"
            );
            assert!(end.tunnels >= 2);
        }
        house.create(&c, 1).await;
        house.join(&c, &b).await;
        house.settle().await;
        assert!(
            house.joined(&c, &b) && house.joined(&a, &b) && !house.joined(&a, &c),
            "{one} {two}: second region"
        );
        assert_eq!(house.orchestrator.check().await.unwrap(), vec![], "{one} {two}: no drift");
        house.unjoin(&a, &b).await;
        house.settle().await;
        assert!(house.joined(&c, &b) && !house.joined(&a, &b), "{one} {two}: the other stays");
        house.end(&[&a, &b, &c]).await;
    }
}

/// A resource in a zone of its own uses the link that is there, and the one that comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_serves_every_zone() {
    let house = House::new(&["aws", "gcp"]).await;
    let [a, b, c] = ["ns.aws.a", "ns.gcp.b", "ns.aws.c"];
    tokio::join!(house.create(a, 0), house.create(b, 0));
    house.join(a, b).await;
    house.settle().await;
    assert!(house.joined(a, b));
    house.create(c, 2).await;
    house.join(c, b).await;
    house.join(a, c).await;
    house.settle().await;
    assert!(house.joined(c, b) && house.joined(a, b) && house.joined(a, c));
    house.unjoin(a, b).await;
    house.unjoin(c, b).await;
    house.settle().await;
    assert!(!house.joined(c, b) && house.joined(a, c));
    house.join(c, b).await;
    house.settle().await;
    assert!(house.joined(c, b), "a gateway that is made later");
    house.end(&[a, b, c]).await;
}

/// E5: a rule on a tag follows the tag. Here with public addresses, so NAT comes and goes too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e5_tags_on_every_cloud() {
    for cloud in CLOUDS {
        let house = House::new(&[cloud]).await;
        let a = format!("ns.{cloud}.a");
        house.create(&a, 0).await;
        house.book.group("iptag", &["1.1.1.1"]);
        house.book.group("parenttag", &["iptag"]);
        let out =
            |to: [u8; 4]| house.sim.reaches_public(house.address(&a), std::net::IpAddr::from(to), &PING);
        assert!(!out([1, 1, 1, 1]), "{cloud}: before");
        house.put(&a, vec![rule("out", Direction::Outbound, "parenttag")]).await;
        house.settle().await;
        assert!(out([1, 1, 1, 1]) && !out([2, 2, 2, 2]), "{cloud}: one");
        house.book.group("iptag2", &["2.2.2.2"]);
        house.book.group("parenttag", &["iptag", "iptag2"]);
        house.settle().await;
        assert_eq!(
            [out([1, 1, 1, 1]), out([2, 2, 2, 2])],
            [true, true],
            "{cloud}: both, {:?} {:?}",
            house.sim.take_calls(),
            house.orchestrator.resources()
        );
        house.end(&[&a]).await;
    }
}

/// Somebody opens a VM by hand, or deletes what was made: the check says so, the fix mends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_seen_and_mended() {
    for (one, two) in [("aws", "gcp"), ("azure", "gcp"), ("gcp", "ibm")] {
        let house = House::new(&[one, two]).await;
        let [a, b] = [format!("ns.{one}.a"), format!("ns.{two}.b")];
        let (a, b) = (a.as_str(), b.as_str());
        tokio::join!(house.create(a, 0), house.create(b, 0));
        house.join(a, b).await;
        house.settle().await;
        assert!(house.joined(a, b));
        house.sim.vandalise();
        assert!(!house.joined(a, b));
        let seen = house.orchestrator.check().await.unwrap();
        assert!(!seen.is_empty());
        house.orchestrator.fix().await.unwrap();
        house.settle().await;
        assert!(house.joined(a, b), "{seen:?}");
        assert_eq!(house.orchestrator.check().await.unwrap(), vec![]);
        house.end(&[a, b]).await;
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

const WORLD: [(&str, usize); 12] = [
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
];

/// Random joining and parting under faults and restarts: in the end what is permitted is reachable, nothing else is,
/// and nothing is left over.
async fn random_story(seed: u64) {
    let mut dice = Dice(seed);
    let mut house = House::new(&CLOUDS).await;
    house.sim.set_faults(Faults { seed, throttle: 30, before: 15, lost: 15, stale: 30, html: 5, failed: 15 });
    futures::future::join_all(WORLD.iter().map(|(name, region)| house.want(name, *region))).await;
    if dice.below(2) == 0 {
        tokio::time::sleep(Duration::from_millis(dice.below(40) as u64)).await;
        house.restart().await;
    }
    house.settle().await;
    let mut permitted = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let (a, b) = (dice.below(WORLD.len()), dice.below(WORLD.len()));
        if a == b {
            continue;
        }
        let pair = (a.min(b), a.max(b));
        let (one, other) = (WORLD[pair.0].0, WORLD[pair.1].0);
        // Asked for, not waited for: the controller may be killed in the middle.
        for (at, peer) in [(one, other), (other, one)] {
            let asked = if permitted.contains(&pair) {
                let names = both(peer).into_iter().map(|rule| rule.name).collect();
                house.orchestrator.delete_rules(at.parse().unwrap(), names, false).await
            } else {
                house.orchestrator.put_rules(at.parse().unwrap(), both(peer), false).await
            };
            asked.unwrap();
        }
        if !permitted.remove(&pair) {
            permitted.insert(pair);
        }
        if dice.below(3) == 0 {
            tokio::time::sleep(Duration::from_millis(dice.below(60) as u64)).await;
            house.restart().await;
        }
        house.settle().await;
        for (a, (one, _)) in WORLD.iter().enumerate() {
            for (b, (other, _)) in WORLD.iter().enumerate().skip(a + 1) {
                if house.joined(one, other) != permitted.contains(&(a, b)) {
                    let why = house.sim.explain(house.address(one), house.address(other), &PING);
                    panic!("seed {seed}: {one} and {other}: {why}");
                }
            }
        }
    }
    for (name, _) in WORLD {
        house.orchestrator.delete_resource(name.parse().unwrap(), false).await.unwrap();
    }
    house.settle().await;
    assert_eq!(house.sim.left(), Vec::<String>::new(), "seed {seed}");
    assert_eq!(house.sim.defects(), Vec::<String>::new(), "seed {seed}");
}

/// `TRESTLE_STORIES=1000 cargo test -p cloud-sim --test stories random` plays more of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_stories_end_as_permitted() {
    let count = std::env::var("TRESTLE_STORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    for seed in 1..=count {
        random_story(seed).await;
    }
}
