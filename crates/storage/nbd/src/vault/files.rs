//! Files of the vault: records that are whole or absent, and directories.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use storage_provider::{ConsumerId, Mark, VolumeId, VolumeKeyId};

use super::{VaultError, files};
use crate::identity::Fingerprint;

/// What is known of a tenant beside its data. Holds a private key: readable by its owner only.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) limit: Option<u64>,
    #[serde(deserialize_with = "entries")]
    pub(super) volumes: BTreeMap<String, Entry>,
    /// Files that volumes stand on and nobody writes to any more, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) frozen: BTreeMap<String, Frozen>,
    /// Numbers the files that have not their volume's name.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) serial: u64,
    /// Volumes that were deleted: who still expects them has not heard of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gone: Vec<VolumeId>,
    /// Keys that nothing is encrypted with any more: they are to be destroyed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) spent: BTreeSet<VolumeKeyId>,
    pub(super) credential: Option<Credential>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One volume, or a snapshot of one, as the tenant's record knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) size: u64,
    /// Absent: made before there were marks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mark: Option<Mark>,
    /// It is being made: nobody was given it, and what is missing of it may be made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) pending: bool,
    /// Its file, if that has not the volume's name. A snapshot's is frozen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    /// The frozen file that its own stands on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) below: Option<String>,
    /// What it is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<String>,
    /// It is being filled from elsewhere: no client opens it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) importing: bool,
    /// How often it was given to a writer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) epoch: u64,
    /// Who writes to it; nobody else does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) writer: Option<String>,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) created_at: u64,
    /// It was deleted, and can be taken back until then. Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kept_until: Option<u64>,
}

/// A file nobody writes to any more, and the mark beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Frozen {
    /// The volume it was made for.
    pub(super) name: String,
    pub(super) mark: Mark,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) below: Option<String>,
}

/// Earlier versions kept the size alone.
fn entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Entry>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Size(u64),
        Entry(Box<Entry>),
    }
    let stored = BTreeMap::<String, Stored>::deserialize(deserializer)?;
    let entry = |(name, stored)| match stored {
        Stored::Size(size) => (name, Entry { size, ..Entry::default() }),
        Stored::Entry(entry) => (name, *entry),
    };
    Ok(stored.into_iter().map(entry).collect())
}

/// Deleted volumes that are remembered.
const REMEMBERED: usize = 1024;

impl Record {
    /// The files of a volume, from the top.
    pub(super) fn files_of(&self, name: &str) -> Vec<String> {
        let Some(entry) = self.volumes.get(name) else { return Vec::new() };
        let top = entry.file.clone().unwrap_or_else(|| name.to_owned());
        let mut below = match self.frozen.get(&top) {
            Some(frozen) => frozen.below.clone(),
            None => entry.below.clone(),
        };
        let mut files = vec![top];
        // A record that was made to go in circles ends here all the same.
        while let Some(file) = below.filter(|file| !files.contains(file)) {
            below = self.frozen.get(&file).and_then(|frozen| frozen.below.clone());
            files.push(file);
        }
        files
    }

    /// Every file that some volume needs.
    pub(super) fn files(&self) -> BTreeSet<String> {
        self.volumes.keys().flat_map(|name| self.files_of(name)).collect()
    }

    /// The mark beside a file.
    fn mark_of(&self, file: &str) -> Option<Mark> {
        let tops = || self.volumes.iter().find(|(name, entry)| entry.file.as_ref().unwrap_or(name) == file);
        self.frozen.get(file).map(|frozen| frozen.mark).or_else(|| tops()?.1.mark)
    }

    /// What a file is encrypted with.
    pub(super) fn key_of(&self, file: &str) -> Option<VolumeKeyId> {
        self.mark_of(file)?.key
    }

    /// What anything is encrypted with.
    pub(super) fn keys(&self) -> BTreeSet<VolumeKeyId> {
        let tops = self.volumes.values().filter_map(|entry| entry.mark);
        tops.chain(self.frozen.values().map(|frozen| frozen.mark)).filter_map(|mark| mark.key).collect()
    }

    /// Whether clients can open it.
    pub(super) fn is_shown(&self, name: &str) -> bool {
        self.volumes.get(name).is_some_and(|entry| entry.kept_until.is_none() && !entry.importing)
    }

    /// A file name nobody has had.
    pub(super) fn fresh_file(&mut self, name: &str) -> String {
        self.serial += 1;
        format!("{name}~{}", self.serial)
    }

    /// Forgets frozen files that no volume needs any more.
    pub(super) fn prune(&mut self) {
        let needed = self.files();
        self.frozen.retain(|file, _| needed.contains(file));
    }

