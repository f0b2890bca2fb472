//! Two controllers on one etcd: they see each other's writes, cannot make a cycle between them, and take turns at storage.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod logins;
mod peers;
mod slow_start;

use std::time::Duration;

use server::{Config, EtcdConfig, StorageConfig, StoreKind};
use tempfile::TempDir;
use testkit::etcd::Cluster;
use testkit_controllers::controller::{Fixture, group, leaf};
use tonic::Code;
use wire::{
    k8s::io::apimachinery::pkg::api::resource::Quantity,
    provider::{OnBoardConsumerRequest, ocs_provider_client::OcsProviderClient},
    tagservicepb::{ListTagsRequest, Tag, TagMapping},
    trestle::v1::{
        ApplyObjectsRequest, CreateTokenRequest, DeleteObjectsRequest, ListObjectsRequest, ObjectRef,
        RevokeCertificateRequest, RevokeTokenRequest, Role, access_client::AccessClient,
        objects_client::ObjectsClient,
    },
};

/// An etcd of our own, and controllers on it.
struct Etcd(Cluster);

impl Etcd {
    fn start() -> Self {
        Self(Cluster::start(1))
    }

    fn kind(&self) -> StoreKind {
        Self::kind_at(self.0.url())
    }

    fn kind_at(url: &str) -> StoreKind {
        StoreKind::Etcd(EtcdConfig {
            endpoints: vec![url.to_owned()],
            prefix: "/trestle/".into(),
            ca: None,
            client: None,
            sealing_key_file: None,
            max_txn_ops: 128,
            max_request_bytes: 1_572_864,
            max_staleness_seconds: 2,
        })
    }

    /// Two controllers. The second finds that an administrator exists and makes no token of its own; it is given the
    /// first one's.
    async fn controllers(&self, adjust: impl Fn(&mut Config)) -> [Fixture; 2] {
        let one = self.controller(tempfile::tempdir().unwrap(), &adjust).await;
        let second = tempfile::tempdir().unwrap();
        std::fs::write(second.path().join("admin.token"), &one.token).unwrap();
        let two = self.controller(second, &adjust).await;
        [one, two]
    }

    async fn controller(&self, dir: TempDir, adjust: impl Fn(&mut Config)) -> Fixture {
        Fixture::start_in(dir, |config| {
            config.store = self.kind();
            adjust(config);
        })
        .await
    }
}

