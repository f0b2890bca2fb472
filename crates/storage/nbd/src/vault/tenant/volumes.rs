//! A tenant's volumes: made, found again, grown, made smaller, taken over.
//!
//! In: sizes and names from the backend, files and marks on disk. Out: open volumes. Holds: nothing; they are in the
//! tenant. Not here: whether what is on disk is what the consumer's record says (`storage_provider::judge`).
//!
//! ```text
//!   make    (key, kept elsewhere ─►) record: the mark it will have ─► file ─► mark beside it
//!   grow    file ─► mark ─► record
//!   lower   mark ─► record ─► file           (a file is never smaller than its mark, but for damage)
//! ```

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use storage_provider::{DEFAULT_VOLUME, Found, MOST_VOLUMES, Mark, VolumeKeyId};

use super::{Inner, Tenant, check_volume_name};
use crate::{
    allocation::BLOCK,
    vault::{
        VaultError, files as failing,
        files::{Entry, Record, sync_dir},
        marks,
    },
    volume::{Layer, OpenVolumeError, Volume, create_file},
};

impl Tenant {
    pub(super) fn dir(&self) -> PathBuf {
        self.root.join("volumes").join(self.id.to_string())
    }

    /// A file by its name.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.dir().join(file)
    }

    /// The file a volume's clients write to.
    pub(super) fn top_path(&self, record: &Record, name: &str) -> PathBuf {
        let file = record.volumes.get(name).and_then(|entry| entry.file.as_deref());
        self.path(file.unwrap_or(name))
    }

    /// What there is of each volume that the record names or the directory holds.
    pub(super) fn look(&self, record: &Record) -> BTreeMap<String, Found> {
        let mut found: BTreeMap<String, Found> = record
            .volumes
            .iter()
            .map(|(name, entry)| (name.clone(), self.look_at(record, name, entry)))
            .collect();
        let needed = record.files();
        for name in marks::names_in(&self.dir()).unwrap_or_default() {
            if needed.contains(&name) || found.contains_key(&name) {
                continue;
            }
            let here = match marks::look(&self.path(&name), self.id, &name, &self.identity) {
                Found::Whole(mark) => self.without_key(mark).unwrap_or(Found::Whole(mark)),
                other => other,
            };
            // Of one that was deleted, its file is on its way out too.
            if !matches!(&here, Found::Whole(mark) if record.gone.contains(&mark.volume)) {
                found.insert(name, here);
            }
        }
        found
    }

    /// One volume of the record: its file, and those it stands on.
    fn look_at(&self, record: &Record, name: &str, entry: &Entry) -> Found {
        let mut files = record.files_of(name).into_iter();
        let top = files.next().expect("a volume of the record has a file");
        let found = match record.frozen.get(&top) {
            Some(_) => match (self.look_at_frozen(record, &top), entry.mark) {
                (None, Some(mark)) => Found::Whole(mark),
                (None, None) => Found::Damaged { reason: "its record has no mark".to_owned() },
                (Some(other), _) => other,
            },
            None => marks::look(&self.path(&top), self.id, name, &self.identity),
        };
        let found = match (found, entry.mark) {
            (Found::Unmarked { size }, None) if size < entry.size => {
                Found::Damaged { reason: format!("it was cut from {} to {size} bytes", entry.size) }
            }
            (found, _) => found,
        };
        let Found::Whole(mark) = found else { return found };
        let problem =
            self.without_key(mark).or_else(|| files.find_map(|file| self.look_at_frozen(record, &file)));
        problem.unwrap_or(found)
    }

    /// That it is encrypted and cannot be opened, if so.
    fn without_key(&self, mark: Mark) -> Option<Found> {
        let reason = self.keys.cipher(mark.key?).err()?.reason;
        Some(Found::Locked { mark, reason })
    }

    /// What is wrong with a frozen file, if anything is.
    fn look_at_frozen(&self, record: &Record, file: &str) -> Option<Found> {
        let Some(known) = record.frozen.get(file) else {
            return Some(Found::Damaged { reason: format!("its record does not know the file {file}") });
        };
        match marks::look(&self.path(file), self.id, &known.name, &self.identity) {
            Found::Whole(mark) if mark == known.mark => self.without_key(mark),
            Found::Whole(_) => {
                Some(Found::Damaged { reason: format!("the file {file} it stands on is another one") })
            }
            Found::Missing => {
                Some(Found::Damaged { reason: format!("the file {file} it stands on is missing") })
            }
            other => Some(other),
        }
    }

    /// Opens every volume that is what the record says, and is not open.
    pub(super) fn open_whole(&self, inner: &mut Inner) {
        for (name, entry) in inner.record.volumes.clone() {
            if inner.volumes.contains_key(&name) || !storage_provider::is_volume_name(&name) {
                continue;
            }
            if is_the_one(&entry, &self.look_at(&inner.record, &name, &entry)) {
                self.open_one(inner, &name, &entry);
            }
        }
    }

    fn open_one(&self, inner: &mut Inner, name: &str, entry: &Entry) {
        let mut below = None;
        for file in inner.record.files_of(name).into_iter().rev() {
            match self.layer(inner, &file, below.take()) {
                Ok(layer) => below = Some(layer),
                Err(error) => {
                    tracing::warn!(consumer = %self.id, volume = name, error = common::chain(&error), "volume left out");
                    return self.forget_layers(inner);
                }
            }
        }
        let Some(top) = below else { return };
        let volume = Volume::over(name, top, entry.size, name.contains('@'));
        inner.volumes.insert(name.to_owned(), Arc::new(volume));
    }

    /// A file as a layer, opened once whoever stands on it.
    pub(super) fn layer(
        &self,
        inner: &mut Inner,
        file: &str,
        below: Option<Arc<Layer>>,
    ) -> Result<Arc<Layer>, OpenVolumeError> {
        if let Some(open) = inner.layers.get(file) {
            return Ok(Arc::clone(open));
        }
        let key = inner.record.key_of(file);
        let layer = Arc::new(self.open_layer(file, below, key)?);
        inner.layers.insert(file.to_owned(), Arc::clone(&layer));
        Ok(layer)
    }

    pub(super) fn open_layer(
        &self,
        file: &str,
        below: Option<Arc<Layer>>,
        key: Option<VolumeKeyId>,
    ) -> Result<Layer, OpenVolumeError> {
        let path = self.path(file);
        let cipher = key.map(|key| self.keys.cipher(key)).transpose();
        let cipher = cipher.map_err(|source| OpenVolumeError::Key { path: path.clone(), source })?;
        Layer::open(&path, below, Arc::clone(&self.account), cipher)
    }

    /// Takes off the books what no open volume needs.
    pub(super) fn forget_layers(&self, inner: &mut Inner) {
        let needed: Vec<_> = inner.volumes.values().flat_map(|volume| volume.top().chain()).collect();
        inner.layers.retain(|_, layer| {
            let is_needed = needed.iter().any(|needed| Arc::ptr_eq(needed, layer));
            if !is_needed {
                layer.close();
            }
            is_needed
        });
    }

    /// Closes volumes of which a file is gone from its place: what their clients wrote on would be lost.
    pub(super) fn close_lost(&self, inner: &mut Inner) {
        let dir = self.dir();
        let lost: Vec<_> = inner
            .volumes
            .iter()
            .filter(|(_, volume)| !volume.is_in_place(&dir))
            .map(|(name, _)| name.clone())
            .collect();
        for name in &lost {
            tracing::warn!(consumer = %self.id, volume = name, "the volume's file is not in its place any more; it is closed");
        }
        if !lost.is_empty() {
            self.close(inner, |name| lost.iter().any(|lost| lost == name));
        }
    }

    /// Closes every volume. They stay where they are.
    pub(crate) fn withhold(&self) {
        let mut inner = self.inner.lock();
        self.close(&mut inner, |_| true);
        std::mem::take(&mut inner.stop).cancel();
    }

    /// Makes a volume, or finishes making it, or lets it grow to `bytes`.
    pub(crate) fn ensure_volume(&self, name: &str, bytes: u64, encrypted: bool) -> Result<(), VaultError> {
        check_volume_name(name)?;
        let size = bytes / BLOCK * BLOCK;
        let mut inner = self.inner.lock();
        self.usable(&inner)?;
        if !inner.record.volumes.contains_key(name) {
            if inner.record.volumes.len() >= MOST_VOLUMES {
                return Err(VaultError::TooManyVolumes { consumer: self.id, most: MOST_VOLUMES });
            }
            // The name may still be that of a file others stand on.
            let file = inner.record.files().contains(name).then(|| inner.record.fresh_file(name));
            let path = self.path(file.as_deref().unwrap_or(name));
            if path.exists() {
                return Err(VaultError::NotOurs { what: format!("the file {}", path.display()) });
            }
            let key = if encrypted { Some(self.keys.make()?) } else { None };
            let mark = Some(self.fresh_mark(size, key)?);
            let created_at = super::now();
            let entry = Entry { size, mark, pending: true, file, created_at, ..Entry::default() };
            let made = self.rewrite(&mut inner, |record| {
                record.volumes.insert(name.to_owned(), entry);
            });
            if let (Err(_), Some(key)) = (&made, key) {
                // Nothing was encrypted with it; if this fails too, it goes with the consumer's others.
                let _ = self.keys.destroy(key);
            }
            made?;
        }
        self.finish_making(&mut inner)?;
        self.grow(&mut inner, name, size)
    }

    pub(super) fn fresh_mark(&self, size: u64, key: Option<VolumeKeyId>) -> Result<Mark, VaultError> {
        Ok(Mark { vault: self.identity.vault, volume: marks::fresh_volume()?, generation: 1, size, key })
    }

    pub(super) fn usable(&self, inner: &Inner) -> Result<(), VaultError> {
        match &inner.trouble {
            Some(reason) => Err(VaultError::Unusable { consumer: self.id, reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Makes what of pending volumes is not there. What was made once is never made again.
    fn finish_making(&self, inner: &mut Inner) -> Result<(), VaultError> {
        let pending = |(name, entry): (&String, &Entry)| entry.pending.then(|| (name.clone(), entry.clone()));
        let pending: Vec<_> = inner.record.volumes.iter().filter_map(pending).collect();
        if !pending.is_empty() {
            let dir = self.dir();
            fs::create_dir_all(&dir).map_err(failing("creating", &dir))?;
            for (name, entry) in pending {
                let path = self.top_path(&inner.record, &name);
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
            let known = inner.record.volumes.get(&name).and_then(|entry| entry.mark);
            if known.is_none_or(|known| known.volume == mark.volume && known.generation < mark.generation) {
                let entry = inner.record.volumes.entry(name).or_default();
                (entry.size, entry.mark, entry.pending) = (mark.size, Some(mark), false);
                learnt = true;
            }
        }
        if learnt { inner.record.write(&self.root, self.id) } else { Ok(()) }
    }

    pub(super) fn grow(&self, inner: &mut Inner, name: &str, size: u64) -> Result<(), VaultError> {
        let missing = || VaultError::NoVolume { consumer: self.id, name: name.to_owned() };
        let volume = inner.volumes.get(name).cloned().ok_or_else(missing)?;
        if volume.size() >= size {
            return Ok(());
        }
        let path = self.top_path(&inner.record, name);
        volume.grow(size).map_err(failing("growing the volume", &path))?;
        self.remark(inner, name, size)
    }

    /// The next generation of a volume of this size: beside the data, then in the record.
    fn remark(&self, inner: &mut Inner, name: &str, size: u64) -> Result<(), VaultError> {
        let missing = || VaultError::NoVolume { consumer: self.id, name: name.to_owned() };
        let path = self.top_path(&inner.record, name);
        let entry = inner.record.volumes.get_mut(name).ok_or_else(missing)?;
        entry.size = size;
        if let Some(mark) = &mut entry.mark {
            (mark.generation, mark.size) = (mark.generation + 1, size);
            marks::write(&path, self.id, name, &self.identity, *mark)?;
        }
        inner.record.write(&self.root, self.id)
    }

    /// Makes the default volume as small as a lowered grant, if nobody is connected and nothing is stored beyond.
    pub(super) fn lower_default(&self, inner: &mut Inner, bytes: u64) -> Result<(), VaultError> {
        let size = bytes / BLOCK * BLOCK;
        let Some(volume) = inner.volumes.get(DEFAULT_VOLUME).cloned() else { return Ok(()) };
        if size >= volume.size() || size < lowest(&volume) {
            return Ok(());
        }
        self.lower(inner, &volume, size)
    }

    pub(super) fn lower(&self, inner: &mut Inner, volume: &Volume, size: u64) -> Result<(), VaultError> {
        self.remark(inner, &volume.name, size)?;
        let path = self.top_path(&inner.record, &volume.name);
        volume.lower(size).map_err(failing("making the volume smaller", &path))
    }

    /// The smallest grant under which every volume can be as large as its client believes.
    pub(crate) fn floor(&self) -> u64 {
        let inner = self.inner.lock();
        let floor = |(name, volume): (&String, &Arc<Volume>)| match name.as_str() {
            DEFAULT_VOLUME => lowest(volume),
            // Nobody can write to these.
            _ if volume.read_only => 0,
            _ if !inner.record.is_shown(name) => 0,
            _ => volume.size(),
        };
        inner.volumes.iter().map(floor).max().unwrap_or(0)
    }

    /// Takes every file that is there as a volume of this consumer, under a mark of at least this generation.
    pub(in crate::vault) fn adopt(&self, generation: u64) -> Result<(), VaultError> {
        let mut inner = self.inner.lock();
        self.close(&mut inner, |_| true);
        self.adopt_frozen(&mut inner)?;
        let found = self.look(&inner.record);
        let unusable = |reason: String| VaultError::Unusable { consumer: self.id, reason };
        if let Some((name, reason)) = found.iter().find_map(|(name, found)| match found {
            Found::Locked { reason, .. } => Some((name, reason)),
            _ => None,
        }) {
            return Err(unusable(format!(
                "its volume {name:?} is encrypted: {reason}; bring the key back first"
            )));
        }
        let has_keys = !self.keys.list()?.is_empty();
        let mut volumes = BTreeMap::new();
        for (name, found) in found {
            let entry = inner.record.volumes.get(&name).cloned().unwrap_or_default();
            let path = self.top_path(&inner.record, &name);
            let is_snapshot = inner.record.frozen.contains_key(entry.file.as_deref().unwrap_or(&name));
            let known = match found {
                Found::Missing => continue,
                // What it stands on was adopted before, so it is whole or lost.
                Found::Whole(_) if is_snapshot => {
                    volumes.insert(name, entry);
                    continue;
                }
                _ if is_snapshot => continue,
                Found::Whole(mark) | Found::Short { mark, .. } => Some(mark),
                Found::Unmarked { .. } | Found::Older | Found::Damaged { .. } | Found::Locked { .. } => {
                    entry.mark
                }
            };
            let stands = entry.below.as_ref().is_none_or(|file| inner.record.frozen.contains_key(file));
            if !stands || !path.exists() {
                continue;
            }
            let size = fs::metadata(&path).map_err(failing("looking at", &path))?.len() / BLOCK * BLOCK;
            let vault = self.identity.vault;
            let mark = match known.filter(|mark| mark.vault == vault) {
                Some(mark) => Mark { generation: generation.max(mark.generation + 1), size, ..mark },
                // What would be served as it is may be encrypted.
                None if has_keys => {
                    let reason = format!(
                        "only its mark or consumers/{}.json tells whether and how its volume {name:?} is encrypted: \
                         put one of them back, or give the data up",
                        self.id
                    );
                    return Err(unusable(reason));
                }
                None => Mark { generation, ..self.fresh_mark(size, None)? },
            };
            marks::write(&path, self.id, &name, &self.identity, mark)?;
            volumes.insert(name, Entry { size, mark: Some(mark), pending: false, ..entry });
        }
        inner.record.volumes = volumes;
        inner.record.prune();
        inner.record.write(&self.root, self.id)?;
        inner.trouble = None;
        self.open_whole(&mut inner);
        Ok(())
    }

    /// Takes frozen files that are there as what the record says they are; those that are gone, and all that stand on
    /// them, are forgotten.
    fn adopt_frozen(&self, inner: &mut Inner) -> Result<(), VaultError> {
        if inner.record.volumes.is_empty() && self.has_numbered_files() {
            let reason = format!(
                "it has snapshots or copies, and only consumers/{}.json tells which file is what: put that back, or                  give the data up",
                self.id
            );
            return Err(VaultError::Unusable { consumer: self.id, reason });
        }
        for (file, known) in inner.record.frozen.clone() {
            let path = self.path(&file);
            match fs::metadata(&path) {
                Ok(found) if found.len() >= known.mark.size => {
                    marks::write(&path, self.id, &known.name, &self.identity, known.mark)?;
                }
                _ => {
                    inner.record.frozen.remove(&file);
                }
            }
        }
        // What stood on a lost one is lost too, and what stood on that.
        let count = inner.record.frozen.len();
        for _ in 0..count {
            let files: Vec<_> = inner.record.frozen.keys().cloned().collect();
            let stands = |below: &Option<String>| below.as_ref().is_none_or(|below| files.contains(below));
            inner.record.frozen.retain(|_, frozen| stands(&frozen.below));
        }
        Ok(())
    }
}

/// The smallest size that loses nothing and that nobody notices.
fn lowest(volume: &Volume) -> u64 {
    if volume.users() == 0 { volume.end_of_data() } else { volume.size() }
}

/// Whether what was found is the volume that the record names, as far as the record can tell.
fn is_the_one(entry: &Entry, found: &Found) -> bool {
    match (entry.mark, found) {
        (Some(known), Found::Whole(mark)) => {
            (known.vault, known.volume, known.key) == (mark.vault, mark.volume, mark.key)
                && known.generation <= mark.generation
        }
        (None, Found::Whole(_)) => true,
        (None, Found::Unmarked { size }) => *size >= entry.size,
        _ => false,
    }
}
