//! Volumes of one consumer, by name, and their snapshots: what may be done to them now.
//!
//! In: a wish, and the volumes there are. Out: whether there is anything to do, or a refusal. Holds: nothing.
//! Not here: doing it (the backends), who may wish it (`server`).
//!
//! Every wish may be repeated: what is so already is granted, and nothing is done.

use std::collections::BTreeMap;

use crate::identity::VolumeId;

/// The volume every consumer has, as large as its grant.
pub const DEFAULT_VOLUME: &str = "data";
/// Volumes and snapshots of one consumer, those that were deleted and are kept included.
pub const MOST_VOLUMES: usize = 256;
/// Sizes are multiples of this.
const BLOCK: u64 = 4096;
/// The longest name of a writer.
const WRITER: usize = 253;
/// The longest name of a volume, and of a snapshot beside it.
const NAME: usize = 64;

/// A volume or a snapshot as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStatus {
    /// Of a snapshot `VOLUME@SNAPSHOT`.
    pub name: String,
    /// Absent: made before there were marks.
    pub volume: Option<VolumeId>,
    pub size: u64,
    /// Bytes that it alone holds. What it shares is counted where it was stored first.
    pub holds: u64,
    /// One past the last byte that is not zero.
    pub end: u64,
    /// What it is a copy of.
    pub origin: Option<String>,
    /// Seconds since 1970; 0: before that was written down.
    pub created_at: u64,
    /// It was deleted, and can be taken back until then.
    pub kept_until: Option<u64>,
    /// Clients that have it open.
    pub sessions: usize,
    /// It is being filled with what comes from elsewhere, and not all of that is there yet.
    pub importing: bool,
    /// How often it was given to a writer.
    pub epoch: u64,
    /// The one writer it is given to now, by the name whoever gave it has for it.
    pub writer: Option<String>,
    /// When a client read or wrote it last, since the process started.
    pub last_used: Option<u64>,
    /// What it holds is encrypted.
    pub encrypted: bool,
    /// Why it cannot be used now.
    pub trouble: Option<String>,
}

/// What somebody wants of volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeWish {
    /// A new volume: an empty one, or a copy of another or of a snapshot, at least as large.
    Create {
        name: String,
        size: u64,
        from: Option<String>,
        /// It must be encrypted; a copy is if what it is made of is.
        encrypted: bool,
    },
    /// A new volume that is filled from elsewhere before anybody can use it.
    Import {
        name: String,
        size: u64,
        encrypted: bool,
    },
    Resize {
        name: String,
        size: u64,
    },
    /// Out of reach at once, and gone at that time; `None`: now.
    Delete {
        name: String,
        kept_until: Option<u64>,
    },
    /// Takes back what was deleted.
    Keep {
        name: String,
    },
    /// What is in the volume at one moment; named `VOLUME@SNAPSHOT`.
    Snapshot {
        name: String,
    },
    /// The volume is as it was when the snapshot was taken.
    Restore {
        name: String,
        from: String,
    },
    /// From now on this writer alone writes to it, by the export of a new epoch; everybody else reads. `take_over`: also if
    /// it is another's now.
    Publish {
        name: String,
        writer: String,
        take_over: bool,
    },
    /// It is this writer's no longer, or nobody's whoever had it.
    Unpublish {
        name: String,
        writer: Option<String>,
    },
}

