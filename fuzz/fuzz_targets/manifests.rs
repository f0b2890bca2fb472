//! YAML as users bring it: every document of it is what it says when it is written and read again, and its text stands for no more
//! than it could say itself.
#![no_main]

use drivers::objects::manifests;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let Ok(found) = manifests::read(text) else { return };
    for manifest in found {
        let json = manifest.document.to_string();
        // Fifty thousand replayed nodes, each as long as the text at most.
        assert!(json.len() <= (text.len() + 16) * 100_000);
        let again: Value = serde_json::from_str(&json).expect("we wrote it");
        assert!(is_same(&manifest.document, &again), "{json}");
    }
});

/// Fractions are read but for their last bit.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) if one.is_f64() && other.is_f64() => {
            let (one, other) = (one.as_f64().unwrap_or_default(), other.as_f64().unwrap_or_default());
            (one - other).abs() <= one.abs() * 4.0 * f64::EPSILON
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in = |(key, value)| other.get(key).is_some_and(|other| is_same(value, other));
            one.len() == other.len() && one.iter().all(is_in)
        }
        _ => one == other,
    }
}
