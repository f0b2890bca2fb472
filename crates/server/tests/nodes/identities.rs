//! Machines that join by what they are, with an issuer and a cluster that are asked over TLS.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::KeySize,
    signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair},
};
use axum::{
    Json, Router,
    extract::State,
    routing::{get, post},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, StatusCode};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use rcgen::KeyPair;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use serde_json::{Value, json};
use server::Config;
use testkit_controllers::controller::Fixture;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;
use tonic::{Code, Status};
use wire::trestle::v1::{JoinResponse, ListHostsRequest, hosts_client::HostsClient};

use super::hosts::join_over;

/// Issues tokens, and answers for them.
struct Issuer {
    key: RsaKeyPair,
    asked: AtomicUsize,
}

impl Issuer {
    fn new() -> Self {
        Self { key: RsaKeyPair::generate(KeySize::Rsa2048).unwrap(), asked: AtomicUsize::new(0) }
    }

    fn keys(&self) -> Value {
        let (n, e) = (self.key.public_key().modulus(), self.key.public_key().exponent());
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (n, e) = (text(n.big_endian_without_leading_zero()), text(e.big_endian_without_leading_zero()));
        json!({ "keys": [{ "kty": "RSA", "kid": "a", "n": n, "e": e }] })
    }

    /// A token about a machine, for this controller.
    fn token(&self, name: &str) -> String {
        let end = jiff::Timestamp::now().as_second() + 60;
        let claims = json!({ "iss": "issuer", "aud": "trestle", "exp": end, "sub": "vm", "project": "shop", "name": name });
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(json!({ "alg": "RS256", "kid": "a" })), part(claims));
        let mut signature = vec![0; self.key.public_modulus_len()];
        self.key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Listens with TLS; where, and whose certificate is to be believed.
    async fn listen(self: &Arc<Self>, dir: &Path) -> (String, PathBuf, JoinHandle<()>) {
        let key = KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let ca = dir.join("issuer.pem");
        std::fs::write(&ca, certificate.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let router = Router::new()
            .route("/keys", get(keys))
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(review))
            .with_state(Arc::clone(self));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, router) = (tls.clone(), router.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = TowerToHyperService::new(router);
                    let _ = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        (url, ca, serving)
    }
}

async fn keys(State(issuer): State<Arc<Issuer>>) -> Json<Value> {
    issuer.asked.fetch_add(1, Relaxed);
    Json(issuer.keys())
}

/// As an API server answers, for tokens that are called after who has them.
async fn review(headers: HeaderMap, Json(asked): Json<Value>) -> Result<Json<Value>, StatusCode> {
    if headers.get("authorization").is_none_or(|shown| shown != "Bearer reviewer") {
        return Err(StatusCode::FORBIDDEN);
    }
    let account = asked["spec"]["token"].as_str().unwrap().strip_prefix("token-of-");
    let status = match account {
        Some(account) => json!({
            "authenticated": true,
            "audiences": asked["spec"]["audiences"],
            "user": {
                "username": format!("system:serviceaccount:shop:{account}"),
                "extra": { "authentication.kubernetes.io/node-name": ["node-1"] },
            },
        }),
        None => json!({ "error": "token lookup failed" }),
    };
    Ok(Json(json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status })))
}

async fn start(identity: Value) -> Fixture {
    let identity = serde_json::from_value(identity).unwrap();
    Fixture::start_with(|config: &mut Config| config.hosts.identities = vec![identity]).await
}

async fn join(fixture: &Fixture, name: &str, proof: &str) -> Result<JoinResponse, Status> {
    join_over(fixture.channel().await, &KeyPair::generate().unwrap(), name, proof).await
}

async fn names(fixture: &Fixture) -> Vec<String> {
    let mut hosts = HostsClient::new(fixture.admin().await);
    let listed = hosts.list_hosts(ListHostsRequest {}).await.unwrap().into_inner().hosts;
    listed.into_iter().map(|host| host.name).collect()
}

#[track_caller]
fn refused(outcome: Result<JoinResponse, Status>, code: Code) {
    let status = outcome.unwrap_err();
    assert_eq!(status.code(), code, "{}", status.message());
}

