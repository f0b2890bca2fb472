//! The difference of two documents, for people to read (pure).
//!
//! Documents are flattened to one line per value, so that the order of keys does not matter and each line says
//! where it belongs: `  spec.podSelector.matchLabels.app: web`.

use std::collections::BTreeMap;

use serde_json::Value;

/// `-` and `+` lines for what goes and what comes; nothing for what stays.
pub(super) fn difference(old: Option<Value>, new: Option<Value>) -> String {
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    flatten(String::new(), old.unwrap_or(Value::Null), &mut before);
    flatten(String::new(), new.unwrap_or(Value::Null), &mut after);
    let mut text = String::new();
    let paths: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for path in paths {
        let (was, is) = (before.get(path), after.get(path));
        if was == is {
            continue;
        }
        for (sign, value) in [('-', was), ('+', is)] {
            if let Some(value) = value {
                text.push_str(&format!("{sign} {path}: {value}\n"));
            }
        }
    }
    text
}

fn flatten(path: String, value: Value, lines: &mut BTreeMap<String, String>) {
    let join = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                flatten(join(&key), value, lines);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, value) in items.into_iter().enumerate() {
                flatten(format!("{path}[{index}]"), value, lines);
            }
        }
        Value::Null if path.is_empty() => {}
        Value::String(text) => {
            lines.insert(path, text);
        }
        value => {
            lines.insert(path, value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_shown_with_its_path() {
        let old = json!({"a": {"b": 1, "c": ["x", "y"]}, "gone": true});
        let new = json!({"a": {"b": 2, "c": ["x", "y", "z"]}, "empty": {}});
        assert_eq!(
            difference(Some(old), Some(new)),
            "- a.b: 1\n+ a.b: 2\n+ a.c[2]: z\n+ empty: {}\n- gone: true\n"
        );
    }

    #[test]
    fn a_new_object_is_all_plus() {
        assert_eq!(difference(None, Some(json!({"kind": "Pod"}))), "+ kind: Pod\n");
    }
}
