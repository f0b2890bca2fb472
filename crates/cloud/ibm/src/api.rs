//! One request to IBM's VPC, transit gateway or Kubernetes Service API, and what it takes until an object is there or gone.

use std::{sync::Arc, time::Duration};

use cloud_api::CloudError;
use cloud_http::{
    Answer, Class, Client, Clock, Dialect, Failure, HttpTransport, Pace, Parts, Progress, Rates, Recorder,
    Reply, Request, SystemClock,
    auth::{Bearer, Environment, ibm::IbmTokens},
    wait,
};
use http::Method;
use model::Segment;
use serde::Deserialize;
use serde_json::Value;

/// How the plugin is set up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IbmOptions {
    /// Where the VPC API is; `{region}` in it stands for a region's name.
    pub endpoint: Option<String>,
    /// Where the transit gateway API is.
    pub transit_endpoint: Option<String>,
    /// Where the Kubernetes Service's API is.
    pub containers_endpoint: Option<String>,
    /// The resource group, by id, of namespaces that name none; the account's default one otherwise.
    pub resource_group: Option<String>,
    /// Regions to look at; all of the account by default.
    pub regions: Option<Vec<Segment>>,
    /// Whether descriptions of private endpoints are taken.
    pub private_endpoints: bool,
    /// Whether descriptions of managed Kubernetes clusters are taken.
    pub kubernetes_clusters: bool,
    /// Marks what this controller made. Two controllers on one account need two owners.
    pub owner: Option<String>,
    /// PEM file of a CA to trust instead of the machine's.
    pub ca: Option<std::path::PathBuf>,
}

const ENDPOINT: &str = "https://{region}.iaas.cloud.ibm.com/v1";
const TRANSIT: &str = "https://transit.cloud.ibm.com/v1";
const CONTAINERS: &str = "https://containers.cloud.ibm.com/global";
/// The date whose behaviour is asked for: BGP, names of rules, and `icmp_tcp_udp` for what was `all`.
const VERSION: &str = "2026-09-15";
const RATES: Rates = Rates { read: 10.0, write: 10.0 };
/// How long something may stay in use by what is on its way out.
const PATIENCE: Duration = Duration::from_secs(300);
/// Objects per page, the most there is.
const PAGE: &str = "100";

/// Which API, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'p> {
    Region(&'p str),
    Transit,
    /// The Kubernetes Service's, which is told a resource group in a header.
    Containers(Option<&'p str>),
}

/// A kind of object: how its operations are called, and how it says that it is ready.
#[derive(Debug)]
pub(crate) struct Kind {
    /// `subnet`, as in `create_subnet`.
    pub(crate) one: &'static str,
    /// `subnets`, as in `list_subnets` and in paths.
    pub(crate) many: &'static str,
    /// The field that tells its state, if it has any, and what stands there when it is ready.
    state: Option<(&'static str, &'static str)>,
    pace: Pace,
}

const fn kind(one: &'static str, many: &'static str, state: Option<(&'static str, &'static str)>) -> Kind {
    Kind { one, many, state, pace: Pace::QUICK }
}

const STATUS: Option<(&str, &str)> = Some(("status", "available"));

pub(crate) const VPC: Kind = kind("vpc", "vpcs", STATUS);
pub(crate) const PREFIX: Kind = kind("vpc_address_prefix", "address_prefixes", None);
pub(crate) const SUBNET: Kind = kind("subnet", "subnets", STATUS);
pub(crate) const GROUP: Kind = kind("security_group", "security_groups", None);
pub(crate) const RULE: Kind = kind("security_group_rule", "rules", None);
pub(crate) const INSTANCE: Kind = kind("instance", "instances", Some(("status", "running")));
pub(crate) const ENDPOINT_GATEWAY: Kind =
    kind("endpoint_gateway", "endpoint_gateways", Some(("lifecycle_state", "stable")));
pub(crate) const PUBLIC_GATEWAY: Kind = kind("public_gateway", "public_gateways", STATUS);
pub(crate) const IKE: Kind = kind("ike_policy", "ike_policies", None);
pub(crate) const IPSEC: Kind = kind("ipsec_policy", "ipsec_policies", None);
pub(crate) const VPN_GATEWAY: Kind =
    Kind { pace: Pace::SLOW, ..kind("vpn_gateway", "vpn_gateways", Some(("lifecycle_state", "stable"))) };
pub(crate) const CONNECTION: Kind = kind("vpn_gateway_connection", "connections", None);
pub(crate) const TRANSIT_GATEWAY: Kind = kind("transit_gateway", "transit_gateways", STATUS);
pub(crate) const JOINT: Kind =
    kind("transit_gateway_connection", "connections", Some(("status", "attached")));

impl Kind {
    /// The end of an operation's name: `list_vpcs`, `list_vpc_address_prefixes`.
    fn plural(&self) -> String {
        match self.one.strip_suffix('y') {
            Some(stem) if self.one.ends_with("policy") => format!("{stem}ies"),
            _ if self.one.ends_with("prefix") => format!("{}es", self.one),
            _ => format!("{}s", self.one),
        }
    }

    pub(crate) fn is_ready(&self, object: &Value) -> bool {
        self.state.is_none_or(|(field, ready)| object[field] == ready)
    }
}

/// Not deleted, nor being deleted.
pub(crate) fn is_alive(object: &Value) -> bool {
    let going = ["deleting", "detaching", "detached"];
    !["status", "lifecycle_state"]
        .iter()
        .any(|field| object[*field].as_str().is_some_and(|state| going.contains(&state)))
}

fn has_failed(object: &Value) -> bool {
    object["status"] == "failed" || object["lifecycle_state"] == "failed"
}

pub(crate) fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object[field].as_str().unwrap_or_default()
}

