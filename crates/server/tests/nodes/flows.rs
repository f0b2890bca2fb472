//! Flows, from a node that tells them to whoever asks: recorded once, named, and nobody else's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use wire::trestle::v1::{
    ApplyObjectsRequest, Flow, FlowDirection, FlowVerdict, FlowsRequest, NodeFlow, NodeFlows, Role,
    flows_client::FlowsClient, objects_client::ObjectsClient,
};
use wire::{
    flow::{FlowFilter, Verdict},
    observer::{
        GetFlowsRequest, GetFlowsResponse, GetNodesRequest, ServerStatusRequest,
        get_flows_response::ResponseTypes, observer_client::ObserverClient,
    },
};

use testkit_controllers::nodes::Harness;

const PODS: [&str; 2] = [
    r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","labels":{"app":"web"}},
        "spec":{"nodeName":"n1"},"status":{"podIP":"10.0.0.1"}}"#,
    r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"other","namespace":"shop","labels":{"app":"other"}},
        "spec":{"nodeName":"n2"},"status":{"podIP":"10.0.0.2"}}"#,
];

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn report(node: &str, number: u64, count: u64) -> NodeFlows {
    let flow = NodeFlow {
        verdict: FlowVerdict::Denied.into(),
        direction: FlowDirection::In.into(),
        from: vec![10, 0, 0, 2],
        to: vec![10, 0, 0, 1],
        protocol: 6,
        port: Some(80),
        rule: 1,
        to_workload: 2,
        count,
        // A clock that is ahead.
        first: now(),
        last: now() + 3_600_000,
        ..NodeFlow::default()
    };
    let senseless = NodeFlow { protocol: 70_000, ..flow.clone() };
    let words = vec!["isolated by NetworkPolicy shop/\u{1b}web".to_owned(), "Pod shop/web".to_owned()];
    NodeFlows {
        node: node.to_owned(),
        run: 7,
        number,
        flows: vec![flow, senseless],
        words,
        ..NodeFlows::default()
    }
}

