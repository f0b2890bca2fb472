//! Google Compute Engine, Kubernetes Engine and Cloud DNS: JSON over REST, changes as operations.

mod check;
mod clusters;
mod endpoints;
mod filter;
mod links;
mod machines;
mod objects;
mod pools;
mod schema;
mod state;
mod status;
mod wire;
mod zones;

use serde_json::{Value, json};

pub(crate) use state::Gce;

use crate::{
    Fault,
    faults::Words,
    rest::{Refusal, refuse},
    server::{Answer, Ask},
    world::World,
};

pub(crate) type Outcome = Result<Value, Refusal>;

/// A path below one of the prefixes, taken apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    pub(crate) project: String,
    /// `global`, `regions/R`, `zones/Z`, `aggregated`; of clusters `locations/L`; of zones of names `dns`.
    pub(crate) scope: String,
    pub(crate) collection: String,
    pub(crate) name: String,
    pub(crate) verb: String,
    /// `compute.networks.insert`, `container.projects.locations.clusters.create`.
    pub(crate) method: String,
}

const PREFIX: &str = "/compute/v1/";
const CONTAINER: &str = "/v1/projects/";
const DNS: &str = "/dns/v1/projects/";

pub(crate) fn is_for(ask: &Ask<'_>) -> bool {
    [PREFIX, CONTAINER, DNS].iter().any(|prefix| ask.uri.path().starts_with(prefix))
}

/// When the operation ends that a request waits for.
pub(crate) fn waits_for(uri: &http::Uri, gce: &Gce) -> Option<u64> {
    let name = uri.path().strip_suffix("/wait")?.rsplit('/').next()?;
    gce.operations.get(name)?["_until"].as_u64()
}

fn target(ask: &Ask<'_>) -> Option<Target> {
    let path = ask.uri.path();
    match (path.strip_prefix(CONTAINER), path.strip_prefix(DNS)) {
        (Some(rest), _) => container_target(ask.method.as_str(), rest),
        (_, Some(rest)) => dns_target(ask.method.as_str(), rest),
        _ => compute_target(ask),
    }
}

/// `P/locations/L/clusters/N`, `P/locations/L/operations/N`; of a cluster's pools `P/locations/L/clusters/N/nodePools/P`.
fn container_target(method: &str, rest: &str) -> Option<Target> {
    let parts: Vec<&str> = rest.split('/').collect();
    let (project, location, collection, name, below) = match parts.as_slice() {
        [project, "locations", location, collection] => (project, location, collection, "", None),
        [project, "locations", location, collection, name] => (project, location, collection, *name, None),
        [project, "locations", location, "clusters", name, "nodePools"] => {
            (project, location, &"clusters", *name, Some(""))
        }
        [project, "locations", location, "clusters", name, "nodePools", pool] => {
            (project, location, &"clusters", *name, Some(*pool))
        }
        _ => return None,
    };
    let verb = match (method, below.unwrap_or(name).is_empty()) {
        ("GET", true) => "list",
        ("POST", true) => "create",
        ("GET", false) => "get",
        ("DELETE", false) => "delete",
        _ => return None,
    };
    let of = if below.is_some() { ".nodePools" } else { "" };
    Some(Target {
        project: (*project).to_owned(),
        scope: format!("locations/{location}"),
        collection: (*collection).to_owned(),
        name: name.to_owned(),
        verb: below.unwrap_or_default().to_owned(),
        method: format!("container.projects.locations.{collection}{of}.{verb}"),
    })
}

/// `P/managedZones/Z/changes`, `P/managedZones/Z/rrsets`.
fn dns_target(method: &str, rest: &str) -> Option<Target> {
    let parts: Vec<&str> = rest.split('/').collect();
    let (project, name, operation) = match (method, parts.as_slice()) {
        ("GET", [project, "managedZones"]) => (project, "", "managedZones.list"),
        ("POST", [project, "managedZones"]) => (project, "", "managedZones.create"),
        ("GET", [project, "managedZones", name]) => (project, *name, "managedZones.get"),
        ("DELETE", [project, "managedZones", name]) => (project, *name, "managedZones.delete"),
        ("GET", [project, "managedZones", name, "rrsets"]) => (project, *name, "resourceRecordSets.list"),
        ("POST", [project, "managedZones", name, "changes"]) => (project, *name, "changes.create"),
        _ => return None,
    };
    Some(Target {
        project: (*project).to_owned(),
        scope: "dns".to_owned(),
        collection: "managedZones".to_owned(),
        name: name.to_owned(),
        verb: String::new(),
        method: format!("dns.{operation}"),
    })
}

