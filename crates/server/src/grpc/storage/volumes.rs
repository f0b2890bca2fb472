//! Volumes of a consumer: called by administrators, and by the consumer itself with its certificate.
//!
//! In: requests. Out: the volume as it is then; content as a stream. Not here: what may be done
//! (`storage_provider::decide_volume`).

use std::sync::Arc;

use drivers::storage::Storage;
use futures::{Stream, stream};
use model::{
    ContentDigest, Role,
    change::{Change, What},
};
use storage_backend::Piece;
use storage_provider::{
    Capacity, CapacityForm, ConsumerId, Refusal, VolumeCode, VolumeStatus, VolumeWish, export_of,
};
use tonic::{Code, Request, Status, Streaming};
use wire::trestle::v1::{
    self, CreateVolumeRequest, DeleteVolumeRequest, ExportVolumeRequest, ImportVolumeRequest, ImportedVolume,
    KeepVolumeRequest, ListVolumesRequest, ListVolumesResponse, PublishVolumeRequest, ResizeVolumeRequest,
    RestoreVolumeRequest, SnapshotVolumeRequest, UnpublishVolumeRequest, VolumeContent, VolumePart,
    import_volume_request, volume_part::Part,
};

use super::{Grpc, enabled, refuse};
use crate::{
    access::{Caller, Peer},
    audit,
    failure::Failure,
};

/// Longest piece of an import.
const PIECE: usize = 4 << 20;

/// Who asks, and for whose volumes.
pub(super) struct Whose {
    caller: Option<Caller>,
    certificate: Option<[u8; 32]>,
}

impl Whose {
    pub(super) fn of<T>(request: &Request<T>) -> Self {
        let peer = request.extensions().get::<Peer>();
        let certificate = peer.and_then(|peer| peer.certificate.as_ref()).map(|it| it.fingerprint);
        Self { caller: request.extensions().get::<Caller>().cloned(), certificate }
    }

    /// The consumer that is meant. One that calls itself reaches its own volumes only, and only with the certificate that
    /// opens its storage now.
    async fn consumer(&self, storage: &Storage, named: &str) -> Result<ConsumerId, Failure> {
        let own = self.caller.as_ref().filter(|caller| caller.role() == Role::Consumer);
        let Some(own) = own else { return super::consumer_named(storage, named).await };
        let refused = |text: &str| Failure::new(Code::PermissionDenied, text);
        let id: ConsumerId = own
            .subject
            .name
            .to_string()
            .parse()
            .map_err(|_| refused("the certificate names no consumer of this storage"))?;
        if !named.is_empty() && named != id.to_string() {
            return Err(refused("the volumes of another consumer are not the caller's"));
        }
        self.hold(storage, id)?;
        storage.provider.heard_from(id);
        Ok(id)
    }

    /// Whether a consumer that calls itself still may: content takes a while to go over.
    fn hold(&self, storage: &Storage, id: ConsumerId) -> Result<(), Failure> {
        let own = self.caller.as_ref().is_some_and(|caller| caller.role() == Role::Consumer);
        if !own || self.certificate.is_some_and(|shown| storage.provider.admits(id, &shown)) {
            return Ok(());
        }
        let text = "the certificate does not open the consumer's storage any more; fetch the new one";
        Err(Failure::new(Code::PermissionDenied, text))
    }
}

impl Grpc {
    pub(super) async fn volumes(
        &self,
        whose: Whose,
        request: ListVolumesRequest,
    ) -> Result<ListVolumesResponse, Failure> {
        let storage = enabled(&self.0)?;
        let id = whose.consumer(storage, &request.consumer).await?;
        let volumes = storage.provider.volumes(id).await.map_err(told)?;
        Ok(ListVolumesResponse { volumes: volumes.into_values().map(volume).collect() })
    }

    pub(super) async fn create(
        &self,
        whose: Whose,
        request: CreateVolumeRequest,
    ) -> Result<v1::Volume, Failure> {
        let CreateVolumeRequest { consumer, name, size, from, importing, encrypted } = request;
        let from = Some(from).filter(|from| !from.is_empty());
        let size = if size.is_empty() && from.is_some() { 0 } else { bytes(&size)? };
        let wish = match (importing, from) {
            (true, None) => VolumeWish::Import { name, size, encrypted },
            (true, Some(_)) => {
                let text = "what is imported comes from outside; leave `from` out";
                return Err(Failure::new(Code::InvalidArgument, text));
            }
            (false, from) => VolumeWish::Create { name, size, from, encrypted },
        };
        self.change(whose, &consumer, wish, What::Created).await
    }

    pub(super) async fn resize(
        &self,
        whose: Whose,
        request: ResizeVolumeRequest,
    ) -> Result<v1::Volume, Failure> {
        let wish = VolumeWish::Resize { name: request.name, size: bytes(&request.size)? };
        self.change(whose, &request.consumer, wish, What::Changed).await
    }

