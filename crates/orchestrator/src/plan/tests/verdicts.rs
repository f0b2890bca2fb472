//! What policies leave of permit rules, against a reading of one packet at a time.

use std::{collections::BTreeSet, net::IpAddr};

use model::{Address, Direction, EntryName, Packet, Ports, Protocol, Traffic, policy::output::Action};
use proptest::{collection::vec, prelude::*, sample::select};

use crate::plan::{Draft, Match, Region, Sided, Verdict, Verdicts};

fn addresses(list: &[&str]) -> BTreeSet<Address> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

fn region(peers: &[&str], protocol: Protocol, dst_ports: Ports) -> Region {
    Region { peers: addresses(peers), packets: Match { protocol, src_ports: Ports::Any, dst_ports } }
}

fn verdict(action: Action, regions: Vec<Region>) -> Verdict {
    Verdict { id: "uid.0".into(), source: "policy".into(), action, regions }
}

fn draft(name: &str, region: &Region) -> Draft {
    let Match { protocol, src_ports, dst_ports } = region.packets;
    Draft {
        name: EntryName::own(&name.parse().unwrap()),
        traffic: Traffic { direction: Direction::Inbound, protocol, src_ports, dst_ports },
        targets: region.peers.clone(),
        tags: BTreeSet::new(),
        build: false,
    }
}

fn inbound(side: Sided) -> Verdicts {
    Verdicts { inbound: side, outbound: Sided::default() }
}

fn permits(drafts: &[Draft], peer: IpAddr, packet: &Packet) -> bool {
    let entries = drafts.iter().cloned().filter_map(Draft::entry);
    entries.into_iter().any(|entry| entry.permits(Direction::Inbound, peer, packet))
}

const TCP: fn(u16) -> Packet = |dst_port| Packet { protocol: 6, src_port: 40_000, dst_port };

#[test]
fn rules_that_policies_do_not_touch_stay_as_they_are() {
    let rule = draft("web", &region(&["10.0.0.0/8", "192.0.2.7"], Protocol::TCP, Ports::one(80)));
    let deny = verdict(Action::Drop, vec![region(&["10.0.0.0/8"], Protocol::TCP, Ports::one(81))]);
    let side = Sided { tiers: vec![deny], ..Sided::default() };
    let (decided, failed) = inbound(side).decide(vec![rule.clone()]);
    assert_eq!((decided, failed), (vec![rule], vec![]));
}

#[test]
fn a_denied_corner_is_cut_out_of_a_rule() {
    let rule = draft("web", &region(&["10.0.0.0/30", "192.0.2.7"], Protocol::TCP, Ports::Any));
    let deny = verdict(Action::Drop, vec![region(&["10.0.0.1"], Protocol::TCP, Ports::one(22))]);
    let side = Sided { tiers: vec![deny], ..Sided::default() };
    let (decided, _) = inbound(side).decide(vec![rule]);
    let at = |peer: &str, port| permits(&decided, peer.parse().unwrap(), &TCP(port));
    assert!(!at("10.0.0.1", 22) && at("10.0.0.1", 21) && at("10.0.0.1", 23));
    assert!(at("10.0.0.0", 22) && at("10.0.0.3", 22) && at("192.0.2.7", 22) && !at("10.0.0.4", 22));
    assert!(decided.iter().all(|draft| draft.name.as_str().starts_with("_part.web.")));
}

#[test]
fn a_kubernetes_policy_that_isolates_leaves_only_what_it_permits() {
    let rule = draft("all", &region(&["0.0.0.0/0"], Protocol::Any, Ports::Any));
    let allow = verdict(Action::Allow, vec![region(&["10.0.0.9"], Protocol::TCP, Ports::one(80))]);
    let side = Sided { kubernetes: Some(vec![allow]), ..Sided::default() };
    let (decided, _) = inbound(side).decide(vec![rule.clone()]);
    assert!(permits(&decided, "10.0.0.9".parse().unwrap(), &TCP(80)));
    assert!(!permits(&decided, "10.0.0.9".parse().unwrap(), &TCP(81)));
    assert!(!permits(&decided, "10.0.0.8".parse().unwrap(), &TCP(80)));
    let (isolated, _) = inbound(Sided { kubernetes: Some(vec![]), ..Sided::default() }).decide(vec![rule]);
    assert_eq!(isolated, []);
}

#[test]
fn what_would_be_too_many_pieces_is_closed() {
    let drop = |n: u16| verdict(Action::Drop, vec![region(&["0.0.0.0/0"], Protocol::TCP, Ports::one(n * 2))]);
    let drops = (0..400).map(drop).collect();
    let peers: Vec<String> = (0..600).map(|n| format!("10.0.{}.{}", n / 100, n % 100)).collect();
    let peers: Vec<&str> = peers.iter().map(String::as_str).collect();
    let rule = draft("all", &region(&peers, Protocol::Any, Ports::Any));
    let side = Sided { tiers: drops, ..Sided::default() };
    let (decided, failed) = inbound(side).decide(vec![rule]);
    assert_eq!((decided.len(), failed.len()), (0, 1));
}

