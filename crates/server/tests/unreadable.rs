//! A stored object that this version cannot read opens nothing, is told, and can be replaced and deleted.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use serde_json::{Value, json};
use store::{Key, Transaction, embedded};
use tempfile::TempDir;
use testkit_controllers::controller::Fixture;
use wire::trestle::v1::{
    ApplyObjectsRequest, DeleteObjectsRequest, ExplainRequest, GetStatusRequest, ListPoliciesRequest,
    ObjectRef, admin_client::AdminClient, objects_client::ObjectsClient, policies_client::PoliciesClient,
};

fn policy() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "db"},
        "spec": {"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{"ports": [{"port": 5432}]}]},
    })
}

fn pod(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": "n1"}, "status": {"podIP": address, "podIPs": [{"ip": address}]},
    })
}

async fn apply(fixture: &Fixture, documents: &[Value]) {
    let documents = documents.iter().map(|document| document.to_string().into_bytes()).collect();
    let request = ApplyObjectsRequest { documents, ..ApplyObjectsRequest::default() };
    ObjectsClient::new(fixture.admin().await).apply_objects(request).await.unwrap();
}

/// Changes the stored policy as a later version might have written it.
async fn make_unreadable(dir: &TempDir) {
    let store = embedded::Options::new(dir.path().join("store")).open().unwrap();
    let key: Key = "objects/NetworkPolicy/default/db".parse().unwrap();
    let entry = store.get(&key).await.unwrap().unwrap();
    let mut value: Value = serde_json::from_slice(&entry.value).unwrap();
    value["document"]["spec"]["ingress"][0]["ports"][0]["port"] = json!({"first": 5432, "last": 5433});
    store.transact(Transaction::new().put(key, value.to_string())).await.unwrap();
}

async fn attention(fixture: &Fixture) -> Vec<String> {
    let status = AdminClient::new(fixture.admin().await).get_status(GetStatusRequest {}).await.unwrap();
    assert!(status.get_ref().ready);
    status.into_inner().attention
}

async fn is_open(fixture: &Fixture, port: u32) -> bool {
    let request = ExplainRequest {
        source: "default/web".into(),
        destination: "default/db".into(),
        protocol: "tcp".into(),
        port: Some(port),
        ..Default::default()
    };
    let explained = PoliciesClient::new(fixture.admin().await).explain(request).await.unwrap();
    explained.into_inner().allowed
}

async fn problems(fixture: &Fixture) -> String {
    let policies =
        PoliciesClient::new(fixture.admin().await).list_policies(ListPoliciesRequest::default()).await;
    let policies = policies.unwrap().into_inner().policies;
    assert_eq!(policies.len(), 1, "the policy is still there");
    policies[0].problems.iter().map(|problem| problem.message.clone()).collect()
}

async fn unreadable() -> Fixture {
    let fixture = Fixture::start().await;
    apply(&fixture, &[pod("db", "10.1.0.1"), pod("web", "10.1.0.2"), policy()]).await;
    assert!(is_open(&fixture, 5432).await && !is_open(&fixture, 80).await);
    let dir = fixture.stop().await;
    make_unreadable(&dir).await;
    Fixture::start_in(dir, |_| {}).await
}

#[tokio::test]
async fn an_unreadable_policy_closes_what_it_selects_and_is_told() {
    let fixture = unreadable().await;
    assert!(!is_open(&fixture, 5432).await && !is_open(&fixture, 80).await);
    let told = attention(&fixture).await;
    assert!(
        told.len() == 1 && told[0].contains("NetworkPolicy default/db") && told[0].contains("closes"),
        "{told:?}"
    );
    assert!(problems(&fixture).await.contains("cannot be read"));

    // As it was, it is applied again.
    apply(&fixture, &[policy()]).await;
    assert!(is_open(&fixture, 5432).await && !is_open(&fixture, 80).await);
    assert_eq!(attention(&fixture).await, Vec::<String>::new());
    assert_eq!(problems(&fixture).await, "");
}

#[tokio::test]
async fn an_unreadable_policy_can_be_deleted() {
    let fixture = unreadable().await;
    let object = ObjectRef { kind: "NetworkPolicy".into(), namespace: "default".into(), name: "db".into() };
    let request = DeleteObjectsRequest { objects: vec![object], ..Default::default() };
    ObjectsClient::new(fixture.admin().await).delete_objects(request).await.unwrap();
    assert!(is_open(&fixture, 80).await);
    assert_eq!(attention(&fixture).await, Vec::<String>::new());
}
