//! Private endpoints: closed until both ends permit, by protocol and port, whoever else has a wide permission.

use cloud_api::CloudErrorKind;
use model::{Direction, Packet, PermitRule, Ports, Protocol, Traffic};
use orchestrator::execute::JobState;

use super::house::{CLOUDS, House, PING, both, plugin, rule, services, with_flags};

const HTTPS: Packet = Packet { protocol: 6, src_port: 40_000, dst_port: 443 };
const TELNET: Packet = Packet { protocol: 6, src_port: 40_000, dst_port: 23 };

/// Descriptions of endpoints, each with its cloud.
fn all_services() -> Vec<(&'static str, &'static str)> {
    CLOUDS.iter().flat_map(|cloud| services(cloud).iter().map(|service| (*cloud, *service))).collect()
}

fn https(name: &str, direction: Direction, peer: &str) -> PermitRule {
    let traffic = Traffic::new(direction, Protocol::TCP, Ports::Any, Ports::one(443)).unwrap();
    PermitRule::new(Some(name.parse().unwrap()), traffic, [peer.parse().unwrap()].into()).unwrap()
}

impl House {
    fn passes(&self, from: &str, to: &str, packet: &Packet) -> bool {
        self.sim.reaches(self.address(from), self.address(to), packet)
    }

    /// Waits until there is nothing left to do, whatever has failed.
    async fn idle(&self) {
        for _ in 0..4_000 {
            if self.orchestrator.plan().unwrap().is_empty() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("still not done: {}", self.orchestrator.plan().unwrap());
    }

    fn why(&self, from: &str, to: &str) -> String {
        self.sim.explain(self.address(from), self.address(to), &HTTPS)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_is_reached_by_whom_both_ends_permit() {
    for (cloud, service) in all_services() {
        let mut house = House::new(&[cloud]).await;
        let [a, b, far, e] = ["a", "b", "far", "e"].map(|name| format!("ns.{cloud}.{name}"));
        let (a, b, far, e) = (a.as_str(), b.as_str(), far.as_str(), e.as_str());
        tokio::join!(house.create(a, 0), house.create(b, 0), house.create(far, 1));
        house.describe(e, service).await;
        assert!(!house.passes(a, e, &HTTPS), "{cloud}: closed");
        house.put(a, vec![rule("any", Direction::Outbound, "10.0.0.0/8")]).await;
        house.put(b, vec![rule("any", Direction::Outbound, "10.0.0.0/8")]).await;
        assert!(!house.passes(a, e, &HTTPS), "{cloud}: a wide permission at one end is not enough");
        house
            .put(e, vec![https("in-a", Direction::Inbound, a), https("in-far", Direction::Inbound, far)])
            .await;
        house.settle().await;
        assert!(house.passes(a, e, &HTTPS), "{cloud}: permitted: {}", house.why(a, e));
        assert!(!house.passes(a, e, &TELNET), "{cloud}: another port");
        assert!(!house.passes(b, e, &HTTPS), "{cloud}: another machine");
        assert!(!house.passes(far, e, &HTTPS), "{cloud}: the endpoint's word is not enough either");
        assert!(!house.passes(e, a, &HTTPS), "{cloud}: it opens nothing");

        // B17: its address is a target like any other, and so are those of rules that come after it.
        house.put(far, vec![https("out-e", Direction::Outbound, e)]).await;
        house.put(far, both(b)).await;
        house.put(b, both(far)).await;
        house.settle().await;
        assert!(house.passes(far, e, &HTTPS), "{cloud}: from another region: {}", house.why(far, e));
        assert!(house.passes(far, b, &PING), "{cloud}: a later rule");

        house.restart().await;
        assert_eq!(house.orchestrator.check().await.unwrap(), vec![], "{cloud}: no drift");
        house.sim.vandalise();
        assert!(!house.passes(a, e, &HTTPS), "{cloud}: what is broken is closed");
        assert!(!house.orchestrator.check().await.unwrap().is_empty(), "{cloud}: and seen");
        house.orchestrator.fix().await.unwrap();
        house.settle().await;
        assert!(house.passes(a, e, &HTTPS) && !house.passes(b, e, &HTTPS), "{cloud}: and put right");

        let gone = vec!["in-a".parse().unwrap()];
        let outcome = house.orchestrator.delete_rules(e.parse().unwrap(), gone, false).await.unwrap();
        house.finish(outcome).await;
        assert!(!house.passes(a, e, &HTTPS) && house.passes(far, e, &HTTPS), "{cloud}: one of two");
        house.delete(e).await;
        house.settle().await;
        house.describe(e, service).await;
        assert!(!house.passes(far, e, &HTTPS), "{cloud}: another of the same name is closed");
        house.end(&[e, a, b, far]).await;
    }
}

/// An endpoint opens no connections; a rule that says so would do nothing, and is refused instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outbound_rules_of_endpoints_are_refused() {
    for (cloud, service) in all_services() {
        let house = House::new(&[cloud]).await;
        let [a, e] = ["a", "e"].map(|name| format!("ns.{cloud}.{name}"));
        house.create(&a, 0).await;
        house.describe(&e, service).await;
        let rules = vec![rule("out", Direction::Outbound, &a)];
        let asked = house.orchestrator.put_rules(e.parse().unwrap(), rules, false).await.unwrap();
        let ended = house.orchestrator.wait(&asked.job().unwrap().id).await.unwrap();
        assert_eq!(ended.state, JobState::Failed, "{cloud}");
        assert!(ended.message.contains("opens no connections"), "{cloud}: {}", ended.message);
        // What was refused is no reason to refuse what comes next.
        house.delete(&e).await;
        house.delete(&a).await;
        house.idle().await;
        assert_eq!(house.sim.left(), Vec::<String>::new());
    }
}

/// Without the flag nothing is made, and whoever asks is told the flag's name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_are_behind_a_flag() {
    let sim = cloud_sim::Sim::start().await.unwrap();
    for (cloud, service) in all_services() {
        let at = cloud_api::At { site: format!("ns.{cloud}").parse().unwrap(), deployment: "p1".to_owned() };
        let off = with_flags(cloud, &sim, false);
        let refused = off.inspect_resource(&at, &"a".parse().unwrap(), service).await.unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Unsupported, "{cloud}");
        assert!(refused.message.contains("private_endpoints"), "{cloud}: {refused}");
        let region = plugin(cloud, &sim).inspect_resource(&at, &"a".parse().unwrap(), service).await.unwrap();
        let spec =
            cloud_api::ResourceSpec { name: "e".parse().unwrap(), region, description: service.to_owned() };
        assert_eq!(off.create_resource(&at, &spec).await.unwrap_err().kind, CloudErrorKind::Unsupported);
    }
    assert_eq!(sim.take_calls(), vec![]);
}

