//! Flows as OpenTelemetry's collectors take them: one record of a log each, by node.
//!
//! In: flows. Out: the request of `LogsService/Export`. The messages are those parts of `opentelemetry/proto/logs/v1` that flows need; the
//! numbers of their fields are fixed. Not here: who sends it (`drivers`).

use std::{collections::BTreeMap, net::IpAddr};

use crate::{Direction, End, Flow, Verdict};

/// Where it is sent to.
pub const METHOD: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
/// What is worth a look, and what is not.
const INFO: i32 = 9;
const WARN: i32 = 13;

#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportLogsRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportLogsResponse {
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What a collector has not taken.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub rejected_log_records: i64,
    #[prost(string, tag = "2")]
    pub error_message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_logs: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub log_records: Vec<LogRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LogRecord {
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    pub severity_number: i32,
    #[prost(string, tag = "3")]
    pub severity_text: String,
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "11")]
    pub observed_time_unix_nano: u64,
    #[prost(string, tag = "12")]
    pub event_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3, 5, 6")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
    #[prost(message, tag = "5")]
    List(List),
    #[prost(message, tag = "6")]
    Map(Map),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct List {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Map {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<KeyValue>,
}

/// `protocol`: the name of a number. `now` in milliseconds since 1970.
pub fn request(flows: &[Flow], protocol: impl Fn(u8) -> Option<&'static str>, now: u64) -> ExportLogsRequest {
    let mut by_node: BTreeMap<&str, Vec<LogRecord>> = BTreeMap::new();
    for flow in flows {
        by_node.entry(&flow.kind.node).or_default().push(record(flow, &protocol, now));
    }
    let of_node = |(node, log_records): (&str, Vec<LogRecord>)| ResourceLogs {
        resource: Some(Resource {
            attributes: vec![text("service.name", "trestle"), text("host.name", node)],
        }),
        scope_logs: vec![ScopeLogs { scope: Some(Scope { name: "trestle.flows".to_owned() }), log_records }],
    };
    ExportLogsRequest { resource_logs: by_node.into_iter().map(of_node).collect() }
}

fn record(flow: &Flow, protocol: &impl Fn(u8) -> Option<&'static str>, now: u64) -> LogRecord {
    let kind = &flow.kind;
    let (verdict, severity_number, severity_text) = match kind.verdict {
        Verdict::Allowed => ("allowed", INFO, "INFO"),
        Verdict::Denied => ("denied", WARN, "WARN"),
        Verdict::Observed => ("observed", WARN, "WARN"),
    };
    let direction = match kind.direction {
        Direction::In => "in",
        Direction::Out => "out",
        Direction::Through => "through",
    };
    let transport = protocol(kind.protocol).map_or_else(|| kind.protocol.to_string(), str::to_owned);
    let mut attributes = vec![
        text("trestle.flow.verdict", verdict),
        text("trestle.flow.direction", direction),
        text("network.transport", &transport),
        number("trestle.flow.count", flow.count),
        number("trestle.flow.first_unix_milli", flow.first),
    ];
    if let Some(address) = kind.from.address.or(kind.to.address) {
        attributes.push(text("network.type", if address.is_ipv4() { "ipv4" } else { "ipv6" }));
    }
    attributes.extend(kind.port.map(|port| number("destination.port", port.into())));
    attributes.extend(flow.bytes.map(|bytes| number("trestle.flow.bytes", bytes)));
    attributes.extend(kind.service.map(|service| text("trestle.flow.service", &service.to_string())));
    if !kind.rule.is_empty() {
        attributes.push(text("trestle.flow.rule", &kind.rule));
    }
    end(&mut attributes, "source", &kind.from);
    end(&mut attributes, "destination", &kind.to);
    let port = kind.port.map(|port| format!("/{port}")).unwrap_or_default();
    let body = format!("{verdict} {} -> {} {transport}{port}", who(&kind.from), who(&kind.to));
    LogRecord {
        time_unix_nano: flow.last.saturating_mul(1_000_000),
        severity_number,
        severity_text: severity_text.to_owned(),
        body: Some(AnyValue { value: Some(Value::Text(body)) }),
        attributes,
        observed_time_unix_nano: now.saturating_mul(1_000_000),
        event_name: "trestle.flow".to_owned(),
    }
}

/// Its workload, else its address.
fn who(end: &End) -> String {
    match (end.workload.split_once(' '), end.address) {
        (Some((_, name)), _) => name.to_owned(),
        (None, Some(address)) => address.to_string(),
        (None, None) => "many".to_owned(),
    }
}

fn end(attributes: &mut Vec<KeyValue>, side: &str, end: &End) {
    let name = |what: &str| format!("{side}.{what}");
    attributes.extend(end.address.as_ref().map(IpAddr::to_string).map(|it| text(&name("address"), &it)));
    if !end.workload.is_empty() {
        attributes.push(text(&name("workload"), &end.workload));
    }
    if !end.labels.is_empty() {
        let values = end.labels.iter().map(|(key, value)| text(key, value)).collect();
        attributes.push(with(&name("labels"), Value::Map(Map { values })));
    }
    if !end.tags.is_empty() {
        let values = end.tags.iter().map(|tag| AnyValue { value: Some(Value::Text(tag.clone())) });
        attributes.push(with(&name("tags"), Value::List(List { values: values.collect() })));
    }
}

fn with(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn text(key: &str, value: &str) -> KeyValue {
    with(key, Value::Text(value.to_owned()))
}

fn number(key: &str, value: u64) -> KeyValue {
    with(key, Value::Number(i64::try_from(value).unwrap_or(i64::MAX)))
}
