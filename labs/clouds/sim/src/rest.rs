//! What the simulated clouds' APIs have in common.

use std::slice;

use serde_json::Value;

/// A refusal, in a cloud's own words.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

pub(crate) fn refuse(status: u16, code: &'static str, message: impl Into<String>) -> Refusal {
    Refusal { status, code, message: message.into() }
}

/// A parameter of a query, decoded.
pub(crate) fn parameter(uri: &http::Uri, name: &str) -> Option<String> {
    let decode = |text: &str| {
        percent_encoding::percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
    };
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| decode(value))
}

/// A text; empty where there is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What is in a list; nothing where there is none.
pub(crate) fn list(value: &Value) -> slice::Iter<'_, Value> {
    value.as_array().map_or(&[][..], Vec::as_slice).iter()
}

/// A list to change.
pub(crate) fn items(value: &Value) -> Vec<Value> {
    list(value).cloned().collect()
}

/// The texts in a list.
pub(crate) fn texts(value: &Value) -> Vec<&str> {
    list(value).filter_map(Value::as_str).collect()
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
