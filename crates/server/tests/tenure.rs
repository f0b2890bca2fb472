//! Nothing outlives the credential it was begun with: sessions, streams, and what certificates prove.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use testkit_controllers::controller::{Bearer, Client, Fixture, tls};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use tonic::{Code, Streaming, service::interceptor::InterceptedService, transport::Identity};
use wire::{
    localv1::{WatchReq, sets_client::SetsClient},
    tagservicepb::{ListTagsRequest, tag_service_client::TagServiceClient},
    trestle::v1::{
        CreateJoinTokenRequest, CreateLoginRequest, CreateTokenRequest, FromNode, IssueCertificateRequest,
        IssueCertificateResponse, ListObjectsRequest, ListTokensRequest, NodeHello, RevokeCertificateRequest,
        RevokeTokenRequest, Role, WatchSubscriberRequest, WhoAmIRequest, access_client::AccessClient,
        from_node, node_feed_client::NodeFeedClient, objects_client::ObjectsClient,
        tag_events_client::TagEventsClient,
    },
};

/// How long an end may take on a machine that has other things to do; what is promised is a second.
const SOON: Duration = Duration::from_secs(4);

async fn token(fixture: &Fixture, role: Role, seconds: Option<u64>) -> String {
    let request = CreateTokenRequest { name: "brief".into(), role: role as i32, ttl_seconds: seconds };
    AccessClient::new(fixture.admin().await).create_token(request).await.unwrap().into_inner().secret
}

async fn revoke(fixture: &Fixture, token: &str) {
    let id = token.split('-').nth(1).unwrap().to_owned();
    AccessClient::new(fixture.admin().await)
        .revoke_token(RevokeTokenRequest { id, with_made: false })
        .await
        .unwrap();
}

async fn certificate(fixture: &Fixture, role: Role, seconds: u64) -> IssueCertificateResponse {
    let request =
        IssueCertificateRequest { name: "brief".into(), role: role as i32, ttl_seconds: Some(seconds) };
    AccessClient::new(fixture.admin().await).issue_certificate(request).await.unwrap().into_inner()
}

