//! nftables over netlink against the kernel, with the `nft` command as the judge.

use node_kernel::nft::{Applied, CommitError, Nft, ReconcileError, TableId};
use node_nft::{
    Chain, ChainKind, CtKey, Direction, DynSetOp, Element, Expr, Family, FieldType, Hook, Key, LimitUnit,
    Limits, Live, MetaKey, Op, Policy, Reg, Reject, Rule, Set, SetSchema, Table, Transaction, Verdict,
};
use testkit::namespaces::{in_namespace, run};

const ADDR_PROTO_PORT: [FieldType; 3] = [FieldType::Ipv4, FieldType::Proto, FieldType::Port];

fn address(text: &str) -> Key {
    Key::new().address(text.parse().expect("an address"))
}

fn reconcile(nft: &mut Nft, table: &Table) -> Applied {
    nft.reconcile(table, Live::Atomic, Limits::default()).expect("the kernel takes the table")
}

/// Every kind of set and every expression.
fn everything() -> Table {
    let mut table = Table::new(Family::Ip, "trestle-test");
    let mut plain = Set::new(SetSchema::set([FieldType::Ipv4]));
    plain.insert(address("10.0.0.1"), Element::member());
    let mut ports = Set::new(SetSchema::set([FieldType::Port]));
    ports.insert(Key::new().port(443), Element::member());
    let mut marks = Set::new(SetSchema::map([FieldType::Mark], [FieldType::Mark]));
    marks.insert(Key::new().mark(7), Element::value(Key::new().mark(0x1234)));
    let mut ranges = Set::new(SetSchema::set([FieldType::Ipv4]).interval());
    ranges.insert(address("10.0.0.0"), Element::member().until(address("10.0.0.255")));
    ranges.insert(address("10.0.1.0"), Element::member().until(address("10.0.1.9")));
    ranges.insert(address("255.0.0.0"), Element::member().until(address("255.255.255.255")));
    let mut cidrs = Set::new(SetSchema::set([FieldType::Ipv4, FieldType::Proto, FieldType::Port]).interval());
    cidrs.insert(
        address("10.1.0.0").proto(6).port(80),
        Element::member().until(address("10.1.255.255").proto(6).port(89)),
    );
    let joined = FieldType::joined(&[FieldType::Ipv4, FieldType::Mark, FieldType::Proto, FieldType::Port]);
    let mut spans = Set::new(SetSchema::map([joined], [FieldType::Mark]).interval());
    let border = |mark, port| address("10.1.0.0").mark(mark).proto(6).port(port);
    for (mark, low, high) in [(7, 80, 89), (7, 90, 99), (7, 65_000, 65_535), (8, 0, 65_535)] {
        let decision = Element::value(Key::new().mark(low.into()));
        spans.insert(border(mark, low), decision.until(border(mark, high)));
    }
    let mut endpoints = Set::new(SetSchema::map(
        [FieldType::Ipv4, FieldType::Proto, FieldType::Port, FieldType::Mark],
        [FieldType::Ipv4, FieldType::Port],
    ));
    endpoints.insert(
        address("10.96.0.1").proto(6).port(80).mark(2),
        Element::value(address("10.2.0.1").port(8080)),
    );
    let mut verdicts = Set::new(SetSchema::verdict_map(ADDR_PROTO_PORT));
    verdicts.insert(address("10.96.0.1").proto(17).port(53), Element::verdict(Verdict::Goto("pick".into())));
    verdicts.insert(address("10.96.0.2").proto(17).port(53), Element::verdict(Verdict::Drop));
    let mut interfaces = Set::new(SetSchema::verdict_map([FieldType::InterfaceName]));
    interfaces.insert(Key::new().interface("eth0"), Element::verdict(Verdict::Jump("inspect".into())));
    table
        .set("plain", plain)
        .set("ports", ports)
        .set("marks", marks)
        .set("ranges", ranges)
        .set("cidrs", cidrs)
        .set("spans", spans)
        .set("endpoints", endpoints)
        .set("verdicts", verdicts)
        .set("interfaces", interfaces)
        .set(
            "seen",
            Set::new(SetSchema::map([FieldType::Ipv4, FieldType::Mark], [FieldType::Mark]).dynamic(65_535)),
        )
        .chain("inspect", Chain::regular().rule(Rule::new("seen").counter()))
        .chain("pick", pick())
        .chain("pre", Chain::base(ChainKind::Nat, Hook::Prerouting, -100, Policy::Accept).rule(dispatch()))
        .chain("post", Chain::base(ChainKind::Nat, Hook::Postrouting, 100, Policy::Accept).rule(masquerade()))
        .chain("forward", forward());
    table
}

fn pick() -> Chain {
    let pick = Rule::new("translate")
        .ip_daddr(false, Reg(0))
        .l4proto(Reg(1))
        .dport(Reg(2))
        .random(3, Reg(3))
        .map(Reg(0), "endpoints", Reg(8))
        .dnat(false, Reg(8), Some(Reg(9)));
    let remember = Rule::new("remember")
        .ip_saddr(false, Reg(0))
        .meta(MetaKey::Mark, Reg(1))
        .random(3, Reg(2))
        .refresh("seen", Reg(0), Some(Reg(2)), 10_000);
    Chain::regular().rule(remember).rule(pick)
}

