//! Answers that are not what Google's API says they are: refused with the path of what is wrong, and nothing is changed.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use cloud_api::{At, prelude::*};
use cloud_gcp::{GcpCloud, GcpOptions};
use cloud_http::{
    World,
    testing::{Server, TestClock},
};

/// A cloud that answers requests for one part of its paths with one text, and that everything else is not there.
async fn cloud(part: &'static str, answer: &'static str) -> (GcpCloud, Server) {
    let is_it = move |asked: &str| asked.lines().next().is_some_and(|line| line.contains(part));
    let server = Server::start(move |asked| is_it(asked).then(|| answer.to_owned())).await;
    let (endpoint, token) = (Some(format!("{}/compute/v1", server.url)), Some("t".to_owned()));
    let options = GcpOptions { endpoint, token, ..GcpOptions::default() };
    let world = World { clock: Some(TestClock::at(1_700_000_000)), ..World::default() };
    (GcpCloud::with(&options, world).unwrap(), server)
}

fn at() -> At {
    At { site: "ns.gcp".parse().unwrap(), deployment: "p1".to_owned() }
}

#[tokio::test]
async fn what_is_missing_or_mistyped_is_told_by_its_path() {
    for (part, answer, path) in [
        (
            "/firewalls?",
            r#"{"items":[{"name":"t-x","network":"n"},{"network":"n"}]}"#,
            "items[1]: missing field `name`",
        ),
        ("/firewalls?", r#"{"items":[{"name":"t-x","network":"n","priority":"7"}]}"#, "items[0].priority: "),
        ("/firewalls?", r#"{"items":{}}"#, "items: "),
        ("/networks/", r#"{"name":"n","peerings":[{"name":"p"}]}"#, "peerings[0]: missing field `network`"),
    ] {
        let (cloud, google) = cloud(part, answer).await;
        let err = cloud.list(&at()).await.unwrap_err();
        assert!(err.message.contains(path), "{err}");
        assert!(google.only_read(), "{:?}", google.asked());
    }
}

#[tokio::test]
async fn a_subnet_that_cannot_be_read_is_neither_taken_nor_made() {
    for (answer, path) in [
        (r#"{"name":"s","network":"n","region":"r"}"#, "missing field `selfLink`"),
        (
            r#"{"name":"s","network":"n","region":"r","selfLink":"s","ipCidrRange":"10.0.0.0/99"}"#,
            "ipCidrRange: ",
        ),
        (r#"{"name":"s","netw"#, "no Google answer"),
    ] {
        let (cloud, google) = cloud("/subnetworks/", answer).await;
        let (region, space) = ("us-west1".parse().unwrap(), "10.0.0.0/16".parse().unwrap());
        let err = cloud.ensure_network(&at(), &region, space).await.unwrap_err();
        assert!(err.message.contains(path), "{err}");
        assert!(google.only_read(), "{:?}", google.asked());
    }
}

/// What the plugin does not use may be anything, and an object of somebody else need not have what ours has.
#[tokio::test]
async fn odd_objects_of_others_are_in_nobodys_way() {
    let others = r#"{"items":[{"name":"t-x","network":"n","kind":7,"sourceTags":{},"description":"a { of somebody's"}]}"#;
    let (cloud, _) = cloud("/firewalls?", others).await;
    assert_eq!(cloud.list(&at()).await.unwrap(), cloud_api::Listing::default());
}
