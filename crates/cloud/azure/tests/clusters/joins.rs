//! What a cluster's network is joined with: nothing while AKS makes the cluster, and its API server is not guarded.

use super::*;

const OTHER: &str = "10.1.0.0/16";

/// A network of machines beside the cluster's.
fn beside() -> Segment {
    "westus2".parse().unwrap()
}

async fn make_networks(cloud: &AzureCloud) {
    cloud.ensure_network(&at(), &beside(), OTHER.parse().unwrap()).await.unwrap();
    cloud.ensure_network(&at(), &spec("westus2").region, "10.0.0.0/16".parse().unwrap()).await.unwrap();
}

/// Asks for the cluster, and is killed while AKS makes it.
async fn ask_and_die(sim: &Sim) {
    let killed = plugin(sim);
    sim.take_calls();
    let (place, spec) = (at(), spec("westus2"));
    let asked = async {
        let is_write = |call: &cloud_sim::Call| call.operation.ends_with("managedClusters/write");
        for _ in 0..10_000 {
            if sim.take_calls().iter().any(is_write) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it is not asked for");
    };
    tokio::select! {
        done = killed.create_resource(&place, &spec) => panic!("it is asked for before it is made: {done:?}"),
        () = asked => {}
    }
    assert!(lets_in(sim), "AKS has switched the group off");
}

/// The networks that use a gateway, with the gateway's own.
fn joined(sim: &Sim) -> usize {
    sim.wire().networks.values().filter(|network| !network.learns_from.is_empty()).count()
}

/// While AKS makes a cluster, its API server is not guarded; so nobody is led to it, until it is.
#[tokio::test]
async fn a_cluster_that_is_being_made_is_on_no_gateway() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    cloud.ensure_network(&at(), &beside(), OTHER.parse().unwrap()).await.unwrap();
    cloud.create_gateway(&at(), 64_514).await.unwrap();
    make_networks(&cloud).await;
    ask_and_die(&sim).await;
    assert_eq!(joined(&sim), 2, "the hub and the region's network");
    // Neither by who looks after the gateway, nor by who looks after the network.
    cloud.create_gateway(&at(), 64_514).await.unwrap();
    make_networks(&cloud).await;
    assert_eq!((lets_in(&sim), joined(&sim)), (true, 2));
    cloud.create_resource(&at(), &spec("westus2")).await.unwrap();
    assert!(!lets_in(&sim));
    assert_eq!(joined(&sim), 3);
}

/// NAT comes and goes, and the subnet stays in its group all the while.
#[tokio::test]
async fn nat_leaves_the_border_alone() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let made = make(&cloud, "westus2").await;
    let before = tool(&sim, &subnet(&made), None).await["properties"].clone();
    let network = spec("westus2").region;
    cloud.ensure_nat(&at(), &network).await.unwrap();
    assert_eq!(cloud.list(&at()).await.unwrap().nats, std::slice::from_ref(&network));
    assert!(!lets_in(&sim) && cloud.permit_list(&at(), &made.uri).await.unwrap().is_empty());
    cloud.delete_nat(&at(), &network).await.unwrap();
    assert_eq!(tool(&sim, &subnet(&made), None).await["properties"], before);
}
