//! How much of a volume is used, and how it stands with it.

use std::{
    fs, io,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
};

use common::chain;
use rustix::fs::statvfs;
use tonic::Status;

use super::{
    blocking,
    mounts::{Mount, at, mounts, others},
    required, told,
};
use crate::{
    Driver,
    attach::Standing,
    proto::{
        NodeGetVolumeHealthRequest, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
        StorageHealthErrorType, VolumeHealth, VolumeHealthErrorType, VolumeUsage,
        node_get_storage_health_response::StorageBackendHealth, volume_health::VolumeHealthEntry,
        volume_usage,
    },
};

impl Driver {
    pub(super) async fn usage(
        &self,
        request: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, Status> {
        let volume = request.volume_id;
        required(&volume, "volume id")?;
        required(&request.volume_path, "volume path")?;
        let attached = self.attacher()?.attached(&volume).await.map_err(told)?;
        let attached = attached
            .ok_or_else(|| Status::not_found(format!("the volume {volume:?} is not on this node")))?;
        let path = PathBuf::from(request.volume_path);
        let size = i64::try_from(attached.size).unwrap_or(i64::MAX);
        blocking(move || {
            let mounts = mounts()?;
            let shown = at(&mounts, &path).is_some_and(|there| there.is_of(&attached.device));
            if !shown {
                return Err(Status::not_found(format!("the volume is not at {}", path.display())));
            }
            let is_block = fs::metadata(&path).is_ok_and(|there| there.file_type().is_block_device());
            let usage = if is_block {
                vec![block(size)]
            } else {
                filled(&path).map_err(|err| unseen(&path, &err))?
            };
            Ok(NodeGetVolumeStatsResponse { usage })
        })
        .await
    }

    pub(super) async fn health_here(
        &self,
        request: NodeGetVolumeHealthRequest,
    ) -> Result<VolumeHealth, Status> {
        let volume = request.volume_id;
        required(&volume, "volume id")?;
        let attacher = self.attacher()?;
        let attached = attacher.attached(&volume).await.map_err(told)?;
        let attached = attached
            .ok_or_else(|| Status::not_found(format!("the volume {volume:?} is not on this node")))?;
        let mut health_statuses = Vec::new();
        match attacher.standing(&volume).await.map_err(told)? {
            Standing::Well => {}
            Standing::Waiting(why) => {
                health_statuses.push(entry(VolumeHealthErrorType::Degraded, "Waiting", why))
            }
            Standing::Failing(why) => {
                health_statuses.push(entry(VolumeHealthErrorType::Inaccessible, "Refused", why))
            }
        }
        let device = attached.device.clone();
        let stopped = move || -> Result<Option<Mount>, Status> {
            let mounts = mounts()?;
            let points = others(&mounts, &device, &[]);
            Ok(points.iter().filter_map(|point| at(&mounts, point)).find(|mount| mount.frozen))
        };
        if !attached.read_only
            && let Some(mount) = blocking(stopped).await?
        {
            let why = format!(
                "the file system at {} has stopped being written to after an error",
                mount.point.display()
            );
            health_statuses.push(entry(VolumeHealthErrorType::Degraded, "ReadOnly", why));
        }
        Ok(VolumeHealth { volume_id: volume, health_statuses })
    }

    /// Nothing to say: it is well.
    pub(super) async fn storage_health(&self) -> Vec<StorageBackendHealth> {
        let of = |status: StorageHealthErrorType, reason: &str, message: String| StorageBackendHealth {
            status: status as i32,
            reason: reason.to_owned(),
            message,
            volume_capability: None,
        };
        let mut all = Vec::new();
        if let Some(attacher) = &self.attacher
            && let Err(error) = attacher.ready().await
        {
            all.push(of(StorageHealthErrorType::StorageDegraded, "NoModule", chain(&error)));
        }
        if let Err(status) = self.reached().await {
            all.push(of(
                StorageHealthErrorType::StorageUnreachable,
                "NoController",
                status.message().to_owned(),
            ));
        }
        all
    }
}

fn entry(status: VolumeHealthErrorType, reason: &str, message: String) -> VolumeHealthEntry {
    VolumeHealthEntry { status: status as i32, reason: reason.to_owned(), message }
}

fn block(total: i64) -> VolumeUsage {
    VolumeUsage { total, unit: volume_usage::Unit::Bytes as i32, ..VolumeUsage::default() }
}

fn filled(path: &Path) -> io::Result<Vec<VolumeUsage>> {
    let found = statvfs(path)?;
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let usage = |unit: volume_usage::Unit, total: u64, free: u64, available: u64| VolumeUsage {
        available: number(available),
        total: number(total),
        used: number(total.saturating_sub(free)),
        unit: unit as i32,
    };
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(vec![
        usage(volume_usage::Unit::Bytes, bytes(found.f_blocks), bytes(found.f_bfree), bytes(found.f_bavail)),
        usage(volume_usage::Unit::Inodes, found.f_files, found.f_ffree, found.f_favail),
    ])
}

fn unseen(path: &Path, err: &io::Error) -> Status {
    Status::internal(format!("cannot see how full {} is: {err}", path.display()))
}
