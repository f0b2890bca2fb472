//! Strangers: what they may take of a controller, and that nobody else misses it.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use server::StorageConfig;
use testkit_controllers::controller::{Fixture, tls, tls_for};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use wire::{
    k8s::io::apimachinery::pkg::api::resource::Quantity,
    provider::{OnBoardConsumerRequest, StorageConfigRequest, ocs_provider_client::OcsProviderClient},
    tagservicepb::{ListTagsRequest, tag_service_client::TagServiceClient},
    trestle::v1::Role,
};

type Body = UnsyncBoxBody<Bytes, Infallible>;

const ONBOARD: &str = "/provider.OCSProvider/OnBoardConsumer";

/// A body that begins so and never ends.
fn endless(start: Vec<u8>) -> Body {
    let start = stream::iter([Ok(Frame::data(Bytes::from(start)))]);
    StreamBody::new(start.chain(stream::pending())).boxed_unsync()
}

/// A connection over HTTP/2 of somebody who does not say who it is.
async fn stranger(fixture: &Fixture, addr: SocketAddr) -> Option<SendRequest<Body>> {
    let stream = tls_for(&fixture.ca, addr, "h2").await.ok()?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    Some(sender)
}

fn begun(path: &str, kind: &str, body: Body) -> Request<Body> {
    let request = Request::post(format!("https://localhost{path}")).header("content-type", kind);
    request.body(body).unwrap()
}

/// An administrator's calls succeed, on new connections, and everyone is told how the controller is.
async fn all_is_well(fixture: &Fixture) {
    let controller = &fixture.controller;
    let probe = async {
        assert_eq!(fixture.rest("GET", "/tags", "").await.0, StatusCode::OK);
        for path in ["/healthz", "/readyz"] {
            assert_eq!(fixture.rest_as(None, "GET", path, "").await.0, StatusCode::OK, "{path}");
        }
        let (live, ..) = fixture.call_at(controller.watch_addr(), None, "GET", "/livez", Bytes::new()).await;
        assert_eq!(live, StatusCode::OK);
        fixture.tags().await.list_tags(ListTagsRequest::default()).await.unwrap();
        HealthClient::new(fixture.channel().await).check(HealthCheckRequest::default()).await.unwrap();
    };
    timeout(Duration::from_secs(20), probe).await.expect("calls are answered");
}

