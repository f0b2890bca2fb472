//! Answers that are not as IBM describes them: refused, with where, before anything is changed. And objects of others that
//! are odd, but as IBM describes them.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use cloud_api::{At, CloudErrorKind, prelude::*};
use cloud_http::{
    World,
    auth::Environment,
    testing::{Server, TestClock},
};
use cloud_ibm::{IbmCloud, IbmOptions};

const TOKEN: &str = r#"{"access_token":"t","expires_in":3600,"expiration":9999999999}"#;
const VPC: &str =
    r#"{"id":"r006-1","crn":"crn:v1:1","name":"t-somebody","status":"available","more":{"than":"used"}}"#;

/// A cloud that gives the answer of the first of these paths that is in the request's, and none to others.
async fn cloud(answers: Vec<(&'static str, String)>) -> (IbmCloud, Server) {
    let server = Server::start(move |asked| {
        let line = asked.lines().next().unwrap_or_default();
        let found = answers.iter().find(|(path, _)| line.contains(path)).map(|(_, body)| body.clone());
        found.or_else(|| line.contains("/identity/token").then(|| TOKEN.to_owned()))
    })
    .await;
    let options = IbmOptions {
        endpoint: Some(format!("{}/{{region}}/v1", server.url)),
        transit_endpoint: Some(format!("{}/v1", server.url)),
        regions: Some(vec!["us-south".parse().unwrap()]),
        ..IbmOptions::default()
    };
    let key = [("IBMCLOUD_API_KEY", "key"), ("IBMCLOUD_IAM_API_ENDPOINT", server.url.as_str())];
    let clock = TestClock::at(1_700_000_000);
    let world = World { environment: Environment::of(key), clock: Some(clock), recorder: None };
    (IbmCloud::with(&options, world).unwrap(), server)
}

fn at() -> At {
    At { site: "ns.ibm".parse().unwrap(), deployment: String::new() }
}

/// A list of groups of one, with a rule and a target.
fn groups(port: &str, address: &str) -> String {
    let vpc = r#"{"id":"r006-1","crn":"crn:v1:1","name":"x"}"#;
    let rule = format!(
        r#"{{"id":"r","name":"r","direction":"inbound","protocol":"tcp","port_min":{port},"remote":{{"id":"g2"}}}}"#
    );
    let target = format!(r#"{{"id":"i","primary_ip":{{"address":"{address}"}}}}"#);
    format!(
        r#"{{"security_groups":[{{"id":"g","name":"g","vpc":{vpc},"rules":[{rule}],"targets":[{target}]}}]}}"#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistyped_answer_is_told_by_its_path_and_nothing_is_changed() {
    let vpcs = |vpc: &str| format!(r#"{{"vpcs":[{VPC},{vpc}]}}"#);
    let (fine, no_groups) = (vpcs(VPC), r#"{"security_groups":[]}"#.to_owned());
    for (vpcs, groups, told) in [
        (
            vpcs(r#"{"id":"r006-2","name":"x","status":"available"}"#),
            &no_groups,
            "vpcs[1]: missing field `crn`",
        ),
        (vpcs(&VPC.replace("\"available\"", "7")), &no_groups, "vpcs[1].status: invalid type"),
        (r#"{"limit":100}"#.to_owned(), &no_groups, "missing field `vpcs`"),
        (fine[..fine.len() - 9].to_owned(), &no_groups, "no IBM answer"),
        (fine.clone(), &groups("\"80\"", "10.0.0.4"), "security_groups[0].rules[0].port_min: invalid type"),
        (fine.clone(), &groups("80", "ten"), "security_groups[0].targets[0].primary_ip.address: invalid"),
    ] {
        let (cloud, ibm) = cloud(vec![("/vpcs?", vpcs), ("/security_groups?", groups.clone())]).await;
        let listed = cloud.list(&at()).await.unwrap_err();
        assert!(listed.message.contains(told), "{told}: {listed}");
        let (region, space) = ("us-south".parse().unwrap(), "10.0.0.0/16".parse().unwrap());
        let made = cloud.ensure_network(&at(), &region, space).await.unwrap_err();
        assert_eq!((made.kind, made.message.contains(told)), (CloudErrorKind::Unavailable, true), "{made}");
        let is_read = |asked: &&String| asked.starts_with("GET ") || asked.contains("/identity/token");
        assert_eq!(ibm.asked().iter().find(|asked| !is_read(asked)), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_objects_of_others_are_passed_over() {
    let answers = vec![
        ("/vpcs?", format!(r#"{{"vpcs":[{VPC}]}}"#)),
        ("/security_groups?", groups("80", "2001:db8::4")),
    ];
    assert_eq!(cloud(answers).await.0.list(&at()).await.unwrap(), Default::default());
}
