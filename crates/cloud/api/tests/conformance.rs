//! The fake cloud keeps the contract, in this process and through gRPC.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{collections::BTreeSet, sync::Arc};

use cloud_api::{
    At, CloudErrorKind, FakeCloud, Faults, Machine, ResourceSpec,
    conformance::{Existing, Subject, run},
    grpc::{PluginService, RemoteCloud, connect},
    prelude::*,
};
use model::{CloudTraits, Direction, EntryName, PermitEntry, Ports, Protocol, Traffic};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Code,
    transport::{Channel, Endpoint, Server},
};
use wire::{
    invisinetspb::{
        CreateVpnBgpSessionsRequest, InvisinetsDeployment, PermitList, PermitListRule, ResourceDescription,
        ResourceId, cloud_plugin_client::CloudPluginClient, cloud_plugin_server::CloudPluginServer,
    },
    trestle::v1::cloud_extension_server::CloudExtensionServer,
};

fn subject(cloud: &dyn Cloud) -> Subject<'_> {
    let descriptions = ["west small".to_owned(), "east small".to_owned()];
    let existing = Some(Existing { id: "vm-1".to_owned(), space: space() });
    Subject { existing, ..Subject::new(cloud, at(), descriptions, "west network".to_owned()) }
}

fn space() -> ipnet::Ipv4Net {
    "172.16.0.0/20".parse().unwrap()
}

fn at() -> At {
    At { site: "ns.azure".parse().unwrap(), deployment: "/subscriptions/s".to_owned() }
}

fn fake() -> Arc<FakeCloud> {
    let fake = Arc::new(FakeCloud::new("azure".parse().unwrap()));
    let machine =
        Machine { network: "west-theirs".parse().unwrap(), space: space(), address: [172, 16, 0, 7].into() };
    fake.put_machine("vm-1", machine);
    fake
}

