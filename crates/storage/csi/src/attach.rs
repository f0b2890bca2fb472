//! Volumes as block devices of this node.
//!
//! In: a volume and the export under which this node opens it. Out: a device that stays, whatever becomes of the driver and the
//! controller, until it is detached. Not here: file systems and mounts (`node`).

mod kernel;
mod record;

use std::{io, path::PathBuf};

use async_trait::async_trait;

pub use kernel::KernelAttacher;
pub use record::{Record, Records};

/// A volume that is a device of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    pub device: PathBuf,
    pub size: u64,
    /// As the storage was asked for it.
    pub export: String,
    pub read_only: bool,
}

/// Why a volume is not there, or what is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error(
        "this node's kernel has no network block devices: its module `nbd` is missing or cannot be loaded (modprobe nbd)"
    )]
    NoModule,
    #[error("the kernel refused {what}")]
    Kernel {
        what: &'static str,
        #[source]
        source: node_kernel::netlink::NetlinkError,
    },
    #[error("the volume {volume:?} is attached by the export {held:?} and not {wanted:?}: unstage it first")]
    Other { volume: String, held: String, wanted: String },
    #[error("the volume {volume:?} is not attached on this node")]
    NotAttached { volume: String },
    #[error(
        "the storage does not let this node have {export:?} any more: another node was given the volume, or it is gone"
    )]
    Refused { export: String },
    #[error("the storage was not reached in time for {volume:?}: {why}")]
    Away { volume: String, why: String },
    #[error("cannot {what}")]
    Io {
        what: String,
        #[source]
        source: io::Error,
    },
}

/// How it stands with what is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Well,
    /// Reads and writes wait for the storage, for this reason.
    Waiting(String),
    /// Reads and writes fail.
    Failing(String),
}

#[async_trait]
pub trait Attacher: Send + Sync + 'static {
    /// Whether anything can be attached here.
    async fn ready(&self) -> Result<(), AttachError>;
    /// Attaches a volume, or finds it attached by this export.
    async fn attach(&self, volume: &str, export: &str, read_only: bool) -> Result<Attached, AttachError>;
    async fn attached(&self, volume: &str) -> Result<Option<Attached>, AttachError>;
    /// Nothing may use it any more. One that is not attached is detached.
    async fn detach(&self, volume: &str) -> Result<(), AttachError>;
    /// Looks at the volume's size anew, until it is at least so large.
    async fn renew(&self, volume: &str, least: u64) -> Result<Attached, AttachError>;
    async fn standing(&self, volume: &str) -> Result<Standing, AttachError>;
    /// What waits for a storage that is not there fails from now on, so that what uses the device can end.
    async fn give_up(&self, volume: &str) -> Result<(), AttachError>;
}
