//! Names and labels as Kubernetes spells them.

use super::Report;
use crate::policy::{
    LabelSelector, convert,
    labels::Labels,
    selector::{is_dns_label, label_key, label_value},
};

impl Report {
    pub(super) fn labels(&mut self, path: &str, labels: &Labels) {
        for (key, value) in labels.iter() {
            if let Err(message) = label_key(key) {
                self.say(format!("{path}[{key}]"), message);
            }
            if let Err(message) = label_value(value) {
                self.say(format!("{path}[{key}]"), message);
            }
        }
    }

    pub(super) fn selector(&mut self, path: &str, selector: &LabelSelector) {
        self.check(path, convert::selector(selector));
    }
}

/// Names that are part of a DNS name.
pub(super) fn label_name(name: &str) -> Result<(), String> {
    is_dns_label(name)
        .then_some(())
        .ok_or_else(|| format!("`{name}` is not a DNS label of at most 63 characters"))
}

pub(super) fn namespace_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a namespace is required for this kind".into());
    }
    label_name(name)
}