    /// Forgets a volume, and remembers that it was deleted.
    pub(super) fn bury(&mut self, name: &str) {
        let Some(entry) = self.volumes.remove(name) else { return };
        self.gone.extend(entry.mark.map(|mark| mark.volume));
        let old = self.gone.len().saturating_sub(REMEMBERED);
        self.gone.drain(..old);
        self.prune();
    }

    /// A frozen file that one other stands on and no snapshot is, with that other one.
    pub(super) fn needless(&self) -> Option<(String, String)> {
        self.frozen.keys().find_map(|file| Some((file.clone(), self.alone_on(file)?)))
    }

    /// The one file that stands on a frozen one which no volume or snapshot is by itself.
    pub(super) fn alone_on(&self, file: &str) -> Option<String> {
        if self.volumes.keys().any(|name| self.files_of(name).first().is_some_and(|top| top == file)) {
            return None;
        }
        let stands = |below: &Option<String>| below.as_deref() == Some(file);
        let tops = self.volumes.iter().filter(|(_, entry)| stands(&entry.below));
        let tops = tops.map(|(name, entry)| entry.file.clone().unwrap_or_else(|| name.clone()));
        let frozen =
            self.frozen.iter().filter(|(_, frozen)| stands(&frozen.below)).map(|(name, _)| name.clone());
        let mut above = tops.chain(frozen);
        let only = above.next()?;
        above.next().is_none().then_some(only)
    }

    /// What stood on a frozen file stands on what that stood on.
    pub(super) fn step_over(&mut self, file: &str) {
        let Some(Frozen { below, .. }) = self.frozen.remove(file) else { return };
        let stood = self.volumes.values_mut().map(|entry| &mut entry.below);
        for stood in stood.chain(self.frozen.values_mut().map(|frozen| &mut frozen.below)) {
            if stood.as_deref() == Some(file) {
                stood.clone_from(&below);
            }
        }
    }
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credential {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) authority: String,
    pub(super) fingerprint: Fingerprint,
    /// The one this renewed: its holder may not have fetched the new one yet. It ends by its own date, or by revoking.
    #[serde(default)]
    pub(super) renewed: Option<Fingerprint>,
    pub(super) renew_at: SystemTime,
}

impl Credential {
    pub(super) fn admits(&self, shown: Fingerprint) -> bool {
        self.fingerprint == shown || self.renewed == Some(shown)
    }
}

impl Record {
    fn path(root: &Path, consumer: ConsumerId) -> PathBuf {
        root.join("consumers").join(format!("{consumer}.json"))
    }

    pub(super) fn read(root: &Path, consumer: ConsumerId) -> Result<Self, VaultError> {
        let path = Self::path(root, consumer);
        let text = fs::read(&path).map_err(files("reading", &path))?;
        read_checked(&text).map_err(|source| VaultError::Record { path, source })
    }

    /// On disk when this returns; a reader sees the old one or the new one.
    pub(super) fn write(&self, root: &Path, consumer: ConsumerId) -> Result<(), VaultError> {
        let path = Self::path(root, consumer);
        ::files::write(&path, &checked(self)).map_err(files("writing", &path))
    }

    pub(super) fn remove(root: &Path, consumer: ConsumerId) -> Result<(), VaultError> {
        let path = Self::path(root, consumer);
        match fs::remove_file(&path) {
            Ok(()) => sync_dir(&root.join("consumers")).map_err(files("syncing", &path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(files("removing", &path)(error)),
        }
    }
}

/// Makes what happened to the names in a directory last.
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The consumers that have an entry in a directory, with or without `.json`. What is not ours is passed over.
pub(super) fn ids_in(path: &Path) -> io::Result<Vec<ConsumerId>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if let Ok(id) = name.strip_suffix(".json").unwrap_or(&name).parse() {
            ids.push(id);
        }
    }
    Ok(ids)
}

pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// JSON on one line, and its SHA-256 on the next: a flipped bit is noticed, whatever it makes of the text.
pub(super) fn checked(value: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(value).expect("records have no maps with odd keys");
    let sum = common::hex(digest(&SHA256, &text).as_ref());
    text.extend(format!("\n{sum}\n").bytes());
    text
}

/// Reads what [`checked`] wrote. Text without a sum, as earlier versions wrote it, is JSON as a whole.
pub(super) fn read_checked<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Damage> {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let parts = text.iter().rposition(|byte| *byte == b'\n').map(|at| (&text[..at], &text[at + 1..]));
    let json = match parts {
        Some((json, sum)) if sum.len() == 64 && !json.contains(&b'\n') => {
            if common::hex(digest(&SHA256, json).as_ref()).as_bytes() != sum {
                return Err(Damage::Sum);
            }
            json
        }
        _ => bytes,
    };
    serde_json::from_slice(json).map_err(Damage::Json)
}

/// Why a record says nothing.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    #[error("its checksum is wrong")]
    Sum,
    #[error("it is not what was written")]
    Json(#[source] serde_json::Error),
}
