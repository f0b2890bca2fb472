//! `pb.DataplaneEvents/Connect` as a client sees it that knows only Azure NPM.

use std::time::Duration;

use prost::Message;
use prost_types::{Struct, value::Kind};
use tonic::{Code, Status, Streaming};
use transport::SpanChange;
use wire::{
    pb::{DatapathPodMetadata, Events, dataplane_events_client::DataplaneEventsClient},
    trestle::v1::ObjectKind,
};

use testkit_controllers::{
    controller::Credential,
    nodes::{Harness, change, nodes, policy, set},
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
    pub async fn connect(harness: &Harness, credential: &Credential, id: &str) -> Self {
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