struct IbmDialect;

impl Dialect for IbmDialect {
    fn judge(&self, reply: &Reply) -> Option<Answer> {
        let body: Option<Value> = serde_json::from_slice(&reply.body).ok();
        if reply.status < 300 && (body.is_some() || reply.body.is_empty()) {
            return None;
        }
        let body = body.unwrap_or_default();
        // The Kubernetes Service has its refusals for themselves, and another word for the message.
        let error = if body["errors"].is_array() { &body["errors"][0] } else { &body };
        let message = [text(error, "message"), text(error, "description")].concat();
        let code = text(error, "code").to_owned();
        let class = class(reply.status, &code);
        if code.is_empty() && message.is_empty() {
            let start: String = reply.text().chars().take(80).collect();
            return Some(Answer { class, code: "no IBM answer".into(), message: start });
        }
        Some(Answer { class, code, message })
    }
}

/// IBM lists no codes; the status decides unless the code is one of those that are known.
fn class(status: u16, code: &str) -> Class {
    match code {
        "over_quota" => Class::Limit,
        _ if code.contains("unique") => Class::Exists,
        _ if code.contains("not_ready") => Class::Busy,
        _ if code.contains("in_use") => Class::InUse,
        _ => match status {
            401 => Class::Unauthenticated,
            403 => Class::Denied,
            404 => Class::NotFound,
            409 => Class::InUse,
            429 => Class::Throttled,
            200..300 | 408 | 500.. => Class::Failed,
            _ => Class::Invalid,
        },
    }
}

pub(crate) struct Api {
    client: Client,
    endpoint: String,
    transit: String,
    containers: String,
}

