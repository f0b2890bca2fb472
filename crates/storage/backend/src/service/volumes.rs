//! Volumes of a consumer, by name: decided on what there is, done, and written into the consumer's record.
//!
//! In: wishes of the consumer itself, or of an administrator. Out: the volume as it is then. Not here: what may be done
//! (`storage_provider::decide_volume`), who may wish it (`server`).
//!
//! The vault has the last word on which volumes there are; the record follows, as it does after every look. Killed between
//! the two, the next look finds the volume, or that it was deleted on purpose.

use model::ContentDigest;
use storage_provider::{
    Consumer, ConsumerId, Phase, Refusal, VolumeRefusal, VolumeStatus, VolumeStep, VolumeWish, Volumes,
    check_export, check_import, decide_volume, snapshot_parts,
};

use super::{Provider, provider_fault};
use crate::{
    backend::{Backend, BackendError, Fill, Piece},
    records::Records,
};

/// Seconds in which an export that was cut off is forgotten.
const EXPORT: u64 = 24 * 3600;

/// What came of a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// What it is about, as it is now; `None`: it is gone.
    pub volume: Option<VolumeStatus>,
    /// Whether something was done.
    pub changed: bool,
}

impl<R: Records, B: Backend> Provider<R, B> {
    /// The volumes and snapshots of a consumer, those that were deleted and are kept included.
    pub async fn volumes(&self, id: ConsumerId) -> Result<Volumes, Refusal> {
        self.usable(id).await?;
        self.backend.volumes(id).await.map_err(volume_refusal)
    }

    /// Whether a consumer's certificate of this SHA-256 is the one it was given, and not revoked.
    pub fn admits(&self, id: ConsumerId, certificate: &[u8; 32]) -> bool {
        self.backend.admits(id, certificate)
    }

    /// When what is deleted now is gone; `None` where nothing is kept.
    pub fn kept_until(&self) -> Option<u64> {
        (self.grace > 0).then(|| self.now().saturating_add(self.grace))
    }

    /// Does what is wished of a volume, if it may be done. On disk when it returns.
    pub async fn change_volume(&self, id: ConsumerId, wish: &VolumeWish) -> Result<Granted, Refusal> {
        let _worker = self.work_on(id).await;
        let consumer = self.usable(id).await?;
        let volumes = self.backend.volumes(id).await.map_err(volume_refusal)?;
        let encrypted = consumer.encrypted || self.terms.encrypted;
        let step = decide_volume(wish, &volumes, consumer.granted)?.encrypted(encrypted);
        let changed = step != VolumeStep::Nothing;
        if changed {
            self.backend.change_volume(id, step).await.map_err(volume_refusal)?;
            self.remember_volumes(id).await?;
        }
        let mut volumes = self.backend.volumes(id).await.map_err(volume_refusal)?;
        Ok(Granted { volume: volumes.remove(wish.name()), changed })
    }

    /// Keeps what is in a volume at this moment for as long as it is read from outside. What is returned is to be read,
    /// and to be given back to [`Self::exported`]; if it is not, it goes with the grace time.
    pub async fn export(&self, id: ConsumerId, name: &str, unique: &str) -> Result<VolumeStatus, Refusal> {
        let mut volumes = self.volumes(id).await?;
        check_export(name, &volumes)?;
        if snapshot_parts(name).is_some() {
            return volumes.remove(name).ok_or(Refusal::UnknownConsumer);
        }
        let taken = format!("{name}@{unique}");
        let taken = self.change_volume(id, &VolumeWish::Snapshot { name: taken }).await?.volume;
        let taken = taken.ok_or(Refusal::UnknownConsumer)?;
        // Nobody else sees it, and after a crash it goes by itself.
        let kept_until = Some(self.now().saturating_add(EXPORT));
        self.change_volume(id, &VolumeWish::Delete { name: taken.name.clone(), kept_until }).await?;
        Ok(taken)
    }

    /// What was kept for an export is not needed any more.
    pub async fn exported(&self, id: ConsumerId, name: &str, taken: &str) -> Result<(), Refusal> {
        if name != taken {
            let removed = VolumeWish::Delete { name: taken.to_owned(), kept_until: None };
            self.change_volume(id, &removed).await?;
        }
        Ok(())
    }

    /// The next piece of what [`Self::export`] gave.
    pub async fn read_volume(&self, id: ConsumerId, name: &str, from: u64) -> Result<Option<Piece>, Refusal> {
        self.backend.read_volume(id, name.to_owned(), from).await.map_err(volume_refusal)
    }

    /// Begins to fill a volume that was made to be imported, from its beginning; its size.
    pub async fn import(&self, id: ConsumerId, name: &str) -> Result<u64, Refusal> {
        let _worker = self.work_on(id).await;
        let size = check_import(name, &self.volumes(id).await?)?;
        self.backend.fill_volume(id, name.to_owned(), Fill::Clear).await.map_err(volume_refusal)?;
        Ok(size)
    }

    pub async fn fill_volume(&self, id: ConsumerId, name: &str, piece: Piece) -> Result<(), Refusal> {
        self.backend.fill_volume(id, name.to_owned(), Fill::Piece(piece)).await.map_err(volume_refusal)
    }

    /// All of it was sent, and it is everybody's if what is stored has this digest.
    pub async fn imported(&self, id: ConsumerId, name: &str, digest: &[u8]) -> Result<VolumeStatus, Refusal> {
        let _worker = self.work_on(id).await;
        let size = check_import(name, &self.volumes(id).await?)?;
        let (mut stored, mut from) = (ContentDigest::default(), 0);
        while let Some(Piece { offset, data }) = self.read_volume(id, name, from).await? {
            stored.update(offset, &data).map_err(provider_fault)?;
            from = offset + data.len() as u64;
        }
        if stored.finish(size) != *digest {
            return Err(VolumeRefusal::Checksum { name: name.to_owned() }.into());
        }
        self.backend.fill_volume(id, name.to_owned(), Fill::Done).await.map_err(volume_refusal)?;
        let mut volumes = self.backend.volumes(id).await.map_err(volume_refusal)?;
        volumes.remove(name).ok_or(Refusal::UnknownConsumer)
    }

    /// Writes down which data there is.
    async fn remember_volumes(&self, id: ConsumerId) -> Result<(), Refusal> {
        let data = self.backend.observe(id).await.map_err(provider_fault)?.data();
        self.change(id, |consumer| match consumer {
            Some(consumer) if consumer.phase == Phase::Ready && consumer.data != data => {
                Ok(Some(Consumer { data: data.clone(), ..consumer.clone() }))
            }
            // Whoever changed it meanwhile sees to it that it is looked at.
            _ => Ok(None),
        })
        .await?;
        self.wake(id);
        Ok(())
    }

    /// A consumer whose volumes can be used.
    async fn usable(&self, id: ConsumerId) -> Result<Consumer, Refusal> {
        let stored = self.records.consumer(id).await.map_err(provider_fault)?;
        let consumer = stored.ok_or(Refusal::UnknownConsumer)?.value;
        match &consumer.phase {
            Phase::Ready => Ok(consumer),
            Phase::Configuring => Err(Refusal::Configuring),
            Phase::Failed { reason } => Err(Refusal::Failed { reason: reason.clone() }),
            Phase::Deleting { .. } => Err(Refusal::UnknownConsumer),
        }
    }
}

fn volume_refusal(error: BackendError) -> Refusal {
    match error {
        BackendError::NoVolumes => VolumeRefusal::Unsupported.into(),
        BackendError::Full => VolumeRefusal::Full.into(),
        error => provider_fault(error),
    }
}
