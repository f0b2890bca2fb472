//! A project's objects by path, and its operations.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Outcome, Refusal, Target, filter::Wanted, refuse};
use crate::{
    objects::Objects,
    rest::{show, text},
    server::Ask,
};

pub(crate) const REGIONS: [&str; 3] = ["europe-west1", "us-central1", "us-west1"];

/// Objects by `projects/P/SCOPE/COLLECTION/NAME`. Fields that begin with `_` are the simulator's own: `_until` is when
/// the operation on an object ends, `_gone` says that it then disappears.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gce {
    pub(super) objects: Objects,
    pub(super) operations: Objects,
    pub(super) requests: BTreeMap<String, String>,
    pub(super) made: u64,
    /// Firewall policies of the organisation. They are shown, and nothing else.
    pub(crate) policies: Vec<Value>,
}

pub(crate) struct Request<'r> {
    pub(crate) target: &'r Target,
    pub(crate) ask: &'r Ask<'r>,
    pub(crate) body: Value,
    /// The operation shall end badly.
    pub(crate) fails: bool,
}

impl Request<'_> {
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        crate::rest::parameter(self.ask.uri, name)
    }

    /// The path of an object in the request's scope.
    pub(super) fn path(&self, name: &str) -> String {
        let Target { project, scope, collection, .. } = self.target;
        format!("projects/{project}/{scope}/{collection}/{name}")
    }
}

/// Any form of a reference as a path: a full URL, `projects/…`, or relative to the project.
pub(super) fn path_of(reference: &str, project: &str) -> String {
    match reference.find("projects/") {
        Some(start) => reference[start..].to_owned(),
        None => format!("projects/{project}/{reference}"),
    }
}

/// Seconds an operation takes.
fn duration(method: &str) -> u64 {
    match method {
        "compute.instances.insert" => 20,
        "compute.instances.delete" => 40,
        "compute.networks.insert" | "compute.networks.delete" | "compute.subnetworks.insert" => 10,
        "compute.vpnTunnels.insert" | "compute.vpnTunnels.delete" => 15,
        "compute.networks.addPeering" | "compute.networks.removePeering" => 8,
        _ => 4,
    }
}

impl Gce {
    pub(super) fn call(&mut self, request: &Request<'_>) -> Outcome {
        let target = request.target;
        match target.method.split('.').next() {
            Some("container") => return self.call_container(request),
            Some("dns") => return self.call_dns(request),
            _ => {}
        }
        match (target.collection.as_str(), target.method.rsplit('.').next().unwrap_or_default()) {
            ("projects", "get") => Ok(json!({"kind": "compute#project", "name": target.project, "id": "1"})),
            ("regions" | "zones", verb) => places(target, verb),
            ("operations", "get" | "wait") => self.operation(request),
            ("operations", _) => Ok(json!({"kind": "compute#operationList", "items": []})),
            (_, "get") => self.get(&request.path(&target.name)).map(|object| self.shown(object)),
            (_, "list") => self.list(request),
            (_, "aggregatedList") => self.aggregated(request),
            ("routers", "getRouterStatus") => {
                let router = self.get(&request.path(&target.name))?;
                Ok(json!({"kind": "compute#routerStatusResponse", "result": router["_status"]}))
            }
            ("vpnGateways", "getStatus") => {
                self.get(&request.path(&target.name)).map(|gateway| self.gateway_status(gateway))
            }
            ("instances", "getEffectiveFirewalls") => {
                let instance = self.get(&request.path(&target.name))?;
                let interface = request.parameter("networkInterface");
                if instance["networkInterfaces"][0]["name"].as_str() != interface.as_deref() {
                    bail!(400, "invalid", "Invalid value for field 'networkInterface'");
                }
                let firewalls: Vec<Value> = self.firewalls_for(instance).map(show).collect();
                Ok(json!({"firewalls": firewalls, "firewallPolicys": self.policies}))
            }
            _ => self.change(request),
        }
    }

    pub(super) fn get(&self, path: &str) -> Result<&Value, Refusal> {
        self.objects
            .get(path)
            .ok_or_else(|| refuse(404, "notFound", format!("The resource '{path}' was not found")))
    }

