//! How messages are written as JSON, where `shapes.rs` says that it is not plain: numbers as the words people read,
//! times as RFC 3339, what stands for "none" as null.

use jiff::Timestamp;
use serde::{Deserialize as _, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::{
    access,
    trestle::v1::{self, LinkEnd, LinkInfo, ObjectKind, TokenKind, explain_service_response::Outcome},
};

/// A VPN link between two sites.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Link {
    pub ends: Vec<LinkEnd>,
    /// `wanted`, `making`, `ready` or `removing`.
    pub state: String,
    /// It stays whether or not a rule needs it.
    pub pinned: bool,
    /// The last trouble with it.
    pub message: String,
}

impl From<LinkInfo> for Link {
    fn from(link: LinkInfo) -> Self {
        let LinkInfo { a, b, state, pinned, message } = link;
        Self { ends: a.into_iter().chain(b).collect(), state, pinned, message }
    }
}

/// A role as people read it, also one of a newer version.
pub fn role_name(number: i32) -> String {
    access::role(number).map_or_else(|_| format!("role {number}"), |role| role.to_string())
}

/// Seconds since the epoch as RFC 3339, or as they are where no calendar has them.
pub fn time_text(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

impl TokenKind {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bearer => "token",
            Self::Session => "session",
            Self::Join => "join",
        }
    }
}

impl Outcome {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Rejected => "rejected",
            Self::Dropped => "dropped",
            Self::Passed | Self::Unspecified => "passed",
        }
    }
}

impl v1::Outcome {
    /// What became of an object, as people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
            Self::Unspecified => "unknown",
        }
    }
}

// Serde calls all of these with references.

pub(crate) fn role<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&role_name(*number))
}

pub(crate) fn object_kind<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(ObjectKind::try_from(*number).unwrap_or_default().word())
}

pub(crate) fn outcome<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(v1::Outcome::try_from(*number).unwrap_or_default().word())
}

pub(crate) fn fate<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(Outcome::try_from(*number).unwrap_or_default().word())
}

pub(crate) fn token_kind<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(TokenKind::try_from(*number).unwrap_or_default().word())
}

pub(crate) fn time<S: Serializer>(seconds: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time_text(*seconds))
}

pub(crate) fn time_or_none<S: Serializer>(seconds: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    seconds.map(time_text).serialize(serializer)
}

/// Milliseconds since 1970.
pub(crate) fn millis_or_none<S: Serializer>(millis: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = |millis| jiff::Timestamp::from_millisecond(millis).map(|time| time.to_string()).ok();
    millis.and_then(text).serialize(serializer)
}

pub(crate) fn text_or_none<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    Some(text).filter(|text| !text.is_empty()).serialize(serializer)
}

pub(crate) fn number_or_none<S: Serializer>(number: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    Some(*number).filter(|number| *number != 0).serialize(serializer)
}

/// A list in one text, as a query has it.
pub(crate) fn between_commas<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect())
}

pub(crate) fn is_zero(number: &i32) -> bool {
    *number == 0
}