    pub(super) async fn delete(&self, whose: Whose, request: DeleteVolumeRequest) -> Result<(), Failure> {
        let storage = enabled(&self.0)?;
        let kept_until = storage.provider.kept_until().filter(|_| !request.now);
        let id = whose.consumer(storage, &request.consumer).await?;
        let wish = VolumeWish::Delete { name: request.name, kept_until };
        self.wish(id, wish, What::Deleted).await.map(drop)
    }

    pub(super) async fn take_back(
        &self,
        whose: Whose,
        request: KeepVolumeRequest,
    ) -> Result<v1::Volume, Failure> {
        let wish = VolumeWish::Keep { name: request.name };
        self.change(whose, &request.consumer, wish, What::Changed).await
    }

    pub(super) async fn snapshot(
        &self,
        whose: Whose,
        request: SnapshotVolumeRequest,
    ) -> Result<v1::Volume, Failure> {
        let wish = VolumeWish::Snapshot { name: request.name };
        self.change(whose, &request.consumer, wish, What::Created).await
    }

    pub(super) async fn restore(
        &self,
        whose: Whose,
        request: RestoreVolumeRequest,
    ) -> Result<v1::Volume, Failure> {
        let wish = VolumeWish::Restore { name: request.name, from: request.from };
        self.change(whose, &request.consumer, wish, What::Changed).await
    }

    pub(super) async fn publish(
        &self,
        whose: Whose,
        request: PublishVolumeRequest,
    ) -> Result<v1::Volume, Failure> {
        let PublishVolumeRequest { consumer, name, writer, take_over } = request;
        self.change(whose, &consumer, VolumeWish::Publish { name, writer, take_over }, What::Changed).await
    }

    pub(super) async fn unpublish(
        &self,
        whose: Whose,
        request: UnpublishVolumeRequest,
    ) -> Result<v1::Volume, Failure> {
        let writer = Some(request.writer).filter(|writer| !writer.is_empty());
        let wish = VolumeWish::Unpublish { name: request.name, writer };
        self.change(whose, &request.consumer, wish, What::Changed).await
    }

    async fn change(
        &self,
        whose: Whose,
        consumer: &str,
        wish: VolumeWish,
        what: What,
    ) -> Result<v1::Volume, Failure> {
        let id = whose.consumer(enabled(&self.0)?, consumer).await?;
        let changed = self.wish(id, wish, what).await?;
        changed.map(volume).ok_or_else(|| Failure::new(Code::NotFound, "the volume is gone meanwhile"))
    }

    async fn wish(
        &self,
        id: ConsumerId,
        wish: VolumeWish,
        what: What,
    ) -> Result<Option<VolumeStatus>, Failure> {
        let granted = enabled(&self.0)?.provider.change_volume(id, &wish).await.map_err(told)?;
        if granted.changed {
            audit::changed(Change::named(format!("volume {id}/{}", wish.name()), what));
        }
        Ok(granted.volume)
    }

    pub(super) async fn export(
        &self,
        whose: Whose,
        request: ExportVolumeRequest,
    ) -> Result<impl Stream<Item = Result<VolumePart, Status>> + Send + use<>, Failure> {
        let storage = self.0.clone();
        let id = whose.consumer(enabled(&storage)?, &request.consumer).await?;
        let storage = storage.expect("it is enabled");
        let mut unique = [0; 8];
        aws_lc_rs::rand::fill(&mut unique).map_err(|err| Failure::from_error(Code::Internal, &err))?;
        let unique = format!("export-{}", common::hex(&unique));
        let taken = storage.provider.export(id, &request.name, &unique).await.map_err(told)?;
        let size = taken.size;
        let kept = Kept { whose, storage, id, name: request.name, taken: taken.name };
        let state = (kept, Next::Size, ContentDigest::default());
        Ok(stream::unfold(state, move |(kept, next, mut digest)| async move {
            let part = |part| Ok(VolumePart { part: Some(part) });
            let from = match next {
                Next::Size => return Some((part(Part::SizeBytes(size)), (kept, Next::From(0), digest))),
                Next::From(from) => from,
                Next::Over => return None,
            };
            match kept.read(from).await {
                Err(failure) => Some((Err(failure.into()), (kept, Next::Over, digest))),
                Ok(None) => {
                    let sum = digest.clone().finish(size).to_vec();
                    Some((part(Part::Digest(sum)), (kept, Next::Over, digest)))
                }
                Ok(Some(Piece { offset, data })) => {
                    let next = Next::From(offset + data.len() as u64);
                    let sent = match digest.update(offset, &data) {
                        Ok(()) => part(Part::Content(VolumeContent { offset, data })),
                        Err(err) => Err(Failure::from_error(Code::Internal, &err).into()),
                    };
                    Some((sent, (kept, next, digest)))
                }
            }
        }))
    }

