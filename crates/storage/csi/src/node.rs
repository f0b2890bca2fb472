//! `csi.v1.Node`: what this machine answers.
//!
//! In: calls. Out: devices (by an [`Attacher`]), file systems and mounts. What is there is read from the kernel on each call, and only
//! what is missing is done. Not here: who may have a volume (the storage decides, by the export that its publication gave).

mod content;
mod filesystem;
mod health;
mod mounts;
mod publish;
mod stage;

use std::{path::Path, sync::Arc};

use common::chain;
use tonic::{Request, Response, Status};

use crate::{
    Driver,
    attach::{AttachError, Attacher},
    plan::{MOST_ON_A_NODE, STORAGE, node_id},
    proto::{
        NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
        NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse, NodeGetStorageHealthRequest,
        NodeGetStorageHealthResponse, NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse,
        NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
        NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest, NodeStageVolumeResponse,
        NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
        NodeUnstageVolumeResponse, Topology, node_server,
        node_service_capability::{self, Rpc, rpc},
    },
};

type Reply<T> = Result<Response<T>, Status>;

/// In what a publication tells the node: the export under which it opens the volume.
pub(crate) const EXPORT: &str = "export";

const CAPABILITIES: &[rpc::Type] = &[
    rpc::Type::StageUnstageVolume,
    rpc::Type::GetVolumeStats,
    rpc::Type::ExpandVolume,
    rpc::Type::SingleNodeMultiWriter,
    rpc::Type::GetVolumeHealth,
    rpc::Type::GetStorageHealth,
];

#[tonic::async_trait]
impl node_server::Node for Driver {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Reply<NodeStageVolumeResponse> {
        self.stage(request.into_inner()).await?;
        Ok(Response::new(NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Reply<NodeUnstageVolumeResponse> {
        self.unstage(request.into_inner()).await?;
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Reply<NodePublishVolumeResponse> {
        self.publish_here(request.into_inner()).await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Reply<NodeUnpublishVolumeResponse> {
        self.unpublish_here(request.into_inner()).await?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Reply<NodeGetVolumeStatsResponse> {
        self.usage(request.into_inner()).await.map(Response::new)
    }

    async fn node_get_volume_health(
        &self,
        request: Request<NodeGetVolumeHealthRequest>,
    ) -> Reply<NodeGetVolumeHealthResponse> {
        let volume_health = Some(self.health_here(request.into_inner()).await?);
        Ok(Response::new(NodeGetVolumeHealthResponse { volume_health }))
    }

    async fn node_get_storage_health(
        &self,
        _: Request<NodeGetStorageHealthRequest>,
    ) -> Reply<NodeGetStorageHealthResponse> {
        let backend_health = self.storage_health().await;
        Ok(Response::new(NodeGetStorageHealthResponse { backend_health }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Reply<NodeExpandVolumeResponse> {
        self.expand_here(request.into_inner()).await.map(Response::new)
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Reply<NodeGetCapabilitiesResponse> {
        let capability = |kind: &rpc::Type| NodeServiceCapability {
            r#type: Some(node_service_capability::Type::Rpc(Rpc { r#type: *kind as i32 })),
        };
        let capabilities = CAPABILITIES.iter().map(capability).collect();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Reply<NodeGetInfoResponse> {
        let mut segments = (*self.segments).clone();
        segments.insert(STORAGE.to_owned(), self.account.mark().to_owned());
        Ok(Response::new(NodeGetInfoResponse {
            node_id: node_id(self.account.mark(), &self.node),
            max_volumes_per_node: i64::try_from(MOST_ON_A_NODE).unwrap_or(i64::MAX),
            accessible_topology: Some(Topology { segments }),
        }))
    }
}

impl Driver {
    fn attacher(&self) -> Result<&Arc<dyn Attacher>, Status> {
        self.attacher.as_ref().ok_or_else(|| Status::failed_precondition("this process attaches nothing"))
    }
}

fn required(given: &str, what: &str) -> Result<(), Status> {
    if given.is_empty() {
        return Err(Status::invalid_argument(format!("no {what} was given")));
    }
    Ok(())
}

/// Paths are an orchestrator's; one that is not whole would be somewhere below ours.
fn place(given: &str, what: &str) -> Result<(), Status> {
    required(given, what)?;
    match Path::new(given).is_absolute() && !given.contains('\0') {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!("the {what} {given:?} is no absolute path"))),
    }
}

fn told(error: AttachError) -> Status {
    let text = chain(&error);
    match error {
        AttachError::NoModule | AttachError::Other { .. } | AttachError::Refused { .. } => {
            Status::failed_precondition(text)
        }
        AttachError::NotAttached { .. } => Status::not_found(text),
        AttachError::Away { .. } => Status::unavailable(text),
        AttachError::Kernel { .. } | AttachError::Io { .. } => Status::internal(text),
    }
}

/// Runs what blocks: calls of the kernel may wait for the storage.
async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(act).await.map_err(|err| Status::internal(err.to_string()))?
}
