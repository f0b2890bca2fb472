//! The Struct schema against golden files: a change of it is a change of the contract.

use prost::Message as _;
use wire::trestle::v1::{NodeIpBlock, NodeNamedPort, node_rule};

use super::*;
use crate::transport::objects;

/// Debug text of a message, which names every key and value in order.
fn text_of(frames: &[Bytes]) -> String {
    let events = frames.iter().map(|frame| format!("{:#?}\n", Events::decode(&frame[5..]).unwrap()));
    events.collect()
}

fn golden(name: &str, frames: &[Bytes]) {
    let path = format!("{}/tests/golden/npm/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = text_of(frames);
    if std::env::var_os("TRESTLE_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{path}; TRESTLE_WRITE_GOLDEN=1 writes it anew if the change is meant");
}

fn members(members: Vec<SetMember>) -> Members {
    let change = objects::put_set(ObjectKind::AddressSet, "", members, ::transport::SpanChange::Everyone);
    let ::transport::Change::PutSet { members, .. } = change else { panic!() };
    members.into_iter().map(|member| (member.id, member.rest)).collect()
}

fn pod(name: &str) -> SetMember {
    SetMember { kind: 1, namespace: "shop".into(), name: name.into(), ..SetMember::default() }
}

#[test]
fn address_sets() {
    let both = vec![vec![10, 0, 0, 7], vec![0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]];
    let ports = vec![NodeNamedPort { name: "http".into(), port: 8080, protocol: NodeProtocol::Tcp.into() }];
    let member = SetMember { addresses: both, ports, ..pod("web-1") };
    let key = objects::key(ObjectKind::AddressSet, "3f1c");
    golden("address-set", &NpmDialect.set(&key, Hash(1), &members(vec![member])));
    golden("address-set-empty", &NpmDialect.set(&key, Hash(1), &Members::default()));
    golden("address-set-removed", &[NpmDialect.removal(&key).unwrap()]);
}

#[test]
fn applied_to_sets() {
    let key = objects::key(ObjectKind::AppliedToSet, "9a02");
    let member = SetMember { node: "node-1".into(), ..pod("web-1") };
    golden("applied-to-set", &NpmDialect.set(&key, Hash(1), &members(vec![member])));
}

#[test]
fn policies() {
    let key = objects::key(ObjectKind::Policy, "77e1");
    let ports = vec![
        NodePortMatch {
            protocol: NodeProtocol::Tcp.into(),
            port: Some(node_port_match::Port::Number(80)),
            end_port: Some(90),
            ..NodePortMatch::default()
        },
        NodePortMatch {
            protocol: NodeProtocol::Udp.into(),
            port: Some(node_port_match::Port::Named("dns".into())),
            ..NodePortMatch::default()
        },
    ];
    let rule = NodeRule {
        direction: node_rule::Direction::In.into(),
        action: node_rule::Action::Allow.into(),
        priority: -1,
        address_sets: vec!["3f1c".into()],
        ip_blocks: vec![NodeIpBlock { cidr: "10.0.0.0/8".into(), except: vec!["10.1.0.0/16".into()] }],
        ports,
        ..NodeRule::default()
    };
    let policy = NodePolicy {
        generation: 3,
        source_kind: "NetworkPolicy".into(),
        source_namespace: "shop".into(),
        source_name: "web".into(),
        tier_priority: Some(250),
        priority: Some(5.5),
        applied_to: vec!["9a02".into()],
        rules: vec![rule],
    };
    golden("policy", &NpmDialect.whole(&key, Hash(1), &policy.encode_to_vec().into()));
    golden("policy-removed", &[NpmDialect.removal(&key).unwrap()]);
    golden("flush", &[NpmDialect.flush(Revision(7), true), NpmDialect.flush(Revision(8), false)]);
}
