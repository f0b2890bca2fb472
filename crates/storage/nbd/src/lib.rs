//! The embedded storage backend: an NBD server in this process, on sparse files, with a hard limit per consumer.
//!
//! In: NBD clients over TLS, each with its consumer's certificate; steps from `storage-backend`. Out: block devices.
//! Holds: one directory ([`Vault`]), and in memory which blocks of it are in use. Not here: who is a consumer and what
//! it may use (`storage-provider`), who signs certificates ([`Issuer`] is given), where keys are kept ([`KeyStore`] is given).
//!
//! ```text
//!   client ══TLS══► server ─► handshake ─► session ─► Volume ─► file
//!                     │ certificate says who   │         ├─ Allocation: which blocks hold data
//!                     ▼                        │         └─ Account: used and limit of the whole consumer
//!                   Vault ─ consumers ─────────┘
//! ```

mod account;
mod allocation;
mod attention;
mod backend;
mod buffers;
mod cipher;
mod disk;
mod figures;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handshake;
mod identity;
mod keys;
mod pace;
mod protocol;
mod server;
mod session;
mod socket;
mod talking;
mod threads;
mod tls;
mod vault;
mod volume;
mod wire;

#[cfg(feature = "testing")]
pub mod testing;

pub use backend::NbdBackend;
pub use identity::{IssueError, IssuedIdentity, Issuer, identity_uri};
pub use keys::{KeyStore, KeyStoreError, VolumeKey};
pub use server::{Access, BindError, Connections, NbdServer, Renewal, ServerConfig};
pub use tls::{TlsError, TlsIdentity};
pub use vault::{Expected, Vault, VaultConfig, VaultError};
