//! A caller of the watch API: single calls, and streams of frames.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use prost::Message as _;
use serde_json::{Value, json};
use watch::{MAGIC, proto};
use wire::trestle::v1::{
    ApplyObjectsRequest, CreateTokenRequest, Role, access_client::AccessClient, objects_client::ObjectsClient,
};

use testkit_controllers::controller::{Fixture, tls};

pub(crate) const API: &str = "/apis/controlplane.antrea.io/v1beta2";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf, */*";

pub(crate) fn pod(name: &str, app: &str, node: &str, ip: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "shop", "labels": { "app": app } },
        "spec": { "nodeName": node },
        "status": { "podIP": ip, "podIPs": [{ "ip": ip }] },
    })
}

/// One policy on node-2, for the database, that permits the web.
pub(crate) fn shop() -> Vec<Value> {
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }),
        pod("web-1", "web", "node-1", "10.10.1.5"),
        pod("db-0", "db", "node-2", "10.10.2.7"),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "name": "db", "namespace": "shop" },
            "spec": {
                "podSelector": { "matchLabels": { "app": "db" } },
                "policyTypes": ["Ingress"],
                "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": "web" } } }] }],
            },
        }),
    ]
}

pub(crate) async fn apply(fixture: &Fixture, objects: &[Value]) {
    let documents = objects.iter().map(|object| object.to_string().into_bytes()).collect();
    let request = ApplyObjectsRequest { documents, ..Default::default() };
    ObjectsClient::new(fixture.admin().await).apply_objects(request).await.unwrap();
}

pub(crate) async fn node_token(fixture: &Fixture, name: &str) -> String {
    let request = CreateTokenRequest { name: name.into(), role: Role::Node as i32, ttl_seconds: None };
    AccessClient::new(fixture.admin().await).create_token(request).await.unwrap().into_inner().secret
}

/// A call whose reply may go on.
pub(crate) struct Call<'a> {
    pub(crate) fixture: &'a Fixture,
    pub(crate) token: Option<&'a str>,
    pub(crate) accept: &'a str,
}

impl Call<'_> {
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        body: Vec<u8>,
    ) -> (StatusCode, HeaderMap, Incoming) {
        let stream = tls(&self.fixture.ca, self.fixture.controller.watch_addr()).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        if let Some(token) = self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.header(header::ACCEPT, self.accept).body(Full::new(Bytes::from(body))).unwrap();
        let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
        (parts.status, parts.headers, body)
    }

    pub(crate) async fn json(&self, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let (status, _, body) = self.send(method, path, body).await;
        let bytes = body.collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    pub(crate) async fn watch(&self, query: &str) -> Frames {
        let (status, headers, body) = self.send("GET", &format!("{API}/{query}"), Vec::new()).await;
        assert_eq!(status, StatusCode::OK, "{query}");
        assert_eq!(headers[header::CONTENT_TYPE], "application/vnd.kubernetes.protobuf;stream=watch");
        Frames::of(body)
    }
}

/// Protobuf events of a watch.
pub(crate) struct Frames {
    body: Incoming,
    bytes: BytesMut,
}

impl Frames {
    pub(crate) fn of(body: Incoming) -> Self {
        Frames { body, bytes: BytesMut::new() }
    }

    /// The type, the kind and the object of the next event; none when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<(String, String, Vec<u8>)> {
        loop {
            if self.bytes.len() >= 4 {
                let length = u32::from_be_bytes(self.bytes[..4].try_into().unwrap()) as usize;
                if self.bytes.len() >= 4 + length {
                    self.bytes.advance(4);
                    let event = proto::WatchEvent::decode(self.bytes.split_to(length)).unwrap();
                    let raw = event.object.raw.strip_prefix(MAGIC).unwrap();
                    let unknown = proto::Unknown::decode(raw).unwrap();
                    return Some((event.kind, unknown.type_meta.kind, unknown.raw));
                }
            }
            let frame = tokio::time::timeout(Duration::from_secs(60), self.body.frame()).await.unwrap()?;
            // A controller that is stopped may cut the connection.
            self.bytes.extend_from_slice(&frame.ok()?.into_data().unwrap_or_default());
        }
    }

    pub(crate) async fn expect(&mut self, event: &str, kind: &str) -> Vec<u8> {
        let (told_event, told_kind, object) = self.next().await.expect("the stream goes on");
        assert_eq!((told_event.as_str(), told_kind.as_str()), (event, kind));
        object
    }
}
