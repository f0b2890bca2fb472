//! Google's APIs: where they are, how they word refusals, and one request to one of them.

use std::sync::Arc;

use cloud_api::CloudError;
use cloud_http::{
    Answer, Class, Client, Clock, Dialect, Failure, Rates, Reply, Request, World, auth::google::GoogleTokens,
    encode_component, if_there, read_json,
};
use http::Method;
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

use crate::shapes::shapes;

/// How the plugin is set up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GcpOptions {
    /// Where Compute Engine is, with its path: `https://compute.googleapis.com/compute/v1` by default.
    pub endpoint: Option<String>,
    /// Where the API of Kubernetes clusters is: `https://container.googleapis.com/v1` by default.
    pub container_endpoint: Option<String>,
    /// Where Cloud DNS is: `https://dns.googleapis.com/dns/v1` by default.
    pub dns_endpoint: Option<String>,
    /// The project of namespaces that name none.
    pub project: Option<String>,
    /// Whether descriptions of private endpoints are taken.
    pub private_endpoints: bool,
    /// Whether descriptions of managed Kubernetes clusters are taken.
    pub kubernetes_clusters: bool,
    /// Marks what this controller made. Two controllers on one project need two owners.
    pub owner: Option<String>,
    /// A token to use as it is, instead of application default credentials.
    #[serde(skip)]
    pub token: Option<String>,
    /// PEM file of a CA to trust instead of the machine's.
    pub ca: Option<std::path::PathBuf>,
}

const COMPUTE: &str = "https://compute.googleapis.com/compute/v1";
const CONTAINER: &str = "https://container.googleapis.com/v1";
const DNS: &str = "https://dns.googleapis.com/dns/v1";
const NO_CONTENT: u16 = 204;
const RATES: Rates = Rates { read: 20.0, write: 20.0 };

/// The APIs that the plugin speaks to.
pub(crate) struct Opened {
    pub(crate) compute: Api,
    pub(crate) container: Api,
    pub(crate) dns: Api,
}

/// One of Google's APIs. All share the credentials, the pace and the patience of one client.
pub(crate) struct Api {
    client: Arc<Client>,
    endpoint: String,
}

struct GoogleDialect;

shapes! {
    /// A refusal as Google words it. Younger APIs have a status where older ones have a reason; some have both.
    Refusal { told { error: Refused, } }

    Refused { told { message: String, status: String, errors: Vec<Reason>, } }

    Reason { told { reason: Option<String>, } }
}

/// A page of a list; some lists have a name of their own for what is on it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "I: Default + Deserialize<'de>")]
struct Page<I> {
    #[serde(default, alias = "managedZones", alias = "rrsets")]
    items: I,
    #[serde(default)]
    next_page_token: String,
}

impl Dialect for GoogleDialect {
    fn judge(&self, reply: &Reply) -> Option<Answer> {
        if reply.status == NO_CONTENT || reply.status < 300 && reply.is_json() {
            return None;
        }
        let Refusal { error } = serde_json::from_slice(&reply.body).unwrap_or_default();
        let reason = error.errors.into_iter().next().and_then(|first| first.reason);
        let (code, message) = (reason.unwrap_or(error.status), error.message);
        let class = class(reply.status, &code, &message);
        if code.is_empty() && message.is_empty() {
            return Some(Answer::of_another(class, "no Google answer", reply));
        }
        Some(Answer { class, code, message })
    }
}

/// Of refusals, and of operations that ended badly.
pub(crate) fn class(status: u16, code: &str, message: &str) -> Class {
    match code {
        "rateLimitExceeded"
        | "userRateLimitExceeded"
        | "RESOURCE_OPERATION_RATE_EXCEEDED"
        | "RESOURCE_EXHAUSTED" => Class::Throttled,
        "conditionNotMet" => Class::Changed,
        "resourceNotReady" | "RESOURCE_NOT_READY" => Class::Busy,
        _ if message.contains("operation in progress") || message.contains("incompatible operation") => {
            Class::Busy
        }
        "resourceInUseByAnotherResource" | "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE" => Class::InUse,
        "notFound" | "RESOURCE_NOT_FOUND" => Class::NotFound,
        "alreadyExists" | "RESOURCE_ALREADY_EXISTS" => Class::Exists,
        "quotaExceeded" | "QUOTA_EXCEEDED" | "limitExceeded" | "IP_SPACE_EXHAUSTED" => Class::Limit,
        "ZONE_RESOURCE_POOL_EXHAUSTED" => Class::Limit,
        "INTERNAL_ERROR" | "backendError" | "internalError" => Class::Failed,
        "forbidden" => Class::Denied,
        _ => Class::of_status(status),
    }
}

