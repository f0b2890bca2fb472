//! Stored records that this version cannot read: nothing they are about is removed, made again or chosen for others, and
//! everybody is told.

use cloud_api::{At, FakeCloud, Listing, prelude::*};
use model::{PermitEntry, ResourceState};
use store::{Key, Transaction};

use super::house::{House, both, resource, rule};
use crate::execute::{JobState, OrchestratorError};

const SITES: [&str; 2] = ["ns.azure", "ns.gcp"];

/// What the clouds have.
#[derive(Debug, PartialEq)]
struct Clouds {
    listings: Vec<Listing>,
    resources: Vec<Option<(ResourceState, Vec<PermitEntry>)>>,
}

async fn clouds(house: &House) -> Clouds {
    let mut listings = Vec::new();
    for (cloud, site) in house.clouds.iter().zip(SITES) {
        let at = At { site: site.parse().unwrap(), deployment: format!("projects/{site}") };
        listings.push(cloud.list(&at).await.unwrap());
    }
    let truth = |(cloud, name): (&std::sync::Arc<FakeCloud>, &str)| cloud.truth(&resource(name));
    Clouds { listings, resources: house.clouds.iter().zip(["ns.azure.a", "ns.gcp.b"]).map(truth).collect() }
}

/// Two resources in two clouds that reach each other, and one more network that is peered.
async fn house() -> House {
    let house = House::new(&["azure", "gcp", "ibm"]).await;
    for (name, region) in [("ns.azure.a", "west"), ("ns.azure.c", "east"), ("ns.gcp.b", "east")] {
        house.create(name, region).await.unwrap();
    }
    house.join("ns.azure.a", "ns.gcp.b").await;
    house.join("ns.azure.a", "ns.azure.c").await;
    // A way out, and so a NAT.
    let out = rule("out", model::Direction::Outbound, "8.8.8.8");
    house.put("ns.azure.a", vec![out]).await.unwrap();
    house.settle().await;
    house
}

