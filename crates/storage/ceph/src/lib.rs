//! Storage at scale: a Ceph pool for each consumer, with a quota and a user that reaches nothing else.
//!
//! In: steps from `storage-backend`. Out: commands to Ceph's monitors, as JSON. Holds: one connection to the cluster,
//! through librados loaded at run time or the `ceph` command. Not here: data; consumers read and write with Ceph's own
//! clients.
//!
//! ```text
//!   consumer <id>  ──  pool trestle-<id> (application rbd, quota)  ──  user client.trestle-<id> (profile rbd pool=…)
//!   put off        ──  user deleted, its sessions blocklisted  ──  pool trestle-trash-<id>  ──  pool deleted
//! ```
//!
//! Two facts of Ceph that users meet: a quota is enforced some seconds after it is crossed, not at the write that
//! crosses it; and a full pool makes writers wait, it does not refuse them. [`CephBackend::usage`] says so when it is so.

mod backend;
mod cluster;
mod command;
mod connection;
mod librados;

use std::sync::Arc;

pub use backend::{CephBackend, CephConfig};
pub use command::{CommandError, Commands, ConnectError, Target, connect_by_command};
use librados::Librados;

/// Connects through librados if it is there, else through the `ceph` command.
pub fn connect(target: &Target) -> Result<Arc<dyn Commands>, ConnectError> {
    match Librados::load() {
        Ok(library) => Ok(Arc::new(library.connect(target)?)),
        Err(missing) => {
            tracing::info!(reason = %missing, "librados is not here; the ceph command is used");
            connect_by_command(target)
        }
    }
}
