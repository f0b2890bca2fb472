//! Volumes: made, deleted, listed, grown.

use std::time::Duration;

use storage_provider::is_volume_name;
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};
use wire::trestle::v1::{self, CreateVolumeRequest as Create, DeleteVolumeRequest, ResizeVolumeRequest};

use super::{Known, bytes, find, granted, invalid, told, volumes_of};
use crate::{
    Driver,
    plan::{Range, Token, access, check_parameters, encrypted, page, volume_name},
    proto::{
        self, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetVolumeResponse,
        ControllerListVolumeHealthRequest, ControllerListVolumeHealthResponse, CreateVolumeRequest,
        CreateVolumeResponse, GetCapacityRequest, GetCapacityResponse, ListVolumesRequest,
        ListVolumesResponse, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
        VolumeCapability, VolumeContentSource, VolumeHealth, VolumeHealthErrorType,
        controller_get_volume_response, list_volumes_response,
        validate_volume_capabilities_response::Confirmed,
        volume_content_source::{self, SnapshotSource, VolumeSource},
        volume_health::VolumeHealthEntry,
    },
};

/// A session that has just been ended is gone within this time.
const PARTING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);

impl Driver {
    pub(super) async fn create(&self, request: CreateVolumeRequest) -> Result<CreateVolumeResponse, Status> {
        if request.name.is_empty() {
            return Err(Status::invalid_argument("no name was given"));
        }
        check(&request.volume_capabilities)?;
        let encrypted = encrypted(&request.parameters).map_err(|err| invalid(&err))?;
        check_parameters(&request.mutable_parameters).map_err(|err| invalid(&err))?;
        let range = Range::of(request.capacity_range.as_ref())
            .map_err(|err| Status::out_of_range(err.to_string()))?;
        let source = source(request.volume_content_source)?;
        self.reaches(request.accessibility_requirements.as_ref())?;
        let name = volume_name(&request.name);
        let _turn = self.turns.turn(&name).await;
        let known = self.known().await?;
        if let Some(there) = known.get(&name) {
            if there.importing
                || there.origin != source
                || !range.holds(there.size_bytes)
                || (encrypted && !there.encrypted)
            {
                let text = format!("there is a volume {name:?} already, of {} bytes", there.size_bytes);
                return Err(Status::already_exists(text));
            }
            return Ok(self.made(there));
        }
        let floor = match known.get(&source) {
            Some(from) => Some(from.size_bytes),
            None if source.is_empty() => None,
            None => {
                return Err(Status::not_found(format!("there is nothing called {source:?} to be copied")));
            }
        };
        let size = range.size(floor).map_err(|err| Status::out_of_range(err.to_string()))?;
        if size > granted(&known).max(floor.unwrap_or_default()) {
            let text = format!(
                "{size} bytes are more than was granted ({}); have the grant raised",
                granted(&known)
            );
            return Err(Status::out_of_range(text));
        }
        let wish = Create { name, size: size.to_string(), from: source, encrypted, ..Create::default() };
        let made = self.storage()?.create_volume(wish).await.map_err(told)?.into_inner();
        Ok(self.made(&made))
    }

    fn made(&self, volume: &v1::Volume) -> CreateVolumeResponse {
        CreateVolumeResponse { volume: Some(self.told(volume)) }
    }

