//! What a write did to one object, for the record of it.
//!
//! In: the object's JSON before and after. Out: a [`Change`]: what happened, a digest of each, and the values that
//! differ, bounded in size. Values that may be secret are named and not shown; the digests still tell that they differ.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Values of one object that are shown; further ones are counted.
pub const MAX_FIELDS: usize = 64;
/// Longest value, in bytes.
const MAX_VALUE: usize = 256;
const HIDDEN: &str = "(hidden)";
/// Parts of a key that make its value a secret, in lower case.
const SECRET: [&str; 6] = ["password", "passwd", "secret", "token", "credential", "private"];
/// Below these everything may be a secret: the environment of a container, data of a secret.
const SECRET_BELOW: [&str; 3] = ["env", "data", "stringData"];

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    Created,
    Changed,
    Unchanged,
    Deleted,
}

/// One value that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// As in `spec.podSelector.matchLabels.app`.
    pub path: String,
    /// Absent: it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// What became of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub object: String,
    pub what: What,
    /// SHA-256 of the object as JSON with sorted keys and no spaces; absent if there was none, or if it is not one
    /// document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Absent also if nothing changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
    /// Further values that differ and are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fields_left_out: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
        })
    }
}

impl Change {
    /// Something of which only the name is known.
    pub fn named(object: impl fmt::Display, what: What) -> Self {
        let object = object.to_string();
        Self { object, what, before: None, after: None, fields: Vec::new(), fields_left_out: 0 }
    }

    /// From an object's JSON before and after.
    pub fn between(object: impl fmt::Display, before: Option<&Value>, after: Option<&Value>) -> Self {
        let what = match (before, after) {
            (None, Some(_)) => What::Created,
            (Some(_), None) => What::Deleted,
            (before, after) if before == after => What::Unchanged,
            _ => What::Changed,
        };
        let change = Self::named(object, what).with_fields(compare(before, after));
        let after = if what == What::Unchanged { None } else { after.map(digest) };
        Self { before: before.map(digest), after, ..change }
    }

    /// The same without values: of something that users write freely, and may write secrets in.
    #[must_use]
    pub fn without_values(mut self) -> Self {
        self.fields_left_out += self.fields.len();
        self.fields.clear();
        self
    }

    /// With values that differ: bounded, and secrets hidden.
    #[must_use]
    pub fn with_fields(mut self, fields: Vec<Field>) -> Self {
        self.fields_left_out += fields.len().saturating_sub(MAX_FIELDS);
        self.fields = fields.into_iter().take(MAX_FIELDS).map(shown).collect();
        self
    }

    /// Bytes it takes in a record, about.
    pub fn size(&self) -> usize {
        let text = |value: &Option<String>| value.as_ref().map_or(0, String::len);
        let fields =
            self.fields.iter().map(|field| field.path.len() + text(&field.before) + text(&field.after) + 40);
        self.object.len() + text(&self.before) + text(&self.after) + 60 + fields.sum::<usize>()
    }
}

/// SHA-256 in hexadecimal of a document as JSON with sorted keys and no spaces.
pub fn digest(document: &Value) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let hash = Sha256::digest(document.to_string().as_bytes());
    let pairs = hash.into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    pairs.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// The values in which two documents differ, by path.
pub fn compare(before: Option<&Value>, after: Option<&Value>) -> Vec<Field> {
    let mut values: BTreeMap<String, (Option<String>, Option<String>)> = BTreeMap::new();
    if let Some(before) = before {
        flatten(String::new(), before, &mut |path, value| values.entry(path).or_default().0 = Some(value));
    }
    if let Some(after) = after {
        flatten(String::new(), after, &mut |path, value| values.entry(path).or_default().1 = Some(value));
    }
    let differing = values.into_iter().filter(|(_, (before, after))| before != after);
    differing.map(|(path, (before, after))| Field { path, before, after }).collect()
}

fn flatten(path: String, value: &Value, tell: &mut impl FnMut(String, String)) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(path, value, tell);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, value) in items.iter().enumerate() {
                flatten(format!("{path}[{index}]"), value, tell);
            }
        }
        Value::Null if path.is_empty() => {}
        Value::String(text) => tell(path, text.clone()),
        value => tell(path, value.to_string()),
    }
}

fn shown(field: Field) -> Field {
    let hide = is_secret(&field.path);
    let show = |value: String| if hide { HIDDEN.to_owned() } else { cut(value) };
    Field { path: cut(field.path), before: field.before.map(show), after: field.after.map(show) }
}

fn is_secret(path: &str) -> bool {
    let mut keys = path.split(['.', '[', ']']).filter(|key| !key.is_empty());
    let below = keys.clone().any(|key| SECRET_BELOW.contains(&key));
    below || keys.any(|key| SECRET.iter().any(|part| key.to_ascii_lowercase().contains(part)))
        // What kubectl leaves behind is the whole document once more.
        || path.contains("last-applied-configuration")
}

fn cut(text: String) -> String {
    match text.char_indices().map(|(at, _)| at).take_while(|at| *at <= MAX_VALUE).last() {
        Some(end) if text.len() > MAX_VALUE => format!("{}…", &text[..end]),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(path: &str, before: Option<&str>, after: Option<&str>) -> Field {
        Field { path: path.into(), before: before.map(Into::into), after: after.map(Into::into) }
    }

    #[test]
    fn only_what_differs_is_listed_with_its_path() {
        let old = json!({"a": {"b": 1, "c": ["x", "y"]}, "gone": true});
        let new = json!({"a": {"b": 2, "c": ["x", "y", "z"]}, "empty": {}});
        let change = Change::between("thing", Some(&old), Some(&new));
        assert_eq!(
            change.fields,
            [
                field("a.b", Some("1"), Some("2")),
                field("a.c[2]", None, Some("z")),
                field("empty", None, Some("{}")),
                field("gone", Some("true"), None),
            ]
        );
        assert_eq!((change.what, change.before), (What::Changed, Some(digest(&old))));
        assert_eq!(change.after, Some(digest(&new)));
    }

    #[test]
    fn what_did_not_change_has_one_digest_and_no_fields() {
        let value = json!({"a": 1});
        let change = Change::between("thing", Some(&value), Some(&value.clone()));
        assert_eq!((change.what, change.after, change.fields), (What::Unchanged, None, vec![]));
        assert!(change.before.is_some());
    }

    #[test]
    fn the_digest_is_of_sorted_json_without_spaces() {
        let known = "43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777";
        assert_eq!(digest(&json!({"b": 2, "a": 1})), known);
    }

    #[test]
    fn secrets_are_named_and_not_shown() {
        let pod = json!({"spec": {"containers": [{"env": [{"name": "A", "value": "hunter2"}]}]},
            "dbPassword": "hunter2", "metadata": {"annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "hunter2"}}, "app": "web"});
        let change = Change::between("pod", None, Some(&pod));
        let text = serde_json::to_string(&change).unwrap();
        assert!(!text.contains("hunter2") && text.contains("dbPassword") && text.contains("web"), "{text}");
    }

    #[test]
    fn many_and_long_values_are_bounded() {
        let many: Vec<_> = (0..1000).map(|n| format!("{n}{}", "ä".repeat(1000))).collect();
        let change = Change::between("list", None, Some(&json!({ "a": many })));
        assert_eq!((change.fields.len(), change.fields_left_out), (MAX_FIELDS, 1000 - MAX_FIELDS));
        assert!(change.size() < MAX_FIELDS * 400, "{}", change.size());
    }
}
