//! Services in the kernel: carries out what the planes of `node-services` work out.

mod affinity;
mod guard;
mod halving;
mod ipvs;
mod nftables;
mod proxy;
mod quarantine;
mod tables;
mod watch;

pub use ipvs::{INTERFACE, IpvsError, IpvsProxy, Outcome};
pub use nftables::{NftablesProxy, ProxyError};
pub use proxy::{Mode, NoMode, Proxy, Settings, SyncError, Synced, host_addresses};
pub use quarantine::Held;
pub use tables::Tables;