    fn told(&self, volume: &v1::Volume) -> proto::Volume {
        let from = volume.origin.clone();
        let kind = match from.as_str() {
            "" => None,
            name if name.contains('@') => {
                Some(volume_content_source::Type::Snapshot(SnapshotSource { snapshot_id: from }))
            }
            _ => Some(volume_content_source::Type::Volume(VolumeSource { volume_id: from })),
        };
        proto::Volume {
            capacity_bytes: bytes(volume.size_bytes),
            volume_id: volume.name.clone(),
            content_source: kind.map(|kind| VolumeContentSource { r#type: Some(kind) }),
            accessible_topology: self.topology(),
            ..proto::Volume::default()
        }
    }

    /// Of a volume with snapshots these stay, and can be used.
    pub(super) async fn delete(&self, id: &str) -> Result<(), Status> {
        if id.is_empty() {
            return Err(Status::invalid_argument("no volume id was given"));
        }
        let _turn = self.turns.turn(id).await;
        let Ok(volume) = find(&mut self.known().await?, id) else { return Ok(()) };
        if !volume.writer.is_empty() {
            return Err(Status::failed_precondition(format!("the volume is published to {}", volume.writer)));
        }
        self.remove(id).await
    }

    pub(super) async fn remove(&self, name: &str) -> Result<(), Status> {
        if !is_volume_name(name) {
            return Ok(());
        }
        let until = Instant::now() + PARTING;
        loop {
            let wish =
                DeleteVolumeRequest { name: name.to_owned(), now: !self.keep_deleted, ..Default::default() };
            match self.storage()?.delete_volume(wish).await {
                Ok(_) => return Ok(()),
                Err(status) if status.code() == Code::NotFound => return Ok(()),
                // Clients have it open, who may be on their way out.
                Err(status) if status.code() == Code::FailedPrecondition && Instant::now() < until => {
                    sleep(LOOK).await;
                }
                Err(status) => return Err(told(status)),
            }
        }
    }

    pub(super) async fn list(&self, request: ListVolumesRequest) -> Result<ListVolumesResponse, Status> {
        let (entries, next_token) = self.page(request.max_entries, &request.starting_token).await?;
        let entry = |volume: &v1::Volume| list_volumes_response::Entry {
            volume: Some(self.told(volume)),
            status: Some(list_volumes_response::VolumeStatus { published_node_ids: writers(volume) }),
        };
        Ok(ListVolumesResponse { entries: entries.iter().map(entry).collect(), next_token })
    }

    pub(super) async fn list_health(
        &self,
        request: ControllerListVolumeHealthRequest,
    ) -> Result<ControllerListVolumeHealthResponse, Status> {
        let (entries, next_token) = self.page(request.max_entries, &request.starting_token).await?;
        let entries = entries.iter().map(health).collect();
        Ok(ControllerListVolumeHealthResponse { entries, next_token })
    }

    async fn page(&self, most: i32, token: &str) -> Result<(Vec<v1::Volume>, String), Status> {
        let (most, token) = paging(most, token)?;
        Ok(page(volumes_of(self.known().await?), |volume| &volume.name, &token, most))
    }

    pub(super) fn described(&self, volume: &v1::Volume) -> ControllerGetVolumeResponse {
        let status = controller_get_volume_response::VolumeStatus { published_node_ids: writers(volume) };
        ControllerGetVolumeResponse { volume: Some(self.told(volume)), status: Some(status) }
    }

    pub(super) async fn validate(
        &self,
        request: ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
        if request.volume_id.is_empty() || request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("no volume id or no volume capability was given"));
        }
        self.volume(&request.volume_id).await?;
        let parameters = encrypted(&request.parameters).map(drop);
        let faults = request.volume_capabilities.iter().map(|one| access(Some(one)).map(drop));
        if let Some(Err(refusal)) = faults.chain([parameters]).find(Result::is_err) {
            return Ok(ValidateVolumeCapabilitiesResponse { confirmed: None, message: refusal.to_string() });
        }
        let confirmed = Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
            mutable_parameters: request.mutable_parameters,
        };
        Ok(ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() })
    }

    pub(super) async fn capacity(&self, request: GetCapacityRequest) -> Result<GetCapacityResponse, Status> {
        encrypted(&request.parameters).map_err(|err| invalid(&err))?;
        let usable = request.volume_capabilities.iter().all(|one| access(Some(one)).is_ok());
        if !usable || request.accessible_topology.is_some_and(|place| !self.is_at(&place)) {
            return Ok(GetCapacityResponse::default());
        }
        let known = self.known().await?;
        let used = known.values().map(|volume| volume.held_bytes).sum();
        let granted = granted(&known);
        Ok(GetCapacityResponse {
            available_capacity: bytes(granted.saturating_sub(used)),
            maximum_volume_size: Some(bytes(granted)),
            minimum_volume_size: None,
        })
    }

    pub(super) async fn expand(
        &self,
        request: ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Status> {
        let id = request.volume_id;
        if id.is_empty() || request.capacity_range.is_none() {
            return Err(Status::invalid_argument("no volume id or no capacity range was given"));
        }
        let outside = |err: &dyn std::error::Error| Status::out_of_range(err.to_string());
        let range = Range::of(request.capacity_range.as_ref()).map_err(|err| outside(&err))?;
        let _turn = self.turns.turn(&id).await;
        let mut known: Known = self.known().await?;
        let granted = granted(&known);
        let volume = find(&mut known, &id)?;
        let size = range.size(Some(volume.size_bytes)).map_err(|err| outside(&err))?;
        let told_size = |size| ControllerExpandVolumeResponse {
            capacity_bytes: bytes(size),
            node_expansion_required: true,
        };
        if size == volume.size_bytes {
            return Ok(told_size(size));
        }
        if size > granted {
            let text = format!("{size} bytes are more than was granted ({granted}); have the grant raised");
            return Err(Status::out_of_range(text));
        }
        let wish = ResizeVolumeRequest { name: id, size: size.to_string(), ..ResizeVolumeRequest::default() };
        let grown = self.storage()?.resize_volume(wish).await.map_err(told)?.into_inner();
        Ok(told_size(grown.size_bytes))
    }
}