/// Begins calls that never end, and returns what keeps them open.
async fn hold(
    fixture: &Fixture,
    addr: SocketAddr,
    connections: usize,
    request: impl Fn() -> Request<Body>,
) -> Vec<SendRequest<Body>> {
    let mut held = Vec::new();
    for _ in 0..connections {
        let mut sender = stranger(fixture, addr).await.unwrap();
        for _ in 0..220 {
            if sender.ready().await.is_err() {
                break;
            }
            tokio::spawn(sender.send_request(request()));
        }
        held.push(sender);
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_without_bodies_take_no_place_from_anybody() {
    let fixture = Fixture::start().await;
    let login = || begun("/session", "application/json", endless(Vec::new()));
    let _held = hold(&fixture, fixture.controller.http_addr(), 5, login).await;
    let half = || begun(ONBOARD, "application/grpc", endless(vec![0, 0, 0, 1, 0, 7]));
    let _held = hold(&fixture, fixture.controller.grpc_addr(), 5, half).await;
    all_is_well(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_body_is_small_and_comes_soon() {
    let fixture = Fixture::start().await;
    let large = format!(r#"{{"token": "{}"}}"#, "x".repeat(65 << 10));
    let (status, ..) = fixture.rest_as(None, "POST", "/session", large.clone()).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    // Who is known may send more, and is told what is wrong with it.
    let (status, ..) = fixture.rest_as(Some(&fixture.token), "POST", "/session", large).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);

    let mut sender = stranger(&fixture, fixture.controller.http_addr()).await.unwrap();
    let request = begun("/session", "application/json", endless(b"{".to_vec()));
    let reply = timeout(Duration::from_secs(15), sender.send_request(request)).await;
    assert_eq!(reply.expect("it is answered").unwrap().status(), StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_hostile_connections_harm_nobody() {
    let fixture = Fixture::start().await;
    let controller = &fixture.controller;
    let (http, grpc, watch) = (controller.http_addr(), controller.grpc_addr(), controller.watch_addr());
    let mut held: Vec<Box<dyn std::any::Any>> = Vec::new();
    for n in 0..60 {
        let addr = [http, grpc, watch][n % 3];
        // The first bytes of a handshake.
        let mut half = TcpStream::connect(addr).await.unwrap();
        half.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
        held.push(Box::new(half));
        if let Ok(mut slow) = tls(&fixture.ca, http).await {
            let _ = slow.write_all(b"GET /tags HTTP/1.1\r\nHost: x\r\nX-A: ").await;
            held.push(Box::new(slow));
        }
        if let Ok(mut greedy) = tls(&fixture.ca, http).await {
            let _ = greedy.write_all(&b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(50)).await;
            held.push(Box::new(greedy));
        }
        if let Ok(silent) = tls_for(&fixture.ca, grpc, "h2").await {
            held.push(Box::new(silent));
        }
        if let Some(mut sender) = stranger(&fixture, http).await {
            for n in 0..100 {
                if sender.ready().await.is_err() {
                    break;
                }
                let call = sender.send_request(begun("/session", "application/json", endless(Vec::new())));
                match n % 4 {
                    0 => drop(tokio::spawn(call)),
                    // Dropped at once, which resets it.
                    _ => drop(call),
                }
                tokio::task::yield_now().await;
            }
            held.push(Box::new(sender));
        }
    }
    for _ in 0..5 {
        all_is_well(&fixture).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_never_speaks_http2_is_let_go() {
    let fixture = Fixture::start().await;
    let mut silent = tls_for(&fixture.ca, fixture.controller.grpc_addr(), "h2").await.unwrap();
    let mut bytes = [0; 512];
    let gone = async { while silent.read(&mut bytes).await.is_ok_and(|read| read > 0) {} };
    timeout(Duration::from_secs(20), gone).await.expect("it is cut");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_has_so_many_places_and_newcomers_get_those_of_the_oldest() {
    let fixture = Fixture::start_with(|config| config.limits.max_strangers_per_address = 20).await;
    let addr = fixture.controller.http_addr();
    let mut idle = Vec::new();
    for _ in 0..60 {
        idle.push(TcpStream::connect(addr).await.unwrap());
    }
    let newcomer = async {
        while tls(&fixture.ca, addr).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(8), newcomer).await.expect("long before the others are too slow");
    // Another address is not concerned at all.
    let mut bytes = [0; 1];
    let mut open = 0;
    for stream in &mut idle {
        open += usize::from(timeout(Duration::from_millis(20), stream.read(&mut bytes)).await.is_err());
    }
    assert!(open <= 20, "{open} are open");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_are_bounded_over_http1_too() {
    let fixture = Fixture::start().await;
    let mut stream = tls(&fixture.ca, fixture.controller.http_addr()).await.unwrap();
    let filler = "x".repeat(8 << 10);
    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n").await;
    for n in 0..8 {
        let _ = stream.write_all(format!("X-{n}: {filler}\r\n").as_bytes()).await;
    }
    let _ = stream.write_all(b"\r\n").await;
    let mut reply = Vec::new();
    let _ = timeout(Duration::from_secs(5), stream.read_to_end(&mut reply)).await;
    let reply = String::from_utf8_lossy(&reply);
    assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 431"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_questions_are_answered_as_problems() {
    let fixture = Fixture::start().await;
    let resource = "/namespaces/default/clouds/a/resources/b";
    for (method, path) in [
        ("GET", "/jobs/1?wait=maybe".to_owned()),
        ("PUT", format!("{resource}?wait=maybe")),
        ("DELETE", format!("{resource}?wait=maybe")),
        ("POST", "/namespaces/default/clouds/a/resources?wait=maybe".to_owned()),
        ("POST", format!("{resource}/rules?wait=maybe")),
        ("PUT", format!("{resource}/rules/r?wait=maybe")),
        ("DELETE", format!("{resource}/rules/r?wait=maybe")),
        ("POST", format!("{resource}/applyRules?wait=maybe")),
        ("POST", format!("{resource}/deleteRules?wait=maybe")),
        ("POST", "/tags/t/rules?wait=maybe".to_owned()),
        ("DELETE", "/tags/t/rules?wait=maybe".to_owned()),
        ("GET", "/audit?limit=many".to_owned()),
        ("GET", "/explain?port=many".to_owned()),
    ] {
        let (status, headers, _) = fixture.rest_as(Some(&fixture.token), method, &path, "{}").await;
        let kind = headers.get("content-type").and_then(|value| value.to_str().ok());
        assert_eq!(
            (status, kind),
            (StatusCode::BAD_REQUEST, Some("application/problem+json")),
            "{method} {path}"
        );
    }
}

/// A consumer of storage has no credential but the id that its calls carry. One is enough for its connection: strangers who
/// take all places that strangers have do not keep it out.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_do_not_keep_out_a_consumer_that_has_proven_itself() {
    let fixture = Fixture::start_with(|config| {
        config.storage = Some(StorageConfig::nbd("127.0.0.1:0".parse().unwrap()));
        config.limits.max_strangers_in_flight = 4;
    })
    .await;
    let (status, made) = fixture.rest("POST", "/tickets", "{}").await;
    assert_eq!(status, StatusCode::OK, "{made}");
    let mut onboarded = OcsProviderClient::new(fixture.channel().await);
    let request = OnBoardConsumerRequest {
        token: made["text"].as_str().unwrap().to_owned(),
        capacity: Some(Quantity { string: Some("1Mi".to_owned()) }),
        sources: Vec::new(),
    };
    let id = onboarded.on_board_consumer(request).await.unwrap().into_inner().storage_consumer_uuid;
    let question = || StorageConfigRequest { storage_consumer_uuid: id.clone() };
    // Another connection becomes known by a call that changes nothing.
    let mut asking = OcsProviderClient::new(fixture.channel().await);
    let ready = async { while asking.get_storage_config(question()).await.is_err() {} };
    timeout(Duration::from_secs(20), ready).await.expect("it is made");

    let half = || begun(ONBOARD, "application/grpc", endless(vec![0, 0, 0, 1, 0, 7]));
    // Calls that wait are let go after a while, and so are the oldest connections: new ones come until the places are taken.
    let crowded = async {
        loop {
            let held = hold(&fixture, fixture.controller.grpc_addr(), 1, half).await;
            let mut stranger = OcsProviderClient::new(fixture.channel().await);
            if stranger.get_storage_config(question()).await.is_err() {
                return held;
            }
        }
    };
    let _held = timeout(Duration::from_secs(60), crowded).await.expect("strangers take their places");
    for consumer in [&mut onboarded, &mut asking] {
        consumer.get_storage_config(question()).await.unwrap();
    }
}

/// Whoever is known has many connections, and leaves room for those of others.
#[tokio::test(flavor = "multi_thread")]
async fn no_caller_has_all_connections() {
    let fixture = Fixture::start_with(|config| config.limits.max_connections = 8).await;
    let other = fixture.token_of(Role::Viewer).await;
    let asks = async |token: &str| {
        let mut tags = TagServiceClient::new(fixture.with_token(token).await);
        tags.list_tags(ListTagsRequest::default()).await.map(|_| tags)
    };
    let mut held = Vec::new();
    let refused = loop {
        match asks(&fixture.token).await {
            Ok(connection) => held.push(connection),
            Err(refused) => break refused,
        }
        assert!(held.len() < 7, "one caller has all but one connection");
    };
    assert!(refused.code() == Code::ResourceExhausted && held.len() >= 4, "{}: {refused}", held.len());
    asks(&other).await.expect("there is room for others");
    drop(held);
    let free = async { while asks(&fixture.token).await.is_err() {} };
    timeout(Duration::from_secs(20), free).await.expect("connections that are closed give their places back");
}
