//! A host joins, renews its certificate and comes back, through a real controller; and what it refuses.

use std::{fs, path::Path, time::Duration};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use agent::{
    Uplink,
    join::{Admission, HostKey, JoinError, Joined, join, pinned},
    renewal,
};
use model::JoinToken;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use server::{CertificateFiles, Config};
use tempfile::TempDir;
use testkit_controllers::controller::Fixture;
use tonic::transport::Identity;
use wire::trestle::v1::{
    CreateJoinTokenRequest, ListHostsRequest, access_client::AccessClient, hosts_client::HostsClient,
};

async fn token(fixture: &Fixture) -> JoinToken {
    let mut access = AccessClient::new(fixture.admin().await);
    let asked = CreateJoinTokenRequest { uses: 3, ..Default::default() };
    access.create_join_token(asked).await.unwrap().into_inner().token.parse().unwrap()
}

fn url(fixture: &Fixture) -> String {
    format!("https://localhost:{}", fixture.controller.grpc_addr().port())
}

async fn come(fixture: &Fixture, key: &HostKey, token: &JoinToken) -> Result<Joined, JoinError> {
    let pinned = pinned::connect(&url(fixture), &token.ca).await?;
    assert_eq!(pinned::fingerprint(&pinned.ca), token.ca);
    join(pinned.channel, pinned.clock_is_wrong, key, "web-1", Admission::Token(token.clone())).await
}

async fn count(fixture: &Fixture) -> usize {
    let mut hosts = HostsClient::new(fixture.admin().await);
    hosts.list_hosts(ListHostsRequest {}).await.unwrap().into_inner().hosts.len()
}

/// Certificate files as somebody's own CA makes them: the leaf, for `name` and these years, and the CA.
fn files_of(dir: &Path, name: &str, years: (i32, i32)) -> CertificateFiles {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(params, ca_key);
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
    params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
    let key = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&key, &issuer).unwrap();
    let files = CertificateFiles { certificate: dir.join("own.pem"), key: dir.join("own.key") };
    fs::write(&files.certificate, leaf.pem() + &ca.pem()).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    files
}

fn place() -> (TempDir, HostKey) {
    let dir = tempfile::tempdir().unwrap();
    let key = HostKey::keep(&dir.path().join("host.key")).unwrap();
    (dir, key)
}

#[tokio::test]
async fn a_host_joins_the_controller_of_its_token_and_no_other() {
    let (first, second) = (Fixture::start().await, Fixture::start().await);
    let (_dir, key) = place();
    let (of_first, of_second) = (token(&first).await, token(&second).await);
    // Another controller has taken the address; or the first was set up anew.
    let JoinError::OtherController { wanted, shown, .. } = come(&first, &key, &of_second).await.unwrap_err()
    else {
        panic!("it joined another controller than that of its token");
    };
    assert_eq!((wanted, shown), (of_second.ca.clone(), of_first.ca.clone()));
    assert_eq!(come(&first, &key, &of_first).await.unwrap().host.name, "web-1");
    assert_eq!((count(&first).await, count(&second).await), (1, 0));
}

/// The dates of what a controller shows are wrong, by the host's clock: it is told so before the token is sent.
#[tokio::test]
async fn a_wrong_clock_and_a_wrong_name_are_told_and_no_token_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    for years in [(2001, 2002), (2090, 2091)] {
        let files = files_of(dir.path(), "localhost", years);
        let fixture = Fixture::start_with(|config| config.tls = Some(files)).await;
        let ca = pem_of_last(&dir.path().join("own.pem"));
        let (_home, key) = place();
        let pinned = pinned::connect(&url(&fixture), &ca).await.unwrap();
        assert!(pinned.clock_is_wrong);
        let nobodys = JoinToken { ca, ..some_token() };
        let outcome = join(pinned.channel, true, &key, "web-1", Admission::Token(nobodys)).await;
        // A token that was sent would have been refused as unknown.
        assert!(matches!(outcome, Err(JoinError::Clock { .. })), "{outcome:?}");
    }
    let files = files_of(dir.path(), "controller.example", (2001, 2090));
    let fixture = Fixture::start_with(|config| config.tls = Some(files)).await;
    let outcome = pinned::connect(&url(&fixture), &pem_of_last(&dir.path().join("own.pem"))).await;
    let JoinError::Name { names, .. } = outcome.err().unwrap() else { panic!() };
    assert!(names.contains("controller.example"), "{names}");
}

