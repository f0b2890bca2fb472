//! The watch API as node agents use it, against a whole controller.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod client;
mod crowd;
mod questions;
mod restart;

use std::time::Duration;

use client::{API, Call, PROTOBUF, apply, node_token, pod, shop};
use http::StatusCode;
use prost::Message as _;
use serde_json::{Value, json};
use testkit_controllers::controller::Fixture;
use watch::proto;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_told_what_its_node_needs_and_every_change_of_it() {
    let fixture = Fixture::start().await;
    apply(&fixture, &shop()).await;
    let call = Call { fixture: &fixture, token: Some(&fixture.token), accept: PROTOBUF };
    let watch = |resource: &str, node: &str| format!("{resource}?fieldSelector=nodeName%3D{node}&watch=true");
    let mut policies = call.watch(&watch("networkpolicies", "node-2")).await;
    let mut applied_to = call.watch(&watch("appliedtogroups", "node-2")).await;
    let mut address = call.watch(&watch("addressgroups", "node-2")).await;
    let mut elsewhere = call.watch(&watch("addressgroups", "node-1")).await;
    let mut egress = call.watch(&watch("egressgroups", "node-2")).await;

    let policy = proto::NetworkPolicy::decode(&*policies.expect("ADDED", "NetworkPolicy").await).unwrap();
    assert_eq!(policy.source_ref.unwrap().kind, "K8sNetworkPolicy");
    let group = proto::AppliedToGroup::decode(&*applied_to.expect("ADDED", "AppliedToGroup").await).unwrap();
    assert_eq!(group.group_members[0].pod.as_ref().unwrap().name, "db-0");
    let group = proto::AddressGroup::decode(&*address.expect("ADDED", "AddressGroup").await).unwrap();
    assert_eq!(group.group_members[0].ips, [std::net::Ipv4Addr::new(10, 10, 1, 5).to_ipv6_mapped().octets()]);
    for (stream, kind) in [
        (&mut policies, "NetworkPolicy"),
        (&mut applied_to, "AppliedToGroup"),
        (&mut address, "AddressGroup"),
        (&mut elsewhere, "AddressGroup"),
        (&mut egress, "EgressGroup"),
    ] {
        stream.expect("BOOKMARK", kind).await;
    }

    apply(&fixture, &[pod("web-2", "web", "node-1", "10.10.1.6")]).await;
    let patch = proto::AddressGroupPatch::decode(&*address.expect("MODIFIED", "AddressGroupPatch").await);
    let patch = patch.unwrap();
    assert_eq!((patch.added_group_members.len(), patch.removed_group_members.len()), (1, 0));

    // The database moves: its node changes hands.
    apply(&fixture, &[pod("db-0", "db", "node-1", "10.10.2.7")]).await;
    elsewhere.expect("ADDED", "AddressGroup").await;
    address.expect("DELETED", "AddressGroup").await;
    applied_to.expect("DELETED", "AppliedToGroup").await;
    let gone = proto::NetworkPolicy::decode(&*policies.expect("DELETED", "NetworkPolicy").await).unwrap();
    assert!(gone.source_ref.is_some());
    fixture.stop().await;
    assert!(policies.next().await.is_none(), "a stop ends streams cleanly");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_sees_and_reports_for_itself_only() {
    let fixture = Fixture::start().await;
    apply(&fixture, &shop()).await;
    let token = node_token(&fixture, "node-2").await;
    let node = Call { fixture: &fixture, token: Some(&token), accept: "application/json" };
    let status = async |path: &str| node.json("GET", path, Value::Null).await;
    let list = |fields: &str| format!("{API}/networkpolicies{fields}");
    let (code, policies) = status(&list("?fieldSelector=nodeName=node-2")).await;
    assert_eq!(code, StatusCode::OK);
    let uid = policies["items"][0]["metadata"]["uid"].as_str().unwrap().to_owned();
    for fields in ["", "?watch=1", "?fieldSelector=nodeName=node-1", "?watch=1&fieldSelector=nodeName=node-1"]
    {
        let (code, body) = status(&list(fields)).await;
        assert_eq!((code, &body["reason"]), (StatusCode::FORBIDDEN, &json!("Forbidden")), "{fields}");
    }
    // Not even by name.
    let stranger = node_token(&fixture, "node-1").await;
    let stranger = Call { fixture: &fixture, token: Some(&stranger), accept: "application/json" };
    assert_eq!(status(&list(&format!("/{uid}"))).await.0, StatusCode::OK);
    assert_eq!(stranger.json("GET", &list(&format!("/{uid}")), Value::Null).await.0, StatusCode::NOT_FOUND);

    let report = |node: &str, failure: bool| {
        let status = json!({ "nodeName": node, "generation": 1, "realizationFailure": failure, "message": "no table" });
        json!({ "metadata": { "name": uid }, "nodes": [status] })
    };
    let path = list(&format!("/{uid}/status"));
    assert_eq!(stranger.json("POST", &path, report("node-2", false)).await.0, StatusCode::FORBIDDEN);
    // True, but of a node that does not have the policy: not counted.
    assert_eq!(stranger.json("POST", &path, report("node-1", false)).await.0, StatusCode::CREATED);
    let phase = async || fixture.rest("GET", "/policies", "").await.1[0].clone();
    assert_eq!(phase().await["phase"], "Realizing");
    assert_eq!(node.json("POST", &path, report("node-2", true)).await.0, StatusCode::CREATED);
    let failed = phase().await;
    assert_eq!((&failed["phase"], &failed["failures"][0]["message"]), (&json!("Failed"), &json!("no table")));
    assert_eq!(node.json("POST", &path, report("node-2", false)).await.0, StatusCode::CREATED);
    assert_eq!(phase().await["phase"], "Realized");

    let counted = json!([{
        "networkPolicy": { "type": "K8sNetworkPolicy", "namespace": "shop", "name": "db", "uid": uid },
        "trafficStats": { "packets": 3, "bytes": 300, "sessions": 1 },
    }]);
    let stats = |name: &str| json!({ "kind": "NodeStatsSummary", "metadata": { "name": name }, "networkPolicies": counted });
    let path = format!("{API}/nodestatssummaries");
    assert_eq!(node.json("POST", &path, stats("node-2")).await, (StatusCode::CREATED, stats("node-2")));
    assert_eq!(node.json("POST", &path, stats("node-1")).await.0, StatusCode::FORBIDDEN);
    let admin = Call { fixture: &fixture, token: Some(&fixture.token), accept: "application/json" };
    let stats = "/apis/stats.antrea.io/v1alpha1";
    let (_, kinds) = admin.json("GET", stats, Value::Null).await;
    assert_eq!(kinds["resources"][0]["name"], "networkpolicystats");
    let listed = format!("{stats}/namespaces/shop/networkpolicystats");
    let (code, counts) = admin.json("GET", &listed, Value::Null).await;
    assert_eq!((code, &counts["kind"]), (StatusCode::OK, &json!("NetworkPolicyStatsList")));
    let name = counts["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let (_, one) = admin.json("GET", &format!("{listed}/{name}"), Value::Null).await;
    assert_eq!(one["trafficStats"], json!({ "packets": 3, "bytes": 300, "sessions": 1 }));
    assert_eq!(admin.json("GET", &format!("{listed}/none"), Value::Null).await.0, StatusCode::NOT_FOUND);
    let watched = format!("{listed}?watch=true");
    assert_eq!(admin.json("GET", &watched, Value::Null).await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(node.json("GET", &listed, Value::Null).await.0, StatusCode::FORBIDDEN);

    // An external node's key has a slash, which a caller's name has not.
    let external = node_token(&fixture, "vms_vm-1").await;
    let external = Call { fixture: &fixture, token: Some(&external), accept: "application/json" };
    let (code, _) = external.json("GET", &list("?fieldSelector=nodeName%3Dvms%2Fvm-1"), Value::Null).await;
    assert_eq!(code, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_get_a_kubernetes_status() {
    let fixture = Fixture::start().await;
    let call = |accept| Call { fixture: &fixture, token: Some(&fixture.token), accept };
    for (method, path, code, reason) in [
        ("GET", "/addressgroups?fieldSelector=foo%3Dbar", 400, "BadRequest"),
        ("GET", "/addressgroups?fieldSelector=%FF%00&watch=1", 400, "BadRequest"),
        ("GET", "/addressgroups?labelSelector=a%3Db", 400, "BadRequest"),
        ("GET", "/addressgroups?watch=perhaps", 400, "BadRequest"),
        ("GET", "/addressgroups?watch=1&sendInitialEvents=true", 422, "Invalid"),
        ("GET", "/addressgroups?watch=1&resourceVersion=7", 410, "Expired"),
        ("GET", "/addressgroups/none", 404, "NotFound"),
        ("GET", "/nonsense", 404, "NotFound"),
        ("DELETE", "/addressgroups", 405, "MethodNotAllowed"),
        ("POST", "/networkpolicies/x/status", 400, "BadRequest"),
    ] {
        let (status, body) =
            call("application/json").json(method, &format!("{API}{path}"), Value::Null).await;
        assert_eq!((status.as_u16(), &body["reason"]), (code, &json!(reason)), "{method} {path}: {body}");
        assert_eq!((&body["kind"], &body["status"]), (&json!("Status"), &json!("Failure")));
    }
    let (status, _) = call("text/html").json("GET", &format!("{API}/addressgroups"), Value::Null).await;
    assert_eq!(status, StatusCode::NOT_ACCEPTABLE);
    let nobody = Call { fixture: &fixture, token: None, accept: "application/json" };
    let (status, body) = nobody.json("GET", &format!("{API}/addressgroups"), Value::Null).await;
    assert_eq!((status, &body["reason"]), (StatusCode::UNAUTHORIZED, &json!("Unauthorized")));
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(nobody.json("GET", path, Value::Null).await.0, StatusCode::OK, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_it_was_asked_to_and_readers_that_vanish_are_forgotten() {
    let fixture = Fixture::start().await;
    let call = Call { fixture: &fixture, token: Some(&fixture.token), accept: PROTOBUF };
    let mut short = call.watch("addressgroups?watch=true&timeoutSeconds=1").await;
    short.expect("BOOKMARK", "AddressGroup").await;
    assert!(short.next().await.is_none());

    let mut readers = Vec::new();
    for _ in 0..40 {
        readers.push(call.watch("networkpolicies?watch=true").await);
    }
    assert_eq!(watchers(&fixture).await, "trestle_watch_watchers 40");
    drop(readers);
    for _ in 0..100 {
        if watchers(&fixture).await == "trestle_watch_watchers 0" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{}", watchers(&fixture).await);
}

async fn watchers(fixture: &Fixture) -> String {
    let (_, _, body) = fixture.rest_as(Some(&fixture.token), "GET", "/metrics", "").await;
    let text = String::from_utf8(body.to_vec()).unwrap();
    text.lines().find(|line| line.starts_with("trestle_watch_watchers")).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_delays_nobody_and_catches_up() {
    let fixture = Fixture::start().await;
    apply(&fixture, &shop()).await;
    let call = Call { fixture: &fixture, token: Some(&fixture.token), accept: PROTOBUF };
    let mut lazy = call.watch("addressgroups?watch=true").await;
    let mut eager = call.watch("addressgroups?watch=true").await;
    for stream in [&mut lazy, &mut eager] {
        stream.expect("ADDED", "AddressGroup").await;
        stream.expect("BOOKMARK", "AddressGroup").await;
    }
    for round in 0..40 {
        let pods: Vec<_> = (0..250)
            .map(|n| pod(&format!("web-{n}"), "web", "node-1", &format!("10.{}.{}.9", round + 20, n)))
            .collect();
        apply(&fixture, &pods).await;
        eager.expect("MODIFIED", "AddressGroupPatch").await;
    }
    // Applied to what it had, what it is told now gives the present, whether in forty patches or in one.
    let mut members = std::collections::BTreeSet::from([Vec::from(
        std::net::Ipv4Addr::new(10, 10, 1, 5).to_ipv6_mapped().octets(),
    )]);
    let last = Vec::from(std::net::Ipv4Addr::new(10, 59, 249, 9).to_ipv6_mapped().octets());
    while !members.contains(&last) {
        let patch = lazy.expect("MODIFIED", "AddressGroupPatch").await;
        let patch = proto::AddressGroupPatch::decode(&*patch).unwrap();
        members.extend(patch.added_group_members.into_iter().flat_map(|member| member.ips));
        for ip in patch.removed_group_members.iter().flat_map(|member| &member.ips) {
            assert!(members.remove(ip));
        }
    }
    assert_eq!(members.len(), 250);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_the_same_is_told_and_old_revisions_are_expired() {
    let fixture = Fixture::start().await;
    apply(&fixture, &shop()).await;
    let list = format!("{API}/addressgroups");
    let read = async |fixture: &Fixture, path: &str| {
        let call = Call { fixture, token: Some(&fixture.token), accept: "application/json" };
        call.json("GET", path, Value::Null).await
    };
    let (_, before) = read(&fixture, &list).await;
    let revision = before["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let resumed = format!("{list}?watch=1&timeoutSeconds=1&resourceVersion={revision}");
    assert_eq!(read(&fixture, &resumed).await, (StatusCode::OK, Value::Null), "nothing new");
    let fixture = Fixture::start_in(fixture.stop().await, |_| {}).await;
    let (_, after) = read(&fixture, &list).await;
    assert_eq!(before["items"], after["items"]);
    assert_eq!(read(&fixture, &resumed).await.0, StatusCode::GONE);
}
