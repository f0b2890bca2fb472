//! Finds operations and checks bodies by IBM's own API descriptions.

use std::sync::OnceLock;

use serde_json::Value;

use crate::rest::{list, text, texts};

/// An operation that a request asks for.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// `is.create_vpc`, `transit.create_transit_gateway`, `containers.vpc_create_cluster`.
    pub(super) operation: String,
    /// The path's fixed parts: `vpcs/address_prefixes`.
    pub(super) kind: String,
    /// What stands for the others.
    pub(super) ids: Vec<String>,
    description: &'static Value,
    api: &'static Value,
}

fn apis() -> &'static [(&'static str, Value); 3] {
    static APIS: OnceLock<[(&str, Value); 3]> = OnceLock::new();
    APIS.get_or_init(|| {
        let read = |text: &str| serde_json::from_str(text).expect("the file is JSON");
        [
            ("is", read(include_str!("../../schemas/ibm/vpc.json"))),
            ("transit", read(include_str!("../../schemas/ibm/transit.json"))),
            ("containers", read(include_str!("../../schemas/ibm/containers.json"))),
        ]
    })
}

/// The operation of a path. Fixed parts go before names.
pub(super) fn find(method: &str, path: &str) -> Option<Call> {
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    let fits = |template: &str| {
        let pattern: Vec<&str> = template.trim_start_matches('/').split('/').collect();
        pattern.len() == parts.len()
            && pattern.iter().zip(&parts).all(|(wanted, given)| wanted.starts_with('{') || wanted == given)
    };
    for (service, api) in apis() {
        let paths = api["paths"].as_object().into_iter().flatten();
        let Some((template, methods)) = paths.into_iter().find(|(template, _)| fits(template)) else {
            continue;
        };
        let description = methods.get(method.to_ascii_lowercase())?;
        let pattern: Vec<&str> = template.trim_start_matches('/').split('/').collect();
        let fixed: Vec<&str> = pattern.iter().filter(|part| !part.starts_with('{')).copied().collect();
        let decode =
            |text: &&str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let ids = pattern.iter().zip(&parts).filter(|(part, _)| part.starts_with('{'));
        return Some(Call {
            operation: format!("{service}.{}", description["operationId"].as_str()?),
            kind: fixed.join("/"),
            ids: ids.map(|(_, given)| decode(given)).collect(),
            description,
            api,
        });
    }
    None
}

pub(super) fn check_request(call: &Call, uri: &http::Uri, body: &Value) -> Result<(), String> {
    let parameters: Vec<&Value> = list(&call.description["parameters"]).collect();
    let of = |place: &'static str| parameters.iter().filter(move |one| one["in"] == place);
    let given: Vec<&str> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split('=').next())
        .filter(|name| !name.is_empty())
        .collect();
    for parameter in of("query").filter(|one| one["required"] == true) {
        let name = text(&parameter["name"]);
        if !given.contains(&name) {
            return Err(format!("the parameter {name} is missing"));
        }
    }
    if let Some(unknown) = given.iter().find(|name| !of("query").any(|one| one["name"] == **name)) {
        return Err(format!("there is no parameter {unknown}"));
    }
    match of("body").next() {
        Some(wanted) if body.is_null() && wanted["required"] == true => Err("a body is needed".to_owned()),
        Some(wanted) if !body.is_null() => check(call.api, &wanted["schema"], body, "body"),
        _ => Ok(()),
    }
}

pub(super) fn check_response(call: &Call, status: u16, body: &Value) -> Result<(), String> {
    let responses = &call.description["responses"];
    let expected = responses.get(status.to_string()).or_else(|| responses.get("2XX"));
    let expected = expected.ok_or_else(|| format!("the status {status} is none of its own"))?;
    match (expected.get("schema"), body) {
        (Some(_), Value::Null) => Err("the answer has no body".to_owned()),
        (Some(schema), body) => check(call.api, schema, body, "answer"),
        (None, _) => Ok(()),
    }
}

fn check(api: &Value, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return check(api, &api["definitions"][name], value, path);
    }
    if let Some(alternatives) = schema["x-one-of"].as_array() {
        let mut told = Vec::new();
        for name in alternatives.iter().filter_map(Value::as_str) {
            match check(api, &api["definitions"][name], value, path) {
                Ok(()) => return Ok(()),
                Err(message) => told.push(message),
            }
        }
        // The alternative that got furthest has the most to say.
        return Err(told.into_iter().max_by_key(String::len).unwrap_or_default());
    }
    let wrong = |kind: &str| Err(format!("{path} must be a {kind}, not {value}"));
    match text(&schema["type"]) {
        "object" => check_object(api, schema, value, path),
        "array" => {
            let Value::Array(items) = value else { return wrong("list") };
            items.iter().try_for_each(|item| check(api, &schema["items"], item, path))
        }
        "string" => {
            let Value::String(text) = value else { return wrong("string") };
            match schema["enum"].as_array() {
                Some(allowed) if !allowed.iter().any(|one| one == text) => Err(format!("{path} is {text:?}")),
                _ => Ok(()),
            }
        }
        "integer" if value.as_i64().is_none() => wrong("integer"),
        "number" if value.as_f64().is_none() => wrong("number"),
        "boolean" if !value.is_boolean() => wrong("boolean"),
        _ => Ok(()),
    }
}

fn check_object(api: &Value, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    let Value::Object(fields) = value else { return Err(format!("{path} must be an object, not {value}")) };
    for required in texts(&schema["required"]) {
        if !fields.contains_key(required) {
            return Err(format!("{path}.{required} is missing"));
        }
    }
    let Some(properties) = schema["properties"].as_object() else { return Ok(()) };
    for (name, value) in fields {
        let below = format!("{path}.{name}");
        let property = properties.get(name).ok_or_else(|| format!("there is no {below}"))?;
        check(api, property, value, &below)?;
    }
    Ok(())
}
