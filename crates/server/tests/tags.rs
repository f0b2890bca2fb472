//! The tag service through a whole controller, over gRPC and REST.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use testkit_controllers::controller::{Fixture, group, leaf};
use tonic::Code;
use wire::{
    tagservicepb::{ListTagsRequest, Subscription, Tag, TagMapping},
    trestle::v1::{TagEvent, WatchSubscriberRequest, tag_events_client::TagEventsClient},
};

fn tag(name: &str) -> Tag {
    Tag { tag_name: name.into() }
}

fn subscription(tag: &str, subscriber: &str) -> Subscription {
    Subscription { tag_name: tag.into(), subscriber: subscriber.into() }
}

#[tokio::test]
async fn the_eight_calls_of_the_seed_and_the_listing() {
    let fixture = Fixture::start().await;
    let mut tags = fixture.tags().await;
    let reply = tags.set_tag(leaf("a", "10.0.0.1")).await.unwrap().into_inner();
    assert!(reply.success);
    assert_eq!(reply.message, "Created/updated tag: a");
    tags.set_tag(TagMapping { uri: Some("/vm/b".into()), ..leaf("b", "2001:db8::1") }).await.unwrap();
    tags.set_tag(group("inner", &["a", "b"])).await.unwrap();
    tags.set_tag(group("outer", &["inner", "a", "192.0.2.0/24"])).await.unwrap();

    assert_eq!(
        tags.get_tag(tag("outer")).await.unwrap().into_inner(),
        group("outer", &["192.0.2.0/24", "a", "inner"])
    );
    let resolved = tags.resolve_tag(tag("outer")).await.unwrap().into_inner().mappings;
    let literal = TagMapping { ip: Some("192.0.2.0/24".into()), ..TagMapping::default() };
    let b = TagMapping { uri: Some("/vm/b".into()), ..leaf("b", "2001:db8::1") };
    assert_eq!(resolved, [literal, leaf("a", "10.0.0.1"), b]);

    tags.subscribe(subscription("outer", "ns>cloud>/vm/x")).await.unwrap();
    tags.subscribe(subscription("outer", "ns>cloud>/vm/x")).await.unwrap();
    assert_eq!(
        tags.get_subscribers(tag("outer")).await.unwrap().into_inner().subscribers,
        ["ns>cloud>/vm/x"]
    );
    tags.unsubscribe(subscription("outer", "ns>cloud>/vm/x")).await.unwrap();
    assert!(tags.get_subscribers(tag("outer")).await.unwrap().into_inner().subscribers.is_empty());

    tags.delete_tag_member(group("outer", &["a"])).await.unwrap();
    tags.delete_tag(tag("inner")).await.unwrap();
    let left = tags.list_tags(ListTagsRequest::default()).await.unwrap().into_inner().tags;
    assert_eq!(left.len(), 3);
    assert_eq!(left[2], group("outer", &["192.0.2.0/24"]), "a deleted tag leaves nothing behind");
}

