use model::policy::output::{Addresses, Identifier, MemberKind};
use proto::{Unknown, WatchEvent};

use super::*;
use crate::members::{AddressKey, Members};

const BOOKMARK: &str = concat!(
    "000000490a08424f4f4b4d41524b123d0a3b6b3873000a2e0a1e636f6e74726f6c706c616e652e616e747265612e696f2f76",
    "316265746132120c4164647265737347726f757012050a03320137",
);
const ADDED: &str = concat!(
    "000000b70a05414444454412ad010aaa016b3873000a2e0a1e636f6e74726f6c706c616e652e616e747265612e696f2f7631",
    "6265746132120c4164647265737347726f757012740a4c0a2430663437383966362d366632382d353434302d386164342d34",
    "36643861633237363634332a2430663437383966362d366632382d353434302d386164342d34366438616332373636343312",
    "240a100a057765622d30120764656661756c741a1000000000000000000000ffff0a000102",
);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pod(name: &str, address: &str) -> Arc<Member> {
    Arc::new(Member {
        kind: MemberKind::Pod,
        enforced: true,
        namespace: "default".into(),
        name: name.into(),
        addresses: Addresses::One(address.parse().unwrap()),
        ports: Box::default(),
        node: None,
    })
}

fn group(members: &[Arc<Member>]) -> Arc<Version> {
    let name = Identifier::parse("0f4789f6-6f28-5440-8ad4-46d8ac276643");
    let members = Members::<AddressKey>::default().with(members, &[]);
    Version::new(name.clone(), name, Content::Address(members))
}

/// The frames of a stream, taken apart.
fn split(mut bytes: &[u8]) -> Vec<WatchEvent> {
    let mut events = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        assert!(frame.len() < 9 << 20, "a frame of {} bytes", frame.len());
        events.push(WatchEvent::decode(frame).unwrap());
        bytes = rest;
    }
    events
}

fn object<T: prost::Message + Default>(event: &WatchEvent) -> (String, T) {
    let unknown = Unknown::decode(event.object.raw.strip_prefix(MAGIC).unwrap()).unwrap();
    assert_eq!(unknown.type_meta.api_version, API_VERSION);
    (unknown.type_meta.kind, T::decode(unknown.raw.as_slice()).unwrap())
}

#[test]
fn a_bookmark_is_byte_for_byte_the_reference_frame() {
    let frame = bookmark(Resource::AddressGroups, 7, false, Encoding::Protobuf);
    assert_eq!(hex(&frame), BOOKMARK);
}

#[test]
fn an_added_group_is_byte_for_byte_the_reference_frame() {
    let frame = added(&group(&[pod("web-0", "10.0.1.2")]), &None, Encoding::Protobuf);
    assert_eq!(hex(&frame), ADDED);
}

#[test]
fn addresses_have_sixteen_bytes_in_both_encodings() {
    let frame = added(&group(&[pod("web-0", "10.0.1.2")]), &None, Encoding::Json);
    let event: serde_json::Value = serde_json::from_slice(&frame).unwrap();
    assert_eq!(event["type"], "ADDED");
    assert_eq!(event["object"]["kind"], "AddressGroup");
    assert_eq!(event["object"]["groupMembers"][0]["ips"][0], "AAAAAAAAAAAAAP//CgABAg==");
}

#[test]
fn a_bookmark_is_marked_only_when_asked() {
    let frame = bookmark(Resource::NetworkPolicies, 7, true, Encoding::Protobuf);
    let (kind, policy) = object::<proto::NetworkPolicy>(&split(&frame)[0]);
    assert_eq!(kind, "NetworkPolicy");
    assert_eq!(policy.metadata.annotations[INITIAL_EVENTS_END], "true");
}

#[test]
fn a_group_too_large_for_a_frame_is_told_in_several() {
    let address = |n: u32| std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string();
    let members: Vec<_> = (0..250_000).map(|n| pod(&format!("pod-{n:06}"), &address(n))).collect();
    let frames = added(&group(&members), &None, Encoding::Protobuf);
    let events = split(&frames);
    assert!(events.len() > 1, "it fits into one frame: make it larger");
    let (kind, first) = object::<proto::AddressGroup>(&events[0]);
    assert_eq!((events[0].kind.as_str(), kind.as_str()), ("ADDED", "AddressGroup"));
    let mut count = first.group_members.len();
    for event in &events[1..] {
        let (kind, patch) = object::<proto::AddressGroupPatch>(event);
        assert_eq!((event.kind.as_str(), kind.as_str()), ("MODIFIED", "AddressGroupPatch"));
        assert!(patch.removed_group_members.is_empty());
        count += patch.added_group_members.len();
    }
    assert_eq!(count, members.len());

    let difference = Difference { added: Vec::new(), removed: members };
    let events = split(&group_modified(&group(&[]), &difference, &None, Encoding::Protobuf));
    let removed = events.iter().map(|event| object::<proto::AddressGroupPatch>(event).1);
    assert_eq!(removed.map(|patch| patch.removed_group_members.len()).sum::<usize>(), 250_000);
}
