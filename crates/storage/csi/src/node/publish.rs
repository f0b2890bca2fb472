//! A volume that is staged is shown to one workload, and taken from it; and grows under it.

use std::{fs::File, io, path::PathBuf};

use tonic::Status;

use super::{
    blocking,
    mounts::{self, at, bind, unmount_all},
    place, required,
    stage::{directory, grown, take_away, wanted},
    told,
};
use crate::{
    Driver,
    attach::Attached,
    plan::{Form, Range},
    proto::{
        NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodePublishVolumeRequest,
        NodeUnpublishVolumeRequest,
    },
};

impl Driver {
    pub(super) async fn publish_here(&self, request: NodePublishVolumeRequest) -> Result<(), Status> {
        let (volume, read_only) = (request.volume_id, request.readonly);
        required(&volume, "volume id")?;
        place(&request.target_path, "target path")?;
        let wanted = wanted(request.volume_capability.as_ref())?;
        if request.staging_target_path.is_empty() {
            return Err(Status::failed_precondition(
                "no staging target path was given: a volume is staged first",
            ));
        }
        place(&request.staging_target_path, "staging target path")?;
        let (staged, target) =
            (PathBuf::from(request.staging_target_path), PathBuf::from(request.target_path));
        let _turn = self.turns.turn(&volume).await;
        let attached = self.attacher()?.attached(&volume).await.map_err(told)?;
        let Some(Attached { device, read_only: fixed, .. }) = attached else {
            return Err(Status::failed_precondition(format!(
                "the volume {volume:?} is not staged on this node"
            )));
        };
        blocking(move || {
            let mounts = mounts::mounts()?;
            if wanted.one_path
                && let Some(other) = mounts::others(&mounts, &device, &[&staged, &target]).first()
            {
                return Err(Status::failed_precondition(format!(
                    "the volume has one user, at {}",
                    other.display()
                )));
            }
            if let Some(there) = at(&mounts, &target) {
                return match there.is_of(&device)
                    && (fixed || there.read_only == read_only || wanted.form == Form::Block)
                {
                    true => Ok(()),
                    false => {
                        Err(Status::already_exists(format!("{} is mounted otherwise", target.display())))
                    }
                };
            }
            match wanted.form {
                Form::Mount { .. } => {
                    if !at(&mounts, &staged).is_some_and(|there| there.is_of(&device)) {
                        return Err(Status::failed_precondition(format!(
                            "the volume is not staged at {}",
                            staged.display()
                        )));
                    }
                    directory(&target)?;
                    bind(&staged, &target, read_only)
                }
                Form::Block if read_only && !fixed => Err(Status::failed_precondition(
                    "a block device is read-only as a whole: publish the volume to this node for reading",
                )),
                Form::Block => {
                    if let Some(dir) = target.parent() {
                        directory(dir)?;
                    }
                    match File::create_new(&target) {
                        Err(err) if err.kind() != io::ErrorKind::AlreadyExists => {
                            return Err(Status::internal(format!("cannot make {}: {err}", target.display())));
                        }
                        _ => {}
                    }
                    bind(&device, &target, false)
                }
            }
        })
        .await
    }

    pub(super) async fn unpublish_here(&self, request: NodeUnpublishVolumeRequest) -> Result<(), Status> {
        required(&request.volume_id, "volume id")?;
        place(&request.target_path, "target path")?;
        let _turn = self.turns.turn(&request.volume_id).await;
        let target = PathBuf::from(request.target_path);
        blocking(move || {
            unmount_all(&target)?;
            take_away(&target)
        })
        .await
    }

    pub(super) async fn expand_here(
        &self,
        request: NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, Status> {
        let volume = request.volume_id;
        required(&volume, "volume id")?;
        required(&request.volume_path, "volume path")?;
        let range = Range::of(request.capacity_range.as_ref())
            .map_err(|err| Status::out_of_range(err.to_string()))?;
        let _turn = self.turns.turn(&volume).await;
        let attacher = self.attacher()?;
        let held = attacher.attached(&volume).await.map_err(told)?;
        let held =
            held.ok_or_else(|| Status::not_found(format!("the volume {volume:?} is not on this node")))?;
        let path = PathBuf::from(request.volume_path);
        let seen = path.clone();
        let device = held.device.clone();
        let there =
            blocking(move || Ok(at(&mounts::mounts()?, &seen).filter(|there| there.is_of(&device)))).await?;
        if there.is_none() && !path.exists() {
            return Err(Status::not_found(format!("the volume is not at {}", path.display())));
        }
        let least = match request.capacity_range {
            Some(_) => range.size(None).map_err(|err| Status::out_of_range(err.to_string()))?,
            None => 0,
        };
        let Attached { device, size, read_only, .. } = attacher.renew(&volume, least).await.map_err(told)?;
        let is_block = path.metadata().is_ok_and(|there| {
            use std::os::unix::fs::FileTypeExt as _;
            there.file_type().is_block_device()
        });
        if there.is_some() && !is_block {
            blocking(move || grown(&device, size, read_only, &path)).await?;
        }
        Ok(NodeExpandVolumeResponse { capacity_bytes: i64::try_from(size).unwrap_or(i64::MAX) })
    }
}
