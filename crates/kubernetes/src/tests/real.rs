//! The same against a real API server, as the service account that [`rbac`](crate::rbac) describes. `make lab-kubernetes` starts one and
//! names its administrator's kubeconfig.

use std::{env, path::PathBuf};

use kube::{Client, Config, config::KubeConfigOptions, core::Request};
use model::policy::ObjectId;

use super::*;
use crate::{
    install::{
        Install, Installer,
        tests::{everything, install},
    },
    rbac,
};

const KUBECONFIG: &str = "TRESTLE_LAB_KUBECONFIG";

/// What an administrator does.
struct Administrator(Client);

impl Administrator {
    async fn of(kubeconfig: &kube::config::Kubeconfig) -> Self {
        let config =
            Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default()).await.unwrap();
        Self(Client::try_from(config).unwrap())
    }

    async fn create(&self, path: &str, object: &Value) -> Value {
        let request =
            Request::new(path).create(&Default::default(), object.to_string().into_bytes()).unwrap();
        match self.0.request(request).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Value::Null,
            answer => answer.unwrap_or_else(|err| panic!("{path}: {err}")),
        }
    }

    async fn delete(&self, path: &str, name: &str) {
        let request = Request::new(path).delete(name, &Default::default()).unwrap();
        let _: Result<Value, _> = self.0.request(request).await;
    }
}

fn definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusternetworkpolicies.policy.networking.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": "policy.networking.k8s.io", "scope": "Cluster",
                 "names": {"kind": "ClusterNetworkPolicy", "plural": "clusternetworkpolicies", "singular": "clusternetworkpolicy"},
                 "versions": [{"name": "v1alpha2", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}]}})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an API server: make lab-kubernetes"]
async fn a_real_api_server_is_read_and_told_with_no_more_rights_than_are_asked_for() {
    let path =
        PathBuf::from(env::var_os(KUBECONFIG).unwrap_or_else(|| panic!("{KUBECONFIG} names no kubeconfig")));
    let mut kubeconfig = kube::config::Kubeconfig::read_from(&path).unwrap();
    let admin = Administrator::of(&kubeconfig).await;
    admin
        .delete(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "clusternetworkpolicies.policy.networking.k8s.io",
        )
        .await;
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "trestle"}})).await;
    for document in rbac::documents("trestle", "trestle") {
        let path = match document["kind"].as_str().unwrap() {
            "ServiceAccount" => "/api/v1/namespaces/trestle/serviceaccounts",
            "ClusterRole" => "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            _ => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        };
        admin.create(path, &document).await;
    }
    let token =
        admin.create("/api/v1/namespaces/trestle/serviceaccounts/trestle/token", &json!({"spec": {}})).await;
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = serde_json::from_value(json!({"token": token["status"]["token"]})).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("kubeconfig");
    std::fs::write(&own, serde_json::to_string(&kubeconfig).unwrap()).unwrap();

    let mut reader = Reader::at(Access { kubeconfig: Some(own), context: None }, dir);
    let service = (Kind::Service, "kubernetes".to_owned());
    reader.until("it is known", |it| it.cluster.state().is_known() && it.known.contains_key(&service)).await;
    assert!(reader.cluster.state().version.starts_with("v1."));
    assert_eq!(reader.standing(Kind::ClusterNetworkPolicy), Standing::Absent);

    let policies = "/apis/networking.k8s.io/v1/namespaces/trestle/networkpolicies";
    let policy = json!({"metadata": {"name": "seen"}, "spec": {"podSelector": {}}});
    admin.create(policies, &policy).await;
    let seen = (Kind::NetworkPolicy, "seen".to_owned());
    reader.until("a policy is seen", |it| it.known.contains_key(&seen)).await;
    admin.delete(policies, "seen").await;
    reader.until("and its end", |it| !it.known.contains_key(&seen)).await;

    admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).await;
    reader
        .until("a new kind is found", |it| it.standing(Kind::ClusterNetworkPolicy) == Standing::InSync)
        .await;
    let admins = "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies";
    let types = json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy", "metadata": {"name": "a"}});
    admin.create(admins, &types).await;
    let about = ObjectId { kind: Kind::ClusterNetworkPolicy, namespace: String::new(), name: "a".to_owned() };
    let condition = json!({"type": "Accepted", "status": "True", "reason": "Understood", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    reader.cluster.write_status(&about, &json!({"conditions": [condition]})).await.unwrap();
    let told = |it: &Reader| {
        it.known
            .get(&(about.kind, "a".to_owned()))
            .is_some_and(|it| it["status"]["conditions"][0] == condition)
    };
    reader.until("its status is there", told).await;
    let key = jiff::Timestamp::now().as_microsecond().to_string();
    let event = Event {
        about: about.clone(),
        reason: "NotEnforced",
        message: "why".to_owned(),
        key,
        at: jiff::Timestamp::now(),
    };
    reader.cluster.report(&event).await.unwrap();
    reader.cluster.report(&event).await.unwrap();
    admin
        .delete(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "clusternetworkpolicies.policy.networking.k8s.io",
        )
        .await;
    reader.until("the kind is gone", |it| it.standing(Kind::ClusterNetworkPolicy) == Standing::Absent).await;
    assert!(!reader.known.keys().any(|(kind, _)| *kind == about.kind));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an API server: make lab-kubernetes"]
async fn a_real_api_server_takes_all_that_is_installed() {
    let path =
        PathBuf::from(env::var_os(KUBECONFIG).unwrap_or_else(|| panic!("{KUBECONFIG} names no kubeconfig")));
    let installer = Installer::connect(&Access { kubeconfig: Some(path), context: None }).await.unwrap();
    for install in [install(), everything()] {
        let mut documents = install.documents();
        // What is in it can be judged when it is there.
        installer.apply(&documents[0], false).await.unwrap();
        documents.push(install.leaving());
        for document in &documents {
            installer.apply(document, true).await.unwrap_or_else(|err| panic!("{err}: {document:#}"));
        }
        assert!(installer.get(&install.leaving()).await.unwrap().is_none(), "nothing was made");
    }
    let nowhere = Install { namespace: "nowhere".to_owned(), ..install() };
    let refused = installer.apply(&nowhere.leaving(), true).await.unwrap_err().to_string();
    assert!(refused.contains("its namespace is not there"), "{refused}");
    let bad = Install { image: String::new(), ..install() };
    let refused = installer.apply(&bad.leaving(), true).await.unwrap_err().to_string();
    assert!(refused.contains("DaemonSet trestle-leave"), "{refused}");
}
