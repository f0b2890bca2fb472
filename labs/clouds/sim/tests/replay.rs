//! What official clients sent to the simulators, sent again: the answers must have the same statuses, and nothing in
//! them may be what the clouds' API descriptions do not know. `make lab-clouds` records anew.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::time::Duration;

use cloud_http::{HttpTransport, Request, Transport as _};
use cloud_sim::Sim;

async fn replay(name: &str) -> usize {
    let path = format!("{}/recordings/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let sim = Sim::start().await.unwrap();
    let transport = HttpTransport::new(None).unwrap();
    for (number, line) in text.lines().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let field = |name: &str| line[name].as_str().unwrap().to_owned();
        sim.pass(Duration::from_secs(line["after"].as_u64().unwrap()));
        let method = field("method").parse().unwrap();
        let mut request = Request::new("replay", method, format!("{}{}", sim.url(), field("path")));
        let scope = format!("AWS4-HMAC-SHA256 Credential=A/20260101/{}/ec2/aws4_request", field("region"));
        let value = if field("region").is_empty() { "Bearer x".to_owned() } else { scope };
        if line["anonymous"] != true {
            request.header(http::header::AUTHORIZATION, &value);
        }
        // Azure's metadata address wants to hear it, and nobody else minds.
        request.header(http::HeaderName::from_static("metadata"), "true");
        request.body = field("body").into();
        let reply = transport.send(&request).await.unwrap();
        let wanted = line["status"].as_u64().unwrap();
        assert_eq!(u64::from(reply.status), wanted, "{name} line {}: {line}\n{}", number + 1, reply.text());
    }
    assert_eq!(sim.defects(), Vec::<String>::new());
    text.lines().count()
}

#[tokio::test]
async fn boto3_requests_are_answered_as_before() {
    assert!(replay("boto3").await > 40);
}

#[tokio::test]
async fn requests_of_the_go_clients_are_answered_as_before() {
    for name in ["aws-go", "azure-go", "gcp-go", "ibm-go"] {
        assert!(replay(name).await > 80, "{name}");
    }
}

#[tokio::test]
async fn requests_of_the_aws_command_are_answered_as_before() {
    assert!(replay("aws-cli").await > 30);
}

#[tokio::test]
async fn google_cloud_compute_requests_are_answered_as_before() {
    assert!(replay("google-cloud-compute").await > 20);
}

#[tokio::test]
async fn azure_mgmt_requests_are_answered_as_before() {
    assert!(replay("azure-mgmt").await > 100);
}

#[tokio::test]
async fn requests_of_the_gcloud_command_are_answered_as_before() {
    assert!(replay("gcloud").await > 80);
}

#[tokio::test]
async fn requests_of_the_az_command_are_answered_as_before() {
    assert!(replay("az").await > 100);
}

#[tokio::test]
async fn bluemix_go_requests_are_answered_as_before() {
    assert!(replay("bluemix-go").await > 20);
}

#[tokio::test]
async fn ibm_vpc_requests_are_answered_as_before() {
    assert!(replay("ibm-vpc").await > 40);
}
