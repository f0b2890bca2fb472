//! Peers that misbehave, and credentials that end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, StreamBody};
use tokio_stream::StreamExt as _;
use tonic::{Code, body::Body, codegen::Service as _};
use transport::{SpanChange, frame};
use wire::trestle::v1::{
    CreateTokenRequest, FromNode, NodeReport, RevokeTokenRequest, Role, access_client::AccessClient,
    from_node, node_feed_client::NodeFeedClient,
};

use testkit_controllers::{
    controller::Credential,
    nodes::{Harness, change, eventually, nodes, policy, set},
};

use super::agent::{Agent, State};

/// Calls a node stream with a body of raw bytes; gives back how it ends.
async fn call(harness: &Harness, credential: &Credential, service: &str, body: Body) -> Code {
    let mut channel = harness.channel(Some(credential)).await;
    let uri = format!("https://localhost/{service}/Connect");
    let request =
        http::Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
    std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
    let response = channel.call(request.body(body).unwrap()).await.unwrap();
    if let Some(status) = response.headers().get("grpc-status") {
        return Code::from_bytes(status.as_bytes());
    }
    let Ok(collected) = tokio::time::timeout(Duration::from_secs(15), response.into_body().collect()).await
    else {
        return Code::DeadlineExceeded;
    };
    match collected.unwrap().trailers().and_then(|trailers| trailers.get("grpc-status")) {
        Some(status) => Code::from_bytes(status.as_bytes()),
        None => Code::Unknown,
    }
}

