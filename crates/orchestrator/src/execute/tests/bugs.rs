//! Stories, and the bugs of the original that ours must not have.

use std::sync::Arc;

use futures::future::join_all;
use model::Direction;

use super::house::{House, both, resource, rule};
use crate::execute::{JobOrPlan, JobState, OrchestratorError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clouds_talk_after_a_rule_and_do_not_after_it_is_gone() {
    let house = House::new(&["azure", "gcp"]).await;
    house.create("ns.azure.a", "west").await.unwrap();
    house.create("ns.gcp.b", "east").await.unwrap();
    assert!(!house.reaches("ns.azure.a", "ns.gcp.b"));
    house.join("ns.azure.a", "ns.gcp.b").await;
    assert!(house.reaches("ns.azure.a", "ns.gcp.b") && house.reaches("ns.gcp.b", "ns.azure.a"));
    let names = both("ns.gcp.b").into_iter().map(|rule| rule.name).collect();
    let outcome = house.orchestrator.delete_rules(resource("ns.azure.a"), names, false).await.unwrap();
    house.finish(outcome).await.unwrap();
    assert!(!house.reaches("ns.azure.a", "ns.gcp.b"));
    house.delete("ns.azure.a").await;
    house.delete("ns.gcp.b").await;
    house.settle().await;
    assert!(house.is_empty());
}

/// A taken name is refused, and the first resource stays what it was. The tag resolves afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_given_once() {
    let house = House::new(&["azure"]).await;
    house.create("ns.azure.a", "west").await.unwrap();
    let again = house.create("ns.azure.a", "east").await;
    assert!(matches!(again, Err(OrchestratorError::ResourceExists { .. })));
    assert_eq!(house.orchestrator.resource(&resource("ns.azure.a")).unwrap().region.as_str(), "west");
    house.book.group("ns.azure.taken", &["1.1.1.1"]);
    let tagged = house.create("ns.azure.taken", "west").await;
    assert!(matches!(tagged, Err(OrchestratorError::TagExists { .. })));
    let both = join_all((0..8).map(|_| house.create("ns.azure.many", "west"))).await;
    assert_eq!(both.iter().filter(|result| result.is_ok()).count(), 1);
}

/// Unknown clouds, namespaces and resources, and descriptions with network settings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_refused_before_anything_happens() {
    let house = House::new(&["azure"]).await;
    assert!(matches!(house.create("ns.gcp.a", "west").await, Err(OrchestratorError::UnknownCloud { .. })));
    assert!(matches!(
        house.create("nowhere.azure.a", "west").await,
        Err(OrchestratorError::UnknownNamespace { .. })
    ));
    assert!(matches!(house.create("ns.azure.a", "west network").await, Err(OrchestratorError::Cloud { .. })));
    assert!(matches!(
        house.put("ns.azure.a", both("1.1.1.1")).await,
        Err(OrchestratorError::UnknownResource { .. })
    ));
    assert!(house.orchestrator.jobs().is_empty() && house.is_empty());
}

/// Fifty rules at once between two clouds make one link, with one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_rules_at_once_make_one_link() {
    let house = House::new(&["azure", "gcp"]).await;
    house.create("ns.azure.a", "west").await.unwrap();
    house.create("ns.gcp.b", "east").await.unwrap();
    house.clouds.iter().for_each(|cloud| drop(cloud.take_calls()));
    let adds = (0..50).map(|turn| {
        let (on, peer) = if turn % 2 == 0 { ("ns.azure.a", "ns.gcp.b") } else { ("ns.gcp.b", "ns.azure.a") };
        let direction = if turn % 4 < 2 { Direction::Inbound } else { Direction::Outbound };
        house.put(on, vec![rule(&format!("r{turn}"), direction, peer)])
    });
    for job in join_all(adds).await {
        assert_eq!(job.unwrap().state, JobState::Done);
    }
    assert!(house.reaches("ns.azure.a", "ns.gcp.b") && house.reaches("ns.gcp.b", "ns.azure.a"));
    for cloud in &house.clouds {
        let calls = cloud.take_calls();
        for call in ["create_gateway", "create_connections"] {
            assert_eq!(calls.iter().filter(|made| **made == call).count(), 1, "{call}: {calls:?}");
        }
    }
}

/// Tags that are unknown or empty are refused, and nothing was opened or subscribed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_and_empty_tags_are_refused() {
    let house = House::new(&["azure"]).await;
    house.create("ns.azure.a", "west").await.unwrap();
    house.book.group("empty", &[]);
    for tag in ["nothing", "empty"] {
        let refused = house.put("ns.azure.a", vec![rule("r", Direction::Inbound, tag)]).await;
        assert!(matches!(refused, Err(OrchestratorError::Problem(_))), "{tag}");
    }
    let private = house.put("ns.azure.a", vec![rule("r", Direction::Inbound, "192.168.0.1")]).await;
    assert!(matches!(private, Err(OrchestratorError::Problem(_))));
    assert_eq!(house.book.subscribers("empty"), 0);
    assert!(house.orchestrator.rules(&resource("ns.azure.a")).unwrap().is_empty());
}