impl Api {
    pub(crate) fn new(
        options: &IbmOptions,
        environment: Environment,
        clock: Option<Arc<dyn Clock>>,
        recorder: Option<Arc<dyn Recorder>>,
    ) -> Result<Self, CloudError> {
        let transport = || {
            HttpTransport::new(options.ca.as_deref())
                .map_err(|err| CloudError::invalid(format!("IBM Cloud: {err}")))
        };
        // The same variables that IBM's Terraform provider takes.
        let chosen = |option: &Option<String>, variable: &str, usual: &str| {
            let given = option.clone().or_else(|| environment.get(variable));
            given.as_deref().unwrap_or(usual).trim_end_matches('/').to_owned()
        };
        let endpoint = chosen(&options.endpoint, "IBMCLOUD_IS_NG_API_ENDPOINT", ENDPOINT);
        let transit = chosen(&options.transit_endpoint, "IBMCLOUD_TG_API_ENDPOINT", TRANSIT);
        let containers = chosen(&options.containers_endpoint, "IBMCLOUD_CS_API_ENDPOINT", CONTAINERS);
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock));
        let tokens = IbmTokens::new(environment, Arc::new(transport()?), Arc::clone(&clock));
        let signer = Bearer::new(Arc::new(tokens), Arc::clone(&clock));
        let mut parts = Parts::new(transport()?, Arc::new(signer), Arc::new(IbmDialect), RATES);
        (parts.clock, parts.recorder) = (clock, recorder);
        Ok(Self { client: Client::new(parts), endpoint, transit, containers })
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.client.clock()
    }

    /// One request; what has no content answers null. Names make a change safe to send again.
    pub(crate) async fn send(
        &self,
        place: Place<'_>,
        operation: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let (service, scope, url) = match place {
            Place::Region(region) => {
                let base = self.endpoint.replace("{region}", region);
                ("is", region, format!("{base}/{path}{mark}version={VERSION}&generation=2"))
            }
            Place::Transit => {
                ("transit", "transit", format!("{}/{path}{mark}version={VERSION}", self.transit))
            }
            Place::Containers(_) => ("containers", "containers", format!("{}/{path}", self.containers)),
        };
        let operation = format!("{service}.{operation}");
        let mut request = Request::new(&operation, method, url).scope(scope).safe();
        if let Place::Containers(Some(group)) = place {
            request.header(http::HeaderName::from_static("x-auth-resource-group"), group);
        }
        if let Some(body) = body {
            request = request.body("application/json", body.to_string());
        }
        let reply = self.client.call(request).await?;
        if reply.body.is_empty() {
            return Ok(Value::Null);
        }
        let unreadable = |err: serde_json::Error| Failure::Unreadable { operation, message: err.to_string() };
        serde_json::from_slice(&reply.body).map_err(unreadable)
    }

    /// Objects of a kind, page after page. `path` ends with the collection, and perhaps a query.
    pub(crate) async fn list(
        &self,
        place: Place<'_>,
        kind: &Kind,
        path: &str,
    ) -> Result<Vec<Value>, Failure> {
        let operation = format!("list_{}", kind.plural());
        let mark = if path.contains('?') { '&' } else { '?' };
        // Rules come all at once.
        let first = if kind.one == RULE.one { path.to_owned() } else { format!("{path}{mark}limit={PAGE}") };
        let mut next = first.clone();
        let mut found = Vec::new();
        loop {
            let mut page = self.send(place, &operation, Method::GET, &next, None).await?;
            if let Some(Value::Array(objects)) = page.get_mut(kind.many).map(Value::take) {
                found.extend(objects);
            }
            let Some(start) = start_of(&page["next"]) else { return Ok(found) };
            next = format!("{first}&start={start}");
        }
    }

    /// The object of a name, if it is there and not on its way out.
    pub(crate) async fn find(
        &self,
        place: Place<'_>,
        kind: &Kind,
        path: &str,
        name: &str,
    ) -> Result<Option<Value>, Failure> {
        let all = self.list(place, kind, path).await?;
        Ok(all.into_iter().find(|one| one["name"] == name && is_alive(one)))
    }

    /// An object by its path; none if there is no such.
    pub(crate) async fn get(
        &self,
        place: Place<'_>,
        kind: &Kind,
        path: &str,
    ) -> Result<Option<Value>, Failure> {
        match self.send(place, &format!("get_{}", kind.one), Method::GET, path, None).await {
            Ok(object) => Ok(Some(object)),
            Err(failure) if failure.is(Class::NotFound) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Makes an object under the name in its body, and waits until it is ready. One that is there already will do; one
    /// that failed is made anew. `listed` is where to look for it.
    pub(crate) async fn make(
        &self,
        place: Place<'_>,
        kind: &Kind,
        listed: &str,
        body: &Value,
    ) -> Result<Value, CloudError> {
        let path = listed.split('?').next().unwrap_or(listed);
        let (name, operation) = (text(body, "name"), format!("create_{}", kind.one));
        for _ in 0..4 {
            let posted = self.send(place, &operation, Method::POST, path, Some(body)).await;
            let made = match posted {
                Ok(made) => Some(made),
                // Perhaps it is there already, from a request whose answer was lost, and is in its own way: by its name,
                // or by its addresses.
                Err(failure) if [Class::Exists, Class::InUse, Class::Invalid].contains(&failure.class()) => {
                    match self.find(place, kind, listed, name).await? {
                        None if failure.is(Class::Invalid) => return Err(failure.into()),
                        // None: what is in the way is on its way out.
                        there => there,
                    }
                }
                Err(failure) => return Err(failure.into()),
            };
            let Some(made) = made else {
                self.clock().sleep(Duration::from_secs(10)).await;
                continue;
            };
            let path = format!("{path}/{}", text(&made, "id"));
            if let Some(ready) = self.until_ready(place, kind, &path, made).await? {
                return Ok(ready);
            }
            self.remove(place, kind, &path).await?;
        }
        Err(CloudError::unavailable(format!("IBM Cloud did not make the {} {name}", kind.one)))
    }

    /// The object when it is ready; none if it failed or went away.
    pub(crate) async fn until_ready(
        &self,
        place: Place<'_>,
        kind: &Kind,
        path: &str,
        now: Value,
    ) -> Result<Option<Value>, CloudError> {
        let mut last = Some(now);
        wait(self.clock(), kind.pace, &format!("the {} {path}", kind.one), || {
            let known = last.take();
            async move {
                let now = match known {
                    Some(known) => Some(known),
                    None => self.get(place, kind, path).await?,
                };
                Ok(match now {
                    None => Progress::Done(None),
                    Some(now) if has_failed(&now) => Progress::Done(None),
                    Some(now) if kind.is_ready(&now) => Progress::Done(Some(now)),
                    Some(_) => Progress::Pending,
                })
            }
        })
        .await
    }

    /// Deletes an object, which may still be in use for a moment by what is on its way out, and waits until it is gone.
    pub(crate) async fn remove(&self, place: Place<'_>, kind: &Kind, path: &str) -> Result<(), CloudError> {
        self.delete(place, kind, path).await?;
        if kind.state.is_none() {
            return Ok(());
        }
        wait(self.clock(), kind.pace, &format!("the end of the {} {path}", kind.one), || async {
            let left = self.get(place, kind, path).await?;
            Ok(if left.is_some() { Progress::Pending } else { Progress::Done(()) })
        })
        .await
    }

    async fn delete(&self, place: Place<'_>, kind: &Kind, path: &str) -> Result<(), CloudError> {
        let end = self.clock().now() + PATIENCE;
        let mut pause = Duration::from_secs(2);
        loop {
            let deleted = self.send(place, &format!("delete_{}", kind.one), Method::DELETE, path, None).await;
            match deleted {
                Ok(_) => return Ok(()),
                Err(failure) if failure.is(Class::NotFound) => return Ok(()),
                Err(failure) if failure.is(Class::InUse) && self.clock().now() < end => {
                    self.clock().sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(15));
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }
}

/// The token in the address of the next page.
fn start_of(next: &Value) -> Option<String> {
    let query = next["href"].as_str()?.split_once('?')?.1;
    query.split('&').find_map(|pair| pair.strip_prefix("start=")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_have_ibms_names() {
        let names = [VPC, PREFIX, IKE, IPSEC, RULE, CONNECTION, JOINT].map(|kind| kind.plural());
        assert_eq!(names[..4], ["vpcs", "vpc_address_prefixes", "ike_policies", "ipsec_policies"]);
        assert_eq!(
            names[4..],
            ["security_group_rules", "vpn_gateway_connections", "transit_gateway_connections"]
        );
    }

    #[test]
    fn refusals_are_told_apart() {
        assert_eq!(class(400, "validation_unique_failed"), Class::Exists);
        assert_eq!(class(409, "subnet_in_use_network_interface_exists"), Class::InUse);
        assert_eq!(class(409, "conflict_field"), Class::InUse);
        assert_eq!(class(400, "over_quota"), Class::Limit);
        assert_eq!(class(403, "not_authorized"), Class::Denied);
        assert_eq!(class(429, ""), Class::Throttled);
        assert_eq!(class(400, "validation_invalid"), Class::Invalid);
        let known = Reply {
            status: 409,
            headers: Default::default(),
            body: r#"{"code":"E0007","description":"exists"}"#.into(),
        };
        let known = IbmDialect.judge(&known).unwrap();
        assert_eq!((known.class, known.message.as_str()), (Class::InUse, "exists"));
        let html = Reply { status: 200, headers: Default::default(), body: "<html>".into() };
        assert_eq!(IbmDialect.judge(&html).unwrap().class, Class::Failed);
    }

    #[test]
    fn pages_follow_each_other() {
        let next = json!({"href": "https://x/v1/vpcs?limit=2&start=abc%3D&generation=2"});
        assert_eq!(start_of(&next).as_deref(), Some("abc%3D"));
        assert_eq!(start_of(&Value::Null), None);
    }
}