impl VolumeWish {
    /// The volume or snapshot it is about.
    pub fn name(&self) -> &str {
        match self {
            Self::Create { name, .. }
            | Self::Import { name, .. }
            | Self::Resize { name, .. }
            | Self::Delete { name, .. }
            | Self::Keep { name }
            | Self::Snapshot { name }
            | Self::Restore { name, .. }
            | Self::Publish { name, .. }
            | Self::Unpublish { name, .. } => name,
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeStep {
    Nothing,
    Create {
        name: String,
        size: u64,
        encrypted: bool,
    },
    Import {
        name: String,
        size: u64,
        encrypted: bool,
    },
    Copy {
        name: String,
        size: u64,
        from: String,
    },
    Grow {
        name: String,
        size: u64,
    },
    Lower {
        name: String,
        size: u64,
    },
    /// It can be taken back until then.
    Hide {
        name: String,
        kept_until: u64,
    },
    Remove {
        name: String,
    },
    Show {
        name: String,
    },
    Snapshot {
        volume: String,
        name: String,
    },
    Restore {
        name: String,
        from: String,
    },
    Publish {
        name: String,
        writer: String,
    },
    Unpublish {
        name: String,
    },
}

impl VolumeStep {
    /// The same step where all that is new is encrypted.
    pub fn encrypted(self, always: bool) -> Self {
        match self {
            Self::Create { name, size, encrypted } => {
                Self::Create { name, size, encrypted: encrypted || always }
            }
            Self::Import { name, size, encrypted } => {
                Self::Import { name, size, encrypted: encrypted || always }
            }
            other => other,
        }
    }
}

/// What a refusal comes to for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeCode {
    Invalid,
    Missing,
    Exists,
    NotNow,
    Full,
    Damaged,
    Unsupported,
}

/// Why a wish is not granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeRefusal {
    #[error(
        "{name:?} is no volume name: 1 to 64 letters, digits, '-' and '_', starting with a letter or digit; a snapshot is VOLUME@SNAPSHOT"
    )]
    Name { name: String },
    #[error("there is no volume {name:?}; `trestle volume list` shows which there are")]
    Missing { name: String },
    #[error(
        "the volume {name:?} was deleted; take it back with `trestle volume keep`, or delete it with --now"
    )]
    Deleted { name: String },
    #[error("there is a volume {name:?} already, {what}")]
    Exists { name: String, what: String },
    #[error("a volume needs a size above zero")]
    NoSize,
    #[error("{size} bytes are more than the consumer was granted ({granted}); raise its grant first")]
    AboveGrant { size: u64, granted: u64 },
    #[error("{size} bytes are less than {from:?} has ({least}); a copy is at least as large")]
    BelowSource { size: u64, from: String, least: u64 },
    #[error(
        "the volume {name:?} holds data up to {end} bytes, so it cannot be made smaller than that; shrink its file system first, and trim"
    )]
    BelowData { name: String, end: u64 },
    #[error("{sessions} clients have the volume {name:?} open; disconnect them first")]
    InUse { name: String, sessions: usize },
    #[error(
        "the volume {DEFAULT_VOLUME:?} is as large as the grant and stays; change the grant with `trestle consumer resize`"
    )]
    Default,
    #[error("{name:?} is a snapshot, which stays as it is; make a volume of it with `--from`")]
    ReadOnly { name: String },
    #[error(
        "{from:?} is not encrypted, and a copy shares its blocks; export it and import it into a new volume that is"
    )]
    SourceNotEncrypted { from: String },
    #[error("{from:?} is no snapshot of {name:?}")]
    NotItsSnapshot { name: String, from: String },
    #[error(
        "the volume {name:?} is {writer}'s to write to; have that give it back, or take it over, after which its writes are refused"
    )]
    Published { name: String, writer: String },
    #[error("a writer's name has 1 to {WRITER} bytes and no control characters")]
    Writer,
    #[error("there are {MOST_VOLUMES} volumes and snapshots, which is the most there can be; delete some")]
    TooMany,
    #[error("the volume {name:?} is being imported, or that broke off; import it again, or delete it")]
    Importing { name: String },
    #[error("the volume {name:?} is not one that is being imported")]
    NotImporting { name: String },
    #[error("the grant is used up; free some, or have it raised")]
    Full,
    #[error("the volume {name:?} is not what was sent: what is stored has another checksum; import it again")]
    Checksum { name: String },
    #[error("the volume {name:?} cannot be used: {trouble}")]
    Trouble { name: String, trouble: String },
    #[error(
        "this storage has no volumes of its own: on Ceph a consumer makes images in its pool itself, with rbd"
    )]
    Unsupported,
}

