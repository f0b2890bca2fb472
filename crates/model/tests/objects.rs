//! Objects as users write them, at random: what is written is read as the same, its fields are known, and judging it is total.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeMap;

use model::policy::{Kind, Object, fields, validate};
use serde_json::Value;
use testkit::policies::random::Random;

fn written(object: &Object) -> Value {
    serde_json::to_value(object).unwrap()
}

#[test]
fn an_object_that_is_written_is_read_as_the_same() {
    let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
    for seed in 1..=40 {
        let mut random = Random::new(seed);
        for _ in 0..100 {
            let object = random.object();
            // A priority that is no number cannot be written.
            if object != object.clone() {
                continue;
            }
            let text = written(&object).to_string();
            let read = object.kind().deserialize(&mut serde_json::Deserializer::from_str(&text)).unwrap();
            assert_eq!(read, object, "{text}");
            assert_eq!(validate(&read), validate(&object));
            *kinds.entry(object.kind()).or_default() += 1;
        }
    }
    assert!(kinds.len() >= 11 && kinds.values().all(|count| *count > 20), "{kinds:?}");
}

/// What we write ourselves has no field that we would tell somebody we do not know.
#[test]
fn the_fields_that_are_written_are_known() {
    for seed in 1..=20 {
        let mut random = Random::new(seed);
        for _ in 0..100 {
            let object = random.object();
            let problems = fields::unknown(object.kind(), &written(&object));
            let fields: Vec<_> =
                problems.iter().filter(|problem| !problem.path.contains("apiVersion")).collect();
            assert!(fields.is_empty(), "{fields:?}\n{}", written(&object));
        }
    }
}

/// A document in which something was replaced by something else is read, or refused; nothing panics, and a field that no kind
/// has is found wherever it stands in what is strict.
#[test]
fn damaged_documents_are_judged_and_never_fall() {
    let nonsense = [
        Value::Null,
        Value::Bool(true),
        (-1).into(),
        1e300.into(),
        "".into(),
        "é\u{0}".into(),
        Value::Array(vec![]),
        serde_json::json!({"x": [{}]}),
    ];
    let (mut read, mut refused) = (0, 0);
    for seed in 1..=40 {
        let mut random = Random::new(seed);
        for _ in 0..50 {
            let object = random.object();
            let mut document = written(&object);
            let places = count(&document);
            let at = random.below(places);
            replace(&mut document, &mut { at }, &nonsense[random.below(nonsense.len())]);
            let _ = fields::unknown(object.kind(), &document);
            match object.kind().deserialize(document) {
                Ok(object) => {
                    let _ = validate(&object);
                    read += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(read > 200 && refused > 200, "read {read}, refused {refused}");
}

/// How many values there are, the document itself among them.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Replaces the value with this number.
fn replace(value: &mut Value, at: &mut usize, with: &Value) {
    if *at == 0 {
        *value = with.clone();
        *at = usize::MAX;
        return;
    }
    *at -= 1;
    let within: Vec<&mut Value> = match value {
        Value::Array(values) => values.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    for value in within {
        if *at == usize::MAX {
            return;
        }
        replace(value, at, with);
    }
}

#[test]
fn an_unknown_field_is_found_beside_every_known_one() {
    for seed in 1..=20 {
        let mut random = Random::new(seed);
        let object = random.object();
        let mut document = written(&object);
        let before = fields::unknown(object.kind(), &document).len();
        document.as_object_mut().unwrap().insert("sepc".into(), Value::Null);
        let problems = fields::unknown(object.kind(), &document);
        assert_eq!(problems.len(), before + 1, "{document}");
        assert!(problems.iter().any(|problem| problem.path.contains("sepc")), "{problems:?}");
        let metadata = document["metadata"].as_object_mut().unwrap();
        metadata.insert("lables".into(), Value::Null);
        assert_eq!(fields::unknown(object.kind(), &document).len(), before + 2, "{document}");
    }
}
