//! Services on their way to nodes, and to proxies that speak KPNG.

use std::time::Duration;

use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};
use wire::{
    localv1::{Endpoint, OpItem, Service, WatchReq, op_item::Op, sets_client::SetsClient},
    pb::{DatapathPodMetadata, dataplane_events_client::DataplaneEventsClient},
    trestle::v1::{
        ApplyObjectsRequest, DeleteObjectsRequest, ExplainServiceRequest, GetServiceRequest,
        ListServicesRequest, ObjectKind, ObjectRef, explain_service_response::Outcome, node_start::Mode,
        objects_client::ObjectsClient, services_client::ServicesClient,
    },
};

use testkit_controllers::{
    controller::Credential,
    nodes::{Harness, facts},
};

use super::agent::{Agent, Held, State};

const NODES: &str = r#"
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"topology.kubernetes.io/zone":"a"}},
 "status":{"addresses":[{"type":"InternalIP","address":"192.168.0.1"}]}}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2","labels":{"topology.kubernetes.io/zone":"b"}}}"#;
const SERVICE: &str = r#"
{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},
 "spec":{"type":"NodePort","clusterIP":"10.96.0.1","internalTrafficPolicy":"Local","externalTrafficPolicy":"Local",
         "ports":[{"name":"http","port":80,"nodePort":30080}]}}"#;

fn slice(name: &str, address: &str, node: &str) -> String {
    format!(
        r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","addressType":"IPv4",
            "metadata":{{"name":"{name}","namespace":"shop","labels":{{"kubernetes.io/service-name":"web"}}}},
            "endpoints":[{{"addresses":["{address}"],"nodeName":"{node}"}}],"ports":[{{"name":"http","port":8080}}]}}"#
    )
}

async fn apply(harness: &Harness, texts: &[&str]) {
    let documents = texts.iter().flat_map(|text| {
        serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>().map(|one| one.unwrap())
    });
    let documents = documents.map(|document| document.to_string().into_bytes()).collect();
    let mut objects = ObjectsClient::new(harness.channel(None).await);
    let request = ApplyObjectsRequest { documents, ..ApplyObjectsRequest::default() };
    objects.apply_objects(harness.as_admin(request)).await.unwrap();
}

async fn delete(harness: &Harness, kind: &str, name: &str) {
    let object = ObjectRef { kind: kind.into(), namespace: "shop".into(), name: name.into() };
    let request = DeleteObjectsRequest { objects: vec![object], ..Default::default() };
    let mut objects = ObjectsClient::new(harness.channel(None).await);
    objects.delete_objects(harness.as_admin(request)).await.unwrap();
}

fn held<'a>(state: &'a State, kind: ObjectKind, name: &str) -> Option<&'a Held> {
    state.objects.get(&(kind as i32, name.to_owned())).map(|(_, held)| held)
}

#[tokio::test]
async fn every_node_hears_of_services_and_only_one_of_itself() {
    let harness = Harness::synced().await;
    apply(&harness, &[NODES, SERVICE, &slice("web-1", "10.0.0.1", "n1")]).await;
    let (one, two) = (harness.node("n1").await, harness.node("n2").await);
    let mut first = Agent::connect(&harness, &one, State::default()).await;
    let mut second = Agent::connect(&harness, &two, State::default()).await;
    for agent in [&mut first, &mut second] {
        agent.until("the service", |state| held(state, ObjectKind::Service, "shop/web").is_some()).await;
        let Some(Held::Slice(slice)) = held(&agent.state, ObjectKind::EndpointSlice, "shop/web-1") else {
            panic!("{:?}", agent.state)
        };
        assert_eq!(slice.endpoints[0].addresses, [vec![10, 0, 0, 1]]);
    }
    let facts = |state: &State, name: &str| match held(state, ObjectKind::NodeFacts, name) {
        Some(Held::Facts(facts)) => Some(facts.zone.clone()),
        _ => None,
    };
    assert_eq!((facts(&first.state, "n1"), facts(&first.state, "n2")), (Some("a".into()), None));
    assert_eq!((facts(&second.state, "n1"), facts(&second.state, "n2")), (None, Some("b".into())));
    let Some(Held::Service(service)) = held(&first.state, ObjectKind::Service, "shop/web") else { panic!() };
    let (name, service) = wire::service::read_service(service).unwrap();
    assert_eq!((name.to_string(), service.ports[0].node_port), ("shop/web".into(), 30080));

    delete(&harness, "EndpointSlice", "web-1").await;
    first
        .until("the slice goes", |state| held(state, ObjectKind::EndpointSlice, "shop/web-1").is_none())
        .await;
    let state = first.state.clone();
    drop(first);
    let mut again = Agent::connect(&harness, &one, state).await;
    again.step().await.unwrap();
    assert_eq!(again.start.as_ref().unwrap().mode(), Mode::Resume);
    assert!(again.bytes < 200, "nothing changed meanwhile: {} bytes", again.bytes);
    harness.stop().await;
}

