//! Permit lists longer than one security group, and zones: against the simulator, which keeps EC2's bounds.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeSet;

use cloud_api::{At, ResourceSpec, prelude::*};
use cloud_aws::{AwsCloud, AwsOptions};
use cloud_sim::{Faults, Sim};
use model::{Direction, EntryName, PermitEntry, Ports, Protocol, ResourceState, Segment, Traffic};

struct Lab {
    sim: Sim,
    cloud: AwsCloud,
    at: At,
    region: Segment,
}

impl Lab {
    async fn new() -> Self {
        let sim = Sim::start().await.unwrap();
        let cloud = AwsCloud::with(&AwsOptions::default(), sim.world()).unwrap();
        let at = At { site: "ns.aws".parse().unwrap(), deployment: String::new() };
        let region: Segment = "us-east-1".parse().unwrap();
        cloud.ensure_network(&at, &region, "10.0.0.0/24".parse().unwrap()).await.unwrap();
        Self { sim, cloud, at, region }
    }

    async fn create(&self, name: &str, place: &str) -> Result<ResourceState, cloud_api::CloudError> {
        let description = format!(r#"{{{place},"ImageId":"ami-1"}}"#);
        let spec = ResourceSpec { name: name.parse().unwrap(), region: self.region.clone(), description };
        self.cloud.create_resource(&self.at, &spec).await
    }

    async fn list(&self, uri: &str) -> BTreeSet<PermitEntry> {
        self.cloud.permit_list(&self.at, uri).await.unwrap().into_iter().collect()
    }

    async fn end(self, names: &[&str]) {
        for name in names {
            self.cloud.delete_resource(&self.at, &name.parse().unwrap()).await.unwrap();
        }
        self.cloud.delete_network(&self.at, &self.region).await.unwrap();
        assert_eq!(self.sim.left(), Vec::<String>::new());
    }
}

fn entry(name: &str, hosts: std::ops::Range<u16>) -> PermitEntry {
    let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(80)).unwrap();
    let targets = hosts.map(|host| format!("10.9.{}.{}", host / 256, host % 256).parse().unwrap()).collect();
    PermitEntry::new(EntryName::reported(name), traffic, targets, ["all.of.them".to_owned()].into()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_spreads_over_groups_as_it_grows_and_shrinks() {
    let lab = Lab::new().await;
    // Throttled, stale, and answers lost: each step is tried again until it is done.
    lab.sim.set_faults(Faults { seed: 3, throttle: 20, stale: 60, lost: 30, ..Faults::default() });
    let uri = loop {
        if let Ok(made) = lab.create("web", r#""region":"us-east-1""#).await {
            break made.uri;
        }
    };
    for hosts in [0..10, 0..60, 0..61, 0..300, 150..450, 440..500, 0..0, 0..130] {
        let wanted: Vec<PermitEntry> =
            if hosts.is_empty() { Vec::new() } else { vec![entry("many", hosts.clone())] };
        let mut tries = 0;
        loop {
            let done = if hosts.is_empty() {
                let there: Vec<_> = lab.list(&uri).await.into_iter().collect();
                lab.cloud.put_list(&lab.at, &uri, &there, &[]).await
            } else {
                lab.cloud.put_list(&lab.at, &uri, &[], &wanted).await
            };
            tries += 1;
            match done {
                Ok(()) => break,
                Err(err) => assert!(tries < 20 && err.is_passing(), "{hosts:?}: {err}"),
            }
        }
        assert!(lab.list(&uri).await == wanted.into_iter().collect(), "{hosts:?}");
    }
    let refused = lab.cloud.put_list(&lab.at, &uri, &[], &[entry("more", 500..801)]).await.unwrap_err();
    assert!(
        refused.message.contains("431") && refused.message.contains("5 AWS security groups"),
        "{refused}"
    );
    lab.sim.set_faults(Faults::default());
    lab.end(&["web"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_zones_have_room_and_a_fifth_is_told_so() {
    let lab = Lab::new().await;
    let names = ["a", "b", "c", "d"];
    let made = names.map(|zone| {
        let lab = &lab;
        async move { lab.create(zone, &format!(r#""zone":"us-east-1{zone}""#)).await.unwrap().address }
    });
    let addresses: BTreeSet<_> = futures::future::join_all(made).await.into_iter().collect();
    assert_eq!(addresses.len(), 4);
    let fifth = lab.create("e", r#""zone":"us-east-1e""#).await.unwrap_err();
    assert!(fifth.message.contains("no room for the zone us-east-1e"), "{fifth}");
    let unknown = lab.create("x", r#""region":"us-east-1","zone":"us-east-1x""#).await.unwrap_err();
    assert!(unknown.message.contains("us-east-1x"), "{unknown}");
    lab.cloud.delete_resource(&lab.at, &"e".parse().unwrap()).await.unwrap();
    lab.cloud.delete_resource(&lab.at, &"x".parse().unwrap()).await.unwrap();
    lab.end(&names).await;
}
