//! A volume comes to this node and leaves it: device, file system, and the mount that all users on the node share.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::timeout;
use tonic::Status;

use super::{EXPORT, blocking, content::Content, filesystem, mounts, place, required, told};
use crate::{
    Driver,
    attach::{Attached, Standing},
    plan::{Access, FileSystem, Form, access},
    proto::{NodeStageVolumeRequest, NodeUnstageVolumeRequest},
};

/// What is written back when a file system leaves may take a while; longer only waits for a storage that is not there.
const LEAVING: Duration = Duration::from_secs(30);

impl Driver {
    pub(super) async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), Status> {
        let volume = request.volume_id;
        required(&volume, "volume id")?;
        place(&request.staging_target_path, "staging target path")?;
        let wanted = wanted(request.volume_capability.as_ref())?;
        let export = request.publish_context.get(EXPORT).filter(|export| is_of(export, &volume));
        let Some(export) = export else {
            return Err(Status::failed_precondition(
                "the volume was not published to this node (ControllerPublishVolume) before it is staged",
            ));
        };
        let attacher = self.attacher()?;
        attacher.ready().await.map_err(told)?;
        let read_only = export.ends_with(":read");
        let _turn = self.turns.turn(&volume).await;
        let point = PathBuf::from(request.staging_target_path);
        if let Some(held) =
            attacher.attached(&volume).await.map_err(told)?.filter(|held| held.export != *export)
        {
            // Left from a publication before, by an orchestrator that forgot it: not in use, it can go.
            let device = held.device.clone();
            let used = blocking(move || Ok(mounts::others(&mounts::mounts()?, &device, &[]))).await?;
            if used.is_empty() {
                attacher.detach(&volume).await.map_err(told)?;
            }
        }
        let attached = attacher.attach(&volume, export, read_only).await.map_err(told)?;
        match wanted.form {
            Form::Block => Ok(()),
            Form::Mount { fs, flags } => blocking(move || settle(fs, &flags, &attached, &point)).await,
        }
    }

    pub(super) async fn unstage(&self, request: NodeUnstageVolumeRequest) -> Result<(), Status> {
        let volume = request.volume_id;
        required(&volume, "volume id")?;
        place(&request.staging_target_path, "staging target path")?;
        let attacher = self.attacher()?;
        let _turn = self.turns.turn(&volume).await;
        let point = PathBuf::from(request.staging_target_path);
        // Where the storage is not there and does not come back, what waits for it must fail, or nothing here would ever end.
        if let Ok(Standing::Failing(_)) = attacher.standing(&volume).await {
            attacher.give_up(&volume).await.map_err(told)?;
        }
        let leaving = tokio::spawn(blocking(move || mounts::unmount_all(&point)));
        let left = match timeout(LEAVING, leaving).await {
            Ok(left) => left.map_err(|err| Status::internal(err.to_string()))?,
            Err(_) => {
                attacher.give_up(&volume).await.map_err(told)?;
                return Err(Status::aborted(
                    "the storage does not answer, and what was not written to it is lost: unstage again",
                ));
            }
        };
        left?;
        if let Some(attached) = attacher.attached(&volume).await.map_err(told)? {
            let device = attached.device.clone();
            let used = blocking(move || Ok(mounts::others(&mounts::mounts()?, &device, &[]))).await?;
            if let Some(first) = used.first() {
                return Err(Status::failed_precondition(format!(
                    "the volume is still at {}",
                    first.display()
                )));
            }
        }
        attacher.detach(&volume).await.map_err(told)
    }
}

pub(super) fn wanted(capability: Option<&crate::proto::VolumeCapability>) -> Result<Access, Status> {
    access(capability).map_err(|err| Status::invalid_argument(err.to_string()))
}

fn is_of(export: &str, volume: &str) -> bool {
    export.strip_prefix(volume).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// Mounts what is on the device at the staging path; makes it if there is nothing, and grows it if it is smaller.
fn settle(fs: FileSystem, flags: &[String], attached: &Attached, point: &Path) -> Result<(), Status> {
    let Attached { device, size, read_only, .. } = attached;
    match mounts::at(&mounts::mounts()?, point) {
        Some(there) if there.is_of(device) => return grown(device, *size, *read_only, point),
        Some(_) => {
            let text = format!("something else is mounted at {}", point.display());
            return Err(Status::internal(text));
        }
        None => {}
    }
    let found = match filesystem::look(device, *size)? {
        Content::Known(found, _) => found,
        Content::Empty | Content::Unfinished if *read_only => {
            return Err(Status::failed_precondition(
                "there is no file system on the volume, and it is there for reading only",
            ));
        }
        Content::Empty | Content::Unfinished => {
            filesystem::make(fs, device, *size)?;
            fs
        }
        Content::Unknown => {
            return Err(Status::failed_precondition(
                "there is something on the volume that is neither ext4 nor xfs; it is not overwritten: empty it, or use it as a block device",
            ));
        }
    };
    if found != fs {
        return Err(Status::failed_precondition(format!(
            "there is {found} on the volume, and {fs} is asked for"
        )));
    }
    if !read_only {
        filesystem::check(fs, device)?;
    }
    directory(point)?;
    mounts::mount_device(fs, device, point, *read_only, flags)?;
    grown(device, *size, *read_only, point)
}

/// The file system fills its device.
pub(super) fn grown(device: &Path, size: u64, read_only: bool, point: &Path) -> Result<(), Status> {
    let Content::Known(fs, filled) = filesystem::look(device, size)? else {
        return Err(Status::internal(format!(
            "what is mounted from {} is not found on it",
            device.display()
        )));
    };
    // A last piece that is no whole group stays unused.
    let spare = match fs {
        FileSystem::Ext4 => 128 << 10,
        FileSystem::Xfs => 16 << 20,
    };
    if read_only || filled + spare >= size {
        return Ok(());
    }
    filesystem::grow(fs, device, point)
}

pub(super) fn directory(path: &Path) -> Result<(), Status> {
    fs::create_dir_all(path).map_err(|err| Status::internal(format!("cannot make {}: {err}", path.display())))
}

/// What the driver made at a path, if it is there.
pub(super) fn take_away(path: &Path) -> Result<(), Status> {
    let gone = match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => fs::remove_dir(path),
        Ok(_) => fs::remove_file(path),
        Err(err) => Err(err),
    };
    match gone {
        Err(err) if err.kind() != io::ErrorKind::NotFound => {
            Err(Status::internal(format!("cannot remove {}: {err}", path.display())))
        }
        _ => Ok(()),
    }
}
