//! Network policies that select resources of clouds: enforced as permit lists, reported, explained.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use server::{CloudConfig, PluginConfig};
use testkit_controllers::controller::Fixture;
use wire::trestle::v1::{
    ApplyObjectsRequest, DeleteObjectsRequest, ListPoliciesRequest, ObjectRef, PolicyState,
    objects_client::ObjectsClient, policies_client::PoliciesClient,
};

async fn two_clouds() -> Fixture {
    clouds_with("west").await
}

/// One cloud with a machine, and one with what a description is of.
async fn clouds_with(description: &str) -> Fixture {
    let cloud = |name: &str| CloudConfig { name: name.parse().unwrap(), plugin: PluginConfig::Fake {} };
    let fixture = Fixture::start_with(|config| config.clouds = vec![cloud("a"), cloud("b")]).await;
    for (cloud, name, description) in [("a", "web", "west"), ("b", "db", description)] {
        let path = format!("/namespaces/default/clouds/{cloud}/resources/{name}?wait=true");
        let body = json!({ "description": description }).to_string();
        let made = eventually(|| async {
            let (status, body) = fixture.rest("PUT", &path, &body).await;
            (status == StatusCode::OK).then_some(body)
        });
        made.await;
    }
    fixture
}

/// Clouds, policies and lists come to agree in their own time; ten seconds are ages.
async fn eventually<T, F: Future<Output = Option<T>>>(mut look: impl FnMut() -> F) -> T {
    for _ in 0..500 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not come to be");
}

async fn resource(fixture: &Fixture, cloud: &str, name: &str) -> Value {
    let path = format!("/namespaces/default/clouds/{cloud}/resources/{name}");
    fixture.rest("GET", &path, "").await.1
}

async fn permit_rule(fixture: &Fixture, on: &str, peer: &str, direction: u8) {
    let rule =
        json!({ "tags": [peer], "direction": direction, "protocol": 6, "src_port": -1, "dst_port": 5432 });
    let (cloud, name) = on.split_once('.').unwrap();
    let path = format!("/namespaces/default/clouds/{cloud}/resources/{name}/rules?wait=true");
    let (status, body) = fixture.rest("POST", &path, &rule.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{body}");
}

fn policy(action: &str) -> Value {
    json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy",
        "metadata": { "name": "db", "namespace": "default", "uid": "db-policy" },
        "spec": {
            "priority": 5,
            "appliedTo": [{ "externalEntitySelector": { "matchLabels": { "trestle.io/resource": "db" } } }],
            "ingress": [{
                "name": "web", "action": action,
                "from": [{ "externalEntitySelector": { "matchLabels": { "trestle.io/cloud": "a" } } }],
                "ports": [{ "protocol": "TCP", "port": 5432 }],
            }],
        },
    })
}

async fn apply(fixture: &Fixture, object: &Value) {
    let request = ApplyObjectsRequest {
        documents: vec![object.to_string().into_bytes()],
        ..ApplyObjectsRequest::default()
    };
    ObjectsClient::new(fixture.admin().await).apply_objects(request).await.unwrap();
}

async fn delete_policy(fixture: &Fixture) {
    let object =
        ObjectRef { kind: "AntreaNetworkPolicy".into(), namespace: "default".into(), name: "db".into() };
    let request = DeleteObjectsRequest { objects: vec![object], ..DeleteObjectsRequest::default() };
    ObjectsClient::new(fixture.admin().await).delete_objects(request).await.unwrap();
}

async fn explain(fixture: &Fixture) -> Value {
    let path = "/explain?source=default.a.web&destination=default.b.db&protocol=tcp&port=5432";
    let (status, body) = fixture.rest("GET", path, "").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body
}

async fn state(fixture: &Fixture) -> Option<PolicyState> {
    let mut client = PoliciesClient::new(fixture.admin().await);
    let policies = client.list_policies(ListPoliciesRequest::default()).await.unwrap().into_inner().policies;
    policies.into_iter().find(|policy| policy.name == "db")
}

async fn realized(fixture: &Fixture) {
    eventually(|| async { state(fixture).await.filter(|state| state.phase == "Realized") }).await;
}

