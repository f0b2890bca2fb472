//! The controller: wires the rooms together and serves them over gRPC and REST.
//!
//! In: a [`Config`]. Out: a running [`Controller`]. Holds: the store, the local CA, and the tasks that follow them.
//!
//! ```text
//!   listen ─► limits ─► access::gate ─► grpc, rest ─► tags, namespaces, credentials ─► store
//!     tls                audit                                └── follow ◄── watch ──────┘
//!                                    node_feed ◄─ transport ◄─ sources
//! ```
//!
//! Not here: what a tag graph is (`tags`), how objects are kept (`store`), the command line (`trestle`).

pub mod access;
pub mod audit;
mod blocking;
mod changes;
mod config;
mod controller;
mod enforcer;
mod explain;
pub mod failure;
mod grpc;
mod leader;
mod life;
mod limits;
mod listen;
mod metrics;
mod mirror;
mod namespaces;
mod news;
mod nodes;
mod objects;
mod open_store;
mod orchestration;
mod parts;
pub mod pki;
mod policy;
pub mod private_file;
mod random;
mod reach;
mod realisation;
mod rest;
mod services;
mod storage;
mod store_failure;
mod tags;
mod tls;
pub mod transport;
pub mod views;
mod watch_api;

pub use audit::{AuditConfig, WhenUnwritable};
pub use config::{
    CloudConfig, Config, ConfigError, DuplicateNode, EtcdConfig, LimitsConfig, Listen, NodesConfig,
    PluginConfig, StoreKind,
};
pub use controller::{Controller, StartError};
pub use open_store::{OpenStoreError, RestoreStoreError, restore_store};
pub use storage::{BackendConfig, CephTarget, EndpointConfig, NbdConfig, PermitConfig, StorageConfig};
pub use tls::{CertificateFiles, TlsError};