impl VolumeRefusal {
    pub fn code(&self) -> VolumeCode {
        match self {
            Self::Name { .. }
            | Self::Writer
            | Self::NoSize
            | Self::BelowSource { .. }
            | Self::SourceNotEncrypted { .. }
            | Self::NotItsSnapshot { .. } => VolumeCode::Invalid,
            Self::Missing { .. } => VolumeCode::Missing,
            Self::Exists { .. } => VolumeCode::Exists,
            Self::AboveGrant { .. } | Self::TooMany | Self::Full => VolumeCode::Full,
            Self::Deleted { .. }
            | Self::BelowData { .. }
            | Self::InUse { .. }
            | Self::Default
            | Self::ReadOnly { .. }
            | Self::Published { .. }
            | Self::Importing { .. }
            | Self::NotImporting { .. }
            | Self::Trouble { .. } => VolumeCode::NotNow,
            Self::Checksum { .. } => VolumeCode::Damaged,
            Self::Unsupported => VolumeCode::Unsupported,
        }
    }
}

/// Volume and snapshot of a snapshot's name.
pub fn snapshot_parts(name: &str) -> Option<(&str, &str)> {
    name.split_once('@')
}

/// Whether it is the name of a volume, or of a snapshot.
pub fn is_volume_name(name: &str) -> bool {
    match snapshot_parts(name) {
        Some((volume, snapshot)) => is_plain(volume) && is_plain(snapshot),
        None => is_plain(name),
    }
}

fn is_plain(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let starts = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    starts && name.len() <= NAME && name.bytes().all(good)
}

/// A name as a refusal tells it: what nobody would call a volume is cut.
fn told(name: &str) -> String {
    name.chars().take(2 * NAME + 1).collect()
}

/// The volumes there are, by name.
pub type Volumes = BTreeMap<String, VolumeStatus>;

/// Decides a wish, with what the consumer was granted.
pub fn decide_volume(
    wish: &VolumeWish,
    volumes: &Volumes,
    granted: u64,
) -> Result<VolumeStep, VolumeRefusal> {
    match wish {
        VolumeWish::Create { name, size, from, encrypted } => {
            create(name, *size, from.as_deref(), *encrypted, volumes, granted)
        }
        VolumeWish::Import { name, size, encrypted } => import(name, *size, *encrypted, volumes, granted),
        VolumeWish::Resize { name, size } => resize(name, *size, volumes, granted),
        VolumeWish::Delete { name, kept_until } => delete(name, *kept_until, volumes),
        VolumeWish::Keep { name } => match there(name, volumes)?.kept_until {
            Some(_) => Ok(VolumeStep::Show { name: name.clone() }),
            None => Ok(VolumeStep::Nothing),
        },
        VolumeWish::Snapshot { name } => snapshot(name, volumes),
        VolumeWish::Restore { name, from } => restore(name, from, volumes),
        VolumeWish::Publish { name, writer, take_over } => publish(name, writer, *take_over, volumes),
        VolumeWish::Unpublish { name, writer } => {
            let held = &there(name, volumes)?.writer;
            let is_meant = held.is_some() && (writer.is_none() || held == writer);
            Ok(if is_meant { VolumeStep::Unpublish { name: name.clone() } } else { VolumeStep::Nothing })
        }
    }
}

/// What is there under a name, deleted or not.
fn there<'a>(name: &str, volumes: &'a Volumes) -> Result<&'a VolumeStatus, VolumeRefusal> {
    if !is_volume_name(name) {
        return Err(VolumeRefusal::Name { name: told(name) });
    }
    volumes.get(name).ok_or_else(|| VolumeRefusal::Missing { name: name.to_owned() })
}

/// What is there and can be used.
fn usable<'a>(name: &str, volumes: &'a Volumes) -> Result<&'a VolumeStatus, VolumeRefusal> {
    let volume = there(name, volumes)?;
    if volume.kept_until.is_some() {
        return Err(VolumeRefusal::Deleted { name: name.to_owned() });
    }
    if volume.importing {
        return Err(VolumeRefusal::Importing { name: name.to_owned() });
    }
    match &volume.trouble {
        Some(trouble) => Err(VolumeRefusal::Trouble { name: name.to_owned(), trouble: trouble.clone() }),
        None => Ok(volume),
    }
}

