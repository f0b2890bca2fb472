//! A Kubernetes cluster, from its API server (in memory) to nodes.

use std::time::Duration;

use kubernetes::{RESOURCES, testing::ApiServer};
use model::policy::Kind;
use serde_json::{Value, json};
use server::ClusterConfig;
use testkit_controllers::{
    controller::Credential,
    nodes::{Harness, eventually},
};
use wire::trestle::v1::{
    ApplyObjectsRequest, ExplainRequest, GetStatusRequest, ListPoliciesRequest, ObjectKind,
    admin_client::AdminClient, objects_client::ObjectsClient, policies_client::PoliciesClient,
};

use super::agent::{Agent, Held, State};

fn pod(name: &str, address: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "shop", "labels": {"app": name}, "managedFields": [{"manager": "kubelet"}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n1", "containers": [{"image": "i"}]},
           "status": {"phase": "Running", "podIPs": [{"ip": address}]}})
}

fn policy(ports: &[u16]) -> Value {
    let ports: Vec<_> = ports.iter().map(|port| json!({"port": port})).collect();
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "db", "namespace": "shop"},
           "spec": {"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{"ports": ports}]}})
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"},
           "spec": {"type": "NodePort", "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"], "ports": [{"port": 80, "nodePort": 30080}]}})
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"env": "prod"}}})
}

async fn controller(server: &ApiServer) -> Harness {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    server.write_kubeconfig(&kubeconfig).unwrap();
    let cluster = ClusterConfig {
        name: "prod".parse().unwrap(),
        kubeconfig: Some(kubeconfig),
        context: None,
        publish_ca: None,
    };
    let harness = Harness::start(dir, |config| config.kubernetes = vec![cluster]).await;
    harness.source.synced();
    harness
}

async fn connect(harness: &Harness) -> (Credential, Agent) {
    let node = harness.node("n1").await;
    let agent = Agent::connect(harness, &node, State::default()).await;
    (node, agent)
}

async fn attention(harness: &Harness) -> Vec<String> {
    let mut admin = AdminClient::new(harness.channel(None).await);
    admin.get_status(harness.as_admin(GetStatusRequest {})).await.unwrap().into_inner().attention
}

