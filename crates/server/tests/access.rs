//! Who gets in: tokens, certificates, roles, and the record of it.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::time::{Duration, SystemTime};

use http::StatusCode;
use model::{Role as ModelRole, Subject};
use server::pki::Pki;
use testkit_controllers::controller::{Fixture, leaf, tls};
use tonic::{Code, transport::Identity};
use wire::{
    tagservicepb::{ListTagsRequest, Tag, tag_service_client::TagServiceClient},
    trestle::v1::{
        CreateTokenRequest, ListAuditRequest, RevokeTokenRequest, Role, WhoAmIRequest,
        access_client::AccessClient,
    },
};

fn list() -> ListTagsRequest {
    ListTagsRequest::default()
}

#[tokio::test]
async fn strangers_get_nowhere_but_to_health() {
    let fixture = Fixture::start().await;
    let mut tags = TagServiceClient::new(fixture.channel().await);
    assert_eq!(tags.list_tags(list()).await.unwrap_err().code(), Code::Unauthenticated);
    for (path, status) in [
        ("/healthz", StatusCode::OK),
        ("/readyz", StatusCode::OK),
        ("/ping", StatusCode::OK),
        ("/openapi.json", StatusCode::OK),
        ("/", StatusCode::OK),
        ("/tags", StatusCode::UNAUTHORIZED),
        ("/metrics", StatusCode::UNAUTHORIZED),
        ("/audit", StatusCode::UNAUTHORIZED),
        ("/namespaces", StatusCode::UNAUTHORIZED),
        ("/nowhere", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(fixture.rest_as(None, "GET", path, "").await.0, status, "{path}");
    }
}

#[tokio::test]
async fn a_token_lets_in_what_its_role_may_and_no_more() {
    let fixture = Fixture::start().await;
    for (role, reads, writes) in [
        (Role::Admin, true, true),
        (Role::Operator, true, true),
        (Role::Viewer, true, false),
        (Role::Node, false, false),
        (Role::Plugin, false, false),
        (Role::Consumer, false, false),
    ] {
        let token = fixture.token_of(role).await;
        let mut tags = TagServiceClient::new(fixture.with_token(&token).await);
        let outcome = |result: Result<(), tonic::Status>| match result {
            Ok(()) => true,
            Err(status) => {
                assert_eq!(status.code(), Code::PermissionDenied, "{role:?}");
                false
            }
        };
        assert_eq!(outcome(tags.list_tags(list()).await.map(drop)), reads, "{role:?} reads");
        assert_eq!(outcome(tags.set_tag(leaf("a", "10.0.0.1")).await.map(drop)), writes, "{role:?} writes");
        let (status, _, _) = fixture.rest_as(Some(&token), "DELETE", "/tags/nope", "").await;
        assert_eq!(status == StatusCode::NOT_FOUND, writes, "{role:?} writes over REST: {status}");
    }
}

#[tokio::test]
async fn wrong_revoked_and_expired_tokens_are_refused() {
    let fixture = Fixture::start().await;
    let good = fixture.token_of(Role::Viewer).await;
    let mut flipped = good.clone().into_bytes();
    let last = flipped.last_mut().unwrap();
    *last = if *last == b'0' { b'1' } else { b'0' };
    for bad in ["", "x", "trestle-", "trestle-zz-zz", std::str::from_utf8(&flipped).unwrap()] {
        let (status, headers, _) = fixture.rest_as(Some(bad), "GET", "/tags", "").await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{bad:?}");
        assert!(headers.contains_key("www-authenticate"));
    }
    let id = good.split('-').nth(1).unwrap().to_owned();
    let mut access = AccessClient::new(fixture.admin().await);
    access.revoke_token(RevokeTokenRequest { id: id.clone(), with_made: false }).await.unwrap();
    assert_eq!(fixture.rest_as(Some(&good), "GET", "/tags", "").await.0, StatusCode::UNAUTHORIZED);
    let again = access.revoke_token(RevokeTokenRequest { id, with_made: false }).await.unwrap_err();
    assert_eq!(again.code(), Code::NotFound);

    let request =
        CreateTokenRequest { name: "brief".into(), role: Role::Viewer as i32, ttl_seconds: Some(1) };
    let brief = access.create_token(request).await.unwrap().into_inner().secret;
    assert_eq!(fixture.rest_as(Some(&brief), "GET", "/tags", "").await.0, StatusCode::OK);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(fixture.rest_as(Some(&brief), "GET", "/tags", "").await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_certificate_proves_a_machine_until_it_is_revoked() {
    let fixture = Fixture::start().await;
    let machine = fixture.issue(Role::Operator, "ci.example").await;
    let channel = fixture.endpoint(Some(machine.identity())).connect().await.unwrap();
    let me = AccessClient::new(channel.clone()).who_am_i(WhoAmIRequest {}).await.unwrap().into_inner();
    assert_eq!((me.name.as_str(), me.proof.as_str()), ("ci.example", "certificate"));
    let mut tags = TagServiceClient::new(channel);
    tags.set_tag(leaf("a", "10.0.0.1")).await.unwrap();
    fixture.revoke(&machine.serial).await;
    // The connection is still the same one.
    assert_eq!(tags.list_tags(list()).await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn certificates_of_another_ca_expired_or_unrecorded_ones_are_refused() {
    let fixture = Fixture::start().await;
    let subject = Subject { role: ModelRole::Admin, name: "mallory".parse().unwrap() };
    let now = time::OffsetDateTime::from(SystemTime::now());
    let day = time::Duration::days(1);

    let elsewhere = tempfile::tempdir().unwrap();
    let other_ca = Pki::open(elsewhere.path(), now).unwrap();
    let own_ca = Pki::open(&fixture.dir.path().join("pki"), now).unwrap();
    let foreign = other_ca.issue_client(&subject, now, day).unwrap();
    let expired = own_ca.issue_client(&subject, now - day * 3, day).unwrap();
    for issued in [&foreign, &expired] {
        let identity = Identity::from_pem(&issued.certificate_pem, issued.key_pem.expose());
        let outcome = match fixture.endpoint(Some(identity)).connect().await {
            // TLS 1.3 tells the client of the refusal with its first read.
            Ok(channel) => TagServiceClient::new(channel).list_tags(list()).await.map(drop).is_err(),
            Err(_) => true,
        };
        assert!(outcome);
    }
    // Signed by our own CA, yet not on record: for instance from before a restore.
    let unrecorded = own_ca.issue_client(&subject, now, day).unwrap();
    let identity = Identity::from_pem(&unrecorded.certificate_pem, unrecorded.key_pem.expose());
    let channel = fixture.endpoint(Some(identity)).connect().await.unwrap();
    let refused = TagServiceClient::new(channel).list_tags(list()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    // And a client that trusts another CA does not talk to us at all.
    assert!(tls(other_ca.ca_pem(), fixture.controller.http_addr()).await.is_err());
}

#[tokio::test]
async fn every_write_and_every_refusal_is_on_record_without_secrets() {
    let fixture = Fixture::start().await;
    let viewer = fixture.token_of(Role::Viewer).await;
    let mut tags = fixture.tags().await;
    tags.set_tag(leaf("a", "10.0.0.1")).await.unwrap();
    tags.delete_tag(Tag { tag_name: "nope".into() }).await.unwrap_err();
    tags.list_tags(list()).await.unwrap();
    fixture.rest_as(Some(&viewer), "DELETE", "/tags/a", "").await;
    fixture.rest_as(None, "DELETE", "/tags/a", "").await;
    fixture.rest("DELETE", "/tags/a", "").await;

    let mut access = AccessClient::new(fixture.admin().await);
    let records = access.list_audit(ListAuditRequest::default()).await.unwrap().into_inner().records;
    let told: Vec<_> = records
        .iter()
        .rev()
        .map(|r| (r.name.as_str(), r.operation.as_str(), r.object.as_str(), r.result.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("", "controller start", concat!("version ", env!("CARGO_PKG_VERSION")), "OK"),
            ("", "controller first token", "admin/admin", "OK"),
            ("admin", "trestle.v1.Access/CreateToken", "viewer/somebody", "OK"),
            ("admin", "tagservicepb.TagService/SetTag", "a", "OK"),
            ("admin", "tagservicepb.TagService/DeleteTag", "nope", "NOT_FOUND"),
            ("somebody", "DELETE /tags/{tag}", "", "PERMISSION_DENIED"),
            ("admin", "DELETE /tags/{tag}", "a", "OK"),
        ]
    );
    let log = std::fs::read_to_string(fixture.dir.path().join("audit.log")).unwrap();
    // Writes have an intent too, strangers a log of their own.
    assert_eq!(log.lines().count(), told.len() + 4);
    let strangers = std::fs::read_to_string(fixture.dir.path().join("strangers.log")).unwrap();
    assert_eq!(strangers.lines().count(), 1);
    for secret in [&viewer, &fixture.token] {
        let secret = secret.split('-').nth(2).unwrap();
        assert!(!log.contains(secret));
        // Only a hash is stored.
        let stored =
            std::fs::read(fixture.dir.path().join("store/trestle.redb")).or_else(|_| largest(&fixture));
        assert!(!contains(&stored.unwrap(), secret.as_bytes()));
    }
}

/// The store's file, whatever it is called.
fn largest(fixture: &Fixture) -> std::io::Result<Vec<u8>> {
    let files = std::fs::read_dir(fixture.dir.path().join("store"))?.filter_map(Result::ok);
    let file = files.max_by_key(|file| file.metadata().map_or(0, |data| data.len())).unwrap();
    std::fs::read(file.path())
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn plaintext_and_strangers_are_possible_on_loopback_when_asked_for() {
    let fixture = Fixture::start_with(|config| {
        config.plaintext_loopback = true;
        config.anonymous_role = Some(ModelRole::Viewer);
    })
    .await;
    let url = format!("http://{}", fixture.controller.grpc_addr());
    let channel = tonic::transport::Endpoint::from_shared(url).unwrap().connect().await.unwrap();
    let mut tags = TagServiceClient::new(channel);
    tags.list_tags(list()).await.unwrap();
    assert_eq!(tags.set_tag(leaf("a", "10.0.0.1")).await.unwrap_err().code(), Code::PermissionDenied);
}
