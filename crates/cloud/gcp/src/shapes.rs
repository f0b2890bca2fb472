//! Shapes: Google's objects as JSON has them, with the fields that the plugin uses.
//!
//! What is said and what is told of an object is one type. Fields that are not here are ignored, but for those of objects that are
//! written back whole (`rest`), and stand in groups by who says them:
//!
//! ```text
//!   both     said and told, always: a missing one is an error
//!   sent     always said; of an answer without it, empty
//!   maybe    said if it is not empty; of an answer without it, empty
//!   said     not read
//!   told     not said; of an answer without it, empty
//!   given    not said, and always told: a missing one is an error
//! ```

use std::collections::BTreeMap;

macro_rules! shapes {
    ($($(#[$about:meta])* $shape:ident {
        $(both { $($(#[$b:meta])* $both:ident: $both_type:ty,)* })?
        $(sent { $($(#[$s:meta])* $sent:ident: $sent_type:ty,)* })?
        $(maybe { $($(#[$m:meta])* $maybe:ident: $maybe_type:ty,)* })?
        $(said { $($(#[$o:meta])* $said:ident: $said_type:ty,)* })?
        $(told { $($(#[$t:meta])* $told:ident: $told_type:ty,)* })?
        $(given { $($(#[$g:meta])* $given:ident: $given_type:ty,)* })?
        $(rest { $rest:ident })?
    })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $shape {
            $($($(#[$b])* pub $both: $both_type,)*)?
            $($($(#[$s])* #[serde(default)] pub $sent: $sent_type,)*)?
            $($(
                $(#[$m])*
                #[serde(default, skip_serializing_if = "crate::shapes::is_empty")]
                pub $maybe: $maybe_type,
            )*)?
            $($($(#[$o])* #[serde(skip_deserializing)] pub $said: $said_type,)*)?
            $($($(#[$t])* #[serde(default, skip_serializing)] pub $told: $told_type,)*)?
            $($($(#[$g])* #[serde(skip_serializing)] pub $given: $given_type,)*)?
            $(#[serde(flatten)] pub $rest: serde_json::Map<String, serde_json::Value>,)?
        }
    )*};
}

pub(crate) use shapes;

mod cluster;
mod firewall;
mod machine;
mod network;
mod records;
mod router;
mod vpn;

pub(crate) use cluster::{Cluster, Clusters, Pool};
pub use firewall::{Association, Firewall, Flow, Layer4, Match, Policy, Rule, Traffic};
pub(crate) use firewall::{Effective, EffectivePolicy};
pub(crate) use machine::{Address, ForwardingRule, Instance, Interface, Tags};
pub(crate) use network::POLICIES_FIRST;
pub use network::{Network, Peering, Routing, SecondaryRange, Subnet};
pub(crate) use records::{RecordChange, RecordSet, Visibility, VisibleIn, Zone};
pub(crate) use router::{
    Advertised, Bgp, BgpPeer, Nat, NatSubnet, Router, RouterInterface, RouterStatus, Sessions,
};
pub(crate) use vpn::{ExternalGateway, ExternalInterface, Tunnel, VpnGateway};

pub(crate) fn is_empty<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A body with one field.
pub(crate) fn only<T>(field: &'static str, value: T) -> BTreeMap<&'static str, T> {
    BTreeMap::from([(field, value)])
}