/// A cluster is a block of addresses: rules name it, explain knows it by name and by any of its addresses. Policies see
/// addresses and no workload.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_permitted_and_explained_as_its_block() {
    let fixture = clouds_with("west cluster").await;
    let block = resource(&fixture, "b", "db").await["ip"].as_str().unwrap().to_owned();
    assert!(block.ends_with(".0.0/16"), "{block}");
    let before = explain(&fixture).await;
    assert_eq!(before["allowed"], false, "{before}");
    permit_rule(&fixture, "a.web", "default.b.db", 1).await;
    permit_rule(&fixture, "b.db", "default.a.web", 0).await;
    let explained = explain(&fixture).await;
    assert_eq!(explained["allowed"], true, "{explained}");
    assert_eq!(explained["destination"]["workloads"][0], "cluster default.b.db", "{explained}");
    assert_eq!(explained["destination"]["enforced_on"][0], "cloud/b", "{explained}");
    let pod = block.replace(".0.0/16", ".7.9");
    let path = format!("/explain?source=default.a.web&destination={pod}&protocol=tcp&port=5432");
    let (_, by_address) = fixture.rest("GET", &path, "").await;
    assert_eq!(by_address["allowed"], true, "{by_address}");
    let closed = format!("/explain?source=default.a.web&destination={pod}&protocol=tcp&port=22");
    assert_eq!(fixture.rest("GET", &closed, "").await.1["allowed"], false);
    // Nothing is selected by this policy, and nothing breaks.
    apply(&fixture, &policy("Drop")).await;
    assert_eq!(explain(&fixture).await["allowed"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_blocks_what_rules_permit_and_gives_it_back() {
    let fixture = two_clouds().await;
    let before = explain(&fixture).await;
    assert_eq!(before["allowed"], false, "{before}");
    assert_eq!(before["ingress"]["steps"].as_array().unwrap().last().unwrap()["outcome"], "drop");
    assert!(before["remedies"].to_string().contains("trestle rule add default.b.db --in"), "{before}");
    permit_rule(&fixture, "b.db", "default.a.web", 0).await;
    permit_rule(&fixture, "a.web", "default.b.db", 1).await;
    assert_eq!(explain(&fixture).await["allowed"], true);
    let open = resource(&fixture, "b", "db").await["permit_list"].clone();

    apply(&fixture, &policy("Drop")).await;
    realized(&fixture).await;
    let explained = explain(&fixture).await;
    assert_eq!(explained["allowed"], false, "{explained}");
    assert_eq!(explained["ingress"]["steps"][0]["outcome"], "drop", "{explained}");
    assert_eq!(resource(&fixture, "b", "db").await["permit_list"], json!([]));

    delete_policy(&fixture).await;
    eventually(|| async { (resource(&fixture, "b", "db").await["permit_list"] == open).then_some(()) }).await;
    assert_eq!(explain(&fixture).await["allowed"], true);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_opens_by_itself_and_a_restart_writes_nothing() {
    let fixture = two_clouds().await;
    apply(&fixture, &policy("Allow")).await;
    realized(&fixture).await;
    let db = resource(&fixture, "b", "db").await;
    let entry = &db["permit_list"][0];
    assert_eq!(entry["name"], "_policy.db-policy.0.6_any_5432-5432", "{db}");
    assert_eq!(entry["targets"], json!([resource(&fixture, "a", "web").await["ip"]]));
    // The other end's list is its own.
    let explained = explain(&fixture).await;
    assert_eq!(
        (&explained["ingress"]["allowed"], &explained["egress"]["allowed"]),
        (&json!(true), &json!(false))
    );
    // Somebody in the group changes: the list follows.
    let made = fixture
        .rest(
            "PUT",
            "/namespaces/default/clouds/a/resources/web2?wait=true",
            &json!({ "description": "west" }).to_string(),
        )
        .await;
    assert_eq!(made.0, StatusCode::OK, "{}", made.1);
    eventually(|| async {
        let db = resource(&fixture, "b", "db").await;
        (db["permit_list"][0]["targets"].as_array()?.len() == 2).then_some(())
    })
    .await;
    realized(&fixture).await;
    let list = resource(&fixture, "b", "db").await["permit_list"].clone();
    let modified = fixture.rest("GET", "/jobs", "").await.1;
    let dir = fixture.stop().await;

    // The same again: nothing is taken away or given meanwhile, or a job or a failure would tell.
    let cloud = |name: &str| CloudConfig { name: name.parse().unwrap(), plugin: PluginConfig::Fake {} };
    let fixture = Fixture::start_in(dir, |config| config.clouds = vec![cloud("a"), cloud("b")]).await;
    realized(&fixture).await;
    assert_eq!(resource(&fixture, "b", "db").await["permit_list"], list);
    assert_eq!(fixture.rest("GET", "/jobs", "").await.1, modified);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_list_cannot_say_stays_closed_and_is_told() {
    let fixture = two_clouds().await;
    let mut named = policy("Allow");
    named["spec"]["ingress"][0]["ports"] = json!([{ "protocol": "TCP", "port": "postgres" }]);
    apply(&fixture, &named).await;
    let failed = eventually(|| async {
        let state = state(&fixture).await?;
        (state.phase == "Failed").then_some(state)
    })
    .await;
    assert_eq!(failed.failures[0].node, "cloud/b");
    assert!(failed.failures[0].message.contains("names a port"), "{failed:?}");
    assert_eq!(resource(&fixture, "b", "db").await["permit_list"], json!([]));
    fixture.stop().await;
}

/// Whatever else is enforced meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_for_a_host_on_which_nobody_enforces_it_is_never_realized() {
    let fixture = two_clouds().await;
    let host = json!({
        "apiVersion": "crd.antrea.io/v1alpha1", "kind": "ExternalNode",
        "metadata": { "name": "vm", "namespace": "default", "labels": { "trestle.io/resource": "db" } },
        "spec": { "interfaces": [{ "ips": ["192.0.2.7"] }] },
    });
    apply(&fixture, &host).await;
    let on_host = json!([{ "externalEntitySelector": { "matchExpressions": [
        { "key": "trestle.io/resource", "operator": "Exists" },
        { "key": "trestle.io/cloud", "operator": "DoesNotExist" },
    ] } }]);
    let mut for_host = policy("Drop");
    for_host["metadata"]["name"] = json!("host");
    for_host["metadata"]["uid"] = json!("host-policy");
    for_host["spec"]["appliedTo"] = on_host.clone();
    // The same for the host and for a resource of a cloud, which the cloud does enforce.
    let mut for_both = policy("Drop");
    let applied_to = for_both["spec"]["appliedTo"].as_array_mut().unwrap();
    applied_to.push(on_host[0].clone());
    apply(&fixture, &for_host).await;
    apply(&fixture, &for_both).await;
    let states = || async {
        let mut client = PoliciesClient::new(fixture.admin().await);
        client.list_policies(ListPoliciesRequest::default()).await.unwrap().into_inner().policies
    };
    eventually(|| async {
        let both = states().await.into_iter().find(|policy| policy.name == "db")?;
        (both.span == 2 && both.realized == 1).then_some(())
    })
    .await;
    for _ in 0..10 {
        for policy in states().await {
            assert!(policy.phase == "Realizing" && policy.realized < policy.span, "{policy:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    fixture.stop().await;
}
