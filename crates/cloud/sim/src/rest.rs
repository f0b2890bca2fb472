//! What simulated REST APIs have in common.

use serde_json::Value;

/// A parameter of a query, decoded.
pub(crate) fn parameter(uri: &http::Uri, name: &str) -> Option<String> {
    let decode = |text: &str| {
        percent_encoding::percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
    };
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| decode(value))
}

/// The texts in a list.
pub(crate) fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// An object without the fields that are the simulator's own, which begin with `_`.
pub(crate) fn show(object: &Value) -> Value {
    match object {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(name, _)| !name.starts_with('_'))
                .map(|(name, value)| (name.clone(), show(value)))
                .collect(),
        ),
        Value::Array(items) => items.iter().map(show).collect(),
        other => other.clone(),
    }
}
