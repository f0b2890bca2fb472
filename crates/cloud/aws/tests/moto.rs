//! The plugin against moto, another simulation of EC2 that nobody here wrote: the half of the contract that moto models.
//! `make lab-clouds` starts moto's server and names it in TRESTLE_MOTO.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use cloud_api::{At, PeeringSpec, ResourceSpec, prelude::*};
use cloud_aws::{AwsCloud, AwsOptions};
use cloud_http::{World, auth::Environment};
use model::{
    Direction, EntryName, NetworkName, PeeringName, PermitEntry, Ports, Protocol, ResourceState, Segment,
    Traffic,
};

fn at(site: &str) -> At {
    At { site: site.parse().unwrap(), deployment: String::new() }
}

fn entry(name: &str, hosts: std::ops::Range<u16>) -> PermitEntry {
    let traffic = Traffic::new(Direction::Outbound, Protocol::TCP, Ports::Any, Ports::one(443)).unwrap();
    let targets = hosts.map(|host| format!("10.9.0.{host}").parse().unwrap()).collect();
    PermitEntry::new(EntryName::reported(name), traffic, targets, ["all.of.them".to_owned()].into()).unwrap()
}

async fn make(cloud: &AwsCloud, at: &At, region: &Segment, space: &str) -> ResourceState {
    cloud.ensure_network(at, region, space.parse().unwrap()).await.unwrap();
    let description = format!(r#"{{"zone":"{region}b","ImageId":"ami-12c6146b"}}"#);
    let spec = ResourceSpec { name: "web".parse().unwrap(), region: region.clone(), description };
    cloud.create_resource(at, &spec).await.unwrap()
}

#[tokio::test]
#[ignore = "needs moto's server; make lab-clouds has one"]
async fn moto_is_content() {
    let endpoint = std::env::var("TRESTLE_MOTO").expect("TRESTLE_MOTO is the address of moto's server");
    let regions: Vec<Segment> = vec!["us-east-1".parse().unwrap(), "eu-west-1".parse().unwrap()];
    let options =
        AwsOptions { endpoint: Some(endpoint), regions: Some(regions.clone()), ..AwsOptions::default() };
    let keys = [("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    let world = World { environment: Environment::of(keys), ..World::default() };
    let cloud = AwsCloud::with(&options, world).unwrap();
    let (one, two) = (at("ns.aws"), at("other.aws"));
    let made = make(&cloud, &one, &regions[0], "10.0.0.0/16").await;
    make(&cloud, &two, &regions[0], "10.1.0.0/16").await;

    assert_eq!(cloud.permit_list(&one, &made.uri).await.unwrap(), [], "closed");
    for hosts in [0..3, 1..130, 100..140] {
        let wanted = entry("many", hosts);
        cloud.put_list(&one, &made.uri, &[], std::slice::from_ref(&wanted)).await.unwrap();
        assert!(cloud.permit_list(&one, &made.uri).await.unwrap() == [wanted]);
    }
    let network = |at: &At| NetworkName { site: at.site.clone(), region: regions[0].clone() };
    let peering = PeeringSpec {
        name: PeeringName::new(network(&one), network(&two)).unwrap(),
        deployments: [String::new(), String::new()],
    };
    cloud.ensure_peering(&peering).await.unwrap();
    cloud.ensure_nat(&one, &regions[0]).await.unwrap();
    let listing = cloud.list(&one).await.unwrap();
    assert_eq!((listing.networks.len(), listing.resources.len()), (1, 1));
    assert_eq!((listing.peerings.len(), listing.nats.len()), (1, 1));

    cloud.delete_nat(&one, &regions[0]).await.unwrap();
    cloud.delete_peering(&peering).await.unwrap();
    for site in [&one, &two] {
        cloud.delete_resource(site, &"web".parse().unwrap()).await.unwrap();
        cloud.delete_network(site, &regions[0]).await.unwrap();
        assert_eq!(cloud.list(site).await.unwrap(), cloud_api::Listing::default());
    }
}