fn some_token() -> JoinToken {
    format!("trestle-join-{}-{}-{}", "0".repeat(16), "0".repeat(32), "0".repeat(64)).parse().unwrap()
}

fn pem_of_last(path: &Path) -> model::Fingerprint {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    let last = CertificateDer::pem_file_iter(path).unwrap().last().unwrap().unwrap();
    pinned::fingerprint(&last)
}

#[tokio::test]
async fn a_certificate_is_renewed_and_one_that_was_lost_is_followed_by_the_keys() {
    let fixture = Fixture::start_with(|config: &mut Config| config.hosts.certificate_seconds = 10).await;
    let (home, key) = place();
    let token = token(&fixture).await;
    let pinned = pinned::connect(&url(&fixture), &token.ca).await.unwrap();
    let ca = pinned::pem(&pinned.ca);
    let joined = come(&fixture, &key, &token).await.unwrap();
    let path = |name: &str| home.path().join(name);
    fs::write(path("host.pem"), &joined.certificate_pem).unwrap();
    fs::write(path("host.ca.pem"), &ca).unwrap();
    let uplink = Uplink {
        node: "web-1".to_owned(),
        servers: vec!["https://localhost:1".to_owned(), url(&fixture)],
        ca: Some(path("host.ca.pem")),
        identity: Some((path("host.pem"), path("host.key"))),
    };
    let keeping = tokio::spawn(renewal::keep(uplink.clone(), renewal::Proof::Key));
    let next = changed(&path("host.pem"), &joined.certificate_pem).await;
    keeping.abort();
    let second = now_has(&path("host.key"), &next).await;
    assert!(!key.fits(&next), "its key is another one");
    let pinned = pinned::connect(&url(&fixture), &token.ca).await.unwrap();
    let first = join(pinned.channel, false, &key, "", Admission::Key).await.unwrap_err();
    assert!(first.to_string().contains("an earlier key"), "{first}");

    // Away for months: what it has is of no use any more. It comes back with the key it has.
    fs::write(path("host.pem"), "ended").unwrap();
    let keeping = tokio::spawn(renewal::keep(uplink.clone(), renewal::Proof::Key));
    let back = changed(&path("host.pem"), "ended").await;
    keeping.abort();
    assert!(second.fits(&back));

    // The controller has taken its next key, the answer was lost, and its certificate has ended since.
    let third = HostKey::keep(&HostKey::next_path(&path("host.key"))).unwrap();
    let identity = Identity::from_pem(&back, fs::read_to_string(path("host.key")).unwrap());
    let channel = fixture.endpoint(Some(identity)).connect().await.unwrap();
    agent::join::renew(channel, &third).await.unwrap();
    fs::write(path("host.pem"), "ended").unwrap();
    let keeping = tokio::spawn(renewal::keep(uplink.clone(), renewal::Proof::Key));
    let after = changed(&path("host.pem"), "ended").await;
    let key = now_has(&path("host.key"), &after).await;
    keeping.abort();
    assert!(third.fits(&after));

    // It leaves, and does not come back.
    let cut = Some(tonic::Code::Unauthenticated);
    assert!(renewal::leave(&uplink).await.map_or_else(|err| err.code() == cut, |()| true));
    assert_eq!(count(&fixture).await, 0);
    assert!(renewal::leave(&uplink).await.is_err(), "its certificate proves nobody");
    let pinned = pinned::connect(&url(&fixture), &token.ca).await.unwrap();
    let back = join(pinned.channel, false, &key, "", Admission::Key).await.unwrap_err();
    assert_eq!(back.code(), Some(tonic::Code::PermissionDenied), "{back}");
}

