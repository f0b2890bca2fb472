//! What a request asks for: its query string, what it accepts, and the body of a report.

use std::sync::Arc;

use model::policy::output::Identifier;
use prost::Message;
use serde::de::DeserializeOwned;

use crate::{cache::View, encode::MAGIC, encoding::Encoding, objects::Start, proto};

/// A list or a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub view: View,
    pub watch: bool,
    pub start: Start,
    /// The bookmark says that it ends the initial events.
    pub marks_initial_end: bool,
    pub timeout_seconds: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error("field label not supported: {label:?}; there are metadata.name and nodeName")]
    FieldLabel { label: String },
    #[error("fieldSelector {text:?} is not of the form label=value[,label=value]")]
    FieldSelector { text: String },
    #[error("label selectors are not supported: these objects have no labels")]
    LabelSelector,
    #[error("{key}={value:?} is not {expected}")]
    Value { key: &'static str, value: String, expected: &'static str },
    #[error("sendInitialEvents needs watch=true and resourceVersionMatch=NotOlderThan")]
    SendInitialEvents,
}

impl QueryError {
    pub(crate) fn value(key: &'static str, value: &str, expected: &'static str) -> Self {
        QueryError::Value { key, value: short(value), expected }
    }

    /// Kubernetes tells apart a request that cannot be read (400) and one that makes no sense (422).
    pub fn is_invalid(&self) -> bool {
        matches!(self, QueryError::SendInitialEvents)
    }
}

impl Query {
    /// From decoded pairs. Keys that are not known are left alone, as Kubernetes does.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, QueryError> {
        let mut view = View::default();
        let (mut watch, mut bookmarks, mut initial, mut timeout_seconds) = (false, false, None, None);
        let (mut version, mut version_match) = ("", "");
        for (key, value) in pairs {
            match key {
                "watch" => watch = parse_bool("watch", value)?,
                "allowWatchBookmarks" => bookmarks = parse_bool("allowWatchBookmarks", value)?,
                "sendInitialEvents" => initial = Some(parse_bool("sendInitialEvents", value)?),
                "resourceVersion" => version = value,
                "resourceVersionMatch" => version_match = value,
                "fieldSelector" => view = parse_fields(value)?,
                "labelSelector" if !value.trim().is_empty() => return Err(QueryError::LabelSelector),
                "timeoutSeconds" if !value.is_empty() => {
                    let number = value.parse().ok();
                    let expected = "a number of seconds";
                    timeout_seconds =
                        Some(number.ok_or_else(|| QueryError::value("timeoutSeconds", value, expected))?);
                }
                _ => {}
            }
        }
        if initial.is_some() && (!watch || version_match != "NotOlderThan") {
            return Err(QueryError::SendInitialEvents);
        }
        let start = match (initial, version) {
            (Some(true), _) | (None, "" | "0") => Start::Everything,
            (Some(false), "" | "0") => Start::Now { with_bookmark: bookmarks },
            (_, version) => {
                let expected = "a resource version that this server gave out";
                let revision =
                    version.parse().map_err(|_| QueryError::value("resourceVersion", version, expected))?;
                Start::After { revision, with_bookmark: bookmarks }
            }
        };
        let marks_initial_end = initial == Some(true) && bookmarks;
        Ok(Query {
            view,
            watch,
            start,
            marks_initial_end,
            timeout_seconds: timeout_seconds.filter(|s| *s > 0),
        })
    }
}

fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

fn parse_bool(key: &'static str, value: &str) -> Result<bool, QueryError> {
    match value {
        "" | "true" | "True" | "TRUE" | "1" | "t" | "T" => Ok(true),
        "false" | "False" | "FALSE" | "0" | "f" | "F" => Ok(false),
        _ => Err(QueryError::value(key, value, "true or false")),
    }
}

fn parse_fields(text: &str) -> Result<View, QueryError> {
    let mut view = View::default();
    for term in text.split(',').map(str::trim).filter(|term| !term.is_empty()) {
        let malformed = || QueryError::FieldSelector { text: short(text) };
        let (label, value) = term.split_once('=').ok_or_else(malformed)?;
        // `a==b` is `a=b`; `a!=b` is not something a span can answer.
        let (label, value) = (label.trim(), value.strip_prefix('=').unwrap_or(value).trim());
        if label.ends_with('!') || value.is_empty() {
            return Err(malformed());
        }
        match label {
            "nodeName" => view.node = Some(Arc::from(value)),
            "metadata.name" => view.name = Some(Identifier::parse(value)),
            _ => return Err(QueryError::FieldLabel { label: short(label) }),
        }
    }
    Ok(view)
}