/// A controller that cannot read its store speaks for it no longer than it may be stale, and serves again afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_without_its_store_refuses_and_says_since_when() {
    let etcd = Etcd::start();
    let fixture = etcd.controller(tempfile::tempdir().unwrap(), |_| {}).await;
    let mut objects = ObjectsClient::new(fixture.admin().await);
    let mut watch = objects.watch_objects(ListObjectsRequest::default()).await.unwrap().into_inner();
    watch.message().await.unwrap().expect("the state is told");

    etcd.0.signal(0, "-STOP");
    let ended = async {
        loop {
            if let Err(status) = watch.message().await {
                return status;
            }
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the stream ends");
    assert_eq!(ended.code(), Code::Unavailable, "{ended:?}");
    // Answered from memory before; an old answer is worse than none.
    let refused = fixture.tags().await.list_tags(ListTagsRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("has not read it since"), "{}", refused.message());
    let (status, body) = fixture.rest("GET", "/readyz", "").await;
    assert_eq!(status, 503);
    assert!(body.to_string().contains("has not read it since"), "{body}");
    assert_eq!(fixture.rest("GET", "/healthz", "").await.0, 200);

    etcd.0.signal(0, "-CONT");
    let served = async {
        while fixture.tags().await.list_tags(ListTagsRequest::default()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), served).await.expect("it serves again");
    objects.watch_objects(ListObjectsRequest::default()).await.unwrap();
    fixture.stop().await;
}

/// What is revoked at one controller goes on nowhere: a stream at the other ends, begun with the token or the certificate.
async fn ends_everywhere(one: &Fixture, two: &Fixture) {
    let access = || async { AccessClient::new(one.admin().await) };
    let request = CreateTokenRequest { name: "brief".into(), role: Role::Viewer.into(), ttl_seconds: None };
    let token = access().await.create_token(request).await.unwrap().into_inner();
    // Each of these controllers has a CA of its own.
    let certificate = two.issue(Role::Viewer, "brief").await;
    let mut with_token = ObjectsClient::new(two.with_token(&token.secret).await);
    let channel = two.endpoint(Some(certificate.identity())).connect().await.unwrap();
    let mut with_certificate = ObjectsClient::new(channel);
    until("the other controller knows the token", async || {
        with_token.list_objects(ListObjectsRequest::default()).await.is_ok()
    })
    .await;
    let all = ListObjectsRequest::default;
    let by_token = with_token.watch_objects(all()).await.unwrap().into_inner();
    let by_certificate = with_certificate.watch_objects(all()).await.unwrap().into_inner();

    let id = token.info.unwrap().id;
    access().await.revoke_token(RevokeTokenRequest { id, with_made: false }).await.unwrap();
    let serial = &certificate.serial;
    until("the first knows the certificate, and revokes it", async || {
        let request = RevokeCertificateRequest { serial: serial.clone(), with_made: false };
        access().await.revoke_certificate(request).await.is_ok()
    })
    .await;
    for mut stream in [by_token, by_certificate] {
        let end = async {
            loop {
                if let Err(status) = stream.message().await {
                    return status;
                }
            }
        };
        // A second is promised; the machine may have other things to do.
        let end = tokio::time::timeout(Duration::from_secs(4), end).await.expect("the stream ends");
        assert_eq!(end.code(), Code::Unauthenticated, "{end}");
    }
    for refused in [with_token.list_objects(all()).await, with_certificate.list_objects(all()).await] {
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_share_tags_and_take_turns() {
    let etcd = Etcd::start();
    let [one, two] = etcd.controllers(|_| {}).await;
    ends_everywhere(&one, &two).await;
    let (mut a, mut b) = (one.tags().await, two.tags().await);

    a.set_tag(leaf("x", "10.0.0.1")).await.unwrap();
    let seen = async {
        while b.get_tag(Tag { tag_name: "x".into() }).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), seen).await.expect("the other controller sees the tag");

    for round in 0..20 {
        let names = [format!("p{round}"), format!("q{round}")];
        for name in &names {
            a.set_tag(group(name, &["x"])).await.unwrap();
        }
        // Each half of the cycle through another controller, at the same time.
        let (p_in_q, q_in_p) = (group(&names[1], &[&names[0]]), group(&names[0], &[&names[1]]));
        let results: [Result<_, tonic::Status>; 2] =
            tokio::join!(a.set_tag(p_in_q), b.set_tag(q_in_p)).into();
        let refused: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        assert_eq!(refused.len(), 1, "{results:?}");
        assert_eq!(refused[0].code(), Code::FailedPrecondition, "{refused:?}");
    }

    // More members than etcd takes in one transaction: the error says what to do.
    let many: Vec<String> = (0..5000).map(|n| format!("10.0.{}.{}", n / 250, n % 250)).collect();
    let wide = TagMapping { tag_name: "wide".into(), child_tags: many, uri: None, ip: None };
    let refused = a.set_tag(wide.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("max-txn-ops"), "{refused:?}");
    for members in wide.child_tags.chunks(2500) {
        a.set_tag(TagMapping { child_tags: members.to_vec(), ..wide.clone() }).await.unwrap();
    }
    // Deleting it is one operation whatever its size.
    a.delete_tag(Tag { tag_name: "wide".into() }).await.unwrap();
    assert_eq!(a.get_tag(Tag { tag_name: "wide".into() }).await.unwrap_err().code(), Code::NotFound);
}

async fn onboard(fixture: &Fixture) {
    let (_, ticket) = fixture.rest("POST", "/tickets", "{}").await;
    let request = OnBoardConsumerRequest {
        token: ticket["text"].as_str().unwrap().to_owned(),
        capacity: Some(Quantity { string: Some("1Mi".to_owned()) }),
        sources: Vec::new(),
    };
    OcsProviderClient::new(fixture.channel().await).on_board_consumer(request).await.unwrap();
}

/// How many consumers are ready, as this controller tells it.
async fn ready(fixture: &Fixture) -> usize {
    let (_, consumers) = fixture.rest("GET", "/consumers", "").await;
    consumers.as_array().unwrap().iter().filter(|consumer| consumer["phase"] == "Ready").count()
}

/// How many consumers have volumes on this controller's disk.
fn volumes(fixture: &Fixture) -> usize {
    std::fs::read_dir(fixture.dir.path().join("volumes/volumes")).map_or(0, Iterator::count)
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), holds).await.unwrap_or_else(|_| panic!("not so: {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_controller_that_leads_makes_storage() {
    let etcd = Etcd::start();
    let [one, two] = etcd
        .controllers(|config| config.storage = Some(StorageConfig::nbd("127.0.0.1:0".parse().unwrap())))
        .await;
    onboard(&one).await;
    until("the first makes its own consumer ready", async || ready(&one).await == 1).await;
    // Taken in by the one that follows, made by the one that leads, without waiting for its next look at everything.
    onboard(&two).await;
    until("the leader hears of the other's consumer", async || ready(&two).await == 2).await;
    assert_eq!((volumes(&one), volumes(&two)), (2, 0));

    let (_, consumers) = one.rest("GET", "/consumers", "").await;
    let gone = consumers[0]["id"].as_str().unwrap();
    assert_eq!(two.rest("DELETE", &format!("/consumers/{gone}?now=true"), "").await.0, 200);
    until("the leader takes down what the other put off", async || {
        ready(&one).await == 1 && volumes(&one) == 1
    })
    .await;

    one.stop().await;
    onboard(&two).await;
    until("the other makes its own", async || ready(&two).await == 1 && volumes(&two) == 1).await;
    // What the first made is on the first's disk: it is told where, and not made anew and empty.
    until("of the rest it says where it is", async || {
        let (_, consumers) = two.rest("GET", "/consumers", "").await;
        let consumers = consumers.as_array().unwrap();
        consumers.iter().any(|consumer| {
            let reason = consumer["reason"].as_str().unwrap_or_default();
            consumer["phase"] == "Failed"
                && reason.contains("its data is in the vault")
                && reason.contains("volumes")
        })
    })
    .await;
    assert_eq!(volumes(&two), 1);
}

/// An etcd with default flags takes 128 operations in a transaction; what is promised whole is whole beyond that.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_objects_and_members_are_stored_at_once_with_etcd_s_defaults() {
    const MANY: usize = 200;
    let etcd = Etcd::start();
    let fixture = etcd.controller(tempfile::tempdir().unwrap(), |_| {}).await;
    let mut objects = ObjectsClient::new(fixture.admin().await);
    let pod = |n: usize| {
        let labels = serde_json::json!({"app": "web"});
        let metadata = serde_json::json!({"name": format!("p{n}"), "labels": labels});
        serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}).to_string().into_bytes()
    };
    let request = ApplyObjectsRequest { documents: (0..MANY).map(pod).collect(), ..Default::default() };
    let applied = objects.apply_objects(request).await.unwrap().into_inner().applied;
    assert_eq!(applied.len(), MANY);

    // One of them is not there, so none goes.
    let refer =
        |n: usize| ObjectRef { kind: "Pod".into(), namespace: "default".into(), name: format!("p{n}") };
    let too_many = DeleteObjectsRequest { objects: (0..=MANY).map(refer).collect(), ..Default::default() };
    assert_eq!(objects.delete_objects(too_many).await.unwrap_err().code(), Code::NotFound);
    let all = DeleteObjectsRequest { objects: (0..MANY).map(refer).collect(), ..Default::default() };
    assert_eq!(objects.delete_objects(all).await.unwrap().into_inner().applied.len(), MANY);

    let members: Vec<String> = (0..MANY).map(|n| format!("10.0.{}.{}", n / 250, n % 250)).collect();
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let mut tags = fixture.tags().await;
    tags.set_tag(group("many", &members)).await.unwrap();
    let tag = tags.get_tag(Tag { tag_name: "many".into() }).await.unwrap();
    assert_eq!(tag.into_inner().child_tags.len(), MANY);
}
