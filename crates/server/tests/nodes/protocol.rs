//! The node protocol as an agent sees it.

use std::time::Duration;

use server::{DuplicateNode, transport::objects};
use testkit_controllers::nodes::{Harness, change, eventually, nodes, policy, set};
use tonic::Code;
use transport::{Change, SpanChange};
use wire::trestle::v1::{
    ApplyObjectsRequest, FromNode, GetNodeRequest, NodeObjectError, NodeReport, ObjectKind, Role,
    node_start::Mode, nodes_client::NodesClient, objects_client::ObjectsClient,
};

use super::agent::{Agent, Held, State};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_what_is_meant_for_it_and_then_every_change() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    harness.publish([
        set("mine", &["a", "b"], nodes(&["n1"])),
        set("other", &["a"], nodes(&["n2"])),
        policy("p", 1, SpanChange::Everyone),
    ]);
    let mut agent = Agent::connect(&harness, &credential, State::default()).await;
    agent.step().await.unwrap();
    assert_eq!(agent.start.as_ref().unwrap().mode(), Mode::Buckets, "an empty digest is a digest");
    assert_eq!(agent.state.set("mine"), Some(vec!["a", "b"]));
    assert_eq!(agent.state.policy("p"), Some(1));
    assert_eq!(agent.state.objects.len(), 2);

    harness.publish([change("mine", &["c"], &["a"]), policy("p", 2, SpanChange::Keep)]);
    agent.until("the change", |state| state.policy("p") == Some(2)).await;
    assert_eq!(agent.state.set("mine"), Some(vec!["b", "c"]));
    harness.publish([objects::remove(ObjectKind::Policy, "p"), change("other", &["z"], &[])]);
    agent.until("the removal", |state| state.policy("p").is_none()).await;
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_said_before_the_sources_are_in_sync() {
    let harness = Harness::unsynced().await;
    let credential = harness.node("n1").await;
    let mut held = State::default();
    held.objects.insert((3, "kept".into()), (77, super::agent::Held::Policy(1)));
    let mut agent = Agent::connect(&harness, &credential, held).await;
    harness.publish([policy("p", 1, SpanChange::Everyone)]);
    let waited = tokio::time::timeout(Duration::from_millis(300), agent.step()).await;
    assert!(waited.is_err(), "no flush before sync");
    assert_eq!((agent.waits, agent.state.objects.len()), (1, 1));
    harness.source.synced();
    agent.step().await.unwrap();
    assert_eq!((agent.state.policy("p"), agent.state.policy("kept")), (Some(1), None));
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_stream_resumes_with_the_difference_alone() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    harness.publish((0..200).map(|n| set(&format!("s{n}"), &["a"], nodes(&["n1"]))));
    let mut agent = Agent::connect(&harness, &credential, State::default()).await;
    agent.step().await.unwrap();
    let state = agent.state;
    drop(agent.start);
    harness.publish([objects::remove(ObjectKind::AddressSet, "s1"), change("s2", &["b"], &[])]);
    let mut agent = Agent::connect(&harness, &credential, state).await;
    agent.step().await.unwrap();
    assert_eq!(agent.start.as_ref().unwrap().mode(), Mode::Resume);
    assert_eq!((agent.state.set("s1"), agent.state.set("s2")), (None, Some(vec!["a", "b"])));
    assert!(agent.bytes < 200, "{}", agent.bytes);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_controller_restart_costs_no_objects_and_a_changed_one_its_buckets() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    let objects = || (0..300).map(|n| set(&format!("s{n}"), &["a", "b"], nodes(&["n1"])));
    harness.publish(objects());
    let mut agent = Agent::connect(&harness, &credential, State::default()).await;
    agent.step().await.unwrap();
    let state = agent.state;

    let harness = harness.restart().await;
    harness.publish(objects());
    harness.source.synced();
    let mut agent = Agent::connect(&harness, &credential, state).await;
    agent.step().await.unwrap();
    let start = agent.start.clone().unwrap();
    assert_eq!((start.mode(), start.buckets.len(), agent.state.objects.len()), (Mode::Buckets, 0, 300));
    assert!(agent.bytes < 64, "{}", agent.bytes);
    let state = agent.state;

    let harness = harness.restart().await;
    harness.publish(objects().skip(1).chain([change("s7", &["c"], &[])]));
    harness.source.synced();
    let mut agent = Agent::connect(&harness, &credential, state).await;
    agent.step().await.unwrap();
    assert_eq!((agent.state.set("s0"), agent.state.set("s7")), (None, Some(vec!["a", "b", "c"])));
    assert_eq!(agent.state.objects.len(), 299);
    assert!(agent.bytes < 2000, "{}", agent.bytes);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_applied_and_what_it_could_not_is_seen_by_people() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    harness.publish([policy("p", 1, SpanChange::Everyone)]);
    let mut agent = Agent::connect(&harness, &credential, State::default()).await;
    let revision = agent.step().await.unwrap();
    let status = harness.session("n1").unwrap();
    assert_eq!((status.connected, status.applied), (true, None));
    let error = NodeObjectError { kind: 3, name: "p".into(), message: "the kernel says no".into() };
    agent.report(NodeReport { revision, errors: vec![error], skipped: 2, host: None }).await;
    eventually("the report", || harness.session("n1").unwrap().applied.is_some()).await;
    let listed = harness.list().await;
    let node = &listed[0];
    assert_eq!((node.applied_revision, node.lag_seconds, node.skipped), (Some(revision), 0.0, 2));
    assert_eq!((node.errors[0].name.as_str(), node.version.as_str()), ("p", "test"));
    agent.report(NodeReport { revision, errors: vec![], skipped: 2, host: None }).await;
    eventually("the all clear", || harness.session("n1").unwrap().errors.is_empty()).await;
    drop(agent);
    eventually("the disconnect", || !harness.session("n1").unwrap().connected).await;
    harness.stop().await;
}