fn dispatch() -> Rule {
    Rule::new("by frontend").ip_daddr(false, Reg(0)).l4proto(Reg(1)).dport(Reg(2)).vmap(Reg(0), "verdicts")
}

fn masquerade() -> Rule {
    Rule::new("marked for masquerade").mark_has(0x4000).set_mark(!0, 0x4000).masquerade()
}

fn forward() -> Chain {
    let original = |key, to| Expr::Ct { key, direction: Some(Direction::Original), to };
    Chain::base(ChainKind::Filter, Hook::Forward, 0, Policy::Accept)
        .rule(Rule::new("replies").ct_established_or_related().counter().accept())
        .rule(Rule::new("interface").meta(MetaKey::InInterfaceName, Reg(0)).vmap(Reg(0), "interfaces"))
        .rule(Rule::new("ranges").ct_new().ip_saddr(false, Reg(0)).in_set(Reg(0), "ranges").accept())
        .rule(
            Rule::new("cidrs")
                .ip_saddr(false, Reg(0))
                .l4proto(Reg(1))
                .dport(Reg(2))
                .not_in_set(Reg(0), "cidrs")
                .discard(),
        )
        .rule(Rule::new("local").saddr_local().reject(Reject::AdminProhibited))
        .rule(
            Rule::new("log")
                .expr(Expr::Limit { rate: 10, unit: LimitUnit::Minute, burst: 5 })
                .expr(Expr::Log { prefix: "dropped ".into(), group: Some(5) }),
        )
        .rule(
            Rule::new("hash")
                .ip_saddr(false, Reg(0))
                .expr(Expr::Jhash { from: Reg(0), len: 4, modulus: 2, seed: 1, to: Reg(1) })
                .is(Reg(1), &1_u32.to_ne_bytes())
                .accept(),
        )
        .rule(
            Rule::new("range")
                .l4proto(Reg(0))
                .is(Reg(0), &[6])
                .dport(Reg(0))
                .expr(Expr::Range { inverted: false, from: Reg(0), low: vec![0, 80], high: vec![0, 90] })
                .accept(),
        )
        .rule(
            Rule::new("original")
                .expr(original(CtKey::DstIp, Reg(0)))
                .in_set(Reg(0), "plain")
                .reject(Reject::PortUnreachable),
        )
        .rule(Rule::new("forget").ip_saddr(false, Reg(0)).meta(MetaKey::Mark, Reg(1)).expr(Expr::DynSet {
            set: "seen".into(),
            op: DynSetOp::Delete,
            key: Reg(0),
            data: Some(Reg(1)),
            timeout_ms: None,
        }))
        .rule(
            Rule::new("tcp")
                .l4proto(Reg(0))
                .is(Reg(0), &[6])
                .dport(Reg(0))
                .in_set(Reg(0), "ports")
                .reject(Reject::TcpReset),
        )
        .rule(
            Rule::new("mark")
                .meta(MetaKey::Mark, Reg(0))
                .map(Reg(0), "marks", Reg(1))
                .expr(Expr::SetMeta { key: MetaKey::Mark, from: Reg(1) }),
        )
}

#[test]
fn every_kind_of_object_is_accepted_and_found_unchanged() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        let table = everything();
        assert!(reconcile(&mut nft, &table).operations > 20);
        assert_eq!(reconcile(&mut nft, &table), Applied::default(), "the second time there is nothing to do");
    });
}

#[test]
fn nft_lists_what_was_made() {
    in_namespace(|| {
        reconcile(&mut Nft::open().unwrap(), &everything());
        let list = run("nft list table ip trestle-test");
        println!("{list}");
        for expected in [
            "elements = { 10.0.0.1 }",
            "10.0.0.0/24, 10.0.1.0-10.0.1.9",
            "10.1.0.0/16 . tcp . 80-89",
            "typeof @nh,0,128 : meta mark",
            "0xa010000070000000600000000500000-0xa010000070000000600000000590000 : 0x00000050",
            "10.96.0.1 . tcp . 80 . 0x00000002 : 10.2.0.1 . 8080",
            "10.96.0.1 . udp . 53 : goto pick",
            "\"eth0\" : jump inspect",
            "0x00000007 : 0x00001234",
            "ip daddr . meta l4proto . th dport vmap @verdicts",
            "masquerade fully-random",
            "update @seen",
            "ct original ip daddr @plain reject",
            "comment \"trestle: ",
        ] {
            assert!(list.contains(expected), "{expected} is not in\n{list}");
        }
        let json: serde_json::Value = serde_json::from_str(&run("nft -j list ruleset")).unwrap();
        assert!(json["nftables"].as_array().unwrap().len() > 20);
    });
}

