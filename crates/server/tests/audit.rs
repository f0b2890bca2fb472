//! The record of what was done: complete whatever callers, disks and strangers do.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use http::StatusCode;
use serde_json::Value;
use server::WhenUnwritable;
use testkit_controllers::controller::{Fixture, config, group, leaf, tls};
use tokio::io::AsyncWriteExt as _;
use tonic::{Code, metadata::MetadataValue};
use wire::{
    tagservicepb::{ListTagsRequest, Tag, TagMapping, tag_service_client::TagServiceClient},
    trestle::v1::{
        ApplyObjectsRequest, AuditRecord, BackupRequest, CreateLoginRequest, CreateTokenRequest,
        DeleteObjectsRequest, ListAuditRequest, ListTokensRequest, ObjectRef, Role, VerifyAuditRequest,
        access_client::AccessClient, admin_client::AdminClient, audit_change::What,
        objects_client::ObjectsClient,
    },
};

const SET_TAG: &str = "tagservicepb.TagService/SetTag";

/// The lines of the log, oldest first. A line that is being written is left out.
fn lines(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("audit.log")).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// In how many intents and outcomes of an operation each object is named.
fn phases(dir: &Path, operation: &str) -> BTreeMap<String, (usize, usize)> {
    let mut found: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for line in lines(dir).iter().filter(|line| line["operation"] == operation) {
        let counts = found.entry(line["object"].as_str().unwrap_or_default().to_owned()).or_default();
        match line["phase"].as_str() {
            Some("intent") => counts.0 += 1,
            Some("outcome") => counts.1 += 1,
            other => panic!("{other:?}"),
        }
    }
    found
}

