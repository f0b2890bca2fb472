//! Managed Kubernetes clusters: a block of addresses whose border is a permit list.

use cloud_api::{At, CloudErrorKind, cluster_network};
use cloud_http::{HttpTransport, Request, Transport as _};
use cloud_sim::Fault;
use model::Direction;

use super::house::{CLOUDS, House, PING, clusters, deployment, plugin, rule, with_flags};

/// The clouds that have clusters, each with descriptions for two regions.
fn clouds() -> impl Iterator<Item = (&'static str, [&'static str; 2])> {
    CLOUDS.into_iter().filter_map(|cloud| Some((cloud, clusters(cloud)?)))
}

impl House {
    /// Whether every host of one reaches every host of the other, or none does.
    fn all_reach(&self, from: &str, to: &str) -> bool {
        let (sources, targets) = (self.addresses(from), self.addresses(to));
        assert!(!sources.is_empty() && !targets.is_empty(), "{from} and {to} have hosts");
        let ways = sources.iter().flat_map(|from| targets.iter().map(move |to| (from, to)));
        let ways = ways.filter(|(from, to)| from != to);
        let mut reached = ways.map(|(from, to)| self.sim.reaches(*from, *to, &PING));
        let first = reached.next().unwrap();
        assert!(reached.all(|other| other == first), "all hosts of {from} and {to} are alike");
        first
    }

    fn all_joined(&self, a: &str, b: &str) -> bool {
        let (there, back) = (self.all_reach(a, b), self.all_reach(b, a));
        assert_eq!(there, back, "{a} and {b}");
        there
    }
}

/// Its nodes and Pods reach each other and nobody else; then whom both ends permit, in whatever region or cloud.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_closed_until_both_ends_permit() {
    for (cloud, [near, distant]) in clouds() {
        let other = if cloud == "gcp" { "aws" } else { "gcp" };
        let mut house = House::new(&[cloud, other]).await;
        let [a, k, l, far] = ["a", "k", "l", "far"].map(|name| format!("ns.{cloud}.{name}"));
        let away = format!("ns.{other}.away");
        let (a, k, l, far, away) = (a.as_str(), k.as_str(), l.as_str(), far.as_str(), away.as_str());
        tokio::join!(house.create(a, 0), house.create(away, 0));
        tokio::join!(house.describe(k, near), house.describe(l, near), house.describe(far, distant));
        assert!(house.addresses(k).len() > 1, "{cloud}: a cluster has hosts");
        assert!(house.all_reach(k, k), "{cloud}: what is inside is open");
        for other in [a, l, far, away] {
            assert!(!house.sim.reaches(house.address(k), house.address(other), &PING), "{cloud}: {other}");
            assert!(!house.sim.reaches(house.address(other), house.address(k), &PING), "{cloud}: {other}");
        }
        house.join(a, k).await;
        house.settle().await;
        assert!(house.all_joined(a, k) && !house.reaches(a, l) && !house.reaches(l, k), "{cloud}: one");
        house.join(k, far).await;
        house.join(k, l).await;
        house.settle().await;
        assert!(house.all_joined(k, far) && house.all_joined(k, l), "{cloud}: cluster and cluster");
        assert!(!house.reaches(a, far) && !house.reaches(a, l), "{cloud}: and those only");
        house.join(k, away).await;
        house.settle().await;
        assert!(house.all_joined(k, away) && !house.reaches(a, away), "{cloud}: another cloud");

        house.restart().await;
        assert_eq!(house.orchestrator.check().await.unwrap(), vec![], "{cloud}: no drift");
        house.sim.vandalise();
        assert!(!house.orchestrator.check().await.unwrap().is_empty(), "{cloud}: drift is seen");
        house.orchestrator.fix().await.unwrap();
        house.settle().await;
        assert!(
            house.all_reach(k, k) && house.all_joined(k, away) && house.all_joined(a, k),
            "{cloud}: mended"
        );
        assert!(!house.reaches(a, l) && !house.reaches(a, away), "{cloud}: and no more than that");
        assert_eq!(house.orchestrator.check().await.unwrap(), vec![], "{cloud}: mended");

        house.unjoin(a, k).await;
        house.settle().await;
        assert!(!house.reaches(a, k) && house.all_joined(k, l), "{cloud}: one of many");
        house.delete(k).await;
        house.settle().await;
        house.describe(k, near).await;
        assert!(
            !house.reaches(k, l) && !house.reaches(k, away),
            "{cloud}: another of the same name is closed"
        );
        house.end(&[k, a, l, far, away]).await;
    }
}