pub(crate) fn open(options: &GcpOptions, world: World) -> Result<Opened, CloudError> {
    // The same variables that gcloud takes; the one for clusters has no version in it.
    let variable = |name: &str| format!("CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}");
    let root = world.environment.get(&variable("CONTAINER"));
    let versioned = root.map(|root| format!("{}/v1", root.trim_end_matches('/')));
    let container = options.container_endpoint.clone().or(versioned);
    let container = container.as_deref().unwrap_or(CONTAINER).trim_end_matches('/').to_owned();
    let compute = world.environment.endpoint(&options.endpoint, &variable("COMPUTE"), COMPUTE);
    let dns = world.environment.endpoint(&options.dns_endpoint, &variable("DNS"), DNS);
    let given = options.token.clone().or_else(|| world.environment.get("CLOUDSDK_AUTH_ACCESS_TOKEN"));
    let (ca, source) = (options.ca.as_deref(), GoogleTokens::new);
    let client = Client::bearing("Google Cloud", world, ca, GoogleDialect, RATES, given, source)?;
    let client = Arc::new(client);
    let api = |endpoint: String| Api { client: Arc::clone(&client), endpoint };
    Ok(Opened { compute: api(compute), container: api(container), dns: api(dns) })
}

impl Api {
    pub(crate) fn clock(&self) -> &dyn Clock {
        self.client.clock()
    }

    /// One request. An answer without content is null.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        operation: &str,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<T, Failure> {
        let scope = path.split('/').take(4).collect::<Vec<_>>().join("/");
        let mut request =
            Request::new(operation, method, format!("{}/{path}", self.endpoint)).scope(scope).safe();
        if let Some(body) = body {
            request = request.body("application/json", body);
        }
        let mut reply = self.client.call(request).await?;
        if reply.status == NO_CONTENT {
            reply.body = "null".into();
        }
        read_json(operation, &reply)
    }

    /// Asks for an object; none if there is no such.
    pub(crate) async fn find<T: DeserializeOwned>(
        &self,
        operation: &str,
        path: &str,
    ) -> Result<Option<T>, Failure> {
        if_there(self.send(operation, Method::GET, path, None).await)
    }

    /// All pages of a list, what there is on each.
    pub(crate) async fn pages<I: Default + DeserializeOwned>(
        &self,
        operation: &str,
        first: &str,
    ) -> Result<Vec<I>, Failure> {
        let (mut path, mut found) = (first.to_owned(), Vec::new());
        let mark = if first.contains('?') { '&' } else { '?' };
        loop {
            let page: Page<I> = self.send(operation, Method::GET, &path, None).await?;
            found.push(page.items);
            if page.next_page_token.is_empty() {
                return Ok(found);
            }
            path = format!("{first}{mark}pageToken={}", encode_component(&page.next_page_token));
        }
    }

    /// Asks for something whose answer says nothing new.
    pub(crate) async fn tell(
        &self,
        operation: &str,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(), Failure> {
        self.send::<IgnoredAny>(operation, method, path, body).await.map(drop)
    }
}

/// A body. All shapes are structs, whose fields are text.
pub(crate) fn json(body: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(body).expect("structs have fields with names")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_their_classes() {
        for (status, code, message, expected) in [
            (403, "rateLimitExceeded", "", Class::Throttled),
            (403, "quotaExceeded", "", Class::Limit),
            (403, "forbidden", "", Class::Denied),
            (
                400,
                "badRequest",
                "There is a peering operation in progress on the local or peer network.",
                Class::Busy,
            ),
            (400, "resourceNotReady", "", Class::Busy),
            (412, "conditionNotMet", "", Class::Changed),
            (400, "resourceInUseByAnotherResource", "", Class::InUse),
            (409, "alreadyExists", "", Class::Exists),
            (404, "notFound", "", Class::NotFound),
            (401, "authError", "", Class::Unauthenticated),
            (503, "backendError", "", Class::Failed),
            (400, "invalid", "", Class::Invalid),
            (502, "", "", Class::Failed),
            (
                400,
                "failedPrecondition",
                "Cluster is running incompatible operation operation-1.",
                Class::Busy,
            ),
            (429, "RESOURCE_EXHAUSTED", "", Class::Throttled),
            (404, "NOT_FOUND", "", Class::NotFound),
            (409, "ALREADY_EXISTS", "", Class::Exists),
        ] {
            assert_eq!(class(status, code, message), expected, "{code} {message}");
        }
    }
}