/// Waits until every call of an operation that began has ended.
async fn settled(dir: &Path, operation: &str) -> BTreeMap<String, (usize, usize)> {
    for _ in 0..300 {
        let found = phases(dir, operation);
        if found.values().all(|(intents, outcomes)| intents == outcomes) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("some calls never ended: {:?}", phases(dir, operation));
}

async fn audit(fixture: &Fixture, request: ListAuditRequest) -> Vec<AuditRecord> {
    let mut access = AccessClient::new(fixture.admin().await);
    access.list_audit(request).await.unwrap().into_inner().records
}

async fn tag_names(fixture: &Fixture) -> BTreeSet<String> {
    let listed = fixture.tags().await.list_tags(ListTagsRequest::default()).await.unwrap();
    listed.into_inner().tags.into_iter().map(|tag| tag.tag_name).collect()
}

fn as_admin<T>(fixture: &Fixture, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    let value: MetadataValue<_> = format!("Bearer {}", fixture.token).parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

/// How long the n-th caller waits: few milliseconds, and now and then long enough on any machine.
fn patience(n: u64, most: u64) -> Duration {
    Duration::from_millis(if n % 20 == 19 { 1000 } else { 1 + n % most })
}

/// Calls at once, of which nearly all hang up. How many did.
async fn hang_up(fixture: &Fixture, round: u64) -> usize {
    // Who hangs up too often loses the whole connection: each round has its own, and so have those who wait.
    let (hasty, patient) = (fixture.channel().await, fixture.channel().await);
    let calls = (0..32u64).map(|n| {
        let request = as_admin(fixture, leaf(&format!("g{round}-{n}"), "10.0.0.1"));
        let (channel, patience) = match n {
            0 | 1 => (&patient, Duration::from_secs(20)),
            _ => (&hasty, Duration::from_millis(1 + (n + round) % 30)),
        };
        let mut tags = TagServiceClient::new(channel.clone());
        tokio::spawn(async move { tokio::time::timeout(patience, tags.set_tag(request)).await.is_err() })
    });
    let mut gone = 0;
    for call in calls.collect::<Vec<_>>() {
        gone += usize::from(call.await.unwrap());
    }
    gone
}

#[tokio::test]
async fn writes_whose_callers_hang_up_are_on_record() {
    let fixture = Fixture::start().await;
    let (mut gone, mut noted) = (0, 0);
    // How many of them are gone in the middle of a call is up to the machine: as many rounds as it takes.
    for round in 0..60 {
        gone += hang_up(&fixture, round).await;
        let recorded = settled(fixture.dir.path(), SET_TAG).await;
        let stored = tag_names(&fixture).await;
        assert!(!stored.is_empty());
        for tag in &stored {
            assert_eq!(recorded.get(tag), Some(&(1, 1)), "{tag} is in the store");
        }
        noted = lines(fixture.dir.path()).iter().filter(|line| line["note"] != Value::Null).count();
        if round >= 8 && gone > 0 && noted > 0 {
            return;
        }
    }
    panic!("{gone} callers hung up, and {noted} outcomes say that their caller was gone");
}

#[tokio::test]
async fn writes_whose_deadline_passes_go_on_and_are_on_record() {
    let fixture = Fixture::start().await;
    let mut tags = TagServiceClient::new(fixture.channel().await);
    for n in 0..60 {
        let mut request = as_admin(&fixture, leaf(&format!("d{n}"), "10.0.0.1"));
        // The server's own clock ends it.
        request.metadata_mut().insert("grpc-timeout", "900u".parse().unwrap());
        let _ = tags.set_tag(request).await;
    }
    let recorded = settled(fixture.dir.path(), SET_TAG).await;
    let (names, all) = (tag_names(&fixture).await, recorded.keys().cloned().collect());
    assert_eq!(names, all, "what was begun is carried out");
    assert!(recorded.values().all(|counts| *counts == (1, 1)));
}

#[tokio::test]
async fn writes_over_rest_that_are_hung_up_on_are_on_record() {
    let fixture = Fixture::start().await;
    for n in 0..100u64 {
        let mut stream = tls(&fixture.ca, fixture.controller.http_addr()).await.unwrap();
        let body = r#"{"ip": "10.0.0.1"}"#;
        let request = format!(
            "POST /tags/r{n}/applyMembers HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            fixture.token,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        tokio::time::sleep(patience(n, 4)).await;
        drop(stream);
    }
    let recorded = settled(fixture.dir.path(), "POST /tags/{tag}/applyMembers").await;
    let stored = tag_names(&fixture).await;
    assert!(!stored.is_empty());
    for tag in &stored {
        assert_eq!(recorded.get(tag), Some(&(1, 1)), "{tag} is in the store");
    }
}

#[tokio::test]
async fn tokens_made_by_callers_who_hang_up_are_on_record() {
    let fixture = Fixture::start().await;
    let channel = fixture.channel().await;
    for n in 0..60u64 {
        let message =
            CreateTokenRequest { name: format!("t{n}"), role: Role::Admin as i32, ttl_seconds: None };
        let mut access = AccessClient::new(channel.clone());
        let call = access.create_token(as_admin(&fixture, message));
        let _ = tokio::time::timeout(patience(n, 10), call).await;
    }
    settled(fixture.dir.path(), "trestle.v1.Access/CreateToken").await;
    let changed: BTreeSet<String> = lines(fixture.dir.path())
        .iter()
        .filter(|line| line["phase"] != "intent")
        .flat_map(|line| line["changes"].as_array().cloned().unwrap_or_default())
        .map(|change| change["object"].as_str().unwrap().to_owned())
        .collect();
    let mut access = AccessClient::new(fixture.admin().await);
    let tokens = access.list_tokens(ListTokensRequest {}).await.unwrap().into_inner().tokens;
    assert!(tokens.len() > 1);
    for token in tokens {
        assert!(changed.contains(&format!("token {}", token.id)), "{token:?} is in no outcome");
    }
}

fn pod(name: &str, app: &str) -> Vec<u8> {
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "env": [{"name": "DB", "value": "hunter2"}]}]}});
    pod.to_string().into_bytes()
}

