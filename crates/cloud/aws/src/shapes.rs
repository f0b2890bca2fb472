//! What EC2 says and what it is asked, as types: the fields that are used, by EC2's own names.
//!
//! A field that every object of a kind has is required: an answer without it is an error, with its path. What may be
//! absent is an `Option` or an empty list. Other fields are passed over: objects are never written back whole.

/// A row is a shape of EC2's answers: its name and its fields, whose names are EC2's in another spelling.
macro_rules! shapes {
    ($($(#[$meta:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub(crate) struct $name {
            $($(#[$about])* pub(crate) $field: $type,)*
        }
    )*};
}

pub(crate) mod actions;
mod gateways;
mod machines;
mod networks;

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

pub(crate) use self::{gateways::*, machines::*, networks::*};

/// An element that may be there and be empty, which is as good as absent.
fn filled<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty());
    text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

shapes! {
    /// A tag, as it is read.
    Tag { key: String, value: String }
}

/// A tag, as it is written. Without a value it names the tag to take away.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NewTag {
    pub(crate) key: String,
    pub(crate) value: Option<String>,
}

/// The tags of a new object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TagSpecification {
    pub(crate) resource_type: &'static str,
    pub(crate) tag: Vec<NewTag>,
}

pub(crate) type Tags = [TagSpecification; 1];
