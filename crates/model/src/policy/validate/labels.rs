//! Names and labels as Kubernetes spells them.

use super::Report;
use crate::policy::{LabelSelector, convert, meta::Labels};

impl Report {
    pub(super) fn labels(&mut self, path: &str, labels: &Labels) {
        for (key, value) in labels {
            if let Err(message) = label_key(key) {
                self.say(format!("{path}[{key}]"), message);
            }
            if let Err(message) = label_value(value) {
                self.say(format!("{path}[{key}]"), message);
            }
        }
    }

    pub(super) fn selector(&mut self, path: &str, selector: &LabelSelector) {
        self.labels(&format!("{path}.matchLabels"), &selector.match_labels);
        self.check(path, convert::selector(selector));
        for (i, requirement) in selector.match_expressions.iter().enumerate() {
            if let Err(message) = label_key(&requirement.key) {
                self.say(format!("{path}.matchExpressions[{i}].key"), message);
            }
            for (j, value) in requirement.values.iter().enumerate() {
                if let Err(message) = label_value(value) {
                    self.say(format!("{path}.matchExpressions[{i}].values[{j}]"), message);
                }
            }
        }
    }
}

pub(super) fn object_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a name is required".into());
    }
    let legal = name.len() <= 253 && name.split('.').all(is_dns_label);
    legal.then_some(()).ok_or_else(|| format!("`{name}` is not a DNS name: lower case letters, digits, `-` and `.`"))
}

pub(super) fn namespace_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a namespace is required for this kind".into());
    }
    is_dns_label(name).then_some(()).ok_or_else(|| format!("`{name}` is not a DNS label of at most 63 characters"))
}

fn is_dns_label(label: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| alphanumeric(b) || b == b'-')
        && label.bytes().next().is_some_and(alphanumeric)
        && label.bytes().last().is_some_and(alphanumeric)
}

fn label_key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if name.is_empty() || !is_label_text(name) {
        return Err(format!("`{key}` is not a label key: [prefix/]name of at most 63 letters, digits, `-`, `_`, `.`"));
    }
    match prefix {
        Some(prefix) if object_name(prefix).is_err() => Err(format!("`{prefix}` before the `/` is not a DNS name")),
        _ => Ok(()),
    }
}

fn label_value(value: &str) -> Result<(), String> {
    (value.is_empty() || is_label_text(value))
        .then_some(())
        .ok_or_else(|| format!("`{value}` is not a label value of at most 63 letters, digits, `-`, `_`, `.`"))
}

fn is_label_text(text: &str) -> bool {
    text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && text.bytes().last().is_some_and(|b| b.is_ascii_alphanumeric())
}