/// A change below a tag reaches the lists, exactly, and subscriptions come and go with rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tag_change_updates_exactly_the_lists_that_use_it() {
    let house = House::new(&["azure"]).await;
    for name in ["ns.azure.a", "ns.azure.b"] {
        house.create(name, "west").await.unwrap();
    }
    house.book.group("inner", &["1.1.1.1"]);
    house.book.group("parenttag", &["inner"]);
    house.put("ns.azure.a", vec![rule("r", Direction::Outbound, "parenttag")]).await.unwrap();
    house.put("ns.azure.b", vec![rule("r", Direction::Outbound, "8.8.8.8")]).await.unwrap();
    house.settle().await;
    assert_eq!(house.book.subscribers("parenttag"), 1);
    house.clouds[0].take_calls();
    house.book.group("inner", &["2.2.2.2"]);
    eventually(|| targets(&house, "ns.azure.a") == 2).await;
    assert_eq!(house.clouds[0].take_calls(), ["put_list"]);
    house.book.remove("inner", "1.1.1.1");
    eventually(|| targets(&house, "ns.azure.a") == 1).await;
    assert_eq!(house.clouds[0].take_calls(), ["put_list"], "one call narrows the entry");
    house.book.remove("inner", "2.2.2.2");
    eventually(|| targets(&house, "ns.azure.a") == 0).await;
    assert_eq!(targets(&house, "ns.azure.b"), 1);
    let outcome =
        house.orchestrator.delete_rules(resource("ns.azure.a"), vec!["r".parse().unwrap()], false).await;
    house.finish(outcome.unwrap()).await.unwrap();
    eventually(|| house.book.subscribers("parenttag") == 0).await;
}

/// Rules on a tag hold for who is in it, and for who joins later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_on_a_tag_are_inherited() {
    let house = House::new(&["azure"]).await;
    for name in ["ns.azure.a", "ns.azure.b", "ns.azure.c"] {
        house.create(name, "west").await.unwrap();
    }
    house.book.group("team", &["ns.azure.a", "ns.azure.b"]);
    let rules = both("team");
    let bad = house.orchestrator.put_tag_rules("no-tag".parse().unwrap(), rules.clone(), false).await;
    assert!(matches!(bad, Err(OrchestratorError::UnknownTag { .. })));
    let outcome = house.orchestrator.put_tag_rules("team".parse().unwrap(), rules, false).await.unwrap();
    assert_eq!(house.finish(outcome).await.unwrap().state, JobState::Done);
    assert!(house.reaches("ns.azure.a", "ns.azure.b") && !house.reaches("ns.azure.a", "ns.azure.c"));
    house.book.group("team", &["ns.azure.c"]);
    eventually(|| house.reaches("ns.azure.a", "ns.azure.c") && house.reaches("ns.azure.c", "ns.azure.b"))
        .await;
    house.book.remove("team", "ns.azure.a");
    eventually(|| !house.reaches("ns.azure.a", "ns.azure.b")).await;
}

/// Keys of tunnels are random and long, and one link's is not another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_link_has_a_random_key_of_its_own() {
    let house = House::new(&["azure", "gcp", "ibm"]).await;
    for (name, region) in [("ns.azure.a", "r"), ("ns.gcp.b", "r"), ("ns.ibm.c", "r")] {
        house.create(name, region).await.unwrap();
    }
    house.join("ns.azure.a", "ns.gcp.b").await;
    house.join("ns.azure.a", "ns.ibm.c").await;
    let state = house.orchestrator.state.lock();
    let keys: std::collections::BTreeSet<_> =
        state.inventory.links.values().map(|link| link.shared_key.expose().to_owned()).collect();
    assert_eq!(keys.len(), 2);
    assert!(
        keys.iter().all(|key| key.len() >= 32 && key.chars().all(|letter| letter.is_ascii_alphanumeric()))
    );
}