    /// An object as clients see it: a network with its subnets.
    fn shown(&self, object: &Value) -> Value {
        let mut shown = show(object);
        let subnets = self.of_kind("subnetworks").map(|(_, subnet)| subnet);
        let inside = |subnet: &&Value| subnet["network"] == object["selfLink"];
        let links: Vec<Value> = subnets.filter(inside).map(|subnet| subnet["selfLink"].clone()).collect();
        if object["kind"] == "compute#network" && !links.is_empty() {
            shown["subnetworks"] = links.into();
        }
        shown
    }

    /// An object that others may refer to.
    pub(super) fn ready(&self, path: &str) -> Result<&Value, Refusal> {
        let object = self.objects.get(path);
        let object =
            object.ok_or_else(|| refuse(404, "notFound", format!("The resource '{path}' was not found")))?;
        if object["_until"].is_null() {
            Ok(object)
        } else {
            Err(refuse(400, "resourceNotReady", format!("The resource '{path}' is not ready")))
        }
    }

    /// Carries a change out, and answers with its operation.
    fn change(&mut self, request: &Request<'_>) -> Outcome {
        let token = request.parameter("requestId");
        if let Some(done) = token.as_ref().and_then(|token| self.requests.get(token)) {
            return Ok(show(&self.operations[done]));
        }
        let (target, now) = (request.target, request.ask.now);
        let verb = target.method.rsplit('.').next().unwrap_or_default();
        let until = now + duration(&target.method);
        let name = match verb {
            "insert" => text(&request.body["name"]).to_owned(),
            _ => target.name.clone(),
        };
        let path = request.path(&name);
        if verb == "insert" {
            if !is_name(&name) {
                bail!(400, "invalid", "Invalid value for field 'resource.name': '{name}'");
            }
            if self.objects.contains_key(&path) {
                bail!(409, "alreadyExists", "The resource '{path}' already exists");
            }
        } else {
            self.ready(&path)?;
        }
        let failed = request.fails && verb == "insert";
        if !failed {
            match verb {
                "insert" => self.insert(request, &path, until)?,
                "patch" | "update" => self.patch(request, &path, until)?,
                "delete" => self.delete(request, &path, until)?,
                _ => self.act(request, &path, until)?,
            }
        }
        self.made += 1;
        let id = format!("operation-{}", self.made);
        let mut operation = json!({
            "kind": "compute#operation", "id": self.made.to_string(), "name": id, "operationType": verb,
            "status": "RUNNING", "progress": 0, "targetLink": format!("{}/compute/v1/{path}", request.ask.origin),
            "selfLink": format!("{}/compute/v1/projects/{}/{}/operations/{id}", request.ask.origin, target.project, target.scope),
            "insertTime": "2026-10-01T00:00:00.000-07:00", "user": "sim@example.com", "_until": until, "_failed": failed,
        });
        if let Some((kind @ ("regions" | "zones"), place)) = target.scope.split_once('/') {
            let field = kind.trim_end_matches('s');
            operation[field] =
                format!("{}/compute/v1/projects/{}/{kind}/{place}", request.ask.origin, target.project)
                    .into();
        }
        self.operations.insert(id.clone(), operation.clone());
        if let Some(token) = token {
            self.requests.insert(token, id);
        }
        Ok(show(&operation))
    }

    fn operation(&self, request: &Request<'_>) -> Outcome {
        let name = &request.target.name;
        let found = self.operations.get(name);
        found
            .map(show)
            .ok_or_else(|| refuse(404, "notFound", format!("The resource 'operations/{name}' was not found")))
    }

    /// Brings everything to its state of now.
    pub(crate) fn settle(&mut self, now: u64) {
        let is_due = |object: &Value| object["_until"].as_u64().is_some_and(|until| until <= now);
        self.objects.retain(|_, object| !(is_due(object) && object["_gone"] == true));
        self.objects
            .change(|path, object| is_due(object) && path.contains("/clusters/"), super::clusters::settle);
        self.objects.change(
            |_, object| is_due(object),
            |object| {
                object["_until"] = Value::Null;
                if object["kind"] == "compute#instance" {
                    object["status"] = "RUNNING".into();
                }
            },
        );
        self.operations.change(
            |_, operation| is_due(operation),
            |operation| {
                operation["_until"] = Value::Null;
                if operation["_of_cluster"] == true {
                    return super::clusters::end(operation);
                }
                operation["status"] = "DONE".into();
                operation["progress"] = 100.into();
                if operation["_failed"] == true {
                    operation["error"] =
                        json!({"errors": [{"code": "INTERNAL_ERROR", "message": "Internal error."}]});
                    operation["httpErrorStatusCode"] = 503.into();
                    operation["httpErrorMessage"] = "SERVICE UNAVAILABLE".into();
                }
            },
        );
    }