/// Google has no firewall in front of an endpoint, so there is no way to it but from its own VPC, where the senders are
/// stopped: not through tunnels, whatever the other cloud lets out, and not from other VPCs, which is said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_of_google_is_reached_from_its_own_network_only() {
    let [a, e, other, remote] = ["ns.gcp.a", "ns.gcp.e", "other.gcp.x", "ns.aws.r"];
    // The gateway may come before the endpoints or after them.
    for gateway_first in [true, false] {
        let house = House::new(&["gcp", "aws"]).await;
        tokio::join!(house.create(a, 0), house.create(remote, 0), house.create(other, 0));
        if gateway_first {
            house.join(a, remote).await;
        }
        house.describe(e, services("gcp")[0]).await;
        house.join(a, remote).await;
        house.put(remote, vec![rule("any", Direction::Outbound, "10.0.0.0/8")]).await;
        let wide = vec![https("any", Direction::Inbound, "10.0.0.0/8")];
        let asked = house.orchestrator.put_rules(e.parse().unwrap(), wide, false).await.unwrap();
        house.orchestrator.wait(&asked.job().unwrap().id).await.unwrap();
        house.settle().await;
        assert!(house.joined(a, remote), "the tunnel is there");
        let trip = house.sim.trip(house.address(remote), house.address(e), &HTTPS).unwrap();
        assert!(trip.leaves && !trip.there, "{trip}: and does not lead to the endpoint");

        // Another region's network is advertised all the same.
        let late = "ns.gcp.late";
        house.create(late, 1).await;
        house.join(late, remote).await;
        house.settle().await;
        assert!(house.joined(late, remote), "{}", house.why(late, remote));
        assert!(!house.passes(remote, e, &HTTPS));
        assert_eq!(house.orchestrator.check().await.unwrap(), vec![]);

        let across = vec![https("x", Direction::Outbound, e)];
        let asked = house.orchestrator.put_rules(other.parse().unwrap(), across, false).await.unwrap();
        let ended = house.orchestrator.wait(&asked.job().unwrap().id).await.unwrap();
        assert_eq!(ended.state, JobState::Failed);
        assert!(ended.message.contains("another VPC"), "{}", ended.message);
        house.idle().await;
        for name in [e, late, a, other, remote] {
            house.delete(name).await;
            house.idle().await;
        }
        assert_eq!(house.sim.left(), Vec::<String>::new());
        assert_eq!(house.sim.defects(), Vec::<String>::new());
    }
}
