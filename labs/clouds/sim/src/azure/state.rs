//! The objects by id, and the operations on them.

use imbl::OrdMap;
use serde_json::{Value, json};

use super::{Done, Outcome, Refusal, Target, busy, clusters::CLUSTERS, is, refuse, schema};
use crate::{objects::Objects, rest::text, server::Ask};

pub(crate) const LOCATIONS: [&str; 4] = ["eastus", "westeurope", "westus", "westus2"];
/// Objects on one page of a list.
const PAGE: usize = 25;
/// Seconds for which a list may be older than the last change.
const LAG: u64 = 2;

/// Objects by id in lower case. Fields that begin with `_` are the simulator's own: `_until` is when the operation on
/// an object ends, `_gone` says that it then disappears, `_fails` that it ends badly, `_breaks` that what runs then
/// runs on and is said to have failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Azure {
    pub(super) objects: Objects,
    /// As it was before the last change, for lists that come too early; and when that was.
    before: Objects,
    changed: u64,
    operations: OrdMap<String, Operation>,
    /// Deployments by id, which are no objects: nothing is left of them.
    pub(super) deployments: Objects,
    pub(super) made: u64,
}

#[derive(Clone, Debug)]
struct Operation {
    until: u64,
    failed: bool,
    result: Value,
}

pub(crate) struct Request<'r> {
    pub(crate) target: &'r Target,
    pub(crate) ask: &'r Ask<'r>,
    pub(crate) body: Value,
    /// The operation shall end badly.
    pub(crate) fails: bool,
    /// A list shall be as it was before the last change.
    pub(crate) stale: bool,
}

pub(super) fn parameter(uri: &http::Uri, name: &str) -> Option<String> {
    let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    let mut pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| decode(key).eq_ignore_ascii_case(name)).map(|(_, value)| decode(value))
}

/// Seconds an operation takes: what makes, what changes, what deletes.
fn duration(kinds: &str, method: &str, is_new: bool) -> u64 {
    let [new, change, delete] = match kinds.to_ascii_lowercase().as_str() {
        // Half an hour is what people wait.
        "microsoft.network/virtualnetworkgateways" => [1500, 180, 600],
        "microsoft.network/connections" => [30, 20, 20],
        "microsoft.compute/virtualmachines" => [40, 15, 60],
        "microsoft.containerservice/managedclusters" => [400, 120, 300],
        "microsoft.network/natgateways" => [10, 5, 10],
        _ => [3, 3, 5],
    };
    match method {
        "DELETE" => delete,
        _ if is_new => new,
        _ => change,
    }
}

/// How a machine is, as opposed to what it is.
fn instance_view(machine: &Value) -> Value {
    let state = text(&machine["properties"]["provisioningState"]);
    let status = |code: String, text: &str| json!({"code": code, "level": "Info", "displayStatus": text});
    let provisioning = status(format!("ProvisioningState/{}", state.to_ascii_lowercase()), state);
    match state {
        "Succeeded" => {
            json!({"statuses": [provisioning, status("PowerState/running".to_owned(), "VM running")]})
        }
        _ => json!({"statuses": [provisioning]}),
    }
}

pub(super) fn key(id: &str) -> String {
    id.to_ascii_lowercase()
}

impl Azure {
    pub(super) fn call(&mut self, request: &Request<'_>) -> Outcome {
        let Target { name, child_kind, child, .. } = request.target;
        match (request.ask.method.as_str(), name.is_empty(), child_kind.is_empty(), child.is_empty()) {
            ("GET", true, ..) => self.list(request),
            ("GET", _, true, _) => {
                let mut shown = self.show(self.get(&request.target.id())?);
                if parameter(request.ask.uri, "$expand").is_some_and(|what| is(&what, "instanceView")) {
                    shown["properties"]["instanceView"] = instance_view(&shown);
                }
                Ok(Done::now(shown))
            }
            ("GET", ..) if is(child_kind, "sharedkey") => {
                let key = self.get(&request.target.id())?["_key"].clone();
                Ok(Done::now(json!({ "value": key })))
            }
            ("GET", ..) => self.get_child(request),
            ("POST", ..) => self.question(request),
            _ => self.change(request),
        }
    }

    /// How a machine is, asked for by itself.
    pub(super) fn view(&self, target: &Target) -> Outcome {
        self.get(&target.id()).map(|machine| Done::now(instance_view(machine)))
    }

    pub(super) fn get(&self, id: &str) -> Result<&Value, Refusal> {
        let missing = || {
            let what = id.split("/providers/").nth(1).unwrap_or(id);
            refuse(404, "ResourceNotFound", format!("The Resource '{what}' was not found."))
        };
        self.objects.get(&key(id)).ok_or_else(missing)
    }