async fn serve(cloud: Arc<FakeCloud>, with_extension: bool) -> Channel {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = PluginService::new("azure".parse().unwrap(), cloud);
    let extension = with_extension.then(|| CloudExtensionServer::new(service.clone()));
    let router =
        Server::builder().add_service(CloudPluginServer::new(service)).add_optional_service(extension);
    tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    Endpoint::from_shared(url).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn the_fake_cloud_keeps_the_contract() {
    let fake = fake();
    run(&subject(&*fake)).await.unwrap();
    assert!(fake.is_empty());
}

#[tokio::test]
async fn a_cloud_behind_grpc_is_the_cloud_itself() {
    let fake = fake();
    let remote = RemoteCloud::new(serve(Arc::clone(&fake), true).await);
    run(&subject(&remote)).await.unwrap();
    let clusters = ["west cluster".to_owned(), "east cluster".to_owned()];
    run(&Subject { descriptions: clusters, ..subject(&remote) }).await.unwrap();
    assert!(fake.is_empty());
    assert_eq!(remote.describe().await, fake.describe().await);
}

fn entry(name: &str, target: &str) -> PermitEntry {
    let traffic = Traffic::new(Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(22)).unwrap();
    let targets = [target.parse().unwrap()].into();
    PermitEntry::new(EntryName::reported(name), traffic, targets, BTreeSet::new()).unwrap()
}

#[tokio::test]
async fn a_plugin_of_paraglider_can_be_used_and_says_what_it_cannot_do() {
    let fake = fake();
    let bounds = CloudTraits { tunnels: 7, ..CloudTraits::default() };
    let original = connect(serve(Arc::clone(&fake), false).await, bounds.clone(), None).await.unwrap().cloud;
    let traits = original.describe().await.unwrap();
    assert_eq!(traits.tunnels, 7, "what it cannot say is taken as known");
    assert!(traits.places_resources && !traits.deletes && !traits.lists_everything && !traits.names_entries);
    let region = original.inspect_resource(&at(), &"vm".parse().unwrap(), "west").await.unwrap();
    assert_eq!(region.as_str(), "default");
    // Such a plugin makes its own network when it makes a resource.
    original.ensure_network(&at(), &region, "10.0.0.0/16".parse().unwrap()).await.unwrap();
    fake.ensure_network(&at(), &region, "10.0.0.0/16".parse().unwrap()).await.unwrap();
    let spec = ResourceSpec { name: "vm".parse().unwrap(), region, description: "default".to_owned() };
    let made = original.create_resource(&at(), &spec).await.unwrap();
    assert!(original.permit_list(&at(), &made.uri).await.unwrap().is_empty());
    assert_eq!(original.list(&at()).await.unwrap().networks.len(), 1);

    // Of a list, the plugin is told what is new and what goes, and is not asked what is there.
    let [a, b, c] = [entry("a", "10.0.0.1"), entry("b", "10.0.0.2"), entry("c", "10.0.0.3")];
    fake.take_calls();
    for (before, wanted, calls) in
        [(vec![], vec![&a, &b], 1), (vec![&a, &b], vec![&b, &c], 2), (vec![&b, &c], vec![&b, &c], 0)]
    {
        let [before, wanted] = [before, wanted].map(|list| list.into_iter().cloned().collect::<Vec<_>>());
        original.put_list(&at(), &made.uri, &before, &wanted).await.unwrap();
        let mut told = fake.take_calls();
        // Whoever deletes by content looks what is there; that is the plugin, not the one who tells it.
        told.retain(|call| *call != "permit_list");
        assert_eq!(told, vec!["put_list"; calls]);
        assert_eq!(original.permit_list(&at(), &made.uri).await.unwrap(), wanted);
        fake.take_calls();
    }

    let err = original.delete_resource(&at(), &spec.name).await.unwrap_err();
    assert_eq!(err.kind, CloudErrorKind::Unsupported);
    assert!(err.message.contains("CloudExtension"), "{err}");

    // One that describes itself is asked for everything.
    let remote = connect(serve(Arc::clone(&fake), true).await, bounds, None).await.unwrap().cloud;
    assert_eq!(remote.describe().await, fake.describe().await);
    fake.take_calls();
    remote.put_list(&at(), &made.uri, &[b, c], &[a]).await.unwrap();
    assert_eq!(fake.take_calls(), ["put_list"], "one call puts a list");
}

/// Who knows Paraglider's protocol only is served by a plugin of ours.
#[tokio::test]
async fn an_orchestrator_of_paraglider_is_served_by_a_plugin_of_ours() {
    let fake = fake();
    let mut plugin = CloudPluginClient::new(serve(Arc::clone(&fake), false).await);
    let namespace = || "ns".to_owned();
    let region = "west".parse().unwrap();
    fake.ensure_network(&At { deployment: String::new(), ..at() }, &region, "10.0.0.0/16".parse().unwrap())
        .await
        .unwrap();
    // The resource is named by its id, and there is no field of ours.
    let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm".to_owned();
    let description = ResourceDescription {
        id,
        description: b"west".to_vec(),
        namespace: namespace(),
        ..Default::default()
    };
    let made = plugin.create_resource(description).await.unwrap().into_inner();
    assert_eq!(made.name, "vm");
    let deployment = InvisinetsDeployment { namespace: namespace(), ..Default::default() };
    let gateway = plugin.create_vpn_gateway(deployment.clone()).await.unwrap().into_inner();
    assert_ne!(gateway.asn, 0);
    assert_eq!(plugin.create_vpn_gateway(deployment.clone()).await.unwrap().into_inner().asn, gateway.asn);
    let sessions = CreateVpnBgpSessionsRequest {
        deployment: Some(deployment),
        cloud: "gcp".to_owned(),
        ..Default::default()
    };
    assert!(
        !plugin.create_vpn_bgp_sessions(sessions).await.unwrap().into_inner().bgp_ip_addresses.is_empty()
    );

    // A rule that was added with an id is deleted by its content alone.
    let rule = PermitListRule {
        id: "ssh".into(),
        targets: vec!["10.0.0.9".into()],
        src_port: -1,
        dst_port: 22,
        protocol: 6,
        ..Default::default()
    };
    let list = |rule: &PermitListRule| PermitList {
        associated_resource: made.uri.clone(),
        rules: vec![rule.clone()],
        namespace: namespace(),
        ..Default::default()
    };
    plugin.add_permit_list_rules(list(&rule)).await.unwrap();
    let other = PermitListRule { dst_port: 23, ..rule.clone() };
    let refused = plugin.delete_permit_list_rules(list(&other)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "success would say that the rule is gone");
    let nameless = PermitListRule { id: String::new(), ..rule };
    for _ in 0..2 {
        plugin.delete_permit_list_rules(list(&nameless)).await.unwrap();
        let id = ResourceId { id: made.uri.clone(), namespace: namespace(), deployment: None };
        assert!(plugin.get_permit_list(id).await.unwrap().into_inner().rules.is_empty());
    }
}

/// The suite can fail: a cloud with faults breaks a promise.
#[tokio::test]
async fn a_faulty_cloud_does_not_pass() {
    for faults in [
        Faults { old: 500, seed: 3, ..Faults::default() },
        Faults { half: 500, seed: 3, ..Faults::default() },
        Faults { before: 300, seed: 3, ..Faults::default() },
    ] {
        let fake = fake();
        fake.set_faults(faults);
        run(&subject(&*fake)).await.unwrap_err();
    }
}
