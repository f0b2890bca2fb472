//! Permit lists longer than one security group: against the simulator, which keeps IBM's bounds.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::ops::Range;

use cloud_api::{At, CloudError, CloudErrorKind, ResourceSpec, prelude::*};
use cloud_ibm::{IbmCloud, IbmOptions};
use cloud_sim::{Faults, Sim};
use model::{Direction, EntryName, PermitEntry, Ports, Protocol, ResourceState, Segment, Traffic};

struct Lab {
    sim: Sim,
    cloud: IbmCloud,
    at: At,
    region: Segment,
}

impl Lab {
    async fn new() -> Self {
        let sim = Sim::start().await.unwrap();
        let regions = Some(vec!["us-south".parse().unwrap()]);
        let options = IbmOptions { regions, ..IbmOptions::default() };
        let cloud = IbmCloud::with(&options, sim.world()).unwrap();
        let at = At { site: "ns.ibm".parse().unwrap(), deployment: String::new() };
        let region: Segment = "us-south".parse().unwrap();
        cloud.ensure_network(&at, &region, "10.0.0.0/16".parse().unwrap()).await.unwrap();
        Self { sim, cloud, at, region }
    }

    async fn create(&self, name: &str) -> ResourceState {
        let description =
            r#"{"zone":"us-south-1","profile":{"name":"bx2-2x8"},"image":{"id":"i"}}"#.to_owned();
        let spec = ResourceSpec { name: name.parse().unwrap(), region: self.region.clone(), description };
        self.cloud.create_resource(&self.at, &spec).await.unwrap()
    }

    async fn list(&self, uri: &str) -> Vec<PermitEntry> {
        loop {
            match self.cloud.permit_list(&self.at, uri).await {
                Ok(list) => return list,
                Err(err) => assert!(err.is_passing(), "{err}"),
            }
        }
    }

    /// The groups of permit lists, by how many rules they have.
    fn groups(&self) -> Vec<usize> {
        let objects = self.sim.objects();
        let name = |value: &serde_json::Value| value["name"].as_str().unwrap_or_default().to_owned();
        let lists = objects.values().filter(|one| one["rules"].is_array() && name(one).contains("-sg"));
        let mut found: Vec<(String, usize)> =
            lists.map(|one| (name(one), one["rules"].as_array().unwrap().len())).collect();
        found.sort();
        found.into_iter().map(|(_, count)| count).collect()
    }
}

fn entry(name: &str, hosts: Range<u16>) -> PermitEntry {
    let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(80)).unwrap();
    let targets = hosts.map(|host| format!("10.9.{}.{}", host / 256, host % 256).parse().unwrap()).collect();
    PermitEntry::new(EntryName::reported(name), traffic, targets, ["all.of.them".to_owned()].into()).unwrap()
}

