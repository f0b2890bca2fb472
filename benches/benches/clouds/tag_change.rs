//! A hundred VMs in AWS permit a tag with ten members; an eleventh comes.

use cloud_api::{Cloud as _, ResourceSpec};
use futures::future::try_join_all;
use model::ResourceState;

use crate::{AWS_VM, at, clouds, entry, make, tell};

const RESOURCES: usize = 100;

pub async fn run() {
    let clouds = clouds().await;
    let (cloud, place) = (&clouds.aws, at("aws"));
    let first = make(cloud, "aws", AWS_VM, "10.0.0.0/16").await;
    let others = try_join_all((1..RESOURCES).map(|number| {
        let (name, region) = (format!("vm{number}").parse().unwrap(), first.region.clone());
        let spec = ResourceSpec { name, region, description: AWS_VM.to_owned() };
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
    clouds.sim.take_calls();
    let since = clouds.sim.clock.elapsed();
    put(11).await;
    tell(&clouds.sim, "clouds.tag_change_100_aws", since);
}