fn compute_target(ask: &Ask<'_>) -> Option<Target> {
    let parts: Vec<&str> = ask.uri.path().strip_prefix(PREFIX)?.split('/').collect();
    let own = |text: &str| text.to_owned();
    let of = |project: &str, scope: String, rest: &[&str]| Target {
        project: own(project),
        scope,
        collection: own(rest.first().unwrap_or(&"")),
        name: own(rest.get(1).unwrap_or(&"")),
        verb: own(rest.get(2).unwrap_or(&"")),
        method: String::new(),
    };
    let mut found = match parts.as_slice() {
        ["projects", project] => of(project, own("global"), &["projects", project]),
        ["projects", project, kind @ ("regions" | "zones")] => of(project, own("global"), &[kind]),
        ["projects", project, kind @ ("regions" | "zones"), name] => {
            of(project, own("global"), &[kind, name])
        }
        ["projects", project, kind @ ("regions" | "zones"), place, rest @ ..] => {
            of(project, format!("{kind}/{place}"), rest)
        }
        ["projects", project, scope @ ("global" | "aggregated"), rest @ ..] => of(project, own(scope), rest),
        _ => return None,
    };
    let verb = match (ask.method.as_str(), found.name.is_empty(), found.verb.as_str()) {
        ("GET", true, _) if found.scope == "aggregated" => "aggregatedList",
        ("GET", true, _) => "list",
        ("POST", true, _) => "insert",
        ("GET", false, "") => "get",
        ("PATCH", false, "") => "patch",
        ("PUT", false, "") => "update",
        ("DELETE", false, "") => "delete",
        (_, false, verb) if !verb.is_empty() => verb,
        _ => return None,
    };
    let collection = match (found.collection.as_str(), found.scope.split('/').next()) {
        ("operations", Some("global")) => "globalOperations",
        ("operations", Some("regions")) => "regionOperations",
        ("operations", Some("zones")) => "zoneOperations",
        ("addresses", Some("global")) => "globalAddresses",
        ("forwardingRules", Some("global")) => "globalForwardingRules",
        ("firewallPolicies", Some("global")) => "networkFirewallPolicies",
        (other, _) => other,
    };
    found.method = format!("compute.{collection}.{verb}");
    Some(found)
}

pub(crate) fn operation(ask: &Ask<'_>) -> String {
    target(ask).map_or_else(|| "compute.?".to_owned(), |target| target.method)
}

pub(crate) fn answer(world: &mut World, ask: &Ask<'_>, fault: Option<Fault>) -> Answer {
    let outcome = run(world, ask, fault);
    let (status, body) = match outcome {
        Ok(Value::Null) => {
            return Answer { status: 204, content_type: "application/json", ..Answer::default() };
        }
        Ok(body) => (200, body),
        Err(refusal) => {
            let errors = json!([{"domain": "global", "reason": refusal.code, "message": refusal.message}]);
            let mut error = json!({"code": refusal.status, "message": refusal.message, "errors": errors});
            if ask.uri.path().starts_with(CONTAINER) {
                error["status"] = word(refusal.status, refusal.code).into();
            }
            (refusal.status, json!({ "error": error }))
        }
    };
    let content_type = "application/json; charset=UTF-8";
    Answer { status, content_type, body: body.to_string(), ..Answer::default() }
}

/// How younger APIs of Google name a refusal.
fn word(status: u16, reason: &str) -> &'static str {
    match (status, reason) {
        (_, "failedPrecondition") => "FAILED_PRECONDITION",
        (_, "rateLimitExceeded" | "quotaExceeded") => "RESOURCE_EXHAUSTED",
        (401, _) => "UNAUTHENTICATED",
        (403, _) => "PERMISSION_DENIED",
        (404, _) => "NOT_FOUND",
        (409, _) => "ALREADY_EXISTS",
        (500.., _) => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    }
}

const TROUBLE: Words = Words {
    throttle: (403, "rateLimitExceeded", "Rate Limit Exceeded"),
    before: (503, "backendError", "Internal error. Please try again."),
    denied: (403, "forbidden", "Required permission is missing"),
    expired: (401, "authError", "Invalid Credentials"),
    quota: (403, "quotaExceeded", "Quota exceeded."),
};

fn run(world: &mut World, ask: &Ask<'_>, fault: Option<Fault>) -> Outcome {
    TROUBLE.refuse(fault)?;
    if ask.headers.get("authorization").is_none() && !ask.headers.contains_key("x-goog-api-client") {
        bail!(401, "required", "Login Required.");
    }
    let Some(target) = target(ask) else {
        bail!(404, "notFound", "{} is not simulated", ask.uri.path());
    };
    let body = ask.json().map_err(|_| refuse(400, "parseError", "Parse Error"))?;
    schema::check_request(&target.method, &body).map_err(|message| refuse(400, "invalid", message))?;
    world.gcp.settle(ask.now);
    if target.collection == "vpnTunnels" || target.verb == "getRouterStatus" {
        let wire = world.wire();
        world.gcp.telemetry(&wire);
    }
    let request = state::Request { target: &target, ask, body, fails: fault == Some(Fault::Failed) };
    let before = world.gcp.clone();
    let outcome = world.gcp.call(&request);
    if outcome.is_err() {
        world.gcp = before;
    }
    if let Ok(answer) = &outcome
        && let Err(defect) = schema::check_response(&target.method, answer)
    {
        world.defects.push(format!("{}: {defect}", target.method));
    }
    outcome
}