/// The cookie that a browser is given for a token or a code.
async fn log_in(fixture: &Fixture, what: &str, secret: &str) -> Result<String, StatusCode> {
    let body = format!(r#"{{"{what}": "{secret}"}}"#);
    let (status, headers, _) = fixture.rest_as(None, "POST", "/session", body).await;
    let cookie = headers.get("set-cookie").and_then(|value| value.to_str().ok());
    cookie.and_then(|text| text.split(';').next()).map(str::to_owned).ok_or(status)
}

/// What the page is answered with this cookie.
async fn with_cookie(fixture: &Fixture, method: &str, path: &str, cookie: &str) -> StatusCode {
    let stream = tls(&fixture.ca, fixture.controller.http_addr()).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    let request = request.header("sec-fetch-site", "same-origin").header("cookie", cookie);
    sender.send_request(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap().status()
}

/// The same cookie over gRPC, where its name has no port.
async fn over_grpc(fixture: &Fixture, cookie: &str) -> AccessClient<Client> {
    let secret = cookie.split_once('=').unwrap().1;
    let port = fixture.controller.grpc_addr().port();
    let value = format!("__Host-trestle-{port}={secret}").parse::<tonic::metadata::MetadataValue<_>>();
    let value = value.unwrap();
    let bearer: Bearer = Box::new(move |mut request| {
        request.metadata_mut().insert("cookie", value.clone());
        request.metadata_mut().insert("sec-fetch-site", "same-origin".parse().unwrap());
        Ok(request)
    });
    AccessClient::new(InterceptedService::new(fixture.channel().await, bearer))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_the_token_it_was_begun_with() {
    let fixture = Fixture::start().await;
    let brief = token(&fixture, Role::Admin, Some(3)).await;
    let expires = log_in(&fixture, "token", &brief).await.unwrap();
    let revoked = token(&fixture, Role::Admin, None).await;
    let cookie = log_in(&fixture, "token", &revoked).await.unwrap();
    assert_eq!(with_cookie(&fixture, "GET", "/tags", &expires).await, StatusCode::OK);
    assert_eq!(with_cookie(&fixture, "GET", "/tags", &cookie).await, StatusCode::OK);
    // A link that the token's owner has made is worth no more than the token.
    let code =
        AccessClient::new(fixture.with_token(&revoked).await).create_login(CreateLoginRequest {}).await;
    let code = code.unwrap().into_inner().code;

    revoke(&fixture, &revoked).await;
    assert_eq!(with_cookie(&fixture, "GET", "/tags", &cookie).await, StatusCode::UNAUTHORIZED);
    assert_eq!(log_in(&fixture, "code", &code).await, Err(StatusCode::UNAUTHORIZED));
    tokio::time::sleep(Duration::from_millis(3100)).await;
    assert_eq!(with_cookie(&fixture, "GET", "/tags", &expires).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_an_end_makes_nobody_who_has_none() {
    let fixture = Fixture::start().await;
    let hour = token(&fixture, Role::Admin, Some(3600)).await;
    let cookie = log_in(&fixture, "token", &hour).await.unwrap();
    let mut clients =
        [over_grpc(&fixture, &cookie).await, AccessClient::new(fixture.with_token(&hour).await)];
    let end = std::time::SystemTime::now() + Duration::from_secs(3601);
    let end = end.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for access in &mut clients {
        let asked = |seconds, role: Role| CreateTokenRequest {
            name: "x".into(),
            role: role as i32,
            ttl_seconds: seconds,
        };
        let made = access.create_token(asked(None, Role::Admin)).await.unwrap().into_inner();
        let expires_at = made.info.unwrap().expires_at.expect("it ends, as its maker does");
        assert!(u64::try_from(expires_at).unwrap() <= end);
        let refused = access.create_token(asked(Some(7200), Role::Viewer)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        let request =
            IssueCertificateRequest { name: "x".into(), role: Role::Admin as i32, ttl_seconds: None };
        let issued = access.issue_certificate(request).await.unwrap().into_inner();
        assert!(u64::try_from(issued.info.unwrap().not_after).unwrap() <= end);
        // Machines are furnished with what outlives the hour in which that is done.
        let request =
            IssueCertificateRequest { name: "n".into(), role: Role::Node as i32, ttl_seconds: None };
        let issued = access.issue_certificate(request).await.unwrap().into_inner();
        assert!(u64::try_from(issued.info.unwrap().not_after).unwrap() > end);
    }
    // Without an end of one's own there is no bound.
    let cookie = log_in(&fixture, "token", &fixture.token).await.unwrap();
    let request = CreateTokenRequest { name: "x".into(), role: Role::Admin as i32, ttl_seconds: None };
    let made = over_grpc(&fixture, &cookie).await.create_token(request).await.unwrap().into_inner();
    assert_eq!(made.info.unwrap().expires_at, None);
}

/// What a credential was used to make goes on after it, and can be told and revoked with it, however far it was handed on.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_with_a_credential_can_be_revoked_with_it() {
    let fixture = Fixture::start().await;
    let root = token(&fixture, Role::Admin, None).await;
    let id = root.split('-').nth(1).unwrap().to_owned();
    let asked = |role: Role| CreateTokenRequest { name: "x".into(), role: role as i32, ttl_seconds: None };
    let cookie = log_in(&fixture, "token", &root).await.unwrap();
    let through_session = over_grpc(&fixture, &cookie).await.create_token(asked(Role::Admin)).await;
    let child = through_session.unwrap().into_inner();
    let mut by_child = AccessClient::new(fixture.with_token(&child.secret).await);
    let request = IssueCertificateRequest { name: "x".into(), role: Role::Admin as i32, ttl_seconds: None };
    let issued = by_child.issue_certificate(request).await.unwrap().into_inner();
    let identity = Identity::from_pem(&issued.certificate_pem, &issued.key_pem);
    let channel = fixture.endpoint(Some(identity)).connect().await.unwrap();
    let mut by_certificate = AccessClient::new(channel);
    let grandchild = by_certificate.create_token(asked(Role::Viewer)).await.unwrap().into_inner();
    let join =
        by_certificate.create_join_token(CreateJoinTokenRequest::default()).await.unwrap().into_inner();

    let ids = [&child.info, &grandchild.info, &join.info].map(|info| info.clone().unwrap().id);
    let serial = issued.info.unwrap().serial;
    let mut access = AccessClient::new(fixture.admin().await);
    let listed = access.list_tokens(ListTokensRequest {}).await.unwrap().into_inner().tokens;
    let made_with = |id: &str| &listed.iter().find(|token| token.id == id).unwrap().made_with;
    let makers = [format!("token/{id}"), format!("certificate/{serial}"), format!("certificate/{serial}")];
    assert_eq!(ids.each_ref().map(|id| made_with(id)), makers.each_ref());

    revoke(&fixture, &root).await;
    by_child.who_am_i(WhoAmIRequest {}).await.expect("without being asked to, nothing is revoked with it");
    let with_made = || RevokeTokenRequest { id: id.clone(), with_made: true };
    let mut also = access.revoke_token(with_made()).await.unwrap().into_inner().also;
    let mut expected: Vec<String> = ids.iter().map(|id| format!("token/{id}")).collect();
    expected.push(format!("certificate/{serial}"));
    also.sort();
    expected.sort();
    assert_eq!(also, expected);
    for mut refused in [by_child, AccessClient::new(fixture.with_token(&grandchild.secret).await)] {
        assert_eq!(refused.who_am_i(WhoAmIRequest {}).await.unwrap_err().code(), Code::Unauthenticated);
    }
    let refused = by_certificate.who_am_i(WhoAmIRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert_eq!(access.revoke_token(with_made()).await.unwrap_err().code(), Code::NotFound, "all is gone");
}

/// Whoever goes on making tokens while its own is revoked has none left in the end.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_made_with_a_credential_once_it_is_revoked() {
    let fixture = Fixture::start().await;
    let root = token(&fixture, Role::Admin, None).await;
    let mut makers = Vec::new();
    for _ in 0..8 {
        let mut access = AccessClient::new(fixture.with_token(&root).await);
        makers.push(tokio::spawn(async move {
            let asked =
                || CreateTokenRequest { name: "x".into(), role: Role::Admin as i32, ttl_seconds: None };
            let mut made = 0;
            loop {
                match access.create_token(asked()).await {
                    Ok(_) => made += 1,
                    Err(refused) => return (made, refused.code()),
                }
            }
        }));
    }
    let mut access = AccessClient::new(fixture.admin().await);
    let id = root.split('-').nth(1).unwrap().to_owned();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let also = access.revoke_token(RevokeTokenRequest { id: id.clone(), with_made: true }).await;
    let also = also.unwrap().into_inner().also;
    let mut made = 0;
    for maker in makers {
        let (count, refusal) = maker.await.unwrap();
        assert_eq!(refusal, Code::Unauthenticated);
        made += count;
    }
    // Of some the answer ended with the credential, after they were made.
    assert!(also.len() >= made && made > 0, "{made} made, {} revoked", also.len());
    let left = access.list_tokens(ListTokensRequest {}).await.unwrap().into_inner().tokens;
    assert!(left.iter().all(|token| token.made_with != format!("token/{id}")), "{left:?}");
}

/// Whoever is known has a bound too, and only for itself.
#[tokio::test(flavor = "multi_thread")]
async fn one_credential_has_so_many_sessions_and_login_links() {
    let fixture = Fixture::start().await;
    let [hog, other] = [token(&fixture, Role::Viewer, None).await, token(&fixture, Role::Viewer, None).await];
    let mut access = AccessClient::new(fixture.with_token(&hog).await);
    for _ in 0..64 {
        access.create_login(CreateLoginRequest {}).await.unwrap();
    }
    let refused = access.create_login(CreateLoginRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    AccessClient::new(fixture.with_token(&other).await).create_login(CreateLoginRequest {}).await.unwrap();
    let others = log_in(&fixture, "token", &other).await.unwrap();
    let mut cookies = Vec::new();
    for _ in 0..65 {
        cookies.push(log_in(&fixture, "token", &hog).await.unwrap());
    }
    assert_eq!(with_cookie(&fixture, "GET", "/tags", &cookies[0]).await, StatusCode::UNAUTHORIZED);
    for cookie in [&cookies[1], &cookies[64], &others] {
        assert_eq!(with_cookie(&fixture, "GET", "/tags", cookie).await, StatusCode::OK);
    }
}

/// Reads until the end, and returns it.
async fn end_of<T>(mut stream: Streaming<T>) -> Code {
    let end = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    };
    timeout(SOON, end).await.expect("the stream ends")
}

/// A reply that goes on, over HTTP/1.
struct Reply(hyper::body::Incoming);

impl Reply {
    async fn open(fixture: &Fixture, addr: std::net::SocketAddr, path: &str, token: &str) -> Self {
        let stream = tls(&fixture.ca, addr).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(path).header("host", "localhost");
        let request = request.header("authorization", format!("Bearer {token}"));
        let response = sender.send_request(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        Self(response.into_body())
    }

    async fn ends(mut self) {
        let end = async { while self.0.frame().await.is_some_and(|frame| frame.is_ok()) {} };
        timeout(SOON, end).await.expect("the stream ends");
    }
}

/// Everything that goes on, opened with one token.
struct Streams {
    objects: Streaming<wire::trestle::v1::ObjectEvent>,
    tags: Streaming<wire::trestle::v1::TagEvent>,
    services: Streaming<wire::localv1::OpItem>,
    over_http: Vec<Reply>,
    _requests: tokio::sync::mpsc::Sender<WatchReq>,
}

impl Streams {
    async fn open(fixture: &Fixture, token: &str) -> Self {
        let (requests, asked) = tokio::sync::mpsc::channel(1);
        requests.send(WatchReq { node_name: "n".into() }).await.unwrap();
        let asked = tokio_stream::wrappers::ReceiverStream::new(asked);
        let request = WatchSubscriberRequest { subscriber: "s.example".into(), after: None };
        let controller = &fixture.controller;
        let networks = "/apis/controlplane.antrea.io/v1beta2/addressgroups?watch=true";
        Self {
            objects: ObjectsClient::new(fixture.with_token(token).await)
                .watch_objects(ListObjectsRequest::default())
                .await
                .unwrap()
                .into_inner(),
            tags: TagEventsClient::new(fixture.with_token(token).await)
                .watch_subscriber(request)
                .await
                .unwrap()
                .into_inner(),
            services: SetsClient::new(fixture.with_token(token).await)
                .watch(asked)
                .await
                .unwrap()
                .into_inner(),
            over_http: vec![
                Reply::open(fixture, controller.http_addr(), "/events", token).await,
                Reply::open(fixture, controller.watch_addr(), networks, token).await,
            ],
            _requests: requests,
        }
    }

    async fn end(self) {
        assert_eq!(end_of(self.objects).await, Code::Unauthenticated, "WatchObjects");
        assert_eq!(end_of(self.tags).await, Code::Unauthenticated, "WatchSubscriber");
        assert_eq!(end_of(self.services).await, Code::Unauthenticated, "localv1");
        for reply in self.over_http {
            reply.ends().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_stream_ends_when_its_token_is_revoked() {
    let fixture = Fixture::start().await;
    let viewer = token(&fixture, Role::Viewer, None).await;
    let other = token(&fixture, Role::Viewer, None).await;
    let streams = Streams::open(&fixture, &viewer).await;
    let mut others = Streams::open(&fixture, &other).await;
    revoke(&fixture, &viewer).await;
    streams.end().await;
    // Nobody else's does.
    let mut first = true;
    while let Ok(told) = timeout(Duration::from_millis(300), others.objects.message()).await {
        assert!(told.unwrap().is_some() && std::mem::take(&mut first));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_stream_ends_when_its_token_expires() {
    let fixture = Fixture::start().await;
    let viewer = token(&fixture, Role::Viewer, Some(3)).await;
    let streams = Streams::open(&fixture, &viewer).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    streams.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_a_certificate_end_with_it() {
    let fixture = Fixture::start().await;
    for revoked in [false, true] {
        let issued = certificate(&fixture, Role::Node, 4).await;
        let identity = Identity::from_pem(&issued.certificate_pem, &issued.key_pem);
        let connect = || async { fixture.endpoint(Some(identity.clone())).connect().await.unwrap() };
        let (requests, asked) = tokio::sync::mpsc::channel(1);
        requests.send(WatchReq { node_name: "brief".into() }).await.unwrap();
        let asked = tokio_stream::wrappers::ReceiverStream::new(asked);
        let services = SetsClient::new(connect().await).watch(asked).await.unwrap().into_inner();
        let hello = NodeHello { node: "brief".into(), ..NodeHello::default() };
        let hello = FromNode { message: Some(from_node::Message::Hello(hello)) };
        let said = tokio_stream::StreamExt::chain(tokio_stream::once(hello), tokio_stream::pending());
        let feed = NodeFeedClient::new(connect().await).connect(said).await.unwrap().into_inner();
        match revoked {
            false => tokio::time::sleep(Duration::from_secs(4)).await,
            true => {
                let serial = issued.info.unwrap().serial;
                let request = RevokeCertificateRequest { serial, with_made: false };
                AccessClient::new(fixture.admin().await).revoke_certificate(request).await.unwrap();
            }
        }
        assert_eq!(end_of(services).await, Code::Unauthenticated);
        // A node's connection is cut right behind the status, which may overtake it.
        let code = end_of(feed).await;
        let cut = matches!(code, Code::Unknown | Code::Unavailable | Code::Cancelled);
        assert!(code == Code::Unauthenticated || cut, "{code:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_proves_nothing_on_an_open_connection() {
    let fixture = Fixture::start().await;
    let issued = certificate(&fixture, Role::Viewer, 3).await;
    let identity = Identity::from_pem(&issued.certificate_pem, &issued.key_pem);
    let channel = fixture.endpoint(Some(identity)).connect().await.unwrap();
    let mut tags = TagServiceClient::new(channel);
    tags.list_tags(ListTagsRequest::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(3100)).await;
    let refused = tags.list_tags(ListTagsRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_handshake_is_resumed() {
    let fixture = Fixture::start().await;
    let issued = certificate(&fixture, Role::Viewer, 60).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(fixture.ca.as_bytes()).unwrap()).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    for versions in [&[&rustls::version::TLS13], &[&rustls::version::TLS12]] {
        let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider));
        let mut config = builder
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        for _ in 0..2 {
            let stream = TcpStream::connect(fixture.controller.http_addr()).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let mut stream = connector.connect(name, stream).await.unwrap();
            assert_eq!(stream.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
            // A ticket would come with the first reply.
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
            let mut reply = Vec::new();
            let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut reply).await;
            assert!(reply.starts_with(b"HTTP/1.1 200"));
        }
    }
}
