//! REST: Paraglider's routes, our own nouns, the page, health, metrics, and the OpenAPI document.
//!
//! Failures are RFC 9457 problem JSON with the gRPC code (`crate::failure`). Not here: who may call (`access`).

mod body;
mod checks;
mod delta;
mod enforcement;
mod events;
mod flows;
mod hosts;
mod inventory;
mod jobs;
mod kubernetes;
mod map;
mod namespaces;
mod nodes;
mod objects;
mod page;
mod permissions;
mod policies;
mod reachability;
mod resources;
mod rules;
mod services;
pub mod session;
mod staged;
mod storage;
mod system;
mod tags;
mod volumes;

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, FromRef},
    http::{Method, StatusCode, Uri},
    middleware,
};
use drivers::{
    flows::Flows, namespaces::Namespaces, objects::Objects, policy::Policy, services::Services,
    storage::Storage, tags::Tags,
};
use orchestrator::execute::Orchestrator;
use store::Store;
use tonic::Code;
use transport::Hub;
use utoipa::{
    Modify, OpenApi,
    openapi::security::{Http, HttpAuthScheme, SecurityScheme},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use self::session::Secure;
use crate::{
    about::About,
    access::{Credentials, join::Admissions},
    audit::Audit,
    clusters::Clusters,
    config::Page,
    enforcement::Enforcement,
    explain::Explainer,
    failure::Failure,
    hosts::Hosts,
    metrics::Metrics,
    news::News,
    nodes::Nodes,
    objects::Changing,
    permissions::Allows,
    realisation::Realisations,
    serving::Serving,
};

/// What the routes are about; each takes what it needs.
#[derive(Clone, FromRef)]
pub struct App {
    pub about: About,
    pub store: Store,
    pub tags: Arc<Tags>,
    pub namespaces: Namespaces,
    pub orchestrator: Arc<Orchestrator>,
    pub objects: Objects,
    pub policy: Arc<Policy>,
    pub explainer: Explainer,
    pub changing: Changing,
    pub allows: Allows,
    pub realisations: Realisations,
    pub enforcement: Arc<Enforcement>,
    pub flows: Option<Arc<Flows>>,
    pub services: Arc<Services>,
    pub storage: Option<Arc<Storage>>,
    pub nodes: Nodes,
    pub hosts: Hosts,
    pub clusters: Clusters,
    pub admissions: Arc<Admissions>,
    pub hub: Arc<Hub>,
    pub credentials: Arc<Credentials>,
    pub audit: Arc<Audit>,
    pub metrics: Arc<Metrics>,
    pub news: Arc<News>,
    pub serving: Arc<Serving>,
    pub page: Page,
    pub secure: Secure,
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Trestle", description = "One control plane for who may talk to whom."),
    modifiers(&Bearer),
    security(("bearer" = [])),
    tags(
        (name = "tags", description = "Names for addresses, resources and groups of other tags"),
        (name = "namespaces", description = "Units in which resources are named and networks are kept apart"),
        (name = "resources", description = "Resources in clouds and who may talk to them"),
        (name = "jobs", description = "Long work"),
        (name = "permissions", description = "Who may open which connections to whom: one thing for both ends"),
        (name = "policies", description = "What policies come to, and why a connection is permitted or denied"),
        (name = "flows", description = "Connections that nodes have seen, allowed and denied"),
        (name = "nodes", description = "Nodes: their connection, what they have applied, and what they could not"),
        (name = "hosts", description = "Machines that have joined"),
        (name = "kubernetes", description = "Kubernetes clusters that are read"),
        (name = "services", description = "Load-balanced addresses, and where packets to them go"),
        (name = "storage", description = "Storage handed to other clusters"),
        (name = "system", description = "The controller itself"),
    )
)]
struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    }
}

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(tags::list))
        .routes(routes!(tags::get, tags::delete))
        .routes(routes!(tags::resolve_members))
        .routes(routes!(tags::apply_members))
        .routes(routes!(tags::delete_member))
        .routes(routes!(tags::subscribers))
        .routes(routes!(tags::subscribe, tags::unsubscribe))
        .routes(routes!(namespaces::list))
        .routes(routes!(namespaces::get, namespaces::set, namespaces::delete))
        .routes(routes!(resources::list, resources::post))
        .routes(routes!(resources::get, resources::put, resources::delete))
        .routes(routes!(rules::list, rules::post))
        .routes(routes!(rules::put, rules::delete))
        .routes(routes!(rules::apply))
        .routes(routes!(rules::delete_many))
        .routes(routes!(rules::list_on_tag, rules::post_on_tag, rules::delete_on_tag))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::get, jobs::cancel))
        .routes(routes!(permissions::list, permissions::allow))
        .routes(routes!(permissions::get, permissions::deny))
        .routes(routes!(permissions::proof))
        .routes(routes!(policies::list))
        .routes(routes!(policies::get))
        .routes(routes!(policies::explain))
        .routes(routes!(enforcement::get))
        .routes(routes!(flows::list))
        .routes(routes!(flows::top))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::get))
        .routes(routes!(hosts::list))
        .routes(routes!(hosts::get, hosts::remove))
        .routes(routes!(hosts::create_token))
        .routes(routes!(kubernetes::list))
        .routes(routes!(services::list))
        .routes(routes!(services::get))
        .routes(routes!(services::explain))
        .routes(routes!(storage::list_tickets, storage::create_ticket))
        .routes(routes!(storage::revoke_ticket))
        .routes(routes!(storage::list_consumers))
        .routes(routes!(storage::get_consumer, storage::offboard_consumer))
        .routes(routes!(storage::permit_consumer))
        .routes(routes!(storage::keep_consumer))
        .routes(routes!(storage::name_consumer))
        .routes(routes!(storage::adopt_volume))
        .routes(routes!(storage::recreate_volume))
        .routes(routes!(storage::resize_consumer))
        .routes(routes!(storage::label_consumer))
        .routes(routes!(storage::limit_consumer))
        .routes(routes!(volumes::list_volumes, volumes::create_volume))
        .routes(routes!(volumes::resize_volume))
        .routes(routes!(volumes::delete_volume))
        .routes(routes!(volumes::keep_volume))
        .routes(routes!(volumes::snapshot_volume))
        .routes(routes!(volumes::restore_volume))
        .routes(routes!(volumes::publish_volume, volumes::unpublish_volume))
        .routes(routes!(page::index))
        .routes(routes!(page::file))
        .routes(routes!(session::begin, session::end))
        .routes(routes!(session::whoami))
        .routes(routes!(events::events))
        .routes(routes!(inventory::status))
        .routes(routes!(inventory::clouds))
        .routes(routes!(inventory::cloud))
        .routes(routes!(inventory::rules))
        .routes(routes!(inventory::resources))
        .routes(routes!(inventory::links))
        .routes(routes!(inventory::workloads))
        .routes(routes!(objects::list, objects::apply, objects::delete))
        .routes(routes!(staged::list))
        .routes(routes!(staged::promote))
        .routes(routes!(staged::discard))
        .routes(routes!(checks::tests, checks::tests_with))
        .routes(routes!(checks::lint, checks::lint_with))
        .routes(routes!(checks::replay))
        .routes(routes!(checks::suggest))
        .routes(routes!(reachability::reachability))
        .routes(routes!(map::map))
        .routes(routes!(map::around))
        .routes(routes!(system::ping))
        .routes(routes!(system::healthz))
        .routes(routes!(system::readyz))
        .routes(routes!(system::metrics))
        .routes(routes!(system::audit))
        .routes(routes!(system::openapi))
}