/// Known without having connected: by a certificate, by a Node object. A restart of the controller forgets neither.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_listed_also_when_they_have_not_come_back() {
    let harness = Harness::synced().await;
    let revoked = harness.node("revoked").await;
    harness.revoke(&revoked.serial).await;
    harness.node("certified").await;
    let document = br#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"described"}}"#.to_vec();
    let request = ApplyObjectsRequest { documents: vec![document], ..ApplyObjectsRequest::default() };
    let mut objects = ObjectsClient::new(harness.channel(None).await);
    objects.apply_objects(harness.as_admin(request)).await.unwrap();
    let harness = harness.restart().await;
    let listed = harness.list().await;
    let names: Vec<_> = listed.iter().map(|node| (node.name.as_str(), node.connected)).collect();
    assert_eq!(names, [("certified", false), ("described", false)]);
    let mut nodes = NodesClient::new(harness.channel(None).await);
    let get = |name: &str| harness.as_admin(GetNodeRequest { name: name.into() });
    assert!(nodes.get_node(get("certified")).await.unwrap().into_inner().objects.is_empty());
    assert_eq!(nodes.get_node(get("nobody")).await.unwrap_err().code(), Code::NotFound);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_who_its_certificate_says() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    let mut agent = Agent::connect_as(&harness, &credential, State::default(), State::default().hello("n2"))
        .await
        .unwrap();
    assert_eq!(agent.end().await, Code::PermissionDenied);
    for (role, expected) in [(Role::Admin, Code::PermissionDenied), (Role::Consumer, Code::PermissionDenied)]
    {
        let other = harness.issue(role, "n2").await;
        let refused =
            Agent::connect_as(&harness, &other, State::default(), State::default().hello("n2")).await;
        assert_eq!(refused.err().map(|status| status.code()), Some(expected));
    }
    assert_eq!(harness.stats().sessions, 0);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_connection_of_a_node_wins_and_the_older_ones_end_cannot_remove_it() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    let mut old = Agent::connect(&harness, &credential, State::default()).await;
    old.step().await.unwrap();
    let mut new = Agent::connect(&harness, &credential, State::default()).await;
    new.step().await.unwrap();
    assert_eq!(old.end().await, Code::Aborted);
    drop(old);
    harness.publish([policy("p", 1, SpanChange::Everyone)]);
    new.until("the policy", |state| state.policy("p").is_some()).await;
    assert_eq!(harness.stats().sessions, 1);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_originals_no_op_for_an_existing_node_is_a_switch() {
    let dir = tempfile::tempdir().unwrap();
    let harness = Harness::start(dir, |config| config.nodes.duplicate = DuplicateNode::Existing).await;
    harness.source.synced();
    let credential = harness.node("n1").await;
    let mut old = Agent::connect(&harness, &credential, State::default()).await;
    old.step().await.unwrap();
    let mut new = Agent::connect(&harness, &credential, State::default()).await;
    assert_eq!(new.end().await, Code::AlreadyExists);
    harness.publish([policy("p", 1, SpanChange::Everyone)]);
    old.until("the policy", |state| state.policy("p").is_some()).await;
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_controller_and_a_newer_node_are_both_borne() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    // A kind this node's schema has no body for.
    let key = transport::Key::new(transport::Kind(9), "future");
    let payload = bytes::Bytes::from_static(&[0x98, 0x06, 0x01]);
    harness.publish([
        Change::Put { key, payload, span: SpanChange::Everyone },
        policy("p", 1, SpanChange::Everyone),
    ]);
    let mut agent = Agent::connect(&harness, &credential, State::default()).await;
    let revision = agent.step().await.unwrap();
    assert_eq!(agent.state.policy("p"), Some(1));
    assert!(agent.state.objects.contains_key(&(9, "future".into())), "kind, name and hash are readable");
    // A message of a newer node is passed over; a report with an unknown kind is kept.
    agent.send(FromNode { message: None }).await;
    let error = NodeObjectError { kind: 9, name: "future".into(), message: "unknown kind".into() };
    agent.report(NodeReport { revision, errors: vec![error], skipped: 1, host: None }).await;
    eventually("the report", || harness.session("n1").unwrap().errors.len() == 1).await;
    // A digest of another size is no digest: everything is sent.
    let mut hello = State::default().hello("n1");
    hello.digest = vec![1; 64];
    let mut again = Agent::connect_as(&harness, &credential, State::default(), hello).await.unwrap();
    again.step().await.unwrap();
    assert_eq!(again.start.as_ref().unwrap().mode(), Mode::Snapshot);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_controller_ends_streams_with_a_reason() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    let mut agent = Agent::connect(&harness, &credential, State::default()).await;
    agent.step().await.unwrap();
    let stopping = tokio::spawn(harness.stop());
    assert_eq!(agent.end().await, Code::Unavailable);
    drop(agent);
    stopping.await.unwrap();
}

