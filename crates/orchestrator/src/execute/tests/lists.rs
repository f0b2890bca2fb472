//! Whose entry is whose: lists are put whole, and what others put there is theirs until `fix` takes it in. And plugins that
//! say what they cannot do are not asked for it.

use std::{collections::BTreeSet, sync::Arc};

use cloud_api::{At, CloudErrorKind, FakeCloud, Faults, prelude::*};
use model::{CloudTraits, Direction, EntryName, PermitEntry, Ports, Protocol, Traffic};

use super::house::{House, both, resource, rule};
use crate::execute::{CloudState, JobState, OrchestratorError};

fn at(site: &str) -> At {
    At { site: site.parse().unwrap(), deployment: format!("projects/{site}") }
}

fn theirs(port: u16) -> PermitEntry {
    let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(port)).unwrap();
    let anybody = ["0.0.0.0/0".parse().unwrap()].into();
    PermitEntry::new(EntryName::reported("theirs"), traffic, anybody, BTreeSet::new()).unwrap()
}

fn names(cloud: &FakeCloud, name: &str) -> Vec<String> {
    cloud.truth(&resource(name)).unwrap().1.iter().map(|entry| entry.name.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_put_into_a_list_stays_until_fix_and_what_they_took_comes_back() {
    let house = House::new(&["azure"]).await;
    let (cloud, name) = (&house.clouds[0], "ns.azure.a");
    house.create(name, "west").await.unwrap();
    let out = |name: &str, peer: &str| rule(name, Direction::Outbound, peer);
    house.put(name, vec![out("a", "1.1.1.1"), out("b", "2.2.2.2")]).await.unwrap();
    let (state, list) = cloud.truth(&resource(name)).unwrap();
    let taken = [list[0].clone()];
    cloud.put_list(&at("ns.azure"), &state.uri, &taken, &[theirs(22)]).await.unwrap();
    assert_eq!(names(cloud, name), ["b", "theirs"]);

    // Any change of the list: ours are there again, theirs is left alone.
    house.put(name, vec![out("c", "3.3.3.3")]).await.unwrap();
    let gone = house.orchestrator.delete_rules(resource(name), vec!["b".parse().unwrap()], false).await;
    house.finish(gone.unwrap()).await.unwrap();
    assert_eq!(names(cloud, name), ["a", "c", "theirs"]);
    let drifts = house.orchestrator.check().await.unwrap();
    assert!(drifts.len() == 1 && drifts[0].what.contains("not asked for theirs"), "{drifts:?}");
    assert_eq!(names(cloud, name), ["a", "c", "theirs"], "a look changes nothing");
    house.orchestrator.fix().await.unwrap();
    house.settle().await;
    assert_eq!(names(cloud, name), ["a", "c"]);
    assert_eq!(house.orchestrator.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_cannot_delete_list_or_name_is_not_asked_to() {
    let house = House::new(&[]).await;
    let traits = CloudTraits {
        places_resources: true,
        lists_everything: false,
        deletes: false,
        names_entries: false,
        ..CloudTraits::default()
    };
    let cloud = Arc::new(FakeCloud::playing("far".parse().unwrap(), traits));
    house.orchestrator.add_cloud("far".parse().unwrap(), Arc::clone(&cloud) as _).await.unwrap();
    let name = "ns.far.a";
    house.create(name, "west").await.unwrap();
    house.put(name, vec![rule("a", Direction::Outbound, "1.1.1.1")]).await.unwrap();
    // The cloud calls the entry otherwise, and does not list the resource.
    let (state, list) = cloud.truth(&resource(name)).unwrap();
    let mut renamed = list[0].clone();
    renamed.name = EntryName::reported("fw-0");
    cloud.put_list(&at("ns.far"), &state.uri, &list, &[renamed]).await.unwrap();
    assert_eq!(house.orchestrator.check().await.unwrap(), []);
    cloud.take_calls();
    let refused = house.orchestrator.delete_resource(resource(name), false).await.unwrap_err();
    let OrchestratorError::Cloud { err, .. } = refused else { panic!("{refused}") };
    assert_eq!(err.kind, CloudErrorKind::Unsupported);
    assert_eq!(cloud.take_calls(), Vec::<&str>::new());
    assert_eq!(names(&cloud, name), ["fw-0"], "its rules stay too");
}

fn original(name: &str) -> Arc<FakeCloud> {
    let traits = CloudTraits {
        places_resources: true,
        lists_everything: false,
        deletes: false,
        names_entries: false,
        ..CloudTraits::default()
    };
    Arc::new(FakeCloud::playing(name.parse().unwrap(), traits))
}

/// A plugin that cannot delete is not asked to take back what it could not make; the name is free again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_create_leaves_nothing_where_nothing_can_be_deleted() {
    let house = House::new(&[]).await;
    let cloud = original("far");
    house.orchestrator.add_cloud("far".parse().unwrap(), Arc::clone(&cloud) as _).await.unwrap();
    let asked = house.orchestrator.create_resource(resource("ns.far.a"), "west".to_owned(), false, false);
    let id = asked.await.unwrap().job().unwrap().id;
    cloud.set_faults(Faults { before: 1000, ..Faults::default() });
    house.orchestrator.cancel(&id).await.unwrap();
    house.settle().await;
    assert!(!cloud.take_calls().contains(&"delete_resource"));
    assert!(house.orchestrator.resources().is_empty(), "{:?}", house.orchestrator.resources());
    assert!(house.orchestrator.used_spaces(None).unwrap().values().all(Vec::is_empty));
    cloud.set_faults(Faults::default());
    assert_eq!(house.create("ns.far.a", "west").await.unwrap().state, JobState::Done);
}

/// A link stays where it cannot be taken down, and nothing waits for its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_cannot_be_taken_down_stays_ready() {
    let house = House::new(&["azure"]).await;
    let cloud = original("far");
    house.orchestrator.add_cloud("far".parse().unwrap(), Arc::clone(&cloud) as _).await.unwrap();
    house.create("ns.azure.a", "west").await.unwrap();
    house.create("ns.far.b", "east").await.unwrap();
    house.join("ns.azure.a", "ns.far.b").await;
    for (name, peer) in [("ns.azure.a", "ns.far.b"), ("ns.far.b", "ns.azure.a")] {
        let names = both(peer).into_iter().map(|rule| rule.name).collect();
        let gone = house.orchestrator.delete_rules(resource(name), names, false).await.unwrap();
        assert_eq!(house.finish(gone).await.unwrap().state, JobState::Done);
    }
    house.settle().await;
    let links = house.orchestrator.links().await;
    assert_eq!(links.iter().map(|link| link.state).collect::<Vec<_>>(), ["ready"]);
    assert_eq!(house.orchestrator.troubles(), []);
}

/// One cloud that does not answer does not hide what is to be said of the others, and it is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_tells_of_the_cloud_that_does_not_answer_and_looks_at_the_others() {
    let house = House::new(&["azure", "gcp"]).await;
    house.create("ns.azure.a", "west").await.unwrap();
    house.create("ns.gcp.b", "east").await.unwrap();
    house.clouds[0].set_faults(Faults { before: 1000, ..Faults::default() });
    house.clouds[1].delete_resource(&at("ns.gcp"), &"b".parse().unwrap()).await.unwrap();
    let drifts = house.orchestrator.check().await.unwrap();
    let told = |object: &str| drifts.iter().any(|drift| drift.object == object);
    assert!(told("cloud/azure") && told("resource/ns.gcp.b"), "{drifts:?}");
    let view = house.orchestrator.cloud_view(&"azure".parse().unwrap()).unwrap();
    assert_eq!((view.state, view.message.is_empty()), (CloudState::Failing, false));
    house.clouds[0].set_faults(Faults::default());
    house.orchestrator.check().await.unwrap();
    let view = house.orchestrator.cloud_view(&"azure".parse().unwrap()).unwrap();
    assert_eq!(view.state, CloudState::Ready);
}

/// A tag that goes away under a rule is a silent outage, unless somebody says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tag_in_use_that_goes_away_is_told() {
    let house = House::new(&["azure"]).await;
    house.create("ns.azure.a", "west").await.unwrap();
    house.book.group("peers", &["8.8.8.8"]);
    house.put("ns.azure.a", vec![rule("r", Direction::Outbound, "peers")]).await.unwrap();
    house.book.request(&tags::Request::DeleteTag { tag: "peers".parse().unwrap() }).unwrap();
    let mut message = String::new();
    for _ in 0..400 {
        message = house.orchestrator.resource(&resource("ns.azure.a")).unwrap().message;
        if !message.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(message.contains("rule r") && message.contains("no tag peers"), "{message}");
    let unmet = house.orchestrator.unmet();
    assert!(unmet.iter().any(|drift| drift.what.contains("no tag peers")), "{unmet:?}");
}