/// The first encoding in an `Accept` header that is spoken here; none if there is none.
pub fn encoding_for(accept: &str) -> Option<Encoding> {
    if accept.trim().is_empty() {
        return Some(Encoding::Json);
    }
    accept.split(',').find_map(|offer| {
        let mut parts = offer.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let wanted = parts.find_map(|part| part.strip_prefix("as="));
        match (media, wanted) {
            ("application/vnd.kubernetes.protobuf", None) => Some(Encoding::Protobuf),
            ("application/json", Some("Table")) => Some(Encoding::Table),
            ("application/json" | "application/*" | "*/*", None) => Some(Encoding::Json),
            _ => None,
        }
    })
}

#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body is not a Kubernetes protobuf object")]
    Protobuf(#[from] prost::DecodeError),
    #[error("the body does not start with the bytes of a Kubernetes protobuf object")]
    Magic,
    #[error("the body is not a JSON object of the kind expected")]
    Json(#[from] serde_json::Error),
}

/// Reads the body of a report, protobuf or JSON.
pub fn read_body<T: Message + Default + DeserializeOwned>(
    content_type: &str,
    body: &[u8],
) -> Result<T, BodyError> {
    if content_type.starts_with("application/vnd.kubernetes.protobuf") {
        let rest = body.strip_prefix(MAGIC).ok_or(BodyError::Magic)?;
        return Ok(T::decode(proto::Unknown::decode(rest)?.raw.as_slice())?);
    }
    Ok(serde_json::from_slice(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Query, QueryError> {
        Query::parse(pairs.iter().copied())
    }

    #[test]
    fn the_request_of_a_stock_agent_is_understood() {
        let query = parse(&[("fieldSelector", "nodeName=vm-ns/vm1"), ("watch", "true")]).unwrap();
        assert_eq!(query.view, View { node: Some("vm-ns/vm1".into()), name: None });
        assert!(query.watch && query.start == Start::Everything && !query.marks_initial_end);
    }

    #[test]
    fn garbage_is_refused_by_name() {
        for fields in ["foo=bar", "nodeName", "nodeName!=x", "nodeName=", "=x", ",,x"] {
            assert!(parse(&[("fieldSelector", fields)]).is_err(), "{fields:?}");
        }
        for (key, value) in [
            ("watch", "maybe"),
            ("timeoutSeconds", "-5"),
            ("timeoutSeconds", "99999999999999999999"),
            ("resourceVersion", "abc"),
            ("labelSelector", "a=b"),
        ] {
            assert!(parse(&[(key, value)]).is_err(), "{key}={value}");
        }
    }

    #[test]
    fn initial_events_need_their_match() {
        let asked = [("watch", "1"), ("sendInitialEvents", "true"), ("allowWatchBookmarks", "true")];
        assert!(parse(&asked).unwrap_err().is_invalid());
        let mut matched = asked.to_vec();
        matched.push(("resourceVersionMatch", "NotOlderThan"));
        let query = parse(&matched).unwrap();
        assert!(query.marks_initial_end && query.start == Start::Everything);
    }

    #[test]
    fn a_revision_resumes() {
        let query = parse(&[("watch", "true"), ("resourceVersion", "7")]).unwrap();
        assert_eq!(query.start, Start::After { revision: 7, with_bookmark: false });
    }

    #[test]
    fn the_first_encoding_known_is_taken() {
        assert_eq!(encoding_for("application/vnd.kubernetes.protobuf, */*"), Some(Encoding::Protobuf));
        assert_eq!(encoding_for("application/json, */*"), Some(Encoding::Json));
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(encoding_for(kubectl), Some(Encoding::Table));
        let discovery =
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(encoding_for(discovery), Some(Encoding::Json));
        assert_eq!(encoding_for(""), Some(Encoding::Json));
        assert_eq!(encoding_for("text/html"), None);
    }
}
