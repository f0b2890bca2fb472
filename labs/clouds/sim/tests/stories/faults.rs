//! What goes wrong with a real cloud, one thing at a time.

use std::time::Duration;

use cloud_api::{At, Cloud, CloudErrorKind, ResourceSpec};
use cloud_sim::{Fault, Sim};
use model::{Direction, EntryName, PermitEntry, Ports, Protocol, Segment, Traffic};

use super::house::{CLOUDS, House, both, clusters, deployment, description, owned, plugin, services};

fn at(cloud: &str) -> At {
    At { site: format!("ns.{cloud}").parse().unwrap(), deployment: deployment(cloud).to_owned() }
}

async fn make(cloud: &dyn Cloud, kind: &str) -> Result<model::ResourceState, cloud_api::CloudError> {
    make_as(cloud, kind, description(kind, 0)).await
}

async fn make_as(
    cloud: &dyn Cloud,
    kind: &str,
    text: &str,
) -> Result<model::ResourceState, cloud_api::CloudError> {
    let region = cloud.inspect_resource(&at(kind), &"a".parse().unwrap(), text).await?;
    cloud.ensure_network(&at(kind), &region, "10.0.0.0/16".parse().unwrap()).await?;
    let spec = ResourceSpec { name: "a".parse().unwrap(), region, description: text.to_owned() };
    cloud.create_resource(&at(kind), &spec).await
}

/// A machine, and private endpoints and a cluster where a cloud has them.
fn descriptions() -> Vec<(&'static str, &'static str)> {
    let of_cloud = |cloud: &'static str| {
        let all = std::iter::once(description(cloud, 0)).chain(services(cloud).iter().copied());
        let all = all.chain(clusters(cloud).map(|[near, _]| near));
        all.map(move |text| (cloud, text)).collect::<Vec<_>>()
    };
    CLOUDS.into_iter().flat_map(of_cloud).collect()
}

/// Credentials that ended are fetched again once; wrong ones end in an error that passes when somebody mends them.
#[tokio::test]
async fn expired_and_wrong_credentials() {
    for kind in CLOUDS {
        let sim = Sim::start().await.unwrap();
        let cloud = plugin(kind, &sim);
        sim.script("", Fault::Expired, 1);
        cloud.list(&at(kind)).await.unwrap();
        sim.script("", Fault::Expired, 100);
        let err = cloud.list(&at(kind)).await.unwrap_err();
        assert!(err.is_passing(), "{kind}: {err}");
        let tried = sim.take_calls().iter().filter(|call| call.status == 401).count();
        // Once, and once more per region that was asked at the same time.
        assert!(tried <= 7, "{kind}: hammered {tried} times with credentials that do not work");
    }
}

/// A missing permission is named, is not retried by the plugin, and nothing is left when it is granted and all goes.
#[tokio::test]
async fn a_permission_that_is_missing_for_one_call() {
    for (kind, operation) in [
        ("aws", "ec2:RunInstances"),
        ("azure", "Microsoft.Compute/virtualMachines/write"),
        ("gcp", "compute.instances.insert"),
        ("ibm", "is.create_instance"),
    ] {
        let sim = Sim::start().await.unwrap();
        let cloud = plugin(kind, &sim);
        sim.script(operation, Fault::Denied, 1);
        let err = make(&*cloud, kind).await.unwrap_err();
        assert!(err.to_string().contains(operation), "{err}");
        assert_eq!(sim.take_calls().iter().filter(|call| call.operation == operation).count(), 1);
        make(&*cloud, kind).await.unwrap();
        clear(&*cloud, kind).await;
        assert_eq!(sim.left(), Vec::<String>::new(), "{kind}");
    }
}

async fn clear(cloud: &dyn Cloud, kind: &str) {
    clear_as(cloud, kind, description(kind, 0)).await;
}

async fn clear_as(cloud: &dyn Cloud, kind: &str, text: &str) {
    let region = cloud.inspect_resource(&at(kind), &"a".parse().unwrap(), text).await.unwrap();
    cloud.delete_resource(&at(kind), &"a".parse().unwrap()).await.unwrap();
    cloud.delete_network(&at(kind), &region).await.unwrap();
}

/// A quota that is reached half way is said so; what was made goes with the rest.
#[tokio::test]
async fn a_quota_that_is_reached_half_way() {
    for (kind, operation) in [
        ("aws", "ec2:CreateSubnet"),
        ("azure", "Microsoft.Network/virtualNetworks/write"),
        ("gcp", "compute.subnetworks.insert"),
        ("ibm", "is.create_subnet"),
    ] {
        let sim = Sim::start().await.unwrap();
        let cloud = plugin(kind, &sim);
        sim.script(operation, Fault::Quota, 1);
        let err = make(&*cloud, kind).await.unwrap_err();
        assert_eq!(err.kind, CloudErrorKind::Conflict, "{kind}: {err}");
        clear(&*cloud, kind).await;
        assert_eq!(sim.left(), Vec::<String>::new(), "{kind}");
    }
}

/// Every single request of a story may be the one that is answered with HTML, fails, is throttled, or is done without
/// an answer. The call then says so, or gets over it; done again, it is done once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_one_request_may_go_wrong() {
    let told: Vec<_> =
        descriptions().into_iter().map(|(kind, text)| tokio::spawn(any_one_goes_wrong(kind, text))).collect();
    for story in told {
        story.await.unwrap();
    }
}

