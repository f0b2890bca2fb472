//! Plugins of each published revision of Paraglider's protocol, which tell what they understood: none is taken for another,
//! none acts on a question, and nothing arrives in another field.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{
    collections::BTreeSet,
    convert::Infallible,
    fmt::Debug,
    future::{Ready, ready},
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use cloud_api::{
    At, Cloud, CloudErrorKind, ResourceSpec,
    grpc::{Revision, connect},
};
use model::{
    CloudTraits, ConnectionSpec, Direction, EntryName, PermitEntry, Ports, Protocol, Secret, Traffic,
};
use prost::Message;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::{BoxFuture, Service, http},
    server::{NamedService, UnaryService},
    transport::{Channel, Endpoint, Server},
};
use wire::{invisinetspb as first, paragliderpb as today, revisions::second, revisions::third};

/// What a plugin understood: the method and the message, as its own revision has them.
type Said = Arc<Mutex<Vec<String>>>;

#[derive(Clone)]
struct Plugin<const TODAY: bool> {
    revision: Option<Revision>,
    said: Said,
}

impl NamedService for Plugin<false> {
    const NAME: &'static str = "invisinetspb.CloudPlugin";
}

impl NamedService for Plugin<true> {
    const NAME: &'static str = "paragliderpb.CloudPlugin";
}

struct Method<R> {
    name: String,
    said: Said,
    reply: R,
}

impl<Q: Message + Debug, R: Message + Clone + 'static> UnaryService<Q> for Method<R> {
    type Response = R;
    type Future = Ready<Result<Response<R>, Status>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        self.said.lock().unwrap().push(format!("{} {:?}", self.name, request.into_inner()));
        ready(Ok(Response::new(self.reply.clone())))
    }
}

impl<const TODAY: bool> Service<http::Request<Body>> for Plugin<TODAY> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let name = request.uri().path().rsplit('/').next().unwrap().to_owned();
        let said = Arc::clone(&self.said);
        macro_rules! methods {
            ($($method:literal: $request:ty => $reply:expr;)*) => {
                match name.as_str() {
                    $($method => Box::pin(async move {
                        let codec = tonic_prost::ProstCodec::<_, $request>::default();
                        let method = Method { name, said, reply: $reply };
                        Ok(tonic::server::Grpc::new(codec).unary(method, request).await)
                    }),)*
                    _ => Box::pin(async move { Ok(Status::unimplemented(name).into_http()) }),
                }
            };
        }
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let good = || first::BasicResponse { success: true, ..Default::default() };
        let (uri, ip, gateways) = ("vm".to_owned(), "10.0.0.4".to_owned(), texts(&["198.51.100.1"]));
        match self.revision {
            Some(Revision::First) => methods! {
                "GetUsedAddressSpaces": first::InvisinetsDeployment
                    => first::AddressSpaceList { address_spaces: texts(&["10.7.0.0/16"]) };
                "CreateResource": first::ResourceDescription
                    => first::CreateResourceResponse { uri, ip, ..Default::default() };
                "AddPermitListRules": first::PermitList => good();
                "DeletePermitListRules": first::PermitList => good();
                "CreateVpnBgpSessions": first::CreateVpnBgpSessionsRequest
                    => first::CreateVpnBgpSessionsResponse { bgp_ip_addresses: vec![] };
                "CreateVpnConnections": first::CreateVpnConnectionsRequest => good();
            },
            Some(Revision::Second) => methods! {
                "GetUsedAddressSpaces": first::InvisinetsDeployment
                    => first::AddressSpaceList { address_spaces: texts(&["10.7.0.0/16"]) };
                "CreateResource": first::ResourceDescription
                    => first::CreateResourceResponse { uri, ip, ..Default::default() };
                "AddPermitListRules": first::PermitList => good();
                "DeletePermitListRules": first::PermitList => good();
                "CreateVpnBgpSessions": first::CreateVpnBgpSessionsRequest
                    => first::CreateVpnBgpSessionsResponse { bgp_ip_addresses: vec![] };
                "CreateVpnConnections": second::CreateVpnConnectionsRequest => good();
            },
            Some(Revision::Third) => methods! {
                "GetUsedAddressSpaces": third::GetUsedAddressSpacesRequest
                    => third::GetUsedAddressSpacesResponse { address_space_mappings: vec![third::AddressSpaceMapping {
                        address_spaces: texts(&["10.7.0.0/16"]), ..Default::default() }] };
                "GetUsedBgpPeeringIpAddresses": third::GetUsedBgpPeeringIpAddressesRequest
                    => third::GetUsedBgpPeeringIpAddressesResponse::default();
                "CreateResource": third::ResourceDescription
                    => third::CreateResourceResponse { uri, ip, ..Default::default() };
                "GetPermitList": third::GetPermitListRequest
                    => third::GetPermitListResponse { rules: vec![third::PermitListRule {
                        id: "nsg/1".into(), name: "old".into(), targets: texts(&["10.0.0.9"]), protocol: 6,
                        src_port: -1, dst_port: 22, ..Default::default() }] };
                "AddPermitListRules": third::AddPermitListRulesRequest
                    => third::AddPermitListRulesResponse {};
                "DeletePermitListRules": third::DeletePermitListRulesRequest
                    => third::DeletePermitListRulesResponse {};
                "CreateVpnGateway": third::CreateVpnGatewayRequest
                    => third::CreateVpnGatewayResponse { asn: 64600, gateway_ip_addresses: gateways };
                "CreateVpnConnections": third::CreateVpnConnectionsRequest => good();
            },
            Some(Revision::Today) => methods! {
                "GetUsedAddressSpaces": today::GetUsedAddressSpacesRequest
                    => today::GetUsedAddressSpacesResponse { address_space_mappings: vec![today::AddressSpaceMapping {
                        address_spaces: texts(&["10.7.0.0/16"]), ..Default::default() }] };
                "GetNetworkAddressSpaces": today::GetNetworkAddressSpacesRequest
                    => today::GetNetworkAddressSpacesResponse::default();
                "CreateResource": today::CreateResourceRequest
                    => today::CreateResourceResponse { uri, ip, ..Default::default() };
                "AttachResource": today::AttachResourceRequest
                    => today::AttachResourceResponse { uri, ip, ..Default::default() };
                "GetPermitList": today::GetPermitListRequest
                    => today::GetPermitListResponse { rules: vec![today::PermitListRule {
                        name: "old".into(), targets: texts(&["10.0.0.9"]), protocol: 6, src_port: -1, dst_port: 22,
                        ..Default::default() }] };
                "AddPermitListRules": today::AddPermitListRulesRequest
                    => today::AddPermitListRulesResponse {};
                "DeletePermitListRules": today::DeletePermitListRulesRequest
                    => today::DeletePermitListRulesResponse {};
                "CreateVpnGateway": today::CreateVpnGatewayRequest
                    => today::CreateVpnGatewayResponse { asn: 64600, gateway_ip_addresses: gateways };
                "CreateVpnConnections": today::CreateVpnConnectionsRequest
                    => today::CreateVpnConnectionsResponse {};
            },
            // One that was never released: rules have names, but where their tags are nobody knows.
            None => methods! {
                "CreateVpnConnections": third::CreateVpnConnectionsRequest => good();
                "AddPermitListRules": first::PermitList => good();
                "GetUsedAddressSpaces": first::InvisinetsDeployment => first::AddressSpaceList::default();
            },
        }
    }
}

