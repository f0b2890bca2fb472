//! `csi.v1.Controller`: what the storage itself answers.
//!
//! In: calls. Out: calls of `trestle.v1.Storage`, which may be repeated, and what is there afterwards. Each call reads which volumes there
//! are, decides, and asks for what is missing. Not here: what a call means (`plan`).

mod publish;
mod snapshots;
mod volumes;

use std::collections::BTreeMap;

use common::chain;
use storage_provider::DEFAULT_VOLUME;
use tonic::{Code, Request, Response, Status, transport::Channel};
use wire::trestle::v1::{self, ListVolumesRequest, storage_client::StorageClient};

use crate::{
    Driver,
    plan::STORAGE,
    proto::{
        ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
        ControllerGetCapabilitiesResponse, ControllerGetVolumeHealthRequest,
        ControllerGetVolumeHealthResponse, ControllerGetVolumeRequest, ControllerGetVolumeResponse,
        ControllerListVolumeHealthRequest, ControllerListVolumeHealthResponse, ControllerModifyVolumeRequest,
        ControllerModifyVolumeResponse, ControllerPublishVolumeRequest, ControllerPublishVolumeResponse,
        ControllerServiceCapability, ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse,
        CreateSnapshotRequest, CreateSnapshotResponse, CreateVolumeRequest, CreateVolumeResponse,
        DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest, DeleteVolumeResponse,
        GetCapacityRequest, GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse,
        ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest as ListRequest, ListVolumesResponse,
        Topology, TopologyRequirement, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
        controller_server,
        controller_service_capability::{self, Rpc, rpc},
    },
};

type Reply<T> = Result<Response<T>, Status>;

const CAPABILITIES: &[rpc::Type] = &[
    rpc::Type::CreateDeleteVolume,
    rpc::Type::PublishUnpublishVolume,
    rpc::Type::ListVolumes,
    rpc::Type::GetCapacity,
    rpc::Type::CreateDeleteSnapshot,
    rpc::Type::ListSnapshots,
    rpc::Type::CloneVolume,
    rpc::Type::PublishReadonly,
    rpc::Type::ExpandVolume,
    rpc::Type::GetVolume,
    rpc::Type::SingleNodeMultiWriter,
    rpc::Type::GetSnapshot,
    rpc::Type::GetVolumeHealth,
    rpc::Type::ListVolumeHealth,
];

#[tonic::async_trait]
impl controller_server::Controller for Driver {
    async fn create_volume(&self, request: Request<CreateVolumeRequest>) -> Reply<CreateVolumeResponse> {
        self.create(request.into_inner()).await.map(Response::new)
    }

