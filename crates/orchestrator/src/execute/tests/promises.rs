//! What was promised or asked for, and is taken back.

use std::time::Duration;

use cloud_api::{At, Faults, prelude::*};
use model::Direction;

use super::house::{House, options, resource, rule};
use crate::execute::{JobState, Options};

fn impatient() -> Options {
    Options { promise: Duration::ZERO, ..options() }
}

/// A promise that nobody made use of ends, also after a restart; one that a cloud has a network of does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promised_space_is_free_again_if_nobody_uses_it() {
    let mut house = House::with_options(&["azure", "gcp"], impatient()).await;
    let namespace = "ns".parse().unwrap();
    let used = house.orchestrator.find_unused_space(&namespace).await.unwrap();
    let unused = house.orchestrator.find_unused_space(&namespace).await.unwrap();
    // A plugin made a network of the first by itself: no record tells of it, only the cloud.
    let at = At { site: "ns.gcp".parse().unwrap(), deployment: String::new() };
    house.clouds[1].ensure_network(&at, &"r".parse().unwrap(), used).await.unwrap();
    house.restart(house.store.clone(), |cloud| cloud).await;
    house.orchestrator.expire_promises().await.unwrap();
    let reserved = |house: &House| {
        house.orchestrator.state.lock().inventory.reserved.keys().copied().collect::<Vec<_>>()
    };
    assert_eq!(reserved(&house), [used]);
    assert_eq!(house.orchestrator.find_unused_space(&namespace).await.unwrap(), unused, "it is free again");
    // A cloud that does not answer may use anything.
    house.clouds[0].set_faults(Faults { before: 1000, ..Faults::default() });
    house.orchestrator.expire_promises().await.unwrap();
    assert_eq!(reserved(&house).len(), 2);
    house.clouds[0].set_faults(Faults::default());
    house.orchestrator.expire_promises().await.unwrap();
    assert_eq!(reserved(&house), [used]);
    // And the promise is not broken as long as it is young.
    let young = House::new(&["azure"]).await;
    young.orchestrator.find_unused_space(&namespace).await.unwrap();
    young.orchestrator.expire_promises().await.unwrap();
    assert_eq!(reserved(&young).len(), 1);
}

/// A job that is cancelled takes back its own wish, and not what somebody wished since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_does_not_take_back_what_came_after_it() {
    let house = House::new(&["azure"]).await;
    house.create("ns.azure.a", "west").await.unwrap();
    house.clouds[0].set_faults(Faults { hang: 1000, ..Faults::default() });
    let mut ids = Vec::new();
    for peer in ["1.1.1.1", "2.2.2.2", "3.3.3.3"] {
        let rules = vec![rule("r", Direction::Outbound, peer)];
        let outcome = house.orchestrator.put_rules(resource("ns.azure.a"), rules, false).await.unwrap();
        ids.push(outcome.job().unwrap().id);
    }
    let peers = || {
        let rules = house.orchestrator.rules(&resource("ns.azure.a")).unwrap();
        rules.iter().flat_map(|rule| rule.peers.iter().map(ToString::to_string)).collect::<Vec<_>>()
    };
    assert_eq!(house.orchestrator.cancel(&ids[0]).await.unwrap().state, JobState::Cancelled);
    assert_eq!(peers(), ["3.3.3.3"], "the last word stands");
    house.orchestrator.cancel(&ids[2]).await.unwrap();
    assert!(peers().is_empty(), "what the others wanted was never granted: {:?}", peers());
}

/// A resource that is taken back takes its rules with it: the next one of its name begins closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_do_not_outlive_a_resource_whose_job_is_cancelled() {
    let house = House::new(&["azure"]).await;
    house.clouds[0].set_faults(Faults { hang: 1000, ..Faults::default() });
    let name = || resource("ns.azure.a");
    let outcome = house.orchestrator.create_resource(name(), "west".to_owned(), false, false).await.unwrap();
    let rules = vec![rule("r", Direction::Outbound, "8.8.8.8")];
    house.orchestrator.put_rules(name(), rules, false).await.unwrap();
    house.orchestrator.cancel(&outcome.job().unwrap().id).await.unwrap();
    house.clouds[0].set_faults(Faults::default());
    house.settle().await;
    house.create("ns.azure.a", "west").await.unwrap();
    assert!(house.orchestrator.rules(&name()).unwrap().is_empty());
}
