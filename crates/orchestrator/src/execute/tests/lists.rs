//! Whose entry is whose: lists are put whole, and what others put there is theirs until `fix` takes it in. And plugins that
//! say what they cannot do are not asked for it.

use std::{collections::BTreeSet, sync::Arc};

use cloud_api::{At, CloudErrorKind, FakeCloud, prelude::*};
use model::{CloudTraits, Direction, EntryName, PermitEntry, Ports, Protocol, Traffic};

use super::house::{House, resource, rule};
use crate::execute::OrchestratorError;

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
