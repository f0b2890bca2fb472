//! The controller: wires the rooms together and serves them over gRPC and REST.
//!
//! In: a [`Config`]. Out: a running [`Controller`]. Holds: listeners, credentials, the audit log.
//!
//! ```text
//!   listen ─► limits ─► access::gate ─► grpc, rest, watch_api ─► drivers ─► store
//!     tls                audit
//! ```
//!
//! Not here: what keeps state and makes it true (`drivers`), how objects are kept (`store`), the command line (`trestle`).

mod about;
pub mod access;
pub mod audit;
mod bounded;
mod call;
mod changes;
mod cluster_ca;
mod cluster_statuses;
mod clusters;
mod config;
mod controller;
mod crowd;
mod enforcement;
mod explain;
pub mod failure;
mod flows_view;
mod front;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grpc;
mod host_reports;
mod hosts;
mod limits;
mod linted;
mod listen;
mod metrics;
mod news;
mod nodes;
mod objects;
mod observer_view;
mod pairs;
mod permissions;
mod places;
mod policy_tests;
mod reach;
mod realisation;
mod rest;
mod restore;
mod revocation;
mod seen;
mod services_view;
mod serving;
mod staged;
mod tls;
mod turns;
mod uses;
mod views;
mod watch_api;
mod what_if;

pub use audit::{AuditConfig, WhenUnwritable};
pub use config::{Config, ConfigError, HostsConfig, LimitsConfig, Listen, Page, PageFile};
pub use controller::{Controller, StartError};
pub use drivers::{
    CertificateFiles, CloudConfig, ClusterConfig, DuplicateNode, EtcdConfig, NodesConfig, OpenStoreError,
    PluginConfig, StorageConfig, StoreKind,
    objects::manifests,
    pki,
    storage::{BackendConfig, CephTarget, EndpointConfig, NbdConfig, PermitConfig},
    transport, trials,
};
pub use enforcement::HEADER as CHANGE_HEADER;
pub use restore::{RestoreError, restore_store};
pub use tls::TlsError;