    pub(super) async fn import(
        &self,
        whose: Whose,
        mut parts: Streaming<ImportVolumeRequest>,
    ) -> Result<v1::Volume, Failure> {
        use import_volume_request::Part;
        let storage = enabled(&self.0)?;
        let invalid = |text: &str| Failure::new(Code::InvalidArgument, text);
        let broken = |status: Status| {
            Failure::new(status.code(), format!("the import broke off: {}; begin it again", status.message()))
        };
        let first = parts.message().await.map_err(broken)?.and_then(|first| first.part);
        let Some(Part::Volume(ImportedVolume { consumer, name })) = first else {
            return Err(invalid("an import begins with the name of its volume"));
        };
        let id = whose.consumer(storage, &consumer).await?;
        storage.provider.import(id, &name).await.map_err(told)?;
        while let Some(next) = parts.message().await.map_err(broken)? {
            whose.hold(storage, id)?;
            match next.part {
                Some(Part::Content(VolumeContent { data, .. })) if data.len() > PIECE => {
                    return Err(invalid("a piece has four mebibytes at most"));
                }
                Some(Part::Content(VolumeContent { offset, data })) => {
                    storage.provider.fill_volume(id, &name, Piece { offset, data }).await.map_err(told)?;
                }
                Some(Part::Digest(digest)) => {
                    let imported = storage.provider.imported(id, &name, &digest).await.map_err(told)?;
                    return Ok(volume(imported));
                }
                Some(Part::Volume(_)) | None => {
                    return Err(invalid("content and then its digest is expected"));
                }
            }
        }
        Err(Failure::new(Code::Aborted, "the import broke off before its end; begin it again"))
    }
}

/// What comes next of an export.
enum Next {
    Size,
    From(u64),
    Over,
}

/// What is kept for an export, until it is over or nobody takes it any more.
struct Kept {
    whose: Whose,
    storage: Arc<Storage>,
    id: ConsumerId,
    name: String,
    taken: String,
}

impl Kept {
    async fn read(&self, from: u64) -> Result<Option<Piece>, Failure> {
        self.whose.hold(&self.storage, self.id)?;
        self.storage.provider.read_volume(self.id, &self.taken, from).await.map_err(told)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let (storage, id) = (Arc::clone(&self.storage), self.id);
        let (name, taken) = (std::mem::take(&mut self.name), std::mem::take(&mut self.taken));
        if name == taken {
            return;
        }
        // If it does not run to its end, the snapshot goes with its time.
        tokio::spawn(async move {
            if let Err(refusal) = storage.provider.exported(id, &name, &taken).await {
                tracing::warn!(consumer = %id, volume = taken, error = refusal.message(), "what was kept for an export stays for a day");
            }
        });
    }
}

fn bytes(size: &str) -> Result<u64, Failure> {
    Ok(Capacity::parse(size, CapacityForm::Text).map_err(|err| Failure::invalid(&err))?.bytes())
}

/// A refusal with the code that clients of volumes expect; those of the OCS design have few.
fn told(refusal: Refusal) -> Failure {
    let code = match &refusal {
        Refusal::Volume(volume) => match volume.code() {
            VolumeCode::Invalid => Code::InvalidArgument,
            VolumeCode::Missing => Code::NotFound,
            VolumeCode::Exists => Code::AlreadyExists,
            VolumeCode::NotNow => Code::FailedPrecondition,
            VolumeCode::Full => Code::ResourceExhausted,
            VolumeCode::Damaged => Code::DataLoss,
            VolumeCode::Unsupported => Code::Unimplemented,
        },
        Refusal::UnknownConsumer => Code::NotFound,
        _ => return refuse(refusal),
    };
    match refusal {
        Refusal::Volume(refusal) => Failure::from_error(code, &refusal),
        refusal => Failure::from_error(code, &refusal),
    }
}

fn volume(status: VolumeStatus) -> v1::Volume {
    v1::Volume {
        export: export_of(&status),
        epoch: status.epoch,
        writer: status.writer.unwrap_or_default(),
        name: status.name,
        id: status.volume.map(|id| id.to_string()).unwrap_or_default(),
        size_bytes: status.size,
        held_bytes: status.holds,
        origin: status.origin.unwrap_or_default(),
        created_at: Some(status.created_at).filter(|at| *at > 0),
        kept_until: status.kept_until,
        clients: status.sessions as u64,
        last_used: status.last_used,
        importing: status.importing,
        encrypted: status.encrypted,
        trouble: status.trouble.unwrap_or_default(),
    }
}