/// A packet is decided by the first word on it, as `policy::explain` does.
fn naive(side: &Sided, rules: &[Region], peer: IpAddr, packet: &Packet) -> bool {
    let first = |verdicts: &[Verdict]| {
        let found = verdicts.iter().find(|v| v.regions.iter().any(|region| region.covers(peer, packet)));
        found.map(|verdict| verdict.action)
    };
    match first(&side.tiers) {
        Some(Action::Allow) => return true,
        Some(Action::Drop | Action::Reject) => return false,
        Some(Action::Pass) | None => {}
    }
    if let Some(verdicts) = &side.kubernetes {
        return first(verdicts).is_some();
    }
    match first(&side.baseline) {
        Some(action) => action == Action::Allow,
        None => rules.iter().any(|region| region.covers(peer, packet)),
    }
}

const PEERS: [&str; 9] = [
    "10.0.0.0/30",
    "10.0.0.1",
    "10.0.0.2/31",
    "10.0.0.0/29",
    "0.0.0.0/0",
    "10.0.0.7",
    "2001::/126",
    "2001::2",
    "::/0",
];

fn regions() -> impl Strategy<Value = Region> {
    let ports = || (0u16..8, 0u16..8).prop_map(|(a, b)| Ports::Range { first: a.min(b), last: a.max(b) });
    let ports = move || prop_oneof![Just(Ports::Any), ports()];
    let with_ports = (select(vec![6u8, 17]), ports(), ports()).prop_map(|(number, src_ports, dst_ports)| {
        Match { protocol: Protocol::Number(number), src_ports, dst_ports }
    });
    let packets = prop_oneof![3 => with_ports, 1 => Just(Match::ANY), 1 => select(vec![Protocol::ICMP, Protocol::ICMPV6]).prop_map(Match::protocol)];
    (vec(select(PEERS.to_vec()), 1..3), packets)
        .prop_map(|(peers, packets)| Region { peers: addresses(&peers), packets })
}

/// As `plan::policies` makes them of policies, which know ICMP of either family as two protocols.
fn of_policies() -> impl Strategy<Value = Vec<Region>> {
    vec(regions(), 1..3).prop_map(|regions| regions.into_iter().flat_map(Region::by_family).collect())
}

fn verdict_lists(actions: &'static [Action]) -> impl Strategy<Value = Vec<Verdict>> {
    let one = (select(actions), of_policies()).prop_map(|(action, regions)| verdict(action, regions));
    vec(one, 0..4)
}

fn sides() -> impl Strategy<Value = Sided> {
    let all: &[Action] = &[Action::Allow, Action::Drop, Action::Reject, Action::Pass];
    let kubernetes = prop_oneof![3 => Just(None), 1 => verdict_lists(&[Action::Allow]).prop_map(Some)];
    (verdict_lists(all), kubernetes, verdict_lists(&[Action::Allow, Action::Drop]))
        .prop_map(|(tiers, kubernetes, baseline)| Sided { tiers, kubernetes, baseline })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The list permits a packet exactly when its first word does.
    #[test]
    fn lists_permit_what_policies_and_rules_permit(side in sides(), rules in vec(regions(), 0..4)) {
        let drafts = rules.iter().enumerate().map(|(n, rule)| draft(&format!("r{n}"), rule)).collect();
        let (decided, failed) = inbound(side.clone()).decide(drafts);
        prop_assert_eq!(failed, vec![]);
        let peers = (0..9).map(|n| format!("10.0.0.{n}")).chain((0..5).map(|n| format!("2001::{n}")));
        for peer in peers.map(|peer| peer.parse::<IpAddr>().unwrap()) {
            // ICMP of IPv4 between addresses of IPv6: nobody speaks it, and no entry can name it.
            let spoken = [1, 6, 17, 58].into_iter().filter(|protocol| *protocol != 1 || peer.is_ipv4());
            for protocol in spoken {
                let ports: &[u16] = if protocol == 1 || protocol == 58 { &[0] } else { &[0, 1, 3, 4, 7, 8, 65_535] };
                for (src_port, dst_port) in ports.iter().flat_map(|src| ports.iter().map(move |dst| (*src, *dst))) {
                    let packet = Packet { protocol, src_port, dst_port };
                    prop_assert_eq!(
                        permits(&decided, peer, &packet),
                        naive(&side, &rules, peer, &packet),
                        "{} {:?}", peer, packet
                    );
                }
            }
        }
        let names: BTreeSet<_> = decided.iter().map(|draft| (draft.name.clone(), draft.traffic)).collect();
        prop_assert!(decided.iter().all(|draft| !draft.targets.is_empty()));
        prop_assert!(names.len() <= decided.len());
    }
}
