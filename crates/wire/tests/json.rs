//! Messages as JSON: what REST takes and answers, and `-o json` prints.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json, to_value};
use wire::{
    invisinetspb::PermitListRule,
    json::Link,
    tagservicepb::TagMapping,
    trestle::v1::{
        CertificateInfo, CreateTicketRequest, GetNodeResponse, JobInfo, LinkEnd, LinkInfo, NodeObject,
        NodeStatus, PolicyState, ResizeConsumerRequest, Role, TokenInfo, TokenKind,
    },
};

#[test]
fn numbers_are_words_and_times_are_times() {
    let role = Role::Viewer as i32;
    let token = TokenInfo { id: "i".into(), name: "n".into(), role, created_at: 0, ..TokenInfo::default() };
    let expected = json!({
        "id": "i", "name": "n", "role": "viewer", "kind": "token",
        "created": "1970-01-01T00:00:00Z", "expires": null,
    });
    assert_eq!(to_value(&token).unwrap(), expected);
    let session = TokenInfo { kind: TokenKind::Session as i32, expires_at: Some(60), role: 99, ..token };
    let session = to_value(&session).unwrap();
    let told = (&session["kind"], &session["expires"], &session["role"]);
    assert_eq!(told, (&json!("session"), &json!("1970-01-01T00:01:00Z"), &json!("role 99")));
    let certificate = to_value(CertificateInfo { not_after: 60, ..CertificateInfo::default() }).unwrap();
    assert_eq!(certificate["not_after"], "1970-01-01T00:01:00Z");
    assert_eq!(to_value(NodeObject { kind: 3, ..NodeObject::default() }).unwrap()["kind"], "policy");
}

#[test]
fn what_stands_for_none_is_null_or_left_out() {
    assert_eq!(to_value(JobInfo::default()).unwrap()["ended_at"], Value::Null);
    let ends = (Some(LinkEnd::default()), Some(LinkEnd { asn: 64512, ..LinkEnd::default() }));
    let link = Link::from(LinkInfo { a: ends.0, b: ends.1, ..LinkInfo::default() });
    let link = to_value(&link).unwrap();
    assert_eq!((&link["ends"][0]["asn"], &link["ends"][1]["asn"]), (&Value::Null, &64512.into()));
    assert_eq!(to_value(TagMapping::default()).unwrap(), json!({}));
    let policy = PolicyState { span: 3, places: vec!["n".into()], ..PolicyState::default() };
    assert_eq!(to_value(policy).unwrap()["span"], json!(["n"]));
    let status = Some(NodeStatus { name: "n".into(), ..NodeStatus::default() });
    let node = to_value(GetNodeResponse { status, objects: Vec::new() }).unwrap();
    assert_eq!((&node["name"], &node["objects"], node.get("last_end")), (&json!("n"), &json!([]), None));
}

#[track_caller]
fn refused<T: DeserializeOwned>(body: Value) {
    assert!(from_value::<T>(body.clone()).is_err(), "{body}");
}

#[test]
fn bodies_have_what_the_path_does_not_name_and_nothing_else() {
    let tag = json!({ "name": "t", "ip": "10.0.0.1" });
    assert_eq!(to_value(from_value::<TagMapping>(tag.clone()).unwrap()).unwrap(), tag);
    assert_eq!(from_value::<CreateTicketRequest>(json!({})).unwrap(), CreateTicketRequest::default());
    let resize: ResizeConsumerRequest = from_value(json!({ "capacity": "1Gi" })).unwrap();
    assert_eq!((resize.id.as_str(), resize.capacity.as_str()), ("", "1Gi"));
    refused::<TagMapping>(json!({ "tag_name": "t" }));
    refused::<CreateTicketRequest>(json!({ "life": 1 }));
    refused::<ResizeConsumerRequest>(json!({}));
    refused::<ResizeConsumerRequest>(json!({ "id": "x", "capacity": "1Gi" }));
    let rule: PermitListRule = from_value(json!({ "name": "r", "tags": ["t"], "ID": 1 })).unwrap();
    assert_eq!((rule.id.as_str(), rule.dst_port), ("r", 0), "clients of Paraglider send more than is known");
}
