//! A tenant's volumes: made, found again, grown, made smaller, taken over.
//!
//! In: sizes and names from the backend, files and marks on disk. Out: open volumes. Holds: nothing; they are in the
//! tenant. Not here: whether what is on disk is what the consumer's record says (`storage_provider::judge`).
//!
//! ```text
//!   make    record: the mark it will have ─► file ─► mark beside it
//!   grow    file ─► mark ─► record
//!   lower   mark ─► record ─► file           (a file is never smaller than its mark, but for damage)
//! ```

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _, path::PathBuf, sync::Arc};

use storage_provider::{Found, Mark};

use super::{DEFAULT_VOLUME, Inner, Tenant, check_volume_name, volume_path};
use crate::{
    allocation::BLOCK,
    vault::{
        VaultError, files as failing,
        files::{Entry, Record, sync_dir},
        marks,
    },
    volume::{Volume, create_file},
};

const MAX_VOLUMES: usize = 256;

impl Tenant {
    fn dir(&self) -> PathBuf {
        self.root.join("volumes").join(self.id.to_string())
    }

    fn path(&self, name: &str) -> PathBuf {
        volume_path(&self.root, self.id, name)
    }

    /// Whether the file we hold is still the one under the volume's name.
    pub(super) fn is_in_place(&self, volume: &Volume) -> bool {
        let named = fs::metadata(self.path(&volume.name));
        named.is_ok_and(|named| volume.inode().is_ok_and(|held| held == (named.dev(), named.ino())))
    }

    /// What there is of each volume that the record names or the directory holds.
    pub(super) fn look(&self, record: &Record) -> BTreeMap<String, Found> {
        let mut names = marks::names_in(&self.dir()).unwrap_or_default();
        names.extend(record.volumes.keys().cloned());
        let look = |name: String| {
            let found = marks::look(&self.path(&name), self.id, &name, &self.identity);
            let known = record.volumes.get(&name);
            let found = match (found, known) {
                (Found::Unmarked { size }, Some(Entry { size: known, mark: None, .. })) if size < *known => {
                    Found::Damaged { reason: format!("it was cut from {known} to {size} bytes") }
                }
                (found, _) => found,
            };
            (name, found)
        };
        names.into_iter().map(look).collect()
    }

    /// Opens every volume that is what the record says, and is not open.
    pub(super) fn open_whole(&self, inner: &mut Inner) {
        for (name, entry) in inner.record.volumes.clone() {
            if inner.volumes.contains_key(&name) || check_volume_name(&name).is_err() {
                continue;
            }
            let path = self.path(&name);
            if !is_the_one(&entry, &marks::look(&path, self.id, &name, &self.identity)) {
                continue;
            }
            match Volume::open(&name, &path, Arc::clone(&self.account)) {
                Ok(volume) => drop(inner.volumes.insert(name, Arc::new(volume))),
                Err(error) => {
                    tracing::warn!(consumer = %self.id, volume = name, error = common::chain(&error), "volume left out");
                }
            }
        }
    }

    /// Closes volumes whose file is gone from its place: what their clients wrote on would be lost.
    pub(super) fn close_lost(&self, inner: &mut Inner) {
        inner.volumes.retain(|name, volume| {
            let in_place = self.is_in_place(volume);
            if !in_place {
                volume.retire();
                tracing::warn!(consumer = %self.id, volume = name, "the volume's file is not in its place any more; it is closed");
            }
            in_place
        });
    }

    /// Closes every volume. They stay where they are.
    pub(crate) fn withhold(&self) {
        let mut inner = self.inner.lock();
        std::mem::take(&mut inner.volumes).into_values().for_each(|volume| volume.retire());
        std::mem::take(&mut inner.stop).cancel();
    }

