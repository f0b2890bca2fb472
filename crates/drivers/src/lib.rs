//! What runs a controller: one driver for each concern, each with its own state and a narrow handle on it.
//!
//! ```text
//!   store ── watch ──► tags ───────────────┐
//!     ▲        │                           ▼
//!     │        ├─────► policy ─► transport, watch, enforcer ─► orchestrator ─► clouds
//!     │        │          └────► services ─► transport              │
//!     │        │          ▲                                           │
//!     │        │          └───────────── permissions ◄───────────────┤
//!     │        ├─────► mirror (tokens, certificates)                ▼
//!     ├── objects, namespaces, hosts, storage ◄────────────────── leader
//!     └───────► peers (what nodes of other controllers have)
//!   API servers of Kubernetes ─► clusters ─► policy
//!   nodes ─► flows
//! ```
//!
//! In: an open store, and what each driver is told at start ([`Options`]). Out: handles ([`Drivers`]) to ask and to change
//! things by. Holds: in-memory states that are functions of the store's watch, and of
//! clusters' watches. Every task is one of [`life::Life`]: a
//! driver that is gone ends the process.
//!
//! Not here: who may ask, and how (`server`); what a policy, a tag or a volume is (their own rooms).

mod blocking;
pub mod clusters;
mod config;
mod drivers;
pub mod enforcer;
pub mod flows;
pub mod hosts;
mod leader;
mod mirror;
pub mod namespaces;
pub mod objects;
mod open_store;
pub mod orchestration;
pub mod peers;
pub mod permissions;
pub mod pki;
pub mod plugin_values;
pub mod policy;
pub mod random;
mod sealing;
pub mod services;
pub mod span;
pub mod storage;
pub mod tags;
pub mod transport;
pub mod trials;

pub use blocking::blocking;
pub use config::{
    CertificateFiles, CloudConfig, ClusterConfig, ConfigMapName, DuplicateNode, EtcdConfig, NodesConfig,
    PluginConfig, ServicesConfig, ServicesConfigError, StoreKind,
};
pub use drivers::{Drivers, DriversError, Options};
pub use flows::FlowsConfig;
pub use mirror::Mirror;
pub use open_store::{OpenStoreError, RestoreStoreError, open_store, restore_store};
pub use sealing::SealingError;
pub use storage::StorageConfig;
