//! What nodes have is known at every controller, whichever they are connected to.

use std::sync::mpsc::{Sender, channel};

use serde_json::{Value, json};
use server::{CloudConfig, PluginConfig};
use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};
use tokio_stream::wrappers::ReceiverStream;
use wire::trestle::v1::{
    ApplyObjectsRequest, CreateTokenRequest, FromNode, NodeHello, NodeObjectError, NodeReport, ObjectKind,
    Role, access_client::AccessClient, from_node, node_feed_client::NodeFeedClient, to_node,
};

use super::*;

/// How the node answers what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    Applied,
    /// Applied, but for the policies.
    Failed,
}

/// A node on one stream, which is gone when this is dropped.
struct Node {
    answer: watch::Sender<Answer>,
    stream: JoinHandle<()>,
}

impl Node {
    async fn connect(fixture: &Fixture, name: &str) -> Self {
        let identity = fixture.issue(Role::Node, name).await.identity();
        let (reports, outgoing) = tokio::sync::mpsc::channel(8);
        let say = |message| FromNode { message: Some(message) };
        let hello = NodeHello { node: name.into(), version: "test".into(), ..NodeHello::default() };
        reports.send(say(from_node::Message::Hello(hello))).await.unwrap();
        let channel = fixture.endpoint(Some(identity)).connect().await.unwrap();
        let opened = NodeFeedClient::new(channel).connect(ReceiverStream::new(outgoing)).await;
        let mut told = opened.unwrap().into_inner();
        let (answer, mut answers) = watch::channel(Answer::Applied);
        let stream = tokio::spawn(async move {
            let (mut revision, mut policies) = (0, Vec::new());
            loop {
                tokio::select! {
                    message = told.message() => match message {
                        Ok(Some(message)) => match message.message {
                            Some(to_node::Message::Flush(flush)) => revision = flush.revision,
                            Some(to_node::Message::Apply(apply)) if apply.kind() == ObjectKind::Policy => {
                                policies.push(apply.name);
                                continue;
                            }
                            _ => continue,
                        },
                        Ok(None) | Err(_) => return,
                    },
                    Ok(()) = answers.changed() => {}
                }
                let answer = *answers.borrow_and_update();
                let error = |name: &String| NodeObjectError {
                    kind: ObjectKind::Policy.into(),
                    name: name.clone(),
                    message: "the kernel says no".into(),
                };
                let errors = match answer {
                    Answer::Nothing => continue,
                    Answer::Applied => Vec::new(),
                    Answer::Failed => policies.iter().map(error).collect(),
                };
                let report = NodeReport { revision, errors, skipped: 0, host: None };
                if reports.send(say(from_node::Message::Report(report))).await.is_err() {
                    return;
                }
            }
        });
        Self { answer, stream }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stream.abort();
    }
}

/// A controller in a runtime of its own, which can end as a process does that is killed.
struct Killable {
    kill: Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Killable {
    fn start(etcd: &Etcd) -> (Self, Fixture) {
        let ((kill, killed), (tell, told)) = (channel(), channel());
        let kind = etcd.kind();
        let thread = std::thread::spawn(move || {
            let runtime = Runtime::new().unwrap();
            let dir = tempfile::tempdir().unwrap();
            tell.send(runtime.block_on(Fixture::start_in(dir, |config| config.store = kind))).unwrap();
            let _ = killed.recv();
            runtime.shutdown_background();
        });
        (Self { kill, thread }, told.recv_timeout(Duration::from_secs(60)).unwrap())
    }

    fn kill(self) {
        self.kill.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

fn pod(name: &str, node: &str, ip: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "shop", "labels": { "app": "db" } },
        "spec": { "nodeName": node },
        "status": { "podIP": ip, "podIPs": [{ "ip": ip }] },
    })
}

/// What applies to all databases, and permits one port.
fn policy(port: u16) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "name": "db", "namespace": "shop" },
        "spec": {
            "podSelector": { "matchLabels": { "app": "db" } },
            "policyTypes": ["Ingress"],
            "ingress": [{ "ports": [{ "protocol": "TCP", "port": port }] }],
        },
    })
}

