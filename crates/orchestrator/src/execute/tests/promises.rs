//! What was promised or asked for, and is taken back.

use cloud_api::{At, Faults, prelude::*};
use model::Direction;

use super::house::{House, resource, rule};
use crate::execute::JobState;

/// All clouds are asked, and nothing is held: whoever asks twice gets the same twice, however often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unused_space_is_in_no_record_and_in_no_cloud() {
    let house = House::new(&["azure", "gcp"]).await;
    let unused = async || house.orchestrator.find_unused_space(None).await;
    for _ in 0..300 {
        assert_eq!(unused().await.unwrap(), "10.0.0.0/16".parse().unwrap());
    }
    // A plugin has a network that no record tells of, only the cloud.
    let at = At { site: "ns.gcp".parse().unwrap(), deployment: String::new() };
    house.clouds[1].ensure_network(&at, &"r".parse().unwrap(), "10.0.0.0/16".parse().unwrap()).await.unwrap();
    assert_eq!(unused().await.unwrap(), "10.1.0.0/16".parse().unwrap());
    let sizes = house.orchestrator.find_unused_spaces(&[200, 1000]).await.unwrap();
    assert!(
        sizes.iter().all(|space| space.network() >= "10.1.0.0".parse::<std::net::Ipv4Addr>().unwrap()),
        "{sizes:?}"
    );
    // A cloud that does not answer may use anything, and so may one that has not answered yet.
    house.clouds[0].set_faults(Faults { before: 1000, ..Faults::default() });
    assert!(unused().await.is_err());
    house.clouds[0].set_faults(Faults::default());
    unused().await.unwrap();
    house.orchestrator.expect_cloud("ibm".parse().unwrap(), "remote".to_owned());
    house.orchestrator.cloud_waits(&"ibm".parse().unwrap(), "connection refused".to_owned());
    let refused = unused().await.unwrap_err().to_string();
    assert!(refused.contains("ibm") && refused.contains("connection refused"), "{refused}");
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