async fn any_one_goes_wrong(kind: &'static str, text: &'static str) {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(kind, &sim);
    make_as(&*cloud, kind, text).await.unwrap();
    clear_as(&*cloud, kind, text).await;
    let operations: std::collections::BTreeSet<String> =
        sim.take_calls().into_iter().map(|call| call.operation).collect();
    // To a plugin, HTML and throttling are the same whatever it makes; a cluster takes many requests.
    let is_cluster = clusters(kind).is_some_and(|[near, _]| near == text);
    let faults: &[Fault] = match is_cluster {
        true => &[Fault::Before, Fault::Lost],
        false => &[Fault::Html, Fault::Before, Fault::Throttle, Fault::Lost],
    };
    for operation in operations {
        for fault in faults.iter().copied() {
            goes_wrong(kind, text, &operation, fault).await;
        }
    }
}

async fn goes_wrong(kind: &str, text: &str, operation: &str, fault: Fault) {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(kind, &sim);
    sim.script(operation, fault, 1);
    let made = match make_as(&*cloud, kind, text).await {
        Ok(made) => made,
        Err(err) => {
            assert!(err.is_passing(), "{operation} {fault:?}: {err}");
            make_as(&*cloud, kind, text).await.unwrap_or_else(|err| panic!("{operation} {fault:?}: {err}"))
        }
    };
    let listed = cloud.list(&at(kind)).await.unwrap_or_default();
    assert!(listed.resources.len() <= 1, "{operation} {fault:?}: {listed:?}");
    assert!(cloud.permit_list(&at(kind), &made.uri).await.unwrap_or_default().is_empty());
    for _ in 0..2 {
        let region: Segment = made.region.clone();
        let _ = cloud.delete_resource(&at(kind), &"a".parse().unwrap()).await;
        let _ = cloud.delete_network(&at(kind), &region).await;
    }
    assert_eq!(sim.left(), Vec::<String>::new(), "{operation} {fault:?}");
}

/// Two controllers on one account: with owners of their own they do not see, and never touch, each other's.
#[tokio::test]
async fn two_controllers_on_one_account() {
    let sim = Sim::start().await.unwrap();
    for (kind, text) in descriptions() {
        let [one, two] = ["one", "two"].map(|owner| owned(kind, &sim, true, Some(owner)));
        let first = make_as(&*one, kind, text).await.unwrap();
        assert_eq!(two.list(&at(kind)).await.unwrap(), cloud_api::Listing::default(), "{kind}");
        let err = two.permit_list(&at(kind), &first.uri).await.unwrap_err();
        assert_eq!(err.kind, CloudErrorKind::NotFound, "{kind}");
        make_as(&*two, kind, text).await.unwrap();
        clear_as(&*two, kind, text).await;
        assert_eq!(one.list(&at(kind)).await.unwrap().resources.len(), 1, "{kind}");
        clear_as(&*one, kind, text).await;
    }
    assert_eq!(sim.left(), Vec::<String>::new());
}

/// A list that does not fit is refused with the reason, and the list in force stays.
#[tokio::test]
async fn a_list_that_is_too_long_changes_nothing() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin("aws", &sim);
    let made = make(&*cloud, "aws").await.unwrap();
    let entry = |name: &str, count: u16| {
        let traffic = Traffic::new(Direction::Inbound, Protocol::UDP, Ports::Any, Ports::one(53)).unwrap();
        let targets = 0..count;
        let targets = targets
            .map(|number| format!("10.9.{}.{}", number / 200, number % 200).parse().unwrap())
            .collect();
        PermitEntry::new(EntryName::reported(name), traffic, targets, Default::default()).unwrap()
    };
    cloud.put_list(&at("aws"), &made.uri, &[], &[entry("a", 3)]).await.unwrap();
    sim.take_calls();
    let err = cloud.put_list(&at("aws"), &made.uri, &[], &[entry("b", 301)]).await.unwrap_err();
    assert!(err.to_string().contains("5 AWS security groups of 60"), "{err}");
    assert!(sim.take_calls().iter().all(|call| call.operation.contains("Describe")));
    assert_eq!(cloud.permit_list(&at("aws"), &made.uri).await.unwrap(), [entry("a", 3)]);
}

/// Nothing to do is nothing done: a call that finds everything as it should be only reads.
#[tokio::test]
async fn what_is_there_is_only_read() {
    for (kind, text) in descriptions() {
        let sim = Sim::start().await.unwrap();
        let cloud = plugin(kind, &sim);
        make_as(&*cloud, kind, text).await.unwrap();
        sim.take_calls();
        make_as(&*cloud, kind, text).await.unwrap();
        let reads = ["Describe", "/read", ".get", "_get_", ".list", ".list_", ".aggregatedList"];
        let writes: Vec<_> = sim
            .take_calls()
            .into_iter()
            .filter(|call| !reads.iter().any(|read| call.operation.contains(read)))
            .collect();
        assert_eq!(writes, [], "{kind}");
    }
}

/// While a link is made and taken away again, nobody gets through who is not permitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_gets_through_while_a_link_is_made() {
    for (one, two) in [("aws", "gcp"), ("aws", "azure")] {
        let house = House::new(&[one, two]).await;
        let [a, b, c] = [format!("ns.{one}.a"), format!("ns.{two}.b"), format!("ns.{two}.c")];
        let (a, b, c) = (a.as_str(), b.as_str(), c.as_str());
        tokio::join!(house.create(a, 0), house.create(b, 0), house.create(c, 0));
        let mut asked = Vec::new();
        for (at, peer) in [(a, b), (b, a)] {
            asked.push(house.orchestrator.put_rules(at.parse().unwrap(), both(peer), false).await.unwrap());
        }
        let mut looks = 0;
        while !house.orchestrator.plan().unwrap().is_empty() {
            assert!(!house.joined(a, c) && !house.joined(b, c));
            looks += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(house.joined(a, b) && looks > 2, "{looks} looks");
        // With nothing left to do a job is about to end; what it is about must not go before.
        for outcome in asked {
            house.finish(outcome).await;
        }
        house.end(&[a, b, c]).await;
    }
}
