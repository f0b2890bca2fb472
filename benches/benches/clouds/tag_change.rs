//! A hundred VMs permit a tag with ten members, in each cloud; an eleventh comes.

use std::time::Instant;

use benches::report;
use cloud_api::{Cloud, ResourceSpec};
use cloud_sim::Sim;
use futures::future::try_join_all;
use model::ResourceState;

use crate::{at, clouds, entry, make, tell};

const RESOURCES: usize = 100;

pub async fn run() {
    for number in 0..4 {
        // A simulator each: nothing of one cloud is in another's way.
        let clouds = clouds().await;
        let (cloud, kind, description, space) = clouds.all()[number];
        story(&clouds.sim, cloud, kind, description, space).await;
    }
}

async fn story(sim: &Sim, cloud: &dyn Cloud, kind: &str, description: &str, space: &str) {
    let place = at(kind);
    let first = make(cloud, kind, description, space).await;
    let others = try_join_all((1..RESOURCES).map(|number| {
        let (name, region) = (format!("vm{number}").parse().unwrap(), first.region.clone());
        let spec = ResourceSpec { name, region, description: description.to_owned() };
        let place = &place;
        async move { cloud.create_resource(place, &spec).await }
    }));
    let mut resources: Vec<ResourceState> = others.await.unwrap();
    resources.push(first);
    let put = async |members: usize| {
        let targets: Vec<_> = (1..=members).map(|number| format!("10.200.0.{number}")).collect();
        let entries = [entry("tag", &targets)];
        let puts = resources.iter().map(|resource| cloud.add_entries(&place, &resource.uri, &entries));
        try_join_all(puts).await.unwrap();
    };
    put(10).await;
    sim.take_calls();
    let (since, started) = (sim.clock.elapsed(), Instant::now());
    put(11).await;
    let seconds = started.elapsed().as_secs_f64();
    tell(sim, &format!("clouds.tag_change_100_{kind}"), since);
    report(&format!("clouds.tag_change_100_{kind}"), "wall_s", seconds, "s");
}
