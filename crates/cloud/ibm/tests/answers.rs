//! Answers that are not as IBM describes them: refused, with where, before anything is changed. And objects of others that
//! are odd, but as IBM describes them.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    sync::{Arc, Mutex},
};

use cloud_api::{At, CloudErrorKind, prelude::*};
use cloud_http::auth::Environment;
use cloud_ibm::{IbmCloud, IbmOptions};
use cloud_sim::Sim;

const TOKEN: &str = r#"{"access_token":"t","expires_in":3600,"expiration":9999999999}"#;
const VPC: &str =
    r#"{"id":"r006-1","crn":"crn:v1:1","name":"t-somebody","status":"available","more":{"than":"used"}}"#;

/// A cloud that gives the answer of the first of these paths that is in the request's, and none to others.
struct Cloudlet {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Cloudlet {
    fn start(answers: Vec<(&'static str, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let head =
                    BufReader::new(&client).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
                let head: Vec<String> = head.collect();
                let Some(line) = head.first().cloned() else { continue };
                let found = answers.iter().find(|(path, _)| line.contains(path));
                let body = if line.contains("/identity/token") {
                    Some(TOKEN)
                } else {
                    found.map(|(_, body)| body.as_str())
                };
                let (status, body) = body.map_or((404, "{}"), |body| (200, body));
                let length = body.len();
                kept.lock().unwrap().push(line);
                let _ = write!(
                    client,
                    "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
            }
        });
        Self { url, asked }
    }

    fn plugin(&self, sim: &Sim) -> IbmCloud {
        let options = IbmOptions {
            endpoint: Some(format!("{}/{{region}}/v1", self.url)),
            transit_endpoint: Some(format!("{}/v1", self.url)),
            regions: Some(vec!["us-south".parse().unwrap()]),
            ..IbmOptions::default()
        };
        let key = [("IBMCLOUD_API_KEY", "key"), ("IBMCLOUD_IAM_API_ENDPOINT", self.url.as_str())];
        IbmCloud::with(&options, Environment::of(key), Some(Arc::clone(&sim.clock) as _), None).unwrap()
    }
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
    let sim = Sim::start().await.unwrap();
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
        let cloudlet = Cloudlet::start(vec![("/vpcs?", vpcs), ("/security_groups?", groups.clone())]);
        let cloud = cloudlet.plugin(&sim);
        let listed = cloud.list(&at()).await.unwrap_err();
        assert!(listed.message.contains(told), "{told}: {listed}");
        let (region, space) = ("us-south".parse().unwrap(), "10.0.0.0/16".parse().unwrap());
        let made = cloud.ensure_network(&at(), &region, space).await.unwrap_err();
        assert_eq!((made.kind, made.message.contains(told)), (CloudErrorKind::Unavailable, true), "{made}");
        let asked = cloudlet.asked.lock().unwrap();
        let is_read = |line: &&String| line.starts_with("GET ") || line.contains("/identity/token");
        assert_eq!(asked.iter().find(|line| !is_read(line)), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_objects_of_others_are_passed_over() {
    let sim = Sim::start().await.unwrap();
    let answers = vec![
        ("/vpcs?", format!(r#"{{"vpcs":[{VPC}]}}"#)),
        ("/security_groups?", groups("80", "2001:db8::4")),
    ];
    let cloudlet = Cloudlet::start(answers);
    assert_eq!(cloudlet.plugin(&sim).list(&at()).await.unwrap(), Default::default());
}
