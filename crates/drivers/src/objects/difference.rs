//! The difference of two documents, for people to read (pure): one line per value, which says where it belongs.

use model::change::Field;

/// `-` and `+` lines for what goes and what comes; nothing for what stays.
pub(super) fn text(fields: &[Field]) -> String {
    let mut text = String::new();
    for Field { path, before, after } in fields {
        for (sign, value) in [('-', before), ('+', after)] {
            if let Some(value) = value {
                text.push_str(&format!("{sign} {path}: {value}\n"));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use model::change::compare;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_shown_with_its_path() {
        let old = json!({"a": {"b": 1, "c": ["x", "y"]}, "gone": true});
        let new = json!({"a": {"b": 2, "c": ["x", "y", "z"]}, "empty": {}});
        assert_eq!(
            text(&compare(Some(&old), Some(&new))),
            "- a.b: 1\n+ a.b: 2\n+ a.c[2]: z\n+ empty: {}\n- gone: true\n"
        );
    }

    #[test]
    fn a_new_object_is_all_plus() {
        assert_eq!(text(&compare(None, Some(&json!({"kind": "Pod"})))), "+ kind: Pod\n");
    }
}
