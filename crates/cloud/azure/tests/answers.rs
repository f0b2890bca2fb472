//! Answers that are not what Azure's schema says: told by the path of what is wrong, and nothing is changed on their account.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use cloud_api::{At, CloudErrorKind, Listing, prelude::*};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_http::{
    World,
    testing::{Server, TestClock},
};

/// An Azure that says the same to whatever it is asked.
async fn azure_that_says(body: &'static str) -> (AzureCloud, Server) {
    let server = Server::start(|_| Some(body.to_owned())).await;
    let (endpoint, token) = (Some(server.url.clone()), Some("t".to_owned()));
    let options = AzureOptions { endpoint, token, ..AzureOptions::default() };
    let world = World { clock: Some(TestClock::at(0)), ..World::default() };
    (AzureCloud::with(&options, world).unwrap(), server)
}

fn at() -> At {
    At { site: "ns.azure".parse().unwrap(), deployment: "/subscriptions/s1/resourceGroups/g1".to_owned() }
}

/// The calls fail with a word of what is wrong, and have only read.
async fn refuses(body: &'static str, wrong: &str) {
    let (cloud, azure) = azure_that_says(body).await;
    let region = "westus2".parse().unwrap();
    let outcomes = [
        cloud.list(&at()).await.map(drop),
        cloud.ensure_network(&at(), &region, "10.0.0.0/16".parse().unwrap()).await,
        cloud.ensure_nat(&at(), &region).await,
        cloud.create_gateway(&at(), 64_514).await.map(drop),
        cloud.delete_gateway(&at()).await,
    ];
    let mut told = 0;
    for outcome in outcomes {
        let err = outcome.unwrap_err();
        assert_eq!(err.kind, CloudErrorKind::Unavailable, "{err}");
        told += usize::from(err.message.contains(wrong));
    }
    assert!(told > 0, "nobody says {wrong}");
    assert!(azure.only_read(), "{:?}", azure.asked());
}

#[tokio::test]
async fn lists_are_refused_with_the_path_of_what_is_wrong() {
    for (body, wrong) in [
        (r#"{"value":[{"id":"/i","name":"n","properties":{}}]}"#, "value[0]: missing field `location`"),
        (r#"{"value":[{"id":"/i","name":7,"location":"l","properties":{}}]}"#, "value[0].name: invalid type"),
        (
            r#"{"value":[{"id":"/i","name":"n","location":"l","properties":{"subnets":[{"name":"s"}]}}]}"#,
            "value[0].properties.subnets[0]: missing field `properties`",
        ),
        ("{}", "missing field `value`"),
        ("[]", "invalid length"),
        // A cut answer, and one of somebody in between.
        (r#"{"value":[{"id":"/i"#, "no answer of Azure"),
        ("<html>", "no answer of Azure"),
    ] {
        refuses(body, wrong).await;
    }
}

/// Whatever somebody else's objects lack, and what is null, is no reason to see nothing at all.
#[tokio::test]
async fn odd_objects_of_others_are_passed_over() {
    let body = r#"{"nextLink":null,"value":[{"id":"/i","name":"n","location":"l","tags":null,"new":1,
        "properties":{"provisioningState":"Odd","subnets":null,"securityRules":null,"addressSpace":{}}}]}"#;
    let (cloud, azure) = azure_that_says(body).await;
    assert_eq!(cloud.list(&at()).await.unwrap(), Listing::default());
    assert_eq!(azure.asked().len(), 2);
}

#[tokio::test]
async fn objects_are_refused_with_the_path_of_what_is_wrong() {
    for (body, wrong) in [
        (
            r#"{"id":"/i","name":"n","location":"l","properties":{"addressSpace":{"addressPrefixes":"10.0.0.0/16"}}}"#,
            "properties.addressSpace.addressPrefixes: invalid type",
        ),
        (
            r#"{"id":"/i","name":"n","location":"l","properties":{"provisioningState":7}}"#,
            "properties.provisioningState",
        ),
        (r#"{"id":"/i","name":"n","location":"l"}"#, "missing field `properties`"),
        (r#"{"id":"/i","name":"n","location":"l","tags":{"a":1},"properties":{}}"#, "tags.a: invalid type"),
    ] {
        refuses(body, wrong).await;
    }
}

#[tokio::test]
async fn a_group_whose_rules_cannot_be_read_is_not_written() {
    let body = r#"{"id":"/i","name":"n","location":"l",
        "properties":{"securityRules":[{"name":"r","properties":{"direction":"Inbound","access":"Allow","protocol":"*"}}]}}"#;
    let (cloud, azure) = azure_that_says(body).await;
    let uri = "/subscriptions/s1/resourceGroups/g1/providers/Microsoft.Compute/virtualMachines/vm";
    for outcome in [
        cloud.permit_list(&at(), uri).await.map(drop),
        cloud.put_list(&at(), uri, &[], &[]).await,
        cloud.delete_resource(&at(), &"a".parse().unwrap()).await,
    ] {
        let err = outcome.unwrap_err();
        assert_eq!(err.kind, CloudErrorKind::Unavailable, "{err}");
    }
    let err = cloud.permit_list(&at(), uri).await.unwrap_err();
    assert!(
        err.message.contains("properties.securityRules[0].properties: missing field `priority`"),
        "{err}"
    );
    assert!(azure.only_read(), "{:?}", azure.asked());
}
