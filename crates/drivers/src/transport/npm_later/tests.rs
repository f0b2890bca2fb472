//! What later clients are told, against files that Go has read: a change of them is a change of the contract.

use std::collections::BTreeMap;

use wire::trestle::v1::{NodeIpBlock, NodeNamedPort};

use super::*;
use crate::transport::objects;

fn payloads(frames: &[Bytes]) -> String {
    let mut text = String::new();
    for frame in frames {
        for (what, state) in Events::decode(&frame[5..]).unwrap().payload {
            text += &format!("{what} {}\n", common::hex(&state.data));
        }
    }
    text
}

fn golden(name: &str, frames: &[Bytes]) {
    let path = format!("{}/tests/golden/npm_later/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = payloads(frames);
    if std::env::var_os("TRESTLE_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{path}; labs/go reads such streams; TRESTLE_WRITE_GOLDEN=1 writes it anew");
}

fn members(members: Vec<SetMember>) -> Members {
    let change = objects::put_set(ObjectKind::AppliedToSet, "", members, ::transport::SpanChange::Everyone);
    let ::transport::Change::PutSet { members, .. } = change else { panic!("a set is put") };
    members.into_iter().map(|member| (member.id, member.rest)).collect()
}

fn pod(name: &str, addresses: Vec<Vec<u8>>) -> SetMember {
    let ports = vec![NodeNamedPort { name: "http".into(), port: 8080, protocol: NodeProtocol::Tcp.into() }];
    SetMember {
        kind: 1,
        namespace: "shop".into(),
        name: name.into(),
        addresses,
        node: "node-1".into(),
        ports,
    }
}

#[test]
fn a_set_is_a_list_of_parts_with_the_addresses_of_the_fourth_version() {
    let six = vec![0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    let key = objects::key(ObjectKind::AppliedToSet, "9a02");
    let both = members(vec![pod("web-1", vec![vec![10, 0, 0, 7], six])]);
    golden("set", &NpmLaterDialect.set(&key, Hash(1), &both));
    golden("set-empty", &NpmLaterDialect.set(&key, Hash(1), &Members::default()));
    golden("set-removed", &[NpmLaterDialect.removal(&key).unwrap()]);
}

#[test]
fn two_sets_of_one_name_are_two() {
    let said = |kind| {
        let key = objects::key(kind, "9a02");
        let set = payloads(&NpmLaterDialect.set(&key, Hash(1), &Members::default()));
        (set, payloads(&[NpmLaterDialect.removal(&key).unwrap()]))
    };
    let (to, of) = (said(ObjectKind::AppliedToSet), said(ObjectKind::AddressSet));
    assert!(to.0 != of.0 && to.1 != of.1);
}

#[test]
fn a_large_set_comes_in_parts_that_every_client_takes() {
    let key = objects::key(ObjectKind::AddressSet, "big");
    let many = (0..20_000_u32).map(|n| pod(&format!("p{n}"), vec![(0x0a00_0000 + n).to_be_bytes().into()]));
    let frames = NpmLaterDialect.set(&key, Hash(1), &members(many.collect()));
    assert_eq!(frames.len(), 4);
    assert!(frames.iter().all(|frame| frame.len() < 1 << 20));
}

fn rule(direction: Direction, action: Action) -> NodeRule {
    NodeRule { direction: direction.into(), action: action.into(), priority: -1, ..NodeRule::default() }
}

fn tcp(port: Port, end_port: Option<u32>) -> NodePortMatch {
    NodePortMatch {
        protocol: NodeProtocol::Tcp.into(),
        port: Some(port),
        end_port,
        ..NodePortMatch::default()
    }
}

fn say_policy(rules: Vec<NodeRule>, tier_priority: Option<i32>) -> ::transport::Frames {
    let policy = NodePolicy {
        source_namespace: "shop".into(),
        source_name: "web".into(),
        applied_to: vec!["9a02".into()],
        rules,
        tier_priority,
        ..NodePolicy::default()
    };
    let key = objects::key(ObjectKind::Policy, "77e1");
    NpmLaterDialect.whole(&key, Hash(1), &policy.encode_to_vec().into())
}

#[test]
fn a_policy_is_what_it_permits_and_a_drop_for_what_it_isolates() {
    let blocks = [("0.0.0.0/0", vec!["10.1.0.0/16", "fd00::/8"]), ("::/0", vec![])];
    let blocks = blocks.map(|(cidr, except)| NodeIpBlock {
        cidr: cidr.into(),
        except: except.into_iter().map(Into::into).collect(),
    });
    let allow = NodeRule {
        address_sets: vec!["3f1c".into()],
        ip_blocks: blocks.into(),
        ports: vec![tcp(Port::Number(80), Some(90)), tcp(Port::Named("http".into()), None)],
        ..rule(Direction::In, Action::Allow)
    };
    let frames = say_policy(vec![allow, rule(Direction::Out, Action::Unspecified)], None);
    golden("policy", &frames);
    let key = objects::key(ObjectKind::Policy, "77e1");
    golden("policy-removed", &[NpmLaterDialect.removal(&key).unwrap()]);
}

#[test]
fn what_has_no_word_permits_nothing_and_tiers_are_not_told() {
    let closed = payloads(&say_policy(vec![rule(Direction::In, Action::Unspecified)], None));
    let peers = || NodeRule { address_sets: vec!["3f1c".into()], ..rule(Direction::In, Action::Allow) };
    for rule in [
        NodeRule { ports: vec![tcp(Port::Named("http".into()), None)], ..peers() },
        NodeRule { untranslatable: vec!["l7Protocols".into()], ..peers() },
        NodeRule { fqdns: vec!["example.org".into()], ..peers() },
    ] {
        assert_eq!(payloads(&say_policy(vec![rule], None)), closed);
    }
    assert_ne!(payloads(&say_policy(vec![peers()], None)), closed);
    assert!(say_policy(vec![peers()], Some(250)).is_empty());
}

#[test]
fn blocks_of_everything_are_halves() {
    let texts = |cidr: &str, except: &[&str]| -> BTreeMap<String, ()> {
        let except: Vec<_> = except.iter().map(|&cidr| cidr.to_owned()).collect();
        let text = |value| match value {
            Value::Text(text) => (text, ()),
            _ => panic!("a block is a text"),
        };
        blocks(cidr, &except).into_iter().map(text).collect()
    };
    let said = |cidr: &str, except: &[&str]| texts(cidr, except).into_keys().collect::<Vec<_>>();
    assert_eq!(said("0.0.0.0/0", &[]), ["0.0.0.0/1", "128.0.0.0/1"]);
    assert_eq!(said("0.0.0.0/0", &["128.0.0.0/1"]), ["0.0.0.0/1", "128.0.0.0/1 nomatch"]);
    assert_eq!(said("10.0.0.0/8", &["10.1.0.0/16", "fd00::/8"]), ["10.0.0.0/8", "10.1.0.0/16 nomatch"]);
    assert!(said("::/0", &[]).is_empty());
}
