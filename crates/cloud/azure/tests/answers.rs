//! Answers that are not what Azure's schema says: told by the path of what is wrong, and nothing is changed on their account.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use cloud_api::{At, CloudErrorKind, Listing, prelude::*};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_http::{Clock, auth::Environment};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// A clock on which nobody waits.
#[derive(Default)]
struct Fast(Mutex<Duration>);

#[async_trait]
impl Clock for Fast {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    async fn sleep(&self, pause: Duration) {
        *self.0.lock().unwrap() += pause;
    }
}

/// An Azure that says the same to whatever it is asked; and the first lines of the requests.
async fn azure_that_says(body: &'static str) -> (AzureCloud, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") && stream.read_buf(&mut request).await.is_ok_and(|n| n > 0)
            {
            }
            let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
            requests.lock().unwrap().push(line);
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json";
            let reply = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.write_all(reply.as_bytes()).await;
        }
    });
    let options = AzureOptions { endpoint, token: Some("t".to_owned()), ..AzureOptions::default() };
    let none: [(&str, &str); 0] = [];
    let clock = Arc::new(Fast::default());
    (AzureCloud::with(&options, Environment::of(none), Some(clock), None).unwrap(), asked)
}

fn at() -> At {
    At { site: "ns.azure".parse().unwrap(), deployment: "/subscriptions/s1/resourceGroups/g1".to_owned() }
}

/// The calls fail with a word of what is wrong, and have only read.
async fn refuses(body: &'static str, wrong: &str) {
    let (cloud, asked) = azure_that_says(body).await;
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
    let asked = asked.lock().unwrap();
    assert!(!asked.is_empty() && asked.iter().all(|line| line.starts_with("GET ")), "{asked:?}");
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
    let (cloud, asked) = azure_that_says(body).await;
    assert_eq!(cloud.list(&at()).await.unwrap(), Listing::default());
    assert_eq!(asked.lock().unwrap().len(), 2);
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
    let (cloud, asked) = azure_that_says(body).await;
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
    assert!(asked.lock().unwrap().iter().all(|line| line.starts_with("GET ")));
}
