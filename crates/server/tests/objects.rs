//! Objects over REST: what is stored, refused and tried before, and the map that comes of it.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use http::StatusCode;
use serde_json::{Value, json};
use testkit_controllers::controller::Fixture;

const SHOP: &str = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: shop, labels: {app: web}}, spec: {nodeName: n1}, status: {podIP: 10.9.0.1}}
- {apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop, labels: {app: web}}, spec: {nodeName: n1}, status: {podIP: 10.9.0.2}}
- {apiVersion: v1, kind: Pod, metadata: {name: db-0, namespace: shop, labels: {app: db}}, spec: {nodeName: n1}, status: {podIP: 10.9.1.1}}
- {apiVersion: v1, kind: Pod, metadata: {name: ci-0, namespace: tools, labels: {app: ci}}, spec: {nodeName: n1}, status: {podIP: 10.9.2.1}}
---
# nothing
";

const POLICY: &str = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]
";

async fn ok(fixture: &Fixture, method: &str, path: &str, body: &str) -> Value {
    let (status, told) = fixture.rest(method, path, body).await;
    assert_eq!(status, StatusCode::OK, "{method} {path}: {told}");
    told
}

fn outcomes(told: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let applied = told["applied"].as_array().unwrap();
    applied.iter().map(|one| (text(&one["object"]["name"]), text(&one["outcome"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_stored_as_they_are_over_grpc() {
    let fixture = Fixture::start().await;
    let told = ok(&fixture, "POST", "/objects", SHOP).await;
    assert_eq!(outcomes(&told).len(), 4);
    assert!(outcomes(&told).iter().all(|(_, outcome)| outcome == "created"), "{told}");
    assert_eq!(told.get("reach"), None);
    let again = ok(&fixture, "POST", "/objects", SHOP).await;
    assert!(outcomes(&again).iter().all(|(_, outcome)| outcome == "unchanged"), "{again}");
    let pods = ok(&fixture, "GET", "/objects?kind=Pod", "").await;
    assert_eq!(pods.as_array().unwrap().len(), 4);
    // As JSON too, and with the namespace that is meant when none is named.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lone"}}).to_string();
    let told = ok(&fixture, "POST", "/objects", &pod).await;
    assert_eq!(told["applied"][0]["object"], json!({"kind": "Pod", "namespace": "default", "name": "lone"}));
    let gone = ok(&fixture, "DELETE", "/objects?kind=Pod&name=lone&dry_run=true", "").await;
    assert_eq!(outcomes(&gone), [("lone".to_owned(), "deleted".to_owned())]);
    ok(&fixture, "DELETE", "/objects?kind=Pod&name=lone", "").await;
    let (status, told) = fixture.rest("DELETE", "/objects?kind=Pod&name=lone", "").await;
    assert_eq!((status, told["code"].as_str()), (StatusCode::NOT_FOUND, Some("NOT_FOUND")), "{told}");
    // Who did it to what is on record, and what was only tried says so.
    let log = ok(&fixture, "GET", "/audit?limit=50", "").await;
    let of = |operation: &str| -> Vec<&Value> {
        log.as_array().unwrap().iter().filter(|record| record["operation"] == operation).collect()
    };
    assert!(
        of("POST /objects").iter().any(|record| record["object"].as_str().unwrap().contains("shop/web-0"))
    );
    let deleted = of("DELETE /objects");
    assert!(deleted.iter().all(|record| record["object"] == "Pod default/lone"), "{deleted:?}");
    assert!(deleted.iter().any(|record| record["note"].as_str().unwrap_or_default().contains("dry run")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_stored_is_refused_whole_and_says_where() {
    let fixture = Fixture::start().await;
    let typo = POLICY.replace("policyTypes", "policyTyps");
    for (body, path, part) in [
        (typo.as_str(), "/objects", "policyTyps"),
        ("a: [1\nb: 2\n", "/objects", "line"),
        ("", "/objects", "no document"),
        ("kind: Nonsense\nmetadata: {name: a}\n", "/objects", "Nonsense"),
        ("kind: List\nitmes: []\n", "/objects", "items"),
        (POLICY, "/objects?reach=true", "dry_run"),
        (POLICY, "/objects?validate=perhaps", "perhaps"),
        (POLICY, "/objects?dryrun=true", "dryrun"),
    ] {
        let (status, told) = fixture.rest("POST", path, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {told}");
        assert!(told["detail"].as_str().unwrap().contains(part), "{part}: {told}");
    }
    // One bad document takes the good one with it.
    let (status, _) = fixture.rest("POST", "/objects", &format!("{POLICY}---{typo}")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(ok(&fixture, "GET", "/objects?kind=NetworkPolicy", "").await, json!([]));
    let warned = ok(&fixture, "POST", "/objects?validate=warn&dry_run=true", &typo).await;
    assert!(warned["warnings"][0].as_str().unwrap().contains("policyTyps"), "{warned}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_would_reach_whom_is_told_before_and_is_so_after() {
    let fixture = Fixture::start().await;
    ok(&fixture, "POST", "/objects", SHOP).await;
    let before = ok(&fixture, "GET", "/reachability?level=group", "").await;
    let tried = ok(&fixture, "POST", "/objects?dry_run=true&reach=true", POLICY).await;
    let changes = tried["reach"]["changes"].as_array().unwrap();
    let of = |from: &str| changes.iter().find(|change| change["from"] == from).unwrap();
    assert_eq!(changes.len(), 2, "{tried}");
    assert_eq!(tried["reach"]["level"], "group");
    let web = of("namespace:shop/web");
    assert_eq!(web["before"], json!({"pairs": 2, "open": 2, "partly": 0, "ports": "all"}));
    assert_eq!(web["after"], json!({"pairs": 2, "open": 0, "partly": 2, "ports": "tcp 5432"}));
    assert_eq!(of("namespace:tools/ci")["after"], json!({"pairs": 1, "open": 0, "partly": 0}));
    // Nothing was done.
    assert_eq!(ok(&fixture, "GET", "/reachability?level=group", "").await, before);
    ok(&fixture, "POST", "/objects", POLICY).await;
    let after = ok(&fixture, "GET", "/reachability?level=group", "").await;
    for change in changes {
        let at = |side: &str, id: &Value| {
            after[side].as_array().unwrap().iter().position(|group| group["id"] == *id).unwrap()
        };
        let (row, column) = (at("sources", &change["from"]), at("destinations", &change["to"]));
        assert_eq!(after["cells"][row][column], change["after"]);
    }
    // The same again changes nothing; to take it away opens what it closed.
    let again = ok(&fixture, "POST", "/objects?dry_run=true&reach=true", POLICY).await;
    assert_eq!(again["reach"]["changes"], json!([]));
    let path = "/objects?kind=NetworkPolicy&namespace=shop&name=db&dry_run=true&reach=true";
    let back = ok(&fixture, "DELETE", path, "").await;
    let back = back["reach"]["changes"].as_array().unwrap();
    assert_eq!(back.len(), 2);
    assert!(back.iter().all(|change| change["after"]["ports"] == "all"), "{back:?}");
    // A Pod that would come is told with whom it would reach, and not with whom it would not.
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: new-0, namespace: tools, labels: {app: new}}, status: {podIP: 10.9.2.9}}";
    let come = ok(&fixture, "POST", "/objects?dry_run=true&reach=true", pod).await;
    let after = |to: &str| {
        let changes = come["reach"]["changes"].as_array().unwrap();
        let found = changes.iter().find(|one| one["from"] == "namespace:tools/new" && one["to"] == to);
        found.map(|one| one["after"].clone())
    };
    assert_eq!(
        after("namespace:shop/web"),
        Some(json!({"pairs": 2, "open": 2, "partly": 0, "ports": "all"}))
    );
    assert_eq!(after("namespace:shop/db"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_map_tells_everything_there_is_and_what_is_not_usual() {
    let fixture = Fixture::start().await;
    ok(&fixture, "POST", "/objects", SHOP).await;
    ok(&fixture, "POST", "/objects", POLICY).await;
    let map = ok(&fixture, "GET", "/map", "").await;
    let ids = |list: &str| -> Vec<String> {
        map[list].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids("places"), ["namespace:shop", "namespace:tools"]);
    assert_eq!(ids("groups"), ["namespace:shop/db", "namespace:shop/web", "namespace:tools/ci"]);
    assert_eq!(map["groups"][1]["ends"], json!(["pod/shop/web-0", "pod/shop/web-1"]));
    let ways = map["group_ways"]["ways"].as_array().unwrap();
    let word = |from: usize, to: usize| {
        let way = ways.iter().find(|way| way[0] == from && way[1] == to);
        way.map(|way| map["words"][way[2].as_u64().unwrap() as usize].clone())
    };
    // So few agree that each says it for itself.
    assert_eq!(word(1, 0), Some(json!({"share": "some", "ports": "tcp 5432"})));
    assert_eq!(word(0, 1), Some(json!({"share": "all"})));
    assert_eq!(word(2, 0), None, "what is closed and not usual otherwise is no way");
    let udp = ok(&fixture, "GET", "/map?protocol=udp", "").await;
    assert_eq!(udp["protocol"], "udp");
    let around = ok(&fixture, "GET", "/map/around?id=pod/shop/db-0", "").await;
    assert_eq!(around["level"], "end");
    assert_eq!(around["into"][0]["peer"]["id"], "namespace:shop/web");
    assert_eq!(around["into"].as_array().unwrap().len(), 1, "{around}");
    assert_eq!(around["out"].as_array().unwrap().len(), 2);
    let place = ok(&fixture, "GET", "/map/around?id=namespace:tools", "").await;
    assert_eq!((place["level"].as_str(), place["others"].as_u64()), (Some("place"), Some(1)));
    let (status, _) = fixture.rest("GET", "/map/around?id=namespace:nowhere", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = fixture.rest("GET", "/map?protocol=carrier-pigeon", "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}