    /// An object that others may refer to.
    pub(super) fn ready(&self, id: &str) -> Result<&Value, Refusal> {
        let object = self.objects.get(&key(id)).ok_or_else(|| {
            refuse(
                400,
                "InvalidResourceReference",
                format!("Resource {id} referenced by resource was not found."),
            )
        })?;
        if !object["_until"].is_null() {
            return Err(busy(id));
        }
        match object["properties"]["provisioningState"] == "Failed" {
            true => Err(refuse(409, "ReferencedResourceNotProvisioned", format!("{id} is in Failed state."))),
            false => Ok(object),
        }
    }

    pub(super) fn of_kind<'a>(
        &'a self,
        kind: &str,
    ) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        let middle = format!("/{}/", kind.to_ascii_lowercase());
        self.objects.iter().filter(move |(id, _)| id.contains(&middle))
    }

    /// Carries a change out, and answers with the object and where its operation can be watched.
    fn change(&mut self, request: &Request<'_>) -> Outcome {
        let (target, ask) = (request.target, request.ask);
        let (id, method) = (target.id(), ask.method.as_str());
        let there = self.objects.get(&key(&id)).cloned();
        let deletes = method == "DELETE" && target.child_kind.is_empty();
        let is_new = match (&there, target.child_kind.is_empty()) {
            (None, true) if method == "DELETE" => {
                return Ok(Done { status: 204, body: Value::Null, headers: vec![] });
            }
            (None, true) if method == "PATCH" => {
                return Err(self.get(&id).map(drop).err().unwrap_or_else(|| busy(&id)));
            }
            (None, true) => true,
            (None, false) => {
                bail!(404, "ResourceNotFound", "The Resource '{id}' was not found.");
            }
            (Some(object), _) if !object["_until"].is_null() => return Err(busy(&id)),
            (Some(_), _) => false,
        };
        let before = self.objects.clone();
        let until = ask.now + duration(&target.kinds(), method, is_new);
        let body = match (method, target.child_kind.as_str()) {
            ("DELETE", "") => self.delete(&id)?,
            ("DELETE", _) => match self.delete_child(request)? {
                true => Value::Null,
                false => return Ok(Done { status: 204, body: Value::Null, headers: vec![] }),
            },
            ("PATCH", _) => self.retag(request, &id)?,
            (_, "") => self.put(request, &id, there.as_ref())?,
            (_, child) if is(child, "sharedkey") => self.set_key(request, &id)?,
            _ => self.put_child(request)?,
        };
        if request.fails && !is_new {
            // It stays as it was.
            self.objects = before.clone();
        }
        // What failed once and fails again has not come to be.
        let was_failed = there.as_ref().is_some_and(|there| there["_fails"] == true);
        let starves = is_new && self.starves(&id);
        if let Some(object) = self.objects.get_mut(&key(&id)) {
            object["_until"] = until.into();
            object["_gone"] = (deletes && !request.fails).into();
            object["_fails"] = ((request.fails || starves) && (is_new || was_failed)).into();
            let may_break = is(&target.kind, CLUSTERS) && !is_new && !was_failed;
            object["_breaks"] = (request.fails && may_break).into();
            let state = match (deletes, is_new && is(&target.kind, CLUSTERS)) {
                (true, _) => "Deleting",
                (false, true) => "Creating",
                (false, false) => "Updating",
            };
            object["properties"]["provisioningState"] = state.into();
        }
        (self.before, self.changed) = (before, ask.now);
        let number = self.start(until, request.fails || starves, Value::Null);
        let status = match (method, is_new) {
            ("DELETE", _) => 202,
            (_, true) => 201,
            (_, false) => 200,
        };
        let body = match (method, target.child_kind.is_empty()) {
            ("DELETE", _) => Value::Null,
            (_, true) => self.get(&id).map(|object| self.show(object))?,
            _ => body,
        };
        Ok(Done { status, body, headers: self.watch(request, number, method == "DELETE") })
    }

    /// Puts an object as a request would.
    pub(super) fn put_as(&mut self, id: &str, body: Value, now: u64) -> Result<(), Refusal> {
        let bad = |text: String| refuse(400, "InvalidRequestFormat", text);
        let uri: http::Uri = id.parse().map_err(|_| bad(format!("{id} is no id")))?;
        let target = Target::parse(id).ok_or_else(|| bad(format!("{id} is no id")))?;
        let (method, headers) = (http::Method::PUT, http::HeaderMap::new());
        let ask = Ask::by_hand(&method, &uri, &headers, now);
        let unknown = || refuse(404, "InvalidResourceType", format!("{} is not simulated", target.kinds()));
        let body = schema::request(schema::find(&ask).ok_or_else(unknown)?, body).map_err(bad)?;
        self.change(&Request { target: &target, ask: &ask, body, fails: false, stale: false }).map(drop)
    }

    pub(super) fn start(&mut self, until: u64, failed: bool, result: Value) -> u64 {
        self.made += 1;
        self.operations.insert(self.made.to_string(), Operation { until, failed, result });
        self.made
    }

    /// Where an operation can be watched.
    fn watch(&self, request: &Request<'_>, number: u64, has_location: bool) -> Vec<(&'static str, String)> {
        let Target { scope, provider, .. } = request.target;
        let subscription = scope.split("/resource").next().unwrap_or(scope);
        let start = format!("{}{subscription}/providers/{provider}/locations/westus2", request.ask.origin);
        let end = "?api-version=2024-05-01";
        let mut headers = vec![("retry-after", "5".to_owned())];
        if has_location {
            headers.push(("location", format!("{start}/operationResults/{number}{end}")));
        }
        // Questions are watched by their result only.
        if request.ask.method.as_str() != "POST" {
            headers.push(("azure-asyncoperation", format!("{start}/operations/{number}{end}")));
        }
        headers
    }

    /// How an operation is, or what it came to.
    pub(super) fn operation(&self, target: &Target, now: u64) -> Outcome {
        let missing = || refuse(404, "OperationNotFound", "The operation was not found.");
        let operation = self.operations.get(&target.child).ok_or_else(missing)?;
        let is_over = operation.until <= now;
        let pause = if operation.until.saturating_sub(now) > 60 { "30" } else { "10" };
        let later = vec![("retry-after", pause.to_owned())];
        if is(&target.child_kind, "operations") {
            let error = json!({"code": "InternalServerError", "message": "An error occurred."});
            return Ok(match (is_over, operation.failed) {
                (false, _) => Done { headers: later, ..Done::now(json!({"status": "InProgress"})) },
                (true, false) => Done::now(json!({"status": "Succeeded"})),
                (true, true) => Done::now(json!({"status": "Failed", "error": error})),
            });
        }
        Ok(match (is_over, &operation.result) {
            (false, _) => Done { status: 202, body: Value::Null, headers: later },
            (true, Value::Null) => Done { status: 204, body: Value::Null, headers: Vec::new() },
            (true, result) => Done::now(result.clone()),
        })
    }

    /// Answers a question after a while.
    pub(super) fn ask_later(&mut self, request: &Request<'_>, result: Value) -> Outcome {
        let number = self.start(request.ask.now + 4, false, result);
        Ok(Done { status: 202, body: Value::Null, headers: self.watch(request, number, true) })
    }

    /// What was under way and is over now.
    pub(crate) fn settle(&mut self, now: u64) {
        let is_due = |object: &Value| object["_until"].as_u64().is_some_and(|until| until <= now);
        let gone: Vec<String> = self
            .objects
            .iter()
            .filter(|(_, object)| is_due(object) && object["_gone"] == true)
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            self.vanish(&id);
        }
        self.objects.change(
            |_, object| is_due(object),
            |object| {
                object["_until"] = Value::Null;
                let failed = object["_fails"] == true || object["_breaks"] == true;
                let state = if failed { "Failed" } else { "Succeeded" };
                object["properties"]["provisioningState"] = state.into();
            },
        );
        self.deploy_on(now);
    }

    fn list(&self, request: &Request<'_>) -> Outcome {
        let Target { scope, provider, kind, .. } = request.target;
        let start = format!("{}/", key(scope));
        let middle = format!("/providers/{}/{}/", key(provider), key(kind));
        let old = request.stale && request.ask.now < self.changed + LAG;
        let objects = if old { &self.before } else { &self.objects };
        let all: Vec<&Value> = objects
            .iter()
            .filter(|(id, _)| id.starts_with(&start) && id.contains(&middle))
            .map(|(_, object)| object)
            .collect();
        let skip =
            parameter(request.ask.uri, "$skiptoken").and_then(|text| text.parse().ok()).unwrap_or(0usize);
        let page: Vec<Value> = all.iter().skip(skip).take(PAGE).map(|object| self.show(object)).collect();
        let mut answer = json!({ "value": page });
        if skip + PAGE < all.len() {
            let path = request.ask.uri.path();
            let next =
                format!("{}{path}?api-version=2024-05-01&$skiptoken={}", request.ask.origin, skip + PAGE);
            answer["nextLink"] = next.into();
        }
        Ok(Done::now(answer))
    }

    /// What is left that somebody made.
    pub(crate) fn left(&self) -> Vec<String> {
        self.objects.keys().cloned().collect()
    }
}
