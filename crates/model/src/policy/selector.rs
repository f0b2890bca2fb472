//! Label selectors as Kubernetes defines them.

use serde::{Deserialize, Serialize};

use super::{labels::Labels, meta::null_as_default};

/// All of `match_labels` and all of `match_expressions` must hold. An empty selector selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    #[serde(skip_serializing_if = "Labels::is_empty", deserialize_with = "null_as_default")]
    pub match_labels: Labels,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Operator {
    In,
    NotIn,
    #[default]
    Exists,
    DoesNotExist,
    /// Kept so that validation can name it; such a requirement matches nothing.
    Unknown(String),
}

impl LabelSelector {
    pub fn of_labels<K: Into<String>, V: Into<String>>(labels: impl IntoIterator<Item = (K, V)>) -> Self {
        let match_labels = labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        LabelSelector { match_labels, match_expressions: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// The naive reading, one label at a time. The engine uses an index; this is what it must agree with.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }
}

impl Requirement {
    pub fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match &self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Unknown(_) => false,
        }
    }
}

impl From<String> for Operator {
    fn from(text: String) -> Self {
        match text.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => Operator::Unknown(text),
        }
    }
}

impl From<Operator> for String {
    fn from(operator: Operator) -> Self {
        match operator {
            Operator::In => "In".into(),
            Operator::NotIn => "NotIn".into(),
            Operator::Exists => "Exists".into(),
            Operator::DoesNotExist => "DoesNotExist".into(),
            Operator::Unknown(text) => text,
        }
    }
}

pub(in crate::policy) fn object_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a name is required".into());
    }
    // As Kubernetes checks it: the whole is bounded, its parts are not.
    let legal = name.len() <= 253 && name.split('.').all(is_dns_part);
    legal
        .then_some(())
        .ok_or_else(|| format!("`{name}` is not a DNS name: lower case letters, digits, `-` and `.`"))
}

pub(in crate::policy) fn is_dns_label(label: &str) -> bool {
    label.len() <= 63 && is_dns_part(label)
}

fn is_dns_part(label: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    label.bytes().all(|b| alphanumeric(b) || b == b'-')
        && label.bytes().next().is_some_and(alphanumeric)
        && label.bytes().last().is_some_and(alphanumeric)
}

/// Whether these are legal labels, as Kubernetes has them.
pub fn check_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Result<(), String> {
    labels.into_iter().try_for_each(|(key, value)| label_key(key).and_then(|()| label_value(value)))
}

pub(crate) fn label_key(key: &str) -> Result<(), String> {
    if is_label_text(key) {
        return Ok(());
    }
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if name.is_empty() || !is_label_text(name) {
        return Err(format!(
            "`{key}` is not a label key: [prefix/]name of at most 63 letters, digits, `-`, `_`, `.`"
        ));
    }
    match prefix {
        Some(prefix) if object_name(prefix).is_err() => {
            Err(format!("`{prefix}` before the `/` is not a DNS name"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn label_value(value: &str) -> Result<(), String> {
    (value.is_empty() || is_label_text(value))
        .then_some(())
        .ok_or_else(|| format!("`{value}` is not a label value of at most 63 letters, digits, `-`, `_`, `.`"))
}

fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    bytes.len() <= 63
        && first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}