    fn list(&self, request: &Request<'_>) -> Outcome {
        let below = request.path("");
        let kind = format!("compute#{}List", singular(&request.target.collection));
        let wanted = Wanted::parse(request.parameter("filter").as_deref())?;
        let all: Vec<Value> = self
            .objects
            .below(&below)
            .filter(|(_, object)| wanted.takes(object))
            .map(|(_, object)| self.shown(object))
            .collect();
        let size = request.parameter("maxResults").and_then(|text| text.parse().ok()).unwrap_or(500usize);
        let skip = request.parameter("pageToken").and_then(|text| text.parse().ok()).unwrap_or(0usize);
        let mut answer = json!({"kind": kind, "id": below, "selfLink": format!("{}/compute/v1/{below}", request.ask.origin)});
        let page: Vec<Value> = all.iter().skip(skip).take(size).cloned().collect();
        if !page.is_empty() {
            answer["items"] = page.into();
        }
        if skip + size < all.len() {
            answer["nextPageToken"] = (skip + size).to_string().into();
        }
        Ok(answer)
    }

    fn aggregated(&self, request: &Request<'_>) -> Outcome {
        let Target { project, collection, .. } = request.target;
        let (start, middle) = (format!("projects/{project}/"), format!("/{collection}/"));
        let wanted = Wanted::parse(request.parameter("filter").as_deref())?;
        let mut scopes: Map<String, Value> = Map::new();
        for region in REGIONS {
            let warning = json!({"code": "NO_RESULTS_ON_PAGE", "message": "There are no results for scope on this page."});
            scopes.insert(format!("regions/{region}"), json!({"warning": warning}));
        }
        for (path, object) in self.objects.iter() {
            let Some((scope, _)) = path.strip_prefix(&start).and_then(|rest| rest.split_once(&middle)) else {
                continue;
            };
            if wanted.takes(object) {
                let entry = scopes.entry(scope.to_owned()).or_insert_with(|| json!({}));
                if entry[collection].is_null() {
                    *entry = json!({ collection: [] });
                }
                entry[collection].as_array_mut().into_iter().for_each(|list| list.push(show(object)));
            }
        }
        let kind = format!("compute#{}AggregatedList", singular(collection));
        let link = format!("{}/compute/v1/{start}aggregated/{collection}", request.ask.origin);
        Ok(
            json!({"kind": kind, "id": format!("{start}aggregated/{collection}"), "items": scopes, "selfLink": link}),
        )
    }

    /// What is left that somebody made.
    pub(crate) fn left(&self) -> Vec<String> {
        self.objects.keys().cloned().collect()
    }
}

fn places(target: &Target, verb: &str) -> Outcome {
    let region = |name: &str| json!({"kind": "compute#region", "name": name, "status": "UP"});
    let zone = |name: &str| json!({"kind": "compute#zone", "name": name, "status": "UP"});
    let zones: Vec<String> =
        REGIONS.iter().flat_map(|region| ["a", "b"].map(|zone| format!("{region}-{zone}"))).collect();
    let missing = || refuse(404, "notFound", format!("The resource '{}' was not found", target.name));
    match (target.collection.as_str(), verb) {
        ("regions", "list") => Ok(json!({"kind": "compute#regionList", "items": REGIONS.map(region)})),
        ("regions", _) => {
            REGIONS.contains(&target.name.as_str()).then(|| region(&target.name)).ok_or_else(missing)
        }
        (_, "list") => Ok(
            json!({"kind": "compute#zoneList", "items": zones.iter().map(|name| zone(name)).collect::<Vec<_>>()}),
        ),
        _ => zones.contains(&target.name).then(|| zone(&target.name)).ok_or_else(missing),
    }
}

fn singular(collection: &str) -> &str {
    match collection {
        "addresses" => "address",
        other => other.trim_end_matches('s'),
    }
}

/// `[a-z]([-a-z0-9]{0,61}[a-z0-9])?`
pub(super) fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes[0].is_ascii_lowercase()
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
        && bytes[bytes.len() - 1] != b'-'
}
