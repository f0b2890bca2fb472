//! Permissions through a whole controller: Pods that policies isolate, fake clouds, many at once, restarts, bad input.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use server::{CloudConfig, Config, PluginConfig};
use testkit_controllers::controller::Fixture;
use wire::trestle::v1::{
    AllowRequest, ApplyObjectsRequest, DenyRequest, objects_client::ObjectsClient,
    permissions_client::PermissionsClient,
};

fn clouds(config: &mut Config) {
    let cloud = |name: &str| CloudConfig { name: name.parse().unwrap(), plugin: PluginConfig::Fake {} };
    config.clouds = vec![cloud("a"), cloud("b")];
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: not within ten seconds");
}

async fn apply(fixture: &Fixture, objects: &[Value]) {
    let documents = objects.iter().map(|object| object.to_string().into_bytes()).collect();
    let request = ApplyObjectsRequest { documents, ..ApplyObjectsRequest::default() };
    ObjectsClient::new(fixture.admin().await).apply_objects(request).await.unwrap();
}

fn pod(name: &str, ip: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
        "spec": {"nodeName": "n1"}, "status": {"podIP": ip, "podIPs": [{"ip": ip}]}})
}

/// Everybody in the namespace is isolated in both directions.
fn isolated() -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "closed", "namespace": "shop"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}})
}

async fn verdict(fixture: &Fixture, from: &str, to: &str, port: u16) -> String {
    let path = format!("/explain?source={from}&destination={to}&port={port}");
    let (status, told) = fixture.rest("GET", &path, "").await;
    assert_eq!(status, StatusCode::OK, "{told}");
    told["verdict"].as_str().unwrap().to_owned()
}