#[tokio::test]
async fn a_pod_change_of_a_selected_service_is_one_slice() {
    let harness = Harness::synced().await;
    let pod = |ready: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p","namespace":"shop","labels":{{"app":"web"}}}},
                "spec":{{"nodeName":"n1"}},
                "status":{{"podIP":"10.0.0.7","conditions":[{{"type":"Ready","status":"{ready}"}}]}}}}"#
        )
    };
    let service = SERVICE.replace(r#""ports""#, r#""selector":{"app":"web"},"ports""#);
    apply(&harness, &[&service, &pod("False")]).await;
    let credential = harness.node("n1").await;
    let mut agent = Agent::connect(&harness, &credential, State::default()).await;
    let ready = |state: &State| {
        let slices = state.objects.values().filter_map(|(_, held)| match held {
            Held::Slice(slice) => slice.endpoints[0].ready,
            _ => None,
        });
        slices.collect::<Vec<_>>()
    };
    agent.until("the slice", |state| ready(state) == [false]).await;
    apply(&harness, &[&pod("True")]).await;
    agent.until("readiness", |state| ready(state) == [true]).await;
    harness.stop().await;
}

#[tokio::test]
async fn the_originals_stream_has_no_word_for_services() {
    let harness = Harness::synced().await;
    apply(&harness, &[SERVICE, &slice("web-1", "10.0.0.1", "n1")]).await;
    delete(&harness, "EndpointSlice", "web-1").await;
    let credential = harness.node("n1").await;
    let mut client = DataplaneEventsClient::new(harness.channel(Some(&credential)).await);
    harness.publish([facts("n1")]);
    let request = DatapathPodMetadata { id: "n1".into() };
    let mut stream = client.connect(request).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert!(first.event.is_empty() && first.complete, "{first:?}");
    harness.stop().await;
}

/// A proxy that speaks KPNG.
struct Kpng {
    requests: mpsc::Sender<WatchReq>,
    items: Streaming<OpItem>,
    node: String,
}

