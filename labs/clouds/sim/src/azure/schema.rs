//! Checks bodies against what Azure's own clients say of its API.

use std::sync::OnceLock;

use serde_json::Value;

use crate::{
    rest::{text, texts},
    server::Ask,
};

fn api() -> &'static Value {
    static API: OnceLock<Value> = OnceLock::new();
    API.get_or_init(|| {
        serde_json::from_str(include_str!("../../schemas/azure/arm.json")).expect("the file is JSON")
    })
}

/// The operation that a request asks for.
pub(super) fn find(ask: &Ask<'_>) -> Option<&'static Value> {
    let path = ask.uri.path().trim_end_matches('/');
    let fits = |pattern: &str| {
        let (pattern, given): (Vec<&str>, Vec<&str>) =
            (pattern.split('/').collect(), path.split('/').collect());
        pattern.len() == given.len()
            && pattern
                .iter()
                .zip(&given)
                .all(|(a, b)| (*a == "{}" && !b.is_empty()) || a.eq_ignore_ascii_case(b))
    };
    let operations = api()["operations"].as_object()?.values();
    operations
        .filter(|one| one["method"] == ask.method.as_str())
        .find(|one| one["path"].as_str().is_some_and(fits))
}

/// A request's body without what only Azure sets; refused if Azure would not know a part of it.
pub(super) fn request(operation: &'static Value, mut body: Value) -> Result<Value, String> {
    let Some(schema) = operation.get("body") else { return Ok(Value::Null) };
    if body.is_null() {
        return Err("The request body is missing.".to_owned());
    }
    strip(schema, &mut body);
    check(schema, &body, "body", true)?;
    Ok(body)
}

pub(super) fn response(operation: &Value, status: u16, body: &Value) -> Result<(), String> {
    match operation["responses"].get(status.to_string()) {
        None => Err(format!("the status {status} is not one that clients expect")),
        Some(Value::Null) => Ok(()),
        Some(schema) => check(schema, body, "answer", false),
    }
}

fn resolve(schema: &Value) -> &Value {
    let named = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    match named {
        Some(name) => &api()["definitions"][name.rsplit('/').next().unwrap_or_default()],
        None => schema,
    }
}

fn strip(schema: &Value, value: &mut Value) {
    let schema = resolve(schema);
    match value {
        Value::Object(fields) => {
            // What is null is as if it were not there.
            fields.retain(|name, value| {
                !value.is_null() && schema["properties"][name.as_str()]["readOnly"] != true
            });
            for (name, value) in fields {
                strip(&schema["properties"][name.as_str()], value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| strip(&schema["items"], item)),
        _ => {}
    }
}

fn check(schema: &Value, value: &Value, path: &str, is_request: bool) -> Result<(), String> {
    let schema = resolve(schema);
    let wrong = |kind: &str| Err(format!("{path} must be a {kind}, not {value}"));
    match text(&schema["type"]) {
        "object" => {
            let Value::Object(fields) = value else { return wrong("object") };
            // What has an id within another object stands for the object of that id.
            let refers = path != "body" && fields.contains_key("id");
            if is_request && !refers {
                let needed = texts(&schema["required"]);
                let set = |name: &str| schema["properties"][name]["readOnly"] == true;
                if let Some(name) = needed.into_iter().find(|name| !fields.contains_key(*name) && !set(name))
                {
                    return Err(format!("Required property '{name}' not found in {path}."));
                }
            }
            for (name, value) in fields {
                let below = format!("{path}.{name}");
                match (schema["properties"].get(name), schema.get("additionalProperties")) {
                    (Some(property), _) | (None, Some(property)) => {
                        check(property, value, &below, is_request)?
                    }
                    (None, None) => {
                        return Err(format!("Could not find member '{name}' on object of {path}."));
                    }
                }
            }
            Ok(())
        }
        "array" => {
            let Value::Array(items) = value else { return wrong("list") };
            items.iter().try_for_each(|item| check(&schema["items"], item, path, is_request))
        }
        "string" if !value.is_string() => wrong("string"),
        "integer" if value.as_i64().is_none() => wrong("integer"),
        "number" if value.as_f64().is_none() => wrong("number"),
        "boolean" if !value.is_boolean() => wrong("boolean"),
        _ => Ok(()),
    }
}
