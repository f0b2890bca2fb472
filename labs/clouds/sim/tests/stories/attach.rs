//! A machine that somebody made who has never heard of Trestle is attached, linked, and let go as it was.

use std::net::IpAddr;

use cloud_sim::{Faults, Machine};
use orchestrator::execute::JobOrPlan;

use super::house::{CLOUDS, House, PING, description};

impl House {
    async fn attach(&self, name: &str, machine: &Machine) {
        let asked = self
            .orchestrator
            .create_resource(name.parse().unwrap(), machine.id.clone(), true, false)
            .await
            .unwrap();
        self.finish(asked).await;
    }

    /// What attaching would change.
    async fn would_change(&self, name: &str, machine: &Machine) -> String {
        let asked = self
            .orchestrator
            .create_resource(name.parse().unwrap(), machine.id.clone(), true, true)
            .await
            .unwrap();
        let JobOrPlan::Plan(plan) = asked else { panic!("a plan was asked for") };
        assert!(plan.problems.is_empty() && !plan.notes.is_empty(), "{plan}");
        plan.to_string()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_existing_machine_is_attached_linked_and_let_go() {
    for cloud in CLOUDS {
        let other = if cloud == "gcp" { "aws" } else { "gcp" };
        let mut house = House::new(&[cloud, other]).await;
        let machine = house.sim.put_machine(cloud);
        let second = house.sim.put_neighbour(cloud, &machine);
        let before = house.sim.objects();
        let [old, b, near] = [format!("ns.{cloud}.old"), format!("ns.{other}.b"), format!("ns.{cloud}.near")];
        let (old, b, near) = (old.as_str(), b.as_str(), near.as_str());
        let plan = house.would_change(old, &machine).await;
        assert!(plan.contains("adopt network") && plan.contains("attach resource"), "{plan}");
        assert_eq!(house.sim.objects(), before, "{cloud}: a dry run changes nothing");

        tokio::join!(house.create(b, 0), house.create(near, 0));
        house.attach(old, &machine).await;
        assert_eq!(house.address(old), IpAddr::V4(machine.address), "{cloud}");
        assert!(!house.joined(old, b) && !house.joined(old, near), "{cloud}: closed");
        house.join(old, b).await;
        house.settle().await;
        let why = |from: &str, to: &str| house.sim.explain(house.address(from), house.address(to), &PING);
        assert!(house.joined(old, b), "{cloud}: linked: {}", why(old, b));
        assert!(!house.joined(old, near) && !house.joined(near, b), "{cloud}: and nobody else");
        house.join(old, near).await;
        house.settle().await;
        assert!(house.joined(old, near), "{cloud}: peered: {}", why(old, near));
        house.restart().await;
        assert_eq!(house.orchestrator.check().await.unwrap(), vec![], "{cloud}: no drift");

        // Another one of the same network, when the ways to it are there already.
        let late = format!("ns.{cloud}.late");
        house.attach(&late, &second).await;
        house.join(&late, b).await;
        house.join(&late, near).await;
        house.settle().await;
        assert!(house.joined(&late, b) && house.joined(&late, near), "{cloud}: the second");
        assert!(!house.joined(&late, old), "{cloud}: neighbours are closed to each other");
        house.delete(&late).await;
        house.settle().await;
        assert!(house.joined(old, b) && house.joined(old, near), "{cloud}: the first stays");
        house.unjoin(old, b).await;
        house.settle().await;
        assert!(!house.joined(old, b) && house.joined(old, near), "{cloud}: the link went");
        for name in [old, near, b] {
            house.delete(name).await;
        }
        house.settle().await;
        assert_eq!(house.sim.objects(), before, "{cloud}: everything is as before");
        assert_eq!(house.sim.defects(), Vec::<String>::new());
    }
}

/// Under faults and a restart half way the machine is closed or as before, and in the end as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attaching_survives_faults_and_restarts() {
    for cloud in CLOUDS {
        for seed in 1..=3 {
            let other = if cloud == "gcp" { "aws" } else { "gcp" };
            let mut house = House::new(&[cloud, other]).await;
            let machine = house.sim.put_machine(cloud);
            let before = house.sim.objects();
            let faults = Faults { seed, throttle: 30, before: 15, lost: 15, stale: 30, html: 5, failed: 15 };
            house.sim.set_faults(faults);
            let [old, b] = [format!("ns.{cloud}.old"), format!("ns.{other}.b")];
            let create =
                || house.orchestrator.create_resource(old.parse().unwrap(), machine.id.clone(), true, false);
            // The inspection itself may meet a fault that a user would see.
            let mut tries = 0;
            while let Err(err) = create().await {
                tries += 1;
                assert!(tries < 20 && err.is_passing(), "{cloud} {seed}: {err}");
            }
            house.want(&b, description(other, 0)).await;
            tokio::time::sleep(std::time::Duration::from_millis(10 * seed)).await;
            house.restart().await;
            house.settle().await;
            house.join(&old, &b).await;
            house.restart().await;
            house.settle().await;
            assert!(house.joined(&old, &b), "{cloud} {seed}");
            for name in [&old, &b] {
                house.orchestrator.delete_resource(name.parse().unwrap(), false).await.unwrap();
            }
            house.restart().await;
            house.settle().await;
            assert_eq!(house.sim.objects(), before, "{cloud} {seed}");
        }
    }
}

/// Somebody takes the tag of an attached instance away, which opens it again: the check says so, the fix closes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attached_instance_that_was_opened_is_closed_again() {
    let house = House::new(&["gcp"]).await;
    let machine = house.sim.put_machine("gcp");
    let other = house.sim.put_neighbour("gcp", &machine);
    let before = house.sim.objects();
    let is_open = || house.sim.reaches(IpAddr::V4(other.address), IpAddr::V4(machine.address), &PING);
    house.attach("ns.gcp.old", &machine).await;
    assert!(!is_open());
    let ask = |method: http::Method, path: &str, body| house.sim.ask_google(method, path, body);
    let fingerprint =
        ask(http::Method::GET, &machine.id, serde_json::Value::Null)["tags"]["fingerprint"].clone();
    let tags = serde_json::json!({"items": ["web", "db"], "fingerprint": fingerprint});
    ask(http::Method::POST, &format!("{}/setTags", machine.id), tags);
    assert!(is_open());
    assert!(!house.orchestrator.check().await.unwrap().is_empty());
    house.orchestrator.fix().await.unwrap();
    house.settle().await;
    assert!(!is_open());
    assert_eq!(house.orchestrator.check().await.unwrap(), vec![]);
    house.delete("ns.gcp.old").await;
    house.settle().await;
    assert_eq!(house.sim.objects(), before);
}