/// Asks until it is done, as a controller does.
async fn insist(ask: impl AsyncFn() -> Result<(), CloudError>) {
    for _ in 0..40 {
        match ask().await {
            Ok(()) => return,
            Err(err) => assert!(err.is_passing(), "{err}"),
        }
    }
    panic!("it does not end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_spreads_over_groups_as_it_grows_and_shrinks() {
    let lab = Lab::new().await;
    let uri = lab.create("web").await.uri;
    // Throttled, and answers lost: each step is tried again until it is done.
    lab.sim.set_faults(Faults { seed: 3, throttle: 10, before: 5, lost: 5, ..Faults::default() });
    for hosts in [0..250, 0..251, 0..700, 300..900, 890..900, 0..0, 0..260] {
        let wanted: Vec<PermitEntry> =
            if hosts.is_empty() { Vec::new() } else { vec![entry("many", hosts.clone())] };
        insist(async || match hosts.is_empty() {
            true => lab.cloud.put_list(&lab.at, &uri, &lab.list(&uri).await, &[]).await,
            false => lab.cloud.put_list(&lab.at, &uri, &[], &wanted).await,
        })
        .await;
        assert!(lab.list(&uri).await == wanted, "{hosts:?}");
        assert_eq!(lab.groups().iter().sum::<usize>(), hosts.len(), "{hosts:?}: nothing else is permitted");
    }
    lab.sim.set_faults(Faults::default());
    lab.cloud.delete_resource(&lab.at, &"web".parse().unwrap()).await.unwrap();
    lab.cloud.delete_network(&lab.at, &lab.region).await.unwrap();
    assert_eq!(lab.sim.left(), Vec::<String>::new());
    assert_eq!(lab.sim.defects(), Vec::<String>::new());
}

/// All that five groups hold, exchanged for as much again; one more is refused before anything is changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_groups_are_full_and_no_more_fits() {
    let lab = Lab::new().await;
    let uri = lab.create("web").await.uri;
    lab.cloud.put_list(&lab.at, &uri, &[], &[entry("many", 0..1250)]).await.unwrap();
    assert_eq!(lab.groups(), [250; 5]);
    lab.sim.take_calls();
    let err = lab.cloud.put_list(&lab.at, &uri, &[], &[entry("more", 1250..1251)]).await.unwrap_err();
    assert_eq!(err.kind, CloudErrorKind::Conflict);
    assert!(err.message.contains("1251 rules") && err.message.contains("5 security groups"), "{err}");
    assert!(lab.sim.take_calls().iter().all(|call| call.operation.contains("list_")));
    // One goes and another comes: one rule, and the note.
    lab.cloud.put_list(&lab.at, &uri, &[], &[entry("many", 1..1251)]).await.unwrap();
    let calls = lab.sim.take_calls();
    let count = |name: &str| calls.iter().filter(|call| call.operation.ends_with(name)).count();
    assert_eq!((count("create_security_group_rule"), count("delete_security_group_rule")), (1, 1));
    assert_eq!(count("_target_binding"), 0);
    assert_eq!(lab.groups(), [250; 5]);
    assert!(lab.list(&uri).await == [entry("many", 1..1251)]);
}

/// A VM whose list is on several groups is deleted, and another of the same name is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_of_the_same_name_is_closed() {
    let lab = Lab::new().await;
    let uri = lab.create("web").await.uri;
    lab.cloud.put_list(&lab.at, &uri, &[], &[entry("many", 0..300)]).await.unwrap();
    lab.cloud.delete_resource(&lab.at, &"web".parse().unwrap()).await.unwrap();
    let uri = lab.create("web").await.uri;
    assert_eq!((lab.list(&uri).await, lab.groups()), (Vec::new(), vec![0]));
}

/// An attached instance that was in as many groups as can be, with a list on several: let go, it is in those again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attached_machine_with_a_long_list_is_let_go_as_it_was() {
    for seed in 0..4 {
        let lab = Lab::new().await;
        let machine = lab.sim.put_machine("ibm");
        let before = lab.sim.objects();
        if seed > 0 {
            let faults = Faults { seed, throttle: 20, before: 30, lost: 30, html: 10, ..Faults::default() };
            lab.sim.set_faults(faults);
        }
        let name: Segment = "old".parse().unwrap();
        let region: Segment = loop {
            match lab.cloud.inspect_attachment(&lab.at, &machine.id).await {
                Ok(found) => break found.region,
                Err(err) => assert!(err.is_passing(), "{err}"),
            }
        };
        insist(async || lab.cloud.adopt_network(&lab.at, &region, machine.space).await).await;
        insist(async || lab.cloud.attach_resource(&lab.at, &name, &machine.id).await.map(drop)).await;
        lab.sim.set_faults(Faults::default());
        let uri = lab.cloud.attach_resource(&lab.at, &name, &machine.id).await.unwrap().uri;
        lab.cloud.put_list(&lab.at, &uri, &[], &[entry("many", 0..600)]).await.unwrap();
        lab.cloud.attach_resource(&lab.at, &name, &machine.id).await.unwrap();
        assert_eq!(lab.groups(), [250, 250, 100], "attaching again leaves the list as it is");
        lab.sim.set_faults(Faults { seed, before: 60, lost: 60, ..Faults::default() });
        insist(async || lab.cloud.delete_resource(&lab.at, &name).await).await;
        insist(async || lab.cloud.release_network(&lab.at, &region).await).await;
        lab.sim.set_faults(Faults::default());
        assert_eq!(lab.sim.objects(), before, "seed {seed}");
    }
}
