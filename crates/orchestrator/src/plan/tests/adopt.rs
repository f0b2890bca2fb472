//! Networks that somebody else made.

use model::Direction;

use super::world::{World, resource, rule};
use crate::plan::ProblemKind;

#[test]
fn an_existing_network_is_adopted_linked_and_let_go() {
    let mut world = World::new(&["aws", "gcp"]);
    world.attach("ns.aws.old", "us-vpc-1", &["172.31.0.0/16", "10.0.0.0/16"]);
    world.want("ns.gcp.b", "east");
    assert_eq!(
        world.plan().to_string(),
        "   1  adopt network ns.aws.us-vpc-1 with 172.31.0.0/16\n   \
            2  create network ns.gcp.east with 10.1.0.0/16\n   \
            3  attach resource ns.aws.old in network ns.aws.us-vpc-1  (after 1)\n   \
            4  create resource ns.gcp.b in network ns.gcp.east  (after 2)\n",
        "10.0.0.0/16 is a block of the existing network, so nobody gets it"
    );
    world.settle();
    world.join("ns.aws.old", "ns.gcp.b");
    world.settle();
    assert!(world.reaches(&resource("ns.aws.old"), &resource("ns.gcp.b")));
    assert_eq!((world.inventory.links.len(), world.inventory.gateways.len()), (1, 2));
    world.unwant("ns.aws.old");
    let plan = world.plan().to_string();
    assert!(plan.contains("detach resource ns.aws.old") && plan.contains("let go network ns.aws.us-vpc-1"));
    assert!(!plan.contains("delete network ns.aws") && !plan.contains("delete resource ns.aws"), "{plan}");
    world.unwant("ns.gcp.b");
    world.settle();
    assert!(world.inventory.is_empty());
}

/// How an existing network reaches public addresses is its owner's.
#[test]
fn an_existing_network_gets_no_nat() {
    let mut world = World::new(&["aws"]);
    world.attach("ns.aws.old", "us-vpc-1", &["172.31.0.0/16"]);
    world.permit("ns.aws.old", rule("out", Direction::Outbound, &["1.1.1.1"]));
    world.settle();
    assert!(world.inventory.nats.is_empty());
    assert_eq!(world.inventory.resources[&resource("ns.aws.old")].permit.len(), 1);
}

#[test]
fn what_would_overlap_is_not_adopted_and_the_rest_goes_on() {
    let mut world = World::new(&["aws", "gcp"]);
    world.want("ns.gcp.b", "east");
    world.settle();
    world.attach("ns.aws.inside", "us-vpc-1", &["10.0.128.0/20"]);
    world.attach("ns.aws.beside", "us-vpc-2", &["172.31.0.0/16", "10.0.0.0/8"]);
    world.attach("ns.aws.fine", "us-vpc-3", &["172.16.0.0/16"]);
    world.attach("ns.aws.late", "us-vpc-4", &["172.16.4.0/24"]);
    world.attach("ns.aws.part", "us-vpc-3", &["172.20.0.0/16"]);
    let problems = world.plan().problems;
    let kinds: Vec<_> =
        problems.iter().map(|problem| (problem.resource.name.as_str(), &problem.kind)).collect();
    assert!(
        matches!(
            kinds.as_slice(),
            [
                ("beside", ProblemKind::Overlap { .. }),
                ("inside", ProblemKind::Overlap { .. }),
                ("late", ProblemKind::Overlap { .. }),
                ("part", ProblemKind::OtherBlock { .. }),
            ]
        ),
        "{kinds:?}"
    );
    world.settle();
    let attached: Vec<_> = world.inventory.resources.keys().map(ToString::to_string).collect();
    assert_eq!(attached, ["ns.aws.fine", "ns.gcp.b"]);
    assert!(world.plan().problems.iter().any(|problem| problem.resource.name.as_str() == "part"));
}