fn asked(from: &str, to: &str, traffic: &[&str]) -> AllowRequest {
    AllowRequest {
        from: from.to_owned(),
        to: to.to_owned(),
        traffic: traffic.iter().map(ToString::to_string).collect(),
        ..AllowRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_isolated_open_for_what_is_allowed_and_for_nothing_else() {
    let fixture = Fixture::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let pods = [pod("web", "10.244.0.1"), pod("db", "10.244.0.2"), pod("liar", "10.244.0.9")];
    apply(&fixture, &[&[namespace, isolated()][..], &pods].concat()).await;
    let mut client = PermissionsClient::new(fixture.admin().await);
    let request = asked("shop/web", "pod:shop/db", &["tcp 5432"]);
    assert_eq!(verdict(&fixture, "shop/web", "shop/db", 5432).await, "denied");
    let planned = client.allow(AllowRequest { dry_run: true, ..request.clone() }).await.unwrap().into_inner();
    let rules = planned.permission.unwrap().rules;
    assert_eq!(
        rules.iter().map(|rule| (rule.at.as_str(), rule.r#as.as_str())).collect::<Vec<_>>(),
        [("pod:shop/web", "policy"), ("pod:shop/db", "policy")]
    );
    assert_eq!(verdict(&fixture, "shop/web", "shop/db", 5432).await, "denied", "nothing was done");

    let made = client.allow(request.clone()).await.unwrap().into_inner().permission.unwrap();
    until("it opens", async || verdict(&fixture, "shop/web", "shop/db", 5432).await == "allowed").await;
    for (from, to, port) in
        [("shop/web", "shop/db", 22), ("shop/db", "shop/web", 5432), ("shop/liar", "shop/db", 5432)]
    {
        assert_eq!(verdict(&fixture, from, to, port).await, "denied", "{from} {to} {port}");
    }
    let proof = client.prove(request.clone()).await.unwrap().into_inner();
    assert!(proof.allowed && proof.pairs.len() == 1, "{proof:?}");
    let (_, listed) = fixture.rest("GET", "/policies", "").await;
    assert_eq!(listed.as_array().unwrap().iter().filter(|one| one["name"] == made.name.as_str()).count(), 1);
    // The Pod is made anew, elsewhere: it is still the one that was named.
    apply(&fixture, &[pod("web", "10.244.7.7")]).await;
    assert_eq!(verdict(&fixture, "shop/web", "shop/db", 5432).await, "allowed");

    // Nothing of it is lost in a restart, and nothing is there twice.
    let dir = fixture.stop().await;
    let fixture = Fixture::start_in(dir, |_| {}).await;
    assert_eq!(
        verdict(&fixture, "shop/web", "shop/db", 5432).await,
        "allowed",
        "before the first caller is served"
    );
    let (_, listed) = fixture.rest("GET", "/permissions", "").await;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let mut client = PermissionsClient::new(fixture.admin().await);
    let deny = DenyRequest { name: made.name.clone(), ..DenyRequest::default() };
    client.deny(deny.clone()).await.unwrap();
    until("it closes", async || verdict(&fixture, "shop/web", "shop/db", 5432).await == "denied").await;
    assert_eq!(client.deny(deny).await.unwrap_err().code(), tonic::Code::NotFound);
    fixture.stop().await;
}

/// Many callers allow and deny the same and different things; what is stored in the end is what was said last of each.
#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_and_bad_input() {
    let fixture = Fixture::start_with(clouds).await;
    let description = |region: &str| json!({ "description": region }).to_string();
    for (cloud, name, region) in [("a", "web", "west"), ("b", "db", "east")] {
        let path = format!("/namespaces/default/clouds/{cloud}/resources/{name}?wait=true");
        until("its plugin answers", async || {
            fixture.rest("PUT", &path, &description(region)).await.0 == StatusCode::OK
        })
        .await;
    }
    let mut client = PermissionsClient::new(fixture.admin().await);
    let request = AllowRequest { build: true, ..asked("a.web", "b.db", &["tcp 80"]) };
    // Without leave nothing is built, and nothing is stored.
    let refused = client.allow(asked("a.web", "b.db", &["tcp 80"])).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert!(refused.message().contains("link default.a+default.b"), "{refused}");
    assert_eq!(fixture.rest("GET", "/permissions", "").await.1, json!([]));
    let mut callers = Vec::new();
    for _ in 0..8 {
        let (mut client, request) = (PermissionsClient::new(fixture.admin().await), request.clone());
        callers.push(tokio::spawn(async move {
            client.allow(request).await.map(|made| made.into_inner().job.is_some())
        }));
    }
    let mut began = 0;
    for caller in callers {
        began += usize::from(caller.await.unwrap().unwrap());
    }
    assert_eq!(began, 1, "one began it, the others were told that it is there");
    until("it is open", async || verdict(&fixture, "default.a.web", "default.b.db", 80).await == "allowed")
        .await;
    assert_eq!(verdict(&fixture, "default.a.web", "default.b.db", 81).await, "denied");
    let (_, listed) = fixture.rest("GET", "/permissions", "").await;
    let name = listed[0]["name"].as_str().unwrap().to_owned();
    // Denied by many at once: one does it, and the others are told that it is not there, or that somebody was quicker.
    let deny = DenyRequest { name: name.clone(), ..DenyRequest::default() };
    let (mut gone, mut callers) = (0, Vec::new());
    for _ in 0..4 {
        let (mut client, deny) = (PermissionsClient::new(fixture.admin().await), deny.clone());
        callers.push(tokio::spawn(async move { client.deny(deny).await.is_ok() }));
    }
    for caller in callers {
        gone += usize::from(caller.await.unwrap());
    }
    assert_eq!(gone, 1);
    until("it is closed", async || verdict(&fixture, "default.a.web", "default.b.db", 80).await == "denied")
        .await;
    assert_eq!(fixture.rest("GET", &format!("/permissions/{name}"), "").await.0, StatusCode::NOT_FOUND);

    let long = "x".repeat(10_000);
    for (from, to, traffic, code) in [
        ("", "", vec!["tcp 80"], "NOT_FOUND"),
        ("a.web", "b.nobody", vec!["tcp 80"], "NOT_FOUND"),
        ("a.web", "pod:shop/none", vec!["tcp 80"], "NOT_FOUND"),
        ("a.web", "tag:none", vec!["tcp 80"], "NOT_FOUND"),
        ("a.web", "b.db", vec![], "INVALID_ARGUMENT"),
        ("a.web", "b.db", vec!["tcp 80 90"], "INVALID_ARGUMENT"),
        ("a.web", "b.db", vec!["gre"], "INVALID_ARGUMENT"),
        ("a.web", "b.db", vec!["icmp 8"], "INVALID_ARGUMENT"),
        ("10.0.0.1", "10.0.0.2", vec!["tcp 80"], "INVALID_ARGUMENT"),
        ("a.web", "ip:10.0.0.0/99", vec!["tcp 80"], "INVALID_ARGUMENT"),
        ("a.web", "192.168.77.1", vec!["tcp 80"], "FAILED_PRECONDITION"),
        (long.as_str(), "b.db", vec![long.as_str()], "NOT_FOUND"),
        ("\u{0}\u{202e}", "b.db", vec!["tcp 80"], "NOT_FOUND"),
    ] {
        let body = json!({"from": from, "to": to, "traffic": traffic}).to_string();
        let (status, told) = fixture.rest("POST", "/permissions", &body).await;
        assert!(status.is_client_error() && told["code"] == code, "{from:.40} {to}: {status} {told}");
        assert!(told.to_string().len() < 1000, "{told}");
    }
    for body in
        ["", "{", "[]", r#"{"from":"a.web"}"#, r#"{"from":"a.web","to":"b.db","traffic":["any"],"sudo":1}"#]
    {
        assert_eq!(fixture.rest("POST", "/permissions", body).await.0, StatusCode::BAD_REQUEST, "{body}");
    }
    let (status, _, _) = fixture.rest_as(None, "POST", "/permissions", "{}".to_owned()).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(fixture.rest("GET", "/permissions", "").await.1, json!([]));
    fixture.stop().await;
}
