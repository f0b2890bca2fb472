//! The vocabulary of objects and of the policy engine: what users write, and what the engine tells its consumers.
//!
//! In: Kubernetes and Antrea objects as users have them (JSON or YAML).
//! Out: typed objects, a validation that names the field at fault, and the engine's output nouns.
//! Holds: no state. Not here: the computation (`policy`), wire encodings (`wire`).
//!
//! Parsing is lenient and validation is strict: a Pod or a policy with a wrong value parses, so that the error can
//! carry the path of the field, and so that an object accepted elsewhere never stops a stream. Fields that no version of
//! a kind has are found in the document itself (`fields`).

pub mod antrea;
pub mod cluster;
pub mod convert;
pub mod endpoint_slice;
pub mod external;
pub mod fields;
pub mod kubernetes;
mod labels;
pub mod meta;
mod object;
pub mod output;
pub mod policy_test;
mod selector;
pub mod service;
mod validate;
pub mod workload;

pub use labels::Labels;
pub use meta::{ObjectMeta, OwnerReference};
pub use object::{Kind, Object, ObjectId, TypeMeta, UnknownKind};
pub use selector::{LabelSelector, Operator, Requirement, check_labels};
pub(crate) use selector::{label_key, label_value};
pub use validate::validate;
