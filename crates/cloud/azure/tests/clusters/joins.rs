//! What a cluster's network is joined with: nothing while AKS makes the cluster, and its API server is not guarded.

use async_trait::async_trait;
use cloud_api::PeeringSpec;
use cloud_sim::wire::Hop;
use model::{NetworkName, PeeringName};
use tokio::sync::Mutex;

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

/// The ways from one network to another, each way counted.
fn ways(sim: &Sim) -> usize {
    let networks = sim.wire().networks;
    let routes = networks.values().flat_map(|network| &network.routes);
    routes.filter(|(_, hop)| matches!(hop, Hop::Peer(_))).count()
}

fn peering() -> PeeringSpec {
    let end = |region| NetworkName { site: at().site, region };
    let name = PeeringName::new(end(beside()), end(spec("westus2").region)).unwrap();
    PeeringSpec { name, deployments: [at().deployment, at().deployment] }
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

/// And no other network gets there by a peering.
#[tokio::test]
async fn a_cluster_that_is_being_made_has_no_peering() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    make_networks(&cloud).await;
    // There is nobody yet whom it would lead to.
    cloud.ensure_peering(&peering()).await.unwrap();
    assert_eq!(ways(&sim), 2);
    ask_and_die(&sim).await;
    assert_eq!(ways(&sim), 0);
    let early = cloud.ensure_peering(&peering()).await.unwrap_err();
    assert_eq!((early.kind, ways(&sim)), (CloudErrorKind::Unavailable, 0), "{early}");
    cloud.create_resource(&at(), &spec("westus2")).await.unwrap();
    cloud.ensure_peering(&peering()).await.unwrap();
    assert_eq!((lets_in(&sim), ways(&sim)), (false, 2));
    cloud.delete_peering(&peering()).await.unwrap();
    remove(&cloud, "westus2").await;
    cloud.delete_network(&at(), &beside()).await.unwrap();
    assert_eq!(sim.left(), Vec::<String>::new());
}

/// Somebody deleted a cluster that was joined with others: they are kept away until the next one is guarded.
#[tokio::test]
async fn a_cluster_that_is_made_anew_is_joined_when_it_is_guarded() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    make_networks(&cloud).await;
    let made = cloud.create_resource(&at(), &spec("westus2")).await.unwrap();
    cloud.create_gateway(&at(), 64_514).await.unwrap();
    cloud.ensure_peering(&peering()).await.unwrap();
    let before = ways(&sim);
    assert_eq!((joined(&sim), before), (3, 6), "each with the hub, and with each other");
    by_tool(&sim.url(), http::Method::DELETE, &made.uri, None).await;
    sim.pass(Duration::from_secs(600));
    ask_and_die(&sim).await;
    assert_eq!((joined(&sim), ways(&sim)), (2, 2), "the other with the hub");
    assert_eq!(cloud.list(&at()).await.unwrap().peerings, [], "it is seen that it does not work");
    let early = cloud.ensure_peering(&peering()).await.unwrap_err();
    assert_eq!((early.kind, ways(&sim)), (CloudErrorKind::Unavailable, 2), "{early}");
    cloud.create_resource(&at(), &spec("westus2")).await.unwrap();
    assert_eq!((lets_in(&sim), joined(&sim), ways(&sim)), (false, 3, before));
    assert_eq!(cloud.list(&at()).await.unwrap().peerings, [peering().name]);
}

/// A subnet that was out of its group when the gateway came is joined once it is back in it.
#[tokio::test]
async fn a_cluster_that_is_guarded_again_uses_the_gateway() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let made = make(&cloud, "westus2").await;
    let mut open = tool(&sim, &subnet(&made), None).await;
    open["properties"]["privateEndpointNetworkPolicies"] = "Disabled".into();
    tool(&sim, &subnet(&made), Some(open)).await;
    cloud.create_gateway(&at(), 64_514).await.unwrap();
    assert_eq!((lets_in(&sim), joined(&sim)), (true, 1), "the hub alone");
    let seen = cloud.permit_list(&at(), &made.uri).await.unwrap();
    cloud.put_list(&at(), &made.uri, &seen, &[]).await.unwrap();
    assert_eq!((lets_in(&sim), joined(&sim)), (false, 2));
}

/// NAT comes and goes, and the subnet stays in its group all the while, with what others put in.
#[tokio::test]
async fn nat_leaves_the_border_alone() {
    let sim = Sim::start().await.unwrap();
    let cloud = plugin(&sim);
    let made = make(&cloud, "westus2").await;
    let mut others = tool(&sim, &subnet(&made), None).await;
    others["properties"]["serviceEndpoints"] = json!([{"service": "Microsoft.Storage", "locations": ["*"]}]);
    tool(&sim, &subnet(&made), Some(others)).await;
    let before = tool(&sim, &subnet(&made), None).await["properties"].clone();
    assert!(before.get("serviceEndpoints").is_some());
    let network = spec("westus2").region;
    cloud.ensure_nat(&at(), &network).await.unwrap();
    assert_eq!(cloud.list(&at()).await.unwrap().nats, std::slice::from_ref(&network));
    assert!(!lets_in(&sim) && cloud.permit_list(&at(), &made.uri).await.unwrap().is_empty());
    cloud.delete_nat(&at(), &network).await.unwrap();
    assert_eq!(tool(&sim, &subnet(&made), None).await["properties"], before);
}

/// A clock that lets somebody else in when it is first waited for.
struct Meanwhile {
    clock: Arc<dyn Clock>,
    origin: String,
    write: Mutex<Option<(String, Value)>>,
}

#[async_trait]
impl Clock for Meanwhile {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    async fn sleep(&self, pause: Duration) {
        if let Some((id, body)) = self.write.lock().await.take() {
            by_tool(&self.origin, http::Method::PUT, &id, Some(body)).await;
        }
        self.clock.sleep(pause).await;
    }
}

/// Making NAT takes a while, and what others write to the subnet meanwhile stays.
#[tokio::test]
async fn nat_takes_back_nothing() {
    let sim = Sim::start().await.unwrap();
    let made = make(&plugin(&sim), "westus2").await;
    let guarded = tool(&sim, &subnet(&made), None).await;
    let mut open = guarded.clone();
    open["properties"]["privateEndpointNetworkPolicies"] = "Disabled".into();
    tool(&sim, &subnet(&made), Some(open)).await;
    let write = Mutex::new(Some((subnet(&made), guarded)));
    let clock = Arc::new(Meanwhile { clock: Arc::clone(&sim.clock) as _, origin: sim.url(), write });
    let cloud = plugin_in(World { clock: Some(Arc::clone(&clock) as _), ..sim.world() });
    cloud.ensure_nat(&at(), &spec("westus2").region).await.unwrap();
    assert!(clock.write.lock().await.is_none(), "somebody wrote");
    assert_eq!(cloud.list(&at()).await.unwrap().nats, [spec("westus2").region]);
    assert!(!lets_in(&sim));
}
