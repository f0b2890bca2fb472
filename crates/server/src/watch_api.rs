//! The watch API: what stock Antrea agents and kubectl speak, over HTTP and TLS.
//!
//! ```text
//!   listen ─► as Status ─► limits ─► access::gate ─► whose node ─► watch::Cache ◄── policy (driver)
//! ```
//!
//! A caller in the role of a node sees and reports for its own node only. Failures are `v1` `Status` objects. Not here:
//! frames and their meaning (`watch`), roles (`access`).

mod questions;
mod reports;
mod resources;
mod statistics;
mod status;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, FromRef, State},
    http::{Method, StatusCode, Uri},
    middleware,
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use drivers::{policy::Policy, span::is_cloud};
use model::Role;
use tonic::Code;
use watch::{
    Cache, GROUP, Resource, StatsResource, VERSION, discovery,
    proto::{STATS_GROUP, STATS_VERSION},
};

use crate::{access::Caller, failure::Failure, metrics::Metrics, serving::Serving};

/// What the routes are about; each takes what it needs.
#[derive(Clone, FromRef)]
pub struct App {
    pub policy: Arc<Policy>,
    pub watch: Arc<Cache>,
    pub metrics: Arc<Metrics>,
    pub serving: Arc<Serving>,
}

fn path(resource: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/{resource}")
}

fn stats_path(rest: &str) -> String {
    format!("/apis/{STATS_GROUP}/{STATS_VERSION}{rest}")
}

/// The routes of the watch listener.
fn routes() -> Vec<(&'static str, String, axum::routing::MethodRouter<App>)> {
    let mut routes = vec![
        ("GET", "/healthz".to_owned(), get(|| async { "ok" })),
        ("GET", "/livez".to_owned(), get(|| async { "ok" })),
        ("GET", "/readyz".to_owned(), get(readyz)),
        ("GET", "/api".to_owned(), get(|| async { Json(discovery::legacy()) })),
        ("GET", "/apis".to_owned(), get(|| async { Json(discovery::groups()) })),
        ("GET", format!("/apis/{GROUP}"), get(|| async { Json(discovery::group()) })),
        ("GET", format!("/apis/{GROUP}/{VERSION}"), get(|| async { Json(discovery::resources()) })),
        ("GET", format!("/apis/{STATS_GROUP}"), get(|| async { Json(discovery::stats_group()) })),
        ("GET", stats_path(""), get(|| async { Json(discovery::stats_resources()) })),
        ("POST", path("networkpolicies/{name}/status"), post(reports::policy_status)),
        ("POST", path("nodestatssummaries"), post(reports::node_stats)),
        ("GET", path("clustergroupmembers/{name}"), get(questions::cluster_group_members)),
        ("GET", path("namespaces/{namespace}/groupmembers/{name}"), get(questions::group_members)),
        ("GET", path("namespaces/{namespace}/groupassociations/{name}"), get(questions::groups_of_pod)),
        ("GET", path("ipgroupassociations/{name}"), get(questions::groups_of_address)),
        ("POST", path("networkpolicyevaluation"), post(questions::evaluate)),
    ];
    for resource in Resource::ALL {
        let list = path(resource.plural());
        let one = format!("{list}/{{name}}");
        routes.push((
            "GET",
            list,
            get(move |state, caller, query, headers| {
                resources::list_or_watch(resource, state, caller, query, headers)
            }),
        ));
        routes.push((
            "GET",
            one,
            get(move |state, caller, name, headers| resources::get(resource, state, caller, name, headers)),
        ));
    }
    for resource in StatsResource::ALL {
        let list =
            move |state, place, pairs, headers| statistics::list(resource, state, place, pairs, headers);
        let one = move |state, place, headers| statistics::get(resource, state, place, headers);
        let plural = resource.plural();
        routes.push(("GET", stats_path(&format!("/{plural}")), get(list)));
        let of_one = match resource.is_namespaced() {
            true => {
                routes.push(("GET", stats_path(&format!("/namespaces/{{namespace}}/{plural}")), get(list)));
                format!("/namespaces/{{namespace}}/{plural}/{{name}}")
            }
            false => format!("/{plural}/{{name}}"),
        };
        routes.push(("GET", stats_path(&of_one), get(one)));
    }
    routes
}

/// Every operation of this listener, for the test that each has its line in the table.
#[cfg(test)]
pub fn operations() -> Vec<String> {
    routes().into_iter().map(|(method, path, _)| format!("{method} {path}")).collect()
}

/// The router of the watch listener.
pub fn router(app: App, max_bytes: usize) -> Router {
    let mut router = Router::new();
    for (_, path, route) in routes() {
        router = router.route(&path, route);
    }
    router
        .fallback(|method: Method, uri: Uri| async move {
            Failure::new(Code::NotFound, format!("there is no {method} {} here; see /apis", uri.path()))
        })
        .method_not_allowed_fallback(|method: Method, uri: Uri| async move {
            Failure::new(Code::Unimplemented, format!("{} does not take {method}", uri.path()))
                .with_status(StatusCode::METHOD_NOT_ALLOWED)
        })
        .layer(DefaultBodyLimit::max(max_bytes))
        .with_state(app)
}

/// Put around everything else, so that every failure is told in the client's own way.
pub fn speak_kubernetes(router: Router) -> Router {
    router.layer(middleware::map_response(status::as_status))
}

async fn readyz(State(serving): State<Arc<Serving>>) -> Response {
    let problems = serving.not_ready().await;
    if problems.is_empty() {
        return "ok".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, problems.join("\n")).into_response()
}

/// The span key a node may speak for; none for callers who may see everything.
///
/// An external node's key is `namespace/name`, and a caller's name has no `/`: it is written `namespace_name`. No
/// Kubernetes name has a `_`, so the two never meet.
fn own_node(caller: &Caller) -> Option<String> {
    let key = || caller.subject.name.as_str().replacen('_', "/", 1);
    // What clouds must enforce is under keys of that form, and no node's.
    (caller.role() == Role::Node).then(key).map(|key| if is_cloud(&key) { String::new() } else { key })
}
