//! Random stories: wishes come and go, steps fail, and in the end the wire is what the rules say.

use model::{Direction, Member};
use proptest::prelude::*;

use super::world::{World, resource, rule};

const CLOUDS: [&str; 3] = ["azure", "gcp", "ibm"];
const TAGS: [&str; 4] = ["t0", "t1", "t2", "t3"];

#[derive(Clone, Debug)]
enum Wish {
    Resource { which: usize, present: bool },
    Rule { on: usize, peer: Peer, inbound: bool, present: bool },
    TagRule { tag: usize, peer: Peer, inbound: bool, present: bool },
    Member { tag: usize, member: Peer, present: bool },
}

#[derive(Clone, Debug)]
enum Peer {
    Resource(usize),
    Tag(usize),
    Wide,
}

/// Twelve resources over three clouds, two namespaces and two regions.
fn name(which: usize) -> (String, &'static str) {
    let namespace = if which.is_multiple_of(2) { "a" } else { "b" };
    let region = if which.is_multiple_of(3) { "r1" } else { "r2" };
    (format!("{namespace}.{}.vm{which}", CLOUDS[which % 3]), region)
}

fn peer() -> impl Strategy<Value = Peer> {
    prop_oneof![6 => (0..12usize).prop_map(Peer::Resource), 4 => (0..4usize).prop_map(Peer::Tag), 1 => Just(Peer::Wide)]
}

fn wish() -> impl Strategy<Value = Wish> {
    let often = prop::bool::weighted(0.7);
    prop_oneof![
        3 => (0..12usize, often).prop_map(|(which, present)| Wish::Resource { which, present }),
        4 => (0..12usize, peer(), any::<bool>(), often)
            .prop_map(|(on, peer, inbound, present)| Wish::Rule { on, peer, inbound, present }),
        1 => (0..4usize, peer(), any::<bool>(), often)
            .prop_map(|(tag, peer, inbound, present)| Wish::TagRule { tag, peer, inbound, present }),
        3 => (0..4usize, peer(), often).prop_map(|(tag, member, present)| Wish::Member { tag, member, present }),
    ]
}

fn text(peer: &Peer) -> String {
    match peer {
        Peer::Resource(which) => name(*which).0,
        Peer::Tag(tag) => TAGS[*tag].to_owned(),
        Peer::Wide => "10.0.0.0/8".to_owned(),
    }
}

fn follow(world: &mut World, wish: &Wish) {
    match wish {
        Wish::Resource { which, present } => {
            let (name, region) = name(*which);
            if *present { world.want(&name, region) } else { world.unwant(&name) }
        }
        Wish::Rule { on, peer, inbound, present } => {
            let on = resource(&name(*on).0);
            if !world.intent.resources.contains_key(&on) {
                return;
            }
            let rule = named(peer, *inbound);
            let rules = world.intent.rules.entry(on).or_default();
            if *present {
                drop(rules.insert(rule.name.clone(), rule))
            } else {
                drop(rules.remove(&rule.name))
            }
        }
        Wish::TagRule { tag, peer, inbound, present } => {
            let rule = named(peer, *inbound);
            let rules = world.intent.tag_rules.entry(TAGS[*tag].parse().unwrap()).or_default();
            if *present {
                drop(rules.insert(rule.name.clone(), rule))
            } else {
                drop(rules.remove(&rule.name))
            }
        }
        Wish::Member { tag, member, present } => {
            // Only upwards, so that there are no cycles; the tag service refuses them.
            if matches!(member, Peer::Tag(child) if child >= tag) {
                return;
            }
            let member: Member = text(member).parse().unwrap();
            let members = world.groups.entry(TAGS[*tag].parse().unwrap()).or_default();
            if *present {
                members.insert(member)
            } else {
                members.remove(&member)
            };
        }
    }
}

fn named(peer: &Peer, inbound: bool) -> model::PermitRule {
    let direction = if inbound { Direction::Inbound } else { Direction::Outbound };
    let name = format!("{direction}-{}", text(peer).replace(['.', '/'], "-"));
    rule(&name, direction, &[&text(peer)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn what_is_permitted_is_reachable_and_nothing_else_is(
        wishes in prop::collection::vec((wish(), any::<u64>()), 1..40),
    ) {
        let mut world = World::new(&CLOUDS);
        for (wish, dice) in &wishes {
            follow(&mut world, wish);
            // In the first rounds some steps fail; what waits for them is not done.
            world.converge(|round, step| round < 3 && dice.rotate_left((step * 7 + round) as u32) & 3 == 0);
            world.check();
        }
        let names: Vec<_> = world.intent.resources.keys().cloned().collect();
        for name in names {
            world.unwant(&name.to_string());
        }
        world.settle();
        prop_assert!(world.inventory.is_empty());
    }
}
