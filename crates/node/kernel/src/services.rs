//! Services in the kernel: carries out what the planes of `node-services` work out.

mod ipvs;
mod nftables;

pub use ipvs::{INTERFACE, IpvsError, IpvsProxy, Outcome};
pub use nftables::{NftablesProxy, ProxyError};
