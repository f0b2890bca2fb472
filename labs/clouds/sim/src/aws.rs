//! EC2: query requests in, XML out.

/// Refuses a request: EC2's word for it, and why, as in `format!`.
macro_rules! bail {
    ($code:expr, $($why:tt)+) => {
        return Err($crate::aws::refuse($code, format!($($why)+)))
    };
}

mod attributes;
mod configuration;
mod groups;
mod instances;
mod machines;
mod network;
mod schema;
mod state;
mod transit;
mod vpn;
mod wire;

use std::collections::BTreeMap;

use serde_json::Value;

pub(crate) use state::Ec2;

use crate::{
    Fault,
    faults::Words,
    rest::{self, Refusal, text},
    server::{Answer, Ask},
    world::World,
};

/// Seconds for which a read may miss the last change.
const LAG: u64 = 1;

pub(crate) type Outcome = Result<Value, Refusal>;

/// EC2's usual refusal.
pub(crate) fn refuse(code: &'static str, message: impl Into<String>) -> Refusal {
    rest::refuse(400, code, message)
}

/// One action, decoded.
pub(crate) struct Action<'a> {
    pub(crate) region: &'a str,
    pub(crate) now: u64,
    pub(crate) input: Value,
}

impl Action<'_> {
    pub(crate) fn text(&self, name: &str) -> &str {
        text(&self.input[name])
    }
}

fn parameters(ask: &Ask<'_>) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    let text = String::from_utf8_lossy(ask.body);
    let pairs =
        text.split('&').chain(ask.uri.query().unwrap_or_default().split('&')).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (decode(key), decode(value)))
        .collect()
}

pub(crate) fn operation(ask: &Ask<'_>) -> String {
    format!("ec2:{}", parameters(ask).get("Action").map_or("?", String::as_str))
}

/// `Credential=KEY/20260101/us-east-1/ec2/aws4_request`
fn region(ask: &Ask<'_>) -> Option<String> {
    let text = ask.headers.get("authorization")?.to_str().ok()?;
    Some(text.split_once("Credential=")?.1.split('/').nth(2)?.to_owned())
}

pub(crate) fn answer(world: &mut World, ask: &Ask<'_>, fault: Option<Fault>) -> Answer {
    let parameters = parameters(ask);
    let action = parameters.get("Action").cloned().unwrap_or_default();
    let outcome = run(world, ask, &action, &parameters, fault);
    let rendered = outcome.and_then(|output| {
        schema::render(&action, &output).map_err(|defect| {
            world.defects.push(format!("{action}: {defect}"));
            rest::refuse(500, "InternalError", defect)
        })
    });
    let headers = vec![("x-amzn-requestid", schema::REQUEST.to_owned())];
    let xml = |status, body| Answer { status, content_type: "text/xml;charset=UTF-8", body, headers };
    match rendered {
        Ok(body) => xml(200, body),
        Err(refusal) => xml(refusal.status, schema::error(refusal.code, &refusal.message)),
    }
}

const STRANGER: (u16, &str, &str) =
    (401, "AuthFailure", "AWS was not able to validate the provided access credentials");
const TROUBLE: Words = Words {
    throttle: (503, "RequestLimitExceeded", "Request limit exceeded."),
    before: (500, "InternalError", "An internal error has occurred"),
    denied: (403, "UnauthorizedOperation", "You are not authorized to perform this operation."),
    expired: STRANGER,
    quota: (400, "VpcLimitExceeded", "The maximum number has been reached."),
};

fn run(
    world: &mut World,
    ask: &Ask<'_>,
    action: &str,
    parameters: &BTreeMap<String, String>,
    fault: Option<Fault>,
) -> Outcome {
    TROUBLE.refuse(fault)?;
    let (status, code, message) = STRANGER;
    let region = region(ask).ok_or_else(|| rest::refuse(status, code, message))?;
    let input = schema::decode(action, parameters)?;
    let request = Action { region: &region, now: ask.now, input };
    let is_read = action.starts_with("Describe") || action.starts_with("Search");
    world.aws.settle(ask.now);
    if is_read {
        if fault == Some(Fault::Stale) && ask.now <= world.aws_changed + LAG {
            return world.aws_before.clone().call(action, &request);
        }
        if matches!(action, "DescribeVpnConnections" | "SearchTransitGatewayRoutes") {
            let wire = world.wire();
            world.aws.telemetry(&wire);
        }
        return world.aws.call(action, &request);
    }
    let before = world.aws.clone();
    let outcome = world.aws.call(action, &request);
    match outcome {
        Ok(_) => {
            world.aws_before = before;
            world.aws_changed = ask.now;
        }
        // A refused request changed nothing.
        Err(_) => world.aws = before,
    }
    outcome
}
