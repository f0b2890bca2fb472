//! How a volume is to be used, and whether it can be.

use std::{collections::BTreeMap, fmt};

use crate::proto::{
    VolumeCapability,
    volume_capability::{AccessType, access_mode::Mode},
};

/// Of a class of volumes: what they hold is encrypted at rest.
const ENCRYPTED: &str = "encrypted";
/// Parameters that an orchestrator adds of its own, which say nothing to a driver.
const FOREIGN: &str = "csi.storage.k8s.io/";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// One writer, by the epoch that it was given.
    Write,
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    Ext4,
    Xfs,
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    Block,
    Mount { fs: FileSystem, flags: Vec<String> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub share: Share,
    pub form: Form,
    /// It may be at one path of a node only.
    pub one_path: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessRefusal {
    #[error("no volume capability was given")]
    Missing,
    #[error("a volume capability says neither block nor mount")]
    NoForm,
    #[error("a volume capability says no access mode that this driver knows")]
    NoMode,
    #[error("several nodes cannot write to one volume: its block device has one writer at a time")]
    ManyWriters,
    #[error(
        "a file system that one node writes to cannot be mounted by others at the same time; as a block device (volumeMode: Block) it can be read"
    )]
    ReadersBesideWriter,
    #[error("{0:?} is no file system of this driver: ext4 (the default) and xfs are")]
    FileSystem(String),
    #[error("a mount option has no commas, spaces or control characters: {0:?}")]
    Flag(String),
    #[error("volume_mount_group is not offered by this driver")]
    Group,
    #[error(
        "{0:?} is no parameter of this driver; volumes have one, {ENCRYPTED:?}, which is \"true\" or \"false\""
    )]
    Parameter(String),
}

pub fn access(capability: Option<&VolumeCapability>) -> Result<Access, AccessRefusal> {
    let capability = capability.ok_or(AccessRefusal::Missing)?;
    let form = match capability.access_type.as_ref().ok_or(AccessRefusal::NoForm)? {
        AccessType::Block(_) => Form::Block,
        AccessType::Mount(mount) => {
            if !mount.volume_mount_group.is_empty() {
                return Err(AccessRefusal::Group);
            }
            let fs = match mount.fs_type.as_str() {
                "" | "ext4" => FileSystem::Ext4,
                "xfs" => FileSystem::Xfs,
                other => return Err(AccessRefusal::FileSystem(other.to_owned())),
            };
            let odd = |flag: &&String| flag.contains([',', ' ']) || flag.chars().any(char::is_control);
            if let Some(flag) = mount.mount_flags.iter().find(odd) {
                return Err(AccessRefusal::Flag(flag.clone()));
            }
            Form::Mount { fs, flags: mount.mount_flags.clone() }
        }
    };
    let mode = capability.access_mode.as_ref().and_then(|mode| Mode::try_from(mode.mode).ok());
    let (share, one_path) = match mode.ok_or(AccessRefusal::NoMode)? {
        Mode::Unknown => return Err(AccessRefusal::NoMode),
        Mode::MultiNodeMultiWriter => return Err(AccessRefusal::ManyWriters),
        Mode::MultiNodeSingleWriter if form != Form::Block => return Err(AccessRefusal::ReadersBesideWriter),
        Mode::SingleNodeWriter | Mode::SingleNodeMultiWriter | Mode::MultiNodeSingleWriter => {
            (Share::Write, false)
        }
        Mode::SingleNodeSingleWriter => (Share::Write, true),
        Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly => (Share::Read, false),
    };
    Ok(Access { share, form, one_path })
}

/// Whether a volume with these parameters is to be encrypted.
pub fn encrypted(parameters: &BTreeMap<String, String>) -> Result<bool, AccessRefusal> {
    let mut others = parameters.clone();
    let encrypted = match others.remove(ENCRYPTED).as_deref() {
        Some("true") => true,
        None | Some("false") => false,
        Some(_) => return Err(AccessRefusal::Parameter(ENCRYPTED.to_owned())),
    };
    check_parameters(&others).map(|()| encrypted)
}

/// Of what has no parameters of ours.
pub fn check_parameters(parameters: &BTreeMap<String, String>) -> Result<(), AccessRefusal> {
    match parameters.keys().find(|key| !key.starts_with(FOREIGN)) {
        Some(key) => Err(AccessRefusal::Parameter(key.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::volume_capability::{AccessMode, BlockVolume, MountVolume};

    fn capability(mode: Mode, fs: Option<&str>) -> VolumeCapability {
        let access_type = match fs {
            None => AccessType::Block(BlockVolume {}),
            Some(fs) => AccessType::Mount(MountVolume { fs_type: fs.to_owned(), ..MountVolume::default() }),
        };
        VolumeCapability {
            access_mode: Some(AccessMode { mode: mode as i32 }),
            access_type: Some(access_type),
        }
    }

    #[test]
    fn one_writes_and_many_read() {
        let of = |mode, fs| access(Some(&capability(mode, fs)));
        for mode in [Mode::SingleNodeWriter, Mode::SingleNodeMultiWriter] {
            let Access { share, one_path, .. } = of(mode, Some("xfs")).unwrap();
            assert_eq!((share, one_path), (Share::Write, false));
        }
        assert!(of(Mode::SingleNodeSingleWriter, Some("")).unwrap().one_path);
        for mode in [Mode::SingleNodeReaderOnly, Mode::MultiNodeReaderOnly] {
            assert_eq!(of(mode, Some("ext4")).unwrap().share, Share::Read);
        }
        assert_eq!(of(Mode::MultiNodeSingleWriter, None).unwrap().share, Share::Write);
        assert_eq!(of(Mode::MultiNodeSingleWriter, Some("")), Err(AccessRefusal::ReadersBesideWriter));
        assert_eq!(of(Mode::MultiNodeMultiWriter, None), Err(AccessRefusal::ManyWriters));
    }

    #[test]
    fn what_is_not_said_or_not_known_is_refused() {
        assert_eq!(access(None), Err(AccessRefusal::Missing));
        assert_eq!(access(Some(&VolumeCapability::default())), Err(AccessRefusal::NoForm));
        let mut odd = capability(Mode::SingleNodeWriter, Some("ntfs"));
        assert!(matches!(access(Some(&odd)), Err(AccessRefusal::FileSystem(_))));
        odd.access_type = Some(AccessType::Mount(MountVolume {
            mount_flags: vec!["noatime,suid".to_owned()],
            ..MountVolume::default()
        }));
        assert!(matches!(access(Some(&odd)), Err(AccessRefusal::Flag(_))));
        odd.access_mode = Some(AccessMode { mode: 99 });
        odd.access_type = Some(AccessType::Block(BlockVolume {}));
        assert_eq!(access(Some(&odd)), Err(AccessRefusal::NoMode));
        let parameters = |key: &str| BTreeMap::from([(key.to_owned(), "x".to_owned())]);
        assert_eq!(check_parameters(&parameters("csi.storage.k8s.io/pvc/name")), Ok(()));
        assert!(check_parameters(&parameters("replicas")).is_err());
        assert!(encrypted(&parameters("encrypted")).is_err() && encrypted(&parameters("replicas")).is_err());
        let wanted = BTreeMap::from([("encrypted".to_owned(), "true".to_owned())]);
        assert_eq!((encrypted(&wanted), encrypted(&BTreeMap::new())), (Ok(true), Ok(false)));
    }
}
