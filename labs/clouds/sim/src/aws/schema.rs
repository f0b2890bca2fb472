//! EC2's query protocol, driven by its API description: parameters in, XML out, both checked on the way.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::OnceLock,
};

use serde_json::{Map, Value};

use super::{Refusal, refuse};
use crate::rest::{text, texts};

fn api() -> &'static Value {
    static API: OnceLock<Value> = OnceLock::new();
    API.get_or_init(|| {
        serde_json::from_str(include_str!("../../schemas/aws/ec2.json")).expect("the file is JSON")
    })
}

fn shape(name: &str) -> &'static Value {
    &api()["shapes"][name]
}

/// Reads an action's parameters into its input, by the names of the API description.
pub(super) fn decode(action: &str, parameters: &BTreeMap<String, String>) -> Result<Value, Refusal> {
    let Some(operation) = api()["operations"].get(action) else {
        bail!("InvalidAction", "The action {action} is not valid for this web service.");
    };
    let mut used = BTreeSet::from(["Action".to_owned(), "Version".to_owned()]);
    let input = match operation["input"].as_str() {
        Some(name) => structure(shape(name), "", parameters, &mut used)?,
        None => Value::Object(Map::new()),
    };
    if let Some(unknown) = parameters.keys().find(|key| !used.contains(*key)) {
        bail!("UnknownParameter", "The parameter {unknown} is not recognized");
    }
    Ok(input)
}

fn key_of(name: &str, member: &Value) -> String {
    if let Some(query) = member["queryName"].as_str() {
        return query.to_owned();
    }
    let text = member["locationName"].as_str().unwrap_or(name);
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}

type Parameters = BTreeMap<String, String>;

fn structure(
    shape: &Value,
    prefix: &str,
    parameters: &Parameters,
    used: &mut BTreeSet<String>,
) -> Result<Value, Refusal> {
    let mut out = Map::new();
    for (name, member) in shape["members"].as_object().into_iter().flatten() {
        let key = format!("{prefix}{}", key_of(name, member));
        if let Some(value) = value(text(&member["shape"]), &key, parameters, used)? {
            out.insert(name.clone(), value);
        }
    }
    for required in texts(&shape["required"]) {
        if !out.contains_key(required) {
            bail!("MissingParameter", "The request must contain the parameter {prefix}{required}");
        }
    }
    Ok(Value::Object(out))
}

fn value(
    name: &str,
    key: &str,
    parameters: &Parameters,
    used: &mut BTreeSet<String>,
) -> Result<Option<Value>, Refusal> {
    let shape = shape(name);
    let below = format!("{key}.");
    let has_below =
        || parameters.range(below.clone()..).next().is_some_and(|(found, _)| found.starts_with(&below));
    match text(&shape["type"]) {
        "structure" if has_below() => structure(shape, &below, parameters, used).map(Some),
        "structure" => Ok(None),
        "list" => {
            let member = text(&shape["member"]["shape"]);
            let mut list = Vec::new();
            for number in 1.. {
                match value(member, &format!("{key}.{number}"), parameters, used)? {
                    Some(value) => list.push(value),
                    None => break,
                }
            }
            Ok((!list.is_empty()).then_some(Value::Array(list)))
        }
        kind => {
            let Some(text) = parameters.get(key) else { return Ok(None) };
            used.insert(key.to_owned());
            scalar(kind, shape, key, text).map(Some)
        }
    }
}

fn scalar(kind: &str, shape: &Value, key: &str, text: &str) -> Result<Value, Refusal> {
    let bad = || refuse("InvalidParameterValue", format!("Value ({text}) for parameter {key} is invalid."));
    match kind {
        "integer" | "long" => text.parse::<i64>().map(Value::from).map_err(|_| bad()),
        "boolean" => text.parse::<bool>().map(Value::from).map_err(|_| bad()),
        "double" | "float" => text.parse::<f64>().map(Value::from).map_err(|_| bad()),
        _ => {
            let allowed = shape["enum"].as_array();
            if allowed.is_some_and(|allowed| !allowed.iter().any(|one| one == text)) {
                return Err(bad());
            }
            Ok(Value::from(text))
        }
    }
}

/// Writes an output as XML. Fields that begin with `_` are the simulator's own. Anything else that the description
/// does not know is a defect of the simulator.
pub(super) fn render(action: &str, output: &Value) -> Result<String, String> {
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\
         <requestId>{REQUEST}</requestId>"
    );
    match api()["operations"][action]["output"].as_str() {
        Some(name) => write_structure(name, output, &mut xml)?,
        None => xml.push_str("<return>true</return>"),
    }
    let _ = write!(xml, "</{action}Response>");
    Ok(xml)
}

fn write_structure(name: &str, value: &Value, xml: &mut String) -> Result<(), String> {
    let members = &shape(name)["members"];
    let fields = value.as_object().ok_or_else(|| format!("{name} is {value}"))?;
    for (field, value) in fields.iter().filter(|(field, value)| !field.starts_with('_') && !value.is_null()) {
        let member = members.get(field).ok_or_else(|| format!("{name} has no {field}"))?;
        let element = member["locationName"].as_str().unwrap_or(field);
        let _ = write!(xml, "<{element}>");
        write_value(text(&member["shape"]), value, xml)?;
        let _ = write!(xml, "</{element}>");
    }
    Ok(())
}

fn write_value(name: &str, value: &Value, xml: &mut String) -> Result<(), String> {
    let shape = shape(name);
    match (text(&shape["type"]), value) {
        ("structure", _) => write_structure(name, value, xml),
        ("list", Value::Array(items)) => {
            let member = text(&shape["member"]["shape"]);
            for item in items {
                xml.push_str("<item>");
                write_value(member, item, xml)?;
                xml.push_str("</item>");
            }
            Ok(())
        }
        ("integer" | "long", Value::Number(number)) => {
            let _ = write!(xml, "{number}");
            Ok(())
        }
        ("boolean", Value::Bool(value)) => {
            let _ = write!(xml, "{value}");
            Ok(())
        }
        ("string" | "timestamp" | "blob", Value::String(text)) => {
            let allowed = shape["enum"].as_array();
            if allowed.is_some_and(|allowed| !allowed.iter().any(|one| one == text)) {
                return Err(format!("{name} cannot be {text}"));
            }
            xml.push_str(&escape(text));
            Ok(())
        }
        (kind, _) => Err(format!("{name} is a {kind}, not {value}")),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The id of every request.
pub(super) const REQUEST: &str = "5e1a7e00-0000-4000-8000-000000000000";

pub(super) fn error(code: &str, message: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{}</Message></Error></Errors>\
         <RequestID>{REQUEST}</RequestID></Response>",
        escape(message)
    )
}
