//! Random tables against a naive reading of them: what the walk says of packets, and what packets meet while a plan turns one
//! table into another.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use node_nft::{
    Chain, ChainKind, CurrentTable, Element, Family, FieldType, Hook, Key, Limits, Live, Plan, Policy, Reg,
    Reject, Rule, Set, SetSchema, Table, Verdict, bundle,
    fake::FakeKernel,
    walk::{End, Flow, Memory, World},
};
use proptest::{collection::vec, prelude::*};

const SOURCES: u8 = 10;
const PORTS: [u16; 2] = [80, 443];
const CHAINS: usize = 4;

#[derive(Clone, Debug)]
enum Test {
    Source(u8),
    OtherThan(u8),
    Among,
    NotAmong,
    InRange,
    Port(u16),
}

#[derive(Clone, Debug)]
enum Say {
    Nothing,
    Accept,
    Drop,
    Reject,
    Return,
    Jump(usize),
    Goto(usize),
    ByMap,
}

type Line = (Vec<Test>, Say);

/// A table in few words. Chain 0 is the hook's; a chain leads to later ones only, as the kernel demands.
#[derive(Clone, Debug)]
struct Words {
    members: BTreeSet<u8>,
    range: (u8, u8),
    verdicts: BTreeMap<u8, u8>,
    chains: Vec<Vec<Line>>,
    drops: bool,
}

fn words() -> impl Strategy<Value = Words> {
    let test = prop_oneof![
        (0..SOURCES).prop_map(Test::Source),
        (0..SOURCES).prop_map(Test::OtherThan),
        Just(Test::Among),
        Just(Test::NotAmong),
        Just(Test::InRange),
        (0_usize..2).prop_map(|index| Test::Port(PORTS[index])),
    ];
    let say = prop_oneof![
        Just(Say::Nothing),
        Just(Say::Accept),
        Just(Say::Drop),
        Just(Say::Reject),
        Just(Say::Return),
        (1..CHAINS).prop_map(Say::Jump),
        (1..CHAINS).prop_map(Say::Goto),
        Just(Say::ByMap),
    ];
    let chains = vec(vec((vec(test, 0..3), say), 0..4), CHAINS);
    let members = proptest::collection::btree_set(0..SOURCES, 0..6);
    let verdicts = proptest::collection::btree_map(0..SOURCES, 0_u8..3, 0..5);
    (members, (0..SOURCES, 0..SOURCES), verdicts, chains, any::<bool>()).prop_map(
        |(members, (a, b), verdicts, mut chains, drops)| {
            for (index, chain) in chains.iter_mut().enumerate() {
                chain.retain(|(_, say)| match say {
                    Say::Jump(to) | Say::Goto(to) => *to > index,
                    // The map leads to the last chain.
                    Say::ByMap => index + 1 < CHAINS,
                    _ => true,
                });
            }
            Words { members, range: (a.min(b), a.max(b)), verdicts, chains, drops }
        },
    )
}

fn address(source: u8) -> IpAddr {
    [10, 0, 0, source].into()
}

fn key(source: u8) -> Box<[u8]> {
    Key::new().address(address(source)).into_boxed()
}

fn name(chain: usize) -> String {
    format!("c{chain}")
}

impl Words {
    fn table(&self) -> Table {
        let mut table = Table::new(Family::Ip, "t");
        let mut members = Set::new(SetSchema::set([FieldType::Ipv4]));
        self.members.iter().for_each(|source| members.insert(key(*source), Element::member()));
        let mut ranges = Set::new(SetSchema::set([FieldType::Ipv4]).interval());
        ranges.insert(key(self.range.0), Element::member().until(key(self.range.1)));
        let mut verdicts = Set::new(SetSchema::verdict_map([FieldType::Ipv4]));
        for (source, which) in &self.verdicts {
            let verdict = match which {
                0 => Verdict::Accept,
                1 => Verdict::Drop,
                _ => Verdict::Jump(name(CHAINS - 1)),
            };
            verdicts.insert(key(*source), Element::verdict(verdict));
        }
        table.set("members", members).set("ranges", ranges).set("verdicts", verdicts);
        for (index, lines) in self.chains.iter().enumerate() {
            let policy = if self.drops { Policy::Drop } else { Policy::Accept };
            let empty = match index {
                0 => Chain::base(ChainKind::Filter, Hook::Input, 0, policy),
                _ => Chain::regular(),
            };
            table.chain(name(index), lines.iter().map(rule).fold(empty, Chain::rule));
        }
        table
    }

    fn decide(&self, source: u8, port: u16) -> End {
        let policy = if self.drops { End::Dropped } else { End::Passed };
        self.chain(0, source, port).unwrap_or(policy)
    }

