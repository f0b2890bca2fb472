//! The vocabulary: the nouns every room speaks, with their parsing, validation and order.
//!
//! In: text and numbers from outside. Out: values that are valid by construction; a `TagName` that exists is
//! a legal tag name. Holds: no state. Not here: wire formats (`wire`), storage (`store`), decisions.
//!
//! This room is pure: no I/O, no clock, no randomness.

mod address;
pub mod allow;
pub mod change;
mod cloud;
mod content;
pub mod host;
mod name;
mod namespace;
pub mod open;
mod permit;
pub mod policy;
pub mod protocol;
mod role;
mod secret;
pub mod service;
mod subject;
mod tag;

pub use address::{Address, ParseAddressError};
pub use cloud::{
    BgpPair, CloudNameError, CloudTraits, ConnectionSpec, ConnectionStatus, Cost, Effort, ExistingNetwork,
    GatewayState, LinkName, NetworkName, PeeringName, ResourceState, Site,
};
pub use content::{CONTENT_BLOCK, ContentDigest, ContentError};
pub use host::{
    Admission, BACKDATE_SECONDS, Fingerprint, Grant, GrantError, Host, JoinToken, Joined, NamePattern,
    ParseFingerprintError, ParseJoinTokenError, PatternError,
};
pub use name::{NameError, Segment, TagName};
pub use namespace::{Deployment, Namespace, NamespaceError};
pub use open::{Open, Openings, Share};
pub use permit::{
    Direction, EntryName, Packet, PermitEntry, PermitError, PermitRule, Ports, Protocol, Traffic,
    list as permit_list,
};
pub use protocol::ProtocolClass;
pub use role::{ParseRoleError, Role};
pub use secret::Secret;
pub use subject::{ParseSubjectError, Subject};
pub use tag::{
    Leaf, Member, MemberError, ResourceName, ResourceNameError, Subscriber, SubscriberError, TagValue,
};
