//! The wire, pinned: bytes that clients built from the originals' own texts send and expect.
//!
//! Each case was written by hand from the original protocols' field numbers, not taken from our encoder.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use prost::Message;
use prost_types::{Struct, Value, value::Kind};
use wire::{invisinetspb, k8s::io::apimachinery::pkg::api::resource::Quantity, pb, provider, tagservicepb};

#[track_caller]
fn same<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, bytes: &[u8]) {
    assert_eq!(message.encode_to_vec(), bytes);
    assert_eq!(&M::decode(bytes).unwrap(), message);
}

#[test]
fn tag_mapping_of_a_leaf() {
    let leaf = tagservicepb::TagMapping {
        tag_name: "web".into(),
        child_tags: vec![],
        uri: Some("u".into()),
        ip: Some("1.2.3.4".into()),
    };
    same(&leaf, b"\x0a\x03web\x1a\x01u\x22\x071.2.3.4");
}

#[test]
fn tag_mapping_of_a_group() {
    let group = tagservicepb::TagMapping {
        tag_name: "g".into(),
        child_tags: vec!["a".into(), "10.0.0.0/8".into()],
        uri: None,
        ip: None,
    };
    same(&group, b"\x0a\x01g\x12\x01a\x12\x0a10.0.0.0/8");
}

#[test]
fn an_empty_uri_is_present_on_the_wire() {
    let leaf = tagservicepb::TagMapping { uri: Some(String::new()), ..Default::default() };
    same(&leaf, b"\x1a\x00");
}

#[test]
fn tag_service_replies() {
    same(&tagservicepb::BasicResponse { success: true, message: "ok".into() }, b"\x08\x01\x12\x02ok");
    same(&tagservicepb::SubscriberList { subscribers: vec!["a>b>c".into()] }, b"\x0a\x05a>b>c");
    same(&tagservicepb::Subscription { tag_name: "t".into(), subscriber: "s".into() }, b"\x0a\x01t\x12\x01s");
    let leaf = tagservicepb::TagMapping { tag_name: "t".into(), ..Default::default() };
    same(&tagservicepb::TagMappingList { mappings: vec![leaf.clone()] }, b"\x0a\x03\x0a\x01t");
    // Later clients list tags with this reply.
    same(&tagservicepb::ListTagsResponse { tags: vec![leaf] }, b"\x0a\x03\x0a\x01t");
}

#[test]
fn permit_list_with_any_port_and_protocol() {
    let list = invisinetspb::PermitList {
        associated_resource: "r".into(),
        rules: vec![invisinetspb::PermitListRule {
            id: "i".into(),
            targets: vec!["10.0.0.1".into()],
            direction: invisinetspb::Direction::Outbound as i32,
            src_port: -1,
            dst_port: 443,
            protocol: 6,
            tags: vec!["t".into()],
            ..Default::default()
        }],
        namespace: "n".into(),
        ..Default::default()
    };
    let bytes = b"\x0a\x01r\x12\x22\x0a\x01i\x12\x0810.0.0.1\x18\x01\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x28\xbb\x03\x30\x06\x3a\x01t\x1a\x01n";
    same(&list, bytes);
}

#[test]
fn connect_clouds_carries_address_spaces_before_namespaces() {
    let request = invisinetspb::ConnectCloudsRequest {
        cloud_a: "a".into(),
        cloud_b: "b".into(),
        cloud_a_address_space: "c".into(),
        cloud_b_address_space: "d".into(),
        cloud_a_namespace: "e".into(),
        cloud_b_namespace: "f".into(),
    };
    same(&request, b"\x0a\x01a\x12\x01b\x1a\x01c\x22\x01d\x2a\x01e\x32\x01f");
}

#[test]
fn vpn_messages() {
    let gateway =
        invisinetspb::CreateVpnGatewayResponse { gateway_ip_addresses: vec!["1.1.1.1".into()], asn: 65515 };
    same(&gateway, b"\x0a\x071.1.1.1\x10\xeb\xff\x03");
    let connections = invisinetspb::CreateVpnConnectionsRequest {
        deployment: Some(invisinetspb::InvisinetsDeployment {
            id: "d".into(),
            namespace: "n".into(),
            ..Default::default()
        }),
        cloud: "gcp".into(),
        asn: 64512,
        address_space: "s".into(),
        gateway_ip_addresses: vec!["g".into()],
        bgp_ip_addresses: vec!["b".into()],
        shared_key: "k".into(),
        ..Default::default()
    };
    same(
        &connections,
        b"\x0a\x06\x0a\x01d\x12\x01n\x12\x03gcp\x18\x80\xf8\x03\x22\x01s\x2a\x01g\x32\x01b\x3a\x01k",
    );
}

