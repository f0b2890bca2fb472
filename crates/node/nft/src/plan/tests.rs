use proptest::prelude::*;

use super::*;
use crate::{ChainKind, Family, FieldType, Hook, Key, Policy, Reg, Rule, Verdict, fake::FakeKernel};

fn plan(desired: &Table, kernel: &FakeKernel, live: Live, elements: usize) -> Plan {
    Plan::new(desired, kernel.table.as_ref(), live, Limits { elements }).expect("our table")
}

/// A table of random size: addresses with values, ranges, verdicts to one of three chains, and rules over them.
fn tables() -> impl Strategy<Value = Table> {
    let values = proptest::collection::btree_map(0_u8..9, 0_u8..3, 0..9);
    let ranges = proptest::collection::btree_map(0_u8..9, 0_u8..10, 0..4);
    let verdicts = proptest::collection::btree_map(0_u8..9, 0_u8..3, 0..6);
    (values, ranges, verdicts, any::<(bool, bool, bool)>()).prop_map(|(values, ranges, verdicts, flags)| {
        let address = |number: u8| Key::new().address([10, 0, 0, number].into());
        let mut table = Table::new(Family::Ip, "t");
        let wide = if flags.0 { FieldType::Mark } else { FieldType::Ipv4 };
        let mut map = Set::new(SetSchema::map([FieldType::Ipv4], [wide]));
        for (key, value) in values {
            map.insert(address(key), Element::value(address(value)));
        }
        let mut tree = Set::new(SetSchema::set([FieldType::Ipv4]).interval());
        for (first, len) in ranges {
            tree.insert(address(first * 10), Element::member().until(address(first * 10 + len)));
        }
        let mut vmap = Set::new(SetSchema::verdict_map([FieldType::Ipv4]));
        for (key, chain) in verdicts {
            table.chain(format!("c{chain}"), Chain::regular().rule(Rule::new("stop").discard()));
            vmap.insert(address(key), Element::verdict(Verdict::Goto(format!("c{chain}"))));
        }
        table.set("map", map).set("tree", tree);
        let priority = if flags.1 { 0 } else { 5 };
        let mut base = Chain::base(ChainKind::Filter, Hook::Input, priority, Policy::Accept)
            .rule(Rule::new("tree").ip_saddr(false, Reg(0)).in_set(Reg(0), "tree").accept());
        if flags.2 {
            table.set("vmap", vmap);
            base = base.rule(Rule::new("vmap").ip_saddr(false, Reg(0)).vmap(Reg(0), "vmap"));
        }
        table.chain("input", base);
        table
    })
}

proptest! {
    #[test]
    fn any_table_is_reached_from_any_other_and_then_nothing_is_left_to_do(
        tables in proptest::collection::vec((tables(), any::<bool>(), 1_usize..12), 1..5)
    ) {
        let mut kernel = FakeKernel::new(&tables[0].0);
        for (table, atomic, limit) in tables {
            let live = if atomic { Live::Atomic } else { Live::Chunked };
            for transaction in plan(&table, &kernel, live, limit).transactions {
                prop_assert_eq!(kernel.commit(&transaction), Ok(()));
            }
            prop_assert!(plan(&table, &kernel, live, limit).is_empty());
        }
    }
}

fn filled(members: u8) -> Table {
    let mut table = Table::new(Family::Ip, "t");
    let mut set = Set::new(SetSchema::set([FieldType::Ipv4]));
    (0..members)
        .for_each(|number| set.insert(Key::new().address([10, 0, 0, number].into()), Element::member()));
    let base = Chain::base(ChainKind::Filter, Hook::Input, 0, Policy::Accept);
    table.set("set", set).chain("input", base.rule(Rule::new("all").accept()));
    table
}

fn commit(kernel: &mut FakeKernel, plan: Plan) -> usize {
    plan.transactions.iter().for_each(|transaction| kernel.commit(transaction).expect("the kernel takes it"));
    plan.transactions.len()
}

#[test]
fn what_no_packet_sees_yet_goes_in_chunks_and_the_rules_come_last() {
    let table = filled(20);
    let plan = plan(&table, &FakeKernel::new(&table), Live::Atomic, 8);
    assert!(plan.transactions.len() > 3);
    let last = plan.transactions.last().expect("there are some");
    assert!(matches!(&last.ops[..], [Op::AddChain { .. }, Op::AddRule { .. }]), "{last:?}");
}

#[test]
fn a_large_change_that_packets_see_is_one_transaction_or_many_as_asked() {
    for (live, expected) in [(Live::Atomic, 1), (Live::Chunked, 3)] {
        let mut kernel = FakeKernel::new(&filled(0));
        let empty = plan(&filled(0), &kernel, live, 8);
        commit(&mut kernel, empty);
        let change = plan(&filled(20), &kernel, live, 8);
        assert_eq!(commit(&mut kernel, change), expected, "{live:?}");
    }
}

#[test]
fn a_table_that_is_not_ours_is_refused() {
    let mut kernel = FakeKernel::new(&filled(0));
    let first = plan(&filled(0), &kernel, Live::Atomic, 8);
    commit(&mut kernel, first);
    let mut foreign = kernel.table.expect("the table was made");
    foreign.owned = false;
    assert_eq!(Plan::new(&filled(1), Some(&foreign), Live::Atomic, Limits::default()).err(), Some(Foreign));
}
