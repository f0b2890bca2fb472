//! `pb.DataplaneEvents/Connect` as a client sees it that knows only Azure NPM.

use std::{collections::BTreeSet, time::Duration};

use prost::Message;
use prost_types::{Struct, value::Kind};
use serde_json::{Value, json};
use tonic::{Code, Status, Streaming};
use transport::SpanChange;
use wire::{
    pb::{DatapathPodMetadata, Events, dataplane_events_client::DataplaneEventsClient},
    trestle::v1::{
        ApplyObjectsRequest, DeleteObjectsRequest, ObjectKind, ObjectRef, objects_client::ObjectsClient,
    },
};

use testkit_controllers::{
    controller::Credential,
    nodes::{Harness, change, eventually, facts, nodes, policy, set},
};

/// The messages of Azure NPM's page, and nothing that came later.
#[derive(Clone, PartialEq, Message)]
struct OriginalEvents {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(int32, tag = "2")]
    object: i32,
    #[prost(message, repeated, tag = "3")]
    event: Vec<OriginalEvent>,
}

#[derive(Clone, PartialEq, Message)]
struct OriginalEvent {
    #[prost(message, repeated, tag = "3")]
    data: Vec<Struct>,
}

/// One thing a client heard: type, object, name, number of members.
pub type Heard = (&'static str, &'static str, String, Option<usize>);

pub struct OriginalClient {
    stream: Streaming<Events>,
    pub complete: bool,
}

impl OriginalClient {
    /// As the dataplane of a node that the controller knows.
    pub async fn connect(harness: &Harness, credential: &Credential, id: &str) -> Self {
        harness.publish([facts(id)]);
        Self::announce(harness, credential, id).await
    }

    pub async fn announce(harness: &Harness, credential: &Credential, id: &str) -> Self {
        let mut client = DataplaneEventsClient::new(harness.channel(Some(credential)).await);
        let stream = client.connect(DatapathPodMetadata { id: id.into() }).await.unwrap().into_inner();
        Self { stream, complete: false }
    }

    /// What is heard until the end of a step, through Azure NPM's own messages.
    pub async fn step(&mut self) -> Result<Vec<Heard>, Status> {
        let mut heard = Vec::new();
        loop {
            let next = tokio::time::timeout(Duration::from_secs(30), self.stream.message()).await;
            let message = next.map_err(|_| Status::deadline_exceeded("nothing came"))??;
            let message = message.ok_or_else(|| Status::ok("the stream ended"))?;
            let original = OriginalEvents::decode(&message.encode_to_vec()[..]).unwrap();
            heard.extend(
                original.event.iter().flat_map(|event| &event.data).map(|data| read(&original, data)),
            );
            if message.revision > 0 || message.complete {
                self.complete |= message.complete;
                return Ok(heard);
            }
        }
    }
}

fn read(message: &OriginalEvents, data: &Struct) -> Heard {
    let Some(Kind::StringValue(name)) = &data.fields["name"].kind else { panic!("{data:?}") };
    let members = data.fields.get("members").map(|members| match &members.kind {
        Some(Kind::ListValue(list)) => list.values.len(),
        other => panic!("{other:?}"),
    });
    let kind = ["APPLY", "REMOVE"][message.kind as usize];
    (kind, ["IPSET", "POLICY"][message.object as usize], name.clone(), members)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_configuration_comes_on_connect_sets_first_and_then_events() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    harness.publish([policy("p", 1, SpanChange::Everyone), set("s", &["a", "b"], nodes(&["n1"]))]);
    let mut client = OriginalClient::connect(&harness, &credential, "n1").await;
    let heard = client.step().await.unwrap();
    assert_eq!(
        heard,
        [("APPLY", "IPSET", "s".to_owned(), Some(2)), ("APPLY", "POLICY", "p".to_owned(), None)]
    );
    assert!(client.complete);
    harness.publish([change("s", &["c"], &[])]);
    assert_eq!(client.step().await.unwrap(), [("APPLY", "IPSET", "s".to_owned(), Some(3))]);
    harness.publish([
        server::transport::objects::remove(ObjectKind::AddressSet, "s"),
        server::transport::objects::remove(ObjectKind::Policy, "p"),
    ]);
    let heard = client.step().await.unwrap();
    assert_eq!(
        heard,
        [("REMOVE", "POLICY", "p".to_owned(), None), ("REMOVE", "IPSET", "s".to_owned(), None)]
    );
    harness.stop().await;
}