#[test]
fn a_difference_is_repaired_and_nothing_else_is_touched() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        let mut table = everything();
        reconcile(&mut nft, &table);
        run("nft add table ip foreign; nft add chain ip foreign c; nft add rule ip foreign c accept");
        let foreign = run("nft -a list table ip foreign");
        run("nft flush chain ip trestle-test forward
             nft add element ip trestle-test plain { 9.9.9.9 }
             nft delete element ip trestle-test verdicts { 10.96.0.2 . udp . 53 }
             nft delete element ip trestle-test ranges { 10.0.1.0-10.0.1.9 }
             nft insert rule ip trestle-test post accept
             nft add chain ip trestle-test stray
             nft add set ip trestle-test strange '{ type ether_addr; }'");
        assert!(reconcile(&mut nft, &table).operations > 6);
        assert_eq!(reconcile(&mut nft, &table), Applied::default());
        let list = run("nft list table ip trestle-test");
        assert!(!list.contains("9.9.9.9") && !list.contains("stray") && !list.contains("strange"), "{list}");

        table
            .sets
            .get_mut("ranges")
            .unwrap()
            .insert(address("10.0.0.0"), Element::member().until(address("10.0.0.127")));
        table.sets.get_mut("endpoints").unwrap().insert(
            address("10.96.0.1").proto(6).port(80).mark(2),
            Element::value(address("10.2.0.2").port(1)),
        );
        assert_eq!(reconcile(&mut nft, &table).weight, 6, "a value and a range, each deleted and added");
        assert!(run("nft list set ip trestle-test ranges").contains("10.0.0.0/25, 10.0.1.0-10.0.1.9"));
        assert_eq!(foreign, run("nft -a list table ip foreign"));
    });
}

#[test]
fn a_set_of_another_shape_is_made_anew_under_the_rules_that_use_it() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        let mut table = everything();
        reconcile(&mut nft, &table);
        let mut wider = Set::new(SetSchema::set([FieldType::Ipv4]).interval());
        wider.insert(address("10.0.0.1"), Element::member().until(address("10.0.0.1")));
        table.set("plain", wider);
        table.chain(
            "post",
            Chain::base(ChainKind::Nat, Hook::Postrouting, 110, Policy::Accept).rule(masquerade()),
        );
        reconcile(&mut nft, &table);
        assert_eq!(reconcile(&mut nft, &table), Applied::default());
        assert!(run("nft list set ip trestle-test plain").contains("flags interval"));
    });
}

#[test]
fn a_table_of_our_name_that_is_not_ours_is_left_alone() {
    in_namespace(|| {
        run("nft add table ip trestle-test; nft add chain ip trestle-test theirs");
        let mut nft = Nft::open().unwrap();
        let error = nft.reconcile(&everything(), Live::Atomic, Limits::default()).unwrap_err();
        assert!(matches!(error, ReconcileError::Foreign(_)), "{error}");
        assert!(nft.delete(&TableId::new(Family::Ip, "trestle-test")).is_err());
        assert!(run("nft list table ip trestle-test").contains("theirs"));
    });
}

#[test]
fn a_refused_operation_is_named_and_nothing_of_its_transaction_is_done() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        let id = TableId::new(Family::Ip, "trestle-test");
        let broken = Rule::new("names a set that is not there")
            .ip_saddr(false, Reg(0))
            .in_set(Reg(0), "absent")
            .accept();
        let ops = vec![
            Op::AddTable,
            Op::AddChain { name: "c".into(), base: None },
            Op::AddRule { chain: "c".into(), rule: broken },
            Op::AddChain { name: "d".into(), base: None },
        ];
        let error = nft.commit(&id, &Transaction { ops }).unwrap_err();
        let CommitError::Refused { index, refusal, .. } = &error else { panic!("{error}") };
        assert_eq!((*index, refusal.errno), (Some(2), 2));
        assert!(error.to_string().contains("names a set that is not there"), "{error}");
        assert!(nft.read(&id).unwrap().is_none());
    });
}

#[test]
fn a_large_set_goes_in_by_chunks_and_comes_back_whole() {
    in_namespace(|| {
        let mut nft = Nft::open().unwrap();
        let mut table = Table::new(Family::Ip6, "trestle-test");
        let mut set = Set::new(SetSchema::set([FieldType::Ipv6]));
        for number in 0..50_000_u128 {
            set.insert(Key::new().address(std::net::Ipv6Addr::from(number << 16).into()), Element::member());
        }
        table.set("many", set);
        let before = nft.generation().unwrap();
        let applied = reconcile(&mut nft, &table);
        let least = 50_000_usize.div_ceil(Limits::default().elements);
        assert!((least..=least + 2).contains(&applied.transactions), "{applied:?}");
        assert_eq!(nft.generation().unwrap() - before, u32::try_from(applied.transactions).unwrap());
        let read = nft.read(&TableId::of(&table)).unwrap().unwrap();
        assert_eq!(read.sets["many"].elements.len(), 50_000);
        assert_eq!(reconcile(&mut nft, &table), Applied::default());
        assert!(nft.delete(&TableId::of(&table)).unwrap());
        assert!(!nft.delete(&TableId::of(&table)).unwrap());
    });
}
