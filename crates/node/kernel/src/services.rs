//! Services in the kernel: carries out what the planes of `node-services` work out.

mod ipvs;
mod nftables;
mod proxy;
mod quarantine;

pub use ipvs::{INTERFACE, IpvsError, IpvsProxy, Outcome};
pub use nftables::{NftablesProxy, ProxyError, Tables};
pub use proxy::{Mode, Proxy, Settings, SyncError, Synced, host_addresses};
pub use quarantine::Held;
