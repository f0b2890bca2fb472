//! Plugins that behave badly: late, twice, dead in the midst of a call, or telling what is not so.

use std::{sync::Arc, time::Duration};

use cloud_api::reaches;

use super::{
    house::{House, PING, both, options, resource},
    meddler::{Meddler, Meddling},
};
use crate::execute::{JobState, Options, OrchestratorError};

/// A house with one good cloud and one that a test meddles with.
async fn house() -> (House, Arc<Meddler>) {
    let options = Options { call_timeout: Duration::from_millis(100), ..options() };
    let house = House::with_options(&["azure"], options).await;
    let bad = Meddler::new("gcp");
    house.orchestrator.add_cloud("gcp".parse().unwrap(), Arc::clone(&bad) as _).await.unwrap();
    (house, bad)
}

fn passes(house: &House, bad: &Meddler, from: &str, to: &str) -> bool {
    reaches(&[&house.clouds[0], bad.cloud()], &resource(from), &resource(to), &PING)
}

/// The whole story while a plugin meddles: it ends as if nothing had happened, and nothing is left.
async fn story(meddling: Meddling) {
    let (house, bad) = house().await;
    house.create("ns.azure.a", "west").await.unwrap();
    bad.set(meddling);
    let outcome = house.orchestrator.create_resource(resource("ns.gcp.b"), "east".to_owned(), false, false);
    let id = outcome.await.unwrap().job().unwrap().id;
    tokio::time::sleep(Duration::from_millis(300)).await;
    if *bad.meddling.lock() != Meddling::Twice {
        bad.set(Meddling::Nothing);
    }
    let done = house.orchestrator.wait(&id).await.unwrap();
    assert_eq!((done.state, done.steps_left), (JobState::Done, 0));
    house.join("ns.azure.a", "ns.gcp.b").await;
    assert!(passes(&house, &bad, "ns.azure.a", "ns.gcp.b") && passes(&house, &bad, "ns.gcp.b", "ns.azure.a"));
    // What comes late has come by now.
    tokio::time::sleep(Duration::from_millis(300)).await;
    house.orchestrator.fix().await.unwrap();
    house.settle().await;
    assert_eq!(house.orchestrator.check().await.unwrap(), []);
    for name in ["ns.azure.a", "ns.gcp.b"] {
        house.delete(name).await;
    }
    house.settle().await;
    assert!(house.is_empty() && bad.cloud().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_does_everything_twice_is_no_trouble() {
    story(Meddling::Twice).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_answers_late_is_asked_again() {
    story(Meddling::Late(Duration::from_millis(200))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_dies_in_the_midst_of_a_call_is_asked_again() {
    story(Meddling::Dies).await;
}

/// An address that is somebody else's, or in no network of the resource, would open the way to others by its tag.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_cannot_be_is_not_believed() {
    let (house, bad) = house().await;
    house.create("ns.azure.a", "west").await.unwrap();
    house.create("ns.azure.c", "west").await.unwrap();
    let (a, _) = house.clouds[0].truth(&resource("ns.azure.a")).unwrap();
    for address in [a.address, "8.8.8.8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()] {
        bad.set(Meddling::Address(address));
        let job = house.create("ns.gcp.b", "east").await.unwrap();
        assert_eq!(job.state, JobState::Failed, "{address}");
        assert!(
            job.message.contains("ns.gcp.b") && job.message.contains(&address.to_string()),
            "{}",
            job.message
        );
        house.settle().await;
        assert!(bad.cloud().is_empty() && house.book.subscribers("ns.gcp.b") == 0);
    }
    let refused = house.put("ns.azure.c", both("ns.gcp.b")).await;
    assert!(refused.is_err(), "no tag stands for what was not believed");
}

/// A cluster has a block of addresses and a network of its own; rules name it as they name a machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_a_resource_with_a_block_of_addresses() {
    let house = House::new(&["azure", "gcp"]).await;
    let [vm, near, far] = ["ns.azure.vm", "ns.azure.k", "ns.gcp.k"];
    house.create(vm, "west").await.unwrap();
    house.create(near, "west cluster").await.unwrap();
    house.create(far, "east cluster").await.unwrap();
    let views = [vm, near, far].map(|name| house.orchestrator.resource(&resource(name)).unwrap());
    let at: Vec<_> = views.iter().map(|view| (view.region.as_str(), view.ip.as_deref().unwrap())).collect();
    assert_eq!(at, [("west", "10.0.0.1"), ("west-k8s-k", "10.1.0.0/16"), ("east-k8s-k", "10.2.0.0/16")]);
    for (a, b) in [(vm, near), (near, far)] {
        assert!(!house.reaches(a, b), "{a} and {b}");
        house.join(a, b).await;
        assert!(house.reaches(a, b) && house.reaches(b, a), "{a} and {b}");
    }
    assert!(!house.reaches(vm, far));
    let list = house.orchestrator.resource(&resource(vm)).unwrap().permit_list;
    assert!(list.iter().all(|entry| *entry.targets() == ["10.1.0.0/16".parse().unwrap()].into()), "{list:?}");
    for name in [near, far, vm] {
        house.delete(name).await;
    }
    house.settle().await;
    assert!(house.is_empty(), "their networks went with them");
}

/// A plugin that forgets what it has is told again; nothing is opened, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_lies_about_its_inventory_is_told_again() {
    let (house, bad) = house().await;
    house.create("ns.azure.a", "west").await.unwrap();
    house.create("ns.gcp.b", "east").await.unwrap();
    house.create("ns.gcp.c", "east").await.unwrap();
    house.join("ns.azure.a", "ns.gcp.b").await;
    bad.set(Meddling::Empty);
    assert!(house.orchestrator.fix().await.unwrap().iter().all(|drift| drift.object.contains("gcp")));
    house.settle().await;
    bad.set(Meddling::Nothing);
    house.orchestrator.fix().await.unwrap();
    house.settle().await;
    assert_eq!(house.orchestrator.check().await.unwrap(), []);
    assert!(passes(&house, &bad, "ns.azure.a", "ns.gcp.b"));
    assert!(!passes(&house, &bad, "ns.azure.a", "ns.gcp.c") && !passes(&house, &bad, "ns.gcp.b", "ns.gcp.c"));
}

/// Every call says where in the cloud it acts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_carry_the_deployment_of_their_site() {
    let (house, bad) = house().await;
    house.create("ns.gcp.b", "east").await.unwrap();
    house.create("other.gcp.b", "east").await.unwrap();
    let seen = bad.seen.lock();
    assert!(seen.len() >= 4 && seen.iter().all(|at| at.deployment == format!("projects/{}", at.site)));
}

/// After a start no plugin has answered yet. Nobody loses what they were promised, and nothing is called done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_wait_for_plugins_that_are_not_there() {
    let mut house = House::new(&["azure", "gcp"]).await;
    for (name, region) in [("ns.azure.a", "west"), ("ns.gcp.b", "east"), ("ns.gcp.gone", "east")] {
        house.create(name, region).await.unwrap();
    }
    let clouds = std::mem::take(&mut house.clouds);
    house.restart(house.store.clone(), |cloud| cloud).await;
    let mut jobs = Vec::new();
    for (one, other) in [("ns.azure.a", "ns.gcp.b"), ("ns.gcp.b", "ns.azure.a")] {
        let asked = house.orchestrator.put_rules(resource(one), both(other), false).await.unwrap();
        jobs.push(asked.job().unwrap().id);
    }
    let asked = house.orchestrator.delete_resource(resource("ns.gcp.gone"), false).await.unwrap();
    jobs.push(asked.job().unwrap().id);
    for (which, cloud) in clouds.iter().enumerate() {
        for id in &jobs {
            let waits = |message: &str| message.contains("the plugin of cloud");
            let mut job = house.orchestrator.job(id).unwrap();
            while !waits(&job.message) && job.state == JobState::Running {
                job = house.orchestrator.change_of(id, &job).await.unwrap();
            }
            assert_eq!(job.state, JobState::Running, "{which} clouds are there: {job:?}");
        }
        house.orchestrator.add_cloud(cloud.name().clone(), Arc::clone(cloud) as _).await.unwrap();
    }
    house.clouds = clouds;
    for id in &jobs {
        assert_eq!(house.orchestrator.wait(id).await.unwrap().state, JobState::Done);
    }
    assert!(house.reaches("ns.azure.a", "ns.gcp.b") && house.reaches("ns.gcp.b", "ns.azure.a"));
    assert_eq!(house.clouds[1].truth(&resource("ns.gcp.gone")), None);
}

/// Two ask for one name while the plugin still looks at the description of the first: who is stored first has the name, and
/// the other's description does not replace his.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_given_once_however_long_the_plugin_ponders() {
    let house = Arc::new(House::new(&["azure"]).await);
    let slow = Meddler::new("gcp");
    house.orchestrator.add_cloud("gcp".parse().unwrap(), Arc::clone(&slow) as _).await.unwrap();
    slow.set(Meddling::Ponders);
    let late = tokio::spawn({
        let house = Arc::clone(&house);
        async move {
            house.orchestrator.create_resource(resource("ns.gcp.a"), "west".to_owned(), false, false).await
        }
    });
    slow.pondering.notified().await;
    slow.set(Meddling::Nothing);
    house.create("ns.gcp.a", "east").await.unwrap();
    slow.go_on.notify_one();
    let refused = late.await.unwrap().unwrap_err();
    assert!(matches!(refused, OrchestratorError::ResourceExists { .. }), "{refused}");
    assert_eq!(house.orchestrator.resource(&resource("ns.gcp.a")).unwrap().region.as_str(), "east");
}
