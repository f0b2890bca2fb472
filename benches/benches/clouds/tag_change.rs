//! A hundred VMs permit a tag with ten members, in each cloud; an eleventh comes.

use std::time::Instant;

use benches::report;
use cloud_api::{At, ResourceSpec, prelude::*};
use cloud_sim::Sim;
use futures::future::try_join_all;
use model::ResourceState;

use crate::{at, clouds, entry, make_at, tell};

const RESOURCES: usize = 100;

pub async fn run() {
    for number in 0..4 {
        // A simulator each: nothing of one cloud is in another's way.
        let clouds = clouds().await;
        let (cloud, kind, description, _) = clouds.all()[number];
        story(&clouds.sim, cloud, kind, description).await;
    }
}

/// IBM Cloud gives a VPC a hundred security groups, and a VM takes several: there four namespaces share the VMs.
fn places(kind: &str) -> Vec<At> {
    let namespaces: &[&str] = if kind == "ibm" { &["ns", "b", "c", "d"] } else { &["ns"] };
    let place = |name: &&str| At { site: format!("{name}.{kind}").parse().unwrap(), ..at(kind) };
    namespaces.iter().map(place).collect()
}

async fn story(sim: &Sim, cloud: &dyn Cloud, kind: &str, description: &str) {
    let places = places(kind);
    let mut resources = Vec::new();
    for (number, place) in places.iter().enumerate() {
        let space = format!("10.{number}.0.0/16");
        let made = fill(cloud, place, description, &space, RESOURCES / places.len()).await;
        resources.extend(made.into_iter().map(|one| (place, one)));
    }
    let put = async |members: usize| {
        let targets: Vec<_> = (1..=members).map(|number| format!("10.200.0.{number}")).collect();
        let entries = [entry("tag", &targets)];
        let puts = resources.iter().map(|(place, one)| cloud.put_list(place, &one.uri, &[], &entries));
        try_join_all(puts).await.unwrap();
    };
    put(10).await;
    sim.take_calls();
    let (since, started) = (sim.clock.elapsed(), Instant::now());
    put(11).await;
    let seconds = started.elapsed().as_secs_f64();
    let story = format!("clouds.tag_change_100_{kind}");
    tell(sim, &story, since);
    report(&story, "wall_s", seconds, "s");
}

async fn fill(
    cloud: &dyn Cloud,
    place: &At,
    description: &str,
    space: &str,
    count: usize,
) -> Vec<ResourceState> {
    let first = make_at(cloud, place, description, space).await;
    let others = try_join_all((1..count).map(|number| {
        let (name, region) = (format!("vm{number}").parse().unwrap(), first.region.clone());
        let spec = ResourceSpec { name, region, description: description.to_owned() };
        async move { cloud.create_resource(place, &spec).await }
    }));
    let mut made = others.await.unwrap();
    made.push(first);
    made
}