fn unused(volume: &VolumeStatus) -> Result<(), VolumeRefusal> {
    match volume.sessions {
        0 => Ok(()),
        sessions => Err(VolumeRefusal::InUse { name: volume.name.clone(), sessions }),
    }
}

/// In whole blocks, none of which is above the grant.
fn within(size: u64, granted: u64) -> Result<u64, VolumeRefusal> {
    let above = VolumeRefusal::AboveGrant { size, granted };
    match size {
        0 => Err(VolumeRefusal::NoSize),
        size if size > granted => Err(above),
        size => size.checked_next_multiple_of(BLOCK).ok_or(above),
    }
}

fn create(
    name: &str,
    size: u64,
    from: Option<&str>,
    encrypted: bool,
    volumes: &Volumes,
    granted: u64,
) -> Result<VolumeStep, VolumeRefusal> {
    if !is_plain(name) {
        return Err(VolumeRefusal::Name { name: told(name) });
    }
    let known = volumes.get(name);
    if known.is_some_and(|known| known.kept_until.is_some()) {
        return Err(VolumeRefusal::Deleted { name: name.to_owned() });
    }
    // Asked again, it is told what it got, whatever became of the source meanwhile.
    if let Some(known) = known {
        let same_size = known.size == size.next_multiple_of(BLOCK) || (size == 0 && from.is_some());
        let same = same_size && known.origin.as_deref() == from && !known.importing;
        if same && (known.encrypted || !encrypted) {
            return Ok(VolumeStep::Nothing);
        }
        let origin = known.origin.as_ref().map_or(String::new(), |origin| format!(", made of {origin:?}"));
        let plain = if same { ", not encrypted" } else { "" };
        let what = format!("of {} bytes{origin}{plain}", known.size);
        return Err(VolumeRefusal::Exists { name: name.to_owned(), what });
    }
    if volumes.len() >= MOST_VOLUMES {
        return Err(VolumeRefusal::TooMany);
    }
    let name = name.to_owned();
    let Some(from) = from else {
        return Ok(VolumeStep::Create { name, size: within(size, granted)?, encrypted });
    };
    let source = usable(from, volumes)?;
    if encrypted && !source.encrypted {
        return Err(VolumeRefusal::SourceNotEncrypted { from: from.to_owned() });
    }
    let (from, least) = (from.to_owned(), source.size);
    let size = if size == 0 { least } else { size };
    if size < least {
        return Err(VolumeRefusal::BelowSource { size, from, least });
    }
    Ok(VolumeStep::Copy { name, size: within(size, granted.max(least))?, from })
}

/// One that broke off is begun again.
fn import(
    name: &str,
    size: u64,
    encrypted: bool,
    volumes: &Volumes,
    granted: u64,
) -> Result<VolumeStep, VolumeRefusal> {
    let begun =
        |known: &VolumeStatus| known.importing && known.size == size && (known.encrypted || !encrypted);
    if volumes.get(name).is_some_and(begun) {
        return Ok(VolumeStep::Nothing);
    }
    if let Some(known) = volumes.get(name).filter(|known| known.kept_until.is_none()) {
        let what = format!("of {} bytes; import into a new one", known.size);
        return Err(VolumeRefusal::Exists { name: name.to_owned(), what });
    }
    match create(name, size, None, encrypted, volumes, granted)? {
        VolumeStep::Create { name, size, encrypted } => Ok(VolumeStep::Import { name, size, encrypted }),
        other => Ok(other),
    }
}

/// Whether a volume can be read from outside: a volume or a snapshot.
pub fn check_export(name: &str, volumes: &Volumes) -> Result<(), VolumeRefusal> {
    usable(name, volumes).map(|_| ())
}

/// Whether a volume is waiting for what comes from elsewhere.
pub fn check_import(name: &str, volumes: &Volumes) -> Result<u64, VolumeRefusal> {
    match there(name, volumes)? {
        volume if volume.importing && volume.kept_until.is_none() => Ok(volume.size),
        _ => Err(VolumeRefusal::NotImporting { name: name.to_owned() }),
    }
}