async fn list(harness: &Harness, request: FlowsRequest) -> Vec<Flow> {
    let mut client = FlowsClient::new(harness.channel(None).await);
    client.list_flows(harness.as_admin(request)).await.unwrap().into_inner().flows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_recorded_once_and_named_as_of_then() {
    let harness = Harness::synced().await;
    let documents = PODS.map(|text| text.as_bytes().to_vec()).to_vec();
    let mut objects = ObjectsClient::new(harness.channel(None).await);
    let request = ApplyObjectsRequest { documents, ..ApplyObjectsRequest::default() };
    objects.apply_objects(harness.as_admin(request)).await.unwrap();

    let mut follower = FlowsClient::new(harness.channel(None).await);
    let followed = harness.as_admin(FlowsRequest { verdict: "denied".to_owned(), ..FlowsRequest::default() });
    let mut followed = follower.follow_flows(followed).await.unwrap().into_inner();

    let node = harness.node("n1").await;
    let mut client = FlowsClient::new(harness.channel(Some(&node)).await);
    for number in [1, 1, 2, 1] {
        client.report_flows(report("n1", number, 3)).await.unwrap();
    }
    let flows = list(&harness, FlowsRequest::default()).await;
    assert_eq!(flows.len(), 2, "{flows:#?}");
    let flow = &flows[0];
    let (from, to) = (flow.from.as_ref().unwrap(), flow.to.as_ref().unwrap());
    assert_eq!((&*from.workload, &*to.workload), ("Pod shop/other", "Pod shop/web"));
    assert_eq!((from.labels["app"].as_str(), to.labels["app"].as_str()), ("other", "web"));
    assert_eq!(
        (&*flow.rule, &*flow.verdict, flow.count),
        ("isolated by NetworkPolicy shop/web", "denied", 3)
    );
    assert!(flow.last <= jiff::Timestamp::now().to_string(), "nothing is later than the controller's clock");
    let told = timeout(Duration::from_secs(30), followed.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(told.flows, flows[1..], "the oldest first");

    let top = FlowsClient::new(harness.channel(None).await);
    let asked = harness.as_admin(FlowsRequest { to: "app=web".to_owned(), ..FlowsRequest::default() });
    let top = { top }.top_flows(asked).await.unwrap().into_inner().flows;
    assert_eq!((top.len(), top[0].count), (1, 6));
    let (_, rest) = harness.rest("GET", "/flows?from=app%3Dother&limit=1", "").await;
    assert_eq!((rest["flows"][0]["count"].as_u64(), rest["more"].as_bool()), (Some(3), Some(true)));
    let (_, figures) = harness.rest("GET", "/flows?verdict=dropped", "").await;
    assert!(figures["detail"].as_str().unwrap().contains("no verdict"), "{figures}");

    // Who asks later, of another controller on the same directory, finds it; names are those of then.
    let harness = harness.restart().await;
    assert_eq!(
        list(&harness, FlowsRequest { from: "app=other".to_owned(), ..FlowsRequest::default() }).await,
        flows
    );
}

/// What clients of Hubble ask and are told.
#[tokio::test(flavor = "multi_thread")]
async fn clients_of_hubble_are_told_the_same() {
    let harness = Harness::synced().await;
    let node = harness.node("n1").await;
    let mut reporting = FlowsClient::new(harness.channel(Some(&node)).await);
    for number in 1..=5 {
        reporting.report_flows(report("n1", number, number)).await.unwrap();
    }
    let mut client = ObserverClient::new(harness.channel(None).await);
    let filter = |verdict: Verdict| FlowFilter { verdict: vec![verdict.into()], ..FlowFilter::default() };
    let denied = GetFlowsRequest { whitelist: vec![filter(Verdict::Dropped)], ..GetFlowsRequest::default() };
    let counts = |told: Vec<GetFlowsResponse>| -> Vec<String> {
        let flow = |told: GetFlowsResponse| match told.response_types {
            Some(ResponseTypes::Flow(flow)) => flow.summary.split_once(';').unwrap().0.to_owned(),
            other => panic!("{other:?}"),
        };
        told.into_iter().map(flow).collect()
    };
    for (number, first, expected) in [
        (0, false, &["1 packets", "2 packets", "3 packets", "4 packets", "5 packets"][..]),
        (2, false, &["4 packets", "5 packets"]),
        (2, true, &["1 packets", "2 packets"]),
    ] {
        let asked = GetFlowsRequest { number, first, ..denied.clone() };
        let told = client.get_flows(harness.as_admin(asked)).await.unwrap().into_inner();
        let told: Vec<_> = told.map(|told| told.unwrap()).collect().await;
        assert_eq!(counts(told), expected, "oldest first");
    }
    let allowed =
        GetFlowsRequest { whitelist: vec![filter(Verdict::Forwarded)], ..GetFlowsRequest::default() };
    let mut told = client.get_flows(harness.as_admin(allowed)).await.unwrap().into_inner();
    assert_eq!(told.message().await.unwrap(), None);
    let unknown = FlowFilter { dns_query: vec!["x".to_owned()], ..FlowFilter::default() };
    let unknown = GetFlowsRequest { whitelist: vec![unknown], ..GetFlowsRequest::default() };
    let refused = client.get_flows(harness.as_admin(unknown)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");

    // Who follows is told what there is, and then what comes, and nothing twice.
    let following = GetFlowsRequest { number: 1, follow: true, ..denied };
    let mut told = client.get_flows(harness.as_admin(following)).await.unwrap().into_inner();
    reporting.report_flows(report("n1", 6, 6)).await.unwrap();
    let mut two = Vec::new();
    for _ in 0..2 {
        two.extend(timeout(Duration::from_secs(30), told.message()).await.unwrap().unwrap());
    }
    assert_eq!(counts(two), ["5 packets", "6 packets"]);

    let status = client.server_status(harness.as_admin(ServerStatusRequest {})).await.unwrap().into_inner();
    assert_eq!((status.seen_flows, status.num_connected_nodes), (6, Some(0)));
    // `hubble status` begins with this.
    let asked = HealthCheckRequest { service: "hubble.server.Observer".to_owned() };
    HealthClient::new(harness.channel(None).await).check(asked).await.unwrap();
    let nodes = client.get_nodes(harness.as_admin(GetNodesRequest {})).await.unwrap().into_inner().nodes;
    assert_eq!(nodes.iter().map(|node| &*node.name).collect::<Vec<_>>(), ["n1"]);
    let refused = ObserverClient::new(harness.channel(Some(&node)).await).get_nodes(GetNodesRequest {}).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_tells_its_own_flows_and_reads_none() {
    let harness = Harness::synced().await;
    let node = harness.node("n1").await;
    let mut client = FlowsClient::new(harness.channel(Some(&node)).await);
    let refused = client.report_flows(report("n2", 1, 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let refused = client.list_flows(FlowsRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let viewer = harness.token_of(Role::Viewer).await;
    let mut client = FlowsClient::new(harness.with_token(&viewer).await);
    assert_eq!(client.list_flows(FlowsRequest::default()).await.unwrap().into_inner().flows, []);
    let refused = client.report_flows(report("n1", 1, 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_records_nothing_says_so() {
    let harness = Harness::start(tempfile::tempdir().unwrap(), |config| config.flows.enabled = false).await;
    harness.source.synced();
    let node = harness.node("n1").await;
    let mut client = FlowsClient::new(harness.channel(Some(&node)).await);
    let refused = client.report_flows(report("n1", 1, 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
    let mut client = FlowsClient::new(harness.admin().await);
    let refused = client.list_flows(FlowsRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
}