    /// None: whoever came here goes on.
    fn chain(&self, index: usize, source: u8, port: u16) -> Option<End> {
        for (tests, say) in &self.chains[index] {
            if !tests.iter().all(|test| self.holds(test, source, port)) {
                continue;
            }
            let ended = match say {
                Say::Nothing => None,
                Say::Return => return None,
                Say::Accept => Some(End::Passed),
                Say::Drop => Some(End::Dropped),
                Say::Reject => Some(End::Rejected(Reject::TcpReset)),
                Say::Jump(to) => self.chain(*to, source, port),
                Say::Goto(to) => return self.chain(*to, source, port),
                Say::ByMap => match self.verdicts.get(&source) {
                    None => None,
                    Some(0) => Some(End::Passed),
                    Some(1) => Some(End::Dropped),
                    Some(_) => self.chain(CHAINS - 1, source, port),
                },
            };
            if ended.is_some() {
                return ended;
            }
        }
        None
    }

    fn holds(&self, test: &Test, source: u8, port: u16) -> bool {
        match test {
            Test::Source(one) => source == *one,
            Test::OtherThan(one) => source != *one,
            Test::Among => self.members.contains(&source),
            Test::NotAmong => !self.members.contains(&source),
            Test::InRange => (self.range.0..=self.range.1).contains(&source),
            Test::Port(one) => port == *one,
        }
    }
}

fn rule((tests, say): &Line) -> Rule {
    let rule = tests.iter().fold(Rule::new("line"), |rule, test| {
        let source = |rule: Rule| rule.ip_saddr(false, Reg(0));
        match test {
            Test::Source(one) => source(rule).is(Reg(0), &key(*one)),
            Test::OtherThan(one) => source(rule).is_not(Reg(0), &key(*one)),
            Test::Among => source(rule).in_set(Reg(0), "members"),
            Test::NotAmong => source(rule).not_in_set(Reg(0), "members"),
            Test::InRange => source(rule).in_set(Reg(0), "ranges"),
            Test::Port(one) => rule.dport(Reg(0)).is(Reg(0), &one.to_be_bytes()),
        }
    });
    match say {
        Say::Nothing => rule.counter(),
        Say::Accept => rule.accept(),
        Say::Drop => rule.discard(),
        Say::Reject => rule.reject(Reject::TcpReset),
        Say::Return => rule.verdict(Verdict::Return),
        Say::Jump(to) => rule.jump(name(*to)),
        Say::Goto(to) => rule.goto(name(*to)),
        Say::ByMap => rule.ip_saddr(false, Reg(0)).vmap(Reg(0), "verdicts"),
    }
}

fn packets() -> impl Iterator<Item = (u8, u16)> {
    (0..SOURCES).flat_map(|source| PORTS.map(|port| (source, port)))
}

/// What a table says of every packet.
fn walked(table: &Table) -> Vec<End> {
    let world = World { tables: &[table], is_local: &|_| false, memory: &Memory::new() };
    let ends = packets().map(|(source, port)| {
        let mut flow = Flow::new(6, (address(source), 40_000), (address(200), port));
        world.hook(Hook::Input, &mut flow).expect("every rule is understood")
    });
    ends.collect()
}

fn decided(words: &Words) -> Vec<End> {
    packets().map(|(source, port)| words.decide(source, port)).collect()
}

/// The kernel's table with rules again: it has fingerprints of them, and both tables to find them in.
fn read_back(kernel: &CurrentTable, known: [&Table; 2]) -> Table {
    let rules = known.iter().flat_map(|table| table.chains.values()).flat_map(|chain| &chain.rules);
    let rules: BTreeMap<u64, &Rule> = rules.map(|rule| (rule.fingerprint(), rule)).collect();
    let mut table = Table::new(kernel.family, kernel.name.clone());
    for (name, chain) in &kernel.chains {
        let found = chain.rules.iter().map(|rule| rules[&rule.fingerprint.expect("ours")].clone());
        table.chain(name, Chain { base: chain.base, rules: found.collect() });
    }
    for (name, set) in &kernel.sets {
        let schema = set.schema.clone().expect("known");
        table.set(name, Set { schema, elements: Some(set.elements.clone()) });
    }
    table
}

/// Compared by hand: the plan must not be its own judge.
fn is_so(kernel: &FakeKernel, table: &Table) -> bool {
    let kernel = kernel.table.as_ref().expect("it was made");
    let rules = |table: &Table| -> BTreeMap<String, Vec<u64>> {
        let chains = table.chains.iter();
        chains
            .map(|(name, chain)| (name.clone(), chain.rules.iter().map(Rule::fingerprint).collect()))
            .collect()
    };
    let kept: BTreeMap<String, Vec<u64>> = kernel
        .chains
        .iter()
        .map(|(name, chain)| (name.clone(), chain.rules.iter().filter_map(|rule| rule.fingerprint).collect()))
        .collect();
    let bases = kernel.chains.iter().all(|(name, chain)| table.chains[name].base == chain.base);
    let sets =
        kernel.sets.iter().all(|(name, set)| table.sets[name].elements.as_ref() == Some(&set.elements));
    kept == rules(table) && bases && sets && kernel.sets.len() == table.sets.len()
}

fn plan(table: &Table, kernel: &FakeKernel, live: Live, elements: usize) -> Plan {
    Plan::new(table, kernel.table.as_ref(), live, Limits { elements }).expect("our table")
}