/// As `grpcurl` asks, without a certificate.
#[tokio::test(flavor = "multi_thread")]
async fn reflection_knows_the_originals_service_and_its_messages() {
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let harness = Harness::synced().await;
    let mut client = ServerReflectionClient::new(harness.channel(None).await);
    let ask = |message| ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let questions = [
        MessageRequest::ListServices(String::new()),
        MessageRequest::FileContainingSymbol("pb.DataplaneEvents".to_owned()),
    ];
    let questions = tokio_stream::iter(questions.map(ask));
    let mut answers = client.server_reflection_info(questions).await.unwrap().into_inner();
    let mut answer = async || answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(listed) = answer().await else { panic!("services") };
    assert!(listed.service.iter().any(|service| service.name == "pb.DataplaneEvents"), "{listed:?}");
    let MessageResponse::FileDescriptorResponse(files) = answer().await else { panic!("a file") };
    let read = |bytes: &Vec<u8>| prost_types::FileDescriptorProto::decode(&bytes[..]).unwrap();
    let files: Vec<_> = files.file_descriptor_proto.iter().map(read).collect();
    let messages: Vec<_> = files.iter().flat_map(|file| &file.message_type).map(|one| one.name()).collect();
    for name in ["DatapathPodMetadata", "Events", "Event"] {
        assert!(messages.contains(&name), "{messages:?}");
    }
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_id_is_invalid_and_another_ones_id_is_denied() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    for (id, code) in
        [("", Code::InvalidArgument), ("n2", Code::PermissionDenied), ("n\n", Code::InvalidArgument)]
    {
        let mut client = OriginalClient::connect(&harness, &credential, id).await;
        assert_eq!(client.step().await.unwrap_err().code(), code, "{id:?}");
    }
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_of_many_members_comes_in_parts_below_four_mebibytes() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    let members: Vec<_> = (0..50_000).map(|n| format!("workload-with-a-long-name-{n}")).collect();
    let names: Vec<_> = members.iter().map(String::as_str).collect();
    harness.publish([set("big", &names, SpanChange::Everyone)]);
    // A client with gRPC's default limit of 4 MiB.
    let mut client = OriginalClient::connect(&harness, &credential, "n1").await;
    let heard = client.step().await.unwrap();
    assert_eq!(heard.iter().filter_map(|(.., members)| *members).sum::<usize>(), 50_000);
    assert!(heard.len() > 10);
    harness.stop().await;
}

async fn apply(harness: &Harness, documents: &[Value]) {
    let documents = documents.iter().map(|document| document.to_string().into_bytes()).collect();
    let request = ApplyObjectsRequest { documents, ..ApplyObjectsRequest::default() };
    ObjectsClient::new(harness.channel(None).await).apply_objects(harness.as_admin(request)).await.unwrap();
}

fn pod(namespace: &str, name: &str, node: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": namespace, "name": name },
        "spec": { "nodeName": node }, "status": { "podIPs": [{ "ip": address }] },
    })
}

fn isolation(name: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "namespace": "shop", "name": name },
        "spec": { "podSelector": {}, "policyTypes": ["Ingress"] },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataplane_is_its_node_by_its_pod_and_nobody_by_another_name() {
    let harness = Harness::synced().await;
    apply(
        &harness,
        &[pod("kube-system", "npm-x7k2p", "n1", "10.0.0.1"), pod("shop", "web", "n2", "10.0.0.2")],
    )
    .await;
    let credential = harness.node("n1").await;
    eventually("the node", || harness.controller.transport().hub.knows("n1")).await;
    for id in ["n1", "npm-x7k2p", "kube-system/npm-x7k2p"] {
        let mut client = OriginalClient::announce(&harness, &credential, id).await;
        client.step().await.unwrap();
        assert!(client.complete && harness.session("n1").unwrap().connected, "{id}");
    }
    // A Pod elsewhere is another node; and a certificate alone makes no node.
    let mut elsewhere = OriginalClient::announce(&harness, &credential, "web").await;
    assert_eq!(elsewhere.step().await.unwrap_err().code(), Code::PermissionDenied);
    let stranger = harness.node("npm-gone").await;
    let mut nobody = OriginalClient::announce(&harness, &stranger, "npm-gone").await;
    let refused = nobody.step().await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert!(refused.message().starts_with("there is no node npm-gone"), "{refused}");
    harness.stop().await;
}

