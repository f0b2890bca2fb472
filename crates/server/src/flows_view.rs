//! Flows as callers ask for them and read them.

use ::flows::{Ask, Direction, End, EndFilter, Flow, Found, RecordError, Verdict};
use drivers::flows::{Flows, now};
use jiff::Timestamp;
use model::protocol;
use std::sync::Arc;
use tonic::Code;
use wire::trestle::v1::{Flow as FlowMessage, FlowEnd, FlowList, FlowsRequest};

use crate::failure::Failure;

/// What is answered when nobody says how many, and at most.
const DEFAULT: usize = 1_000;
const MOST: usize = 10_000;

/// Those of a controller that records flows.
pub fn recorded(flows: &Option<Arc<Flows>>) -> Result<&Arc<Flows>, Failure> {
    let why = "this controller records no flows: `flows.enabled` is off, or its log says why not";
    flows.as_ref().ok_or_else(|| Failure::new(Code::FailedPrecondition, why))
}

pub async fn list(flows: &Option<Arc<Flows>>, request: &FlowsRequest) -> Result<FlowList, Failure> {
    let (ask, most) = (ask(request, now())?, most(request));
    answer(recorded(flows)?.find(ask, most).await)
}

pub async fn top(flows: &Option<Arc<Flows>>, request: &FlowsRequest) -> Result<FlowList, Failure> {
    let (ask, most) = (ask(request, now())?, most(request));
    answer(recorded(flows)?.top(ask, most).await)
}

fn answer(found: Result<Found, RecordError>) -> Result<FlowList, Failure> {
    let Found { flows, more } = found.map_err(|err| Failure::from_error(Code::Internal, &err))?;
    Ok(FlowList { flows: flows.iter().map(message).collect(), more })
}

fn most(request: &FlowsRequest) -> usize {
    match usize::try_from(request.limit).unwrap_or(MOST) {
        0 => DEFAULT,
        limit => limit.min(MOST),
    }
}

/// The question of a request. `now` in milliseconds since 1970.
pub fn ask(request: &FlowsRequest, now: u64) -> Result<Ask, Failure> {
    let end = |text: &str| -> Result<Option<EndFilter>, Failure> {
        if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|err| Failure::invalid(&err)) }
    };
    Ok(Ask {
        from: end(&request.from)?,
        to: end(&request.to)?,
        end: end(&request.end)?,
        verdict: verdict(&request.verdict)?,
        rule: request.rule.clone(),
        node: request.node.clone(),
        protocol: number(&request.protocol)?,
        port: match request.port {
            0 => None,
            port => Some(u16::try_from(port).map_err(|_| wrong(format!("{port} is no port")))?),
        },
        since: time("since", &request.since, now)?.unwrap_or(0),
        until: time("until", &request.until, now)?.unwrap_or(u64::MAX),
    })
}

fn wrong(text: String) -> Failure {
    Failure::new(Code::InvalidArgument, text)
}

fn verdict(text: &str) -> Result<Option<Verdict>, Failure> {
    match text {
        "" => Ok(None),
        "allowed" => Ok(Some(Verdict::Allowed)),
        "denied" => Ok(Some(Verdict::Denied)),
        "observed" => Ok(Some(Verdict::Observed)),
        _ => Err(wrong(format!("{text:?} is no verdict: give allowed, denied or observed"))),
    }
}

fn number(text: &str) -> Result<Option<u8>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let found = protocol::by_name(&text.to_lowercase()).or_else(|| text.parse().ok());
    found
        .map(Some)
        .ok_or_else(|| wrong(format!("{text:?} is no protocol: give tcp, udp, sctp, icmp or a number")))
}

/// A moment, or how long ago, in milliseconds since 1970; none if nothing is said.
pub(crate) fn time(name: &str, text: &str, now: u64) -> Result<Option<u64>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    if let Some(ago) = ago(text) {
        return Ok(Some(now.saturating_sub(ago)));
    }
    let moment = text.parse::<Timestamp>();
    let moment = moment.map_err(|_| {
        wrong(format!(
            "`{name}` is neither a time like 2026-01-31T12:00:00Z nor as long ago as 30s, 5m, 2h or 7d"
        ))
    })?;
    Ok(Some(u64::try_from(moment.as_millisecond()).unwrap_or(0)))
}

fn ago(text: &str) -> Option<u64> {
    let unit = match text.chars().last()? {
        's' => 1_000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        _ => return None,
    };
    text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(unit)
}

pub fn message(flow: &Flow) -> FlowMessage {
    let kind = &flow.kind;
    FlowMessage {
        first: written(flow.first),
        last: written(flow.last),
        node: kind.node.to_string(),
        verdict: match kind.verdict {
            Verdict::Allowed => "allowed",
            Verdict::Denied => "denied",
            Verdict::Observed => "observed",
        }
        .to_owned(),
        direction: match kind.direction {
            Direction::In => "in",
            Direction::Out => "out",
            Direction::Through => "through",
        }
        .to_owned(),
        from: Some(end(&kind.from)),
        to: Some(end(&kind.to)),
        protocol: protocol::name(kind.protocol).map_or_else(|| kind.protocol.to_string(), str::to_owned),
        port: kind.port.map(u32::from),
        service: kind.service.map(|service| service.to_string()).unwrap_or_default(),
        rule: kind.rule.to_string(),
        count: flow.count,
        bytes: flow.bytes,
    }
}

fn end(end: &End) -> FlowEnd {
    FlowEnd {
        address: end.address.map(|address| address.to_string()).unwrap_or_default(),
        workload: end.workload.clone(),
        labels: end.labels.iter().cloned().collect(),
        tags: end.tags.clone(),
    }
}

/// As RFC 3339 has it.
pub(crate) fn written(millis: u64) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    time.map(|time| time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_what_it_says() {
        let request = FlowsRequest {
            from: "shop/".to_owned(),
            verdict: "denied".to_owned(),
            protocol: "TCP".to_owned(),
            port: 80,
            since: "5m".to_owned(),
            until: "2026-01-31T12:00:00Z".to_owned(),
            ..FlowsRequest::default()
        };
        let ask = ask(&request, 1_000_000).unwrap();
        assert_eq!((ask.since, ask.until), (700_000, 1_769_860_800_000));
        assert_eq!((ask.verdict, ask.protocol, ask.port), (Some(Verdict::Denied), Some(6), Some(80)));
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let of = |change: fn(&mut FlowsRequest)| {
            let mut request = FlowsRequest::default();
            change(&mut request);
            ask(&request, 0).unwrap_err().message
        };
        assert!(of(|request| request.verdict = "dropped".to_owned()).contains("allowed, denied or observed"));
        assert!(of(|request| request.since = "yesterday".to_owned()).contains("`since`"));
        assert!(of(|request| request.since = "é".to_owned()).contains("`since`"));
        assert!(of(|request| request.to = "a/b/c".to_owned()).contains("names no end"));
        assert!(of(|request| request.protocol = "tpc".to_owned()).contains("no protocol"));
        assert!(of(|request| request.port = 70_000).contains("no port"));
    }
}
