//! Several orchestrators on one store.

use std::{sync::Arc, time::Duration};

use cloud_api::Faults;
use store::{Key, Store, Transaction};
use tokio::time::Instant;

use super::{
    house::{House, Namespaces, both, options, resource},
    memory::{Memory, MemoryStore},
};
use crate::execute::{Fence, Orchestrator, OrchestratorError, Term};

fn key() -> Key {
    "leader/orchestrator".parse().unwrap()
}

/// Somebody is elected for an hour: the key is written anew.
async fn elect(house: &House) -> Term {
    elect_for(house, Duration::from_secs(3600)).await
}

async fn elect_for(house: &House, time: Duration) -> Term {
    let put = Transaction::new().put(key(), "somebody");
    let fence = Fence { key: key(), revision: house.store.transact(put).await.unwrap().revision };
    Term::new(fence, Instant::now() + time)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_follows_and_a_leader_of_the_past_cannot_write() {
    let house = House::new(&["azure"]).await;
    let first = Arc::clone(&house.orchestrator);
    first.lead(elect(&house).await).await.unwrap();
    let book = Arc::clone(&house.book) as _;
    let second =
        Orchestrator::load(house.store.clone(), book, Arc::new(Namespaces), options()).await.unwrap();
    second.follow(Some("the first".to_owned()));
    house.create("ns.azure.a", "west").await.unwrap();
    let seen = async {
        while !second.resource(&resource("ns.azure.a")).is_ok_and(|it| it.state == "ready") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), seen).await.expect("the follower sees what was made");
    let refused = second.delete_resource(resource("ns.azure.a"), false).await.unwrap_err();
    assert!(matches!(&refused, OrchestratorError::NotLeading { leader: Some(name) } if name == "the first"));

    second.lead(elect(&house).await).await.unwrap();
    let late = first.put_rules(resource("ns.azure.a"), both("8.8.8.8"), false).await;
    assert!(matches!(late, Err(OrchestratorError::NotLeading { .. })), "{late:?}");
    assert!(second.rules(&resource("ns.azure.a")).unwrap().is_empty(), "nothing was written by the first");
    second.put_rules(resource("ns.azure.a"), both("8.8.8.8"), false).await.unwrap();
    assert_eq!(second.rules(&resource("ns.azure.a")).unwrap().len(), 2);
    let seen = async {
        while first.rules(&resource("ns.azure.a")).unwrap().len() != 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), seen).await.expect("who led follows now");
}

/// A process that was halted has not heard that its term is over: the store would still take its writes, and the rest of
/// the steps would go to the clouds. Wherever amid them the term ends, no call is made after it.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_term_has_lapsed_makes_no_further_call() {
    let mut cut = 0;
    for time in (0..3000).step_by(60).map(Duration::from_millis) {
        let memory = Arc::new(Memory::new(1));
        let house = House::in_store(Store::new(MemoryStore(memory)), &["azure", "gcp"]).await;
        for (name, region) in [("ns.azure.a", "west"), ("ns.gcp.b", "east")] {
            house.create(name, region).await.unwrap();
        }
        let latency = Duration::from_millis(400);
        house.clouds.iter().for_each(|cloud| cloud.set_faults(Faults { latency, ..Faults::default() }));
        let calls = || house.clouds.iter().map(|cloud| cloud.take_calls().len()).sum::<usize>();
        let term = elect_for(&house, time).await;
        house.orchestrator.lead(term.clone()).await.unwrap();
        // A link is several steps of several calls.
        house.orchestrator.connect("ns.azure+ns.gcp".parse().unwrap(), false).await.unwrap();
        tokio::time::sleep(time).await;
        calls();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(calls(), 0, "a call after {time:?}, when somebody else may lead");
        cut += usize::from(!house.orchestrator.plan().unwrap().is_empty());
        // The lease was renewed after all: it goes on where it was.
        term.extend(Instant::now() + Duration::from_secs(3600));
        house.settle().await;
        assert!(house.orchestrator.links().await.iter().all(|link| link.state == "ready"));
    }
    assert!(cut > 10, "the term ended amid the work {cut} times");
}