fn resize(name: &str, size: u64, volumes: &Volumes, granted: u64) -> Result<VolumeStep, VolumeRefusal> {
    let volume = usable(name, volumes)?;
    if snapshot_parts(name).is_some() {
        return Err(VolumeRefusal::ReadOnly { name: name.to_owned() });
    }
    if name == DEFAULT_VOLUME {
        return Err(VolumeRefusal::Default);
    }
    // What is larger than a grant that shrank may become smaller all the same.
    let size = within(size, granted.max(volume.size))?;
    let name = name.to_owned();
    if size < volume.size {
        if size < volume.end {
            return Err(VolumeRefusal::BelowData { name, end: volume.end });
        }
        unused(volume)?;
        return Ok(VolumeStep::Lower { name, size });
    }
    Ok(if size == volume.size { VolumeStep::Nothing } else { VolumeStep::Grow { name, size } })
}

fn delete(name: &str, kept_until: Option<u64>, volumes: &Volumes) -> Result<VolumeStep, VolumeRefusal> {
    let volume = there(name, volumes)?;
    if name == DEFAULT_VOLUME {
        return Err(VolumeRefusal::Default);
    }
    unused(volume)?;
    let name = name.to_owned();
    Ok(match (kept_until, volume.kept_until) {
        (None, _) => VolumeStep::Remove { name },
        (Some(_), Some(_)) => VolumeStep::Nothing,
        (Some(kept_until), None) => VolumeStep::Hide { name, kept_until },
    })
}

fn snapshot(name: &str, volumes: &Volumes) -> Result<VolumeStep, VolumeRefusal> {
    let parts = snapshot_parts(name).filter(|_| is_volume_name(name));
    let (volume, _) = parts.ok_or_else(|| VolumeRefusal::Name { name: told(name) })?;
    match volumes.get(name) {
        Some(known) if known.kept_until.is_some() => Err(VolumeRefusal::Deleted { name: name.to_owned() }),
        Some(_) => Ok(VolumeStep::Nothing),
        None if volumes.len() >= MOST_VOLUMES => Err(VolumeRefusal::TooMany),
        None => {
            usable(volume, volumes)?;
            Ok(VolumeStep::Snapshot { volume: volume.to_owned(), name: name.to_owned() })
        }
    }
}

fn restore(name: &str, from: &str, volumes: &Volumes) -> Result<VolumeStep, VolumeRefusal> {
    // Also one that takes no writes any more: this is a way out.
    let volume = there(name, volumes)?;
    if volume.kept_until.is_some() {
        return Err(VolumeRefusal::Deleted { name: name.to_owned() });
    }
    let (name, from) = (name.to_owned(), from.to_owned());
    if snapshot_parts(&from).is_none_or(|(of, _)| of != name) {
        return Err(VolumeRefusal::NotItsSnapshot { name, from: told(&from) });
    }
    usable(&from, volumes)?;
    unused(volume)?;
    Ok(VolumeStep::Restore { name, from })
}

fn publish(
    name: &str,
    writer: &str,
    take_over: bool,
    volumes: &Volumes,
) -> Result<VolumeStep, VolumeRefusal> {
    if writer.is_empty() || writer.len() > WRITER || writer.chars().any(char::is_control) {
        return Err(VolumeRefusal::Writer);
    }
    let volume = usable(name, volumes)?;
    let (name, writer) = (name.to_owned(), writer.to_owned());
    if snapshot_parts(&name).is_some() {
        return Err(VolumeRefusal::ReadOnly { name });
    }
    match &volume.writer {
        Some(held) if *held == writer => Ok(VolumeStep::Nothing),
        Some(held) if !take_over => Err(VolumeRefusal::Published { name, writer: held.clone() }),
        _ => Ok(VolumeStep::Publish { name, writer }),
    }
}

/// The export under which a volume's writer opens it: `VOLUME:EPOCH`, or the volume's name if it was given to nobody.
pub fn export_of(volume: &VolumeStatus) -> String {
    match volume.writer {
        Some(_) => format!("{}:{}", volume.name, volume.epoch),
        None => volume.name.clone(),
    }
}

#[cfg(test)]
mod tests;
