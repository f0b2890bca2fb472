//! IBM Cloud: the VPC API of each region, the transit gateway API, the Kubernetes Service's, and IAM's tokens.
//!
//! Paths are `/v1/…`, `/REGION/v1/…` for regions other than us-south, and `/global/…` for clusters. Objects answer at once and come to their state
//! later.

mod clusters;
mod endpoints;
mod images;
mod instances;
mod links;
mod machines;
mod networks;
mod objects;
mod schema;
mod state;
mod transit;
mod wire;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

pub(crate) use state::Ibm;

use crate::{
    Fault,
    faults::Words,
    rest::{Refusal, refuse},
    server::{Answer, Ask},
    world::World,
};

pub(crate) const REGIONS: [&str; 3] = ["eu-de", "us-east", "us-south"];
/// Seconds that a token lasts.
const TOKEN_LASTS: u64 = 3600;

/// A status and a body.
pub(crate) type Outcome = Result<(u16, Value), Refusal>;

/// What the Kubernetes Service's paths begin with.
const CONTAINERS: &str = "/global/";

/// Region and path below `/v1`, or below `/global`, if the request is for IBM.
fn place<'a>(ask: &'a Ask<'_>) -> Option<(&'static str, &'a str)> {
    let path = ask.uri.path();
    if let Some(rest) = path.strip_prefix("/v1/") {
        return Some(("us-south", rest));
    }
    if let Some(rest) = path.strip_prefix(CONTAINERS) {
        return ["v1/", "v2/"].iter().any(|version| rest.starts_with(version)).then_some(("us-south", rest));
    }
    let (region, rest) = path.strip_prefix('/')?.split_once("/v1/")?;
    REGIONS.iter().find(|known| **known == region).map(|known| (*known, rest))
}

pub(crate) fn is_for(ask: &Ask<'_>) -> bool {
    place(ask).is_some()
}

pub(crate) fn operation(ask: &Ask<'_>) -> String {
    let found = place(ask).and_then(|(_, path)| schema::find(ask.method.as_str(), path));
    found.map_or_else(|| "is.?".to_owned(), |call| call.operation)
}

fn render(status: u16, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    Answer { status, content_type: "application/json; charset=utf-8", body, ..Answer::default() }
}

fn refusal(ask: &Ask<'_>, refusal: &Refusal) -> Answer {
    if ask.uri.path().starts_with(CONTAINERS) {
        let error = json!({"incidentID": "sim", "code": refusal.code, "description": refusal.message, "type": "General"});
        return render(refusal.status, &error);
    }
    let error =
        json!({"code": refusal.code, "message": refusal.message, "more_info": "https://cloud.ibm.com/docs"});
    render(refusal.status, &json!({"errors": [error], "trace": "sim"}))
}

/// IAM's answer to an API key: a JSON web token, as clients look into it. Not subject to faults.
pub(crate) fn token(ask: &Ask<'_>) -> Option<Answer> {
    if ask.uri.path() != "/identity/token" {
        return None;
    }
    let form = String::from_utf8_lossy(ask.body);
    let field = |name: &str| form.split('&').find_map(|pair| pair.strip_prefix(name)).unwrap_or_default();
    if field("apikey=").is_empty() || field("apikey=") == "wrong" {
        let message = "Provided API key could not be found.";
        let body = json!({"errorCode": "BXNIM0415E", "errorMessage": message, "context": {}});
        return Some(render(400, &body));
    }
    let ends = ask.now + TOKEN_LASTS;
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = part(json!({"alg": "RS256", "kid": "sim"}));
    let claims = part(json!({"iam_id": "IBMid-sim", "iat": ask.now, "exp": ends, "account": {"bss": "sim"}}));
    let token = format!("{head}.{claims}.{}", part(json!("signature")));
    let body = json!({"access_token": token, "refresh_token": "not_supported", "token_type": "Bearer", "expires_in": TOKEN_LASTS, "expiration": ends, "scope": "ibm openid"});
    Some(render(200, &body))
}

/// Whether a request shows a token of ours that has not ended, or some other.
fn is_authorized(ask: &Ask<'_>) -> bool {
    let bearer = ask.headers.get("authorization").and_then(|value| value.to_str().ok());
    let Some(token) = bearer.and_then(|text| text.strip_prefix("Bearer ")) else { return false };
    let claims = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims: Option<Value> = claims.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    claims.and_then(|claims| claims["exp"].as_u64()).is_none_or(|ends| ends > ask.now)
}

pub(crate) fn answer(world: &mut World, ask: &Ask<'_>, fault: Option<Fault>) -> Answer {
    match run(world, ask, fault) {
        Ok((status, body)) => render(status, &body),
        Err(refused) => refusal(ask, &refused),
    }
}

const TROUBLE: Words = Words {
    throttle: (429, "too_many_requests", "Too many requests"),
    before: (500, "internal_error", "Internal error"),
    denied: (403, "not_authorized", "The request is not authorized."),
    expired: (401, "not_authorized", "The token has expired."),
    quota: (400, "over_quota", "The quota is reached."),
};

fn run(world: &mut World, ask: &Ask<'_>, fault: Option<Fault>) -> Outcome {
    TROUBLE.refuse(fault)?;
    if !is_authorized(ask) {
        bail!(401, "not_authorized", "The request is not authorized.");
    }
    let missing = || refuse(404, "not_found", format!("{} is not simulated", ask.uri.path()));
    let (region, path) = place(ask).ok_or_else(missing)?;
    let call = schema::find(ask.method.as_str(), path).ok_or_else(missing)?;
    let body = ask.json().map_err(|_| refuse(400, "bad_request", "The body is not JSON"))?;
    schema::check_request(&call, ask.uri, &body)
        .map_err(|message| refuse(400, "validation_failed", message))?;
    world.ibm.settle(ask.now);
    if call.operation.contains("vpn_gateway_connection") {
        let wire = world.wire();
        world.ibm.telemetry(&wire);
    }
    if call.operation.contains("route_report") {
        let wire = world.wire();
        world.ibm.note_routes(&wire);
    }
    let request = state::Request { call: &call, region, ask, body, fails: fault == Some(Fault::Failed) };
    // A question changes nothing, and a rule is refused before it is taken in. There are many of both.
    let is_whole = ask.method == http::Method::GET || call.kind == "security_groups/rules";
    let before = (!is_whole).then(|| world.ibm.clone());
    let made = world.ibm.made;
    let outcome = world.ibm.call(&request);
    match (&outcome, before) {
        (Err(_), Some(before)) => world.ibm = before,
        (Err(_), None) => world.ibm.made = made,
        (Ok((status, answer)), _) => {
            if let Err(defect) = schema::check_response(&call, *status, answer) {
                world.defects.push(format!("{}: {defect}", call.operation));
            }
        }
    }
    outcome
}
