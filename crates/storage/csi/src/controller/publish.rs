//! A volume is given to a node: to one to write, to as many as like to read.

use tonic::{Code, Status};
use wire::trestle::v1::{PublishVolumeRequest, UnpublishVolumeRequest};

use super::{find, invalid, told};
use crate::{
    Driver,
    node::EXPORT,
    plan::{Form, MOST_ON_A_NODE, Share, access, issued},
    proto::{
        ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
    },
};

impl Driver {
    /// Nothing is taken from a node that has it: an orchestrator says first that the old node shall have it no more, and from then on
    /// that node's writes are refused.
    pub(super) async fn publish(
        &self,
        request: ControllerPublishVolumeRequest,
    ) -> Result<ControllerPublishVolumeResponse, Status> {
        let ControllerPublishVolumeRequest { volume_id: name, node_id: node, readonly, .. } = request;
        if name.is_empty() || node.is_empty() {
            return Err(Status::invalid_argument("no volume id or no node id was given"));
        }
        let wanted = access(request.volume_capability.as_ref()).map_err(|err| invalid(&err))?;
        let share = if readonly { Share::Read } else { wanted.share };
        let _turn = self.turns.turn(&name).await;
        let mut known = self.known().await?;
        let held = known.values().filter(|volume| volume.writer == node && volume.name != name).count();
        let volume = find(&mut known, &name)?;
        if !issued(self.account.mark(), &node) {
            let text = format!("{node:?} is no node of this storage: its driver would call it otherwise");
            return Err(Status::not_found(text));
        }
        let export = match share {
            Share::Read if volume.writer == node => {
                let text = format!("the volume {name:?} is published to {node} for writing already");
                return Err(Status::already_exists(text));
            }
            Share::Read if !volume.writer.is_empty() && wanted.form != Form::Block => {
                let text = format!(
                    "{} writes to the file system of the volume {name:?}; nobody else can mount it meanwhile",
                    volume.writer
                );
                return Err(Status::failed_precondition(text));
            }
            Share::Read => format!("{name}:read"),
            Share::Write if held >= MOST_ON_A_NODE => {
                return Err(Status::resource_exhausted(format!(
                    "{node} has {held} volumes, which is the most there can be"
                )));
            }
            Share::Write => {
                let wish = PublishVolumeRequest { name, writer: node, ..PublishVolumeRequest::default() };
                self.storage()?.publish_volume(wish).await.map_err(told)?.into_inner().export
            }
        };
        Ok(ControllerPublishVolumeResponse { publish_context: [(EXPORT.to_owned(), export)].into() })
    }

    pub(super) async fn unpublish(&self, request: ControllerUnpublishVolumeRequest) -> Result<(), Status> {
        let ControllerUnpublishVolumeRequest { volume_id: name, node_id: writer, .. } = request;
        if name.is_empty() {
            return Err(Status::invalid_argument("no volume id was given"));
        }
        if !storage_provider::is_volume_name(&name) {
            return Ok(());
        }
        let _turn = self.turns.turn(&name).await;
        let wish = UnpublishVolumeRequest { name, writer, ..UnpublishVolumeRequest::default() };
        match self.storage()?.unpublish_volume(wish).await {
            Err(status) if status.code() != Code::NotFound => Err(told(status)),
            _ => Ok(()),
        }
    }
}
