//! What the storage answers, through a real socket and a real controller: repeated, at once, out of order, and wrong.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod support;

use storage_csi::proto::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest,
    ControllerUnpublishVolumeRequest, CreateSnapshotRequest, DeleteSnapshotRequest, DeleteVolumeRequest,
    GetCapacityRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest, ListSnapshotsRequest,
    ListVolumesRequest, ProbeRequest, Topology, TopologyRequirement, VolumeContentSource,
    volume_capability::access_mode::Mode,
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};
use support::{Lab, capability, code, context, wish};
use tonic::Code;

const MIB: i64 = 1 << 20;

fn delete(id: &str) -> DeleteVolumeRequest {
    DeleteVolumeRequest { volume_id: id.to_owned(), ..DeleteVolumeRequest::default() }
}

fn snapshot(name: &str, of: &str) -> CreateSnapshotRequest {
    CreateSnapshotRequest { name: name.to_owned(), source_volume_id: of.to_owned(), ..Default::default() }
}

fn publish(id: &str, node: &str) -> ControllerPublishVolumeRequest {
    ControllerPublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(capability(Mode::SingleNodeWriter, Some("ext4"))),
        ..ControllerPublishVolumeRequest::default()
    }
}

fn unpublish(id: &str, node: &str) -> ControllerUnpublishVolumeRequest {
    ControllerUnpublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.to_owned(),
        ..Default::default()
    }
}

