//! What exists in a cloud is attached and let go.

use cloud_api::{CloudErrorKind, Machine};

use super::house::{House, resource, rule};
use crate::execute::{JobOrPlan, JobState, OrchestratorError};
use crate::plan::ProblemKind;

fn machine(network: &str, space: &str, address: &str) -> Machine {
    Machine {
        network: network.parse().unwrap(),
        space: space.parse().unwrap(),
        address: address.parse().unwrap(),
    }
}

impl House {
    async fn attach(&self, name: &str, id: &str) -> Result<(), OrchestratorError> {
        let asked = self.orchestrator.create_resource(resource(name), id.to_owned(), true, false).await?;
        assert_eq!(self.finish(asked).await?.state, JobState::Done);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_exists_is_attached_linked_and_let_go() {
    let mut house = House::new(&["azure", "gcp"]).await;
    house.clouds[0].put_machine("vm-1", machine("west-theirs", "172.16.0.0/20", "172.16.0.9"));
    house.create("ns.gcp.b", "east").await.unwrap();
    let asked =
        house.orchestrator.create_resource(resource("ns.azure.old"), "vm-1".to_owned(), true, true).await;
    let Ok(JobOrPlan::Plan(plan)) = asked else { panic!("a plan was asked for") };
    let text = plan.to_string();
    assert!(text.contains("adopt network ns.azure.west-theirs with 172.16.0.0/20"), "{text}");
    assert!(text.contains("*  vm-1: nothing passes"), "{text}");
    assert!(house.clouds[0].is_empty(), "a dry run changes nothing");

    house.attach("ns.azure.old", "vm-1").await.unwrap();
    assert_eq!(
        house.orchestrator.resource(&resource("ns.azure.old")).unwrap().ip.as_deref(),
        Some("172.16.0.9")
    );
    assert!(!house.reaches("ns.azure.old", "ns.gcp.b"));
    house.join("ns.azure.old", "ns.gcp.b").await;
    assert!(house.reaches("ns.azure.old", "ns.gcp.b") && house.reaches("ns.gcp.b", "ns.azure.old"));
    house.put("ns.azure.old", vec![rule("web", model::Direction::Outbound, "1.1.1.1")]).await.unwrap();
    house.restart(house.store.clone(), |cloud| cloud).await;
    assert_eq!(house.orchestrator.check().await.unwrap(), []);
    house.clouds[0].take_calls();
    house.delete("ns.azure.old").await;
    house.settle().await;
    let calls = house.clouds[0].take_calls();
    assert!(calls.contains(&"release_network") && !calls.contains(&"delete_network"), "{calls:?}");
    assert!(!calls.contains(&"ensure_nat") && house.clouds[0].is_empty());
    house.delete("ns.gcp.b").await;
    house.settle().await;
    assert!(house.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_attached_is_refused_before_anything_happens() {
    let house = House::new(&["azure"]).await;
    house.create("ns.azure.a", "west").await.unwrap();
    house.clouds[0].put_machine("in-ours", machine("x", "10.0.4.0/24", "10.0.4.4"));
    house.clouds[0].put_machine("fine", machine("y", "172.16.0.0/20", "172.16.0.9"));
    let refused = house.attach("ns.azure.old", "in-ours").await.unwrap_err();
    let OrchestratorError::Problem(problem) = refused else { panic!("{refused}") };
    assert!(matches!(problem.kind, ProblemKind::Overlap { .. }), "{problem}");
    let kind = |refused: OrchestratorError| match refused {
        OrchestratorError::Cloud { err, .. } => err.kind,
        other => panic!("{other}"),
    };
    assert_eq!(kind(house.attach("ns.azure.old", "nothing").await.unwrap_err()), CloudErrorKind::NotFound);
    house.attach("ns.azure.old", "fine").await.unwrap();
    assert_eq!(kind(house.attach("ns.azure.twice", "fine").await.unwrap_err()), CloudErrorKind::Conflict);
    assert_eq!(house.orchestrator.resources().len(), 2);
}