/// Public addresses are reached by rules that name them, and NAT comes with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_reaches_public_addresses_that_its_rules_name() {
    for (cloud, [near, _]) in clouds() {
        let house = House::new(&[cloud]).await;
        let k = format!("ns.{cloud}.k");
        house.describe(&k, near).await;
        let out = |to: [u8; 4]| {
            house.addresses(&k).iter().all(|from| house.sim.reaches_public(*from, to.into(), &PING))
        };
        assert!(!out([1, 1, 1, 1]), "{cloud}: before");
        house.put(&k, vec![rule("out", Direction::Outbound, "1.1.1.1")]).await;
        house.settle().await;
        assert!(out([1, 1, 1, 1]) && !out([2, 2, 2, 2]), "{cloud}: one");
        house.end(&[&k]).await;
    }
}

/// A cluster that was running and breaks is somebody's: the check that nobody attends leaves it alone, and its list still rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_breaks_is_left_alone_in_google_cloud() {
    let house = House::new(&["gcp"]).await;
    let (a, k) = ("ns.gcp.a", "ns.gcp.k");
    tokio::join!(house.create(a, 0), house.describe(k, clusters("gcp").unwrap()[0]));
    house.join(a, k).await;
    let at = At { site: "ns.gcp".parse().unwrap(), deployment: deployment("gcp").to_owned() };
    let listed = plugin("gcp", &house.sim).list(&at).await.unwrap().resources;
    let (_, cluster) = listed.into_iter().find(|(name, _)| name.as_str() == "k").unwrap();
    let url = format!("{}/v1/{}/nodePools", house.sim.url(), cluster.uri);
    let mut request = Request::new("by hand", http::Method::POST, url);
    request.header(http::header::AUTHORIZATION, "Bearer x");
    let tag = cluster.uri.rsplit('/').next().unwrap();
    let pool = serde_json::json!({"nodePool": {"name": "more", "config": {"tags": [tag]}}});
    request.body = pool.to_string().into();
    house.sim.script("nodePools.create", Fault::Failed, 1);
    assert_eq!(HttpTransport::new(None).unwrap().send(&request).await.unwrap().status, 200);
    house.sim.pass(std::time::Duration::from_secs(600));
    house.sim.take_calls();
    assert_eq!(house.orchestrator.fix().await.unwrap(), vec![]);
    house.settle().await;
    let touched = house.sim.take_calls().into_iter().find(|call| {
        ["create", "insert", "delete", "update"].iter().any(|verb| call.operation.ends_with(verb))
    });
    assert_eq!(touched, None);
    assert!(house.all_joined(a, k));
    house.unjoin(a, k).await;
    assert!(!house.all_joined(a, k));
    house.end(&[a, k]).await;
}

/// Without the flag nothing is made, and whoever asks is told the flag's name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_are_behind_a_flag() {
    let sim = cloud_sim::Sim::start().await.unwrap();
    for (cloud, [near, _]) in clouds() {
        let at =
            At { site: format!("ns.{cloud}").parse().unwrap(), deployment: deployment(cloud).to_owned() };
        let name = "k".parse().unwrap();
        let refused = with_flags(cloud, &sim, false).inspect_resource(&at, &name, near).await.unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Unsupported, "{cloud}");
        assert!(refused.message.contains("kubernetes_clusters"), "{cloud}: {refused}");
        let network = plugin(cloud, &sim).inspect_resource(&at, &name, near).await.unwrap();
        assert_eq!(cluster_network(&network).unwrap().1, name, "{cloud}: {network}");
    }
}