fn kernel_with(table: &Table) -> FakeKernel {
    let mut kernel = FakeKernel::new(table);
    for transaction in plan(table, &kernel, Live::Atomic, 100).transactions {
        kernel.commit(&transaction).expect("the kernel takes it");
    }
    kernel
}

fn live(atomic: bool) -> Live {
    if atomic { Live::Atomic } else { Live::Chunked }
}

proptest! {
    #[test]
    fn the_walk_decides_as_the_words_say(words in words()) {
        prop_assert_eq!(walked(&words.table()), decided(&words));
    }

    /// Killed after any of its transactions, the next plan leads on from there.
    #[test]
    fn a_plan_that_was_cut_short_is_finished_by_another(
        (before, after) in (words(), words()), atomic in any::<bool>(), limit in 1_usize..8, cut in any::<prop::sample::Index>()
    ) {
        let after = after.table();
        let mut kernel = kernel_with(&before.table());
        let first = plan(&after, &kernel, live(atomic), limit).transactions;
        for transaction in &first[..cut.index(first.len() + 1)] {
            prop_assert_eq!(kernel.commit(transaction), Ok(()));
        }
        for transaction in plan(&after, &kernel, live(atomic), limit).transactions {
            prop_assert_eq!(kernel.commit(&transaction), Ok(()));
        }
        prop_assert!(is_so(&kernel, &after), "{:?}", kernel.table);
        prop_assert!(plan(&after, &kernel, live(atomic), limit).is_empty());
    }

    /// Between any two transactions every packet meets the old table, or every packet the new one.
    #[test]
    fn an_atomic_plan_shows_no_mixture((before, after) in (words(), words()), limit in 1_usize..8) {
        let (old, new) = (before.table(), after.table());
        let mut kernel = kernel_with(&old);
        let (was, becomes) = (decided(&before), decided(&after));
        let mut switched = false;
        for transaction in plan(&new, &kernel, Live::Atomic, limit).transactions {
            prop_assert_eq!(kernel.commit(&transaction), Ok(()));
            let seen = walked(&read_back(kernel.table.as_ref().expect("there"), [&old, &new]));
            switched |= seen != was;
            prop_assert_eq!(&seen, if switched { &becomes } else { &was });
        }
        prop_assert_eq!(walked(&read_back(kernel.table.as_ref().expect("there"), [&old, &new])), becomes);
    }

    /// What is in a set before and after is in it all the time.
    #[test]
    fn elements_that_stay_are_never_away(
        (before, after) in (words(), words()), atomic in any::<bool>(), limit in 1_usize..8
    ) {
        let (old, new) = (before.table(), after.table());
        let mut kernel = kernel_with(&old);
        for transaction in plan(&new, &kernel, live(atomic), limit).transactions {
            prop_assert_eq!(kernel.commit(&transaction), Ok(()));
            let table = kernel.table.as_ref().expect("there");
            for (name, set) in &old.sets {
                let later = new.sets[name].elements.as_ref().expect("static");
                let stay = set.elements.as_ref().expect("static").iter();
                for (key, element) in stay.filter(|(key, element)| later.get(*key) == Some(element)) {
                    prop_assert_eq!(table.sets[name].elements.get(key), Some(element), "{}", name);
                }
            }
        }
    }

    /// Halved until nothing can be halved, a bundle has lost and mixed up nothing: unit by unit it leads where it led at once.
    #[test]
    fn halves_of_a_bundle_lead_where_the_whole_does((before, after) in (words(), words())) {
        let (old, new) = (before.table(), after.table());
        let mut whole = kernel_with(&old);
        let mut parts = whole.clone();
        let units: Vec<_> = plan(&new, &whole, Live::Atomic, 100)
            .transactions.into_iter().map(|transaction| transaction.ops).collect();
        let count = units.len();
        let mut open = bundle(units, Limits { elements: 1_000 });
        prop_assert_eq!(open.iter().map(|bundle| bundle.units()).sum::<usize>(), count);
        for bundle in &open {
            prop_assert_eq!(whole.commit(&bundle.transaction), Ok(()));
        }
        open.reverse();
        while let Some(bundle) = open.pop() {
            if bundle.units() > 1 {
                let (front, back) = bundle.halve();
                prop_assert!(front.units() >= 1 && back.units() >= 1);
                open.extend([back, front]);
            } else {
                prop_assert_eq!(parts.commit(&bundle.transaction), Ok(()));
            }
        }
        prop_assert!(is_so(&whole, &new) && is_so(&parts, &new));
    }

    /// Keys sort as what they are made of, which is what ranges rest on.
    #[test]
    fn keys_sort_as_addresses_and_ports_do(a in any::<(u32, u16)>(), b in any::<(u32, u16)>()) {
        let key = |(address, port): (u32, u16)| {
            Key::new().address(std::net::Ipv4Addr::from(address).into()).port(port).into_boxed()
        };
        prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
        prop_assert_eq!(key(a).len() % 4, 0);
    }
}