fn body(bytes: impl Into<Bytes>) -> Body {
    Body::new(Full::new(bytes.into()))
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_and_oversized_messages_end_only_their_own_stream() {
    let harness = Harness::synced().await;
    let (good, bad) = (harness.node("good").await, harness.node("bad").await);
    let mut agent = Agent::connect(&harness, &good, State::default()).await;
    agent.step().await.unwrap();
    let oversized = [&[0][..], &(2u32 << 20).to_be_bytes(), &[0; 100]].concat();
    let report_first = FromNode { message: Some(from_node::Message::Report(NodeReport::default())) };
    for (what, bytes) in [
        ("no message", Bytes::new()),
        ("half a prefix", Bytes::from_static(&[0, 0])),
        ("not protobuf", frame(&[0xff; 40])),
        ("compressed", Bytes::from_static(&[1, 0, 0, 0, 1, 7])),
        ("too large", Bytes::from(oversized)),
        ("nothing announced", frame(&[])),
        ("a report first", frame(&prost::Message::encode_to_vec(&report_first))),
    ] {
        for service in ["trestle.v1.NodeFeed", "pb.DataplaneEvents"] {
            let code = call(&harness, &bad, service, body(bytes.clone())).await;
            assert_eq!(code, Code::InvalidArgument, "{what} to {service}");
        }
    }
    harness.publish([policy("p", 1, SpanChange::Everyone)]);
    agent.until("the policy", |state| state.policy("p").is_some()).await;
    assert_eq!(harness.stats().sessions, 1);
    harness.stop().await;
}

/// A node may also prove itself with a token; taking that away ends the stream like a revoked certificate does.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_ends_the_stream_that_was_opened_with_it() {
    let harness = Harness::synced().await;
    let mut access = AccessClient::new(harness.channel(None).await);
    let request = CreateTokenRequest { name: "n1".into(), role: Role::Node.into(), ttl_seconds: None };
    let made = access.create_token(harness.as_admin(request)).await.unwrap().into_inner();
    let hello = FromNode { message: Some(from_node::Message::Hello(State::default().hello("n1"))) };
    let outgoing = tokio_stream::once(hello).chain(tokio_stream::pending());
    let mut request = tonic::Request::new(outgoing);
    request.metadata_mut().insert("authorization", format!("Bearer {}", made.secret).parse().unwrap());
    let mut client = NodeFeedClient::new(harness.channel(None).await);
    let mut stream = client.connect(request).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    let id = made.info.unwrap().id;
    access.revoke_token(harness.as_admin(RevokeTokenRequest { id, with_made: false })).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    });
    // The connection is cut right behind the status, which may overtake it.
    let code = ended.await.expect("the stream ends");
    assert!(
        matches!(code, Code::Unauthenticated | Code::Unknown | Code::Unavailable | Code::Cancelled),
        "{code:?}"
    );
    eventually("the session is gone", || harness.stats().sessions == 0).await;
    let end = harness.session("n1").unwrap().last_end.unwrap();
    assert_eq!((end.code, end.message.as_str()), (16, "the node's token was revoked or has expired"));
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_says_nothing_is_let_go_and_one_that_says_hello_twice_too() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    let silent = Body::new(StreamBody::new(futures::stream::pending::<
        Result<http_body::Frame<Bytes>, tonic::Status>,
    >()));
    assert_eq!(call(&harness, &credential, "trestle.v1.NodeFeed", silent).await, Code::DeadlineExceeded);
    let mut agent = Agent::connect(&harness, &credential, State::default()).await;
    agent.step().await.unwrap();
    agent.send(FromNode { message: Some(from_node::Message::Hello(State::default().hello("n1"))) }).await;
    assert_eq!(agent.end().await, Code::InvalidArgument);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_ends_the_stream_and_opens_no_other() {
    let harness = Harness::synced().await;
    let (kept, revoked) = (harness.node("kept").await, harness.node("revoked").await);
    let mut agents = [
        Agent::connect(&harness, &kept, State::default()).await,
        Agent::connect(&harness, &revoked, State::default()).await,
    ];
    for agent in &mut agents {
        agent.step().await.unwrap();
    }
    harness.revoke(&revoked.serial).await;
    eventually("the end of the revoked node's session", || harness.stats().sessions == 1).await;
    let refused =
        Agent::connect_as(&harness, &revoked, State::default(), State::default().hello("revoked")).await;
    assert_eq!(refused.err().unwrap().code(), Code::Unauthenticated);
    harness.publish([policy("p", 1, SpanChange::Everyone)]);
    agents[0].until("the policy", |state| state.policy("p").is_some()).await;
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_takes_no_bytes_is_cut_and_a_slow_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let harness = Harness::start(dir, |config| config.nodes.stall_seconds = 6).await;
    harness.source.synced();
    let (still, slow) = (harness.node("still").await, harness.node("slow").await);
    let members: Vec<_> = (0..30_000).map(|n| format!("member-{n}")).collect();
    let names: Vec<_> = members.iter().map(String::as_str).collect();
    harness.publish([set("big", &names, SpanChange::Everyone)]);
    let _still = Agent::connect(&harness, &still, State::default()).await;
    let mut agent = Agent::connect(&harness, &slow, State::default()).await;
    eventually("both sessions", || harness.stats().sessions == 2).await;
    // The slow one reads a step now and then, each too large for its windows.
    for round in 0..5 {
        agent.step().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        harness.publish([set(&format!("big{round}"), &names, SpanChange::Everyone)]);
    }
    assert!(harness.session("slow").unwrap().connected);
    eventually("the cut", || !harness.session("still").unwrap().connected).await;
    assert!(harness.session("still").unwrap().last_end.unwrap().message.contains("no byte"));
    assert_eq!(harness.stats().stalled, 1);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_connect_and_die_at_random_end_with_the_truth() {
    const AGENTS: usize = 60;
    let harness = Arc::new(Harness::synced().await);
    let churning = Arc::new(AtomicBool::new(true));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..AGENTS {
        let (harness, churning) = (Arc::clone(&harness), Arc::clone(&churning));
        tasks.spawn(async move {
            let credential = harness.node(&format!("n{n}")).await;
            let (mut state, mut life) = (State::default(), n as u64);
            while churning.load(Relaxed) {
                let mut agent = Agent::connect(&harness, &credential, state).await;
                life = life.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                for _ in 0..life >> 61 {
                    let _ = tokio::time::timeout(Duration::from_millis(200), agent.step()).await;
                }
                // Dies: sometimes with its state, sometimes with nothing.
                state = if life >> 40 & 3 == 0 { State::default() } else { agent.state };
            }
            let mut agent = Agent::connect(&harness, &credential, state).await;
            agent.until("the end", |state| state.policy("end") == Some(1)).await;
            (n, agent.state)
        });
    }
    let source = harness.source.clone();
    for round in 0..400u64 {
        let (who, other) =
            (format!("n{}", round * 31 % AGENTS as u64), format!("n{}", round * 17 % AGENTS as u64));
        let name = format!("s{}", round % 23);
        let members = [format!("m{round}"), format!("m{}", round / 2)];
        source.publish([
            set(&name, &[&members[0], &members[1]], nodes(&[&who, &other])),
            change(&format!("s{}", round % 7), &[&members[0]], &[]),
            policy(
                &format!("p{}", round % 11),
                round as i64,
                if round % 5 == 0 { SpanChange::Everyone } else { nodes(&[&who]) },
            ),
        ]);
        if round % 13 == 0 {
            let gone = server::transport::objects::remove(wire::trestle::v1::ObjectKind::AddressSet, &name);
            source.publish([gone]);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    churning.store(false, Relaxed);
    source.publish([policy("end", 1, SpanChange::Everyone)]);
    while let Some(done) = tasks.join_next().await {
        let (n, state) = done.unwrap();
        let held = harness.controller.transport().hub.held(&format!("n{n}")).unwrap_or_default();
        let expected: Vec<_> =
            held.iter().map(|held| (i32::from(held.key.kind.0), held.key.name.to_string())).collect();
        assert_eq!(state.objects.keys().cloned().collect::<Vec<_>>(), expected, "node n{n}");
        for (held, (_, have)) in held.iter().zip(state.objects.values()) {
            if let super::agent::Held::Set(members) = have {
                assert_eq!(Some(members.len()), held.members);
            }
        }
    }
    eventually("the end of all sessions", || harness.stats().sessions == 0).await;
    let Ok(harness) = Arc::try_unwrap(harness).map_err(|_| ()) else { panic!("somebody holds the harness") };
    harness.stop().await;
}