#[tokio::test]
async fn the_keys_of_an_issuer_are_fetched_once_and_kept_while_it_is_away() {
    let (dir, issuer) = (tempfile::tempdir().unwrap(), Arc::new(Issuer::new()));
    let (url, ca, serving) = issuer.listen(dir.path()).await;
    let fixture = start(json!({
        "name": "gcp", "issuer": "issuer", "audience": "trestle", "keys": format!("{url}/keys"), "ca": ca,
        "admit": [{ "when": { "project": "shop" }, "name_from": "name", "tags": ["web"] }],
    }))
    .await;
    let shown = |name: &str| format!("gcp:{}", issuer.token(name));
    let host = join(&fixture, "web-1", &shown("web-1")).await.unwrap().host.unwrap();
    assert_eq!((host.tags, host.joined_by.as_str()), (vec!["web".to_owned()], "gcp vm"));
    refused(join(&fixture, "web-2", &shown("web-3")).await, Code::PermissionDenied);
    refused(
        join(&fixture, "web-2", &format!("gcp:{}", Issuer::new().token("web-2"))).await,
        Code::Unauthenticated,
    );
    join(&fixture, "web-2", &shown("web-2")).await.unwrap();
    assert_eq!(issuer.asked.load(Relaxed), 1);
    serving.abort();
    join(&fixture, "web-3", &shown("web-3")).await.unwrap();
    assert_eq!(names(&fixture).await, ["web-1", "web-2", "web-3"]);
}

#[tokio::test]
async fn keys_from_somebody_else_admit_nobody() {
    let (dir, issuer) = (tempfile::tempdir().unwrap(), Arc::new(Issuer::new()));
    let (url, _, _serving) = issuer.listen(dir.path()).await;
    // Its certificate is nobody's that this machine believes.
    let fixture = start(json!({
        "name": "gcp", "issuer": "issuer", "audience": "trestle", "keys": format!("{url}/keys"),
        "admit": [{ "when": { "project": "shop" }, "name_from": "name" }],
    }))
    .await;
    refused(join(&fixture, "web-1", &format!("gcp:{}", issuer.token("web-1"))).await, Code::Unavailable);
    assert!(names(&fixture).await.is_empty() && issuer.asked.load(Relaxed) == 0);
}

#[tokio::test]
async fn a_cluster_is_asked_whose_a_token_is() {
    let (dir, issuer) = (tempfile::tempdir().unwrap(), Arc::new(Issuer::new()));
    let (url, ca, _serving) = issuer.listen(dir.path()).await;
    let credential = dir.path().join("credential");
    std::fs::write(&credential, "reviewer\n").unwrap();
    let fixture = start(json!({
        "name": "cluster", "kind": "review", "server": url, "ca": ca, "credential": credential, "audience": "trestle",
        "admit": [{ "when": { "namespace": "shop", "service_account": "agents" },
                    "name_from": "extra.authentication.kubernetes.io/node-name" }],
    }))
    .await;
    refused(join(&fixture, "node-1", "cluster:made up").await, Code::Unauthenticated);
    refused(join(&fixture, "node-1", "cluster:token-of-default").await, Code::PermissionDenied);
    refused(join(&fixture, "node-2", "cluster:token-of-agents").await, Code::PermissionDenied);
    join(&fixture, "node-1", "cluster:token-of-agents").await.unwrap();
    refused(join(&fixture, "node-1", "cluster:token-of-agents").await, Code::AlreadyExists);
    // The cluster refuses this controller: that is nothing that the machine could mend.
    std::fs::write(&credential, "nobody").unwrap();
    refused(join(&fixture, "node-3", "cluster:token-of-agents").await, Code::Unavailable);
    assert_eq!(names(&fixture).await, ["node-1"]);
}

#[tokio::test]
async fn a_node_that_was_made_anew_takes_its_own_place_and_nobody_elses() {
    let (dir, issuer) = (tempfile::tempdir().unwrap(), Arc::new(Issuer::new()));
    let (url, ca, _serving) = issuer.listen(dir.path()).await;
    let credential = dir.path().join("credential");
    std::fs::write(&credential, "reviewer\n").unwrap();
    let identity = |name: &str| {
        json!({
            "name": name, "kind": "review", "server": url, "ca": ca, "credential": credential, "audience": "trestle",
            "admit": [{ "when": { "service_account": "agents" }, "name_from": "extra.authentication.kubernetes.io/node-name",
                        "replaces": true }],
        })
    };
    let identities =
        [identity("cluster"), identity("another")].map(|one| serde_json::from_value(one).unwrap());
    let fixture =
        Fixture::start_with(|config: &mut Config| config.hosts.identities = identities.into()).await;
    let (first, second) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let shown = "cluster:token-of-agents";
    let join =
        async |key: &KeyPair, proof: &str| join_over(fixture.channel().await, key, "node-1", proof).await;
    let before = join(&first, shown).await.unwrap();
    let after = join(&second, shown).await.unwrap();
    assert_ne!(before.certificate_pem, after.certificate_pem);
    assert_eq!(names(&fixture).await, ["node-1"]);
    // What had the name before is out: with its key, and with what is another cluster's.
    refused(join(&first, shown).await, Code::PermissionDenied);
    refused(join(&KeyPair::generate().unwrap(), "another:token-of-agents").await, Code::AlreadyExists);
    join(&second, "").await.unwrap();
}