impl Kpng {
    async fn connect(harness: &Harness, credential: &Credential, node: &str) -> Self {
        let (requests, outgoing) = mpsc::channel(4);
        let mut client = SetsClient::new(harness.channel(Some(credential)).await);
        let items = client.watch(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        Self { requests, items, node: node.to_owned() }
    }

    async fn ask(&self) {
        self.requests.send(WatchReq { node_name: self.node.clone() }).await.unwrap();
    }

    /// One set of changes: paths that were set, those that were deleted, and whether it began afresh.
    async fn changes(&mut self) -> (Vec<(String, Vec<u8>)>, Vec<String>, bool) {
        let (mut set, mut deleted, mut reset) = (Vec::new(), Vec::new(), false);
        loop {
            let next = tokio::time::timeout(Duration::from_secs(20), self.items.message());
            match next.await.expect("something comes").unwrap().unwrap().op.unwrap() {
                Op::Reset(_) => reset = true,
                Op::Set(value) => set.push((value.r#ref.unwrap().path, value.bytes)),
                Op::Delete(gone) => deleted.push(gone.path),
                Op::Sync(_) => return (set, deleted, reset),
            }
        }
    }

    async fn is_quiet(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(200), self.items.message()).await.is_err()
    }
}

#[tokio::test]
async fn a_kpng_backend_sees_its_nodes_endpoints_one_set_of_changes_per_request() {
    let harness = Harness::synced().await;
    apply(&harness, &[NODES, SERVICE, &slice("web-1", "10.0.0.1", "n1"), &slice("web-2", "10.0.0.2", "n2")])
        .await;
    let credential = harness.node("n1").await;
    let mut kpng = Kpng::connect(&harness, &credential, "n1").await;
    kpng.ask().await;
    let (set, deleted, reset) = kpng.changes().await;
    assert!(reset && deleted.is_empty());
    assert_eq!(set.len(), 2, "the service, and with both policies Local only the endpoint here");
    let service = Service::decode(&set[0].1[..]).unwrap();
    assert_eq!((set[0].0.as_str(), service.r#type.as_str()), ("shop/web", "NodePort"));
    assert_eq!(service.ips.unwrap().cluster_ips.unwrap().v4, ["10.96.0.1"]);
    assert_eq!((service.ports[0].target_port, service.ports[0].node_port), (8080, 30080));
    let endpoint = Endpoint::decode(&set[1].1[..]).unwrap();
    assert!(set[1].0.starts_with("shop/web/") && endpoint.local);
    assert_eq!(endpoint.ips.unwrap().v4, ["10.0.0.1"]);
    assert_eq!((endpoint.port_overrides[0].name.as_str(), endpoint.port_overrides[0].port), ("http", 8080));

    apply(&harness, &[&slice("web-1", "10.0.0.9", "n1")]).await;
    assert!(kpng.is_quiet().await, "nothing comes that was not asked for");
    kpng.ask().await;
    let (set, deleted, reset) = kpng.changes().await;
    assert_eq!((set.len(), deleted.len(), reset), (1, 1, false), "the new address and the old one");
    kpng.ask().await;
    apply(&harness, &[&slice("web-2", "10.0.0.8", "n2")]).await;
    assert!(kpng.is_quiet().await, "what happens on another node is no change here");
    let everywhere = SERVICE.replace(r#""Local""#, r#""Cluster""#);
    apply(&harness, &[&everywhere]).await;
    let (set, _, _) = kpng.changes().await;
    assert_eq!(set.len(), 2, "the service, and the endpoint on the other node: {set:?}");
    kpng.ask().await;
    delete(&harness, "Service", "web").await;
    let (_, deleted, _) = kpng.changes().await;
    assert_eq!(deleted.len(), 3);
    assert_eq!(deleted[2], "shop/web", "endpoints go before their service");
    harness.stop().await;
}

#[tokio::test]
async fn a_node_may_not_watch_the_services_of_another() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    for (node, code) in [("n2", Code::PermissionDenied), ("", Code::InvalidArgument)] {
        let mut kpng = Kpng::connect(&harness, &credential, node).await;
        kpng.ask().await;
        assert_eq!(kpng.items.message().await.unwrap_err().code(), code);
    }
    let mut kpng = Kpng::connect(&harness, &credential, "n1").await;
    kpng.ask().await;
    assert_eq!(kpng.changes().await, (vec![], vec![], true), "an empty state is a state");
    kpng.node = "n2".into();
    kpng.ask().await;
    assert_eq!(kpng.items.message().await.unwrap_err().code(), Code::InvalidArgument);
    harness.stop().await;
}

#[tokio::test]
async fn services_are_listed_shown_and_explained() {
    let harness = Harness::synced().await;
    apply(&harness, &[NODES, SERVICE, &slice("web-1", "10.0.0.1", "n1")]).await;
    let mut client = ServicesClient::new(harness.channel(None).await);
    let list = client.list_services(harness.as_admin(ListServicesRequest::default())).await.unwrap();
    assert_eq!(list.into_inner().services.len(), 1);
    let request = GetServiceRequest { namespace: "shop".into(), name: "web".into() };
    let shown = client.get_service(harness.as_admin(request.clone())).await.unwrap().into_inner();
    assert_eq!((shown.ready, shown.total, shown.from_pods), (1, 1, false));
    assert_eq!(shown.endpoints[0].endpoint, "10.0.0.1:8080");
    let unknown = GetServiceRequest { name: "nope".into(), ..request };
    let refused = client.get_service(harness.as_admin(unknown)).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);

    let ask = |address: &str, node: &str| ExplainServiceRequest {
        address: address.into(),
        port: 80,
        node: node.into(),
        ..ExplainServiceRequest::default()
    };
    let answer = client.explain_service(harness.as_admin(ask("10.96.0.1", "n1"))).await.unwrap().into_inner();
    assert_eq!((answer.outcome(), answer.endpoints.join(",")), (Outcome::Balanced, "10.0.0.1:8080".into()));
    let answer = client.explain_service(harness.as_admin(ask("10.96.0.1", "n2"))).await.unwrap().into_inner();
    assert_eq!(answer.outcome(), Outcome::Dropped, "{:?}", answer.reasons);
    for bad in [ask("10.96.0", "n1"), ExplainServiceRequest { port: 0, ..ask("10.96.0.1", "n1") }] {
        let refused = client.explain_service(harness.as_admin(bad)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    harness.stop().await;
}
