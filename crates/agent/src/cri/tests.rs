use std::sync::Arc;

use axum::{Router, extract::State as Shared, routing::post};
use prost::Message as _;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{body::Body, transport::Server};

use super::{
    messages::{Address, Linux, Metadata, Namespaces, Network, Options},
    *,
};

/// Sandboxes, each with what is said of it; none: it goes when it is looked at.
type Runtimes = Arc<Vec<(Sandbox, Option<SandboxStatusReply>)>>;

fn sandbox(id: &str, name: &str) -> Sandbox {
    let metadata = Metadata { name: name.into(), uid: format!("uid-{name}"), namespace: "shop".into() };
    Sandbox { id: id.into(), metadata: Some(metadata) }
}

fn reply(path: &str, mode: i32) -> SandboxStatusReply {
    let more = vec![Address { address: "fd00::7".into() }, Address { address: "none".into() }];
    let options = Some(Options { network: mode });
    let status = SandboxStatus {
        network: Some(Network { address: "10.0.0.7".into(), more }),
        linux: Some(Linux { namespaces: Some(Namespaces { options }) }),
    };
    let namespaces = serde_json::json!([{"type": "pid"}, {"type": "network", "path": path}]);
    let info = serde_json::json!({"pid": 7, "runtimeSpec": {"linux": {"namespaces": namespaces}}});
    SandboxStatusReply { status: Some(status), info: [("info".to_owned(), info.to_string())].into() }
}

async fn list(Shared(all): Shared<Runtimes>, request: axum::extract::Request) -> http::Response<Body> {
    let call = service_fn(move |asked: tonic::Request<ListSandboxes>| {
        let items = all.iter().map(|(sandbox, _)| sandbox.clone()).collect();
        assert_eq!(asked.get_ref().filter.clone().unwrap().state.unwrap().ready, 0);
        async move { Ok::<_, Status>(tonic::Response::new(Sandboxes { items })) }
    });
    tonic::server::Grpc::new(ProstCodec::default()).unary(call, request).await
}

async fn status(Shared(all): Shared<Runtimes>, request: axum::extract::Request) -> http::Response<Body> {
    let call = service_fn(move |asked: tonic::Request<StatusRequest>| {
        let StatusRequest { id, verbose } = asked.into_inner();
        let found = all.iter().find(|(sandbox, _)| verbose && sandbox.id == id);
        let answer = found.and_then(|(_, reply)| reply.clone()).ok_or_else(|| Status::not_found("gone"));
        async move { answer.map(tonic::Response::new) }
    });
    tonic::server::Grpc::new(ProstCodec::default()).unary(call, request).await
}

#[tokio::test]
async fn a_runtime_says_whose_sandboxes_are_and_where() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("runtime.sock");
    assert!(matches!(Runtime::connect(&socket).await, Err(CriError::Connect { .. })));
    let all = vec![
        (sandbox("1", "web"), Some(reply("/var/run/netns/cni-1", 0))),
        (sandbox("2", "on-node"), Some(reply("", 2))),
        (sandbox("3", "gone"), None),
    ];
    let router = Router::new()
        .route("/runtime.v1.RuntimeService/ListPodSandbox", post(list))
        .route("/runtime.v1.RuntimeService/PodSandboxStatus", post(status))
        .with_state(Arc::new(all));
    let incoming = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
    let served = Server::builder().add_routes(router.into()).serve_with_incoming(incoming);
    let served = tokio::spawn(async move { served.await.unwrap() });

    let mut runtime = Runtime::connect(&socket).await.unwrap();
    let sandboxes = runtime.sandboxes().await.unwrap();
    assert_eq!(sandboxes.len(), 3);
    let first = runtime.status("1").await.unwrap().unwrap();
    assert_eq!(first.network_namespace(), Some("/var/run/netns/cni-1".into()));
    let attachment = sandboxes[0].attachment("veth1".into(), first.addresses());
    assert_eq!(sandboxes[0].pod().unwrap().to_string(), "shop/web");
    assert_eq!(
        (attachment.uid.as_deref(), attachment.container.unwrap().id.as_str()),
        (Some("uid-web"), "1")
    );
    assert_eq!(attachment.addresses, ["10.0.0.7".parse::<IpAddr>().unwrap(), "fd00::7".parse().unwrap()]);
    assert_eq!(
        runtime.status("2").await.unwrap().unwrap().network_namespace(),
        None,
        "it is on the node's network"
    );
    assert!(runtime.status("3").await.unwrap().is_none());
    served.abort();
}

/// What containerd sends has many more fields; they are skipped.
#[test]
fn fields_that_are_not_read_are_skipped() {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Longer {
        #[prost(string, tag = "1")]
        id: String,
        #[prost(message, optional, tag = "2")]
        metadata: Option<Metadata>,
        #[prost(int32, tag = "3")]
        state: i32,
        #[prost(int64, tag = "4")]
        created: i64,
        #[prost(map = "string, string", tag = "5")]
        labels: std::collections::HashMap<String, String>,
    }
    let Sandbox { id, metadata } = sandbox("1", "web");
    let labels = [("a".to_owned(), "b".to_owned())].into();
    let longer = Longer { id, metadata, state: 0, created: 7, labels };
    assert_eq!(Sandbox::decode(longer.encode_to_vec().as_slice()).unwrap(), sandbox("1", "web"));
    let silent =
        SandboxStatusReply { info: [("info".to_owned(), "no JSON".to_owned())].into(), ..reply("", 0) };
    assert_eq!(silent.network_namespace(), None);
}
