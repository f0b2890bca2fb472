//! An agent's life: connect, follow, restart, boot, and the local API.

use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use agent::{Agent, endpoints::Attachment, local::Client};
use server::transport::objects;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use transport::SpanChange;
use wire::trestle::v1::{NodeFacts, NodePod, ObjectKind};

use testkit_controllers::{
    agents::Node,
    nodes::{Harness, change, eventually, nodes, policy, set},
};

fn client(agent_dir: &std::path::Path) -> Client {
    Client { socket: agent_dir.join("socket") }
}

async fn get(agent: &Agent, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(agent.health_addr().unwrap()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    (text[9..12].parse().unwrap(), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_follows_and_reports() {
    let harness = Harness::synced().await;
    let node = Node::new(&harness, "n1").await;
    harness.publish([
        set("mine", &["a", "b"], nodes(&["n1"])),
        set("other", &["a"], nodes(&["n2"])),
        policy("p", 1, SpanChange::Everyone),
    ]);
    let agent = node.start().await;
    eventually("the first sync", || node.part.objects().len() == 2).await;
    harness.publish([change("mine", &["c"], &["a"]), policy("p", 2, SpanChange::Keep)]);
    eventually("the change", || node.part.members("p") == Some(vec!["2".into()])).await;
    assert_eq!(node.part.members("mine").unwrap(), ["b", "c"]);
    eventually("the report", || {
        let session = harness.session("n1").unwrap();
        session.applied == Some(session.revision)
            && session.lag == Duration::ZERO
            && session.errors.is_empty()
    })
    .await;
    let (code, text) = get(&agent, "/metrics").await;
    assert_eq!(code, 200);
    for line in ["trestle_agent_connected 1", "trestle_agent_synced 1", "trestle_agent_objects 2"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert_eq!((get(&agent, "/readyz").await.0, get(&agent, "/healthz").await.0), (200, 200));
    agent.stop().await.unwrap();
    assert!(!node.dir.join("socket").exists());
    eventually("the disconnect", || !harness.session("n1").unwrap().connected).await;
}

/// What was told last is in force before any controller is reached, and one that comes back unchanged sends nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_begins_where_it_ended() {
    let harness = Harness::synced().await;
    let node = Node::new(&harness, "n1").await;
    let objects = || (0..200).map(|n| set(&format!("s{n}"), &["a", "b"], nodes(&["n1"])));
    harness.publish(objects());
    let agent = node.start().await;
    eventually("the first sync", || node.part.objects().len() == 200).await;
    let before = node.part.objects();
    drop(agent);
    let harness = harness.restart().await;

    let mut alone = node.clone();
    (alone.part, alone.server) = (Default::default(), "https://localhost:1".to_owned());
    let agent = alone.start().await;
    assert_eq!(alone.part.objects(), before, "in force when the agent has started");
    assert_eq!(get(&agent, "/readyz").await.0, 200, "a node is ready without a controller");
    let status = agent.local().status();
    assert!(!status.connected && !status.synced);
    agent.stop().await.unwrap();

    let mut again = node.clone();
    again.part = Default::default();
    let agent = again.start().await;
    eventually("the connection", || harness.session("n1").is_some_and(|session| session.connected)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(again.part.objects(), before, "a controller that is not in sync takes nothing away");
    assert_eq!(agent.local().status().waiting, ["test"]);
    harness.publish(objects());
    harness.source.synced();
    eventually("the sync", || agent.local().status().synced).await;
    assert_eq!(again.part.objects(), before);
    let sent = harness.session("n1").unwrap().bytes_sent;
    assert!(sent < 200, "{sent} bytes for a node that has it all");
    agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_attached_by_whoever_may_open_the_socket() {
    let harness = Harness::unsynced().await;
    let node = Node::new(&harness, "n1").await;
    let agent = node.start().await;
    let mode = std::fs::metadata(node.dir.join("socket")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (local, pod) = (client(&node.dir), "shop/web-1".parse().unwrap());
    let attachment = Attachment {
        interface: "veth1".into(),
        addresses: vec!["10.0.0.7".parse().unwrap()],
        ..Attachment::default()
    };
    assert!(local.attach(&pod, &attachment).await.unwrap().closed, "no controller has spoken");
    assert_eq!(get(&agent, "/readyz").await.0, 503);
    harness.source.synced();
    eventually("the sync", || agent.local().status().synced).await;
    assert!(local.endpoints().await.unwrap()[0].closed, "a controller that does not know of it");
    let covered = NodePod { namespace: "shop".into(), name: "web-1".into(), ..NodePod::default() };
    let facts = NodeFacts { pods: vec![covered], ..NodeFacts::default() };
    let span = SpanChange::Nodes(["n1".into()].into());
    harness.publish([objects::put(ObjectKind::NodeFacts, "n1", &facts, span)]);
    eventually("it is covered", || agent.local().status().closed == 0).await;
    assert!(!local.endpoints().await.unwrap()[0].closed);
    assert!(!local.attach(&pod, &attachment).await.unwrap().closed);
    assert!(!local.detach(&pod, Some("veth9")).await.unwrap());
    let bad = Attachment { interface: "a b".into(), ..attachment.clone() };
    let refused = local.attach(&pod, &bad).await.unwrap_err().to_string();
    assert!(refused.contains("cannot be an interface"), "{refused}");
    agent.stop().await.unwrap();
    assert!(local.status().await.unwrap_err().to_string().contains("are you root"));

    let agent = node.start().await;
    assert_eq!(local.endpoints().await.unwrap()[0].attachment, attachment, "kept over a restart");
    assert!(local.detach(&pod, None).await.unwrap());
    assert!(!local.detach(&pod, None).await.unwrap());
    assert!(local.endpoints().await.unwrap().is_empty());
    agent.stop().await.unwrap();
}