pub(super) fn paging(most: i32, token: &str) -> Result<(usize, Token), Status> {
    let most = usize::try_from(most);
    let most = most.map_err(|_| Status::invalid_argument("max_entries is negative"))?;
    let token = Token::parse(token);
    let token =
        token.ok_or_else(|| Status::aborted("starting_token is none that this driver gave; begin anew"))?;
    Ok((most, token))
}

fn check(capabilities: &[VolumeCapability]) -> Result<(), Status> {
    if capabilities.is_empty() {
        return Err(Status::invalid_argument("no volume capability was given"));
    }
    capabilities.iter().try_for_each(|one| access(Some(one)).map(drop).map_err(|err| invalid(&err)))
}

/// The name of what a volume is to be a copy of; empty: of nothing.
fn source(source: Option<VolumeContentSource>) -> Result<String, Status> {
    let Some(source) = source else { return Ok(String::new()) };
    let (name, snapshot) = match source.r#type {
        Some(volume_content_source::Type::Snapshot(SnapshotSource { snapshot_id })) => (snapshot_id, true),
        Some(volume_content_source::Type::Volume(VolumeSource { volume_id })) => (volume_id, false),
        None => return Err(Status::invalid_argument("the content source says neither snapshot nor volume")),
    };
    if name.is_empty() {
        return Err(Status::invalid_argument("the content source has no id"));
    }
    match name.contains('@') == snapshot {
        true => Ok(name),
        false => Err(Status::not_found(format!("there is nothing called {name:?} to be copied"))),
    }
}

fn writers(volume: &v1::Volume) -> Vec<String> {
    Some(volume.writer.clone()).into_iter().filter(|writer| !writer.is_empty()).collect()
}

pub(super) fn health(volume: &v1::Volume) -> VolumeHealth {
    let entry = |status: VolumeHealthErrorType, reason: &str, message: &str| VolumeHealthEntry {
        status: status as i32,
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    let health_statuses = match (volume.trouble.as_str(), volume.importing) {
        ("", false) => Vec::new(),
        ("", true) => {
            vec![entry(VolumeHealthErrorType::Degraded, "Importing", "not all of its content is there yet")]
        }
        (trouble, _) => vec![entry(VolumeHealthErrorType::Inaccessible, "Trouble", trouble)],
    };
    VolumeHealth { volume_id: volume.name.clone(), health_statuses }
}