/// The OpenAPI document of all routes.
pub fn openapi() -> utoipa::openapi::OpenApi {
    routes().split_for_parts().1
}

/// Tells browsers, in every reply, what they may do with it.
pub fn for_browsers(router: Router) -> Router {
    router.layer(middleware::from_fn(page::guard))
}

/// The router of the HTTP listener.
pub fn router(app: App, max_bytes: usize) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(|method: Method, uri: Uri| async move {
            Failure::new(
                Code::NotFound,
                format!("there is no route {method} {}; see /openapi.json", uri.path()),
            )
        })
        .method_not_allowed_fallback(|method: Method, uri: Uri| async move {
            Failure::new(
                Code::Unimplemented,
                format!("{} does not take {method}; see /openapi.json", uri.path()),
            )
            .with_status(StatusCode::METHOD_NOT_ALLOWED)
        })
        .layer(DefaultBodyLimit::max(max_bytes))
        .layer(middleware::from_fn_with_state(
            Arc::<delta::Versions>::default(),
            delta::answer_with_difference,
        ))
        .with_state(app)
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    #[test]
    fn the_page_is_built_against_the_document_that_is_served() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/openapi.json");
        let served = format!("{}\n", serde_json::to_string_pretty(&super::openapi()).unwrap());
        if env::var_os("TRESTLE_BLESS").is_some() {
            fs::write(&path, &served).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == served,
            "web/openapi.json is not what the server serves; renew it with `make openapi` and build the page"
        );
    }
}