#[test]
fn events_omit_apply_and_ipset_because_both_are_zero() {
    let data =
        Struct { fields: [("k".to_owned(), Value { kind: Some(Kind::StringValue("v".into())) })].into() };
    let events = pb::Events {
        r#type: pb::events::EventType::Apply as i32,
        object: pb::events::ObjectType::Ipset as i32,
        event: vec![pb::Event { data: vec![data] }],
        ..pb::Events::default()
    };
    same(&events, b"\x1a\x0c\x1a\x0a\x0a\x08\x0a\x01k\x12\x03\x1a\x01v");
    let removal = pb::Events { r#type: 1, object: 1, ..pb::Events::default() };
    same(&removal, b"\x08\x01\x10\x01");
    same(&pb::DatapathPodMetadata { id: "pod".into() }, b"\x0a\x03pod");
}

#[test]
fn capacity_is_a_quantity_message() {
    let request = provider::OnBoardConsumerRequest {
        token: String::new(),
        capacity: Some(Quantity { string: Some("1Ti".into()) }),
        sources: vec![],
    };
    same(&request, b"\x12\x05\x0a\x031Ti");
    // What the originals do not have is far from what it has.
    let further = provider::OnBoardConsumerRequest { sources: vec!["::1".into()], ..Default::default() };
    same(&further, b"\x82\x01\x03::1");
    let reply =
        provider::UpdateCapacityResponse { granted_capacity: Some(Quantity { string: Some("5G".into()) }) };
    same(&reply, b"\x12\x04\x0a\x025G");
}

#[test]
fn methods_have_the_seeds_paths() {
    let files = prost_types::FileDescriptorSet::decode(wire::DESCRIPTORS).unwrap().file;
    let methods: Vec<String> = files
        .iter()
        .flat_map(|file| file.service.iter().map(move |service| (file.package(), service)))
        .flat_map(|(package, service)| {
            service
                .method
                .iter()
                .map(move |method| format!("/{package}.{}/{}", service.name(), method.name()))
        })
        .collect();
    for path in [
        "/tagservicepb.TagService/SetTag",
        "/tagservicepb.TagService/GetTag",
        "/tagservicepb.TagService/ResolveTag",
        "/tagservicepb.TagService/DeleteTagMember",
        "/tagservicepb.TagService/DeleteTag",
        "/tagservicepb.TagService/Subscribe",
        "/tagservicepb.TagService/Unsubscribe",
        "/tagservicepb.TagService/GetSubscribers",
        "/invisinetspb.Controller/FindUnusedAddressSpace",
        "/invisinetspb.Controller/GetUsedAddressSpaces",
        "/invisinetspb.Controller/ConnectClouds",
        "/invisinetspb.CloudPlugin/GetUsedAddressSpaces",
        "/invisinetspb.CloudPlugin/CreateResource",
        "/invisinetspb.CloudPlugin/GetPermitList",
        "/invisinetspb.CloudPlugin/AddPermitListRules",
        "/invisinetspb.CloudPlugin/DeletePermitListRules",
        "/invisinetspb.CloudPlugin/CreateVpnGateway",
        "/invisinetspb.CloudPlugin/CreateVpnBgpSessions",
        "/invisinetspb.CloudPlugin/CreateVpnConnections",
        "/pb.DataplaneEvents/Connect",
        "/protos.DataplaneEvents/Connect",
        "/provider.OCSProvider/OnBoardConsumer",
        "/provider.OCSProvider/OnboardConsumer",
        "/provider.OCSProvider/GetStorageConfig",
        "/provider.OCSProvider/UpdateCapacity",
        "/provider.OCSProvider/OffboardConsumer",
        "/provider.OCSProvider/OffBoardConsumer",
        "/provider.OCSProvider/AcknowledgeOnboarding",
        "/provider.OCSProvider/GetDesiredClientState",
        "/provider.OCSProvider/ReportStatus",
        "/provider.OCSProvider/GetClientAlerts",
        "/provider.OCSProvider/FulfillStorageClassClaim",
        "/provider.OCSProvider/FulfillStorageClaim",
    ] {
        assert!(methods.iter().any(|method| method == path), "{path} is not in proto/");
    }
}
