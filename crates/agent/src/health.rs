//! Health, readiness and metrics, on a TCP listener: for probes and Prometheus.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::State as Shared,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};

use crate::{flows::Flows, local::Local, metrics::Metrics};

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for health and metrics")]
pub struct ListenError {
    pub address: SocketAddr,
    #[source]
    pub source: std::io::Error,
}

/// Whose figures are shown.
pub struct Shown {
    pub metrics: Arc<Metrics>,
    pub flows: Option<Arc<Flows>>,
}

/// The routes of the listener.
pub fn router(local: Local, shown: Shown) -> Router {
    let figures = move |Shared(local): Shared<Local>| async move {
        let state = local.worker.state().borrow().clone();
        let services = local.services.as_ref().map(|services| services.metrics.render()).unwrap_or_default();
        let (silence, queued) = (local.worker.silence(), local.worker.queued());
        let text = services
            + &shown.metrics.render(
                &state,
                &local.connection.borrow(),
                silence,
                queued,
                shown.flows.as_deref(),
            );
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        ([(header::CONTENT_TYPE, kind)], text)
    };
    Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/metrics", get(figures))
        .route("/proxyMode", get(proxy_mode))
        .with_state(local)
}

/// Healthy: all of the agent is there and moves. Otherwise it should be started again.
async fn healthy(Shared(local): Shared<Local>) -> Response {
    match local.ailment() {
        None => "ok".into_response(),
        Some(ailment) => (StatusCode::SERVICE_UNAVAILABLE, ailment).into_response(),
    }
}

/// As kube-proxy has it beside its figures.
async fn proxy_mode(Shared(local): Shared<Local>) -> String {
    local.services.as_ref().map_or_else(|| "none".to_owned(), |services| services.mode())
}

/// Ready: what a controller last said is in force. Whether one is connected does not matter: a node must not be taken
/// out of service because the controller is.
async fn ready(Shared(local): Shared<Local>) -> Response {
    let status = local.status();
    let code = if status.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(status)).into_response()
}