/// Writes as another version would, while nobody runs; what was there comes back.
async fn spoil(house: &mut House, key: &Key) -> bytes::Bytes {
    let before = house.store.get(key).await.unwrap().unwrap().value;
    let garbage = Transaction::new().put(key.clone(), r#"{"said":"by another version"}"#);
    house.store.transact(garbage).await.unwrap();
    house.restart(house.store.clone(), |cloud| cloud).await;
    before
}

async fn mend(house: &mut House, key: &Key, before: bytes::Bytes) {
    house.store.transact(Transaction::new().put(key.clone(), before)).await.unwrap();
    house.restart(house.store.clone(), |cloud| cloud).await;
    house.settle().await;
    assert_eq!(house.orchestrator.unreadable(), [], "{key}");
    assert_eq!(house.orchestrator.check().await.unwrap(), [], "{key}");
}

async fn keys(house: &House, below: &str) -> Vec<Key> {
    let entries = house.store.list(&below.parse().unwrap()).await.unwrap().entries;
    entries.into_iter().map(|entry| entry.key).collect()
}

/// Lets the orchestrator do what it would do.
async fn pass_time(house: &House) {
    for _ in 0..3 {
        house.settle().await;
        house.orchestrator.fix().await.unwrap();
    }
    house.settle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_unreadable_record_is_about_stays_as_it_is_and_is_told() {
    let mut house = house().await;
    let before = clouds(&house).await;
    let mut records = keys(&house, "orchestrator/made/").await;
    records.extend(keys(&house, "orchestrator/want/resource/").await);
    assert!(records.len() > 12, "of every kind: {records:?}");
    for key in records {
        let value = spoil(&mut house, &key).await;
        let told = house.orchestrator.unreadable();
        assert_eq!(told.iter().map(|record| &*record.record).collect::<Vec<_>>(), [key.as_str()]);
        pass_time(&house).await;
        assert_eq!(clouds(&house).await, before, "{key}");
        let drifts = house.orchestrator.check().await.unwrap();
        assert!(drifts.iter().all(|drift| drift.object == key.as_str() && !drift.mendable), "{drifts:?}");
        assert_eq!(drifts.len(), 1, "{key}");
        mend(&mut house, &key, value).await;
    }
}

/// A rule that cannot be read permits nothing, and can be replaced or deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_rule_permits_nothing() {
    let mut house = house().await;
    let key: Key = "orchestrator/want/rule/ns.azure.a/in-ns-gcp-b".parse().unwrap();
    spoil(&mut house, &key).await;
    house.settle().await;
    assert!(!house.reaches("ns.gcp.b", "ns.azure.a") && house.reaches("ns.azure.a", "ns.gcp.b"));
    assert_eq!(house.orchestrator.unreadable()[0].record, key.as_str());
    // Replaced.
    house.put("ns.azure.a", both("ns.gcp.b")).await.unwrap();
    assert!(house.reaches("ns.gcp.b", "ns.azure.a"));
    assert_eq!(house.orchestrator.unreadable(), []);
    // Deleted.
    spoil(&mut house, &key).await;
    let names = vec!["in-ns-gcp-b".parse().unwrap()];
    let deleted = house.orchestrator.delete_rules(resource("ns.azure.a"), names, false).await.unwrap();
    house.finish(deleted).await.unwrap();
    assert_eq!(house.orchestrator.unreadable(), []);
    assert_eq!(house.store.get(&key).await.unwrap(), None);
    // And gone with its resource.
    let key: Key = "orchestrator/want/rule/ns.azure.c/in-ns-azure-a".parse().unwrap();
    spoil(&mut house, &key).await;
    house.delete("ns.azure.c").await;
    assert_eq!((house.store.get(&key).await.unwrap(), house.orchestrator.unreadable()), (None, vec![]));
}

/// Spaces, numbers and addresses that a record may hold are given to nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_unreadable_record_may_hold_is_not_chosen_again() {
    let mut house = house().await;
    let names = |text: &str, key: &Key| assert!(text.contains(key.as_str()), "{text}");
    // A space.
    let key: Key = "orchestrator/made/network/ns.azure.west".parse().unwrap();
    let value = spoil(&mut house, &key).await;
    let failed = house.create("ns.ibm.d", "south").await.unwrap();
    assert_eq!(failed.state, JobState::Failed);
    names(&failed.message, &key);
    let space = house.orchestrator.find_unused_space(None).await.unwrap_err();
    names(&space.to_string(), &key);
    names(&house.orchestrator.used_spaces(None).unwrap_err().to_string(), &key);
    assert!(house.clouds[2].is_empty());
    mend(&mut house, &key, value).await;
    // An AS number, and the addresses of tunnels.
    assert_eq!(house.create("ns.ibm.d", "south").await.unwrap().state, JobState::Done);
    let there = house.clouds[2].take_calls().len();
    assert!(there > 0);
    for key in ["orchestrator/made/gateway/ns.gcp", "orchestrator/made/link/ns.azure+ns.gcp"] {
        let key: Key = key.parse().unwrap();
        let value = spoil(&mut house, &key).await;
        let rules = both("ns.azure.a").into_iter().map(|rule| rule.building(true)).collect();
        let failed = house.put("ns.ibm.d", rules).await.unwrap();
        assert_eq!(failed.state, JobState::Failed, "{key}");
        names(&failed.message, &key);
        let calls = house.clouds[2].take_calls();
        assert!(
            !calls.iter().any(|call| call.contains("gateway") || call.contains("connection")),
            "{calls:?}"
        );
        mend(&mut house, &key, value).await;
    }
    // A name.
    for key in ["orchestrator/want/resource/ns.azure.c", "orchestrator/made/resource/ns.azure.c"] {
        let key: Key = key.parse().unwrap();
        let value = spoil(&mut house, &key).await;
        let taken = house.create("ns.azure.c", "east").await.unwrap_err();
        match key.as_str().contains("want") {
            true => assert!(matches!(taken, OrchestratorError::Unreadable { .. }), "{taken}"),
            false => assert!(matches!(taken, OrchestratorError::ResourceExists { .. }), "{taken}"),
        }
        assert_eq!(house.orchestrator.resource(&resource("ns.azure.c")).unwrap().state, "unreadable");
        mend(&mut house, &key, value).await;
    }
}

/// A resource whose record cannot be read can be asked to go; that it did not is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_with_an_unreadable_record_is_not_said_to_be_deleted() {
    let mut house = house().await;
    let key: Key = "orchestrator/made/resource/ns.azure.c".parse().unwrap();
    let value = spoil(&mut house, &key).await;
    let job = house.delete("ns.azure.c").await;
    assert_eq!(job.state, JobState::Failed, "{}", job.message);
    assert!(job.message.contains(key.as_str()), "{}", job.message);
    assert!(house.clouds[0].truth(&resource("ns.azure.c")).is_some());
    // Readable again, it is deleted as was asked.
    mend(&mut house, &key, value).await;
    assert!(house.clouds[0].truth(&resource("ns.azure.c")).is_none());
}
