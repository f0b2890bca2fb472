//! What is done to volumes: made, copied, made larger and smaller, deleted, put back to a snapshot; and what is left of
//! that tidied up.
//!
//! In: a step that was decided. Out: it is done and on disk, or nothing of it is. Holds: nothing.
//! Not here: whether it may be done (`storage_provider::decide_volume`).
//!
//! ```text
//!   new files, with their marks ─► one write of the record ─► what nobody needs any more is deleted
//! ```
//! Killed before the record is written, there are files it does not name, which are deleted at the next look.
//!
//! A snapshot shares the blocks of the volume's file where the file system can (reflink) and the grant has room for it
//! to be counted in full. Elsewhere the file is frozen as it is, and the volume writes to a new one above it; a frozen
//! file that one other stands on and no snapshot is, is merged into that one.

#[cfg(test)]
mod tests;

use std::{
    fs, io,
    sync::{Arc, atomic::Ordering},
};

use storage_backend::{Fill, Piece, VolumeFigures};
use storage_provider::{
    ConsumerId, DEFAULT_VOLUME, Found, Mark, VolumeKeyId, VolumeStatus, VolumeStep, Volumes,
};

use super::{Inner, Tenant};
use crate::{
    allocation::BLOCK,
    protocol::Errno,
    vault::{
        VaultError, files as failing,
        files::{Entry, Frozen, Record, sync_dir},
        marks,
    },
    volume::{Layer, Progress, Volume, create_file, is_exact, take_over_piece},
};

impl Tenant {
    /// Every volume and snapshot as it is now.
    pub(crate) fn statuses(&self) -> Volumes {
        let inner = self.inner.lock();
        let status = |(name, entry): (&String, &Entry)| {
            let volume = inner.volumes.get(name);
            let trouble = match volume {
                None => Some(self.why_closed(entry)),
                Some(volume) if volume.is_broken() => {
                    Some("writing it to the disk failed, so it takes no more writes".to_owned())
                }
                Some(_) => None,
            };
            let status = VolumeStatus {
                name: name.clone(),
                volume: entry.mark.map(|mark| mark.volume),
                size: entry.size,
                holds: volume.map_or(0, |volume| volume.top().holds() * BLOCK),
                end: volume.map_or(0, |volume| volume.end_of_data()),
                origin: entry.origin.clone(),
                created_at: entry.created_at,
                kept_until: entry.kept_until,
                sessions: volume.map_or(0, |volume| volume.users()),
                importing: entry.importing,
                epoch: entry.epoch,
                writer: entry.writer.clone(),
                last_used: volume.and_then(|volume| volume.figures.last_used()),
                encrypted: entry.mark.is_some_and(|mark| mark.key.is_some()),
                trouble,
            };
            (name.clone(), status)
        };
        inner.record.volumes.iter().map(status).collect()
    }

    fn why_closed(&self, entry: &Entry) -> String {
        let key = entry.mark.and_then(|mark| mark.key);
        match key.and_then(|key| self.keys.cipher(key).err()) {
            Some(error) => format!("it is encrypted, and {error}"),
            None => "it is not what was made, or its file cannot be opened".to_owned(),
        }
    }

    /// What clients did with each volume.
    pub(crate) fn figures(&self, consumer: ConsumerId) -> Vec<VolumeFigures> {
        let inner = self.inner.lock();
        let told = |volume: &Arc<Volume>| VolumeFigures {
            consumer,
            volume: volume.name.clone(),
            size: volume.size(),
            holds: volume.top().holds() * BLOCK,
            sessions: volume.users(),
            last_used: volume.figures.last_used(),
            operations: volume.figures.told(),
        };
        inner.volumes.values().map(told).collect()
    }