async fn apply(fixture: &Fixture, objects: &[Value]) {
    let documents = objects.iter().map(|object| object.to_string().into_bytes()).collect();
    let request = ApplyObjectsRequest { documents, ..Default::default() };
    ObjectsClient::new(fixture.admin().await).apply_objects(request).await.unwrap();
}

/// Phase, nodes that have it, and nodes that need it, of the only policy.
async fn phase(fixture: &Fixture) -> (String, u64, usize) {
    let (_, policies) = fixture.rest("GET", "/policies", "").await;
    let policy = &policies[0];
    let span = policy["span"].as_array().map_or(0, Vec::len);
    (policy["phase"].as_str().unwrap_or_default().to_owned(), policy["realized"].as_u64().unwrap_or(0), span)
}

async fn until_phase(fixture: &Fixture, phase_then: &str, realized: u64, span: usize) {
    let wanted = (phase_then.to_owned(), realized, span);
    until(&format!("{wanted:?}"), async || phase(fixture).await == wanted).await;
}

async fn node(fixture: &Fixture, name: &str) -> Value {
    fixture.rest("GET", &format!("/nodes/{name}"), "").await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_of_one_has_is_known_at_the_other() {
    let etcd = Etcd::start();
    let [one, two] = etcd.controllers(|_| {}).await;
    let stream = Node::connect(&one, "n1").await;
    apply(&two, &[pod("db-0", "n1", "10.10.2.7"), policy(5432)]).await;
    until_phase(&one, "Realized", 1, 1).await;
    until_phase(&two, "Realized", 1, 1).await;
    until("the other shows it as connected", async || node(&two, "n1").await["connected"] == true).await;
    let seen = node(&two, "n1").await;
    assert_eq!((&seen["version"], &seen["applied_revision"]), (&json!("test"), &seen["revision"]));
    assert!(seen["controller"].as_str().unwrap().contains("gRPC at"), "{seen}");
    assert_eq!(node(&one, "n1").await.get("controller"), None);
    let (_, listed) = two.rest("GET", "/nodes", "").await;
    assert_eq!((&listed[0]["name"], &listed[0]["connected"]), (&json!("n1"), &json!(true)), "{listed}");

    // What the node has not said that it has is claimed nowhere, from the first moment on.
    stream.answer.send(Answer::Nothing).unwrap();
    apply(&two, &[policy(5433)]).await;
    assert_eq!(phase(&two).await, ("Realizing".into(), 0, 1));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(phase(&two).await, ("Realizing".into(), 0, 1));
    stream.answer.send(Answer::Failed).unwrap();
    until_phase(&two, "Failed", 0, 1).await;
    let (_, policies) = two.rest("GET", "/policies", "").await;
    assert_eq!(policies[0]["failures"][0]["message"], "the kernel says no");
    assert_eq!(node(&two, "n1").await["errors"][0]["message"], "the kernel says no");
    stream.answer.send(Answer::Applied).unwrap();
    until_phase(&two, "Realized", 1, 1).await;

    // A controller that comes later reads the whole state at a revision that no change has: it knows all the same.
    let token = one.token.clone();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("admin.token"), token).unwrap();
    let three = etcd.controller(dir, |_| {}).await;
    until_phase(&three, "Realized", 1, 1).await;

    drop(stream);
    until("the other hears that it left", async || node(&two, "n1").await["connected"] == false).await;
    assert!(node(&two, "n1").await["disconnected_at"].is_i64());
    // It keeps what it has, and has not heard of what came after.
    assert_eq!(phase(&two).await, ("Realized".into(), 1, 1));
    apply(&two, &[policy(5434)]).await;
    until_phase(&two, "Realizing", 0, 1).await;
    until_phase(&one, "Realizing", 0, 1).await;

    // It comes back, to the other.
    let stream = Node::connect(&two, "n1").await;
    until_phase(&two, "Realized", 1, 1).await;
    until_phase(&one, "Realized", 1, 1).await;
    until("the first shows where it is now", async || {
        let seen = node(&one, "n1").await;
        seen["connected"] == true && seen["controller"].is_string()
    })
    .await;
    drop(stream);
    for controller in [one, two, three] {
        controller.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_a_controller_that_is_killed_are_away() {
    let etcd = Etcd::start();
    let (killable, one) = Killable::start(&etcd);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("admin.token"), &one.token).unwrap();
    let two = etcd.controller(dir, |_| {}).await;
    let _stream = Node::connect(&one, "n1").await;
    apply(&two, &[pod("db-0", "n1", "10.10.2.7"), policy(5432)]).await;
    until_phase(&two, "Realized", 1, 1).await;

    killable.kill();
    until("its nodes are away", async || node(&two, "n1").await["connected"] == false).await;
    until_phase(&two, "Realizing", 0, 1).await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reported_to_one_counts_at_the_other() {
    let etcd = Etcd::start();
    let [one, two] = etcd.controllers(|_| {}).await;
    apply(&two, &[pod("db-0", "n1", "10.10.2.7"), pod("db-1", "n2", "10.10.3.7"), policy(5432)]).await;
    until_phase(&one, "Realizing", 0, 2).await;
    let list = "/apis/controlplane.antrea.io/v1beta2/networkpolicies";
    let report = async |fixture: &Fixture, node: &str, failure: bool| {
        let request = CreateTokenRequest { name: node.into(), role: Role::Node as i32, ttl_seconds: None };
        let made = AccessClient::new(fixture.admin().await).create_token(request).await.unwrap();
        let token = made.into_inner().secret;
        let call = async |method, path: String, body: String| {
            let addr = fixture.controller.watch_addr();
            let (status, _, body) = fixture.call_at(addr, Some(&token), method, &path, body.into()).await;
            assert!(status.is_success(), "{status} {body:?}");
            serde_json::from_slice::<Value>(&body).unwrap()
        };
        let listed = call("GET", format!("{list}?fieldSelector=nodeName={node}"), String::new()).await;
        let uid = listed["items"][0]["metadata"]["name"].as_str().unwrap();
        let status = json!({ "nodeName": node, "generation": 1, "realizationFailure": failure, "message": "no table" });
        let body = json!({ "metadata": { "name": uid }, "nodes": [status] }).to_string();
        call("POST", format!("{list}/{uid}/status"), body).await;
    };
    report(&one, "n1", true).await;
    report(&two, "n2", false).await;
    until_phase(&one, "Failed", 1, 2).await;
    until_phase(&two, "Failed", 1, 2).await;
    // The agent goes over to the other, and says there that it has it now.
    report(&two, "n1", false).await;
    until_phase(&one, "Realized", 2, 2).await;
    until_phase(&two, "Realized", 2, 2).await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_leaders_clouds_have_is_known_at_the_other() {
    let etcd = Etcd::start();
    let [one, two] = etcd
        .controllers(|config| {
            let plugin = PluginConfig::Fake {};
            config.clouds = vec![CloudConfig { name: "a".parse().unwrap(), plugin }];
        })
        .await;
    let path = "/namespaces/default/clouds/a/resources/db?wait=true";
    until("the leader makes a resource", async || {
        one.rest("PUT", path, &json!({ "description": "west" }).to_string()).await.0 == 200
    })
    .await;
    let policy = json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy",
        "metadata": { "name": "db", "namespace": "default", "uid": "db-policy" },
        "spec": {
            "priority": 5,
            "appliedTo": [{ "externalEntitySelector": { "matchLabels": { "trestle.io/resource": "db" } } }],
            "ingress": [{ "action": "Drop", "ports": [{ "protocol": "TCP", "port": 5432 }] }],
        },
    });
    apply(&two, &[policy]).await;
    until_phase(&one, "Realized", 1, 1).await;
    until_phase(&two, "Realized", 1, 1).await;
    one.stop().await;
    two.stop().await;
}
