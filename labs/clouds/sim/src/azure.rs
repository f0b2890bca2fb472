//! Azure's resource manager: JSON over REST, changes as operations that are polled.

mod check;
mod clusters;
mod deployments;
mod gateways;
mod groups;
mod login;
mod machines;
mod networks;
mod objects;
mod schema;
mod show;
mod state;
mod template;
mod wire;

use serde_json::{Value, json};

pub(crate) use state::Azure;

use crate::{
    Fault,
    faults::Words,
    rest::{Refusal, refuse},
    server::{Answer, Ask},
    world::World,
};

/// Something else is at work on an object.
pub(crate) fn busy(id: &str) -> Refusal {
    let message =
        format!("Another operation on this or dependent resource is in progress: {id} is in Updating state.");
    refuse(429, "RetryableError", message)
}

/// What a request comes to.
pub(crate) struct Done {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Done {
    pub(crate) fn now(body: Value) -> Self {
        Self { status: 200, body, headers: Vec::new() }
    }
}

pub(crate) type Outcome = Result<Done, Refusal>;

/// A path, taken apart. Azure does not tell upper from lower case in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    /// `/subscriptions/S/resourceGroups/G`, or without the group.
    pub(crate) scope: String,
    pub(crate) provider: String,
    /// The object, and what is asked of it: a child's kind and name, or a question.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) child_kind: String,
    pub(crate) child: String,
}

impl Target {
    fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (scope, rest) = match parts.as_slice() {
            [s, id, g, group, "providers", rest @ ..]
                if is(s, "subscriptions") && is(g, "resourceGroups") =>
            {
                (format!("/subscriptions/{id}/resourceGroups/{group}"), rest)
            }
            [s, id, "providers", rest @ ..] if is(s, "subscriptions") => {
                (format!("/subscriptions/{id}"), rest)
            }
            _ => return None,
        };
        let part = |place: usize| rest.get(place).map_or_else(String::new, |text| (*text).to_owned());
        let found = Self {
            scope,
            provider: part(0),
            kind: part(1),
            name: part(2),
            child_kind: part(3),
            child: part(4),
        };
        (rest.len() >= 2 && rest.len() <= 5).then_some(found)
    }

    /// The id of the object, without what is asked of it.
    pub(crate) fn id(&self) -> String {
        format!("{}/providers/{}/{}/{}", self.scope, self.provider, self.kind, self.name)
    }

    /// `Microsoft.Network/virtualNetworks/subnets`, in the words of the request.
    pub(crate) fn kinds(&self) -> String {
        let all = [&self.provider, &self.kind, &self.child_kind];
        all.into_iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("/")
    }
}

fn is(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

pub(crate) fn is_for(ask: &Ask<'_>) -> bool {
    let path = ask.uri.path();
    path.to_ascii_lowercase().starts_with("/subscriptions") || login::is_for(path)
}

/// As Azure's permissions call it.
pub(crate) fn operation(ask: &Ask<'_>) -> String {
    let Some(target) = Target::parse(ask.uri.path()) else { return format!("azure {}", ask.uri.path()) };
    if is(&target.kind, "locations") {
        return format!("{}/locations/operations/read", target.provider);
    }
    let verb = match ask.method.as_str() {
        "GET" => "read",
        "DELETE" => "delete",
        "POST" => "action",
        _ => "write",
    };
    format!("{}/{verb}", target.kinds())
}

pub(crate) fn answer(world: &mut World, ask: &Ask<'_>, fault: Option<Fault>) -> Answer {
    let done = run(world, ask, fault).unwrap_or_else(|refusal| {
        let inner = json!({"code": refusal.code, "message": refusal.message});
        let mut headers = Vec::new();
        if refusal.status == 429 {
            headers.push(("retry-after", "5".to_owned()));
        }
        Done { status: refusal.status, body: json!({ "error": inner }), headers }
    });
    let mut headers = done.headers;
    headers.push(("x-ms-request-id", format!("00000000-0000-0000-0000-{:012}", world.calls.len())));
    let body = if done.body.is_null() { String::new() } else { done.body.to_string() };
    Answer { status: done.status, content_type: "application/json; charset=utf-8", body, headers }
}

const TROUBLE: Words = Words {
    throttle: (429, "TooManyRequests", "The request was throttled."),
    before: (500, "InternalServerError", "An error occurred."),
    denied: (403, "AuthorizationFailed", "The client does not have authorization."),
    expired: (401, "ExpiredAuthenticationToken", "The access token expiry is earlier than now."),
    quota: (400, "QuotaExceeded", "Operation exceeds the quota."),
};

fn run(world: &mut World, ask: &Ask<'_>, fault: Option<Fault>) -> Outcome {
    if let Some(page) = login::page(ask) {
        return page;
    }
    TROUBLE.refuse(fault)?;
    let token = ask.headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !token.starts_with("Bearer ") {
        bail!(401, "AuthenticationFailed", "Authentication failed.");
    }
    world.azure.settle(ask.now);
    let missing = || refuse(404, "InvalidResourceType", format!("{} is not simulated", ask.uri.path()));
    if let Some(done) = world.azure.groups(ask).or_else(|| login::place(ask)) {
        return done;
    }
    let target = Target::parse(ask.uri.path()).ok_or_else(missing)?;
    check_version(ask)?;
    if is(&target.kind, "locations") {
        return world.azure.operation(&target, ask.now);
    }
    let body = ask.json().map_err(|err| {
        refuse(400, "InvalidRequestContent", format!("The request content was invalid: {err}"))
    })?;
    let (fails, stale) = (fault == Some(Fault::Failed), fault == Some(Fault::Stale));
    if deployments::is_for(&target) {
        let request = state::Request { target: &target, ask, body, fails, stale };
        return world.azure.deployments(&request);
    }
    if is(&target.child_kind, "instanceView") {
        return world.azure.view(&target);
    }
    let operation = schema::find(ask).ok_or_else(missing)?;
    let body = schema::request(operation, body).map_err(|text| refuse(400, "InvalidRequestFormat", text))?;
    if is(&target.kind, "connections") || is(&target.kind, "virtualNetworkGateways") {
        let wire = world.wire();
        world.azure.telemetry(&wire);
    }
    let request = state::Request { target: &target, ask, body, fails, stale };
    let before = world.azure.clone();
    let outcome = world.azure.call(&request);
    match &outcome {
        Ok(done) => {
            if let Err(defect) = schema::response(operation, done.status, &done.body) {
                world.defects.push(format!("{} {}: {defect}", ask.method, target.kinds()));
            }
        }
        Err(_) => world.azure = before,
    }
    outcome
}

fn check_version(ask: &Ask<'_>) -> Result<(), Refusal> {
    let given = state::parameter(ask.uri, "api-version");
    let given = given.ok_or_else(|| {
        refuse(
            400,
            "MissingApiVersionParameter",
            "The api-version query parameter is required for all requests.",
        )
    })?;
    let date = given.get(..10).unwrap_or_default();
    let legal = date.bytes().enumerate().all(|(place, byte)| match place {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    match legal && date.len() == 10 && date >= "2015-01-01" {
        true => Ok(()),
        false => {
            Err(refuse(400, "InvalidApiVersionParameter", format!("The api-version '{given}' is invalid.")))
        }
    }
}