    /// Does what was decided.
    pub(crate) fn change(&self, step: &VolumeStep) -> Result<(), VaultError> {
        match step {
            VolumeStep::Nothing => Ok(()),
            VolumeStep::Create { name, size, encrypted } => self.ensure_volume(name, *size, *encrypted),
            VolumeStep::Import { name, size, encrypted } => {
                self.ensure_volume(name, *size, *encrypted)?;
                self.set_importing(name, true)
            }
            VolumeStep::Copy { name, size, from } => self.copy(from, name, *size),
            VolumeStep::Grow { name, size } => self.locked(|inner| self.grow(inner, name, *size)),
            VolumeStep::Lower { name, size } => self.locked(|inner| {
                let volume = self.open_volume(inner, name)?;
                self.unused(&volume)?;
                self.lower(inner, &volume, *size)
            }),
            VolumeStep::Hide { name, kept_until } => self.set_kept(name, Some(*kept_until)),
            VolumeStep::Show { name } => self.set_kept(name, None),
            VolumeStep::Remove { name } => self.remove_volume(name),
            VolumeStep::Snapshot { volume, name } => self.snapshot(volume, name),
            VolumeStep::Restore { name, from } => self.restore(name, from),
            VolumeStep::Publish { name, writer } => self.hand_over(name, Some(writer)),
            VolumeStep::Unpublish { name } => self.hand_over(name, None),
        }
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Inner) -> Result<T, VaultError>) -> Result<T, VaultError> {
        let mut inner = self.inner.lock();
        self.usable(&inner)?;
        work(&mut inner)
    }

    fn open_volume(&self, inner: &Inner, name: &str) -> Result<Arc<Volume>, VaultError> {
        let missing = || VaultError::NoVolume { consumer: self.id, name: name.chars().take(64).collect() };
        inner.volumes.get(name).cloned().ok_or_else(missing)
    }

    /// Decided a moment ago; who has connected since is not pulled the ground from under.
    fn unused(&self, volume: &Volume) -> Result<(), VaultError> {
        match volume.users() {
            0 => Ok(()),
            _ => Err(Self::busy(volume)),
        }
    }

    /// Writes the record as `change` makes it. If that fails, what is in memory is as before.
    pub(super) fn rewrite(
        &self,
        inner: &mut Inner,
        change: impl FnOnce(&mut Record),
    ) -> Result<(), VaultError> {
        let mut record = inner.record.clone();
        change(&mut record);
        let (before, after) = (inner.record.keys(), record.keys());
        record.spent.extend(before.difference(&after));
        record.write(&self.root, self.id)?;
        inner.record = record;
        Ok(())
    }

    fn set_kept(&self, name: &str, kept_until: Option<u64>) -> Result<(), VaultError> {
        self.locked(|inner| {
            if kept_until.is_some()
                && let Some(volume) = inner.volumes.get(name)
            {
                self.unused(volume)?;
            }
            self.rewrite(inner, |record| {
                if let Some(entry) = record.volumes.get_mut(name) {
                    entry.kept_until = kept_until;
                }
            })
        })
    }

    /// Gives a volume to a writer, or takes it from whoever has it. When this returns, whoever had it open reads and writes
    /// nothing any more, and no write of theirs is under way.
    fn hand_over(&self, name: &str, writer: Option<&String>) -> Result<(), VaultError> {
        self.locked(|inner| {
            self.rewrite(inner, |record| {
                if let Some(entry) = record.volumes.get_mut(name) {
                    entry.epoch += u64::from(writer.is_some());
                    entry.writer = writer.cloned();
                }
            })?;
            self.close(inner, |volume| volume == name);
            self.open_whole(inner);
            Ok(())
        })
    }

    fn set_importing(&self, name: &str, importing: bool) -> Result<(), VaultError> {
        self.locked(|inner| {
            self.rewrite(inner, |record| {
                if let Some(entry) = record.volumes.get_mut(name) {
                    entry.importing = importing;
                }
            })
        })
    }

    /// The next piece of a volume that holds data.
    pub(crate) fn piece(&self, name: &str, from: u64) -> Result<Option<Piece>, VaultError> {
        let volume = self.locked(|inner| self.open_volume(inner, name))?;
        let path = || self.path(name);
        let piece =
            volume.next_piece(from).map_err(|errno| failing("reading the volume", &path())(errno.into()))?;
        Ok(piece.map(|(offset, data)| Piece { offset, data }))
    }

    /// Fills a volume that is being imported.
    pub(crate) fn fill(&self, name: &str, fill: &Fill) -> Result<(), VaultError> {
        let volume = self.locked(|inner| {
            let importing = inner.record.volumes.get(name).is_some_and(|entry| entry.importing);
            let volume = self.open_volume(inner, name)?;
            if importing { Ok(volume) } else { Err(Self::busy(&volume)) }
        })?;
        let filled = match fill {
            Fill::Clear => volume.write_zeroes(0, volume.size(), false),
            Fill::Piece(Piece { offset, data }) => match offset.checked_add(data.len() as u64) {
                Some(end) if end <= volume.size() => volume.write(*offset, data, false),
                _ => Err(Errno::Invalid),
            },
            Fill::Done => volume.flush(),
        };
        filled.map_err(|errno| match errno {
            Errno::NoSpace => VaultError::Full,
            errno => failing("filling the volume", &self.path(name))(errno.into()),
        })?;
        if *fill == Fill::Done { self.set_importing(name, false) } else { Ok(()) }
    }

    /// Deletes one volume or snapshot and its data. Sessions on it get an error; the default volume stays.
    pub(crate) fn remove_volume(&self, name: &str) -> Result<(), VaultError> {
        self.locked(|inner| {
            if name == DEFAULT_VOLUME || !inner.record.volumes.contains_key(name) {
                return Err(VaultError::NoVolume {
                    consumer: self.id,
                    name: name.chars().take(64).collect(),
                });
            }
            self.rewrite(inner, |record| record.bury(name))?;
            self.close(inner, |volume| volume == name);
            self.sweep(inner)
        })
    }

    /// A file that a volume is to write to, as large as that, with its mark. Nobody knows of it yet.
    fn new_file(&self, file: &str, name: &str, mark: Mark) -> Result<fs::File, VaultError> {
        let path = self.path(file);
        create_file(&path, mark.size).map_err(failing("making the volume", &path))?;
        marks::write(&path, self.id, name, &self.identity, mark)?;
        sync_dir(&self.dir()).map_err(failing("syncing", &path))?;
        fs::OpenOptions::new().read(true).write(true).open(&path).map_err(failing("opening", &path))
    }

    /// Keeps what is in a volume at this moment.
    fn snapshot(&self, from: &str, name: &str) -> Result<(), VaultError> {
        self.locked(|inner| {
            let (volume, source) = (self.open_volume(inner, from)?, self.entry(inner, from)?);
            let mark = self.fresh_mark(volume.size(), key_of(&source))?;
            let taken = |file: String| Entry {
                size: mark.size,
                mark: Some(mark),
                file: Some(file),
                origin: Some(from.to_owned()),
                created_at: super::now(),
                ..Entry::default()
            };
            if self.has_room_for(&volume.top()) {
                let mut record = inner.record.clone();
                let file = record.fresh_file(name);
                let into = self.new_file(&file, name, mark)?;
                let frozen = Frozen { name: name.to_owned(), mark, below: source.below.clone() };
                record.frozen.insert(file.clone(), frozen);
                record.volumes.insert(name.to_owned(), taken(file.clone()));
                if self.share(inner, &volume, &into, record)? {
                    self.open_whole(inner);
                    return Ok(());
                }
                self.discard(&file)?;
            }
            let mut record = inner.record.clone();
            let frozen = self.freeze(&mut record, from)?;
            record.volumes.insert(name.to_owned(), taken(frozen));
            self.stack(inner, &volume, record)
        })
    }

    /// A new volume with what is in another one, or in a snapshot, at this moment.
    fn copy(&self, from: &str, name: &str, size: u64) -> Result<(), VaultError> {
        self.locked(|inner| {
            let (source, known) = (self.open_volume(inner, from)?, self.entry(inner, from)?);
            let mut record = inner.record.clone();
            let (file, mark) = (record.fresh_file(name), self.fresh_mark(size, key_of(&known))?);
            let made = |below: Option<String>| Entry {
                size,
                mark: Some(mark),
                file: Some(file.clone()),
                below,
                origin: Some(from.to_owned()),
                created_at: super::now(),
                ..Entry::default()
            };
            let into = self.new_file(&file, name, mark)?;
            if source.read_only {
                // Nobody writes to it, so it can be stood on as it is.
                let top = record.files_of(from).into_iter().next();
                let below = match self.share_frozen(&source.top(), &into, size)? {
                    true => {
                        top.and_then(|top| record.frozen.get(&top)).and_then(|frozen| frozen.below.clone())
                    }
                    false => top,
                };
                record.volumes.insert(name.to_owned(), made(below));
                self.rewrite(inner, |known| *known = record)?;
                self.open_whole(inner);
                return Ok(());
            }
            if self.has_room_for(&source.top()) {
                let mut record = record.clone();
                record.volumes.insert(name.to_owned(), made(known.below));
                if self.share(inner, &source, &into, record)? {
                    self.open_whole(inner);
                    return Ok(());
                }
                into.set_len(size).map_err(failing("making the volume", &self.path(&file)))?;
            }
            let frozen = self.freeze(&mut record, from)?;
            record.volumes.insert(name.to_owned(), made(Some(frozen)));
            self.stack(inner, &source, record)
        })
    }

    /// Puts a volume back to a snapshot of it. Nobody has it open.
    fn restore(&self, name: &str, from: &str) -> Result<(), VaultError> {
        self.locked(|inner| {
            let (source, known) = (self.open_volume(inner, from)?, self.entry(inner, name)?);
            if let Some(volume) = inner.volumes.get(name) {
                self.unused(volume)?;
            }
            let mut record = inner.record.clone();
            let size = known.size.max(source.size());
            let mark = match known.mark {
                Some(mark) => Mark { generation: mark.generation + 1, size, ..mark },
                None => self.fresh_mark(size, None)?,
            };
            let file = record.fresh_file(name);
            let into = self.new_file(&file, name, mark)?;
            let top = record.files_of(from).into_iter().next();
            let below = match self.share_frozen(&source.top(), &into, size)? {
                true => top.and_then(|top| record.frozen.get(&top)).and_then(|frozen| frozen.below.clone()),
                false => top,
            };
            let entry = Entry { size, mark: Some(mark), file: Some(file), below, ..known };
            record.volumes.insert(name.to_owned(), entry);
            record.prune();
            self.rewrite(inner, |known| *known = record)?;
            self.close(inner, |volume| volume == name);
            self.open_whole(inner);
            self.sweep(inner)
        })
    }

    /// Destroys keys that nothing is encrypted with any more.
    fn destroy_spent(&self, inner: &mut Inner) -> Result<(), VaultError> {
        let spent = inner.record.spent.clone();
        if spent.is_empty() {
            return Ok(());
        }
        spent.iter().try_for_each(|key| self.keys.destroy(*key))?;
        self.rewrite(inner, |record| record.spent.clear())
    }

    fn busy(volume: &Volume) -> VaultError {
        VaultError::Busy { name: volume.name.clone() }
    }

    fn entry(&self, inner: &Inner, name: &str) -> Result<Entry, VaultError> {
        let missing = || VaultError::NoVolume { consumer: self.id, name: name.to_owned() };
        inner.record.volumes.get(name).cloned().ok_or_else(missing)
    }

    /// Whether a copy of it can be counted in full.
    fn has_room_for(&self, layer: &Layer) -> bool {
        let balance = self.account.balance();
        balance.used.saturating_add(layer.holds() * BLOCK) <= balance.limit
    }

    /// Fills a new file with a volume's at one moment, sharing its blocks, and writes the record. `false` when the file
    /// system cannot.
    fn share(
        &self,
        inner: &mut Inner,
        volume: &Volume,
        into: &fs::File,
        record: Record,
    ) -> Result<bool, VaultError> {
        let mut shared = false;
        let size = into.metadata().map_err(failing("looking at", &self.dir()))?.len();
        volume.freeze(
            || Self::busy(volume),
            |top| {
                shared = Volume::share_file(top, into);
                if shared {
                    into.set_len(size)
                        .and_then(|()| into.sync_all())
                        .map_err(failing("syncing", &self.dir()))?;
                    self.rewrite(inner, |known| *known = record)?;
                }
                Ok::<_, VaultError>(None)
            },
        )?;
        Ok(shared)
    }

    /// The same of a layer nobody writes to.
    fn share_frozen(&self, layer: &Layer, into: &fs::File, size: u64) -> Result<bool, VaultError> {
        let shared = self.has_room_for(layer) && Volume::share_file(layer, into);
        if shared {
            into.set_len(size).and_then(|()| into.sync_all()).map_err(failing("syncing", &self.dir()))?;
        }
        Ok(shared)
    }

    /// In a record to be: a volume's file is frozen, and the volume writes to a new one, which is made. Returns the
    /// frozen one's name.
    fn freeze(&self, record: &mut Record, name: &str) -> Result<String, VaultError> {
        let missing = || VaultError::NoVolume { consumer: self.id, name: name.to_owned() };
        if !is_exact(&self.path(&record.fresh_file("probe"))).map_err(failing("trying", &self.dir()))? {
            return Err(VaultError::Inexact { path: self.dir() });
        }
        let file = record.fresh_file(name);
        let mut entry = record.volumes.get(name).cloned().ok_or_else(missing)?;
        let mark = entry.mark.ok_or(VaultError::Busy { name: name.to_owned() })?;
        let old = entry.file.replace(file.clone()).unwrap_or_else(|| name.to_owned());
        let frozen = Frozen { name: name.to_owned(), mark, below: entry.below.replace(old.clone()) };
        record.frozen.insert(old.clone(), frozen);
        let next = Mark { generation: mark.generation + 1, ..mark };
        entry.mark = Some(next);
        record.volumes.insert(name.to_owned(), entry);
        self.new_file(&file, name, next)?;
        Ok(old)
    }

    /// Has a volume write to the new file that the record names for it, once that record is on disk.
    fn stack(&self, inner: &mut Inner, volume: &Volume, record: Record) -> Result<(), VaultError> {
        let name = volume.name.clone();
        let file = record.files_of(&name).into_iter().next().expect("a volume has a file");
        volume.freeze(
            || Self::busy(volume),
            |old| {
                let above = self.open_layer(&file, Some(Arc::clone(old)), record.key_of(&file))?;
                let above = Arc::new(above);
                self.rewrite(inner, |known| *known = record)?;
                inner.layers.insert(file, Arc::clone(&above));
                Ok::<_, VaultError>(Some(above))
            },
        )?;
        self.open_whole(inner);
        Ok(())
    }

    /// Whether something of it waits to be tidied up.
    pub(super) fn is_untidy(&self, record: &Record) -> bool {
        let now = super::now();
        let expired = |entry: &Entry| entry.kept_until.is_some_and(|until| until <= now);
        record.volumes.values().any(expired)
            || record.needless().is_some()
            || !record.spent.is_empty()
            || !self.strays(record).is_empty()
    }

    /// Removes volumes whose grace time is over, and files that nobody needs.
    pub(crate) fn tidy(&self) -> Result<(), VaultError> {
        let now = super::now();
        let expired = self.locked(|inner| {
            let expired = |(name, entry): (&String, &Entry)| {
                entry.kept_until.is_some_and(|until| until <= now).then(|| name.clone())
            };
            Ok(inner.record.volumes.iter().filter_map(expired).collect::<Vec<_>>())
        })?;
        expired.iter().try_for_each(|name| self.remove_volume(name))?;
        self.locked(|inner| self.sweep(inner))
    }

    /// Merges every frozen file that one other alone stands on into that one, unless somebody is at it. Takes as long as
    /// copying what is in there; others go on meanwhile. What fails is tried again when it is tidied up next.
    pub(crate) fn merge_all(&self) {
        if self.merging.swap(true, Ordering::AcqRel) {
            return;
        }
        loop {
            let merged = self.locked(|inner| Ok(inner.record.needless())).and_then(|next| match next {
                Some((file, above)) => self.merge(&file, &above),
                None => Ok(false),
            });
            match merged {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(consumer = %self.id, error = common::chain(&error), "a layer is not merged yet");
                    break;
                }
            }
        }
        self.merging.store(false, Ordering::Release);
    }

    /// Has what stands on a frozen file take over what is in there. `false` when that cannot be done now.
    fn merge(&self, file: &str, above: &str) -> Result<bool, VaultError> {
        let failed = |errno: Errno| failing("merging", &self.path(file))(errno.into());
        let standing = |inner: &mut Inner| {
            let layer = inner.layers.get(above)?;
            layer.below().is_some_and(|below| below.name == file).then(|| Arc::clone(layer))
        };
        let Some(layer) = self.locked(|inner| Ok(standing(inner)))? else { return Ok(false) };
        let mut from = 0;
        loop {
            // A piece at a time: others make snapshots, and write, meanwhile.
            let progress = self.locked(|inner| {
                let is_top = |volume: &&Arc<Volume>| !volume.read_only && Arc::ptr_eq(&volume.top(), &layer);
                let taken = match inner.volumes.values().find(is_top) {
                    Some(volume) => volume.take_over_piece(&layer, from),
                    None => take_over_piece(&layer, from),
                };
                taken.map_err(failed)
            })?;
            match progress {
                Progress::Next(next) => from = next,
                Progress::Done => break,
            }
        }
        layer.sync().map_err(failing("syncing", &self.path(above)))?;
        self.locked(|inner| {
            // Somebody made a copy of it meanwhile, or it was closed.
            let still = inner.record.alone_on(file).as_deref() == Some(above);
            if !still || !standing(inner).is_some_and(|open| Arc::ptr_eq(&open, &layer)) {
                return Ok(false);
            }
            self.rewrite(inner, |record| record.step_over(file))?;
            layer.step_over();
            self.forget_layers(inner);
            self.sweep(inner)?;
            Ok(true)
        })
    }

    /// Destroys keys that nothing needs, and deletes files of this consumer that no volume needs.
    fn sweep(&self, inner: &mut Inner) -> Result<(), VaultError> {
        let destroyed = self.destroy_spent(inner);
        self.strays(&inner.record).iter().try_for_each(|file| self.discard(file))?;
        destroyed
    }

    /// Files that were made for volumes which do not need them any more, or not yet.
    fn strays(&self, record: &Record) -> Vec<String> {
        let needed = record.files();
        let known = |mark: &Mark| {
            record.gone.contains(&mark.volume)
                || record
                    .volumes
                    .values()
                    .any(|entry| entry.mark.is_some_and(|entry| entry.volume == mark.volume))
        };
        let is_stray = |file: &String| {
            !needed.contains(file)
                && (file.contains('~')
                    || matches!(marks::look(&self.path(file), self.id, file, &self.identity), Found::Whole(mark) if known(&mark)))
        };
        marks::files_in(&self.dir()).unwrap_or_default().into_iter().filter(is_stray).collect()
    }

    fn discard(&self, file: &str) -> Result<(), VaultError> {
        let path = self.path(file);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failing("deleting", &path)(error)),
            _ => marks::remove(&path).map_err(failing("deleting the mark of", &path)),
        }
    }

    /// Whether there are files that only the record can tell what they are.
    pub(super) fn has_numbered_files(&self) -> bool {
        marks::files_in(&self.dir()).unwrap_or_default().iter().any(|file| file.contains('~'))
    }
}

/// What a volume is encrypted with: so is what shares blocks with it.
fn key_of(entry: &Entry) -> Option<VolumeKeyId> {
    entry.mark?.key
}