fn node(lab: &Lab, name: &str) -> String {
    let consumer = std::fs::read_to_string(lab.dir.path().join("consumer-id")).unwrap();
    storage_csi::plan::node_id(&storage_csi::plan::mark(&consumer), name)
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_made_once_listed_grown_and_deleted() {
    let lab = Lab::start("256Mi", None).await;
    let info = lab.identity().get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.name, "csi.trestle.dev");
    assert_eq!(lab.identity().probe(ProbeRequest {}).await.unwrap().into_inner().ready, Some(true));
    let offered = lab.identity().get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await.unwrap();
    assert_eq!(offered.into_inner().capabilities.len(), 4);

    // Eight at once are one volume.
    let mut controller = lab.controller();
    let made = (0..8).map(|_| {
        let mut controller = lab.controller();
        tokio::spawn(
            async move { controller.create_volume(wish("pvc 1", 16 * MIB)).await.unwrap().into_inner() },
        )
    });
    let mut ids = Vec::new();
    for one in made.collect::<Vec<_>>() {
        ids.push(one.await.unwrap().volume.unwrap().volume_id);
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    let id = ids.remove(0);

    // Another size under the same name, none at all, more than was granted, places without this storage.
    assert_eq!(code(controller.create_volume(wish("pvc 1", 32 * MIB)).await), Code::AlreadyExists);
    assert_eq!(code(controller.create_volume(wish("", MIB)).await), Code::InvalidArgument);
    assert_eq!(code(controller.create_volume(wish("large", 1 << 40)).await), Code::OutOfRange);
    let mut odd = wish("odd", MIB);
    odd.parameters.insert("replicas".to_owned(), "3".to_owned());
    assert_eq!(code(controller.create_volume(odd).await), Code::InvalidArgument);
    let mut many = wish("many", MIB);
    many.volume_capabilities = vec![capability(Mode::MultiNodeMultiWriter, Some(""))];
    assert_eq!(code(controller.create_volume(many).await), Code::InvalidArgument);
    let mut elsewhere = wish("elsewhere", MIB);
    let place = Topology { segments: [("csi.trestle.dev/storage".to_owned(), "another".to_owned())].into() };
    elsewhere.accessibility_requirements =
        Some(TopologyRequirement { requisite: vec![place.clone()], preferred: vec![] });
    assert_eq!(code(controller.create_volume(elsewhere).await), Code::ResourceExhausted);
    let nothing = GetCapacityRequest { accessible_topology: Some(place), ..GetCapacityRequest::default() };
    assert_eq!(controller.get_capacity(nothing).await.unwrap().into_inner().available_capacity, 0);
    let all = controller.get_capacity(GetCapacityRequest::default()).await.unwrap().into_inner();
    assert_eq!((all.available_capacity, all.maximum_volume_size), (256 * MIB, Some(256 * MIB)));

    let grow = |bytes, limit_bytes| ControllerExpandVolumeRequest {
        volume_id: id.clone(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes }),
        ..ControllerExpandVolumeRequest::default()
    };
    for _ in 0..2 {
        let grown = controller.controller_expand_volume(grow(64 * MIB, 0)).await.unwrap().into_inner();
        assert_eq!((grown.capacity_bytes, grown.node_expansion_required), (64 * MIB, true));
    }
    assert_eq!(code(controller.controller_expand_volume(grow(MIB, 2 * MIB)).await), Code::OutOfRange);
    assert_eq!(code(controller.controller_expand_volume(grow(1 << 40, 0)).await), Code::OutOfRange);

    let list =
        |max_entries, token: &str| ListVolumesRequest { max_entries, starting_token: token.to_owned() };
    let first = controller.list_volumes(list(1, "")).await.unwrap().into_inner();
    let rest = controller.list_volumes(list(0, &first.next_token)).await.unwrap().into_inner();
    assert_eq!((first.entries.len(), rest.entries.len(), rest.next_token.as_str()), (1, 1, ""));
    assert_eq!(code(controller.list_volumes(list(0, "page 2")).await), Code::Aborted);

    for _ in 0..2 {
        controller.delete_volume(delete(&id)).await.unwrap();
    }
    controller.delete_volume(delete("never/was")).await.unwrap();
    assert_eq!(code(controller.delete_volume(delete("")).await), Code::InvalidArgument);
    assert_eq!(
        controller.list_volumes(list(0, "")).await.unwrap().into_inner().entries.len(),
        1,
        "the first one"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_copied_and_outlive_their_volume() {
    let lab = Lab::start("256Mi", None).await;
    let mut controller = lab.controller();
    for name in ["a", "b"] {
        controller.create_volume(wish(name, 16 * MIB)).await.unwrap();
    }
    for _ in 0..2 {
        let made =
            controller.create_snapshot(snapshot("s", "a")).await.unwrap().into_inner().snapshot.unwrap();
        assert_eq!((made.snapshot_id.as_str(), made.size_bytes, made.ready_to_use), ("a@s", 16 * MIB, true));
        assert!(made.creation_time.unwrap().seconds > 0);
    }
    assert_eq!(code(controller.create_snapshot(snapshot("s", "b")).await), Code::AlreadyExists);
    assert_eq!(code(controller.create_snapshot(snapshot("t", "never")).await), Code::NotFound);
    controller.delete_volume(delete("a")).await.unwrap();
    let listed = controller.list_snapshots(ListSnapshotsRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.entries.len(), 1, "it stays");

    let from = |name: &str, kind: Type, bytes| {
        let mut wish = wish(name, bytes);
        wish.volume_content_source = Some(VolumeContentSource { r#type: Some(kind) });
        wish
    };
    let of_snapshot = |id: &str| Type::Snapshot(SnapshotSource { snapshot_id: id.to_owned() });
    for _ in 0..2 {
        let made =
            controller.create_volume(from("c", of_snapshot("a@s"), 32 * MIB)).await.unwrap().into_inner();
        let made = made.volume.unwrap();
        assert_eq!(made.capacity_bytes, 32 * MIB);
        assert_eq!(made.content_source.unwrap().r#type, Some(of_snapshot("a@s")));
    }
    let of_volume = |id: &str| Type::Volume(VolumeSource { volume_id: id.to_owned() });
    let cloned = controller.create_volume(from("d", of_volume("c"), MIB)).await.unwrap().into_inner();
    assert_eq!(cloned.volume.unwrap().capacity_bytes, 32 * MIB, "as large as its source");
    assert_eq!(code(controller.create_volume(from("e", of_volume("a@s"), MIB)).await), Code::NotFound);
    assert_eq!(code(controller.create_volume(from("e", of_snapshot("a@t"), MIB)).await), Code::NotFound);
    for id in ["a@s", "a@s", "nonsense"] {
        let wish = DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..DeleteSnapshotRequest::default() };
        controller.delete_snapshot(wish).await.unwrap();
    }
    let listed = controller.list_snapshots(ListSnapshotsRequest::default()).await.unwrap().into_inner();
    assert!(listed.entries.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_has_one_writer_by_epoch_and_many_readers() {
    let lab = Lab::start("64Mi", None).await;
    let mut controller = lab.controller();
    controller.create_volume(wish("v", 16 * MIB)).await.unwrap();
    let (one, two) = (node(&lab, "node-1"), node(&lab, "node-2"));
    assert_eq!(code(controller.controller_publish_volume(publish("v", "node-1")).await), Code::NotFound);
    assert_eq!(code(controller.controller_publish_volume(publish("w", &one)).await), Code::NotFound);
    for _ in 0..2 {
        let told = controller.controller_publish_volume(publish("v", &one)).await.unwrap().into_inner();
        assert_eq!(told.publish_context, context("v:1"));
    }
    assert_eq!(
        code(controller.controller_publish_volume(publish("v", &two)).await),
        Code::FailedPrecondition
    );
    assert_eq!(code(controller.delete_volume(delete("v")).await), Code::FailedPrecondition);
    let reading = |node: &str, fs| ControllerPublishVolumeRequest {
        volume_capability: Some(capability(Mode::MultiNodeReaderOnly, fs)),
        ..publish("v", node)
    };
    assert_eq!(code(controller.controller_publish_volume(reading(&one, None)).await), Code::AlreadyExists);
    assert_eq!(
        code(controller.controller_publish_volume(reading(&two, Some(""))).await),
        Code::FailedPrecondition
    );
    let told = controller.controller_publish_volume(reading(&two, None)).await.unwrap().into_inner();
    assert_eq!(told.publish_context, context("v:read"));

    // Another's word takes nothing away; the orchestrator's about the old node does, also twice, also late.
    controller.controller_unpublish_volume(unpublish("v", &two)).await.unwrap();
    assert_eq!(
        code(controller.controller_publish_volume(publish("v", &two)).await),
        Code::FailedPrecondition
    );
    for _ in 0..2 {
        controller.controller_unpublish_volume(unpublish("v", &one)).await.unwrap();
    }
    let told = controller.controller_publish_volume(publish("v", &two)).await.unwrap().into_inner();
    assert_eq!(told.publish_context, context("v:2"));
    controller.controller_unpublish_volume(unpublish("v", &one)).await.unwrap();
    assert_eq!(
        code(controller.controller_publish_volume(publish("v", &one)).await),
        Code::FailedPrecondition
    );
    controller.controller_unpublish_volume(unpublish("v", "")).await.unwrap();
    controller.controller_unpublish_volume(unpublish("gone", &one)).await.unwrap();
    controller.delete_volume(delete("v")).await.unwrap();
}