    async fn delete_volume(&self, request: Request<DeleteVolumeRequest>) -> Reply<DeleteVolumeResponse> {
        self.delete(&request.get_ref().volume_id).await?;
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Reply<ControllerPublishVolumeResponse> {
        self.publish(request.into_inner()).await.map(Response::new)
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Reply<ControllerUnpublishVolumeResponse> {
        self.unpublish(request.into_inner()).await?;
        Ok(Response::new(ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Reply<ValidateVolumeCapabilitiesResponse> {
        self.validate(request.into_inner()).await.map(Response::new)
    }

    async fn list_volumes(&self, request: Request<ListRequest>) -> Reply<ListVolumesResponse> {
        self.list(request.into_inner()).await.map(Response::new)
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<ControllerListVolumeHealthRequest>,
    ) -> Reply<ControllerListVolumeHealthResponse> {
        self.list_health(request.into_inner()).await.map(Response::new)
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<ControllerGetVolumeHealthRequest>,
    ) -> Reply<ControllerGetVolumeHealthResponse> {
        let volume = self.volume(&request.get_ref().volume_id).await?;
        let volume_health = Some(volumes::health(&volume));
        Ok(Response::new(ControllerGetVolumeHealthResponse { volume_health }))
    }

    async fn get_capacity(&self, request: Request<GetCapacityRequest>) -> Reply<GetCapacityResponse> {
        self.capacity(request.into_inner()).await.map(Response::new)
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Reply<ControllerGetCapabilitiesResponse> {
        let capability = |kind: &rpc::Type| ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(Rpc { r#type: *kind as i32 })),
        };
        let capabilities = CAPABILITIES.iter().map(capability).collect();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Reply<CreateSnapshotResponse> {
        let snapshot = Some(self.snapshot(request.into_inner()).await?);
        Ok(Response::new(CreateSnapshotResponse { snapshot }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Reply<DeleteSnapshotResponse> {
        self.delete_one_snapshot(&request.get_ref().snapshot_id).await?;
        Ok(Response::new(DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(&self, request: Request<ListSnapshotsRequest>) -> Reply<ListSnapshotsResponse> {
        self.snapshots(request.into_inner()).await.map(Response::new)
    }

    async fn get_snapshot(&self, request: Request<GetSnapshotRequest>) -> Reply<GetSnapshotResponse> {
        let snapshot = Some(self.one_snapshot(&request.get_ref().snapshot_id).await?);
        Ok(Response::new(GetSnapshotResponse { snapshot }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Reply<ControllerExpandVolumeResponse> {
        self.expand(request.into_inner()).await.map(Response::new)
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Reply<ControllerGetVolumeResponse> {
        let volume = self.volume(&request.get_ref().volume_id).await?;
        Ok(Response::new(self.described(&volume)))
    }

    async fn controller_modify_volume(
        &self,
        _: Request<ControllerModifyVolumeRequest>,
    ) -> Reply<ControllerModifyVolumeResponse> {
        Err(Status::unimplemented("volumes of this driver have nothing that could be modified"))
    }
}

/// Volumes and snapshots by name, without those that were deleted.
type Known = BTreeMap<String, v1::Volume>;

impl Driver {
    fn storage(&self) -> Result<StorageClient<Channel>, Status> {
        self.account.storage().map_err(|err| Status::unavailable(chain(&err)))
    }

    async fn known(&self) -> Result<Known, Status> {
        let reply = self.storage()?.list_volumes(ListVolumesRequest::default()).await.map_err(told)?;
        let all = reply.into_inner().volumes.into_iter().filter(|volume| volume.kept_until.is_none());
        Ok(all.map(|volume| (volume.name.clone(), volume)).collect())
    }

    /// Whether the storage answers.
    pub(crate) async fn reached(&self) -> Result<(), Status> {
        self.known().await.map(drop)
    }

    /// One volume that must be there.
    async fn volume(&self, id: &str) -> Result<v1::Volume, Status> {
        find(&mut self.known().await?, id)
    }

    fn topology(&self) -> Vec<Topology> {
        let segment = (STORAGE.to_owned(), self.account.mark().to_owned());
        vec![Topology { segments: [segment].into() }]
    }

    /// Whether what is asked for can be where it is wanted: some place must have this storage.
    fn reaches(&self, wanted: Option<&TopologyRequirement>) -> Result<(), Status> {
        let Some(wanted) = wanted else { return Ok(()) };
        if wanted.requisite.is_empty() || wanted.requisite.iter().any(|place| self.is_at(place)) {
            return Ok(());
        }
        let text =
            format!("no place that was asked for has this storage ({STORAGE}={})", self.account.mark());
        Err(Status::resource_exhausted(text))
    }

    fn is_at(&self, place: &Topology) -> bool {
        place.segments.get(STORAGE).is_none_or(|storage| storage == self.account.mark())
    }
}

fn find(known: &mut Known, id: &str) -> Result<v1::Volume, Status> {
    if id.is_empty() {
        return Err(Status::invalid_argument("no volume id was given"));
    }
    let volume = known.remove(id).filter(|volume| !volume.name.contains('@'));
    volume.ok_or_else(|| Status::not_found(format!("there is no volume {id:?}")))
}

/// Volumes alone, the consumer's first one included, sorted.
fn volumes_of(known: Known) -> Vec<v1::Volume> {
    known.into_values().filter(|volume| !volume.name.contains('@')).collect()
}

fn granted(known: &Known) -> u64 {
    known.get(DEFAULT_VOLUME).map(|volume| volume.size_bytes).unwrap_or_default()
}

/// What the storage refused, as orchestrators expect it.
fn told(status: Status) -> Status {
    match status.code() {
        Code::Unimplemented => Status::failed_precondition(format!(
            "{}; Ceph's own CSI driver is for such storage (docs/csi.md)",
            status.message()
        )),
        // What broke off is tried again, whatever broke it.
        Code::Unknown | Code::Cancelled => Status::unavailable(status.message()),
        code => Status::new(code, status.message()),
    }
}

fn invalid(error: &dyn std::error::Error) -> Status {
    Status::invalid_argument(error.to_string())
}

fn bytes(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
