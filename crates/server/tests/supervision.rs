//! No task of a controller is gone without a word: each in turn is killed, and the controller ends with the reason.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{collections::BTreeSet, time::Duration};

use server::{CloudConfig, PluginConfig, StorageConfig};
use testkit_controllers::controller::Fixture;

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

/// A controller with everything that it can have.
async fn whole() -> Fixture {
    Fixture::start_with(|config| {
        config.storage = Some(StorageConfig::nbd("127.0.0.1:0".parse().unwrap()));
        config.clouds = vec![CloudConfig { name: "fake".parse().unwrap(), plugin: PluginConfig::Fake {} }];
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_ends_with_the_reason_when_any_of_its_tasks_is_gone() {
    let fixture = whole().await;
    // Who makes a cloud known has done with that, and ends.
    let tasks = fixture.controller.tasks().into_iter().filter(|task| *task != "clouds: fake");
    let tasks: BTreeSet<_> = tasks.collect();
    fixture.stop().await;
    for driver in [
        "tags: follower",
        "tags: writer",
        "policy: engine",
        "enforcer",
        "orchestrator",
        "storage: reconciler",
    ] {
        assert!(tasks.contains(driver), "{driver} is not among {tasks:?}");
    }
    for task in tasks {
        let fixture = whole().await;
        assert!(fixture.controller.kill(&task), "{task} does not run");
        let fault = tokio::time::timeout(SOON, fixture.controller.faulted()).await;
        assert_eq!(fault.unwrap_or_else(|_| panic!("{task} is not missed")).task, task);
        let ended = tokio::time::timeout(SOON, fixture.controller.stop()).await.expect("it stops");
        assert!(ended.unwrap_err().to_string().starts_with(&format!("{task} panicked: ")));
    }
}
