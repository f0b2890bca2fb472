//! The part of `metadata` that decides something.

use serde::{Deserialize, Deserializer, Serialize};

use super::labels::Labels;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    pub generation: i64,
    #[serde(skip_serializing_if = "Labels::is_empty", deserialize_with = "null_as_default")]
    pub labels: Labels,
    #[serde(skip_serializing_if = "Labels::is_empty", deserialize_with = "null_as_default")]
    pub annotations: Labels,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub owner_references: Vec<OwnerReference>,
    /// Set while the object is on its way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
}

impl ObjectMeta {
    /// Somebody has asked for its deletion.
    pub fn is_going(&self) -> bool {
        self.deletion_timestamp.as_ref().is_some_and(|time| !time.is_empty())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnerReference {
    pub kind: String,
    pub name: String,
}

/// YAML written by hand often has `labels:` with nothing behind it.
pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
