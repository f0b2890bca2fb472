use super::*;
use crate::{ChainKind, Element, Family, FieldType, Key, Reg, Rule, Set, SetSchema};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Sends port 80 of 10.0.0.1 to one of two, and drops what comes from a range.
fn table() -> Table {
    let mut table = Table::new(Family::Ip, "t");
    let place = |port, index| Key::new().address(ip("10.0.0.1")).port(port).mark(index);
    let mut endpoints = Set::new(SetSchema::map(
        [FieldType::Ipv4, FieldType::Port, FieldType::Mark],
        [FieldType::Ipv4, FieldType::Port],
    ));
    for (index, to) in ["10.9.0.1", "10.9.0.2"].iter().enumerate() {
        endpoints.insert(place(80, index as u32), Element::value(Key::new().address(ip(to)).port(8080)));
    }
    let mut blocked = Set::new(SetSchema::set([FieldType::Ipv4]).interval());
    let last = Key::new().address(ip("192.0.2.9"));
    blocked.insert(Key::new().address(ip("192.0.2.5")), Element::member().until(last));
    let pick = Rule::new("pick").ip_daddr(false, Reg(0)).dport(Reg(1)).random(2, Reg(2));
    let pick = pick.map(Reg(0), "endpoints", Reg(4)).dnat(false, Reg(4), Some(Reg(5)));
    let base = |kind, priority| Chain::base(kind, Hook::Prerouting, priority, Policy::Accept);
    let drop = Rule::new("blocked").ip_saddr(false, Reg(0)).in_set(Reg(0), "blocked").discard();
    table
        .set("endpoints", endpoints)
        .set("blocked", blocked)
        .chain("second", base(ChainKind::Nat, -100).rule(Rule::new("go").jump("pick")))
        .chain("pick", Chain::regular().rule(pick))
        .chain("first", base(ChainKind::Filter, -110).rule(drop));
    table
}

fn walk(table: &Table, from: &str, to: (&str, u16)) -> Vec<(Flow, End)> {
    let world = World { tables: &[table], is_local: &|_| false, memory: &BTreeMap::new() };
    let start = Flow::new(6, (ip(from), 1234), (ip(to.0), to.1));
    outcomes(&start, |flow| world.hook(Hook::Prerouting, flow)).expect("it is understood")
}

#[test]
fn every_choice_of_chance_is_played() {
    let ends = walk(&table(), "192.0.2.1", ("10.0.0.1", 80));
    let to: Vec<_> = ends.iter().map(|(flow, _)| flow.destination).collect();
    assert_eq!(to, [(ip("10.9.0.1"), 8080), (ip("10.9.0.2"), 8080)]);
    assert!(ends.iter().all(|(flow, end)| flow.translated && *end == End::Passed));
    assert_eq!(ends[0].0.steps, ["go", "pick"]);
}

#[test]
fn chains_go_by_priority_and_ranges_hold_their_borders() {
    for (from, end) in [
        ("192.0.2.4", End::Passed),
        ("192.0.2.5", End::Dropped),
        ("192.0.2.9", End::Dropped),
        ("192.0.2.10", End::Passed),
    ] {
        assert_eq!(walk(&table(), from, ("10.0.0.1", 80))[0].1, end, "{from}");
    }
}

#[test]
fn what_no_map_knows_goes_on_untouched() {
    let ends = walk(&table(), "192.0.2.1", ("10.0.0.1", 81));
    assert!(ends.iter().all(|(flow, end)| !flow.translated && *end == End::Passed));
}

#[test]
fn a_rule_that_is_not_understood_is_named() {
    let mut table = table();
    let odd = Rule::new("odd").payload(crate::PayloadBase::Link, 0, 6, Reg(0));
    table.chain("first", Chain::base(ChainKind::Filter, Hook::Prerouting, -110, Policy::Accept).rule(odd));
    let world = World { tables: &[&table], is_local: &|_| false, memory: &BTreeMap::new() };
    let start = Flow::new(6, (ip("192.0.2.1"), 1), (ip("10.0.0.1"), 80));
    let answer = outcomes(&start, |flow| world.hook(Hook::Prerouting, flow));
    assert!(answer.is_err_and(|what| what.contains("Link")));
}
