//! The defects of the original's transport, by number, each as something that does not happen here. Those of its agent
//! (10 to 13) have their counterpart in the node agent.

use std::time::Duration;

use transport::SpanChange;
use wire::{
    pb::{DatapathPodMetadata, dataplane_events_client::DataplaneEventsClient},
    trestle::v1::{ObjectKind, node_start::Mode},
};

use testkit_controllers::nodes::{Harness, change, eventually, facts, nodes, policy, set};

use super::{
    agent::{Agent, State},
    original::OriginalClient,
};

#[tokio::test(flavor = "multi_thread")]
async fn defect_1_one_reader_that_stands_still_holds_up_nobody() {
    let harness = Harness::synced().await;
    let (still, other) = (harness.node("still").await, harness.node("other").await);
    let mut client = DataplaneEventsClient::new(harness.channel(Some(&still)).await);
    harness.publish([facts("still")]);
    // Never read from.
    let stream = client.connect(DatapathPodMetadata { id: "still".into() }).await.unwrap();
    let mut agent = Agent::connect(&harness, &other, State::default()).await;
    agent.step().await.unwrap();
    let members: Vec<_> = (0..20_000).map(|n| format!("m{n}")).collect();
    let names: Vec<_> = members.iter().map(String::as_str).collect();
    harness.publish([set("big", &names, SpanChange::Everyone)]);
    agent.until("the set", |state| state.set("big").is_some()).await;
    for round in 1..50 {
        harness.publish([policy("p", round, SpanChange::Everyone)]);
        agent.until("a change", |state| state.policy("p") == Some(round)).await;
    }
    let third = harness.node("third").await;
    Agent::connect(&harness, &third, State::default()).await.step().await.unwrap();
    drop(stream);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_2_a_node_whose_stream_broke_is_gone_and_what_it_missed_is_sent_when_it_returns() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    let mut agent = Agent::connect(&harness, &credential, State::default()).await;
    agent.step().await.unwrap();
    let state = agent.state.clone();
    drop(agent);
    eventually("the disconnect", || harness.stats().sessions == 0).await;
    harness.publish([policy("missed", 1, SpanChange::Everyone)]);
    let mut agent = Agent::connect(&harness, &credential, state).await;
    agent.step().await.unwrap();
    assert_eq!(agent.state.policy("missed"), Some(1));
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_3_changes_of_one_object_never_arrive_out_of_order() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    let mut agent = Agent::connect(&harness, &credential, State::default()).await;
    agent.step().await.unwrap();
    let source = harness.source.clone();
    let writer = tokio::task::spawn_blocking(move || {
        for round in 1..=500 {
            source.publish([policy("p", round, SpanChange::Everyone)]);
        }
    });
    let mut last = 0;
    while last < 500 {
        agent.step().await.unwrap();
        let now = agent.state.policy("p").unwrap();
        assert!(now > last, "{now} after {last}");
        last = now;
    }
    writer.await.unwrap();
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_4_a_change_during_the_snapshot_never_comes_before_it() {
    let harness = Harness::synced().await;
    let source = harness.source.clone();
    source.publish((0..2000).map(|n| set(&format!("s{n}"), &["a"], SpanChange::Everyone)));
    let writer = tokio::task::spawn_blocking(move || {
        for round in 0..300 {
            source.publish([
                change(&format!("s{}", round * 7 % 2000), &["b"], &[]),
                policy("last", round, SpanChange::Everyone),
            ]);
        }
    });
    for n in 0..5 {
        let credential = harness.node(&format!("n{n}")).await;
        let mut agent = Agent::connect(&harness, &credential, State::default()).await;
        agent.until("the last change", |state| state.policy("last") == Some(299)).await;
        for round in 0..300 {
            assert_eq!(agent.state.set(&format!("s{}", round * 7 % 2000)), Some(vec!["a", "b"]));
        }
        assert_eq!(agent.state.objects.len(), 2001);
    }
    writer.await.unwrap();
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_6_a_state_of_many_mebibytes_reaches_a_client_with_default_limits() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    let filler = "x".repeat(500);
    for batch in 0..10 {
        let name = |n: u32| format!("{filler}-{batch}-{n}");
        harness.publish((0..1000).map(|n| set(&name(n), &["a", "b", "c", "d"], SpanChange::Everyone)));
    }
    let mut agent = Agent::connect(&harness, &credential, State::default()).await;
    agent.step().await.unwrap();
    assert_eq!(agent.state.objects.len(), 10_000);
    assert!(agent.bytes > 5 << 20, "{}", agent.bytes);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_7_a_cancelled_call_on_a_living_connection_is_forgotten() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    let channel = harness.channel(Some(&credential)).await;
    harness.publish([facts("n1")]);
    let before = harness.stats().nodes;
    for _ in 0..20 {
        let mut client = DataplaneEventsClient::new(channel.clone());
        let stream = client.connect(DatapathPodMetadata { id: "n1".into() }).await.unwrap();
        eventually("the session", || harness.stats().sessions == 1).await;
        drop(stream);
        eventually("the end of the session", || harness.stats().sessions == 0).await;
    }
    assert_eq!(harness.stats().nodes, before, "nothing is kept of who has gone");
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_8_an_empty_controller_in_sync_empties_a_node_that_holds_something() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    let mut stale = State::default();
    stale.objects.insert((3, "stale".into()), (5, super::agent::Held::Policy(1)));
    let mut agent = Agent::connect(&harness, &credential, stale).await;
    agent.step().await.unwrap();
    assert!(agent.state.objects.is_empty());
    assert_eq!(agent.start.as_ref().unwrap().mode(), Mode::Buckets);
    // On Azure NPM's wire the end of the configuration is said, so that a client can do the same.
    let mut client = OriginalClient::connect(&harness, &credential, "n1").await;
    assert_eq!(client.step().await.unwrap(), []);
    assert!(client.complete);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_9_a_set_that_loses_its_last_member_is_sent_empty() {
    let harness = Harness::synced().await;
    let (one, two) = (harness.node("n1").await, harness.node("n2").await);
    harness.publish([set("s", &["a"], SpanChange::Everyone)]);
    let mut agent = Agent::connect(&harness, &one, State::default()).await;
    let mut client = OriginalClient::connect(&harness, &two, "n2").await;
    agent.step().await.unwrap();
    client.step().await.unwrap();
    harness.publish([change("s", &[], &["a"])]);
    agent.until("the empty set", |state| state.set("s") == Some(vec![])).await;
    assert_eq!(client.step().await.unwrap(), [("APPLY", "IPSET", "s".to_owned(), Some(0))]);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_10_a_member_that_is_replaced_goes_and_the_other_comes() {
    let harness = Harness::synced().await;
    let (one, two) = (harness.node("n1").await, harness.node("n2").await);
    harness.publish([set("s", &["a", "b"], SpanChange::Everyone)]);
    let mut agent = Agent::connect(&harness, &one, State::default()).await;
    let mut client = OriginalClient::connect(&harness, &two, "n2").await;
    agent.step().await.unwrap();
    client.step().await.unwrap();
    harness.publish([change("s", &["c"], &["a"])]);
    agent.until("the other member", |state| state.set("s") == Some(vec!["b", "c"])).await;
    assert_eq!(client.step().await.unwrap(), [("APPLY", "IPSET", "s".to_owned(), Some(2))]);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn defect_15_a_node_hears_only_what_is_meant_for_it_and_nothing_twice() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    harness.publish([set("mine", &["a"], nodes(&["n1"]))]);
    let mut agent = Agent::connect(&harness, &credential, State::default()).await;
    agent.step().await.unwrap();
    harness.publish([set("mine", &["a"], nodes(&["n1"])), set("theirs", &["a"], nodes(&["n2"]))]);
    harness.publish([server::transport::objects::remove(ObjectKind::AddressSet, "theirs")]);
    assert!(agent.is_quiet(Duration::from_millis(300)).await);
    harness.stop().await;
}
