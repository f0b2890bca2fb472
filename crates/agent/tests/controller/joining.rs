//! A host joins, renews its certificate and comes back, through a real controller; and what it refuses.

use std::{fs, path::Path, time::Duration};

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
    let keeping = tokio::spawn(renewal::keep(uplink.clone()));
    let next = changed(&path("host.pem"), &joined.certificate_pem).await;
    keeping.abort();
    let second = now_has(&path("host.key"), &next).await;
    assert!(!key.fits(&next), "its key is another one");
    let pinned = pinned::connect(&url(&fixture), &token.ca).await.unwrap();
    let first = join(pinned.channel, false, &key, "", Admission::Key).await.unwrap_err();
    assert!(first.to_string().contains("an earlier key"), "{first}");

    // Away for months: what it has is of no use any more. It comes back with the key it has.
    fs::write(path("host.pem"), "ended").unwrap();
    let keeping = tokio::spawn(renewal::keep(uplink.clone()));
    let back = changed(&path("host.pem"), "ended").await;
    keeping.abort();
    assert!(second.fits(&back));

    // The controller has taken its next key, the answer was lost, and its certificate has ended since.
    let third = HostKey::keep(&HostKey::next_path(&path("host.key"))).unwrap();
    let identity = Identity::from_pem(&back, fs::read_to_string(path("host.key")).unwrap());
    let channel = fixture.endpoint(Some(identity)).connect().await.unwrap();
    agent::join::renew(channel, &third).await.unwrap();
    fs::write(path("host.pem"), "ended").unwrap();
    let keeping = tokio::spawn(renewal::keep(uplink.clone()));
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