/// The key in a file, once it is the one of this certificate.
async fn now_has(path: &Path, certificate: &str) -> HostKey {
    for _ in 0..400 {
        if let Some(key) = HostKey::read(path).unwrap().filter(|key| key.fits(certificate)) {
            return key;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} is not the key of the certificate", path.display());
}

/// What is in a file that is no longer what it was.
async fn changed(path: &Path, was: &str) -> String {
    for _ in 0..400 {
        let now = fs::read_to_string(path).unwrap();
        if now != was {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} stayed as it was", path.display());
}

/// A cluster's tokens, each for the agent of one node.
struct Cluster(EcdsaKeyPair);

impl Cluster {
    fn new() -> Self {
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref()).unwrap())
    }

    fn keys(&self) -> Value {
        let point = self.0.public_key().as_ref();
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "a", "x": text(&point[1..33]), "y": text(&point[33..]) }] })
    }

    fn token(&self, node: &str) -> String {
        let end = jiff::Timestamp::now().as_second() + 600;
        let claims = json!({ "iss": "cluster", "aud": "trestle", "exp": end, "sub": "agents", "node": node });
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(json!({ "alg": "ES256", "kid": "a" })), part(claims));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    async fn controller(&self, keys: &Path) -> Fixture {
        fs::write(keys, self.keys().to_string()).unwrap();
        let identity = serde_json::from_value(json!({
            "name": "kubernetes", "issuer": "cluster", "audience": "trestle", "keys": keys,
            "admit": [{ "when": { "sub": "agents" }, "name_from": "node", "replaces": true }],
        }));
        let identity = identity.unwrap();
        Fixture::start_with(|config: &mut Config| {
            config.hosts.identities = vec![identity];
            config.hosts.certificate_seconds = 10;
        })
        .await
    }
}

/// Nobody carries a file to a node: its platform gives it a token and the controller's CA, and it goes on from whatever is lost.
#[tokio::test]
async fn a_node_joins_by_what_its_platform_says_and_again_after_a_loss() {
    let (dir, cluster) = (tempfile::tempdir().unwrap(), Cluster::new());
    let path = |name: &str| dir.path().join(name);
    let fixture = cluster.controller(&path("keys")).await;
    let uplink = |fixture: &Fixture| Uplink {
        node: "node-1".to_owned(),
        servers: vec![url(fixture)],
        ca: Some(path("ca.pem")),
        identity: Some((path("node.pem"), path("node.key"))),
    };
    let first = uplink(&fixture);
    let proof = renewal::Proof::Statement { identity: "kubernetes".to_owned(), file: path("token") };
    let certificate = || fs::read_to_string(path("node.pem")).unwrap_or_default();

    // Token and CA come when they come; another node's token makes it nobody.
    let joining = tokio::spawn({
        let (uplink, proof) = (first.clone(), proof.clone());
        async move { renewal::join(&uplink, &proof).await }
    });
    fs::write(path("token"), cluster.token("node-2")).unwrap();
    fs::write(path("ca.pem"), &fixture.ca).unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!((certificate(), count(&fixture).await), (String::new(), 0));
    fs::write(path("token"), cluster.token("node-1")).unwrap();
    tokio::time::timeout(Duration::from_secs(60), joining).await.expect("it joins").unwrap();
    assert_eq!(count(&fixture).await, 1);

    // It is short-lived, and followed by the next.
    let keeping = tokio::spawn(renewal::keep(first.clone(), proof.clone()));
    changed(&path("node.pem"), &certificate()).await;
    keeping.abort();

    // Its disk is lost, and with it the key: it is the same node, with another one.
    for name in ["node.pem", "node.key", "node.ca.pem"] {
        fs::remove_file(path(name)).unwrap();
    }
    let _ = fs::remove_file(path("node.key.next"));
    renewal::join(&first, &proof).await;
    assert_eq!(count(&fixture).await, 1);

    // The controller is set up anew: nobody there knows the node, and its certificate is of another CA.
    let had = certificate();
    let fixture = cluster.controller(&path("keys")).await;
    fs::write(path("ca.pem"), &fixture.ca).unwrap();
    let keeping = tokio::spawn(renewal::keep(uplink(&fixture), proof));
    changed(&path("node.pem"), &had).await;
    keeping.abort();
    assert_eq!(count(&fixture).await, 1);
}