/// A Pod and a policy as a user applies them, down to what the Pod's node is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_a_user_applies_reaches_the_node_of_the_pod_it_selects_and_no_other() {
    let harness = Harness::synced().await;
    let (here, there) = (harness.node("here").await, harness.node("there").await);
    let mut agents = [
        Agent::connect(&harness, &here, State::default()).await,
        Agent::connect(&harness, &there, State::default()).await,
    ];
    for agent in &mut agents {
        agent.step().await.unwrap();
    }
    let documents = [
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}"#,
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"web","labels":{"app":"web"}},
            "spec":{"nodeName":"here"},"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}"#,
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"db","labels":{"app":"db"}},
            "spec":{"nodeName":"there"},"status":{"podIP":"10.0.0.2","podIPs":[{"ip":"10.0.0.2"}]}}"#,
        r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"namespace":"shop","name":"web"},
            "spec":{"podSelector":{"matchLabels":{"app":"web"}},"policyTypes":["Ingress"],
                    "ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"db"}}}]}]}}"#,
    ];
    let documents = documents.iter().map(|text| text.as_bytes().to_vec()).collect();
    let request = ApplyObjectsRequest { documents, ..ApplyObjectsRequest::default() };
    let mut objects = ObjectsClient::new(harness.channel(None).await);
    objects.apply_objects(harness.as_admin(request)).await.unwrap();
    let [here, there] = &mut agents;
    here.until("the policy", |state| state.objects.len() == 4).await;
    let held: Vec<_> =
        here.state.objects.iter().map(|((kind, _), (_, held))| (*kind, held.clone())).collect();
    let members = |name: &str| Held::Set([name.to_owned()].into());
    assert_eq!(held[0], (ObjectKind::AppliedToSet as i32, members("web")));
    assert_eq!(held[1], (ObjectKind::AddressSet as i32, members("db")));
    assert!(matches!(held[2], (3, Held::Policy(_))));
    // Each is told which of its Pods are covered, and the other nothing else.
    let is_facts = |kind: i32| kind == ObjectKind::NodeFacts as i32;
    assert!(is_facts(held[3].0));
    there.until("its Pod", |state| !state.objects.is_empty()).await;
    assert!(there.state.objects.keys().all(|(kind, _)| is_facts(*kind)));
    assert!(there.is_quiet(Duration::from_millis(300)).await);
    harness.stop().await;
}
