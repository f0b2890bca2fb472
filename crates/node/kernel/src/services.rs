//! Services in the kernel: carries out what the planes of `node-services` work out.

mod nftables;

pub use nftables::{NftablesProxy, ProxyError};