async fn serve(revision: Option<Revision>) -> (Channel, Said) {
    let (listener, said) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Said::default());
    let url = format!("http://{}", listener.local_addr().unwrap());
    let incoming = TcpListenerStream::new(listener);
    match revision {
        Some(Revision::Today) => {
            let plugin = Plugin::<true> { revision, said: Arc::clone(&said) };
            tokio::spawn(Server::builder().add_service(plugin).serve_with_incoming(incoming));
        }
        _ => {
            let plugin = Plugin::<false> { revision, said: Arc::clone(&said) };
            tokio::spawn(Server::builder().add_service(plugin).serve_with_incoming(incoming));
        }
    }
    (Endpoint::from_shared(url).unwrap().connect().await.unwrap(), said)
}

fn take(said: &Said) -> Vec<String> {
    std::mem::take(&mut said.lock().unwrap())
}

fn at() -> At {
    At { site: "ns.azure".parse().unwrap(), deployment: "/subscriptions/s".to_owned() }
}

fn entry(name: &str, port: u16) -> PermitEntry {
    let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(port)).unwrap();
    let (targets, tags) = (["10.0.0.9".parse().unwrap()].into(), BTreeSet::from(["peer".to_owned()]));
    PermitEntry::new(EntryName::reported(name), traffic, targets, tags).unwrap()
}

fn link() -> ConnectionSpec {
    ConnectionSpec {
        site: "ns.azure".parse().unwrap(),
        peer: "ns.gcp".parse().unwrap(),
        peer_asn: 64512,
        peer_addresses: vec!["203.0.113.3".parse().unwrap()],
        local_bgp: vec!["169.254.21.1".parse().unwrap()],
        peer_bgp: vec!["169.254.21.2".parse().unwrap()],
        peer_spaces: vec!["10.1.0.0/16".parse().unwrap()],
        bgp: true,
        shared_key: Secret::new("the-key"),
    }
}

const ALL: [Revision; 4] = [Revision::First, Revision::Second, Revision::Third, Revision::Today];