#[tokio::test]
async fn refusals_have_codes_and_change_nothing() {
    let fixture = Fixture::start().await;
    let mut tags = fixture.tags().await;
    tags.set_tag(leaf("a", "10.0.0.1")).await.unwrap();
    tags.set_tag(group("g", &["a"])).await.unwrap();
    tags.set_tag(group("h", &["g"])).await.unwrap();
    let long = "x".repeat(10 << 10);
    let both = TagMapping { uri: Some("u".into()), ..group("t", &["a"]) };
    for (mapping, code) in [
        (group("g", &["g"]), Code::FailedPrecondition),
        (group("g", &["h"]), Code::FailedPrecondition),
        (group("a", &["g"]), Code::FailedPrecondition),
        (leaf("g", "10.0.0.1"), Code::FailedPrecondition),
        (group("g", &["missing"]), Code::NotFound),
        (both, Code::InvalidArgument),
        (group("t", &[]), Code::InvalidArgument),
        (leaf("t", "10.0.0.300"), Code::InvalidArgument),
        (leaf("a\u{7}b", "10.0.0.1"), Code::InvalidArgument),
        (leaf(&long, "10.0.0.1"), Code::InvalidArgument),
        (group("g", &[&long]), Code::InvalidArgument),
        (leaf("a>b", "10.0.0.1"), Code::InvalidArgument),
        (leaf("1.2.3.4", "10.0.0.1"), Code::InvalidArgument),
    ] {
        let name = mapping.tag_name.chars().take(8).collect::<String>();
        let refused = tags.set_tag(mapping).await.unwrap_err();
        assert_eq!(refused.code(), code, "{name}: {refused:?}");
        assert!(refused.message().len() < 500, "{}", refused.message());
    }
    for missing in ["nope", "nope.nope"] {
        assert_eq!(tags.get_tag(tag(missing)).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(tags.resolve_tag(tag(missing)).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(tags.delete_tag(tag(missing)).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(tags.get_subscribers(tag(missing)).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(tags.subscribe(subscription(missing, "s")).await.unwrap_err().code(), Code::NotFound);
    }
    let refused = tags.delete_tag_member(group("g", &["a", "h"])).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    let all = tags.list_tags(ListTagsRequest::default()).await.unwrap().into_inner().tags;
    assert_eq!(all, [leaf("a", "10.0.0.1"), group("g", &["a"]), group("h", &["g"])]);
}

#[tokio::test]
async fn concurrent_writers_cannot_make_a_cycle() {
    let fixture = Fixture::start().await;
    let mut tags = fixture.tags().await;
    for n in 0..8 {
        tags.set_tag(group(&format!("t{n}"), &[&format!("10.0.0.{n}")])).await.unwrap();
    }
    // Each closes the ring of eight a little further; at least one must be refused.
    let mut writers = Vec::new();
    for n in 0..8 {
        let mut tags = fixture.tags().await;
        writers.push(tokio::spawn(async move {
            tags.set_tag(group(&format!("t{n}"), &[&format!("t{}", (n + 1) % 8)])).await
        }));
    }
    let mut refused = 0;
    for writer in writers {
        if let Err(status) = writer.await.unwrap() {
            assert_eq!(status.code(), Code::FailedPrecondition);
            refused += 1;
        }
    }
    assert_eq!(refused, 1);
    for n in 0..8 {
        tags.resolve_tag(tag(&format!("t{n}"))).await.unwrap();
    }
}

#[tokio::test]
async fn a_stopped_controller_has_let_go_of_its_directory() {
    let mut dir = tempfile::tempdir().unwrap();
    for n in 0..5 {
        let fixture = Fixture::start_in(dir, |_| {}).await;
        fixture.tags().await.set_tag(leaf(&format!("t{n}"), "10.0.0.1")).await.unwrap();
        dir = fixture.stop().await;
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let fixture = Fixture::start().await;
    let mut tags = fixture.tags().await;
    tags.set_tag(leaf("a", "10.0.0.1")).await.unwrap();
    tags.set_tag(group("g", &["a", "10.0.0.0/8"])).await.unwrap();
    tags.subscribe(subscription("g", "s")).await.unwrap();
    let (dir, token) = (fixture.token.clone(), fixture.stop().await);
    let fixture = Fixture::start_in(token, |_| {}).await;
    assert_eq!(fixture.token, dir, "the first token stays the same");
    let mut tags = fixture.tags().await;
    assert_eq!(tags.resolve_tag(tag("g")).await.unwrap().into_inner().mappings.len(), 2);
    assert_eq!(tags.get_subscribers(tag("g")).await.unwrap().into_inner().subscribers, ["s"]);
}

/// The next event, or a failure if none comes.
async fn next(stream: &mut tonic::Streaming<TagEvent>) -> TagEvent {
    let message = tokio::time::timeout(Duration::from_secs(10), stream.message()).await;
    message.expect("an event comes").unwrap().expect("the stream is open")
}

#[tokio::test]
async fn a_subscriber_of_an_ancestor_hears_each_effective_change_once() {
    let fixture = Fixture::start().await;
    let mut tags = fixture.tags().await;
    tags.set_tag(leaf("a", "10.0.0.1")).await.unwrap();
    tags.set_tag(group("left", &["a"])).await.unwrap();
    tags.set_tag(group("right", &["a"])).await.unwrap();
    tags.set_tag(group("top", &["left", "right"])).await.unwrap();
    for name in ["top", "left"] {
        tags.subscribe(subscription(name, "s")).await.unwrap();
    }
    let mut events = TagEventsClient::new(fixture.admin().await);
    let request = WatchSubscriberRequest { subscriber: "s".into(), after: None };
    let mut stream = events.watch_subscriber(request).await.unwrap().into_inner();
    let start = next(&mut stream).await;
    assert!(start.start);

    // No effect: `a` is in `right` already by way of `left`'s sibling, seen from the top.
    tags.delete_tag_member(group("right", &["a"])).await.unwrap();
    // One effect on both subscribed tags: one event.
    tags.set_tag(leaf("a", "10.0.0.2")).await.unwrap();
    let changed = next(&mut stream).await;
    let names: Vec<_> = changed.differences.iter().map(|difference| difference.tag_name.as_str()).collect();
    assert_eq!(names, ["left", "top"]);
    assert_eq!(changed.differences[0].added[0].ip.as_deref(), Some("10.0.0.2"));
    assert_eq!(changed.differences[0].removed[0].ip.as_deref(), Some("10.0.0.1"));

    tags.set_tag(group("right", &["10.9.0.0/16"])).await.unwrap();
    let deep = next(&mut stream).await;
    assert_eq!(deep.differences.len(), 1);
    assert_eq!(deep.differences[0].tag_name, "top");
    assert!(deep.revision > changed.revision);

    // A second stream goes on where the first one was.
    let request = WatchSubscriberRequest { subscriber: "s".into(), after: Some(changed.revision) };
    let mut resumed = events.watch_subscriber(request).await.unwrap().into_inner();
    assert!(next(&mut resumed).await.start);
    assert_eq!(next(&mut resumed).await, deep);

    tags.delete_tag(tag("left")).await.unwrap();
    let deleted = next(&mut stream).await;
    assert!(deleted.differences[0].deleted && !deleted.differences[1].deleted);
    assert_eq!(next(&mut resumed).await, deleted);
}

#[tokio::test]
async fn a_watch_from_nowhere_is_told_to_start_over() {
    let fixture = Fixture::start().await;
    let mut events = TagEventsClient::new(fixture.admin().await);
    let request = WatchSubscriberRequest { subscriber: "s".into(), after: Some(999_999) };
    assert_eq!(events.watch_subscriber(request).await.unwrap_err().code(), Code::OutOfRange);
}

#[tokio::test]
async fn rest_speaks_the_seed_projects_routes() {
    let fixture = Fixture::start().await;
    let (status, _) = fixture.rest("POST", "/tags/a/applyMembers", r#"{"name":"a","ip":"10.0.0.1"}"#).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) =
        fixture.rest("POST", "/tags/g/applyMembers", r#"{"child_tags":["a","2001:db8::/32"]}"#).await;
    assert_eq!(status, StatusCode::OK);
    let (_, tags) = fixture.rest("GET", "/tags", "").await;
    // What the original has, and what rules make of each.
    assert_eq!(
        tags,
        json!([
            {"name":"a","ip":"10.0.0.1","from":"","rules":0,"named_by":0,"message":""},
            {"name":"g","child_tags":["2001:db8::/32","a"],"from":"","rules":0,"named_by":0,"message":""},
        ])
    );
    let (_, resolved) = fixture.rest("POST", "/tags/g/resolveMembers", "").await;
    assert_eq!(resolved, json!([{"ip":"2001:db8::/32"}, {"name":"a","ip":"10.0.0.1"}]));
    let (status, _) = fixture.rest("DELETE", "/tags/g/members/2001:db8::%2F32", "").await;
    assert_eq!(status, StatusCode::OK);
    let (_, group) = fixture.rest("GET", "/tags/g", "").await;
    assert_eq!(group, json!({"name":"g","child_tags":["a"]}));
    let (status, _) = fixture.rest("PUT", "/tags/g/subscribers/ns%3Ecloud%3E%2Fvm", "").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(fixture.rest("GET", "/tags/g/subscribers", "").await.1, json!(["ns>cloud>/vm"]));
    assert_eq!(fixture.rest("DELETE", "/tags/g", "").await.1, json!({}));

    let (status, problem) = fixture.rest("GET", "/tags/g", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(problem["code"], "NOT_FOUND");
    assert_eq!(problem["status"], 404);
    let (status, problem) =
        fixture.rest("POST", "/tags/x/applyMembers", r#"{"name":"y","ip":"10.0.0.1"}"#).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::BAD_REQUEST, Some("INVALID_ARGUMENT")));
}

#[tokio::test]
async fn rest_serves_namespaces_as_the_seed_project_does() {
    let fixture = Fixture::start().await;
    assert_eq!(fixture.rest("GET", "/namespaces", "").await.1, json!({"default": []}));
    let body = r#"[{"Name":"gcp","Deployment":"projects/p"}]"#;
    assert_eq!(fixture.rest("PUT", "/namespaces/shop", body).await.0, StatusCode::OK);
    let expected = json!({"default": [], "shop": [{"Name":"gcp","Deployment":"projects/p"}]});
    assert_eq!(fixture.rest("GET", "/namespaces", "").await.1, expected);
    assert_eq!(fixture.rest("DELETE", "/namespaces/default", "").await.0, StatusCode::CONFLICT);
    assert_eq!(fixture.rest("DELETE", "/namespaces/shop", "").await.0, StatusCode::OK);
    assert_eq!(fixture.rest("GET", "/namespaces/shop", "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(fixture.rest("PUT", "/namespaces/a.b", "[]").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn rest_makes_and_revokes_tickets() {
    let nbd = "127.0.0.1:0".parse().unwrap();
    let fixture = Fixture::start_with(|config| config.storage = Some(server::StorageConfig::nbd(nbd))).await;
    let (status, made) = fixture.rest("POST", "/tickets", r#"{"limit":"1Gi"}"#).await;
    assert_eq!((status, made["ticket"]["limit_bytes"].as_u64()), (StatusCode::OK, Some(1 << 30)));
    let id = made["ticket"]["id"].as_str().unwrap();
    assert_eq!(fixture.rest("DELETE", &format!("/tickets/{id}"), "").await.0, StatusCode::OK);
    assert_eq!(fixture.rest("GET", "/tickets", "").await.1[0]["state"], "revoked");
    assert_eq!(fixture.rest("DELETE", "/tickets/nope", "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(fixture.rest("POST", "/tickets", r#"{"limit":"lots"}"#).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(fixture.rest("GET", "/consumers", "").await.1, json!([]));
    assert_eq!(fixture.rest("GET", "/consumers/x", "").await.0, StatusCode::BAD_REQUEST);
}
