//! Snapshots: made, deleted, listed.

use storage_provider::snapshot_parts;
use tonic::Status;
use wire::trestle::v1::{self, SnapshotVolumeRequest};

use super::{bytes, find, invalid, told, volumes::paging};
use crate::{
    Driver,
    plan::{check_parameters, page, snapshot_name, volume_name},
    proto::{
        CreateSnapshotRequest, ListSnapshotsRequest, ListSnapshotsResponse, Snapshot, list_snapshots_response,
    },
};

impl Driver {
    pub(super) async fn snapshot(&self, request: CreateSnapshotRequest) -> Result<Snapshot, Status> {
        if request.name.is_empty() || request.source_volume_id.is_empty() {
            return Err(Status::invalid_argument("no name or no source volume was given"));
        }
        check_parameters(&request.parameters).map_err(|err| invalid(&err))?;
        self.reaches(request.accessibility_requirements.as_ref())?;
        let (own, volume) = (volume_name(&request.name), request.source_volume_id);
        let name = snapshot_name(&volume, &request.name);
        let _turn = self.turns.turn(&format!("@{own}")).await;
        let mut known = self.known().await?;
        // Names of snapshots are an orchestrator's, whatever they are of.
        let others = known.keys().filter_map(|name| snapshot_parts(name));
        if let Some((of, _)) = others.into_iter().find(|(of, snapshot)| *snapshot == own && *of != volume) {
            return Err(Status::already_exists(format!("there is a snapshot {own:?} already, of {of}")));
        }
        if let Some(there) = known.get(&name) {
            return Ok(told_snapshot(there));
        }
        find(&mut known, &volume)?;
        let wish = SnapshotVolumeRequest { name, ..SnapshotVolumeRequest::default() };
        let made = self.storage()?.snapshot_volume(wish).await.map_err(told)?.into_inner();
        Ok(told_snapshot(&made))
    }

    pub(super) async fn delete_one_snapshot(&self, id: &str) -> Result<(), Status> {
        if id.is_empty() {
            return Err(Status::invalid_argument("no snapshot id was given"));
        }
        if snapshot_parts(id).is_none() {
            return Ok(());
        }
        let _turn = self.turns.turn(id).await;
        self.remove(id).await
    }

    pub(super) async fn one_snapshot(&self, id: &str) -> Result<Snapshot, Status> {
        if id.is_empty() {
            return Err(Status::invalid_argument("no snapshot id was given"));
        }
        let known = self.known().await?;
        let there = known.get(id).filter(|there| snapshot_parts(&there.name).is_some());
        let there = there.ok_or_else(|| Status::not_found(format!("there is no snapshot {id:?}")))?;
        Ok(told_snapshot(there))
    }

    pub(super) async fn snapshots(
        &self,
        request: ListSnapshotsRequest,
    ) -> Result<ListSnapshotsResponse, Status> {
        let (most, token) = paging(request.max_entries, &request.starting_token)?;
        let wanted = |volume: &v1::Volume| {
            snapshot_parts(&volume.name).is_some_and(|(of, _)| {
                (request.snapshot_id.is_empty() || request.snapshot_id == volume.name)
                    && (request.source_volume_id.is_empty() || request.source_volume_id == of)
            })
        };
        let all = self.known().await?.into_values().filter(wanted).collect();
        let (entries, next_token) = page(all, |volume| &volume.name, &token, most);
        let entry =
            |volume: &v1::Volume| list_snapshots_response::Entry { snapshot: Some(told_snapshot(volume)) };
        Ok(ListSnapshotsResponse { entries: entries.iter().map(entry).collect(), next_token })
    }
}

fn told_snapshot(volume: &v1::Volume) -> Snapshot {
    let of = snapshot_parts(&volume.name).map(|(of, _)| of.to_owned()).unwrap_or_default();
    let seconds = volume.created_at.unwrap_or_default();
    Snapshot {
        size_bytes: bytes(volume.size_bytes),
        snapshot_id: volume.name.clone(),
        source_volume_id: of,
        creation_time: Some(prost_types::Timestamp { seconds: bytes(seconds), nanos: 0 }),
        ready_to_use: true,
        ..Snapshot::default()
    }
}
