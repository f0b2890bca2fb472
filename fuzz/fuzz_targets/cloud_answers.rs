//! What a cloud answers: the first byte says which cloud, the second which call; the answers follow, each with its status
//! before it. A plugin may refuse what it does not understand; it must not fall, and must not ask for ever.
#![no_main]

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{LazyLock, Mutex},
    time::Duration,
};

use cloud_api::{At, Cloud};
use cloud_http::{World, auth::Environment, testing::TestClock};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Runtime;

/// What is answered next; afterwards nothing is there.
static ANSWERS: Mutex<Vec<(u16, Vec<u8>)>> = Mutex::new(Vec::new());
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
static URL: LazyLock<String> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || answer(client));
        }
    });
    url
});

/// One request per connection is enough: its head is read to the empty line, its body is left.
fn answer(mut client: TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && client.read_exact(&mut byte).is_ok() {
        head.push(byte[0]);
    }
    let (status, body) = ANSWERS.lock().expect("nobody falls with it").pop().unwrap_or((404, b"{}".to_vec()));
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let _ = client.write_all(head.as_bytes()).and_then(|()| client.write_all(&body));
}

fn cloud(which: u8) -> (Box<dyn Cloud>, At) {
    let world = |pairs: &[(&str, &str)]| World {
        environment: Environment::of(pairs.iter().copied()),
        clock: Some(TestClock::at(1_700_000_000)),
        recorder: None,
    };
    let url = URL.clone();
    let at = |site: &str, deployment: &str| At {
        site: site.parse().expect("a site"),
        deployment: deployment.to_owned(),
    };
    match which % 4 {
        0 => {
            let regions = Some(vec!["us-east-1".parse().expect("a name")]);
            let options = cloud_aws::AwsOptions { endpoint: Some(url), regions, ..Default::default() };
            let keys = world(&[("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "s")]);
            let cloud = cloud_aws::AwsCloud::with(&options, keys).expect("it is complete");
            (Box::new(cloud), at("ns.aws", ""))
        }
        1 => {
            let options = cloud_azure::AzureOptions {
                endpoint: Some(url),
                token: Some("t".to_owned()),
                kubernetes_clusters: true,
                ..Default::default()
            };
            let cloud = cloud_azure::AzureCloud::with(&options, world(&[]));
            (Box::new(cloud.expect("it is complete")), at("ns.azure", "/subscriptions/s1/resourceGroups/g1"))
        }
        2 => {
            let options = cloud_gcp::GcpOptions {
                endpoint: Some(format!("{url}/compute/v1")),
                container_endpoint: Some(format!("{url}/v1")),
                dns_endpoint: Some(format!("{url}/dns/v1")),
                token: Some("t".to_owned()),
                private_endpoints: true,
                kubernetes_clusters: true,
                ..Default::default()
            };
            let cloud = cloud_gcp::GcpCloud::with(&options, world(&[]));
            (Box::new(cloud.expect("it is complete")), at("ns.gcp", "projects/p1"))
        }
        _ => {
            let options = cloud_ibm::IbmOptions {
                endpoint: Some(format!("{url}/{{region}}/v1")),
                transit_endpoint: Some(format!("{url}/v1")),
                containers_endpoint: Some(format!("{url}/global")),
                regions: Some(vec!["us-south".parse().expect("a name")]),
                private_endpoints: true,
                kubernetes_clusters: true,
                ..Default::default()
            };
            let key = world(&[("IBMCLOUD_API_KEY", "k"), ("IBMCLOUD_IAM_API_ENDPOINT", url.as_str())]);
            let cloud = cloud_ibm::IbmCloud::with(&options, key).expect("it is complete");
            (Box::new(cloud), at("ns.ibm", ""))
        }
    }
}

async fn call(which: u8, cloud: &dyn Cloud, at: &At) {
    let region = "us-east-1".parse().expect("a name");
    let peer = "ns.other".parse().expect("a site");
    match which % 6 {
        0 => drop(cloud.list(at).await),
        1 => drop(cloud.permit_list(at, "uri").await),
        2 => drop(cloud.ensure_network(at, &region, "10.0.0.0/16".parse().expect("a block")).await),
        3 => drop(cloud.connection_status(at, &peer).await),
        4 => drop(cloud.create_gateway(at, 65_000).await),
        _ => drop(cloud.inspect_attachment(at, "i-1").await),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [which, what, rest @ ..] = bytes else { return };
    let mut answers: Vec<(u16, Vec<u8>)> = Vec::new();
    for answer in rest.split(|byte| *byte == 0) {
        let Some((status, body)) = answer.split_first() else { continue };
        let statuses = [200, 200, 200, 201, 202, 204, 400, 403, 404, 409, 429, 500];
        answers.push((statuses[usize::from(*status) % statuses.len()], body.to_vec()));
    }
    answers.reverse();
    *ANSWERS.lock().expect("nobody falls with it") = answers;
    let (cloud, at) = cloud(*which);
    let calling = async { tokio::time::timeout(Duration::from_secs(20), call(*what, &*cloud, &at)).await };
    RUNTIME.block_on(calling).expect("it comes to an end");
});
