//! Several orchestrators on one store.

use std::{sync::Arc, time::Duration};

use store::{Key, Transaction};
use tokio::time::Instant;

use super::house::{House, Namespaces, both, options, resource};
use crate::execute::{Fence, Orchestrator, OrchestratorError, Term};

fn key() -> Key {
    "leader/orchestrator".parse().unwrap()
}

/// Somebody is elected: the key is written anew.
async fn elect(house: &House) -> Term {
    let put = Transaction::new().put(key(), "somebody");
    let fence = Fence { key: key(), revision: house.store.transact(put).await.unwrap().revision };
    Term::new(fence, Instant::now() + Duration::from_secs(3600))
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