/// A dry run says what would be done and does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_changes_nothing() {
    let house = House::new(&["azure", "gcp"]).await;
    house.create("ns.azure.a", "west").await.unwrap();
    house.create("ns.gcp.b", "east").await.unwrap();
    house.clouds.iter().for_each(|cloud| drop(cloud.take_calls()));
    // Rules of one end are reason enough for a link if they say so.
    let rules = both("ns.gcp.b").into_iter().map(|rule| rule.building(true)).collect();
    let outcome = house.orchestrator.put_rules(resource("ns.azure.a"), rules, true).await.unwrap();
    let JobOrPlan::Plan(plan) = outcome else { panic!("a plan") };
    assert!(plan.to_string().contains("link ns.azure and ns.gcp"), "{plan}");
    assert!(house.orchestrator.rules(&resource("ns.azure.a")).unwrap().is_empty());
    assert!(house.clouds.iter().all(|cloud| cloud.take_calls().is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_cancelled_takes_back_what_it_wanted() {
    let house = House::new(&["azure"]).await;
    let slow = cloud_api::Faults { hang: 1000, ..Default::default() };
    house.clouds[0].set_faults(slow);
    let outcome =
        house.orchestrator.create_resource(resource("ns.azure.a"), "west".to_owned(), false, false).await;
    let id = outcome.unwrap().job().unwrap().id;
    let job = house.orchestrator.cancel(&id).await.unwrap();
    assert_eq!(job.state, JobState::Cancelled);
    assert!(matches!(house.orchestrator.cancel(&id).await, Err(OrchestratorError::JobEnded { .. })));
    house.clouds[0].set_faults(cloud_api::Faults::default());
    house.settle().await;
    assert!(house.is_empty());
}

/// ConnectClouds, asked by many at once for the same pair, is one link, which stays until it is let go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_a_pair_many_times_is_one_link() {
    let house = Arc::new(House::new(&["azure", "gcp"]).await);
    let link = model::LinkName::new("ns.azure".parse().unwrap(), "ns.gcp".parse().unwrap()).unwrap();
    let asks = join_all((0..16).map(|_| {
        let (house, link) = (Arc::clone(&house), link.clone());
        async move {
            let outcome = house.orchestrator.connect(link, false).await.unwrap();
            house.finish(outcome).await.unwrap()
        }
    }));
    assert!(asks.await.iter().all(|job| job.state == JobState::Done));
    let calls = house.clouds[0].take_calls();
    assert_eq!(calls.iter().filter(|call| **call == "create_connections").count(), 1, "{calls:?}");
    assert_eq!(house.orchestrator.links().await.len(), 1);
    let outcome = house.orchestrator.disconnect(link, false).await.unwrap();
    house.finish(outcome).await.unwrap();
    house.settle().await;
    assert!(house.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_told_and_mended() {
    let house = House::new(&["azure", "gcp"]).await;
    for (name, region) in [("ns.azure.a", "r1"), ("ns.azure.c", "r2"), ("ns.gcp.b", "r")] {
        house.create(name, region).await.unwrap();
    }
    house.join("ns.azure.a", "ns.gcp.b").await;
    house.join("ns.azure.a", "ns.azure.c").await;
    assert_eq!(house.orchestrator.check().await.unwrap(), []);
    let mut drifted = 0;
    for seed in 0..24 {
        if house.clouds[0].drift(seed).is_none() {
            continue;
        }
        drifted += 1;
        assert!(!house.orchestrator.fix().await.unwrap().is_empty());
        house.settle().await;
        assert_eq!(house.orchestrator.check().await.unwrap(), [], "seed {seed}");
    }
    assert!(drifted > 8);
    assert!(house.reaches("ns.azure.a", "ns.gcp.b") && house.reaches("ns.azure.c", "ns.azure.a"));
    assert!(!house.reaches("ns.azure.c", "ns.gcp.b"));
}

fn targets(house: &House, name: &str) -> usize {
    let (_, list) = house.clouds[0].truth(&resource(name)).unwrap();
    list.iter().map(|entry| entry.targets().len()).sum()
}

async fn eventually(holds: impl Fn() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("it did not come true");
}

/// Requests that come one after the other while steps are on their way to the store: no two networks get one space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spaces_are_chosen_once_however_close_requests_come() {
    let house = House::new(&["azure"]).await;
    let regions: Vec<String> = (0..24).rev().map(|number| format!("r{number:02}")).collect();
    let creates = regions.iter().enumerate().map(|(number, region)| {
        let house = &house;
        async move {
            tokio::time::sleep(std::time::Duration::from_millis(number as u64)).await;
            house.create(&format!("ns.azure.vm-{region}"), region).await.unwrap();
        }
    });
    futures::future::join_all(creates).await;
    let at = cloud_api::At { site: "ns.azure".parse().unwrap(), deployment: "projects/ns.azure".to_owned() };
    let listed = cloud_api::Cloud::list(&*house.clouds[0], &at).await.unwrap().networks;
    let spaces: std::collections::BTreeSet<_> = listed.iter().map(|(_, space)| *space).collect();
    assert_eq!((listed.len(), spaces.len()), (24, 24));
}
