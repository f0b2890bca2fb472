//! A network's permit lists as nftables, planned here and committed by `node-kernel`.
//!
//! Growth is in chains of one resource each, reached through maps by address, so a packet meets a constant number of
//! rules plus its two lists, and a change of one list touches the chains of one resource in one transaction:
//! O(that list), whatever the size of the network.
//!
//! ```text
//!   forward ─► saddr : @egress ─► out_r0a000001 … return | drop
//!           ─► daddr : @ingress ─► in_r0a000002 … accept | drop
//! ```
//!
//! IPv6 has chains and sets of its own, of the same shape, with a 6 in their names. An entry holds for the twins of its
//! targets too, and for targets of IPv6 as they are.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    net::{IpAddr, Ipv4Addr},
};

use cloud_api::twin::{twin, twins};
use ipnet::IpNet;
use model::{Direction, NetworkName, PermitEntry, Ports, Protocol, protocol};
use node_nft::{
    Chain, ChainKind, CtKey, CurrentChain, CurrentRule, CurrentSet, CurrentTable, Element, Expr, Family,
    FieldType, Hook, Key, MetaKey, Policy, Ranges, Reg, Rule, Set, SetSchema, Table, Verdict,
};

use crate::{
    names::port,
    state::{Resource, State},
};

/// The table, in the network's namespace.
pub(crate) const TABLE: &str = "trestle";

/// Ranges that an entry has as rules; more become a set.
const RULES: usize = 4;

const ESTABLISHED: u32 = 2;
const RELATED: u32 = 4;
const REPLY: u8 = 1;
const IPV4: u8 = 2;
const IPV6: u8 = 10;

/// Both families; true is IPv6.
const FAMILIES: [bool; 2] = [false, true];

/// Everything a network lets through.
pub(crate) fn table(state: &State, network: &NetworkName) -> Table {
    let residents: Vec<&Resource> = state.residents(network).map(|(_, resource)| resource).collect();
    let mut table = base();
    for resource in residents {
        join(&mut table, list_of(resource));
        for (set, (key, element)) in places(resource.address) {
            table.sets.get_mut(set).expect("the base has it").insert(key, element);
        }
    }
    table
}

/// The lists of one resource: its chains, and the sets they use.
pub(crate) fn list_of(resource: &Resource) -> Table {
    let mut table = Table::new(Family::Inet, TABLE);
    for (direction, verdict) in
        [(Direction::Outbound, Verdict::Return), (Direction::Inbound, Verdict::Accept)]
    {
        for ipv6 in FAMILIES {
            let mut chain = Chain::regular();
            for entry in resource.permit.values().filter(|entry| entry.traffic.direction == direction) {
                for rule in rules(entry, resource.address, ipv6, &verdict, &mut table) {
                    chain = chain.rule(rule);
                }
            }
            let name = chain_name(direction, resource.address, ipv6);
            table.chain(name, chain.rule(Rule::new("nothing else").discard()));
        }
    }
    table
}

