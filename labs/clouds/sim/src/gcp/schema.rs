//! Checks bodies against Google's own API description.

use std::sync::OnceLock;

use serde_json::Value;

use crate::rest::text;

const COMPUTE: &str = include_str!("../../schemas/gcp/compute.json");
const CONTAINER: &str = include_str!("../../schemas/gcp/container.json");
const DNS: &str = include_str!("../../schemas/gcp/dns.json");

/// The description of the API that a method is of.
fn api(method: &str) -> &'static Value {
    static APIS: [OnceLock<Value>; 3] = [OnceLock::new(), OnceLock::new(), OnceLock::new()];
    let (place, text) = match method.split('.').next() {
        Some("container") => (1, CONTAINER),
        Some("dns") => (2, DNS),
        _ => (0, COMPUTE),
    };
    APIS[place].get_or_init(|| serde_json::from_str(text).expect("the file is JSON"))
}

pub(super) fn check_request(method: &str, body: &Value) -> Result<(), String> {
    let api = api(method);
    let known = api["methods"].get(method).ok_or_else(|| format!("{method} is not simulated"))?;
    match (known["request"].as_str(), body) {
        (Some(name), body) if !body.is_null() => check(api, &api["schemas"][name], body, name),
        (Some(name), _) => Err(format!("a {name} is needed")),
        (None, _) => Ok(()),
    }
}

pub(super) fn check_response(method: &str, body: &Value) -> Result<(), String> {
    let api = api(method);
    match api["methods"][method]["response"].as_str() {
        Some(name) => check(api, &api["schemas"][name], body, name),
        None if body.is_null() => Ok(()),
        None => Err(format!("{method} answers nothing, not {body}")),
    }
}

fn check(api: &Value, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        return check(api, &api["schemas"][name], value, path);
    }
    let wrong = |kind: &str| Err(format!("{path} must be a {kind}, not {value}"));
    match text(&schema["type"]) {
        "object" => {
            let Value::Object(fields) = value else { return wrong("object") };
            for (name, value) in fields {
                let below = format!("{path}.{name}");
                match (schema["properties"].get(name), schema.get("additionalProperties")) {
                    (Some(property), _) | (None, Some(property)) => check(api, property, value, &below)?,
                    (None, None) => return Err(format!("Unknown name \"{name}\" at {path}")),
                }
            }
            Ok(())
        }
        "array" => {
            let Value::Array(items) = value else { return wrong("list") };
            items.iter().try_for_each(|item| check(api, &schema["items"], item, path))
        }
        "string" => {
            let Value::String(text) = value else { return wrong("string") };
            match schema["enum"].as_array() {
                Some(allowed) if !allowed.iter().any(|one| one == text) => {
                    Err(format!("Invalid value for field '{path}': '{text}'"))
                }
                _ => Ok(()),
            }
        }
        "integer" if value.as_i64().is_none() => wrong("integer"),
        "number" if value.as_f64().is_none() => wrong("number"),
        "boolean" if !value.is_boolean() => wrong("boolean"),
        _ => Ok(()),
    }
}