/// Addresses of the members of the sets that policies are applied to.
fn enforced(message: &Events) -> Vec<String> {
    let text = |value: &prost_types::Value| match &value.kind {
        Some(Kind::StringValue(text)) => text.clone(),
        other => panic!("{other:?}"),
    };
    let list = |value: &prost_types::Value| match &value.kind {
        Some(Kind::ListValue(list)) => list.values.clone(),
        other => panic!("{other:?}"),
    };
    let sets = message.event.iter().flat_map(|event| &event.data);
    let sets = sets.filter(|set| set.fields.get("type").is_some_and(|kind| text(kind) == "applied-to"));
    let members = sets.flat_map(|set| list(&set.fields["members"]));
    let addresses = members.flat_map(|member| match &member.kind {
        Some(Kind::StructValue(member)) => member.fields.get("addresses").map(list).unwrap_or_default(),
        other => panic!("{other:?}"),
    });
    addresses.map(|address| text(&address)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whom_a_policy_is_applied_to_comes_with_its_addresses_also_when_they_change() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    apply(&harness, &[pod("shop", "web", "n1", "10.0.0.1"), isolation("closed")]).await;
    eventually("the node", || harness.controller.transport().hub.knows("n1")).await;
    let mut client = OriginalClient::announce(&harness, &credential, "n1").await;
    for wanted in ["10.0.0.1", "10.0.0.9"] {
        let mut seen = Vec::new();
        while seen != [wanted] {
            let next = tokio::time::timeout(Duration::from_secs(60), client.stream.message()).await;
            let addresses = enforced(&next.expect("it is told").unwrap().unwrap());
            seen = if addresses.is_empty() { seen } else { addresses };
        }
        apply(&harness, &[pod("shop", "web", "n1", "10.0.0.9")]).await;
    }
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_went_while_a_client_was_away_over_a_restart_is_removed_when_it_is_back() {
    let harness = Harness::synced().await;
    let credential = harness.node("n1").await;
    apply(&harness, &[pod("shop", "web", "n1", "10.0.0.1"), isolation("stays"), isolation("goes")]).await;
    eventually("the node", || harness.controller.transport().hub.knows("n1")).await;
    let policies = |heard: &[Heard], kind: &str| -> BTreeSet<String> {
        let of = heard.iter().filter(|(what, object, ..)| (*what, *object) == (kind, "POLICY"));
        of.map(|(.., name, _)| name.clone()).collect()
    };
    let mut had = BTreeSet::new();
    let mut client = OriginalClient::announce(&harness, &credential, "n1").await;
    while had.len() < 2 {
        had.extend(policies(&client.step().await.unwrap(), "APPLY"));
    }
    drop(client);
    let object = ObjectRef { kind: "NetworkPolicy".into(), namespace: "shop".into(), name: "goes".into() };
    let request = DeleteObjectsRequest { objects: vec![object], ..Default::default() };
    let mut objects = ObjectsClient::new(harness.channel(None).await);
    objects.delete_objects(harness.as_admin(request)).await.unwrap();
    let harness = harness.restart().await;
    harness.source.synced();
    let mut client = OriginalClient::announce(&harness, &credential, "n1").await;
    let heard = client.step().await.unwrap();
    let (there, gone) = (policies(&heard, "APPLY"), policies(&heard, "REMOVE"));
    assert_eq!((there.len(), gone.len()), (1, 1), "{heard:?}");
    assert_eq!(&there | &gone, had);
    harness.stop().await;
}