/// An element and the shared set it is in.
type Place = (&'static str, (Box<[u8]>, Element));

/// The elements by which packets find the lists of a resource.
pub(crate) fn places(address: Ipv4Addr) -> [Place; 8] {
    let key = |ip: IpAddr| Key::new().address(ip).into_boxed();
    let own = |ip: IpAddr| Key::new().interface(&port(address)).address(ip).into_boxed();
    let jump = |direction, ipv6| Element::verdict(Verdict::Jump(chain_name(direction, address, ipv6)));
    let (four, six) = (IpAddr::from(address), IpAddr::from(twin(address)));
    [
        ("egress", (key(four), jump(Direction::Outbound, false))),
        ("ingress", (key(four), jump(Direction::Inbound, false))),
        ("local", (key(four), Element::member())),
        ("own", (own(four), Element::member())),
        ("egress6", (key(six), jump(Direction::Outbound, true))),
        ("ingress6", (key(six), jump(Direction::Inbound, true))),
        ("local6", (key(six), Element::member())),
        ("own6", (own(six), Element::member())),
    ]
}

/// The shapes of the shared sets.
pub(crate) fn schema(set: &str) -> SetSchema {
    match set {
        "egress" | "ingress" => SetSchema::verdict_map([FieldType::Ipv4]),
        "egress6" | "ingress6" => SetSchema::verdict_map([FieldType::Ipv6]),
        "own" => SetSchema::set([FieldType::InterfaceName, FieldType::Ipv4]),
        "own6" => SetSchema::set([FieldType::InterfaceName, FieldType::Ipv6]),
        "local6" => SetSchema::set([FieldType::Ipv6]),
        _ => SetSchema::set([FieldType::Ipv4]),
    }
}

/// A part of a table as if the kernel had it: what was last committed need not be read back.
pub(crate) fn as_committed(table: &Table) -> CurrentTable {
    let chains = table.chains.iter().map(|(name, chain)| {
        let rules = chain.rules.iter().map(|rule| CurrentRule { fingerprint: Some(rule.fingerprint()) });
        (name.clone(), CurrentChain { base: chain.base, rules: rules.collect() })
    });
    let sets = table.sets.iter().map(|(name, set)| {
        let elements = set.elements.clone().unwrap_or_default();
        (name.clone(), CurrentSet { schema: Some(set.schema.clone()), elements })
    });
    CurrentTable {
        family: table.family,
        name: table.name.clone(),
        owned: true,
        chains: chains.collect(),
        sets: sets.collect(),
    }
}

/// How often a chain has each rule.
type Held = HashMap<Option<u64>, usize>;

/// Those of a resource's entries that the kernel enforces as they are, and whether its lists are otherwise not as they
/// were made. O(entries + rules): each rule is printed for its fingerprint once.
pub(crate) fn enforced(resource: &Resource, current: &CurrentTable) -> (Vec<PermitEntry>, bool) {
    let mut held: BTreeMap<(Direction, bool), Held> = BTreeMap::new();
    for direction in [Direction::Inbound, Direction::Outbound] {
        for ipv6 in FAMILIES {
            let chain = current.chains.get(&chain_name(direction, resource.address, ipv6));
            let rules = held.entry((direction, ipv6)).or_default();
            for rule in chain.into_iter().flat_map(|chain| &chain.rules) {
                *rules.entry(rule.fingerprint).or_default() += 1;
            }
        }
    }
    let mut entries = Vec::new();
    for entry in resource.permit.values() {
        let verdict = match entry.traffic.direction {
            Direction::Outbound => Verdict::Return,
            Direction::Inbound => Verdict::Accept,
        };
        let mut is_held = true;
        for ipv6 in FAMILIES {
            let mut sets = Table::new(Family::Inet, TABLE);
            let wanted = rules(entry, resource.address, ipv6, &verdict, &mut sets);
            let there = held.get_mut(&(entry.traffic.direction, ipv6)).expect("all were put in");
            for rule in wanted {
                is_held &= take_one(there, rule.fingerprint());
            }
            is_held &= sets.sets.iter().all(|(name, set)| {
                current.sets.get(name).is_some_and(|now| Some(&now.elements) == set.elements.as_ref())
            });
        }
        if is_held {
            entries.push(entry.clone());
        }
    }
    // What is left must be the drop at the end of each list; without it, the list would let everything through.
    let last = Held::from([(Some(Rule::new("nothing else").discard().fingerprint()), 1)]);
    let strange = held.values().any(|rules| *rules != last);
    (entries, strange)
}

/// Whether there was one more.
fn take_one(held: &mut Held, fingerprint: u64) -> bool {
    let Entry::Occupied(mut there) = held.entry(Some(fingerprint)) else { return false };
    match there.get() {
        1 => drop(there.remove()),
        _ => *there.get_mut() -= 1,
    }
    true
}

fn join(table: &mut Table, part: Table) {
    table.chains.extend(part.chains);
    table.sets.extend(part.sets);
}

fn chain_name(direction: Direction, address: Ipv4Addr, ipv6: bool) -> String {
    let family = if ipv6 { "6" } else { "" };
    match direction {
        Direction::Outbound => format!("out{family}_{}", port(address)),
        Direction::Inbound => format!("in{family}_{}", port(address)),
    }
}

/// What every network has. Replies to what was let through pass; whatever opens or carries on a connection is judged
/// by the list of its sender, then of its receiver, and passes only if each list that is here lets it.
fn base() -> Table {
    let mut table = Table::new(Family::Inet, TABLE);
    for set in ["egress", "ingress", "local", "own", "egress6", "ingress6", "local6", "own6"] {
        table.set(set, Set::new(schema(set)));
    }
    let zero = Reg(0);
    let family =
        |comment: &str, rule: fn(Rule) -> Rule| rule(Rule::new(comment).meta(MetaKey::Nfproto, Reg(0)));
    let forward = Chain::base(ChainKind::Filter, Hook::Forward, 0, Policy::Drop)
        .rule(
            family("IPv6 has its own lists", |rule| rule.is(Reg(0), &[IPV6]))
                .verdict(Verdict::Jump("forward6".to_owned())),
        )
        .rule(family("nothing else is known", |rule| rule.is_not(Reg(0), &[IPV4])).discard());
    table.chain("forward", judged(forward, false));
    table.chain("forward6", judged(Chain::regular(), true).rule(Rule::new("nothing else").discard()));
    let input = Chain::base(ChainKind::Filter, Hook::Input, 0, Policy::Accept).rule(
        Rule::new("the router is nobody's peer")
            .meta(MetaKey::InInterfaceName, zero)
            .is(zero, b"r")
            .discard(),
    );
    table.chain("input", input);
    table
}

/// How packets of one family are judged.
fn judged(chain: Chain, ipv6: bool) -> Chain {
    let (zero, after_name) = (Reg(0), Reg(4));
    let of = |set: &str| if ipv6 { format!("{set}6") } else { set.to_owned() };
    chain
        .rule(Rule::new("no strays").ct_invalid().discard())
        .rule(
            Rule::new("a resource has its own address only")
                .meta(MetaKey::InInterfaceName, zero)
                .is(zero, b"r")
                .meta(MetaKey::InInterfaceName, zero)
                .ip_saddr(ipv6, after_name)
                .not_in_set(zero, of("own"))
                .discard(),
        )
        .rule(
            Rule::new("nobody else has it")
                .meta(MetaKey::InInterfaceName, zero)
                .is_not(zero, b"r")
                .ip_saddr(ipv6, zero)
                .in_set(zero, of("local"))
                .discard(),
        )
        .rule(
            ct_state(
                Rule::new("replies")
                    .expr(Expr::Ct { key: CtKey::Direction, direction: None, to: zero })
                    .is(zero, &[REPLY]),
                ESTABLISHED,
            )
            .accept(),
        )
        .rule(ct_state(Rule::new("errors"), RELATED).accept())
        .rule(Rule::new("the sender's list").ip_saddr(ipv6, zero).vmap(zero, of("egress")))
        .rule(Rule::new("the receiver's list").ip_daddr(ipv6, zero).vmap(zero, of("ingress")))
        .rule(Rule::new("outward").ip_saddr(ipv6, zero).in_set(zero, of("local")).accept())
}

fn ct_state(rule: Rule, bits: u32) -> Rule {
    let to = Reg(0);
    rule.expr(Expr::Ct { key: CtKey::State, direction: None, to }).bits(to, bits, 0, to).is_not(to, &[0; 4])
}

/// The targets of an entry in one family: those of IPv4 have twins.
fn targets(entry: &PermitEntry, ipv6: bool) -> Ranges {
    let nets = entry.targets().iter().map(|target| match target.net() {
        IpNet::V4(net) if ipv6 => IpNet::V6(twins(net)),
        net => net,
    });
    Ranges::new(ipv6, nets)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The rules of an entry in one family: one for each range of its targets, or one with a set. None if it has no
/// targets there: an entry without targets must not become a match of everything.
fn rules(
    entry: &PermitEntry,
    address: Ipv4Addr,
    ipv6: bool,
    verdict: &Verdict,
    table: &mut Table,
) -> Vec<Rule> {
    let bounds: Vec<(Vec<u8>, Vec<u8>)> =
        targets(entry, ipv6).iter().map(|(first, last)| (octets(first), octets(last))).collect();
    let inbound = entry.traffic.direction == Direction::Inbound;
    let peer = |rule: Rule| match inbound {
        true => rule.ip_saddr(ipv6, Reg(0)),
        false => rule.ip_daddr(ipv6, Reg(0)),
    };
    let new = || Rule::new(comment(entry));
    if bounds.len() > RULES {
        let name = format!("{}_{:016x}", chain_name(entry.traffic.direction, address, ipv6), digest(entry));
        let field = if ipv6 { FieldType::Ipv6 } else { FieldType::Ipv4 };
        let mut set = Set::new(SetSchema::set([field]).interval());
        for (first, last) in bounds {
            set.insert(first, Element::member().until(last));
        }
        table.set(name.clone(), set);
        return vec![traffic(peer(new()).in_set(Reg(0), name), entry, ipv6).verdict(verdict.clone())];
    }
    let one = |(low, high): (Vec<u8>, Vec<u8>)| {
        let rule = match low == high {
            true => peer(new()).is(Reg(0), &low),
            false => peer(new()).expr(Expr::Range { inverted: false, from: Reg(0), low, high }),
        };
        traffic(rule, entry, ipv6).verdict(verdict.clone())
    };
    bounds.into_iter().map(one).collect()
}

fn traffic(mut rule: Rule, entry: &PermitEntry, ipv6: bool) -> Rule {
    if let Protocol::Number(number) = entry.traffic.protocol {
        rule = rule.l4proto(Reg(0)).is(Reg(0), &[protocol::in_family(number, ipv6)]);
    }
    for (is_source, ports) in [(true, entry.traffic.src_ports), (false, entry.traffic.dst_ports)] {
        let Ports::Range { first, last } = ports else { continue };
        rule = if is_source { rule.sport(Reg(0)) } else { rule.dport(Reg(0)) };
        let (low, high) = (first.to_be_bytes().to_vec(), last.to_be_bytes().to_vec());
        rule = match first == last {
            true => rule.is(Reg(0), &low),
            false => rule.expr(Expr::Range { inverted: false, from: Reg(0), low, high }),
        };
    }
    rule
}

/// What `nft list` shows beside the rule; the kernel keeps 128 bytes, and the fingerprint needs some of them.
fn comment(entry: &PermitEntry) -> String {
    entry.name.as_str().chars().filter(char::is_ascii_graphic).take(64).collect()
}

/// Names the set of an entry, which keeps its name while its targets change.
fn digest(entry: &PermitEntry) -> u64 {
    let name = entry.name.as_str().bytes();
    name.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{Address, EntryName, Traffic};
    use node_nft::{Limits, Live, Op, Plan};

    use super::*;

    fn entry(targets: &[&str]) -> PermitEntry {
        let ports = Ports::Range { first: 80, last: 90 };
        let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, ports).unwrap();
        let targets: BTreeSet<Address> = targets.iter().map(|target| target.parse().unwrap()).collect();
        PermitEntry::new(EntryName::reported("x"), traffic, targets, BTreeSet::new()).unwrap()
    }

    fn resource(entries: &[PermitEntry]) -> Resource {
        Resource {
            region: "west".parse().unwrap(),
            address: [10, 0, 0, 1].into(),
            description: String::new(),
            permit: entries.iter().map(|entry| (entry.name.clone(), entry.clone())).collect(),
            attached: None,
        }
    }

    #[test]
    fn an_entry_without_ipv4_is_no_match_of_everything() {
        let list = list_of(&resource(&[entry(&["2001:db8::1"])]));
        let rules = |chain: &str| list.chains[chain].rules.len();
        assert_eq!(rules("in_r0a000001"), 1, "nothing but the drop at the end");
        assert_eq!((rules("in6_r0a000001"), rules("out6_r0a000001")), (2, 1));
    }

    #[test]
    fn a_few_ranges_are_rules_and_many_are_a_set() {
        let few = list_of(&resource(&[entry(&["10.1.0.0/24", "10.1.1.0/24", "10.3.0.1"])]));
        assert_eq!(few.chains["in_r0a000001"].rules.len(), 3, "two of three are one range, and the drop");
        assert!(few.sets.is_empty());
        let many: Vec<String> = (0..100).map(|low| format!("10.2.0.{}", low * 2)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let many = list_of(&resource(&[entry(&many)]));
        assert_eq!(many.chains["in_r0a000001"].rules.len(), 2);
        assert_eq!(many.sets.len(), 2, "one for each family");
        assert!(many.sets.values().all(|set| set.elements.as_ref().unwrap().len() == 100));
    }

    /// A member more of a large tag costs one element, not the list.
    #[test]
    fn one_more_target_is_one_more_element() {
        let targets: Vec<String> =
            (0..1000).map(|at| format!("10.2.{}.{}", at / 100, at % 100 * 2)).collect();
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        let before = list_of(&resource(&[entry(&targets[..999])]));
        let after = list_of(&resource(&[entry(&targets)]));
        let plan = Plan::new(&after, Some(&as_committed(&before)), Live::Atomic, Limits::default()).unwrap();
        let ops: Vec<&Op> = plan.transactions.iter().flat_map(|one| &one.ops).collect();
        let one_each = |op: &&Op| matches!(op, Op::AddElements { elements, .. } if elements.len() == 1);
        assert!(ops.len() == 2 && ops.iter().all(one_each), "{ops:?}");
    }

    #[test]
    fn the_kernel_is_asked_what_it_enforces() {
        let resource = resource(&[entry(&["10.1.0.0/24"])]);
        let mut current = as_committed(&list_of(&resource));
        assert_eq!(enforced(&resource, &current), (vec![entry(&["10.1.0.0/24"])], false));
        let chain = current.chains.get_mut("in_r0a000001").unwrap();
        chain.rules.insert(0, CurrentRule { fingerprint: None });
        assert_eq!(enforced(&resource, &current), (vec![entry(&["10.1.0.0/24"])], true));
        current.chains.clear();
        assert_eq!(enforced(&resource, &current), (vec![], true), "without its lists it is open");
        // The same rule twice is once too often.
        let mut current = as_committed(&list_of(&resource));
        let rules = &mut current.chains.get_mut("in_r0a000001").unwrap().rules;
        rules.insert(0, CurrentRule { fingerprint: rules[0].fingerprint });
        assert_eq!(enforced(&resource, &current), (vec![entry(&["10.1.0.0/24"])], true));
    }
}