    /// Makes a volume, or finishes making it, or lets it grow to `bytes`.
    pub(crate) fn ensure_volume(&self, name: &str, bytes: u64) -> Result<(), VaultError> {
        check_volume_name(name)?;
        let size = bytes / BLOCK * BLOCK;
        let mut inner = self.inner.lock();
        self.usable(&inner)?;
        if !inner.record.volumes.contains_key(name) {
            if inner.record.volumes.len() >= MAX_VOLUMES {
                return Err(VaultError::TooManyVolumes { consumer: self.id, most: MAX_VOLUMES });
            }
            if self.path(name).exists() {
                let what = format!("the file {}", self.path(name).display());
                return Err(VaultError::NotOurs { what });
            }
            let volume = marks::fresh_volume()?;
            let mark = Mark { vault: self.identity.vault, volume, generation: 1, size };
            inner.record.volumes.insert(name.to_owned(), Entry { size, mark: Some(mark), pending: true });
            inner.record.write(&self.root, self.id)?;
        }
        self.finish_making(&mut inner)?;
        self.grow(&mut inner, name, size)
    }

    fn usable(&self, inner: &Inner) -> Result<(), VaultError> {
        match &inner.trouble {
            Some(reason) => Err(VaultError::Unusable { consumer: self.id, reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Makes what of pending volumes is not there. What was made once is never made again.
    fn finish_making(&self, inner: &mut Inner) -> Result<(), VaultError> {
        let pending = |(name, entry): (&String, &Entry)| entry.pending.then(|| (name.clone(), *entry));
        let pending: Vec<_> = inner.record.volumes.iter().filter_map(pending).collect();
        if !pending.is_empty() {
            let dir = self.dir();
            fs::create_dir_all(&dir).map_err(failing("creating", &dir))?;
            for (name, entry) in pending {
                let path = self.path(&name);
                create_file(&path, entry.size).map_err(failing("making the volume", &path))?;
                if let Some(mark) = entry.mark {
                    marks::write(&path, self.id, &name, &self.identity, mark)?;
                }
                inner.record.volumes.insert(name, Entry { pending: false, ..entry });
            }
            for dir in [&dir, &self.root.join("volumes")] {
                sync_dir(dir).map_err(failing("syncing", dir))?;
            }
            inner.record.write(&self.root, self.id)?;
        }
        self.open_whole(inner);
        Ok(())
    }

    /// Opens what is whole and lets the default volume grow to `bytes`. Makes nothing.
    pub(crate) fn keep(&self, bytes: u64) -> Result<(), VaultError> {
        let mut inner = self.inner.lock();
        self.usable(&inner)?;
        self.learn(&mut inner)?;
        self.open_whole(&mut inner);
        self.grow(&mut inner, DEFAULT_VOLUME, bytes / BLOCK * BLOCK)
    }

    /// Takes marks that are ahead of the record: it was killed between the two.
    fn learn(&self, inner: &mut Inner) -> Result<(), VaultError> {
        let found = self.look(&inner.record);
        let mut learnt = false;
        for (name, found) in found {
            let Found::Whole(mark) = found else { continue };
            let next = Entry { size: mark.size, mark: Some(mark), pending: false };
            let known = inner.record.volumes.get(&name).and_then(|entry| entry.mark);
            if known.is_none_or(|known| known.volume == mark.volume && known.generation < mark.generation) {
                inner.record.volumes.insert(name, next);
                learnt = true;
            }
        }
        if learnt { inner.record.write(&self.root, self.id) } else { Ok(()) }
    }

    fn grow(&self, inner: &mut Inner, name: &str, size: u64) -> Result<(), VaultError> {
        let missing = || VaultError::NoVolume { consumer: self.id, name: name.to_owned() };
        let volume = inner.volumes.get(name).cloned().ok_or_else(missing)?;
        if volume.size() >= size {
            return Ok(());
        }
        let path = self.path(name);
        volume.grow(size).map_err(failing("growing the volume", &path))?;
        self.remark(inner, name, size)
    }

    /// The next generation of a volume of this size: beside the data, then in the record.
    fn remark(&self, inner: &mut Inner, name: &str, size: u64) -> Result<(), VaultError> {
        let missing = || VaultError::NoVolume { consumer: self.id, name: name.to_owned() };
        let entry = inner.record.volumes.get_mut(name).ok_or_else(missing)?;
        entry.size = size;
        if let Some(mark) = &mut entry.mark {
            (mark.generation, mark.size) = (mark.generation + 1, size);
            marks::write(&volume_path(&self.root, self.id, name), self.id, name, &self.identity, *mark)?;
        }
        inner.record.write(&self.root, self.id)
    }

    /// Makes the default volume as small as a lowered grant, if nobody is connected and nothing is stored beyond.
    pub(super) fn lower_default(&self, inner: &mut Inner, bytes: u64) -> Result<(), VaultError> {
        let size = bytes / BLOCK * BLOCK;
        let Some(volume) = inner.volumes.get(DEFAULT_VOLUME).cloned() else { return Ok(()) };
        if size >= volume.size() || size < self.lowest(&volume) {
            return Ok(());
        }
        self.remark(inner, DEFAULT_VOLUME, size)?;
        volume.lower(size).map_err(failing("making the volume smaller", &self.path(DEFAULT_VOLUME)))
    }

    /// The smallest grant under which every volume can be as large as its client believes.
    pub(crate) fn floor(&self) -> u64 {
        let inner = self.inner.lock();
        let floor = |(name, volume): (&String, &Arc<Volume>)| {
            if name == DEFAULT_VOLUME { self.lowest(volume) } else { volume.size() }
        };
        inner.volumes.iter().map(floor).max().unwrap_or(0)
    }

    fn lowest(&self, volume: &Volume) -> u64 {
        if self.open_sessions() == 0 { volume.end_of_data() } else { volume.size() }
    }

    /// Takes every file that is there as a volume of this consumer, under a mark of at least this generation.
    pub(in crate::vault) fn adopt(&self, generation: u64) -> Result<(), VaultError> {
        let mut inner = self.inner.lock();
        std::mem::take(&mut inner.volumes).into_values().for_each(|volume| volume.retire());
        let found = self.look(&inner.record);
        let mut volumes = BTreeMap::new();
        for (name, found) in found {
            let known = match found {
                Found::Missing => continue,
                Found::Whole(mark) | Found::Short { mark, .. } => Some(mark),
                Found::Unmarked { .. } | Found::Older | Found::Damaged { .. } => {
                    inner.record.volumes.get(&name).and_then(|entry| entry.mark)
                }
            };
            let path = self.path(&name);
            let size = fs::metadata(&path).map_err(failing("looking at", &path))?.len() / BLOCK * BLOCK;
            let vault = self.identity.vault;
            let mark = match known.filter(|mark| mark.vault == vault) {
                Some(mark) => Mark { generation: generation.max(mark.generation + 1), size, ..mark },
                None => Mark { vault, volume: marks::fresh_volume()?, generation, size },
            };
            marks::write(&path, self.id, &name, &self.identity, mark)?;
            volumes.insert(name, Entry { size, mark: Some(mark), pending: false });
        }
        inner.record.volumes = volumes;
        inner.record.write(&self.root, self.id)?;
        inner.trouble = None;
        self.open_whole(&mut inner);
        Ok(())
    }

    /// Deletes one volume and its data. Sessions on it get an error; the default volume stays.
    pub(crate) fn remove_volume(&self, name: &str) -> Result<(), VaultError> {
        let mut inner = self.inner.lock();
        if name == DEFAULT_VOLUME || !inner.record.volumes.contains_key(name) {
            return Err(VaultError::NoVolume { consumer: self.id, name: name.chars().take(64).collect() });
        }
        let path = self.path(name);
        inner.record.volumes.remove(name);
        inner.record.write(&self.root, self.id)?;
        if let Some(volume) = inner.volumes.remove(name) {
            volume.retire();
        }
        marks::remove(&path).map_err(failing("deleting the mark of", &path))?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(failing("deleting", &path)(error))
            }
            _ => Ok(()),
        }
    }
}

/// Whether what was found is the volume that the record names, as far as the record can tell.
fn is_the_one(entry: &Entry, found: &Found) -> bool {
    match (entry.mark, found) {
        (Some(known), Found::Whole(mark)) => {
            (known.vault, known.volume) == (mark.vault, mark.volume) && known.generation <= mark.generation
        }
        (None, Found::Whole(_)) => true,
        (None, Found::Unmarked { size }) => *size >= entry.size,
        _ => false,
    }
}