/// Makes a resource, a list and a link, and answers what the plugin understood of each.
async fn story(cloud: &dyn Cloud, said: &Said) -> [String; 3] {
    let (at, name) = (at(), "vm-1".parse().unwrap());
    let region = cloud.inspect_resource(&at, &name, "{}").await.unwrap();
    let spec = ResourceSpec { name, region, description: "{}".to_owned() };
    assert_eq!(cloud.create_resource(&at, &spec).await.unwrap().address, "10.0.0.4".parse().unwrap());
    let created = take(said).join("\n");
    cloud.put_list(&at, "vm", &[entry("old", 22), entry("same", 80)], &[entry("same", 81)]).await.unwrap();
    let listed = take(said).join("\n");
    assert_eq!(cloud.list(&at).await.unwrap().networks[0].1, "10.7.0.0/16".parse().unwrap());
    take(said);
    assert_eq!(cloud.create_bgp_sessions(&at, &link()).await.unwrap(), [] as [std::net::Ipv4Addr; 0]);
    if let Some(gateway) = cloud.gateway_towards(&at, &link()).await.unwrap() {
        assert_eq!(gateway.asn, 64600);
    }
    cloud.create_connections(&at, &link()).await.unwrap();
    [created, listed, take(said).join("\n")]
}

#[tokio::test]
async fn each_revision_is_told_apart_and_spoken_to_in_its_own_fields() {
    for revision in ALL {
        let (channel, said) = serve(Some(revision)).await;
        let connected = connect(channel.clone(), CloudTraits::default(), None).await.unwrap();
        assert_eq!(connected.revision, Some(revision));
        let cloud = connected.cloud;
        assert_eq!(take(&said), [] as [&str; 0], "{revision}: no plugin acts on a question");
        let told = story(&*cloud, &said).await;
        let [created, listed, linked] = &told;
        assert!(created.contains("vm-1") && created.contains("\"ns\""), "{revision}: {created}");
        assert!(
            listed.contains("dst_port: 81") && listed.contains(r#"tags: ["peer"]"#),
            "{revision}: {listed}"
        );
        assert!(listed.contains(r#"targets: ["10.0.0.9"]"#), "{revision}: {listed}");
        for field in [
            r#"cloud: "gcp""#,
            "asn: 64512",
            r#"gateway_ip_addresses: ["203.0.113.3"]"#,
            r#"bgp_ip_addresses: ["169.254.21.2"]"#,
            r#"shared_key: "the-key""#,
        ] {
            assert!(linked.contains(field), "{revision}: {field} in {linked}");
        }
        // Said by hand, it is not asked at all.
        let cloud = connect(channel, CloudTraits::default(), Some(revision)).await.unwrap().cloud;
        assert_eq!(story(&*cloud, &said).await, told, "{revision}");
    }
}

#[tokio::test]
async fn rules_go_by_content_in_the_first_two_revisions_and_by_name_since() {
    for revision in ALL {
        let (channel, said) = serve(Some(revision)).await;
        let cloud = connect(channel, CloudTraits::default(), None).await.unwrap().cloud;
        let before = [entry("old", 22), entry("same", 80)];
        cloud.put_list(&at(), "vm", &before, &[entry("same", 81)]).await.unwrap();
        let calls = take(&said);
        let calls: Vec<&str> = calls.iter().map(|call| call.split(' ').next().unwrap()).collect();
        let expected: &[&str] = match revision {
            // A plugin that goes by ids has deleted the new one with the old: it is told once more.
            Revision::First | Revision::Second => {
                &["AddPermitListRules", "DeletePermitListRules", "AddPermitListRules"]
            }
            Revision::Third | Revision::Today => {
                &["AddPermitListRules", "GetPermitList", "DeletePermitListRules"]
            }
        };
        assert_eq!(calls, expected, "{revision}");
        let traffic =
            Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::Range { first: 80, last: 90 });
        let targets = BTreeSet::from(["10.0.0.9".parse().unwrap()]);
        let range = PermitEntry::new(EntryName::reported("r"), traffic.unwrap(), targets, BTreeSet::new());
        let refused = cloud.put_list(&at(), "vm", &[], &[range.unwrap()]).await.unwrap_err();
        assert_eq!(refused.kind, CloudErrorKind::Unsupported, "a range is not cut to its first port");
        assert_eq!(take(&said), [] as [&str; 0]);
    }
}

#[tokio::test]
async fn what_cannot_be_told_for_sure_is_refused() {
    let (channel, said) = serve(None).await;
    let Err(refused) = connect(channel.clone(), CloudTraits::default(), None).await else {
        panic!("guessed")
    };
    assert!(refused.message.contains("revision"), "{refused}");
    assert_eq!(take(&said), [] as [&str; 0]);
    connect(channel, CloudTraits::default(), Some(Revision::Second)).await.unwrap();
}

/// Attaching is today's alone.
#[tokio::test]
async fn plugins_of_today_attach() {
    let (channel, said) = serve(Some(Revision::Today)).await;
    let cloud = connect(channel, CloudTraits::default(), None).await.unwrap().cloud;
    let found = cloud.inspect_attachment(&at(), "theirs").await.unwrap();
    assert!(found.network.is_none() && !found.changes.is_empty());
    assert_eq!(take(&said), [] as [&str; 0], "a look changes nothing");
    cloud.attach_resource(&at(), &"vm".parse().unwrap(), "theirs").await.unwrap();
    assert!(take(&said)[0].contains(r#"resource: "theirs""#));
}