async fn until_told(harness: &Harness, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
    for _ in 0..600 {
        let told = attention(harness).await;
        if is_so(&told) {
            return told;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what}: {:?}", attention(harness).await);
}

async fn is_open(harness: &Harness, port: u32) -> bool {
    let (source, destination) = ("shop/web".into(), "shop/db".into());
    let request = ExplainRequest {
        source,
        destination,
        protocol: "tcp".into(),
        port: Some(port),
        ..Default::default()
    };
    let mut policies = PoliciesClient::new(harness.channel(None).await);
    policies.explain(harness.as_admin(request)).await.unwrap().into_inner().allowed
}

fn policies(state: &State) -> usize {
    state.objects.keys().filter(|(kind, _)| *kind == ObjectKind::Policy as i32).count()
}

fn covered(state: &State) -> Vec<String> {
    match state.objects.get(&(ObjectKind::NodeFacts as i32, "n1".to_owned())) {
        Some((_, Held::Facts(facts))) => facts.pods.iter().map(|pod| pod.name.clone()).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_has_is_in_force_and_none_of_it_is_stored() {
    let server = ApiServer::start().await;
    for object in [
        namespace(),
        pod("web", "10.0.0.1"),
        pod("db", "10.0.0.2"),
        policy(&[5432]),
        service("a"),
        service("b"),
    ] {
        server.put(object);
    }
    let harness = controller(&server).await;
    let (_node, mut agent) = connect(&harness).await;
    agent.until("policy, Pods and services", |state| policies(state) == 1 && covered(state).len() == 2).await;
    assert!(is_open(&harness, 5432).await && !is_open(&harness, 80).await);
    // Addresses and node ports are the API server's, also where it gives one out twice.
    let services = agent.state.objects.keys().filter(|(kind, _)| *kind == ObjectKind::Service as i32);
    assert_eq!(services.count(), 2);
    // Workloads say where they are from.
    let (_, workloads) = harness.rest("GET", "/workloads", "").await;
    assert!(workloads.to_string().contains(r#""trestle.dev/cluster":"prod""#), "{workloads}");
    let (_, stored) = harness.rest("GET", "/objects?kind=Pod", "").await;
    assert_eq!(stored, json!([]));
    let (_, clusters) = harness.rest("GET", "/clusters", "").await;
    let pods =
        clusters[0]["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "Pod").unwrap().clone();
    assert_eq!(
        (&clusters[0]["known"], &pods["state"], &pods["objects"]),
        (&json!(true), &json!("in sync"), &json!(2))
    );

    server.put(policy(&[80]));
    let mut told = false;
    for _ in 0..600 {
        told = is_open(&harness, 80).await && !is_open(&harness, 5432).await;
        if told {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(told, "a change is in force");
    server.delete(&policy(&[]));
    agent.until("the policy is gone", |state| policies(state) == 0).await;
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_told_nothing_before_everything_is_known() {
    let server = ApiServer::start().await;
    [pod("db", "10.0.0.2"), policy(&[5432])].into_iter().for_each(|object| server.put(object));
    let late = RESOURCES.iter().find(|resource| resource.kind == Kind::EndpointSlice).unwrap();
    server.uninstall(late);
    let harness = controller(&server).await;
    let told =
        until_told(&harness, "it is said", |told| told.iter().any(|line| line.contains("EndpointSlices")))
            .await;
    assert!(told[0].contains("cluster prod") && told[0].contains("nodes are told nothing"), "{told:?}");
    let (_node, mut agent) = connect(&harness).await;
    eventually("the node is connected", || harness.session("n1").is_some_and(|session| session.connected))
        .await;
    assert!(is_known(&harness).await, "callers are served meanwhile");
    let told = tokio::time::timeout(Duration::from_secs(2), agent.step()).await;
    assert!(told.is_err() && agent.state.objects.is_empty(), "{:?}", agent.state);
    server.install(late);
    agent.until("everything, at once", |state| policies(state) == 1 && covered(state) == ["db"]).await;
    until_told(&harness, "nothing is wrong", |told| told.is_empty()).await;
    harness.stop().await;
}

async fn is_known(harness: &Harness) -> bool {
    let mut policies = PoliciesClient::new(harness.channel(None).await);
    let request = harness.as_admin(ListPoliciesRequest::default());
    !policies.list_policies(request).await.unwrap().into_inner().policies.is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_api_server_everything_stays_and_coming_back_changes_nothing() {
    let server = ApiServer::start().await;
    [pod("web", "10.0.0.1"), pod("db", "10.0.0.2"), policy(&[5432])]
        .into_iter()
        .for_each(|object| server.put(object));
    let harness = controller(&server).await;
    let (_node, mut agent) = connect(&harness).await;
    agent.until("the policy", |state| policies(state) == 1 && covered(state).len() == 2).await;
    let before = harness.stats();
    server.stop().await;
    let told =
        until_told(&harness, "it is said", |told| told.iter().any(|line| line.contains("stays in force")))
            .await;
    assert!(told[0].starts_with("cluster prod: ") && told[0].contains(" since "), "{told:?}");
    assert!(is_open(&harness, 5432).await && !is_open(&harness, 80).await);
    // It comes back and has forgotten what it had told: everything is told anew.
    server.forget();
    server.go_on().await;
    until_told(&harness, "it is whole again", |told| told.is_empty()).await;
    eventually("Pods were told anew", || server.asked(&["/pods", "sendInitialEvents"]) == 2).await;
    let marker = service("marker");
    server.put(marker);
    let has_marker = |state: &State| state.objects.keys().any(|(_, name)| name == "shop/marker");
    agent.until("what comes then", has_marker).await;
    let after = harness.stats();
    assert_eq!((after.objects, after.steps), (before.objects + 1, before.steps + 1), "nothing else was told");
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_with_one_name_the_clusters_counts_and_that_is_told() {
    let server = ApiServer::start().await;
    [pod("web", "10.0.0.1"), pod("db", "10.0.0.2"), policy(&[5432])]
        .into_iter()
        .for_each(|object| server.put(object));
    let harness = controller(&server).await;
    let (_node, mut agent) = connect(&harness).await;
    agent.until("the policy", |state| policies(state) == 1).await;
    let documents = vec![policy(&[80]).to_string().into_bytes()];
    let request = ApplyObjectsRequest { documents, ..ApplyObjectsRequest::default() };
    let mut objects = ObjectsClient::new(harness.channel(None).await);
    objects.apply_objects(harness.as_admin(request)).await.unwrap();
    assert!(is_open(&harness, 5432).await && !is_open(&harness, 80).await);
    let told = attention(&harness).await;
    assert!(
        told.len() == 1 && told[0].contains("NetworkPolicy shop/db") && told[0].contains("stored"),
        "{told:?}"
    );
    server.delete(&policy(&[]));
    until_told(&harness, "the name is free", |told| told.is_empty()).await;
    assert!(is_open(&harness, 80).await && !is_open(&harness, 5432).await, "the stored one counts again");
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_of_a_cluster_that_are_installed_later_are_found() {
    let server = ApiServer::start().await;
    [namespace(), pod("web", "10.0.0.1"), pod("db", "10.0.0.2")]
        .into_iter()
        .for_each(|object| server.put(object));
    let harness = controller(&server).await;
    let (_node, mut agent) = connect(&harness).await;
    agent.until("the Pods", |state| covered(state).len() == 2).await;
    let resource = RESOURCES.iter().find(|resource| resource.kind == Kind::ClusterNetworkPolicy).unwrap();
    server.install(resource);
    server.put(json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy", "metadata": {"name": "closed"},
        "spec": {"tier": "Admin", "priority": 1, "subject": {"namespaces": {"matchLabels": {"env": "prod"}}},
                 "ingress": [{"action": "Deny", "from": [{"namespaces": {"matchLabels": {"trestle.dev/cluster": "prod"}}}]}]}}));
    agent.until("the policy", |state| policies(state) == 1).await;
    assert!(!is_open(&harness, 80).await);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_of_policies_is_written_back_once() {
    let server = ApiServer::start().await;
    RESOURCES.iter().for_each(|resource| server.install(resource));
    [namespace(), pod("web", "10.0.0.1"), pod("db", "10.0.0.2")]
        .into_iter()
        .for_each(|object| server.put(object));
    let subject = json!({"namespaces": {"matchLabels": {"env": "prod"}}});
    let policy = |name: &str, from: Value| {
        json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy", "metadata": {"name": name, "generation": 1},
               "spec": {"tier": "Admin", "priority": 1, "subject": subject, "ingress": [{"action": "Accept", "from": [from]}]}})
    };
    let (good, broken) = (policy("good", json!({"namespaces": {}})), policy("broken", json!({})));
    let tier = json!({"apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy", "metadata": {"name": "antreas", "generation": 2},
                      "spec": {"priority": 5, "appliedTo": [{"podSelector": {}}], "ingress": [{"action": "Allow"}]}});
    [&good, &broken, &tier].into_iter().for_each(|object| server.put(object.clone()));
    let harness = controller(&server).await;
    let status = |of: &Value| server.get(of).map(|object| object["status"].clone()).unwrap_or_default();
    let condition = |of: &Value, kind: &str| {
        let conditions = status(of)["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
    };
    eventually("statuses are written", || [&good, &broken, &tier].iter().all(|of| !status(of).is_null()))
        .await;
    assert_eq!(
        (&condition(&good, "Accepted")["status"], &condition(&broken, "Accepted")["status"]),
        (&json!("True"), &json!("False"))
    );
    assert_eq!(condition(&good, "Enforced")["message"], "0 of 1 nodes have it");
    assert_eq!(
        (&status(&tier)["desiredNodesRealized"], &status(&tier)["observedGeneration"]),
        (&json!(1), &json!(2))
    );
    eventually("an Event is made", || !server.events().is_empty()).await;
    let events = server.events();
    assert_eq!((events.len(), &events[0]["involvedObject"]["name"]), (1, &json!("broken")));
    assert!(events[0]["message"].as_str().unwrap().contains("spec.ingress[0].from[0]"), "{}", events[0]);

    let written = || server.asked(&["PATCH"]);
    let before = written();
    let dir = harness.stop().await;
    let kubeconfig = dir.path().join("kubeconfig");
    let cluster = ClusterConfig {
        name: "prod".parse().unwrap(),
        kubeconfig: Some(kubeconfig),
        context: None,
        publish_ca: None,
    };
    let asked = server.asked(&["POST"]);
    let harness = Harness::start(dir, |config| config.kubernetes = vec![cluster]).await;
    // The one that is told again, since it does not know that it was, is the Event; by then statuses have been looked at.
    eventually("it has looked", || server.asked(&["POST"]) > asked).await;
    assert_eq!((written(), server.events().len()), (before, 1), "what is there is not written again");
    harness.stop().await;
}
