//! Credentials that end or do not fit, controllers that talk nonsense.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::net::TcpListener;
use tokio_stream::{Stream, StreamExt as _, wrappers::TcpListenerStream};
use tonic::{Code, Request, Response, Status, Streaming, transport::Server};
use transport::SpanChange;
use wire::trestle::v1::{
    FromNode, NodeApply, NodeFlush, NodeHello, NodePolicy, NodeStart, ToNode, from_node,
    node_apply::Body,
    node_feed_server::{NodeFeed, NodeFeedServer},
    node_start::Mode,
    to_node,
};

use testkit_controllers::{
    agents::Node,
    nodes::{Harness, eventually, policy},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_ends_the_stream_and_not_the_protection() {
    let harness = Harness::synced().await;
    let node = Node::new(&harness, "n1").await;
    harness.publish([policy("p", 1, SpanChange::Everyone)]);
    let agent = node.start().await;
    eventually("the first sync", || node.part.objects().len() == 1).await;
    harness.revoke(&node.serial).await;
    eventually("the refusal", || agent.local().status().last_error.contains("revoked")).await;
    assert!(!agent.local().status().connected);
    harness.publish([policy("p", 2, SpanChange::Keep)]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(node.part.members("p").unwrap(), ["1"]);
    agent.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_anothers_name_is_told_so() {
    let harness = Harness::synced().await;
    let node = Node::new(&harness, "n1").await;
    let mut config = node.config();
    config.uplink.node = "n2".into();
    let agent = node.start_with(config).await;
    eventually("the refusal", || agent.local().status().last_error.contains("may not connect as node n2"))
        .await;
    assert!(harness.session("n2").is_none());
    agent.stop().await.unwrap();
}

/// Says one script per connection, and remembers the hellos.
struct Liar {
    scripts: Vec<Vec<Result<ToNode, Status>>>,
    turn: AtomicUsize,
    hellos: std::sync::Mutex<Vec<NodeHello>>,
}

struct Service(Arc<Liar>);

#[tonic::async_trait]
impl NodeFeed for Service {
    type ConnectStream = Pin<Box<dyn Stream<Item = Result<ToNode, Status>> + Send>>;

    async fn connect(
        &self,
        request: Request<Streaming<FromNode>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let mut incoming = request.into_inner();
        if let Some(FromNode { message: Some(from_node::Message::Hello(hello)) }) = incoming.message().await?
        {
            self.0.hellos.lock().unwrap().push(hello);
        }
        let turn = self.0.turn.fetch_add(1, Relaxed);
        let script = self.0.scripts.get(turn).cloned();
        let open = script.is_none();
        let script = script.unwrap_or_else(|| self.0.scripts.last().unwrap().clone());
        let said = tokio_stream::iter(script);
        // The last script's stream stays open.
        Ok(Response::new(if open { Box::pin(said.chain(tokio_stream::pending())) } else { Box::pin(said) }))
    }
}

fn say(message: to_node::Message) -> Result<ToNode, Status> {
    Ok(ToNode { message: Some(message) })
}

fn start(epoch: u64, mode: Mode) -> Result<ToNode, Status> {
    say(to_node::Message::Start(NodeStart { epoch, mode: mode.into(), buckets: vec![], tells_pods: true }))
}

fn put(name: &str, generation: i64) -> Result<ToNode, Status> {
    let body = Some(Body::Policy(NodePolicy { generation, ..NodePolicy::default() }));
    say(to_node::Message::Apply(NodeApply { kind: 3, name: name.into(), hash: 7, body }))
}

fn flush(revision: u64) -> Result<ToNode, Status> {
    say(to_node::Message::Flush(NodeFlush { revision, synced: true }))
}

/// Broken off steps, flushes out of nowhere, messages of the future, codes of every kind: the agent comes back each
/// time, with the state of the last whole step.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_talks_nonsense_is_asked_again_and_believed_only_in_whole_steps() {
    let liar = Arc::new(Liar {
        scripts: vec![
            vec![],
            vec![flush(3)],
            vec![start(1, Mode::Snapshot), put("a", 1)],
            vec![Err(Status::new(Code::ResourceExhausted, "too many"))],
            vec![start(1, Mode::Snapshot), put("a", 1), Ok(ToNode { message: None }), flush(5), put("b", 1)],
            vec![start(9, Mode::Resume), put("c", 1), flush(6)],
            vec![start(1, Mode::Unspecified), flush(6)],
            vec![start(1, Mode::Buckets), put("a", 2), flush(6)],
        ],
        turn: AtomicUsize::new(0),
        hellos: Default::default(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_service(NodeFeedServer::new(Service(Arc::clone(&liar))));
    let serving = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let dir = tempfile::tempdir().unwrap();
    let node = Node {
        name: "n1".into(),
        dir: dir.path().to_owned(),
        server: format!("http://{address}"),
        serial: String::new(),
        part: Default::default(),
    };
    let agent = node.start().await;
    eventually("the last word", || node.part.members("a") == Some(vec!["2".into()])).await;
    assert_eq!(node.part.objects().len(), 1, "{:?}", node.part.objects());
    let hellos = liar.hellos.lock().unwrap().clone();
    let tokens: Vec<_> = hellos.iter().map(|hello| (hello.revision, hello.digest.len())).collect();
    assert_eq!(tokens[..5], [(None, 0); 5]);
    assert_eq!(tokens[5], (Some(5), 128), "resumes from the step that was whole");
    assert_eq!(tokens[6], (None, 128), "after nonsense all is compared");
    agent.stop().await.unwrap();
    serving.abort();
}
