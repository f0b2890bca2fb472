//! Surveys against `explain`, packet by packet; and their counts against their pairs.

use std::{collections::BTreeMap, sync::Arc};

use model::{
    Address, Direction, EntryName, Open, PermitEntry, Ports, ProtocolClass, Traffic, permit_list,
    policy::output::{Member, Protocol},
};
use policy::{
    Engine,
    explain::{Endpoint, Query},
    survey::{Listed, Party},
};
use testkit::policies::random::Random;

const PAIRS: usize = 25;

fn endpoint(member: &Member) -> Endpoint {
    let (namespace, name) = (member.namespace.to_string(), member.name.to_string());
    Endpoint::Workload { kind: member.kind, namespace, name }
}

/// A packet of each class, with its place in what is open.
fn packets() -> Vec<(ProtocolClass, u16, u16, Query)> {
    let nobody = || Endpoint::Address([0, 0, 0, 0].into());
    let query = |protocol, port, source_port, icmp| Query {
        source: nobody(),
        destination: nobody(),
        protocol,
        port,
        source_port,
        icmp,
        family: None,
    };
    let mut packets = Vec::new();
    for (class, protocol) in [
        (ProtocolClass::Tcp, Protocol::Tcp),
        (ProtocolClass::Udp, Protocol::Udp),
        (ProtocolClass::Sctp, Protocol::Sctp),
    ] {
        for port in [1, 53, 80, 81, 85, 90, 1500, 65535] {
            for source in [1, 100, 1024, 40_000] {
                packets.push((class, port, source, query(Some(protocol), Some(port), Some(source), None)));
            }
        }
    }
    for (kind, code) in [(8, 0), (0, 0), (3, 4), (255, 255)] {
        let query = query(Some(Protocol::Icmp), None, None, Some((kind, code)));
        packets.push((ProtocolClass::Icmp, kind.into(), code.into(), query));
    }
    packets.push((ProtocolClass::Other, 2, 0, query(Some(Protocol::Igmp), None, None, None)));
    packets.push((ProtocolClass::Other, 47, 0, query(None, None, None, None)));
    packets
}

pub fn agree(seed: u64, engine: &Engine, members: &[Arc<Member>], random: &mut Random) {
    let parties: Vec<Party> = members.iter().map(|member| party(member, random)).collect();
    let survey = engine.survey(&parties);
    let packets = packets();
    for _ in 0..PAIRS {
        let (a, b) = (random.below(members.len()), random.below(members.len()));
        let open = survey.between(a, b).expect("both ends are known");
        for (class, major, minor, packet) in &packets {
            let (source, destination) = (parties[a].endpoint.clone(), parties[b].endpoint.clone());
            let query = Query { source, destination, ..packet.clone() };
            let explained = engine.explain(&query).expect("both ends exist");
            let peers = [explained.destination.address, explained.source.address];
            let listed = a == b
                || [(a, Direction::Outbound), (b, Direction::Inbound)].iter().zip(peers).all(
                    |((end, direction), peer)| {
                        let Some(resource) = &parties[*end].resource else { return true };
                        let open = peer.map_or_else(Open::none, |peer| {
                            permit_list::permitted(&*resource.list, *direction, peer.into())
                        });
                        open.of(*class).contains(*major, *minor)
                    },
                );
            let told = open.of(*class).contains(*major, *minor);
            assert_eq!(
                told,
                explained.allowed && listed,
                "seed {seed}: {query:?}\n{open}\n{:?} {:?}\n{explained:#?}",
                parties[a],
                parties[b]
            );
        }
    }
    count(seed, &survey, members.len(), random);
}

/// Some ends have a permit list beside policies.
fn party(member: &Member, random: &mut Random) -> Party {
    let address = member.addresses.as_slice().first().filter(|_| random.below(4) == 0);
    let resource = address.map(|address| {
        let entry = |at: usize, random: &mut Random| {
            let direction = [Direction::Inbound, Direction::Outbound][random.below(2)];
            let protocol = [
                model::Protocol::Any,
                model::Protocol::TCP,
                model::Protocol::ICMP,
                model::Protocol::ICMPV6,
                model::Protocol::UDP,
            ][random.below(5)];
            let (src, dst) = match protocol.has_ports() {
                true => (
                    [Ports::Any, Ports::Range { first: 1000, last: 50_000 }][random.below(2)],
                    [Ports::Any, Ports::one(80), Ports::Range { first: 50, last: 90 }][random.below(3)],
                ),
                false => (Ports::Any, Ports::Any),
            };
            let target: Address = ["0.0.0.0/0", "::/0", "10.0.0.0/16", "10.0.0.0/30"][random.below(4)]
                .parse()
                .expect("a network");
            let traffic = Traffic::new(direction, protocol, src, dst).expect("ports where there are any");
            let name = EntryName::reported(format!("e{at}"));
            PermitEntry::new(name, traffic, [target].into(), Default::default()).expect("a target")
        };
        let many = random.below(5);
        let list = (0..many).map(|at| entry(at, random)).collect();
        Listed { block: (*address).into(), list: Arc::new(list) }
    });
    Party { endpoint: endpoint(member), resource }
}

fn count(seed: u64, survey: &policy::survey::Survey, many: usize, random: &mut Random) {
    let all: Vec<usize> = (0..many).collect();
    let groups: Vec<&[usize]> = all.chunks(1 + random.below(many)).collect();
    let tallies = survey.count(&groups, &groups).expect("they are few");
    for (a, from) in groups.iter().enumerate() {
        for (b, to) in groups.iter().enumerate() {
            let mut expected: BTreeMap<String, u64> = BTreeMap::new();
            for (x, y) in from.iter().flat_map(|x| to.iter().map(move |y| (*x, *y))).filter(|(x, y)| x != y) {
                *expected.entry(survey.between(x, y).expect("both are known").to_string()).or_default() += 1;
            }
            let mut told: BTreeMap<String, u64> = BTreeMap::new();
            tallies[a][b]
                .iter()
                .for_each(|(open, pairs)| *told.entry(open.to_string()).or_default() += pairs);
            assert_eq!(told, expected, "seed {seed}: {from:?} to {to:?}");
        }
    }
}