#[tokio::test]
async fn what_became_of_each_object_is_told_with_digests_and_values() {
    let fixture = Fixture::start().await;
    let mut objects = ObjectsClient::new(fixture.admin().await);
    let apply = |documents: Vec<Vec<u8>>| ApplyObjectsRequest { documents, ..ApplyObjectsRequest::default() };
    objects.apply_objects(apply(vec![pod("a", "web"), pod("b", "db")])).await.unwrap();
    objects.apply_objects(apply(vec![pod("a", "api"), pod("b", "db")])).await.unwrap();
    let dry = ApplyObjectsRequest { dry_run: true, ..apply(vec![pod("a", "none")]) };
    objects.apply_objects(dry).await.unwrap();
    let gone = ObjectRef { kind: "Pod".into(), namespace: "default".into(), name: "a".into() };
    let gone = DeleteObjectsRequest { objects: vec![gone], ..DeleteObjectsRequest::default() };
    objects.delete_objects(gone).await.unwrap();

    let about_a = ListAuditRequest { object: "default/a".into(), ..ListAuditRequest::default() };
    let mut records = audit(&fixture, about_a).await;
    records.reverse();
    let [made, changed, deleted] = records.as_slice() else { panic!("{records:#?}") };
    let told = |record: &AuditRecord| -> Vec<(String, What)> {
        record.changes.iter().map(|change| (change.object.clone(), change.what())).collect()
    };
    assert_eq!(
        told(made),
        [("Pod default/a".to_owned(), What::Created), ("Pod default/b".to_owned(), What::Created)]
    );
    assert_eq!(
        told(changed),
        [("Pod default/a".to_owned(), What::Changed), ("Pod default/b".to_owned(), What::Unchanged)]
    );
    assert_eq!(told(deleted), [("Pod default/a".to_owned(), What::Deleted)]);
    let [first, second, last] = [made, changed, deleted].map(|record| &record.changes[0]);
    assert!(first.before.is_empty() && first.after.len() == 64);
    assert_eq!((&second.before, &last.before), (&first.after, &second.after));
    let label = second.fields.iter().find(|field| field.path == "metadata.labels.app").unwrap();
    assert_eq!((label.before.as_deref(), label.after.as_deref()), (Some("web"), Some("api")));
    assert_eq!(second.fields.len(), 1);
    let log = std::fs::read_to_string(fixture.dir.path().join("audit.log")).unwrap();
    assert!(!log.contains("hunter2") && log.contains("(hidden)"));
    assert!(log.contains("a dry run: nothing was changed"));

    // The same over REST, and all lines of one call.
    let (_, found) = fixture.rest("GET", &format!("/audit?id={}", changed.id), "").await;
    let phases: Vec<_> = found.as_array().unwrap().iter().map(|line| line["phase"].clone()).collect();
    assert_eq!(phases, ["outcome", "intent"]);
    assert_eq!(found[1]["object"], "Pod a, Pod b");
    let (_, found) = fixture.rest("GET", "/audit?operation=ApplyObjects&caller=admin&result=ok", "").await;
    assert_eq!(found.as_array().unwrap().len(), 3);
    let (status, _) = fixture.rest("GET", "/audit?since=yesterday", "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (_, found) = fixture.rest("GET", "/audit?since=2999-01-01T00:00:00Z", "").await;
    assert_eq!(found.as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn tags_and_namespaces_tell_what_came_and_went() {
    let fixture = Fixture::start().await;
    let mut tags = fixture.tags().await;
    tags.set_tag(leaf("a", "10.0.0.1")).await.unwrap();
    tags.set_tag(leaf("a", "10.0.0.2")).await.unwrap();
    tags.set_tag(group("g", &["a", "10.1.0.0/16"])).await.unwrap();
    fixture.rest("PUT", "/namespaces/prod", r#"[{"Name": "aws", "Deployment": "one"}]"#).await;
    fixture.rest("PUT", "/namespaces/prod", r#"[{"Name": "aws", "Deployment": "two"}]"#).await;
    fixture.rest("DELETE", "/namespaces/prod", "").await;
    let records = audit(&fixture, ListAuditRequest { limit: 6, ..ListAuditRequest::default() }).await;
    let told: Vec<_> = records
        .iter()
        .rev()
        .map(|record| {
            let [change] = record.changes.as_slice() else { panic!("{record:?}") };
            let values = change.fields.iter().map(|field| (field.before.as_deref(), field.after.as_deref()));
            (change.object.as_str(), change.what(), values.collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(told[1], ("a", What::Changed, vec![(Some("10.0.0.1"), Some("10.0.0.2"))]));
    assert_eq!(told[2], ("g", What::Created, vec![(None, Some("10.1.0.0/16")), (None, Some("a"))]));
    assert_eq!(told[3].0, "namespace prod");
    assert_eq!(told[4].2, [(Some("one"), Some("two"))]);
    assert_eq!(told[5].1, What::Deleted);
}

#[tokio::test]
async fn logins_have_their_callers_and_a_backup_is_on_record() {
    let fixture = Fixture::start().await;
    let viewer = fixture.token_of(Role::Viewer).await;
    let body = format!(r#"{{"token": "{viewer}"}}"#);
    assert_eq!(fixture.rest_as(None, "POST", "/session", body).await.0, StatusCode::OK);
    let mut access = AccessClient::new(fixture.with_token(&viewer).await);
    let code = access.create_login(CreateLoginRequest {}).await.unwrap().into_inner().code;
    let body = format!(r#"{{"code": "{code}"}}"#);
    assert_eq!(fixture.rest_as(None, "POST", "/session", body).await.0, StatusCode::OK);
    let logins = ListAuditRequest { operation: "POST /session".into(), ..ListAuditRequest::default() };
    let logins = audit(&fixture, logins).await;
    let who: Vec<_> = logins.iter().map(|record| (record.name.as_str(), record.result.as_str())).collect();
    assert_eq!(who, [("somebody", "OK"), ("somebody", "OK")]);
    assert!(logins.iter().all(|login| login.changes[0].object.starts_with("session ")));
    let intents = lines(fixture.dir.path());
    let mut intents = intents.iter().filter(|line| line["operation"] == "POST /session");
    assert_eq!(intents.next().unwrap()["caller"]["name"], "somebody", "the intent has its caller too");
    let log = std::fs::read_to_string(fixture.dir.path().join("audit.log")).unwrap();
    assert!(!log.contains(&code) && !log.contains(&viewer));

    let mut admin = AdminClient::new(fixture.admin().await);
    let mut chunks = admin.backup(BackupRequest {}).await.unwrap().into_inner();
    let mut backup = Vec::new();
    while let Some(chunk) = chunks.message().await.unwrap() {
        backup.extend(chunk.data);
    }
    let taken = phases(fixture.dir.path(), "trestle.v1.Admin/Backup");
    assert_eq!(taken.into_values().collect::<Vec<_>>(), [(1, 1)]);

    let dir = fixture.stop().await;
    let file = dir.path().join("backup");
    std::fs::write(&file, backup).unwrap();
    server::restore_store(&config(dir.path(), |_| {}), &file, true).await.unwrap();
    let missing = dir.path().join("missing");
    server::restore_store(&config(dir.path(), |_| {}), &missing, true).await.unwrap_err();
    let restored = phases(dir.path(), "store restore");
    assert_eq!(restored.get(&file.display().to_string()), Some(&(1, 1)));
    assert_eq!(restored.get(&missing.display().to_string()), Some(&(1, 1)));
    let fixture = Fixture::start_in(dir, |_| {}).await;
    assert!(verify(&fixture).await.is_empty(), "the chain goes on over restarts and a restore");
}

async fn verify(fixture: &Fixture) -> Vec<String> {
    let mut access = AccessClient::new(fixture.admin().await);
    let report = access.verify_audit(VerifyAuditRequest { head_only: false }).await.unwrap().into_inner();
    report.findings.into_iter().map(|finding| finding.text).collect()
}

#[tokio::test]
async fn tampering_is_found_by_the_running_controller() {
    let fixture = Fixture::start().await;
    fixture.tags().await.set_tag(leaf("a", "10.0.0.1")).await.unwrap();
    assert_eq!(verify(&fixture).await, [""; 0]);
    let path = fixture.dir.path().join("audit.log");
    let text = std::fs::read_to_string(&path).unwrap();
    let before = text.lines().count();
    std::fs::write(&path, text.replace("10.0.0.1", "10.9.9.9")).unwrap();
    let mut access = AccessClient::new(fixture.admin().await);
    let report = access.verify_audit(VerifyAuditRequest { head_only: false }).await.unwrap().into_inner();
    let [finding] = report.findings.as_slice() else { panic!("{report:?}") };
    assert!(finding.alarm && finding.line == before as u64, "{finding:?}");
    assert!(finding.text.contains("not the one that the head names"), "{finding:?}");
}

#[tokio::test]
async fn strangers_displace_nothing() {
    let fixture = Fixture::start().await;
    fixture.tags().await.set_tag(leaf("a", "10.0.0.1")).await.unwrap();
    let size = || std::fs::metadata(fixture.dir.path().join("audit.log")).unwrap().len();
    let before = size();
    let channel = fixture.channel().await;
    for _ in 0..40 {
        let calls = (0..50).map(|_| {
            let mut tags = TagServiceClient::new(channel.clone());
            async move { tags.delete_tag(Tag { tag_name: "a".into() }).await.unwrap_err().code() }
        });
        let codes = futures::future::join_all(calls).await;
        assert!(codes.iter().all(|code| *code == Code::Unauthenticated));
    }
    for body in [r#"{"token": "trestle-0-0"}"#, r#"{"code": "0-0"}"#, "{}", "no json"] {
        for _ in 0..20 {
            let (status, ..) = fixture.rest_as(None, "POST", "/session", body).await;
            assert!(status.is_client_error(), "{body}: {status}");
        }
    }
    assert_eq!(size(), before, "a stranger wrote into the log");
    let strangers = std::fs::read_to_string(fixture.dir.path().join("strangers.log")).unwrap();
    assert!((1..200).contains(&strangers.lines().count()), "{}", strangers.lines().count());
    let (_, _, metrics) = fixture.rest_as(Some(&fixture.token), "GET", "/metrics", "").await;
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    let counted = metrics.lines().find_map(|line| line.strip_prefix("trestle_stranger_refusals_total "));
    assert_eq!(counted, Some("2080"));
}

#[tokio::test]
async fn a_known_caller_who_is_refused_again_and_again_is_counted() {
    let fixture = Fixture::start().await;
    let viewer = fixture.token_of(Role::Viewer).await;
    let mut tags = TagServiceClient::new(fixture.with_token(&viewer).await);
    for _ in 0..200 {
        let refused = tags.delete_tag(Tag { tag_name: "a".into() }).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    let refusals = lines(fixture.dir.path()).into_iter().filter(|line| line["phase"] == "refusal").count();
    // A minute may have passed in between.
    assert!((30..=90).contains(&refusals), "{refusals}");
}

/// A small file system of its own, which is gone also when the test fails.
struct Disk(PathBuf, Option<tempfile::TempDir>);

impl Disk {
    fn new(size: &std::ffi::CStr) -> Self {
        if !rustix::process::geteuid().is_root() {
            panic!("this test mounts a small tmpfs and must run as root");
        }
        let dir = tempfile::tempdir().unwrap();
        rustix::mount::mount("tmpfs", dir.path(), "tmpfs", rustix::mount::MountFlags::empty(), size).unwrap();
        Self(dir.path().to_owned(), Some(dir))
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Fills it to the last byte.
    fn fill(&self) {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(self.ballast()).unwrap();
        let mut size = 1 << 20;
        while size > 0 {
            let written = file.write(&vec![0; size]).unwrap_or(0);
            size = if written == 0 { size / 2 } else { size };
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        drop(self.1.take());
    }
}

/// Writes until one is refused. Returns the names of those that were not, and the refusal.
async fn write_until_refused(fixture: &Fixture, prefix: &str) -> (Vec<String>, tonic::Status) {
    let mut tags = fixture.tags().await;
    let mut acknowledged = Vec::new();
    for n in 0..2000 {
        let tag = TagMapping { uri: Some("x".repeat(200)), ..leaf(&format!("{prefix}{n}"), "10.0.0.1") };
        match tags.set_tag(tag).await {
            Ok(_) => acknowledged.push(format!("{prefix}{n}")),
            Err(status) => return (acknowledged, status),
        }
    }
    panic!("a full disk took everything");
}

async fn becomes_ready(fixture: &Fixture, wanted: StatusCode) -> Value {
    let mut last = Value::Null;
    for _ in 0..200 {
        let (status, readiness) = fixture.rest("GET", "/readyz", "").await;
        if status == wanted {
            return readiness;
        }
        last = readiness;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("/readyz never answered {wanted}: {last}");
}

#[tokio::test]
async fn without_room_for_the_record_nothing_is_written_and_it_heals() {
    let disk = Disk::new(c"size=12m,mode=0700");
    let elsewhere = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir_in(&disk.0).unwrap();
    // The store has room: only the record has none.
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("store")).unwrap();
    let fixture = Fixture::start_in(dir, |_| {}).await;
    fixture.tags().await.set_tag(leaf("before", "10.0.0.1")).await.unwrap();
    disk.fill();
    let (acknowledged, refused) = write_until_refused(&fixture, "t").await;
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    assert!(refused.message().contains("audit.log") && refused.message().contains("No space"), "{refused:?}");
    let readiness = becomes_ready(&fixture, StatusCode::SERVICE_UNAVAILABLE).await;
    assert!(readiness["problems"][0].as_str().unwrap().contains("audit"), "{readiness}");
    let stored = tag_names(&fixture).await;
    let recorded = phases(fixture.dir.path(), SET_TAG);
    for tag in acknowledged.iter().chain(&stored) {
        assert!(recorded.get(tag).is_some_and(|counts| counts.0 == 1), "{tag} has no intent");
    }
    assert_eq!(fixture.rest("GET", "/tags/before", "").await.0, StatusCode::OK, "reads go on");

    disk.make_room();
    becomes_ready(&fixture, StatusCode::OK).await;
    fixture.tags().await.set_tag(leaf("after", "10.0.0.2")).await.unwrap();
    let recorded = settled(fixture.dir.path(), SET_TAG).await;
    assert!(stored.iter().all(|tag| recorded[tag] == (1, 1)), "outcomes were held and written: {recorded:?}");
    let log = lines(fixture.dir.path());
    assert!(log.iter().any(|line| line["operation"] == "record keeping"), "the gap is told");
    assert_eq!(verify(&fixture).await, [""; 0]);
    drop(fixture.stop().await);
}

#[tokio::test]
async fn where_it_is_configured_writes_go_on_without_a_record() {
    let fixture = Fixture::start_with(|config| {
        config.audit.when_unwritable = WhenUnwritable::Continue;
        // A directory stands where the log is to be.
        std::fs::create_dir_all(config.data_dir.join("audit.log")).unwrap();
    })
    .await;
    fixture.tags().await.set_tag(leaf("a", "10.0.0.1")).await.unwrap();
    assert_eq!(fixture.rest("GET", "/readyz", "").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_start_after_a_crash_needs_no_room() {
    let disk = Disk::new(c"size=12m,mode=0700");
    let fixture = Fixture::start_in(tempfile::tempdir_in(&disk.0).unwrap(), |_| {}).await;
    fixture.tags().await.set_tag(leaf("before", "10.0.0.1")).await.unwrap();
    let dir = fixture.stop().await;
    // What a crash leaves of a line, at the end of a block: one more byte would need another.
    let mut log = std::fs::OpenOptions::new().append(true).open(dir.path().join("audit.log")).unwrap();
    let size = log.metadata().unwrap().len();
    let torn = format!("{{\"n\":99,{}", " ".repeat(4096));
    log.write_all(&torn.as_bytes()[..usize::try_from(4096 - size % 4096).unwrap()]).unwrap();
    disk.fill();

    let fixture = Fixture::start_in(dir, |_| {}).await;
    assert_eq!(fixture.rest("GET", "/tags/before", "").await.0, StatusCode::OK);
    let (_, refused) = write_until_refused(&fixture, "t").await;
    assert!([Code::Unavailable, Code::ResourceExhausted].contains(&refused.code()), "{refused:?}");
    disk.make_room();
    let mut tags = fixture.tags().await;
    let healed = async {
        while tags.set_tag(leaf("after", "10.0.0.2")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), healed).await.expect("writes work again");
    becomes_ready(&fixture, StatusCode::OK).await;
    assert_eq!(verify(&fixture).await, [""; 0]);
    let torn =
        lines(fixture.dir.path()).iter().filter(|line| line["note"].to_string().contains("torn")).count();
    assert_eq!(torn, 1, "the start tells of the torn line");
    drop(fixture.stop().await);
}
